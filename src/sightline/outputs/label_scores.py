"""The labels of a run, and scores of predicted ones: one label, several, or a number, by row and by label.

A label that training did not have gets a class of its own behind the model's: it counts, as wrong. Nothing here prints.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from sightline import metrics
from sightline.data.labelled import MOST_LABELS, Label, LabelKind, LabelReport
from sightline.errors import UserError
from sightline.metrics import OfClass, Statistics
from sightline.outputs.reports import read_record
from sightline.training.folder import RunFolder

LABELS = "labels.json"
NONE = "none of the labels"
UNSEEN = -1  # the class of a label that training did not have


@dataclass(frozen=True)
class Labels:
    """What a head's outputs mean.

    ``names`` are the classes in order, ``counts`` how often training had each. A number is learnt as (number − mean) /
    spread. ``pairs``: two texts are read. ``columns`` and ``separator`` are those of the training data.
    """

    kind: LabelKind = "one"
    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    pairs: bool = False
    columns: tuple[str, ...] | None = None
    separator: str | None = None
    mean: float = 0.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(LabelKind):
            raise ValueError(f"kind is {self.kind!r}; it is one of {', '.join(get_args(LabelKind))}")
        if not isinstance(self.names, tuple) or not isinstance(self.counts, tuple):
            raise ValueError("names or counts is no list")
        if self.kind != "number" and not 1 <= len(self.names) <= MOST_LABELS:
            raise ValueError(f"found {len(self.names):,} names of labels")
        if len(set(self.names)) != len(self.names) or not all(isinstance(name, str) and name for name in self.names):
            raise ValueError("a name of a label is empty, there twice, or no text")
        if len(self.counts) != len(self.names) or not all(type(count) is int and count >= 0 for count in self.counts):
            raise ValueError("there is not one count for each label")
        if type(self.pairs) is not bool or not (self.separator is None or isinstance(self.separator, str)):
            raise ValueError(f"pairs is {self.pairs!r} and separator {self.separator!r}")
        columns = self.columns
        if columns is not None and (not columns or not all(isinstance(one, str) and one for one in columns)):
            raise ValueError(f"columns is {columns!r}")
        if not (math.isfinite(self.mean) and math.isfinite(self.spread) and self.spread > 0):
            raise ValueError(f"mean and spread are {self.mean!r} and {self.spread!r}")

    @property
    def classes(self) -> int:
        """How many outputs a head has."""
        return 1 if self.kind == "number" else len(self.names)

    def index(self, name: str) -> int:
        """The class of a label, or `UNSEEN`."""
        return self._places.get(name, UNSEEN)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def ids(self, label: Label) -> list[int]:
        """The classes of a label as a list; those that training did not have are left out. Of a number, none."""
        return [place for name in names_of(label) if (place := self.index(name)) != UNSEEN]

    def gold(self, labels: Sequence[Label]) -> np.ndarray:
        """What scores are computed against: classes (or `UNSEEN`), rows of zeros and ones, or numbers."""
        if self.kind == "number":
            return np.array(labels, dtype=np.float64)
        if self.kind == "one":
            return np.array([self.index(str(label)) for label in labels], dtype=np.int64)
        gold = np.zeros((len(labels), len(self.names)), dtype=np.int64)
        for row, label in enumerate(labels):
            gold[row, self.ids(label)] = 1
        return gold

    def unseen(self, labels: Sequence[Label]) -> dict[str, int]:
        """Labels that training did not have, and how many rows have them."""
        counts = Counter(name for label in labels for name in names_of(label) if self.index(name) == UNSEEN)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def save(self, folder: RunFolder) -> None:
        folder.write_json(LABELS, {**asdict(self), "names": list(self.names), "counts": list(self.counts)})

    @classmethod
    def load(cls, path: Path) -> "Labels":
        """Read the labels of a run folder of unknown origin."""
        return read_record(cls, path, LABELS)


def names_of(label: Label) -> tuple[str, ...]:
    """The names in a label, which may be several; a number has none."""
    return () if isinstance(label, float) else (label,) if isinstance(label, str) else label


def labels_of(report: LabelReport, pairs: bool, columns: tuple[str, ...] | None, separator: str | None) -> Labels:
    """The labels that training found; numbers as names come in the order of numbers."""
    given: dict[str, Any] = {"kind": report.kind, "pairs": pairs, "columns": columns, "separator": separator}
    if report.kind == "number":
        if not math.isfinite(report.spread) or not math.isfinite(report.mean):
            raise UserError("the numbers are too far apart for their mean and spread to be computed; scale them")
        return Labels(**given, mean=report.mean, spread=report.spread or 1.0)
    names = sorted(report.labels, key=_order)
    return Labels(**given, names=tuple(names), counts=tuple(report.labels[name] for name in names))


def _order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        return 1, 0.0, name
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)


REPORTED: dict[str, tuple[str, ...]] = {
    "one": ("accuracy", "macro_f1"),
    "several": ("accuracy", "macro_f1", "micro_f1"),
    "number": ("pearson", "spearman", "rmse"),
}


class LabelPrediction(NamedTuple):
    """A label (several, or a number), its probability, and those of all labels; calibrated on validation data.

    Of several labels, the probability is that of the most doubtful decision. A number has none.
    """

    label: Label
    probability: float | None = None
    probabilities: dict[str, float] | None = None

    def to_json(self) -> dict[str, object]:
        data: dict[str, object] = {"label": self.label}
        if self.probabilities is not None:
            data |= {"probability": self.probability, "probabilities": self.probabilities}
        return data


class Truth(NamedTuple):
    """The right answers: classes, rows of true and false, or numbers. ``names`` are the model's labels, then others."""

    kind: str
    gold: np.ndarray
    names: tuple[str, ...] = ()
    known: int = 0  # names that the model has

    def unseen(self) -> np.ndarray:
        """Which rows have a label that training did not have."""
        if self.kind == "several":
            return np.asarray(self.gold[:, self.known :].any(axis=1))
        return self.gold >= self.known if self.kind == "one" else np.zeros(len(self.gold), dtype=bool)


