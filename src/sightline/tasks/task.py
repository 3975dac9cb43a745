"""The contract of a task: what comes in × what comes out. Read `sightline.attention.contract` first, then this file.

A `Task` is a declaration: plain data that names an input, an output, the models with their sizes, the metrics and the
options. It imports neither torch nor the classes that it names. Everything else is written once, against the two base
classes `sightline.inputs.base.Input` and `sightline.outputs.base.Output`: reading and checking rows, splitting,
storing, training, resuming, the dry run, saving, loading, predicting, evaluating, comparing, viewing, serving,
benchmarking, the model card, the command line and the server.

Declarations are constants. ``fit`` returns new, fitted objects that save and load themselves; nothing that was fitted
lives on a declaration, so two runs of one task can be used side by side.

An item x and its target y are plain data (text, numbers, tuples): they survive JSON through ``pack`` and ``unpack``.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.data.checking import RowLimits
    from sightline.data.source import Source

Sizes = Mapping[str, Mapping[str, object]]  # tiny, small, base -> fields of the model's configuration
SIZES = ("tiny", "small", "base")

# The types that inputs and outputs have as parameters.
X = TypeVar("X")  # an item
Y = TypeVar("Y")  # its target
Part = TypeVar("Part")  # what a model reads at once of an item
Batch = TypeVar("Batch")  # parts as tensors
Raw = TypeVar("Raw")  # what a model gives for an item
Pred = TypeVar("Pred")  # the prediction that is made of it
Options = TypeVar("Options", bound="PredictOptions | None")  # those of `Run.predict`
X_co = TypeVar("X_co", covariant=True)  # the same for data that is only read
Y_co = TypeVar("Y_co", covariant=True)
Raw_co = TypeVar("Raw_co", covariant=True)
Pred_co = TypeVar("Pred_co", covariant=True)


class BadValueError(ValueError):
    """A value that cannot be used: ``kind: what was found, what was expected``."""


if TYPE_CHECKING:

    class Example(NamedTuple, Generic[X_co, Y_co]):
        """An item and its target."""

        x: X_co
        y: Y_co

else:  # what checks signatures in tests does not know generic named tuples

    class Example(NamedTuple):
        """An item and its target."""

        x: object
        y: object

        @classmethod
        def __class_getitem__(cls, types: object) -> type:
            return cls


SomeExample = Example[object, object]


@dataclass(frozen=True)
class Divided(Generic[X, Raw, Options]):
    """Items that replace others (the sentences of a text), their options, and what joins their outputs."""

    items: Sequence[X]
    options: Options
    join: Callable[[Sequence[Raw]], list[Raw]]


@dataclass(frozen=True)
class PredictOptions:
    """Options of `Run.predict` that every output takes; outputs add their own. ``batch_tokens`` bounds memory."""

    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.batch_tokens is not None and self.batch_tokens < 1:
            raise UserError(f"batch_tokens is {self.batch_tokens}; it must be at least 1")


@dataclass(frozen=True)
class Column:
    """A column of the data: its name, what it holds, other names that files may use, whether it may be missing."""

    name: str
    help: str
    names: tuple[str, ...] = ()
    optional: bool = False

    @property
    def all(self) -> tuple[str, ...]:
        return (self.name, *self.names)


@dataclass(frozen=True)
class Option:
    """An option of `sightline train` that only some tasks have.

    ``sets`` is the field of the configuration that it sets; without one it is an option of the reader
    (`Source.options`). ``choices`` are the values it may have; ``flag``: it takes no value, and writes ``value``.
    ``only_with`` is another option and the value that it must have, where both are given. ``everywhere``: it is an
    option of the reader of validation data too.
    """

    name: str
    help: str
    sets: str | None = None
    choices: tuple[str, ...] = ()
    flag: bool = False
    value: object = None
    metavar: str = ""
    only_with: tuple[str, str] | None = None
    everywhere: bool = False


@dataclass(frozen=True)
class Variant:
    """One pair of input and output of a task. Most tasks have one; `classify` reads texts or images.

    Classes are named as ``module:Class`` and imported when they are needed. ``models`` maps a model's name to its
    sizes; the first is the default. ``rates`` are the learning rates by size, or by model and size. ``fields`` are
    other fields of the configuration by size. ``stored`` is the variant's name in config.json of a run.
    """

    input: str
    output: str
    config: str
    models: Mapping[str, Sizes]
    stored: str
    rates: Mapping[str, object] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    start: str = "sightline.tasks.warm_start:SameTask"
    accepts: str | None = None  # ``module:function`` of a Source: whether this variant reads it; None: always
    columns: tuple[Column, ...] = ()  # where they are not the task's own
    differs: Mapping[str, object] = field(default_factory=dict)  # fields of the task that this variant replaces


@dataclass(frozen=True, kw_only=True)
class Task:
    """The declaration of a task. See the module's description; `sightline.tasks.registry` lists all tasks.

    ``reader`` names the function that turns a `Source` into rows (`Cells`) of the ``columns``; by default, files are
    tables with these columns. ``rows`` is the noun for rows, ``counted`` what the loss is a mean over. Of the
    ``metrics``, the first decides which checkpoint is best.
    """

    name: str
    help: str
    data: str
    columns: tuple[Column, ...]
    reader: str = "sightline.data.source:table_cells"
    variants: tuple[Variant, ...]
    metrics: tuple[str, ...]
    rows: str
    counted: str
    options: tuple[Option, ...] = ()
    max_characters: int = 1000
    max_bad_share: float = 0.01
    made: str = ""  # inputs of the made data that it reads: vectors, symbols or questions
    overrides: tuple[str, ...] = ()  # assignments to the configuration that this task makes before the user's

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models, the default first."""
        return tuple(dict.fromkeys(name for variant in self.variants for name in variant.models))

    def limits(self, most: int | None = None, share: float | None = None, options: bool = False) -> "RowLimits":
        """How long a row may be and how many may be bad: the task's own limits unless others are given."""
        from sightline.data.checking import RowLimits

        return RowLimits(most or self.max_characters, self.max_bad_share if share is None else share, options=options)

    def own_options(self, values: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """What the task's own options set in the configuration, and what they pass to its reader."""
        sets: dict[str, object] = {}
        reader: dict[str, object] = {}
        for option in self.options:
            name = option.name.replace("-", "_")
            value = values.get(name)
            if value is not None and value is not False:
                other, needed = option.only_with or ("", "")
                if values.get(other) not in (None, needed):
                    raise UserError(f"--{option.name} needs --{other} {needed}, but --{other} is {values[other]}")
                (reader if option.sets is None else sets)[option.sets or name] = option.value if option.flag else value
        return sets, reader

    def check_source(self, source: "Source") -> None:
        """Refuse a command line that names no data, names it twice, or names it with an option of another task."""
        known = {one.name for one in self.options}
        for name, value in source.options.items():
            if value and name not in known:
                raise UserError(f"--{name} is no option of {self.name}; give --data FILE: {self.data}")
        made = [name for name in ("lengths", "count", "width", "repeats") if source.options.get(name)]
        if made and not (source.data or "").startswith("made:"):
            raise UserError(f"--{made[0]} is for made data, such as --data made:copy; leave it out")
        names = [one.name for one in self.options if one.metavar == "FILE"]
        given = [name for name in names if source.options.get(name)]
        spelled = " and ".join(f"--{name} FILE" for name in names)
        if source.data is None and source.held is None and not given:
            other = f", or {spelled}" if names else f": {self.data}"
            raise UserError(f"give {'either ' if names else ''}--data FILE{other}")
        if given and source.data is not None:
            raise UserError(f"give either --data FILE, or {spelled}")
        if given and len(given) < len(names):
            raise UserError(
                f"{' and '.join(f'--{name}' for name in names)} go together: one sentence a line, as many lines in both"
            )
        if given and source.columns is not None:
            raise UserError(f"--columns are those of --data; files given with {spelled.replace(' FILE', '')} have none")

    def variant_for(self, source: "Source") -> Variant:
        """The variant that reads this data."""
        for variant in self.variants:
            if variant.accepts is None or imported(variant.accepts)(source):
                return variant
        empty = ", which is empty" if source.is_empty else ""
        raise UserError(f"{self.name} cannot read {source.name}{empty}; expected {self.data}")

    def of(self, variant: Variant) -> "Task":
        """The task with the fields that a variant replaces."""
        fields: Any = variant.differs
        return replace(self, **fields) if fields else self

    def variant_of(self, stored: str) -> Variant:
        """The variant that a run folder names."""
        return next((one for one in self.variants if one.stored == stored), self.variants[0])


def imported(path: str) -> Any:
    """The object that ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
