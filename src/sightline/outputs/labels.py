"""Labels of items, whatever the items are: one label, several, or a number."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline import metrics
from sightline.data.columns import Cells
from sightline.data.disk import mapped
from sightline.data.labelled import Label, LabelReport, read_label, separated
from sightline.data.source import Source
from sightline.data.store import Corpus
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.files import whole_file
from sightline.inputs.base import Input
from sightline.inputs.image import AT_ONCE, ImageInput, Photo, one_line
from sightline.models.image_to_labels import ImageToLabels
from sightline.outputs.base import Output
from sightline.outputs.label_baselines import LabelBaselines
from sightline.outputs.label_reports import ShownLabels
from sightline.outputs.label_scores import (
    LABELS,
    REPORTED,
    Labels,
    calibration,
    decisions,
    labels_of,
    loss_of,
    predictions_of,
    statistics,
    tables_of,
    truth_of,
    values_of,
)
from sightline.tasks.card import Wording
from sightline.tasks.evaluate import Evaluation
from sightline.tasks.loading import Saved
from sightline.tasks.prepare import Prepared, Rows, Setting, unseen_line
from sightline.tasks.run import Run
from sightline.tasks.task import BadValueError, Column, Example, PredictOptions, imported
from sightline.text.encoding import TextReader
from sightline.text.tokeniser import train_tokeniser
from sightline.training.folder import RunFolder

LOG = logging.getLogger(__name__)
THRESHOLD = 0.5  # of several labels, those at least as likely are given
NUMBERS = "numbers.npy"


class LabelPrediction(NamedTuple):
    """A label (several, or a number), its probability, and those of all labels; calibrated on validation data.

    Of several labels, the probability is that of the most doubtful decision. A number has none.
    """

    label: Label
    probability: float | None = None
    probabilities: dict[str, float] | None = None

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"label": self.label}
        if self.probabilities is not None:
            data |= {"probability": self.probability, "probabilities": self.probabilities}
        return data


@dataclass(frozen=True)
class LabelOptions(PredictOptions):
    """``threshold``: of several labels, those at least as likely are given; the run's own unless given."""

    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise UserError(f"threshold is {self.threshold}; it is a probability, from 0 to 1")


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


