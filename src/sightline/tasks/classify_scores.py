"""How good models from text to labels are: on rows, label by label, calibrated, beside the floors, against each other.

A label that training did not have gets a class of its own behind the model's: it counts, as wrong. Nothing here prints.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from sightline.data.checking import Limits
from sightline.data.labelled import Example, Label, LabelledFile
from sightline.data.labels_checking import TEXT_LIMITS, LabelReport
from sightline.errors import UserError
from sightline.tasks.classifier import Classifier, LabelPrediction
from sightline.tasks.classify_data import checked_examples, in_training
from sightline.tasks.floors import FACTS, Floors
from sightline.tasks.labels import UNSEEN, Labels
from sightline.training import scores
from sightline.training.scores import OfClass, Resampled, Statistics

LabelMetric = Literal["macro_f1", "accuracy", "micro_f1", "pearson", "spearman", "rmse"]
# What may decide which checkpoint is best; the first does unless another is asked for. Of the rmse, less is better.
METRICS_OF: dict[str, tuple[str, ...]] = {
    "one": ("macro_f1", "accuracy"),
    "several": ("macro_f1", "micro_f1", "accuracy"),
    "number": ("pearson", "spearman"),
}
REPORTED: dict[str, tuple[str, ...]] = {
    "one": ("accuracy", "macro_f1"),
    "several": ("accuracy", "macro_f1", "micro_f1"),
    "number": ("pearson", "spearman", "rmse"),
}
HELD = 512  # texts predicted between two moves of a bar


class Truth(NamedTuple):
    """The right answers: classes, rows of true and false, or numbers. ``names`` are the model's labels, then others."""

    kind: str
    gold: np.ndarray
    names: tuple[str, ...]
    known: int  # names that the model has


def truth_of(labels: Labels, given: Sequence[Label]) -> Truth:
    """What predictions are held against."""
    if labels.kind == "number":
        return Truth("number", labels.gold(given), (), 0)
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


def said_by(margins: np.ndarray, truth: Truth, least: float = 0.0) -> np.ndarray:
    """The answers that logits or margins give; of several labels, those with at least this margin."""
    if truth.kind == "number":
        return margins.astype(np.float64)
    if truth.kind == "one":
        return margins.argmax(axis=1)
    extra = len(truth.names) - truth.known
    return np.concatenate([margins >= least, np.zeros((len(margins), extra), dtype=bool)], axis=1)


def statistics(metric: str, said: np.ndarray, truth: Truth) -> Statistics:
    """A metric as counts of each row, which add up to the score of any part of them."""
    gold = truth.gold
    if truth.kind == "one":
        one = {
            "accuracy": lambda: scores.accuracy.statistics(said, gold),
            "macro_f1": lambda: scores.macro_f1.statistics(said, gold, len(truth.names)),
        }
        return one[metric]()
    table: dict[str, dict[str, Callable[[np.ndarray, np.ndarray], Statistics]]] = {
        "several": {
            "accuracy": scores.subset_accuracy.statistics,
            "macro_f1": scores.several_macro_f1.statistics,
            "micro_f1": scores.micro_f1.statistics,
        },
        "number": {
            "pearson": scores.pearson.statistics,
            "spearman": scores.spearman.statistics,
            "rmse": scores.rmse.statistics,
        },
    }
    return table[truth.kind][metric](said, gold)


def values_of(said: np.ndarray, truth: Truth, rows: np.ndarray | None = None) -> dict[str, float]:
    """Every reported metric, of all rows or of some."""
    if rows is not None:
        said, truth = said[rows], truth._replace(gold=truth.gold[rows])
    return {name: statistics(name, said, truth).score() for name in REPORTED[truth.kind]}


def loss_of(found: np.ndarray, truth: Truth, spread: float = 1.0) -> float:
    """The mean loss of a row whose label the model has (of a decision, a standardised number)."""
    if truth.kind == "number":
        return float((((found - truth.gold) / spread) ** 2).mean())
    logits, gold = _decisions(found, truth)
    return scores.nll(logits, gold).value if len(gold) else float("nan")


def score_values(found: np.ndarray, truth: Truth, labels: Labels, first: str) -> dict[str, float]:
    """What validation says: the ``first`` metric, which decides, the loss, and the other metrics."""
    values = values_of(said_by(found, truth), truth)
    ordered = {first: values[first], "valid_loss": loss_of(found, truth, labels.spread)} | values
    return {name: round(value, 4) for name, value in ordered.items()}


def _decisions(found: np.ndarray, truth: Truth) -> tuple[np.ndarray, np.ndarray]:
    """Logits and classes of the rows whose label the model has; of several labels, one decision for each."""
    if truth.kind == "several":
        return scores.as_two_classes(found, truth.gold[:, : truth.known])
    there = truth.gold < truth.known
    return found[there], truth.gold[there]


