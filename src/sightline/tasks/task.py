"""The contract of a task: what comes in × what comes out. Read `sightline.attention.contract` first, then this file.

A `Task` is a declaration: plain data that names an `Input`, an `Output`, the models with their sizes, the metrics and
the options. It imports neither torch nor the classes that it names. Everything else is written once, against the two
base classes below: reading and checking rows, splitting, storing, training, resuming, the dry run, saving, loading,
predicting, evaluating, comparing, viewing, serving, benchmarking, the model card, the command line and the server.

Declarations are constants. ``fit`` returns new, fitted objects that save and load themselves; nothing that was fitted
lives on a declaration, so two runs of one task can be used side by side.

An item x and its target y are plain data (text, numbers, tuples): they survive JSON through ``pack`` and ``unpack``.
"""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sightline.data.hashes import hash_of
from sightline.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from sightline.data.checking import Limits, Report
    from sightline.data.columns import Cells
    from sightline.data.source import Source
    from sightline.data.store import Numbers
    from sightline.explanation import Belief, Explanation
    from sightline.records import Axis, Record
    from sightline.tasks.card import Wording
    from sightline.tasks.evaluate import Evaluation, Table
    from sightline.tasks.prepare import Prepared, Rows, Setting
    from sightline.tasks.run import Run, Saved
    from sightline.training.scores import Statistics

Sizes = Mapping[str, Mapping[str, Any]]  # tiny, small, base -> fields of the model's configuration
SIZES = ("tiny", "small", "base")


class BadValueError(ValueError):
    """A value that cannot be used: ``kind: what was found, what was expected``."""


class Example(NamedTuple):
    """An item and its target."""

    x: Any
    y: Any


class Divided(NamedTuple):
    """Items that are predicted in the place of others (the sentences of texts), how, and what joins their outputs."""

    items: Sequence[Any]
    options: Any
    join: Callable[[Sequence[Any]], list[Any]]


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

    ``sets`` is the field of the configuration that it sets; without one it is an option of the reader (`Source.options`).
    ``choices`` are the values it may have; ``flag``: it takes no value, and setting it writes ``value``.
    """

    name: str
    help: str
    sets: str | None = None
    choices: tuple[str, ...] = ()
    flag: bool = False
    value: Any = None
    metavar: str = ""


@dataclass(frozen=True)
class Variant:
    """One pair of input and output of a task. Most tasks have one; `classify` reads texts or images.

    Classes are named as ``module:Class`` and imported when they are needed. ``models`` maps a model's name to its sizes;
    the first is the default. ``rates`` are the learning rates by size, or by model and size. ``fields`` are other
    fields of the configuration by size. ``stored`` is the name under which config.json of a run knows the variant.
    """

    input: str
    output: str
    config: str
    models: Mapping[str, Sizes]
    stored: str
    rates: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    start: str = "sightline.tasks.warm_start:SameTask"
    accepts: str | None = None  # ``module:function`` of a Source: whether this variant reads it; None: any
    columns: tuple[Column, ...] = ()  # where they are not the task's own
    differs: Mapping[str, Any] = field(default_factory=dict)  # other fields of the task that are not as it says


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task, declared. See the module's description; `sightline.tasks.registry` lists them.

    ``reader`` names the function that turns a `Source` into rows (`Cells`) of the ``columns``; without one, files are
    tables with these columns. ``rows`` is what rows are called, ``counted`` what the loss is a mean over. ``metrics``: the first decides which checkpoint is best.
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
    overrides: tuple[str, ...] = ()  # assignments to the configuration that this task makes before the user's

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models, the default first."""
        return tuple(dict.fromkeys(name for variant in self.variants for name in variant.models))

    def check_source(self, source: "Source") -> None:
        """Refuse a command line that names no data, or names it twice."""
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
        raise UserError(f"{source.name} is no data of {self.name}; expected {self.data}")

    def of(self, variant: Variant) -> "Task":
        """The task as a variant has it: what its rows are called, who reads them."""
        return replace(self, **variant.differs) if variant.differs else self

    def variant_of(self, stored: str) -> Variant:
        """The variant that a run folder names."""
        return next((one for one in self.variants if one.stored == stored), self.variants[0])


