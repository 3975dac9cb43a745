"""Labels of items, whatever the items are: one label, several, or a number."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from sightline import metrics
from sightline.data.columns import TableRow
from sightline.data.disk import mapped
from sightline.data.labelled import Label, LabelReport, read_label, separated
from sightline.data.source import Source
from sightline.data.store import Corpus
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.files import whole_file
from sightline.inputs.base import Input
from sightline.models.nb_svm import NBSVM
from sightline.outputs import label_scores as scores
from sightline.outputs.base import Output, SomeOutput, ThresholdOptions, ranked_scores
from sightline.outputs.label_baselines import NB_SVM, LabelBaselines, TextBaselines
from sightline.outputs.label_scores import LABELS, NONE, LabelPrediction, Labels, Truth, truth_of, values_of
from sightline.outputs.reports import NUMBER, TEXT, class_table, listed_counts, structure
from sightline.tasks.card import Wording, table_section
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.prepare import Prepared, Rows, Setting, SomePrepared, unseen_line
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import BadValueError, Batch, Column, Example, Part, X
from sightline.text.encoding import Text
from sightline.training.folder import RunFolder
from sightline.view.charts import confusion_matrix, reliability

LOG = logging.getLogger(__name__)
THRESHOLD = 0.5  # of several labels, those at least as likely are given
NUMBERS = "numbers.npy"
CONFUSION, RELIABILITY = "confusion.png", "reliability.png"
MOST_SHOWN = 12  # labels in a confusion matrix on a terminal
TEXT_SHOWN = 300  # characters of a text that was wrong
Logits = np.ndarray | np.float64  # before the temperature; or a number
WHAT = {"one": "one label", "several": "several labels", "number": "a number"}


class NumberedCorpus:
    """A corpus whose targets are numbers, which are in a file of their own."""

    def __init__(self, corpus: Corpus, numbers: np.ndarray) -> None:
        self.corpus, self.numbers = corpus, numbers

    def __len__(self) -> int:
        return len(self.corpus)

    def __getitem__(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        return self.corpus[row][0], self.numbers[row : row + 1]

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        return self.corpus.lengths()


LabelsEvaluation = Evaluation[X, Label, Logits, LabelPrediction]


class LabelsOutput(Output[X, Label, Part, Batch, Logits, LabelPrediction, ThresholdOptions | None]):
    """Labels of items, which are texts unless a subclass reads others. Raw outputs are logits before the temperature,
    or a number."""

    noun = "labels"
    predict_options = ThresholdOptions
    labels: Labels
    baseline_models: ClassVar[type[LabelBaselines]] = TextBaselines
    offers: ClassVar[Mapping[str, str]] = {NB_SVM: "nb_svm", TextBaselines.names[NB_SVM]: "nb_svm"}
    answer = structure(
        "Labelled",
        "A label (several, or a number), its probability, and those of all labels; a number has none.",
        label={"type": ["string", "array", "number", "null"], "items": TEXT},
        probability=NUMBER,
        probabilities={"type": ["object", "null"], "additionalProperties": NUMBER},
    )

    def __init__(
        self,
        config: TaskConfig,
        labels: Labels | None = None,
        input: Input[X, Part, Batch] | None = None,
        temperature: float = 1.0,
        threshold: float = THRESHOLD,
    ) -> None:
        super().__init__(config)
        self.labels = cast("Labels", labels)  # None until it is fitted, as is the input
        self.input = cast("Input[X, Part, Batch]", input)
        self.temperature, self.threshold = temperature, threshold
        self._separator: str | None = None

    @property
    def item(self) -> str:
        """What one of the items is called."""
        return self.input.noun.removesuffix("s")

    @property
    def unit(self) -> str:  # type: ignore[override]
        article = "an" if self.item[0] in "aeiou" else "a"
        return "squared error" if self.labels.kind == "number" else f"nats {article} {self.item}"

    # -- reading

    def stage(self, rows: Iterable[TableRow], source: Source, columns: Sequence[Column]) -> Iterable[TableRow]:
        if self.config.labels != "several":
            return rows
        place = [column.name for column in columns].index("label")
        known = self._separator if self.labels is None else self.labels.separator
        given = cast("str | None", source.options.get("separator"))
        separator, rows = separated(rows, place, given or known)
        if self.labels is None:
            self._separator = separator  # that of the training data, which comes first
        return rows

    def read(self, cells: Mapping[str, object], x: X) -> Label:
        try:
            return read_label(cells.get("label"), self.config.labels)
        except ValueError as error:
            raise BadValueError(f"{error} in 'label'") from None

    def report(self) -> LabelReport:
        return LabelReport(kind=self.config.labels)

    def strata(self, y: Label) -> tuple[str, ...] | float:
        return (y,) if isinstance(y, str) else y

    def unpack(self, row: Sequence[object]) -> Label:
        return tuple(row[0]) if isinstance(row[0], list) else cast("Label", row[0])

    # -- fitted

    def fit(
        self, input: Input[X, Part, Batch], rows: Rows[X, Label], setting: Setting
    ) -> tuple[Input[X, Part, Batch], "LabelsOutput[X, Part, Batch]"]:
        report = rows.report
        assert isinstance(report, LabelReport)
        second = report.lengths["second_characters"].count
        if second not in (0, report.pairs):
            raise UserError(
                f"{second:,} of {report.pairs:,} rows have a second text; expected it of all rows, or of none"
            )
        labels = scores.labels_of(report, bool(second), setting.source.columns, self._separator)
        fitted = input.fit(rows, setting)
        return fitted, type(self)(setting.config, labels, fitted)

    def write(self, input: Input[X, Part, Batch], rows: Rows[X, Label], setting: Setting) -> object:
        corpus = cast("Corpus", super().write(input, rows, setting))
        if self.labels.kind != "number":
            return corpus
        with whole_file(setting.data / NUMBERS) as part:
            numbers = np.lib.format.open_memmap(part, "w+", np.float64, (rows.count,))
            for row, example in enumerate(rows):
                numbers[row] = example.y
            numbers.flush()
        return NumberedCorpus(corpus, _numbers(setting.data))

    def open(self, input: Input[X, Part, Batch], setting: Setting) -> object:
        corpus = cast("Corpus", super().open(input, setting))
        return NumberedCorpus(corpus, _numbers(setting.data)) if self.labels.kind == "number" else corpus

    def write_valid(
        self, input: Input[X, Part, Batch], examples: Sequence[Example[X, Label]], setting: Setting
    ) -> None:
        if any((len(input.texts(one.x)) > 1) != self.labels.pairs for one in examples):
            raise UserError("of training and validation data, one has pairs of texts and the other has not")
        super().write_valid(input, examples, setting)

    @cached_property
    def compared_with(self) -> LabelBaselines:
        """The simple models that scores are compared with."""
        return self.baseline_models(self.input, self.labels, self.config)

    def baselines(self, input: Input[X, Part, Batch], rows: Rows[X, Label], setting: Setting) -> list[str]:
        return self.compared_with.fit(rows, setting.data.parent)

    def baseline_files(self, folder: Path) -> list[str]:
        return self.compared_with.files(folder)

    def baseline_scores(self, run: Run, examples: Sequence[Example[X, Label]]) -> dict[str, dict[str, float]]:
        return {}  # `finished` and `card` score them with the labels

    def encode(self, x: X, y: Label, parts: Sequence[Part]) -> Iterable[tuple[Part, Sequence[int]]]:
        return ((part, self.labels.ids(y)) for part in parts)

    def collate(self, targets: Sequence[np.ndarray], batch: Batch) -> Tensor:
        if self.labels.kind != "several":
            dtype = np.float64 if self.labels.kind == "number" else np.int64
            return torch.from_numpy(np.concatenate(targets).astype(dtype))
        gold = np.zeros((len(targets), self.labels.classes), dtype=np.float32)
        for row, ids in enumerate(targets):
            gold[row, ids] = 1
        return torch.from_numpy(gold)

    def outputs(
        self, run: Run, xs: Sequence[X], parts: Sequence[Part], batch: Batch, options: ThresholdOptions | None
    ) -> list[Logits]:
        return list(run.model.scores(batch).double().cpu().numpy())  # type: ignore[operator]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Of each label, after the temperature."""
        return metrics.probabilities(logits, self.temperature, several=self.labels.kind == "several")

    def decide(self, x: X, raw: Logits, options: ThresholdOptions | None = None) -> LabelPrediction:
        if self.labels.kind == "number":
            return LabelPrediction(float(raw))
        assert isinstance(raw, np.ndarray)
        probs = dict(zip(self.labels.names, self.probabilities(raw[None])[0].tolist(), strict=True))
        if self.labels.kind == "one":
            best = self.labels.names[int(raw.argmax())]
            return LabelPrediction(best, probs[best], probs)
        given = None if options is None else options.threshold
        least = self.threshold if given is None else given
        chosen = tuple(name for name, one in probs.items() if one >= least)
        return LabelPrediction(chosen, min((max(one, 1 - one) for one in probs.values()), default=1.0), probs)

    def calibrate(
        self, run: Run, raws: Sequence[Logits], prepared: Prepared[X, Label]
    ) -> "LabelsOutput[X, Part, Batch]":
        if self.labels.kind == "number":
            return self
        logits, truth = np.array(raws), truth_of(self.labels, [one.y for one in prepared.valid])
        temperature = metrics.fit_temperature(*scores.decisions(logits, truth))
        fitted = type(self)(self.config, self.labels, self.input, temperature)
        if self.labels.kind == "several":
            probs = fitted.probabilities(logits)
            fitted.threshold = metrics.best_threshold(probs, truth.gold[:, : truth.known])
        return fitted

    def initialise(self, model: nn.Module, prepared: Prepared[X, Label]) -> None:
        """A model that is solved, and not trained step by step, has its weights from here."""
        if isinstance(model, NBSVM):
            from sightline.outputs.nb_svm import fit_nb_svm

            fit_nb_svm(model, cast("SomePrepared", prepared))

    # -- scores

    def validate(self, run: Run, raws: Sequence[Logits], examples: Sequence[Example[X, Label]]) -> dict[str, float]:
        outputs, truth = np.array(raws), truth_of(self.labels, [one.y for one in examples])
        values = values_of(scores.predictions_of(outputs, truth), truth)
        loss = scores.loss_of(outputs, truth, self.labels.spread)
        return ranked_scores(self.config.decisive, {"valid_loss": loss}, values)

    def statistics(
        self,
        run: Run,
        examples: Sequence[Example[X, Label]],
        predictions: Sequence[LabelPrediction],
        raws: Sequence[Logits],
    ) -> dict[str, metrics.Statistics]:
        return scores.statistics(*self.answers(examples, predictions))

    def answers(
        self, examples: Sequence[Example[X, Label]], predictions: Sequence[LabelPrediction]
    ) -> tuple[np.ndarray, Truth]:
        """The predictions in the form of the truth, and the truth."""
        truth = truth_of(self.labels, [one.y for one in examples])
        predicted = self.labels.gold([one.label for one in predictions])
        if truth.kind == "several":
            extra = np.zeros((len(predicted), len(truth.names) - truth.known), dtype=bool)
            predicted = np.concatenate([predicted > 0, extra], axis=1)
        return predicted, truth

    @property
    def compared(self) -> tuple[str, ...]:  # type: ignore[override]
        return scores.REPORTED[self.labels.kind]

    def check_comparable(self, first: SomeOutput, name: str) -> None:
        labels: Labels = first.labels  # type: ignore[attr-defined]
        kinds = sorted({self.labels.kind, labels.kind})
        if len(kinds) > 1:
            raise UserError(f"the runs have labels of different kinds ({', '.join(kinds)}): they cannot be compared")
        if self.labels.pairs != labels.pairs:
            raise UserError(f"{name} and the first run do not read alike: one of them reads pairs of texts")

    def columns(self) -> tuple[str, ...] | None:
        return self.labels.columns

    def scoring_options(self, given: dict[str, object]) -> tuple[object, dict[str, object]]:
        return given.get("floors", True), {name: one for name, one in given.items() if name != "floors"}

    def finished(self, evaluation: LabelsEvaluation[X], scoring: object) -> LabelsEvaluation[X]:
        run, xs = evaluation.run, [one.x for one in evaluation.examples]
        predicted, truth = self.answers(evaluation.examples, evaluation.predictions)
        others = None if evaluation.without is None or evaluation.seen is None else ~evaluation.seen
        margins = self.compared_with.scores(run.folder, xs) if scoring else {}
        beside = {name: scores.predictions_of(one, truth) for name, one in margins.items()}
        unseen = truth.unseen()
        table, matrix = scores.tables_of(predicted, truth)
        evaluation.extra.update(
            truth=truth,
            predicted=predicted,
            calibration=scores.calibration(np.array(evaluation.raws), truth, self.temperature),
            floors={name: values_of(one, truth) for name, one in beside.items()},
            floors_without={name: values_of(one, truth, others) for name, one in beside.items() if others is not None},
            unseen=self.labels.unseen([one.y for one in evaluation.examples]),
            unseen_rows=int(unseen.sum()),
            known=values_of(predicted, truth, ~unseen) if unseen.any() and not unseen.all() else None,
            table=table,
            confusion=matrix,
            cut=self.input.too_long(xs),
        )
        # Ranks are those of the rows that are scored: no sum over all rows gives them.
        return evaluation if others is None else replace(evaluation, without=values_of(predicted, truth, others))

    # -- saving and loading

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        self.labels.save(RunFolder(folder))
        return {"temperature": self.temperature, "threshold": self.threshold}, [LABELS]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: Input[X, Part, Batch]) -> "LabelsOutput[X, Part, Batch]":
        labels = Labels.load(saved.path)
        with saved.reading():
            temperature = float(saved.about.get("temperature", 1.0))
            threshold = float(saved.about.get("threshold", THRESHOLD))
            if not (0 < temperature < 1e6 and 0 <= threshold <= 1):
                raise ValueError(f"temperature is {temperature!r} and threshold {threshold!r}")
        return cls(config, labels, input, temperature, threshold)

    def head_names(self, other: SomeOutput) -> tuple[str, ...]:
        labels: Labels = other.labels  # type: ignore[attr-defined]
        same = (self.labels.kind, self.labels.names) == (labels.kind, labels.names)
        return () if same else ("output.",)

    def notes(self, prepared: Prepared[X, Label]) -> list[str]:
        return unseen_line(self.labels.unseen([one.y for one in prepared.valid]))

    # -- for people

    def card(self, run: Run, prepared: Prepared[X, Label], raws: Sequence[Logits], folder: Path) -> Wording:
        xs, noun = [one.x for one in prepared.valid], self.input.noun
        predictions = [self.decide(x, raw) for x, raw in zip(xs, raws, strict=True)]
        predicted, truth = self.answers(prepared.valid, predictions)
        margins = self.compared_with.scores(folder, xs, prepared)
        baselines = {name: values_of(scores.predictions_of(one, truth), truth) for name, one in margins.items()}
        sections = self.compared_with.section(run.config.model.kind, values_of(predicted, truth), baselines)
        table, matrix = scores.tables_of(predicted, truth)
        if table:
            sections += table_section("Labels", "label", noun, table)
        if matrix is not None:
            confusion_matrix(matrix, truth.names, folder / CONFUSION)
            sections += [f"![Which label was taken for which]({CONFUSION})", ""]
        sections += _calibration_section(scores.calibration(np.array(raws), truth, self.temperature), folder)
        return Wording(
            f"from {noun.replace('texts', 'text')} to {WHAT[truth.kind]}",
            noun,
            "On validation data.",
            f"{noun} it saw have at most {{longest:,}} characters.",
            (
                f"It gives one of its labels to any {self.item}, also to one that none of them is right for.",
                "Where it looked is not why it decided: attention is a picture of the computation, not an explanation.",
            ),
            tuple(sections),
            baselines={self.compared_with.names.get(name, name): values for name, values in baselines.items()},
            own=values_of(predicted, truth),
        )

    def explain(self, run: Run, x: X, options: ExplainOptions) -> Explanation:
        from sightline.outputs.labels_explain import explain_label

        return explain_label(run, cast("Text", x), options)

    def written(self, label: Label) -> str:
        """A label, several or a number, as the training data has them."""
        if isinstance(label, tuple):
            return (self.labels.separator or "|").join(label)
        return f"{label:.6g}" if isinstance(label, float) else label

    def line(self, x: X, prediction: LabelPrediction) -> str:
        return self.written(prediction.label)

    def to_json(self, x: X, prediction: LabelPrediction) -> dict[str, object]:
        return {**self.input.fields(x), **prediction.to_json()}

    def served(self, x: X, prediction: LabelPrediction) -> dict[str, object]:
        return prediction._asdict()

    def label_names(self) -> list[str]:
        return list(self.labels.names)

    def cut_line(self, count: int) -> str:
        """The remark on items that are read only in part."""
        limit: int = self.input.limit  # type: ignore[attr-defined]
        return (
            f"{count:,} {self.input.noun} have more than {limit:,} tokens, of which the model reads the "
            "beginning and the end"
        )

    def warn(self, xs: Sequence[X], first: int, options: ThresholdOptions | None) -> None:
        if cut := self.input.too_long(xs):
            LOG.warning(self.cut_line(cut))

    def row(self, example: Example[X, Label], prediction: LabelPrediction) -> dict[str, object]:
        fields = prediction.to_json()
        label = fields.pop("label")
        return {**self.input.fields(example.x), "label": example.y, "prediction": label, **fields}

    # -- evaluations; `finished` makes their ``extra``

    def badness(self, evaluation: LabelsEvaluation[X]) -> list[float]:
        """The wrong labels with the highest probability; the numbers with the largest error."""
        predicted, truth = cast("np.ndarray", evaluation.extra["predicted"]), cast("Truth", evaluation.extra["truth"])
        if truth.kind == "number":
            return np.abs(predicted - truth.gold).tolist()
        if truth.kind == "several":
            return (predicted != truth.gold).sum(axis=1).astype(np.float64).tolist()
        sure = np.array([one.probability for one in evaluation.predictions])
        return np.where(predicted != truth.gold, sure, 0.0).tolist()

    def scores_json(self, evaluation: LabelsEvaluation[X]) -> dict[str, object]:
        sure = cast("scores.Calibration | None", evaluation.extra["calibration"])
        measured = {} if sure is None else {"calibration": sure.to_json()}
        return {"labels": self.labels.kind, **evaluation.values, **measured, "floors": evaluation.extra["floors"]}

    def without_json(self, evaluation: LabelsEvaluation[X]) -> dict[str, object]:
        return {**super().without_json(evaluation), "floors": evaluation.extra["floors_without"]}

    def summary(self, evaluation: LabelsEvaluation[X]) -> dict[str, object]:
        extra: Any = evaluation.extra
        data: dict[str, object] = {}
        if extra["unseen"]:
            data["unseen_labels"] = {"rows": extra["unseen_rows"], "labels": extra["unseen"], "without": extra["known"]}
        if extra["table"]:
            data["per_label"] = [vars(one) for one in extra["table"]]
        if extra["confusion"] is not None:
            data["confusion"] = {"labels": list(extra["truth"].names), "rows": extra["confusion"].tolist()}
        return data if extra["cut"] is None else {**data, "cut": extra["cut"]}

    def score_table(self, evaluation: LabelsEvaluation[X]) -> Table:
        extra: Any = evaluation.extra
        total = len(evaluation.examples)
        names = ("", *map(self.metric_name, evaluation.values), "rows")
        systems = {"this model": (evaluation.values, evaluation.without)}
        systems |= {name: (one, extra["floors_without"].get(name)) for name, one in extra["floors"].items()}

        def row(name: str, values: Mapping[str, float], count: int) -> tuple[str, ...]:
            return name, *(f"{value:.2f}" for value in values.values()), f"{count:,}"

        rows = [row(name, values, total) for name, (values, _) in systems.items()]
        if evaluation.without is not None and evaluation.seen is not None:
            rows.append((f"without {self.input.noun} of the training data:", *("" for _ in names[1:])))
            left = total - int(evaluation.seen.sum())
            rows += [row(name, values, left) for name, (_, values) in systems.items() if values is not None]
        return Table(names, tuple(rows))

    def tables(self, evaluation: LabelsEvaluation[X]) -> list[Table | str]:
        extra: Any = evaluation.extra
        total = len(evaluation.examples)
        parts: list[Table | str] = []
        if not extra["floors"] and self.compared_with.unknown:
            parts.append(self.compared_with.unknown)
        if extra["unseen"]:
            named = listed_counts(extra["unseen"])
            known = ", ".join(f"{self.metric_name(one)} {value:.2f}" for one, value in (extra["known"] or {}).items())
            parts += [
                f"labels that training did not have, in {extra['unseen_rows']:,} of {total:,} rows: {named}",
                f"  these rows count as wrong; the others by themselves: {known or 'there are none'}",
            ]
        if extra["cut"]:
            parts.append(self.cut_line(extra["cut"]))
        if (sure := extra["calibration"]) is not None:
            parts.append(
                f"calibration error {sure.ece_before:.2f} % before the temperature ({sure.temperature:.3f}), "
                f"{sure.ece:.2f} % after; Brier score {sure.brier:.4f}"
            )
        if extra["table"]:
            parts.append(class_table(extra["table"], "label", "rows"))
        names = extra["truth"].names
        if extra["confusion"] is not None and len(names) <= MOST_SHOWN:
            counts = ((name, *(f"{one:,}" for one in row)) for name, row in zip(names, extra["confusion"], strict=True))
            parts.append(Table(("right ╲ given", *names), tuple(counts)))
        return [*parts, f"{total:,} {self.input.noun}, {total / max(evaluation.seconds, 1e-9):.1f} a second"]

    def shown_error(self, row: Mapping[str, object]) -> str:
        sure = f", {row['probability']:.1%} sure" if "probability" in row else ""
        lines = [f"{_quoted(row['prediction'])}{sure}; right is {_quoted(row['label'])}"]
        known = ("label", "prediction", "probability", "probabilities", "in_training")
        return "\n".join([*lines, *(f"   {name:<6} {_short(str(row[name]))}" for name in row if name not in known)])


