"""Scores of labels: one for each text, or any number of them. All are made of counts, so the bootstrap works on them.

Classes are numbers from 0. Texts whose right label the model has never seen keep a class of their own, behind those of
the model: they count as wrong, in their own row, and are not left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int64

from sightline.metrics.base import Statistics, by_threshold, mean_statistics, means, metric

Labels = Int[np.ndarray, " texts"]
Sets = Bool[np.ndarray, "texts classes"]


@dataclass(frozen=True)
class OfClass:
    """How one class was found. What would be a share of nothing is None.

    ``precision`` of the texts called so that are so; ``recall`` of the texts that are so that were called so; ``f1``
    their harmonic mean; ``support`` the texts that are so, ``said`` those called so.
    """

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    said: int


@metric()
def accuracy(predicted: Labels, gold: Labels) -> Statistics:
    """The share of texts with the right label."""
    _same_length(predicted, gold)
    return mean_statistics(100.0 * (predicted == gold))


@metric("macro|classes:seen")
def macro_f1(predicted: Labels, gold: Labels, classes: int) -> Statistics:
    """The mean of the F1 of classes, each counting the same, however rare.

    Over the classes that some text has or was given; a class that is in neither says nothing and is left out. So one
    that is only ever predicted by mistake counts, with 0.
    """
    return several_macro_f1.statistics(_one_hot(predicted, classes), _one_hot(gold, classes))


def confusion(predicted: Labels, gold: Labels, classes: int) -> Int64[np.ndarray, "gold predicted"]:
    """How many texts of each class (row) were called what (column)."""
    _same_length(predicted, gold)
    for labels in (predicted, gold):
        _check_classes(labels, classes)
    flat = gold.astype(np.int64) * classes + predicted
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def per_class(matrix: Int64[np.ndarray, "gold predicted"], names: Sequence[str]) -> list[OfClass]:
    """A row of the table for each class, from the confusion matrix."""
    if len(names) != len(matrix):
        raise ValueError(f"{len(names)} names of {len(matrix)} classes")
    return class_rows(names, np.diag(matrix), matrix.sum(axis=0), matrix.sum(axis=1))


def best_threshold(probabilities: Float[np.ndarray, "texts classes"], gold: Sets) -> float:
    """The threshold with the best micro-F1, to be found on validation texts.

    Where it is best to take even all labels of the lowest probability, it is half of that.
    """
    return threshold_of_best_f1(probabilities, gold)[0]


def threshold_of_best_f1(probs: np.ndarray, gold: np.ndarray) -> tuple[float, float]:
    """The threshold, half way between two probabilities, and its F1 from 0 to 100."""
    if not gold.any():
        return 0.5, 0.0
    values, counts, hits = by_threshold(probs, gold)
    f1 = 2 * hits / (counts + gold.sum())
    best = int(f1.argmax())
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2), float(100 * f1[best])


@metric()
def subset_accuracy(predicted: Sets, gold: Sets) -> Statistics:
    """The share of texts of which every label is right, and none too many."""
    _same_length(predicted, gold)
    return mean_statistics(100.0 * (predicted == gold).all(axis=1))


@metric("micro")
def micro_f1(predicted: Sets, gold: Sets) -> Statistics:
    """F1 of all labels of all texts together. 0 where there is none to find and none was predicted."""
    _same_length(predicted, gold)
    rows = np.stack([(predicted & gold).sum(axis=1), predicted.sum(axis=1), gold.sum(axis=1)], axis=1)
    return Statistics(rows.astype(np.float64), f1_of_sums)


@metric("macro|classes:seen")
def several_macro_f1(predicted: Sets, gold: Sets) -> Statistics:
    """The mean of the F1 of labels, over those that some text has or was given."""
    _same_length(predicted, gold)
    return Statistics(np.concatenate([predicted & gold, predicted, gold], axis=1).astype(np.float64), _macro_of_sums)


def several_per_class(predicted: Sets, gold: Sets, names: Sequence[str]) -> list[OfClass]:
    """A row of the table for each label, where a text may have several."""
    _same_length(predicted, gold)
    return class_rows(names, (predicted & gold).sum(axis=0), predicted.sum(axis=0), gold.sum(axis=0))


def f1_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    """F1 of hits, predicted and wanted."""
    hits, predicted, gold = sums.T
    return 200 * hits / np.maximum(predicted + gold, 1)


def _macro_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    hits, predicted, gold = np.split(sums, 3, axis=1)
    seen = predicted + gold
    f1 = 200 * hits / np.maximum(seen, 1)
    return f1.sum(axis=1) / np.maximum((seen > 0).sum(axis=1), 1)


def _one_hot(labels: Labels, classes: int) -> Sets:
    _check_classes(labels, classes)
    return labels[:, None] == np.arange(classes)


def _check_classes(labels: Labels, classes: int) -> None:
    if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        raise ValueError(f"classes run from {labels.min()} to {labels.max()}; expected 0 to {classes - 1}")


def class_rows(names: Sequence[str], hits: np.ndarray, predicted: np.ndarray, gold: np.ndarray) -> list[OfClass]:
    """A row for each class, from how often it was right, predicted and there."""
    return [
        OfClass(name, _share(hit, predicted), _share(hit, there), _share(2 * hit, predicted + there), there, predicted)
        for name, hit, predicted, there in zip(names, hits.tolist(), predicted.tolist(), gold.tolist(), strict=True)
    ]


def _share(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


def _same_length(predicted: np.ndarray, gold: np.ndarray) -> None:
    if predicted.shape != gold.shape:
        raise ValueError(f"predictions of shape {predicted.shape} against gold of shape {gold.shape}")


# Scores of numbers: how far off they are, and whether they rise together.

Numbers = Float[np.ndarray, " texts"]


@metric("pearson")
def pearson(predicted: Numbers, gold: Numbers) -> Statistics:
    """Correlation times 100, as tables of text similarity have it: 100 on a rising line, 0 unrelated, -100 falling.

    0 where one side is the same number everywhere: it says nothing of the other.
    """
    x, y = _centred(predicted), _centred(gold)
    _same_length(x, y)
    return Statistics(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1), _pearson_of_sums)


@metric("spearman|ties:mean")
def spearman(predicted: Numbers, gold: Numbers) -> Statistics:
    """The correlation of ranks, times 100; equal numbers share the mean of their ranks.

    Ranks are those among all texts; a resample keeps them, which moves its score very little.
    """
    return pearson.statistics(mean_ranks(predicted), mean_ranks(gold))


@metric("rmse")
def rmse(predicted: Numbers, gold: Numbers) -> Statistics:
    """The root of the mean squared error, in the unit of the numbers. Less is better."""
    squares = mean_statistics(_errors(predicted, gold) ** 2)
    return Statistics(squares.rows, lambda sums: np.sqrt(means(sums)))


@metric("mae")
def mae(predicted: Numbers, gold: Numbers) -> Statistics:
    """The mean of the sizes of the errors, in the unit of the numbers. Less is better."""
    return mean_statistics(np.abs(_errors(predicted, gold)))


def mean_ranks(values: Numbers) -> Float64[np.ndarray, " texts"]:
    """Ranks from 1; equal values get the mean of the ranks that they take up together."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which]