def fit(classifier: Classifier, examples: Sequence[Example]) -> np.ndarray:
    """Find the temperature, and of several labels the threshold, on validation data; gives its logits."""
    found = classifier.scores([example.texts for example in examples])
    truth = truth_of(classifier.labels, [example.label for example in examples])
    if truth.kind != "number":
        classifier.temperature = scores.fit_temperature(*_decisions(found, truth))
    if truth.kind == "several":
        chances = classifier.probabilities(found)
        classifier.threshold = scores.best_threshold(chances, truth.gold[:, : truth.known])
    return found


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
        names = ("temperature", "ece_before", "ece", "brier")
        return {name: getattr(self, name) for name in names}


def calibration(found: np.ndarray, truth: Truth, temperature: float) -> Calibration | None:
    """Of labels; rows whose label the model does not have cannot be right, however sure it is."""
    if truth.kind == "number" or not len(found):
        return None
    gold = truth.gold
    logits = found
    if truth.kind == "several":
        logits, gold = _decisions(found, truth)
    before, after = (_widened(scores.probabilities(logits, one), truth) for one in (1.0, temperature))
    return Calibration(
        temperature,
        scores.ece(before, gold).value,
        scores.ece(after, gold).value,
        scores.brier(after, gold).value,
        scores.reliability_bins(after, gold),
        scores.reliability_bins(before, gold),
    )


def _widened(chances: np.ndarray, truth: Truth) -> np.ndarray:
    extra = len(truth.names) - truth.known if truth.kind == "one" else 0
    return np.concatenate([chances, np.zeros((len(chances), extra))], axis=1)


@dataclass(frozen=True)
class LabelEvaluation:
    """Predictions for examples, and every score of them; ``floors`` the same scores of the linear models.

    ``seen`` says which texts stand in the training data; ``without`` and ``floors_without`` are the scores of the
    others.
    """

    examples: list[Example]
    predictions: list[LabelPrediction]
    truth: Truth
    said: np.ndarray
    values: dict[str, float]
    calibration: Calibration | None
    unseen: dict[str, int]
    seen: np.ndarray | None
    without: dict[str, float] | None
    known: dict[str, float] | None  # of the rows whose labels the model has, where some have others
    floors: dict[str, dict[str, float]]
    floors_without: dict[str, dict[str, float]]
    cut: int
    seconds: float
    table: list[OfClass] = field(default_factory=list)
    confusion: np.ndarray | None = None

    def unseen_rows(self) -> int:
        """Rows with a label that training did not have."""
        if self.truth.kind == "one":
            return int((self.truth.gold >= self.truth.known).sum())
        return int(self.truth.gold[:, self.truth.known :].any(axis=1).sum()) if self.truth.kind == "several" else 0

    def worst(self, count: int) -> list[dict[str, Any]]:
        """The wrong answers that the model was surest of; the numbers that are furthest off."""
        wrong, size = self._wrongness()
        order = np.flatnonzero(wrong)[np.argsort(-size[wrong], kind="stable")][:count]
        return [self._row(row) for row in order.tolist()]

    def _wrongness(self) -> tuple[np.ndarray, np.ndarray]:
        gold = self.truth.gold
        if self.truth.kind == "number":
            size = np.abs(self.said - gold)
            return size > 0, size
        if self.truth.kind == "one":
            return self.said != gold, np.array([one.probability for one in self.predictions])
        return (self.said != gold).any(axis=1), (self.said != gold).sum(axis=1).astype(np.float64)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every example with its prediction."""
        for row in range(len(self.examples)):
            yield self._row(row)

    def _row(self, row: int) -> dict[str, Any]:
        example, prediction = self.examples[row], self.predictions[row]
        found: dict[str, Any] = {"text": example.text}
        if example.second is not None:
            found["text2"] = example.second
        found |= {"label": example.label, "prediction": prediction.label}
        if prediction.probabilities is not None:
            found |= {"probability": prediction.probability, "probabilities": prediction.probabilities}
        if self.seen is not None:
            found["in_training"] = bool(self.seen[row])
        return found

    def to_json(self, errors: int = 0) -> dict[str, Any]:
        """Everything but the predictions; with ``errors``, that many of the worst."""
        found: dict[str, Any] = {"texts": len(self.examples), "labels": self.truth.kind, **self.values}
        if self.calibration is not None:
            found["calibration"] = self.calibration.to_json()
        found["floors"] = self.floors
        if self.seen is not None:
            found["in_training"] = int(self.seen.sum())
        if self.without is not None:
            found["without_training_texts"] = {**self.without, "floors": self.floors_without}
        if self.unseen:
            found["unseen_labels"] = {"rows": self.unseen_rows(), "labels": self.unseen, "without": self.known}
        if self.table:
            found["per_label"] = [vars(one) for one in self.table]
        if self.confusion is not None:
            found["confusion"] = {"labels": list(self.truth.names), "rows": self.confusion.tolist()}
        found["cut"] = self.cut
        return found | ({"errors": self.worst(errors)} if errors else {})


def evaluate(
    classifier: Classifier,
    examples: Sequence[Example],
    *,
    floors: bool = True,
    on_predicted: Callable[[int], None] = lambda count: None,
) -> LabelEvaluation:
    """Every score of a model on examples, and of its run's floors; with and without texts that it was trained on."""
    if not examples:
        raise UserError("there is no row to score; expected at least one")
    texts, labels = [example.texts for example in examples], classifier.labels
    started = time.perf_counter()
    found = classifier.scores(texts, on_predicted=on_predicted)
    seconds = time.perf_counter() - started
    truth = truth_of(labels, [example.label for example in examples])
    said = said_by(found, truth, classifier.least_margin)
    seen = None if classifier.run is None else in_training(classifier.run, examples)
    others = None if seen is None or not seen.any() or seen.all() else ~seen
    beside = floors_of(classifier.run, classifier.labels) if floors else None
    margins = {} if beside is None else {name: said_by(one, truth) for name, one in beside.scores(texts).items()}
    matrix = scores.confusion(said, truth.gold, len(truth.names)) if truth.kind == "one" else None
    table = [] if matrix is None else scores.per_class(matrix, truth.names)
    if truth.kind == "several":
        table = scores.several_per_class(said, truth.gold, truth.names)
    return LabelEvaluation(
        list(examples),
        classifier.read_scores(found),
        truth,
        said,
        values_of(said, truth),
        calibration(found, truth, classifier.temperature),
        labels.unseen([example.label for example in examples]),
        seen,
        None if others is None else values_of(said, truth, others),
        _known(said, truth),
        {name: values_of(one, truth) for name, one in margins.items()},
        {} if others is None else {name: values_of(one, truth, others) for name, one in margins.items()},
        classifier.cut(texts),
        seconds,
        table,
        matrix,
    )


