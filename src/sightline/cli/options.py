"""Options of commands as data: made into real parsers by tyro, grouped by what they are for."""

import dataclasses
import logging
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

LOG = logging.getLogger(__name__)
REQUIRED: Any = dataclasses.MISSING
# Options that have a new name, by command: they work under the old one for one release. {"train": {"--old": "--new"}}
RENAMED: dict[str, dict[str, str]] = {}
# Groups of options that are not for every run.
GROUPS = {
    "search": "For runs that write: translate, summarise, caption.",
    "labels": "For runs that give labels: classify, grid.",
}


@dataclass(frozen=True)
class Option:
    """An option: its name, the type of its value, its default, its help, and the group it is shown in.

    ``bool`` is a flag without a value. ``choices`` replace the type. ``positional`` ones are given without their name.
    """

    name: str
    type: Any
    help: str
    default: Any = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    group: str = ""
    positional: bool = False

    @property
    def key(self) -> str:
        """Its name in Python."""
        return "start" if self.name == "from" else self.name.replace("-", "_")

    def field(self) -> Any:
        """As a field of a dataclass that tyro reads."""
        kind: Any = Literal[self.choices] if self.choices else self.type
        if self.default is None and kind is not bool:
            kind = kind | None
        metavar = self.metavar or (f"{{{','.join(self.choices)}}}" if self.choices else None)
        about: Any = tyro.conf.arg(
            name=self.name,
            help=self.help,
            metavar=None if kind is bool else metavar or _metavar(self.type),
            help_behavior_hint="(required)" if self.default is REQUIRED and not self.positional else "",
        )
        marks = (tyro.conf.Positional,) if self.positional else ()
        default = False if kind is bool else self.default
        annotated = Annotated[(kind, about, *marks)]
        return (
            (self.key, annotated) if default is REQUIRED else (self.key, annotated, dataclasses.field(default=default))
        )


def _metavar(kind: Any) -> str:
    names = {int: "N", float: "X", str: "TEXT"}
    return names.get(kind, "FILE")


def parsed(options: Sequence[Option], prog: str, description: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The values of the options on a command line, by their names in Python. Errors and help end the program."""
    groups: dict[str, list[Any]] = {}
    for option in sorted(options, key=lambda one: one.default is not REQUIRED):  # what is required comes first
        groups.setdefault(option.group, []).append(option.field())
    own = groups.pop("", [])
    nested = []
    for title, fields in groups.items():
        kind = dataclasses.make_dataclass(title.capitalize(), fields)
        kind.__doc__ = GROUPS.get(title, "")
        nested.append((title, kind, dataclasses.field(default_factory=kind)))
    whole = dataclasses.make_dataclass("Options", [*own, *nested])
    marks = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    if {"-h", "--help"} & set(arguments):  # tyro would not wrap it
        print(f"{textwrap.fill(description, 80)}\n")
    found: Any = tyro.cli(whole, prog=prog, description="", args=list(arguments), config=marks)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        values |= vars(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return values


def current_names(command: str, arguments: Sequence[str]) -> list[str]:
    """The arguments of a command with the new names of options that were renamed, and a warning for each old one."""
    renamed = RENAMED.get(command, {})
    current = []
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        new = renamed.get(flag.replace("_", "-")) if flag.startswith("--") else None
        if new is not None:
            LOG.warning(f"{flag} is now called {new}; the old name works in this release only")
        current.append(f"{new}{equals}{value}" if new is not None else argument)
    return current


@dataclass(frozen=True)
class Command:
    """A command: its options, what it says of itself, and the function that gets their values.

    ``run`` names the function as ``module:name``: nothing heavy is imported before the options are right.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    run: str

    def __call__(self, arguments: Sequence[str]) -> None:
        values = parsed(self.options, f"sightline {self.name}", self.help, arguments)
        self._function()(**values)

    def _function(self) -> Callable[..., None]:
        from sightline.tasks.task import imported

        return imported(self.run)


THREADS = Option("threads", int, "Processor threads; left out, PyTorch decides.")
JSON = Option("json", bool, "Print JSON instead of tables.")
DEVICE = Option(
    "device", str, "auto takes a graphics card where there is one.", "auto", choices=("auto", "cpu", "cuda")
)
SET = "Any field of the configuration, such as model.size=256 training.learning_rate=0.001"