def _centred(values: Numbers) -> Float64[np.ndarray, " texts"]:
    """Correlation is the same wherever numbers start; sums of squares of numbers around 0 lose the fewest digits.

    Their size is taken away as well: squares of very large numbers would have no place.
    """
    wide = values.astype(np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("scores need finite numbers")
    if not len(wide):
        return wide
    largest = np.abs(wide).max()
    wide = wide / largest if largest > 0 else wide
    wide = wide - wide.mean()
    spread = np.abs(wide).max()
    # what rounding leaves of equal numbers is no spread
    return wide / spread if spread > 1e-14 else np.zeros_like(wide)


def _errors(predicted: Numbers, gold: Numbers) -> Float64[np.ndarray, " texts"]:
    _same_length(predicted, gold)
    return predicted.astype(np.float64) - gold.astype(np.float64)


def _pearson_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    count, x, y, xx, yy, xy = sums.T
    spread_x, spread_y = count * xx - x * x, count * yy - y * y
    # below this, a spread is what rounding left of none
    told = (spread_x > 1e-12 * count * xx) & (spread_y > 1e-12 * count * yy)
    product = np.where(told, spread_x * spread_y, 1.0)
    return np.where(told, 100 * np.clip((count * xy - x * y) / np.sqrt(product), -1, 1), 0.0)
