"""Commands and their options as data: parsed by tyro, with help in groups."""

import dataclasses
import difflib
import glob
import logging
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_origin

import tyro

from sightline.errors import UserError

LOG = logging.getLogger(__name__)
REQUIRED: Any = dataclasses.MISSING
# Options that name items which are files, by the column of the input that reads them (`Input.column`).
FILE_OPTIONS = {"image": "images", "audio": "recordings", "features": "arrays (.npy)", "frames": "clips"}
# Other options that name files to read.
READ = {"data", "valid", "source", "target", "input", "images", "config", "gold", "truth", "table"}
RUN_FILES = ("config.json", "sightline.json", "model.safetensors")  # of a run, an export, a checkpoint
METAVARS = {int: "N", float: "X", str: "TEXT", tuple[str, ...]: "TEXT"}
# Options that have a new name, by command: the old one works for one release. {"train": {"--old": "--new"}}
RENAMED: dict[str, dict[str, str]] = {"train": {"--no-floors": "--no-baselines"}}
# Groups of options that do not apply to every run.
GROUPS = {
    "search": "For runs that write text: translate, summarise, caption.",
    "labels": "For runs that predict labels: classify, grid.",
}


@dataclass(frozen=True)
class Arg:
    """An option: its name, the type of its value, its help, its default, and the group it is shown in.

    ``bool`` is a flag without a value. ``choices`` replace the type. ``positional`` ones are given without their name.
    ``items``: it names items that are files; it is enough that one is there, since commands report the others.
    """

    name: str
    type: Any
    help: str
    default: Any = None
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    group: str = ""
    positional: bool = False
    items: bool = False

    @property
    def key(self) -> str:
        """Its name in Python."""
        return "start" if self.name == "from" else self.name.replace("-", "_")

    def field(self) -> Any:
        """As a field of a dataclass that tyro reads."""
        kind: Any = Literal[self.choices] if self.choices else self.type
        flag = kind is bool
        if self.default is None and not flag:
            kind = kind | None
        metavar = self.metavar or (f"{{{','.join(self.choices)}}}" if self.choices else METAVARS.get(self.type, "FILE"))
        hint = "" if self.default in (None, False, ()) else f"(default: {self.default})"
        if self.default is REQUIRED:
            hint = "" if self.positional else "(required)"
        argument: Any = tyro.conf.arg(
            name=self.name, help=self.help, metavar=None if flag else metavar, help_behavior_hint=hint
        )
        annotated = Annotated[(kind, argument, *((tyro.conf.Positional,) if self.positional else ()))]
        default = () if self.default is REQUIRED else (dataclasses.field(default=False if flag else self.default),)
        return (self.key, annotated, *default)


