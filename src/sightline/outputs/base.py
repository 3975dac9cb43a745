"""What every output is: targets, decoding, calibration, scores, and how predictions are shown.

See `sightline.tasks.task` first. Most methods have defaults; a task from text to sequence overrides few of them.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, cast

from sightline.data.checking import Report, RowLimits
from sightline.data.splitting import LEAST_TEXTS
from sightline.data.store import Corpus
from sightline.errors import UserError
from sightline.inputs.base import Input, SomeInput
from sightline.tasks.card import Wording
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.explain import ExplainOptions, explain_attention
from sightline.tasks.prepare import (
    Prepared,
    RowBatches,
    Rows,
    Setting,
    read_valid,
    validation_sample,
    write_rows,
    write_valid,
)
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import Batch, Column, Divided, Example, Options, Part, Pred, PredictOptions, Raw, X, Y
from sightline.training.folder import RunFolder

BASELINES = "baselines.json"

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from sightline.data.columns import TableRow
    from sightline.data.source import Source
    from sightline.data.store import Numbers
    from sightline.explain.explanation import Explanation
    from sightline.metrics import Statistics
    from sightline.tasks.configs.base import TaskConfig
    from sightline.training.loop import BatchLoss


@dataclass(frozen=True)
class ThresholdOptions(PredictOptions):
    """``threshold``: the probability from which a label is given, the run's own unless given."""

    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise UserError(f"threshold is {self.threshold}; it is a probability, from 0 to 1")


