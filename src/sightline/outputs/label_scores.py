"""How good predicted labels are: one label, several, or a number, on rows and label by label, and how sure.

A label that training did not have gets a class of its own behind the model's: it counts, as wrong. Nothing here prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sightline import metrics as scores
from sightline.data.labelled import Label
from sightline.metrics import OfClass, Statistics
from sightline.outputs.label_names import UNSEEN, Labels

REPORTED: dict[str, tuple[str, ...]] = {
    "one": ("accuracy", "macro_f1"),
    "several": ("accuracy", "macro_f1", "micro_f1"),
    "number": ("pearson", "spearman", "rmse"),
}


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
    """What predictions are held against."""
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
            "accuracy": scores.accuracy.statistics(predicted, gold),
            "macro_f1": scores.macro_f1.statistics(predicted, gold, len(truth.names)),
        }
    if truth.kind == "several":
        metrics = (scores.subset_accuracy, scores.several_macro_f1, scores.micro_f1)
    else:
        metrics = (scores.pearson, scores.spearman, scores.rmse)
    return {name: one.statistics(predicted, gold) for name, one in zip(REPORTED[truth.kind], metrics, strict=True)}


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
    return scores.nll(logits, gold).value if len(gold) else float("nan")


def decisions(outputs: np.ndarray, truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """Logits and classes of the rows whose label the model has; of several labels, one decision for each."""
    if truth.kind == "several":
        return scores.as_two_classes(outputs, truth.gold[:, : truth.known])
    there = truth.gold < truth.known
    return outputs[there], truth.gold[there]


@dataclass(frozen=True)
class Calibration:
    """How far sureness and being right are apart, before and after the temperature; and the bins of both."""

    temperature: float
    ece_before: float
    ece: float
    brier: float
    bins: list[scores.Bin]
    bins_before: list[scores.Bin]

    def to_json(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("temperature", "ece_before", "ece", "brier")}


def calibration(outputs: np.ndarray, truth: Truth, temperature: float) -> Calibration | None:
    """Of labels; rows whose label the model does not have cannot be right, however sure it is."""
    if truth.kind == "number" or not len(outputs):
        return None
    logits, gold, extra = outputs, truth.gold, len(truth.names) - truth.known
    if truth.kind == "several":
        (logits, gold), extra = decisions(outputs, truth), 0
    probs = (scores.probabilities(logits, one) for one in (1.0, temperature))
    before, after = (np.concatenate([one, np.zeros((len(one), extra))], axis=1) for one in probs)
    return Calibration(
        temperature,
        scores.ece(before, gold).value,
        scores.ece(after, gold).value,
        scores.brier(after, gold).value,
        scores.reliability_bins(after, gold),
        scores.reliability_bins(before, gold),
    )


def tables_of(predicted: np.ndarray, truth: Truth) -> tuple[list[OfClass], np.ndarray | None]:
    """Precision and recall of each label, and of one label which was taken for which. Numbers have neither."""
    if truth.kind == "several":
        return scores.several_per_class(predicted, truth.gold, truth.names), None
    if truth.kind == "number":
        return [], None
    matrix = scores.confusion(predicted, truth.gold, len(truth.names))
    return scores.per_class(matrix, truth.names), matrix