class LabelsOutput(ShownLabels):
    """Labels of items. Raw outputs are logits, or a number, before the temperature."""

    noun = "labels"
    predict_options = LabelOptions

    def __init__(
        self,
        config: Any,
        labels: Labels | None = None,
        input: Input | None = None,
        temperature: float = 1.0,
        threshold: float = THRESHOLD,
    ) -> None:
        super().__init__(config)
        self._labels, self._input = labels, input
        self.temperature, self.threshold = temperature, threshold
        self._separator: str | None = None

    @property
    def labels(self) -> Labels:
        assert self._labels is not None, "the output is not fitted"
        return self._labels

    @property
    def input(self) -> Any:
        assert self._input is not None, "the output is not fitted"
        return self._input

    @property
    def item(self) -> str:
        """What one of the items is called."""
        return self.input.noun.removesuffix("s")

    @property
    def unit(self) -> str:  # type: ignore[override]
        article = "an" if self.item[0] in "aeiou" else "a"
        return "squared error" if self.labels.kind == "number" else f"nats {article} {self.item}"

    # -- reading

    def stage(self, rows: Iterable[Cells], source: Source, columns: Sequence[Column]) -> Iterable[Cells]:
        if self.config.labels != "several":
            return rows
        place = [column.name for column in columns].index("label")
        known = self._separator if self._labels is None else self._labels.separator
        separator, rows = separated(rows, place, source.options.get("separator") or known)
        if self._labels is None:
            self._separator = separator  # that of the training data, which comes first
        return rows

    def read(self, cells: Mapping[str, Any], x: Any) -> Label:
        try:
            return read_label(cells.get("label"), self.config.labels)
        except ValueError as error:
            raise BadValueError(f"{error} in 'label'") from None

    def report(self) -> LabelReport:
        return LabelReport(kind=self.config.labels)

    def strata(self, y: Label) -> tuple[str, ...] | float:
        return (y,) if isinstance(y, str) else y

    def unpack(self, row: Sequence[Any]) -> Label:
        return tuple(row[0]) if isinstance(row[0], list) else row[0]

    # -- fitted

    def fit(self, input: Any, rows: Rows, setting: Setting) -> tuple[Input, Output]:
        labels = self.fit_labels(rows, setting)
        if setting.start is not None:
            reader = setting.start.reader
        else:
            texts = rows.texts(lambda one: input.texts(one.x))
            reader = TextReader(train_tokeniser(texts, setting.config.tokeniser))
        fitted = input.fitted_to(reader, labels.pairs, labels.columns)
        return fitted, type(self)(setting.config, labels, fitted)

    def fit_labels(self, rows: Rows, setting: Setting) -> Labels:
        """The labels of the training data; whether it has pairs of texts is known too."""
        report = rows.report
        assert isinstance(report, LabelReport)
        second = report.lengths["second_characters"].count
        if second not in (0, report.pairs):
            raise UserError(
                f"{second:,} of {report.pairs:,} rows have a second text; expected it of all rows, or of none"
            )
        return labels_of(report, bool(second), setting.source.columns, self._separator)

    def write(self, input: Input, rows: Rows, setting: Setting) -> Any:
        corpus = super().write(input, rows, setting)
        if self.labels.kind != "number":
            return corpus
        with whole_file(setting.data / NUMBERS) as part:
            numbers = np.lib.format.open_memmap(part, "w+", np.float64, (rows.count,))
            for row, example in enumerate(rows):
                numbers[row] = example.y
            numbers.flush()
        return NumberedCorpus(corpus, _numbers(setting.data))

    def open(self, input: Input, setting: Setting) -> Any:
        corpus = super().open(input, setting)
        return NumberedCorpus(corpus, _numbers(setting.data)) if self.labels.kind == "number" else corpus

    def write_valid(self, input: Input, examples: Sequence[Example], setting: Setting) -> None:
        if any((len(input.texts(one.x)) > 1) != self.labels.pairs for one in examples):
            raise UserError("of training and validation data, one has pairs of texts and the other has not")
        super().write_valid(input, examples, setting)

    @cached_property
    def compared_with(self) -> LabelBaselines:
        """The simple models that scores are held against."""
        kind = self.input.label_baselines
        return (LabelBaselines if kind is None else imported(kind))(self.input, self.labels, self.config)

    def baselines(self, input: Input, rows: Rows, setting: Setting) -> list[str]:
        return self.compared_with.fit(rows, setting.data.parent)

    def baseline_files(self, folder: Path) -> list[str]:
        return self.compared_with.files(folder)

    def encode(self, x: Any, y: Label, parts: Sequence[Any]) -> Iterable[tuple[Any, Sequence[int]]]:
        return ((part, self.labels.ids(y)) for part in parts)

    def collate(self, targets: Sequence[np.ndarray], batch: Any) -> Tensor:
        if self.labels.kind == "number":
            return torch.from_numpy(np.concatenate(targets).astype(np.float64))
        if self.labels.kind == "one":
            return torch.from_numpy(np.concatenate(targets).astype(np.int64))
        gold = np.zeros((len(targets), self.labels.classes), dtype=np.float32)
        for row, ids in enumerate(targets):
            gold[row, ids] = 1
        return torch.from_numpy(gold)

    def outputs(self, run: Run, xs: Sequence[Any], parts: Sequence[Any], batch: Any, options: Any) -> list[Any]:
        return list(run.model.scores(batch).double().cpu().numpy())  # type: ignore[operator]

    def probabilities(self, logits: np.ndarray) -> np.ndarray:
        """Of each label, after the temperature."""
        return metrics.probabilities(logits, self.temperature, several=self.labels.kind == "several")

    def decide(self, x: Any, raw: Any, options: Any = None) -> LabelPrediction:
        if self.labels.kind == "number":
            return LabelPrediction(float(raw))
        probs = dict(zip(self.labels.names, self.probabilities(raw[None])[0].tolist(), strict=True))
        if self.labels.kind == "one":
            best = self.labels.names[int(raw.argmax())]
            return LabelPrediction(best, probs[best], probs)
        given = None if options is None else options.threshold
        least = self.threshold if given is None else given
        chosen = tuple(name for name, one in probs.items() if one >= least)
        return LabelPrediction(chosen, min((max(one, 1 - one) for one in probs.values()), default=1.0), probs)

    def calibrate(self, run: Run, raws: Sequence[Any], prepared: Prepared) -> Output:
        if self.labels.kind == "number":
            return self
        logits, truth = np.array(raws), truth_of(self.labels, [one.y for one in prepared.valid])
        temperature = metrics.fit_temperature(*decisions(logits, truth))
        fitted = type(self)(self.config, self.labels, self.input, temperature)
        if self.labels.kind == "several":
            probs = fitted.probabilities(logits)
            fitted.threshold = metrics.best_threshold(probs, truth.gold[:, : truth.known])
        return fitted

    # -- scores

    def validate(self, run: Run, raws: Sequence[Any], examples: Sequence[Example]) -> dict[str, float]:
        outputs, truth = np.array(raws), truth_of(self.labels, [one.y for one in examples])
        values = values_of(predictions_of(outputs, truth), truth)
        first = self.config.decisive
        ordered = {first: values[first], "valid_loss": loss_of(outputs, truth, self.labels.spread)} | values
        return {name: round(value, 4) for name, value in ordered.items()}

    def statistics(
        self, run: Run, examples: Sequence[Example], predictions: Sequence[LabelPrediction], raws: Sequence[Any]
    ) -> dict[str, metrics.Statistics]:
        return statistics(*self.answers(examples, predictions))

    def answers(self, examples: Sequence[Example], predictions: Sequence[LabelPrediction]) -> tuple[np.ndarray, Any]:
        """What was predicted, as the truth has it, and the truth."""
        truth = truth_of(self.labels, [one.y for one in examples])
        predicted = self.labels.gold([one.label for one in predictions])
        if truth.kind == "several":
            extra = np.zeros((len(predicted), len(truth.names) - truth.known), dtype=bool)
            predicted = np.concatenate([predicted > 0, extra], axis=1)
        return predicted, truth

    @property
    def compared(self) -> tuple[str, ...]:  # type: ignore[override]
        return REPORTED[self.labels.kind]

    def check_comparable(self, first: Any, name: str) -> None:
        kinds = sorted({self.labels.kind, first.labels.kind})
        if len(kinds) > 1:
            raise UserError(f"the runs have labels of different kinds ({', '.join(kinds)}): they cannot be compared")
        if self.labels.pairs != first.labels.pairs:
            raise UserError(f"{name} and the first run do not read alike: one of them reads pairs of texts")

    def columns(self) -> tuple[str, ...] | None:
        return self.labels.columns

    def scoring_options(self, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return given.get("floors", True), {name: one for name, one in given.items() if name != "floors"}

    def finished(self, evaluation: Evaluation, scoring: Any) -> Evaluation:
        run, xs = evaluation.run, [one.x for one in evaluation.examples]
        predicted, truth = self.answers(evaluation.examples, evaluation.predictions)
        others = None if evaluation.without is None or evaluation.seen is None else ~evaluation.seen
        margins = self.compared_with.scores(run.folder, xs) if scoring else {}
        beside = {name: predictions_of(one, truth) for name, one in margins.items()}
        unseen = truth.unseen()
        table, matrix = tables_of(predicted, truth)
        evaluation.extra.update(
            truth=truth,
            predicted=predicted,
            calibration=calibration(np.array(evaluation.raws), truth, self.temperature),
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

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        self.labels.save(RunFolder(folder))
        return {"temperature": self.temperature, "threshold": self.threshold}, [LABELS]

    @classmethod
    def load(cls, saved: Saved, config: Any, input: Input) -> "LabelsOutput":
        labels = Labels.load(saved.path)
        with saved.reading():
            temperature = float(saved.about.get("temperature", 1.0))
            threshold = float(saved.about.get("threshold", THRESHOLD))
            if not (0 < temperature < 1e6 and 0 <= threshold <= 1):
                raise ValueError(f"temperature is {temperature!r} and threshold {threshold!r}")
        return cls(config, labels, input, temperature, threshold)

    def head_names(self, other: Any) -> tuple[str, ...]:
        same = (self.labels.kind, self.labels.names) == (other.labels.kind, other.labels.names)
        return () if same else ("output.",)

    def notes(self, prepared: Prepared) -> list[str]:
        return unseen_line(self.labels.unseen([one.y for one in prepared.valid]))

    # -- for people

    def card(self, run: Run, prepared: Prepared, raws: Sequence[Any], folder: Path) -> Wording:
        from sightline.outputs.label_reports import label_card

        return label_card(self, run, prepared, raws, folder)

    def explain(self, run: Run, x: Any, options: Any) -> Explanation:
        explained = self.input.label_explanation
        if explained is None:
            raise UserError(f"where a model looks in {self.input.noun} while it gives labels cannot be shown")
        return imported(explained)(run, x, options)

    def written(self, label: Label) -> str:
        """A label, several or a number, as the training data has them."""
        if isinstance(label, tuple):
            return (self.labels.separator or "|").join(label)
        return f"{label:.6g}" if isinstance(label, float) else label

    def line(self, x: Any, prediction: LabelPrediction) -> str:
        return self.written(prediction.label)

    def to_json(self, x: Any, prediction: LabelPrediction) -> dict[str, Any]:
        return {**self.input.fields(x), **prediction.to_json()}

    def warn(self, xs: Sequence[Any], first: int, options: Any) -> None:
        if cut := self.input.too_long(xs):
            LOG.warning(self.cut_line(cut))

    def row(self, example: Example, prediction: LabelPrediction) -> dict[str, Any]:
        fields = prediction.to_json()
        label = fields.pop("label")
        return {**self.input.fields(example.x), "label": example.y, "prediction": label, **fields}


def _numbers(data: Path) -> np.ndarray:
    """The numbers of the training rows."""
    try:
        numbers = np.asarray(mapped(data / NUMBERS))
        if numbers.dtype != np.float64 or numbers.ndim != 1:
            raise ValueError("it holds no numbers")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{data / NUMBERS} is damaged or missing: {error}") from None
    return numbers


# Labels of images: how batches are made, what is stored, and what a place looks like on average.


AVERAGED = 512  # images that say what a place looks like on average
EARLIER = "images.jsonl"  # where runs of earlier versions kept what they were trained on and validated with


class ImageBatches:
    """Images in an order that is drawn anew in each epoch. A row is written as its complement where it is mirrored."""

    def __init__(self, prepared: Prepared, config: Any) -> None:
        self.input, self.output, self.corpus, self.config = prepared.input, prepared.output, prepared.corpus, config

    def epoch(self, number: int) -> list[np.ndarray]:
        random, most = np.random.default_rng([self.config.seed, number]), self.config.batch_rows
        order = random.permutation(len(self.corpus))
        if self.config.mirrored and not self.config.encoder.frozen:
            order = np.where(random.random(len(order)) < 0.5, ~order, order)
        return [order[start : start + most] for start in range(0, len(order), most)]

    def batch(self, handle: np.ndarray) -> tuple[Tensor, Tensor]:
        rows = np.where(handle < 0, ~handle, handle)
        parts, targets = zip(*(self.corpus[row] for row in rows.tolist()), strict=True)
        batch, turned = self.input.collate(parts), torch.from_numpy(handle < 0)
        if turned.any():
            batch[turned] = batch[turned].flip(2)
        return batch, self.output.collate(targets, batch)


class EarlierCorpus:
    """The training rows of a run of an earlier version."""

    def __init__(self, examples: Sequence[Example], labels: Labels) -> None:
        self.examples, self.labels = examples, labels

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        x, y = self.examples[row]
        return np.array([x.row]), np.array([y] if isinstance(y, float) else self.labels.ids(y))


class ImageLabelsOutput(LabelsOutput):
    """Labels of images."""

    def fit(self, input: Input, rows: Rows, setting: Setting) -> tuple[Input, Output]:
        fitted = input.fit(rows, setting)
        return fitted, type(self)(setting.config, self.fit_labels(rows, setting), fitted)

    def batches(self, prepared: Prepared, config: Any) -> ImageBatches:
        return ImageBatches(prepared, config)

    def open(self, input: Input, setting: Setting) -> Any:
        if not (setting.data / EARLIER).exists():
            return super().open(input, setting)
        return EarlierCorpus(self._earlier(input, setting.data / EARLIER)[0], self.labels)

    def open_valid(self, input: Input, setting: Setting) -> list[Example]:
        if not (setting.data / EARLIER).exists():
            return super().open_valid(input, setting)
        return self._earlier(input, setting.data / EARLIER)[1]

    def _earlier(self, input: Any, path: Path) -> tuple[list[Example], list[Example]]:
        """Examples to train on, and to validate with."""
        assert isinstance(input, ImageInput)
        assert input.features is not None
        sides: tuple[list[Example], list[Example]] = ([], [])
        try:
            for line in path.read_text(encoding="utf-8").splitlines():
                name, label, key, row, apart = json.loads(line)
                if type(row) is not int or not 0 <= row < len(input.features):
                    raise ValueError(f"there is no row {row!r}")
                sides[bool(apart)].append(Example(Photo(name, int(key, 16), row), self.unpack([label])))
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return sides

    def calibrate(self, run: Run, raws: Sequence[Any], prepared: Prepared) -> Output:
        assert isinstance(run.model, ImageToLabels)
        run.model.blank.copy_(mean_place(run.model, prepared, self.config.seed))
        return super().calibrate(run, raws, prepared)

    def about_data(self, prepared: Prepared) -> dict[str, Any]:
        return {**super().about_data(prepared), "images_per_second": prepared.input.per_second}  # type: ignore[attr-defined]

    def line(self, x: Any, prediction: LabelPrediction) -> str:
        return f"{one_line(self.input.label(x))}\t{super().line(x, prediction)}"


@torch.inference_mode()
def mean_place(model: ImageToLabels, prepared: Prepared, seed: int) -> Tensor:
    """What a place of the training images looks like on average, of at most some hundred of them."""
    rows = np.random.default_rng(seed).permutation(len(prepared.corpus))[:AVERAGED]
    total = torch.zeros(model.places.size, dtype=torch.double)
    for start in range(0, len(rows), AT_ONCE):
        parts = [prepared.corpus[row][0] for row in rows[start : start + AT_ONCE].tolist()]
        source = prepared.input.collate(parts).to(model.blank.device)
        total += model.see(source).double().mean(dim=1).sum(dim=0).cpu()
    return (total / len(rows)).to(model.blank)