def ranked_scores(first: str, losses: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """Scores in training: the metric that decides, what falls while a model learns, and the other metrics."""
    ordered = {first: values[first], **losses, **values}
    return {name: round(value, 4) for name, value in ordered.items()}


class Output(ABC, Generic[X, Y, Part, Batch, Raw, Pred, Options]):
    """What comes out: targets, heads, decoding, calibration, scores, and how predictions are shown.

    Fitted together with the input; see the steps in the order of the methods.
    """

    noun: ClassVar[str] = "outputs"
    pair_split: ClassVar[bool] = False  # rows whose target is in the validation data are not trained on
    grouped: ClassVar[bool] = False  # several rows with the same item are one item with several targets
    least_split: ClassVar[int] = LEAST_TEXTS  # different items that a split needs
    unit: str = "nats a token"  # of the loss
    sized_targets: ClassVar[bool] = False  # targets count in the budget of a training batch too
    calibrates: ClassVar[bool] = True  # `calibrate` and `card` need raw outputs of all validation examples
    calibrated_files: ClassVar[tuple[str, ...]] = ()  # of those that `save` writes, the ones that `calibrate` changes
    freezes: ClassVar[bool] = False  # a loaded model's weights are constants to search
    compared: ClassVar[tuple[str, ...]] = ()  # metrics that `compare` shows unless others are given; empty: all
    offers: ClassVar[Mapping[str, str]] = {}  # the models that baselines can be trained as, by the baseline's name
    less_is_better: ClassVar[tuple[str, ...]] = ()  # metrics that fall while a model learns
    sized_by_targets: ClassVar[bool] = False  # predictions that are scored are as long as their targets

    def __init__(self, config: "TaskConfig") -> None:
        self.config = config

    # -- reading

    def stage(self, rows: "Iterable[TableRow]", source: "Source", columns: Sequence[Column]) -> "Iterable[TableRow]":
        """The rows of a source, before they are read one by one."""
        return rows

    @abstractmethod
    def read(self, cells: Mapping[str, object], x: X) -> Y:
        """The target in a row, or a `BadValueError`."""

    def document(self, cells: Mapping[str, object]) -> str | None:
        """The document that a row is from, where the data names it: a document is on one side of a split only."""
        return None

    def check(self, y: Y, limits: "RowLimits") -> None:
        """Raise a `BadValueError` where a target is too large to learn from."""

    def report(self) -> "Report":
        """An empty report whose ``add(x, y)`` counts what is there."""
        return Report()

    def strata(self, y: Y) -> tuple[str, ...] | float:
        """The labels, or the number, that both sides of a split have in like shares."""
        return ("",)

    def pack(self, y: Y) -> list[object]:
        """The target as the last fields of a stored row."""
        return [y]

    def unpack(self, row: Sequence[object]) -> Y:
        """The target that `pack` packed."""
        return cast("Y", row[0])

    # -- fitted

    def fit(
        self, input: Input[X, Part, Batch], rows: "Rows[X, Y]", setting: "Setting"
    ) -> tuple[Input[X, Part, Batch], "Output[X, Y, Part, Batch, Raw, Pred, Options]"]:
        """Both, fitted to the training rows (vocabularies, labels), or kept from an earlier run (``setting.start``)."""
        return input.fit(rows, setting), self

    def cannot_split(self, error: UserError, report: "Report") -> UserError:
        """The error where the rows are too few to keep some apart."""
        return error

    def write(self, input: Input[X, Part, Batch], rows: "Rows[X, Y]", setting: "Setting") -> object:
        """Store the training rows, and open what was stored."""
        return write_rows(cast("SomeInput", input), cast("SomeOutput", self), rows, setting.data)

    def open(self, input: Input[X, Part, Batch], setting: "Setting") -> object:
        """What `write` stored."""
        return Corpus.open(setting.data / "train")

    def write_valid(self, input: Input[X, Part, Batch], examples: Sequence[Example[X, Y]], setting: "Setting") -> None:
        """Store the validation examples."""
        write_valid(cast("SomeInput", input), cast("SomeOutput", self), examples, setting.data)

    def open_valid(self, input: Input[X, Part, Batch], setting: "Setting") -> list[Example[X, Y]]:
        """What `write_valid` stored."""
        examples = read_valid(cast("SomeInput", input), cast("SomeOutput", self), setting.data)
        return cast("list[Example[X, Y]]", examples)

    def baselines(self, input: Input[X, Part, Batch], rows: "Rows[X, Y]", setting: "Setting") -> list[str]:
        """Fit the simple models that a score is compared with; gives the names of files to seal."""
        facts = self.baseline_facts(input, rows)
        if facts is None:
            return []
        RunFolder(setting.data.parent).write_json(BASELINES, facts)
        return [BASELINES]

    def baseline_files(self, folder: Path) -> list[str]:
        """The files of `baselines` that a run folder has."""
        return [BASELINES] if (folder / BASELINES).exists() else []

    def baseline_facts(self, input: Input[X, Part, Batch], rows: "Rows[X, Y]") -> dict[str, object] | None:
        """What the baselines need of the training data (`sightline.outputs.simple_baselines`); None: nothing."""
        return None

    def baseline_predictions(
        self, run: "Run", examples: Sequence[Example[X, Y]], facts: Mapping[str, object]
    ) -> dict[str, list[Pred]]:
        """By name, what baselines predict; ``facts`` is empty for runs that have none stored."""
        return {}

    def baseline_scores(self, run: "Run", examples: Sequence[Example[X, Y]]) -> dict[str, dict[str, float]]:
        """By name, the scores of the baselines on these examples."""
        there = run.folder is not None and bool(Output.baseline_files(self, run.folder))
        facts = RunFolder(run.folder).read_json(BASELINES) if there and run.folder is not None else {}
        scores = {}
        try:
            for name, predictions in self.baseline_predictions(run, examples, facts).items():
                statistics = self.statistics(run, examples, predictions, [])
                scores[name] = self.scores_of(statistics, None)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{run.name}: {BASELINES} is damaged: {error}") from None
        return scores

    def about_data(self, prepared: "Prepared[X, Y]") -> dict[str, object]:
        """Fields of about.json on the data that only some outputs have."""
        return {}

    def encode(self, x: X, y: Y, parts: Sequence[Part]) -> "Iterable[tuple[Part, Numbers]]":
        """The rows of the training corpus for one example: a part and the numbers of its target, as often as needed."""
        return ((part, cast("Numbers", y)) for part in parts)

    @abstractmethod
    def collate(self, targets: Sequence["np.ndarray"], batch: Batch) -> object:
        """The targets of a batch as tensors; ``batch`` is what the input made of its items."""

    def batches(self, prepared: "Prepared[X, Y]", config: "TaskConfig") -> object:
        """The training batches: an object with ``epoch``, ``batch`` and ``tokens`` (`sightline.tasks.train`)."""
        return RowBatches(prepared, config)

    def loss(self, model: "nn.Module", batch: tuple[object, ...], step: int) -> "BatchLoss":
        """The loss of a batch: a sum, and what it is a sum over (`sightline.training.loop.BatchLoss`)."""
        return model.loss(*batch)  # type: ignore[operator]

    def counted(self, batch: tuple[object, ...]) -> int:
        """What the loss of a batch is a sum over."""
        return len(cast("Sequence[object]", batch[1]))

    def validation_options(self) -> Options:
        """Options of `predict` in training, such as greedy search."""
        return self.options({})

    def trial_options(self, examples: Sequence[Example[X, Y]]) -> Options:
        """The same for an untrained model in a dry run."""
        return self.validation_options()

    def validated(self, examples: Sequence[Example[X, Y]], config: "TaskConfig") -> list[Example[X, Y]]:
        """The validation examples that are scored in training: at most ``config.validated``, drawn by the seed."""
        return [examples[row] for row in validation_sample(len(examples), config.validated, config.seed)]

    def scored(
        self,
        run: "Run",
        xs: Sequence[X],
        parts: Sequence[Sequence[Part]] | None = None,
        options: Options | None = None,
        on_predicted: Callable[[int], None] = lambda count: None,
        bad: dict[int, str] | None = None,
    ) -> list[Raw]:
        """Raw outputs that scores are made of, where these are not the predictions of the items (hidden words)."""
        return cast("list[Raw]", run.raw(xs, parts=parts, options=options, on_predicted=on_predicted, bad=bad))

    def with_targets(self, options: Options, examples: Sequence[Example[X, Y]], training: bool = False) -> Options:
        """Options for examples that are scored, where their targets are measured while predicting (perplexity)."""
        return options

    def options_of(self, options: Options, numbers: Sequence[int], items: int) -> Options:
        """Options for those of the items that have these numbers, where items have options of their own (prefixes)."""
        return options

    def divided(self, xs: Sequence[X], options: Options) -> Divided[X, Raw, Options] | None:
        """What is predicted instead of the items, such as the sentences of long texts; None: the items."""
        return None

    @abstractmethod
    def outputs(self, run: "Run", xs: Sequence[X], parts: Sequence[Part], batch: Batch, options: Options) -> list[Raw]:
        """Raw outputs of a batch, one for each part: logits, hypotheses, numbers. ``xs`` are the items of the parts."""

    predict_options: ClassVar[type[PredictOptions]] = PredictOptions

    def options(self, given: Mapping[str, object]) -> Options:
        """Options of `predict`, checked; unknown ones are an error that names those that there are."""
        known = [one.name for one in fields(self.predict_options) if not one.metadata.get("internal")]
        for name in given:
            if name not in known:
                raise UserError(f"{name} is no option of this run; there is {', '.join(known)}")
        return cast("Callable[..., Options]", self.predict_options)(**given)

    def cost(self, size: int, options: Options) -> int:
        """What a part of this size takes of a batch's budget."""
        return size

    def budget(self, input: Input[X, Part, Batch], options: Options) -> int:
        """How much is in one batch of predictions."""
        return (None if options is None else options.batch_tokens) or input.budget

    def merge(self, x: X, parts: Sequence[Part], outputs: Sequence[Raw]) -> Raw:
        """The raw output of an item from those of its parts."""
        return outputs[0]

    @abstractmethod
    def decide(self, x: X, raw: Raw, options: Options | None = None) -> Pred:
        """A prediction out of a raw output."""

    def calibrate(
        self, run: "Run", raws: Sequence[Raw], prepared: "Prepared[X, Y]"
    ) -> "Output[X, Y, Part, Batch, Raw, Pred, Options]":
        """With temperature, thresholds and the like fitted to raw outputs of the validation examples."""
        return self

    def validate(self, run: "Run", raws: Sequence[Raw], examples: Sequence[Example[X, Y]]) -> dict[str, float]:
        """Scores in training: the metric that decides first, a loss second (less is better)."""
        predictions = [self.decide(one.x, raw) for one, raw in zip(examples, raws, strict=True)]
        values = self.scores_of(self.statistics(run, examples, predictions, raws), None)
        losses = {name: value for name, value in values.items() if name in self.less_is_better}
        first = getattr(self.config, "metric", None) or next(name for name in values if name not in losses)
        return {first: values[first], **losses}

    @abstractmethod
    def statistics(
        self, run: "Run", examples: Sequence[Example[X, Y]], predictions: Sequence[Pred], raws: Sequence[Raw]
    ) -> "dict[str, Statistics]":
        """Every metric that is a sum over examples, as counts of each: for scores, parts of the data and bootstrap."""

    def scores_of(self, statistics: "Mapping[str, Statistics]", rows: list[int] | None) -> dict[str, float]:
        """Every score of all examples, or of some."""
        return {name: one.score(rows) for name, one in statistics.items()}

    def scoring_options(self, given: dict[str, object]) -> tuple[object, dict[str, object]]:
        """Those options of `evaluate` that are about scores, and the others, which are about predictions."""
        return None, given

    def scored_by(self, scoring: object) -> "Output[X, Y, Part, Batch, Raw, Pred, Options]":
        """The same output with these options of scores."""
        return self

    def finished(self, evaluation: "Evaluation[X, Y, Raw, Pred]", scoring: object) -> "Evaluation[X, Y, Raw, Pred]":
        """The evaluation with its ``extra``, and with scores that are no sums over examples."""
        return evaluation

    def scores_json(self, evaluation: "Evaluation[X, Y, Raw, Pred]") -> dict[str, object]:
        """The scores as `evaluate --json` has them."""
        return dict(evaluation.values)

    def without_json(self, evaluation: "Evaluation[X, Y, Raw, Pred]") -> dict[str, object]:
        """The scores of the examples that the run was not trained on, as `evaluate --json` has them."""
        return dict(evaluation.without or {})

    def score_table(self, evaluation: "Evaluation[X, Y, Raw, Pred]") -> "Table":
        """The scores as `evaluate` prints them: of all examples, and of those that the run was not trained on."""
        systems = {"all": (evaluation.values, len(evaluation.examples))}
        if evaluation.without is not None and evaluation.seen is not None:
            systems["not in the training data"] = (evaluation.without, int((~evaluation.seen).sum()))
        names = ("", *(name.replace("_", " ") for name in evaluation.values), evaluation.run.task.rows)
        rows = (
            (name, *(f"{one:.2f}" for one in values.values()), f"{count:,}")
            for name, (values, count) in systems.items()
        )
        return Table(names, tuple(rows))

    names: ClassVar[Mapping[str, str]] = {}  # of metrics as papers write them, where they are not their own
    by_length: ClassVar[bool] = False  # whether scores are also given by the length of the source

    def metric_name(self, metric: str) -> str:
        """A metric's name as tables show it."""
        return self.names.get(metric, metric.replace("_", " "))

    def paper_name(self, metric: str) -> str:
        """A metric's name as pictures show it."""
        return self.metric_name(metric)

    def check_comparable(self, first: "SomeOutput", name: str) -> None:
        """Refuse to compare runs whose outputs mean different things."""

    def scored_as(self, first: "SomeOutput") -> "Output[X, Y, Part, Batch, Raw, Pred, Options]":
        """The same output with what scores are measured by taken from the first of several runs."""
        return self

    def comparison_fields(
        self, metric: str, examples: Sequence[Example[X, Y]], systems: "Mapping[str, Statistics]", draw: tuple[int, int]
    ) -> dict[str, object]:
        """Fields of `compare` for a metric besides scores: signature, by length. ``draw``: samples and seed."""
        return {}

    def source_options(self) -> dict[str, object]:
        """Options of the reader for data to score, as they were for the training data."""
        return {}

    def columns(self) -> tuple[str, ...] | None:
        """The names of the columns of the training data, where they were given."""
        return None

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        """Write what `load` needs; gives fields for config.json and the names of files to seal."""
        return {}, []

    @classmethod
    def load(
        cls, saved: "SavedRun", config: "TaskConfig", input: Input[X, Part, Batch]
    ) -> "Output[X, Y, Part, Batch, Raw, Pred, Options]":
        """A fitted output from a run folder of unknown origin."""
        return cls(config)

    def head_names(self, other: "SomeOutput") -> tuple[str, ...]:
        """Prefixes of tensors that cannot be kept for another output, such as one with new labels."""
        return ()

    def notes(self, prepared: "Prepared[X, Y]") -> list[str]:
        """Remarks on the data after it was stored, such as labels that only validation data has."""
        return []

    # -- for people

    def counts(self, prepared: "Prepared[X, Y]") -> str:
        """How much there is to train on and to validate with."""
        rows = prepared.task.rows
        return f"{len(prepared.corpus):,} {rows} to train on, {len(prepared.valid):,} to validate"

    def summary_of_fit(self) -> str:
        """How large what was fitted is."""
        return ""

    def card(self, run: "Run", prepared: "Prepared[X, Y]", raws: Sequence[Raw], folder: Path) -> "Wording":
        """The words of the model card; pictures go into the folder."""
        limits = (
            "It has learnt what is in its training data, and predicts something for anything else too.",
            "Where it looked is not why it predicted: an attention map is a picture of the computation.",
        )
        return Wording(f"for {run.task.help}", run.task.rows, "On validation data.", limits=limits)

    searches: ClassVar[bool] = False  # whether outputs are searched for, so that there is a beam
    bench_unit: ClassVar[str] = ""  # what `bench` counts predictions in, where that is not the input's noun

    def benched(self) -> dict[str, dict[str, object]]:
        """Options of `predict` that `bench` measures, by name."""
        return {"predicting": {}}

    def bench_items(self, run: "Run", xs: Sequence[X]) -> list[X]:
        """Validation items as `bench` predicts them."""
        return list(xs)

    def check_explained(self, run: "Run", given: Mapping[str, object]) -> None:
        """Refuse options of `view` that mean nothing for this output."""
        for name, value in given.items():
            if value is not None and not self.searches:
                raise UserError(
                    f"{run.name} is a run of {run.task.name}, and {name} is for runs that write texts; leave it out"
                )

    def explain(self, run: "Run", x: X, options: ExplainOptions) -> "Explanation":
        """The attention of a prediction; ``options`` are `sightline.tasks.explain.ExplainOptions`."""
        return explain_attention(run, x, options)

    def line(self, x: X, prediction: Pred) -> str:
        """A prediction as a line of text."""
        return json.dumps(prediction, ensure_ascii=False)

    def to_json(self, x: X, prediction: Pred) -> dict[str, object]:
        """A prediction as plain data, with its probabilities."""
        return {"prediction": prediction}

    def block_options(self, options: Options, block: int) -> Options:
        """The options for a block of items with this number: random draws differ from block to block."""
        return options

    def for_json(self, options: Options) -> Options:
        """The options for predictions that are written as JSON, which may have more fields."""
        return options

    def check_written(self, options: Options, as_json: bool) -> None:
        """Refuse options of `predict` that do not go together, or not with this form."""

    def warn(self, xs: Sequence[X], first: int, options: Options) -> None:
        """Warn on standard error of items that are predicted badly (long ones); ``first`` is the first's number."""

    def ensemble(self, runs: "Sequence[Run]") -> "Run":
        """Several runs as one, where the output can."""
        raise UserError(f"{runs[0].name} does not write texts, and --ensemble is for runs that do; leave it out")

    writes_files: ClassVar[bool] = False  # `predict --out` is a folder with files for each item

    def write_files(self, run: "Run", x: X, prediction: Pred, folder: Path, names: set[str]) -> None:
        """The files of one prediction; ``names`` are paths that must not be written over (`sightline.files.place_of`):
        those of items that are yet to be read, and of files that were written before."""

    formats: ClassVar[tuple[str, ...]] = ()  # other formats of `predict`, of which each item has a file in a folder

    def write_format(self, format: str, run: "Run", x: X, prediction: Pred, folder: Path, names: set[str]) -> None:
        """The file of one prediction in one of the ``formats``; ``names`` as in `write_files`."""

    def remark(self, x: X, prediction: Pred) -> str | None:
        """A remark on a prediction that `predict` writes on standard error, if any."""
        return None

    pictures: ClassVar[tuple[str, ...]] = ()  # endings of pictures that `view` writes with `save_picture`, not of maps

    def save_picture(self, run: "Run", x: X, prediction: Pred, path: Path) -> None:
        """A picture of a prediction by itself, in the format of the ending."""

    measures: ClassVar[bool] = True  # whether the evidence of its maps can be measured
    explains_without: ClassVar[frozenset[str]] = frozenset()  # options of /explain that do not apply

    def label_names(self) -> list[str]:
        """The names of all labels, where it gives labels."""
        return []

    def served(self, x: X, prediction: Pred) -> object:
        """A prediction as the server answers it."""
        return self.to_json(x, prediction)

    # The JSON schema of what `served` gives, with a description (`sightline.outputs.reports`).
    answer: ClassVar[Mapping[str, object]] = {"description": "A prediction."}

    def row(self, example: Example[X, Y], prediction: Pred) -> dict[str, object]:
        """An example with its prediction, for `evaluate --out`."""
        return {"target": example.y, **self.to_json(example.x, prediction)}

    def scored_row(self, evaluation: "Evaluation[X, Y, Raw, Pred]", number: int) -> dict[str, object]:
        """An example with its prediction and its scores."""
        return self.row(evaluation.examples[number], evaluation.predictions[number])

    def error_row(self, evaluation: "Evaluation[X, Y, Raw, Pred]", number: int) -> dict[str, object]:
        """The same for one of the worst predictions."""
        return evaluation.row(number)

    def warnings(self, evaluation: "Evaluation[X, Y, Raw, Pred]") -> list[str]:
        """Doubts about the data, which `evaluate` writes on standard error."""
        return []

    def badness(self, evaluation: "Evaluation[X, Y, Raw, Pred]") -> list[float]:
        """How bad each prediction is; 0 and less is right. `evaluate --errors` shows the worst."""
        return [0.0] * len(evaluation.examples)

    def summary(self, evaluation: "Evaluation[X, Y, Raw, Pred]") -> dict[str, object]:
        """Fields of `evaluate --json` besides counts and scores."""
        return {}

    def tables(self, evaluation: "Evaluation[X, Y, Raw, Pred]") -> "list[Table | str]":
        """The tables and sentences that `evaluate` prints behind the scores."""
        return []

    def shown_error(self, row: Mapping[str, object]) -> str:
        """One of the worst predictions as `evaluate --errors` prints it behind its number."""
        return "\n" + "\n".join(f"   {name:<12} {value}" for name, value in row.items())


SomeOutput = Output[object, object, object, object, object, object, PredictOptions | None]