def _known(said: np.ndarray, truth: Truth) -> dict[str, float] | None:
    """The scores of the rows whose labels the model has; None where that is all of them, or none."""
    if len(truth.names) == truth.known:
        return None
    unseen = truth.gold >= truth.known if truth.kind == "one" else truth.gold[:, truth.known :].any(axis=1)
    rows = np.logical_not(unseen)
    return values_of(said, truth, rows) if rows.any() else None


def floors_of(run: Path | None, labels: Labels) -> Floors | None:
    """The floors that a run keeps, if it does; of these labels."""
    if run is None or not (run / FACTS).exists():
        return None
    floors = Floors.load(run)
    outputs = {len(floor.bias) for floor in floors.floors.values()}
    fitting = {labels.classes, 1} if labels.kind == "one" and labels.classes == 2 else {labels.classes}
    if floors.kind != labels.kind or not outputs <= fitting:
        raise UserError(f"{run / FACTS} is damaged: its floors are not those of the run's labels")
    return floors


def read_examples(files: LabelledFile, limits: Limits | None = None) -> tuple[list[Example], LabelReport]:
    """The good rows of a file, and what was left out."""
    # A score is of all rows: only what no model could read is left out.
    examples, reports = checked_examples(files, limits or replace(TEXT_LIMITS))
    return list(examples()), reports[0]


@dataclass(frozen=True)
class LabelComparison:
    """Systems on the same rows. ``found`` is by metric, then by system; differences are to the first system."""

    texts: int
    samples: int
    seed: int
    found: dict[str, dict[str, Resampled]]

    def to_json(self) -> dict[str, Any]:
        metrics = {
            metric: {"runs": {name: vars(one) for name, one in runs.items()}} for metric, runs in self.found.items()
        }
        return {"texts": self.texts, "samples": self.samples, "seed": self.seed, "metrics": metrics}


def compare(
    classifiers: Mapping[str, Classifier],
    examples: Sequence[Example],
    *,
    metrics: Sequence[str] | None = None,
    samples: int = 1000,
    seed: int = 0,
    on_predicted: Callable[[int], None] = lambda count: None,
) -> LabelComparison:
    """Several models on the same rows, whatever the order of their labels: paired bootstrap of each metric."""
    kinds = {one.labels.kind for one in classifiers.values()}
    if len(kinds) > 1:
        raise UserError(
            f"the runs have labels of different kinds ({', '.join(sorted(kinds))}): they cannot be compared"
        )
    (kind,) = kinds
    chosen = tuple(dict.fromkeys(metrics or REPORTED[kind]))
    for name in chosen:
        if name not in REPORTED[kind]:
            raise UserError(f"{name} is no metric of these runs; there is {', '.join(REPORTED[kind])}")
    found: dict[str, list[Statistics]] = {name: [] for name in chosen}
    for classifier in classifiers.values():
        truth = truth_of(classifier.labels, [example.label for example in examples])
        logits = classifier.scores([example.texts for example in examples], on_predicted=on_predicted)
        said = said_by(logits, truth, classifier.least_margin)
        for name in chosen:
            found[name].append(statistics(name, said, truth))
    resampled = {
        name: dict(zip(classifiers, scores.paired_bootstrap(systems, samples, seed), strict=True))
        for name, systems in found.items()
    }
    return LabelComparison(len(examples), samples, seed, resampled)