def truth_of(labels: Labels, given: Sequence[Label]) -> Truth:
    """The right answers in the form that predictions are compared with."""
    if labels.kind == "number":
        return Truth("number", labels.gold(given))
    unseen = tuple(labels.unseen(given))
    names = (*labels.names, *unseen)
    gold = labels.gold(given)
    behind = {name: len(labels.names) + place for place, name in enumerate(unseen)}
    if labels.kind == "one":
        for row in np.flatnonzero(gold == UNSEEN).tolist():
            gold[row] = behind[str(given[row])]
    else:
        gold = np.concatenate([gold > 0, np.zeros((len(gold), len(unseen)), dtype=bool)], axis=1)
        for row, label in enumerate(given):
            gold[row, [behind[name] for name in label if name in behind]] = True  # type: ignore[union-attr]
    return Truth(labels.kind, gold, names, len(labels.names))


def predictions_of(margins: np.ndarray, truth: Truth) -> np.ndarray:
    """The answers that logits or margins give; of several labels, those above 0."""
    if truth.kind == "number":
        return margins.astype(np.float64)
    if truth.kind == "one":
        return margins.argmax(axis=1)
    extra = len(truth.names) - truth.known
    return np.concatenate([margins >= 0, np.zeros((len(margins), extra), dtype=bool)], axis=1)


def statistics(predicted: np.ndarray, truth: Truth) -> dict[str, Statistics]:
    """Every reported metric as counts of each row, which add up to the score of any part of them."""
    gold = truth.gold
    if truth.kind == "one":
        return {
            "accuracy": metrics.accuracy.statistics(predicted, gold),
            "macro_f1": metrics.macro_f1.statistics(predicted, gold, len(truth.names)),
        }
    if truth.kind == "several":
        measures = (metrics.subset_accuracy, metrics.several_macro_f1, metrics.micro_f1)
    else:
        measures = (metrics.pearson, metrics.spearman, metrics.rmse)
    return {name: one.statistics(predicted, gold) for name, one in zip(REPORTED[truth.kind], measures, strict=True)}


def values_of(predicted: np.ndarray, truth: Truth, rows: np.ndarray | None = None) -> dict[str, float]:
    """Every reported metric, of all rows or of some."""
    if rows is not None:
        predicted, truth = predicted[rows], truth._replace(gold=truth.gold[rows])
    return {name: one.score() for name, one in statistics(predicted, truth).items()}


def loss_of(outputs: np.ndarray, truth: Truth, spread: float = 1.0) -> float:
    """The mean loss of a row whose label the model has (of a decision, a standardised number)."""
    if truth.kind == "number":
        return float((((outputs - truth.gold) / spread) ** 2).mean())
    logits, gold = decisions(outputs, truth)
    return metrics.nll(logits, gold).value if len(gold) else float("nan")


def decisions(outputs: np.ndarray, truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """Logits and classes of the rows whose label the model has; of several labels, one decision for each."""
    if truth.kind == "several":
        return metrics.as_two_classes(outputs, truth.gold[:, : truth.known])
    there = truth.gold < truth.known
    return outputs[there], truth.gold[there]


@dataclass(frozen=True)
class Calibration:
    """How far sureness and being right are apart, before and after the temperature; and the bins of both."""

    temperature: float
    ece_before: float
    ece: float
    brier: float
    bins: list[metrics.Bin]
    bins_before: list[metrics.Bin]

    def to_json(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("temperature", "ece_before", "ece", "brier")}


def calibration(outputs: np.ndarray, truth: Truth, temperature: float) -> Calibration | None:
    """Of labels; rows whose label the model does not have cannot be right, however sure it is."""
    if truth.kind == "number" or not len(outputs):
        return None
    logits, gold, extra = outputs, truth.gold, len(truth.names) - truth.known
    if truth.kind == "several":
        (logits, gold), extra = decisions(outputs, truth), 0
    probs = (metrics.probabilities(logits, one) for one in (1.0, temperature))
    before, after = (np.concatenate([one, np.zeros((len(one), extra))], axis=1) for one in probs)
    return Calibration(
        temperature,
        metrics.ece(before, gold).value,
        metrics.ece(after, gold).value,
        metrics.brier(after, gold).value,
        metrics.reliability_bins(after, gold),
        metrics.reliability_bins(before, gold),
    )


def tables_of(predicted: np.ndarray, truth: Truth) -> tuple[list[OfClass], np.ndarray | None]:
    """Precision and recall of each label, and of one label which was taken for which. Numbers have neither."""
    if truth.kind == "several":
        return metrics.several_per_class(predicted, truth.gold, truth.names), None
    if truth.kind == "number":
        return [], None
    matrix = metrics.confusion(predicted, truth.gold, len(truth.names))
    return metrics.per_class(matrix, truth.names), matrix