def nearest(name: str, known: Iterable[str], mark: str = "") -> str:
    """Advice for a name that does not exist: the most similar name, or all names."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {mark}{close[0]}?" if close else f"there is {', '.join(f'{mark}{one}' for one in names)}"


def joined(options: Sequence[Arg], arguments: Sequence[str]) -> list[str]:
    """The arguments with the values of each list behind one option: given twice, an option would lose the first."""
    lists = {f"--{option.name}" for option in options if get_origin(option.type) is tuple}
    gathered: dict[str, list[str]] = {}
    order: list[str] = []  # arguments as they are; in the place of a list, its option
    current = None
    for argument in arguments:
        flag, equals, value = argument.partition("=")
        if argument.startswith("--"):
            flag = flag.replace("_", "-")
            current = flag if flag in lists else None
            if current is not None and current not in gathered:
                order.append(current)
            if current is not None:
                gathered.setdefault(current, []).extend([value] if equals else [])
                continue
        if current is None:
            order.append(argument)
        else:
            gathered[current].append(argument)
    empty = next((flag for flag, values in gathered.items() if not values), None)
    if empty is not None:
        raise UserError(f"{empty} has no value; give one or leave {empty} out")
    flags = [argument.partition("=")[0].replace("_", "-") for argument in arguments if argument.startswith("--")]
    if all(flags.count(flag) == 1 for flag in gathered):
        return list(arguments)  # --text=-5 stays one argument
    return [one for argument in order for one in (argument, *gathered.get(argument, ()))]


def parsed(options: Sequence[Arg], prog: str, description: str, arguments: Sequence[str]) -> dict[str, Any]:
    """The values of the options on a command line, by their names in Python. Errors and help end the program."""
    known = {option.name for option in options if not option.positional}
    for name in (one[2:].partition("=")[0].replace("_", "-") for one in arguments if one[:2] == "--"):
        if name and name not in {*known, "help"}:
            advice = nearest(name, sorted(known), "--")
            raise UserError(f"{prog.removeprefix('sightline ')} has no option --{name}; {advice}")
    groups: dict[str, list[Any]] = {}
    for option in sorted(options, key=lambda one: one.default is not REQUIRED):  # required options come first
        groups.setdefault(option.group, []).append(option.field())
    own = groups.pop("", [])
    nested = []
    for title, fields in groups.items():
        kind = dataclasses.make_dataclass(title.capitalize(), fields)
        kind.__doc__ = GROUPS.get(title, "")
        nested.append((title, kind, dataclasses.field(default_factory=kind)))
    whole = dataclasses.make_dataclass("Options", [*own, *nested])
    marks = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes)
    if os.environ.get("NO_COLOR"):
        tyro._experimental_options["ansi_codes"] = False
    if not {"-h", "--help"} & set(arguments):
        arguments = joined(options, arguments)
    else:  # tyro would not wrap it
        print("".join(f"{textwrap.fill(paragraph, 80)}\n\n" for paragraph in description.split("\n\n")), end="")
    given: Any = tyro.cli(whole, prog=prog, description="", args=list(arguments), config=marks)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(given):
        value = getattr(given, field.name)
        values |= vars(value) if dataclasses.is_dataclass(value) else {field.name: value}
    for option in options:
        given = values[option.key]
        if option.name == "input" and values.get("text"):  # one too many, which the command says
            continue
        some = given if isinstance(given, tuple) else (given,) if given is not None else ()
        if (option.items or option.name == "images") and any(os.path.exists(one) for one in some):
            continue
        for one in some:
            check_there(option, str(one))
    return values


def file_options(about: str, group: str) -> tuple[Arg, ...]:
    """The options that name files. A command gets them as one value, ``files``: paths by the name of the option."""
    return tuple(
        Arg(
            name,
            tuple[Path, ...],
            f"{noun.capitalize()}{about}, for runs that read {noun}.",
            (),
            group=group,
            items=True,
        )
        for name, noun in FILE_OPTIONS.items()
    )


def check_there(option: Arg, given: str) -> None:
    """Refuse the name of a run, a file or made data that is not there, before anything heavy is imported."""
    path = Path(given)
    metavar = option.metavar or ""
    if metavar.startswith("RUN") and given.startswith("hf:"):
        if not Path(given[3:]).is_dir():
            raise UserError(f"there is no folder {given[3:]}; hf:DIR names a Hugging Face model on this disk")
    elif metavar.startswith("RUN"):
        if not path.is_dir():
            raise UserError(f"there is no run folder {path}")
        if not any((path / name).exists() for name in RUN_FILES):
            raise UserError(f"{path} is not a run folder: it has no {RUN_FILES[0]}")
    if option.name in READ and given.startswith("made:"):
        from sightline.data.made_names import read_name

        read_name(given)
    named = (option.items or option.name in READ) and given != "-" and ":" not in given  # not an address
    if named and not path.exists() and not glob.has_magic(given):
        raise UserError(f"there is no file {given}" if option.name == "input" else f"{given}: there is no such file")


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
    """A command: its name, its help, its options, and the function that gets their values.

    ``run`` names the function as ``module:name``: nothing heavy is imported before the options are checked.
    """

    name: str
    help: str
    options: tuple[Arg, ...]
    run: str

    def __call__(self, arguments: Sequence[str]) -> None:
        values = parsed(self.options, f"sightline {self.name}", self.help, arguments)
        if any(option.items for option in self.options):
            values["files"] = {option.name: values.pop(option.key) for option in self.options if option.items}
        from sightline.tasks.task import imported

        imported(self.run)(**values)


THREADS = Arg("threads", int, "Use this many processor threads; by default, PyTorch decides.")
JSON = Arg("json", bool, "Print JSON instead of tables.")
ENCODING = Arg("encoding", str, "The encoding of text files; utf-8 by default.", None, "NAME")
DEVICE = Arg("device", str, "Where to compute; auto uses a GPU if there is one.", "auto", None, ("auto", "cpu", "cuda"))
SET = "Set any field of the configuration, such as model.size=256 training.learning_rate=0.001"