def _numbers(data: Path) -> np.ndarray:
    """The numbers of the training rows."""
    try:
        numbers = np.asarray(mapped(data / NUMBERS))
        if numbers.dtype != np.float64 or numbers.ndim != 1:
            raise ValueError("it holds no numbers")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{data / NUMBERS} is damaged or missing: {error}") from None
    return numbers


def _quoted(label: Any) -> str:
    if isinstance(label, float):
        return f"{label:.6g}"
    return repr(label) if isinstance(label, str) else ", ".join(map(repr, label)) or NONE


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TEXT_SHOWN else f"{line[: TEXT_SHOWN // 2]} … {line[-TEXT_SHOWN // 2 :]}"


def _calibration_section(measured: scores.Calibration | None, folder: Path) -> list[str]:
    """The section of a card on calibration, with its picture; empty where labels are numbers."""
    if measured is None:
        return []
    reliability(
        measured.bins, folder / RELIABILITY, ece=measured.ece, before=measured.bins_before,
        ece_before=measured.ece_before, temperature=measured.temperature,
    )  # fmt: skip
    return [
        "## How sure it is",
        "",
        f"Probabilities are made with the temperature {measured.temperature:.3f}, fitted to the validation data: there "
        f"the expected calibration error is {measured.ece_before:.2f} % before and {measured.ece:.2f} % after it.",
        "",
        f"![How often it is right when it is how sure]({RELIABILITY})",
        "",
    ]