def imported(path: str) -> Any:
    """What ``module:name`` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


class Input(ABC):
    """What comes in: how it is read, identified, encoded and collated, and what a map's columns are.

    Unfitted, it reads rows. `fit` (of the output, which may be fitted jointly) gives one that encodes. ``kind`` names
    the plain data that an explanation shows: text, pair, words, image, grid, frames, table, vectors. ``noun`` is what
    the items are called.
    """

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "texts"
    at_once: ClassVar[int] = 4096  # items encoded together
    budget: ClassVar[int] = 16_384  # sizes of parts that are in one batch of predictions, padding counted
    keys_file: ClassVar[str] = "texts.npy"  # below the run's data: what it was trained on
    known_by: ClassVar[str] = ""  # what of an item a run knows again, where that is not the whole: a question's text
    # Where items may have labels: ``module:function`` of a run, an item and options that explains one, and
    # ``module:Class`` of the baselines (`sightline.tasks.label_baselines`).
    label_explanation: ClassVar[str | None] = None
    label_baselines: ClassVar[str | None] = None

    def __init__(self, config: Any) -> None:
        self.config = config

    # -- reading

    def stage(self, tables: "Sequence[Iterable[Cells]]", setting: "Setting") -> "Sequence[Iterable[Cells]]":
        """The rows of the training data and of validation data that was given, before they are read one by one.

        An input that has to look into files (images, sound) does it here, once for all of them.
        """
        return tables

    def stage_scored(self, rows: "Iterable[Cells]") -> "Iterable[Cells]":
        """The same for data to score, of which nothing is stored."""
        return rows

    @abstractmethod
    def read(self, cells: Mapping[str, Any]) -> Any:
        """The item in a row, or a `BadValueError` that says what is wrong."""

    def check(self, x: Any, limits: "Limits") -> None:
        """Raise a `BadValueError` where an item is too large to learn from."""

    by_item: ClassVar[bool] = False  # an item of validation data is in the training data with whatever target

    def identity(self, x: Any) -> str:
        """What items that are the same have in common: they stay on one side of a split."""
        return str(x)

    def key(self, x: Any) -> int:
        """The number of an item's identity, by which a run knows what it was trained on."""
        return hash_of(self.identity(x))

    def known_keys(self, data: Path) -> "np.ndarray | None":
        """The keys of what a run was trained on or chosen by, out of its data; None where that is not there."""
        from sightline.tasks.prepare import read_keys

        return read_keys(data / self.keys_file) if self.keys_file else None

    def pack(self, x: Any) -> list[Any]:
        """The item as the first fields of a stored row."""
        return [x]

    def unpack(self, row: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The item that `pack` packed, and the rest of the row."""
        return row[0], row[1:]

    # -- fitted

    def fit(self, rows: "Rows", setting: "Setting") -> "Input":
        """Fitted to the training rows by itself, for outputs that do not fit it together with themselves."""
        return self

    @abstractmethod
    def encode(self, xs: Sequence[Any]) -> list[list[Any]]:
        """Each item as the parts that a model reads at once: one, several where it is too long, none where it is empty.

        A part is what `collate` takes and `size` measures; a `BadValueError` as the only part says that it cannot be
        used.
        """

    def train_parts(self, xs: Sequence[Any]) -> list[list[Any]]:
        """The same for training, where that differs (no overlap between windows, longer texts cut)."""
        return self.encode(xs)

    def stored(self, part: Any) -> Any:
        """A part as the numbers that the training corpus keeps."""
        return part

    def size(self, part: Any) -> int:
        """How large a part is, for batches."""
        return len(part)

    @abstractmethod
    def collate(self, parts: Sequence[Any]) -> Any:
        """Parts, or what `stored` made of them, as a batch of tensors."""

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """Write what `load` needs; gives fields for config.json and the names of files to seal."""
        return {}, []

    @classmethod
    def load(cls, saved: "Saved", config: Any) -> "Input":
        """A fitted input from a run folder, which may be anybody's."""
        return cls(config)

    def reopen(self, setting: "Setting") -> None:
        """What training needs besides, when a run is resumed (stored features)."""

    def notes(self) -> list[str]:
        """What there is to say of the data after it was stored, such as how many items were cut."""
        return []

    source_name: ClassVar[str] = "source"  # what an item is called in the titles of maps
    decodes: ClassVar[str] = "one vector for all of it"  # what a decoder without attention is given
    most_measured: ClassVar[int | None] = (
        None  # how long an item may be for `believe`; None: nothing of it can be hidden
    )

    def believe(
        self, model: "nn.Module", part: Any, written: Sequence[int], records: "Sequence[Record]", shift: int
    ) -> "Belief":
        """Whether to believe a map of what was written: what it costs to hide parts of the item."""
        raise TypeError(f"nothing of {self.noun} can be hidden")

    def shown(self, x: Any) -> dict[str, Any]:
        """The fields of an explanation that show the item."""
        return {"input": self.label(x)}

    # -- for people

    def axis(self, x: Any, part: Any) -> "Axis | None":
        """What the columns of a map stand for: the places of a part that a model attends to; None: numbers alone."""
        return None

    def summary(self) -> str:
        """How large what was fitted is, such as the vocabulary."""
        return ""

    def label(self, x: Any) -> str:
        """An item in one line."""
        return str(x)

    def fields(self, x: Any) -> dict[str, Any]:
        """An item as the first fields of a row of JSON."""
        return {self.noun.removesuffix("s"): self.label(x)}

    def texts(self, x: Any) -> tuple[str, ...]:
        """The texts of an item, if it has any: what reports measure and baselines read."""
        return ()

    def too_long(self, xs: Sequence[Any]) -> int | None:
        """How many of these items are read only in part; None where a model reads all of any item."""
        return None

    def named(self, x: Any, number: int) -> str:
        """What errors call an item of several."""
        return f"{self.noun.removesuffix('s')} {number + 1:,}"

    def pair(self, first: str, second: str, name: str) -> Any:
        """An item out of --text and --text2, where items are two texts; ``name`` is the run's."""
        raise UserError(f"{name} reads one text; --text2 is for runs that classify pairs of texts")

    def item(self, given: Any) -> Any:
        """An item out of what a Python program gives to `Run.predict`: of an input with one column, what may stand there."""
        if len(self.columns) != 1:
            return given
        try:
            return self.read({self.columns[0].name: given})
        except BadValueError as error:
            raise UserError(str(error)) from None

    def items(self, given: Any) -> list[Any]:
        """The same for several."""
        return [self.item(one) for one in given]

    def check_several(self, items: Any) -> None:
        """Refuse one item where several are expected."""
        if isinstance(items, str | bytes | Path):
            raise UserError(f"{self.noun} is one {self.noun.removesuffix('s')}; expected a list of {self.noun}")

    def parse(self, line: str, number: int, is_json: bool) -> Any:
        """An item out of a line of `sightline predict --input`: its first column, or an object of JSON."""
        cells = {self.columns[0].name: line} if self.columns else {}
        if is_json:
            from sightline.tasks.lines import object_of

            cells = object_of(line, number)
        try:
            return self.read(cells)
        except BadValueError as error:
            raise UserError(f"line {number:,}: {error}") from None

    columns: ClassVar[tuple[Column, ...]] = ()  # those that `read` reads, for lines of JSON
    reads_files: ClassVar[bool] = False  # items are files, named with --image
    joins_lines: ClassVar[bool] = False  # an item may be several lines

    def paths(self, files: Sequence[Path], listed: str | None) -> list[Path]:
        """The files that options name: files, folders of them, and those that ``listed`` lists."""
        raise UserError(f"{self.noun} are no files")

    def joined(self, lines: Any) -> Iterator[tuple[list[Any], int]]:
        """Blocks of items out of lines, where an item may be several of them."""
        raise NotImplementedError

    extra_parameters: int = 0  # of what stands before the model, such as a frozen encoder

    @property
    def two_texts(self) -> bool:
        """Whether an item is two texts: a pair, or a question and a text."""
        return False

    def work(self, xs: Sequence[Any]) -> list[int]:
        """How much work each item is, in tokens."""
        return [sum(map(self.size, parts)) for parts in self.encode(xs)]

    def receive(self, content: bytes, limits: Any, shown: bool) -> tuple[Any, int, Any]:
        """A file that was sent to the server: the item, its bytes in memory, and a small picture if ``shown``."""
        raise UserError(f"{self.noun} are no files")

    def bad_line(self, x: Any, reason: str, as_json: bool) -> str:
        """The line of an item that cannot be used: it keeps its place."""
        import json

        return json.dumps({"item": self.label(x), "problem": reason}, ensure_ascii=False) if as_json else ""


class Output(ABC):
    """What comes out: targets, heads, decoding, calibration, scores, and how predictions are shown.

    Fitted together with the input; see the steps in the order of the methods.
    """

    noun: ClassVar[str] = "outputs"
    pair_split: ClassVar[bool] = False  # rows whose target stands in the validation data are not trained on
    grouped: ClassVar[bool] = False  # several rows with the same item are one item with several targets
    unit: str = "nats a token"  # of the loss
    decides: ClassVar[tuple[str, ...]] = ()  # metrics that may decide which checkpoint is best
    sized_targets: ClassVar[bool] = False  # targets take room in a training batch too
    calibrates: ClassVar[bool] = True  # `calibrate` and `card` need raw outputs of all validation examples
    freezes: ClassVar[bool] = False  # a loaded model's weights are constants to search
    compared: ClassVar[tuple[str, ...]] = ()  # metrics that `compare` shows unless others are asked for; empty: all
    less_is_better: ClassVar[tuple[str, ...]] = ()  # metrics that fall while a model learns

    def __init__(self, config: Any) -> None:
        self.config = config

    # -- reading

    def stage(self, rows: "Iterable[Cells]", source: "Source", columns: Sequence[Column]) -> "Iterable[Cells]":
        """The rows of a source before they are read one by one, where some must be looked at first."""
        return rows

    @abstractmethod
    def read(self, cells: Mapping[str, Any], x: Any) -> Any:
        """The target in a row, or a `BadValueError` that says what is wrong."""

    def check(self, y: Any, limits: "Limits") -> None:
        """Raise a `BadValueError` where a target is too large to learn from."""

    def report(self) -> "Report":
        """An empty report whose ``add(x, y)`` counts what is there."""
        from sightline.data.checking import Report

        return Report()

    def strata(self, y: Any) -> tuple[str, ...] | float:
        """What a split gives like shares of: labels, or a number."""
        return ("",)

    def pack(self, y: Any) -> list[Any]:
        """The target as the last fields of a stored row."""
        return [y]

    def unpack(self, row: Sequence[Any]) -> Any:
        """The target that `pack` packed."""
        return row[0]

    # -- fitted

    def fit(self, input: Input, rows: "Rows", setting: "Setting") -> tuple[Input, "Output"]:
        """Both, fitted to the training rows (vocabularies, labels), or kept from an earlier run (``setting.start``)."""
        return input.fit(rows, setting), self

    def cannot_split(self, error: UserError, report: "Report") -> UserError:
        """What to say where the rows are too few to keep some apart."""
        return error

    def write(self, input: Input, rows: "Rows", setting: "Setting") -> Any:
        """Store the training rows, and open what was stored."""
        from sightline.tasks.prepare import write_rows

        return write_rows(input, self, rows, setting.data)

    def open(self, input: Input, setting: "Setting") -> Any:
        """What `write` stored."""
        from sightline.data.store import Corpus

        return Corpus.open(setting.data / "train")

    def write_valid(self, input: Input, examples: Sequence[Example], setting: "Setting") -> None:
        """Store the validation examples."""
        from sightline.tasks.prepare import write_valid

        write_valid(input, self, examples, setting.data)

    def open_valid(self, input: Input, setting: "Setting") -> list[Example]:
        """What `write_valid` stored."""
        from sightline.tasks.prepare import read_valid

        return read_valid(input, self, setting.data)

    def baselines(self, input: Input, rows: "Rows", setting: "Setting") -> list[str]:
        """Fit the simple models that a score is held against, while the rows are there; names of files to seal."""
        return []

    def baseline_files(self, folder: Path) -> list[str]:
        """The files of `baselines` that a run folder has."""
        return []

    def about_data(self, prepared: "Prepared") -> dict[str, Any]:
        """What about.json says of the data besides what it says of every task's."""
        return {}

    def encode(self, x: Any, y: Any, parts: Sequence[Any]) -> "Iterable[tuple[Any, Numbers]]":
        """The rows of the training corpus for one example: a part and the numbers of its target, as often as needed."""
        return ((part, y) for part in parts)

    @abstractmethod
    def collate(self, targets: Sequence["np.ndarray"], batch: Any) -> Any:
        """The targets of a batch as tensors; ``batch`` is what the input made of its items."""

    def batches(self, prepared: "Prepared", config: Any) -> Any:
        """The training batches: an object with ``epoch``, ``batch`` and ``tokens`` (`sightline.tasks.batches`)."""
        from sightline.tasks.batches import RowBatches

        return RowBatches(prepared, config)

    def loss(self, model: "nn.Module", batch: tuple[Any, ...], step: int) -> Any:
        """The loss of a batch: a sum and what it is a sum over (`sightline.training.loop.BatchLoss`), maybe by parts."""
        return model.loss(*batch)  # type: ignore[operator]

    def counted(self, batch: tuple[Any, ...]) -> int:
        """What the loss of a batch is a sum over."""
        return len(batch[1])

    def validation_options(self) -> Any:
        """Options of `predict` in training, such as greedy search."""
        return self.options({})

    def trial_options(self, examples: Sequence[Example]) -> Any:
        """The same for an untrained model in a dry run."""
        return self.validation_options()

    def validated(self, examples: Sequence[Example], config: Any) -> list[Example]:
        """The validation examples that are scored in training: at most ``config.validated``, drawn by the seed."""
        from sightline.tasks.batches import validated_rows

        return [examples[row] for row in validated_rows(len(examples), config.validated, config.seed)]

    def scored(
        self,
        run: "Run",
        xs: Sequence[Any],
        parts: Sequence[list[Any]] | None = None,
        options: Any = None,
        on_predicted: Callable[[int], None] = lambda count: None,
        bad: dict[int, str] | None = None,
    ) -> list[Any]:
        """Raw outputs that scores are made of, where these are not the predictions of the items (hidden words)."""
        return run.raw(xs, parts=parts, options=options, on_predicted=on_predicted, bad=bad)

    def with_targets(self, options: Any, examples: Sequence[Example], training: bool = False) -> Any:
        """Options for examples that are scored, where their targets are measured while predicting (perplexity)."""
        return options

    def options_of(self, options: Any, numbers: Sequence[int], items: int) -> Any:
        """Options for those of the items that have these numbers, where items have options of their own (prefixes)."""
        return options

    def divided(self, xs: Sequence[Any], options: Any) -> Divided | None:
        """What is predicted in the place of the items, such as the sentences of long texts; None: the items."""
        return None

    @abstractmethod
    def outputs(self, run: "Run", xs: Sequence[Any], parts: Sequence[Any], batch: Any, options: Any) -> list[Any]:
        """Raw outputs of a batch, one for each part: logits, hypotheses, numbers. ``xs`` are the items of the parts."""

    predict_options: ClassVar[type[PredictOptions]] = PredictOptions

    def options(self, given: Mapping[str, Any]) -> Any:
        """Options of `predict`, checked; unknown ones are an error that names those that there are."""
        known = [one.name for one in fields(self.predict_options) if not one.metadata.get("internal")]
        for name in given:
            if name not in known:
                raise UserError(f"{name} is no option of this run; there is {', '.join(known)}")
        return self.predict_options(**given)

    def cost(self, size: int, options: Any) -> int:
        """What a part of this size takes of a batch's budget."""
        return size

    def budget(self, input: Input, options: Any) -> int:
        """How much is in one batch of predictions."""
        return (None if options is None else options.batch_tokens) or input.budget

    def merge(self, x: Any, parts: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """The raw output of an item from those of its parts."""
        return outputs[0]

    @abstractmethod
    def decide(self, x: Any, raw: Any, options: Any = None) -> Any:
        """A prediction out of a raw output."""

    def calibrate(self, run: "Run", raws: Sequence[Any], prepared: "Prepared") -> "Output":
        """With temperature, thresholds and the like fitted to raw outputs of the validation examples."""
        return self

    def validate(self, run: "Run", raws: Sequence[Any], examples: Sequence[Example]) -> dict[str, float]:
        """Scores in training: the metric that decides first (more is better), a loss second (less is better)."""
        predictions = [self.decide(one.x, raw) for one, raw in zip(examples, raws, strict=True)]
        values = self.scores_of(self.statistics(run, examples, predictions, raws), None)
        losses = {name: value for name, value in values.items() if name in self.less_is_better}
        first = getattr(self.config, "metric", None) or next(name for name in values if name not in losses)
        return {first: values[first], **losses}

    @abstractmethod
    def statistics(
        self, run: "Run", examples: Sequence[Example], predictions: Sequence[Any], raws: Sequence[Any]
    ) -> "dict[str, Statistics]":
        """Every metric that is a sum over examples, as counts of each: for scores, parts of the data and bootstrap."""

    def scores_of(self, statistics: "Mapping[str, Statistics]", rows: list[int] | None) -> dict[str, float]:
        """Every score of all examples, or of some."""
        return {name: one.score(rows) for name, one in statistics.items()}

    def scoring_options(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """What of the options of `evaluate` is about scores and not about predictions, and the rest."""
        return None, given

    def scored_by(self, scoring: Any) -> "Output":
        """The same output that scores as these options say."""
        return self

    def finished(self, evaluation: "Evaluation", scoring: Any) -> "Evaluation":
        """The evaluation with what only this output knows: its ``extra``, and scores that are no sums."""
        return evaluation

    def scores_json(self, evaluation: "Evaluation") -> dict[str, Any]:
        """The scores as `evaluate --json` has them."""
        return dict(evaluation.values)

    def without_json(self, evaluation: "Evaluation") -> dict[str, Any]:
        """The scores of the examples that the run was not trained on, as `evaluate --json` has them."""
        return dict(evaluation.without or {})

    def score_table(self, evaluation: "Evaluation") -> "Table":
        """The scores as `evaluate` prints them."""
        from sightline.tasks.tables import score_table

        return score_table(evaluation)

    names: ClassVar[Mapping[str, str]] = {}  # of metrics as papers write them, where they are not their own
    by_length: ClassVar[bool] = False  # whether scores are also given by the length of the source

    def metric_name(self, metric: str) -> str:
        """A metric's name as tables show it."""
        return self.names.get(metric, metric.replace("_", " "))

    def paper_name(self, metric: str) -> str:
        """A metric's name as pictures show it."""
        return self.metric_name(metric)

    def check_comparable(self, first: "Output", name: str) -> None:
        """Refuse to compare runs whose outputs mean different things."""

    def compared_extra(
        self, metric: str, examples: Sequence[Example], systems: "Mapping[str, Statistics]", draw: tuple[int, int]
    ) -> dict[str, Any]:
        """What `compare` says of a metric besides scores: its signature, scores by length. ``draw``: samples and seed."""
        return {}

    def source_options(self) -> dict[str, Any]:
        """How the training data was written, for data to score: options of the reader."""
        return {}

    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns of the training data, where they were given."""
        return None

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        """Write what `load` needs; gives fields for config.json and the names of files to seal."""
        return {}, []

    @classmethod
    def load(cls, saved: "Saved", config: Any, input: Input) -> "Output":
        """A fitted output from a run folder, which may be anybody's."""
        return cls(config)

    def head_names(self, other: "Output") -> tuple[str, ...]:
        """What the names of those tensors begin with that cannot be kept for another output: new labels, say."""
        return ()

    def notes(self, prepared: "Prepared") -> list[str]:
        """What there is to say of the data after it was stored, such as labels that only validation data has."""
        return []

    # -- for people

    def counts(self, prepared: "Prepared") -> str:
        """How much there is to train on and to validate with."""
        rows = prepared.task.rows
        return f"{len(prepared.corpus):,} {rows} to train on, {len(prepared.valid):,} to validate"

    def summary_of_fit(self) -> str:
        """How large what was fitted is."""
        return ""

    def card(self, run: "Run", prepared: "Prepared", raws: Sequence[Any], folder: Path) -> "Wording":
        """What the model card says of the task; pictures go into the folder."""
        from sightline.tasks.card import Wording

        limits = (
            "It knows what stands in its training data, and predicts something for anything else too.",
            "Where it looked is not why it predicted: an attention map is a picture of the computation.",
        )
        return Wording(f"for {run.task.help}", run.task.rows, "On validation data.", limits=limits)

    searches: ClassVar[bool] = False  # whether outputs are searched for, so that there is a beam
    bench_unit: ClassVar[str] = ""  # what `bench` counts predictions in, where that is not the input's noun

    def benched(self) -> dict[str, dict[str, Any]]:
        """Options of `predict` that `bench` measures, by name."""
        return {"predicting": {}}

    def bench_items(self, run: "Run", xs: Sequence[Any]) -> list[Any]:
        """Validation items as `bench` predicts them."""
        return list(xs)

    def check_explained(self, run: "Run", given: Mapping[str, Any]) -> None:
        """Refuse options of `view` that mean nothing for this output."""
        for name, value in given.items():
            if value is not None and not self.searches:
                raise UserError(
                    f"{run.name} is a run of {run.task.name}, and {name} is for runs that write texts; leave it out"
                )

    def explain(self, run: "Run", x: Any, options: Any) -> "Explanation":
        """Where the model looked while it made its prediction (`sightline.tasks.explain.ExplainOptions`)."""
        from sightline.tasks.explain import explain_attention

        return explain_attention(run, x, options)

    def line(self, x: Any, prediction: Any) -> str:
        """A prediction as a line of text."""
        import json

        return json.dumps(prediction, ensure_ascii=False)

    def to_json(self, x: Any, prediction: Any) -> dict[str, Any]:
        """A prediction as plain data, with its probabilities."""
        return {"prediction": prediction}

    def block_options(self, options: Any, block: int) -> Any:
        """The options for a block of items with this number: draws at random differ from block to block."""
        return options

    def for_json(self, options: Any) -> Any:
        """The options for predictions that are written as JSON, which may say more."""
        return options

    def check_written(self, options: Any, as_json: bool) -> None:
        """Refuse options of `predict` that do not go together, or not with this form."""

    def warn(self, xs: Sequence[Any], first: int, options: Any) -> None:
        """Warn on standard error of items that are predicted badly, such as long ones; ``first`` is the first's number."""

    def ensemble(self, runs: "Sequence[Run]") -> "Run":
        """Several runs as one, where the output can."""
        raise UserError(f"{runs[0].name} does not write texts, and --ensemble is for runs that do; leave it out")

    writes_files: ClassVar[bool] = False  # `predict --out` is a folder with files for each item

    def write_files(self, run: "Run", x: Any, prediction: Any, folder: Path, names: set[str]) -> None:
        """The files of one prediction; ``names`` are paths that must not be written over (`sightline.files.place_of`):
        those of items that are yet to be read, and of files that were written before."""

    def remark(self, x: Any, prediction: Any) -> str | None:
        """What `predict` says of a prediction on standard error, if anything."""
        return None

    pictures: ClassVar[tuple[str, ...]] = ()  # endings of pictures that `view` writes with `save_picture`, not of maps

    def save_picture(self, run: "Run", x: Any, prediction: Any, path: Path) -> None:
        """A picture of a prediction by itself, as the ending says."""

    measures: ClassVar[bool] = True  # whether it can be measured what to make of its maps
    explains_without: ClassVar[frozenset[str]] = frozenset()  # options of /explain that mean nothing here

    def label_names(self) -> list[str]:
        """The labels that it may answer, where it gives labels."""
        return []

    def served(self, x: Any, prediction: Any) -> Any:
        """A prediction as the server answers it."""
        return self.to_json(x, prediction)

    # The JSON schema of what `served` gives, with a description (`sightline.tasks.answer_schema`).
    answer: ClassVar[Mapping[str, Any]] = {"description": "A prediction."}

    def row(self, example: Example, prediction: Any) -> dict[str, Any]:
        """An example with its prediction, for `evaluate --out`."""
        return {"target": example.y, **self.to_json(example.x, prediction)}

    def scored_row(self, evaluation: "Evaluation", number: int) -> dict[str, Any]:
        """An example with its prediction, and with what only the evaluation knows of them."""
        return self.row(evaluation.examples[number], evaluation.predictions[number])

    def error_row(self, evaluation: "Evaluation", number: int) -> dict[str, Any]:
        """The same for one of the worst predictions."""
        return evaluation.row(number)

    def warnings(self, evaluation: "Evaluation") -> list[str]:
        """What `evaluate` says on standard error: doubts about the data."""
        return []

    def badness(self, evaluation: "Evaluation") -> list[float]:
        """How bad each prediction is; 0 and less is right. `evaluate --errors` shows the worst."""
        return [0.0] * len(evaluation.examples)

    def summary(self, evaluation: "Evaluation") -> dict[str, Any]:
        """What `evaluate --json` says besides counts and scores."""
        return {}

    def tables(self, evaluation: "Evaluation") -> "list[Table | str]":
        """What `evaluate` prints behind the scores: tables and sentences."""
        return []

    def shown_error(self, row: Mapping[str, Any]) -> str:
        """One of the worst predictions as `evaluate --errors` prints it behind its number."""
        return "\n" + "\n".join(f"   {name:<12}{value}" for name, value in row.items())
