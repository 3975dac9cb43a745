"""Scores of labels of cells, and of the pixels that they become.

Of two classes precision, recall and F1 are those of the marked one; of several, the mean over classes. Counts are kept
for each photo, so that a resample of photos needs nothing again. Pixels may miss by a distance: a marked pixel is right
if a right one lies no further away, and a right one is found if a marked one does.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from sightline.metrics.base import Statistics, by_threshold, interval_of, resamples
from sightline.metrics.labels import threshold_of_best_f1

DISTANCES = (0, 2, 5)  # pixels


def cell_statistics(predicted: Sequence[np.ndarray], gold: Sequence[np.ndarray], classes: int) -> dict[str, Statistics]:
    """What F1, precision, recall and accuracy are computed from: of each photo and class, right, predicted and there.

    A gold class of ``classes`` or more is one that training did not have: there, and never found. Below 0: no cell.
    """
    rows = np.array([_counts(a, b, classes) for a, b in zip(predicted, gold, strict=True)], dtype=np.float64)
    rows = rows.reshape(len(predicted), 3 * (classes + 1))
    return {
        name: Statistics(rows, lambda sums, name=name: _scores(sums, name))  # type: ignore[misc]
        for name in ("f1", "precision", "recall", "accuracy")
    }


def _counts(predicted: np.ndarray, gold: np.ndarray, classes: int) -> np.ndarray:
    there = gold >= 0
    predicted, gold = predicted[there], np.minimum(gold[there], classes)
    sizes = {"minlength": classes + 1}
    right = np.bincount(gold[predicted == gold], **sizes)
    return np.stack([right, np.bincount(predicted, **sizes), np.bincount(gold, **sizes)]).ravel()


def _scores(sums: Float64[np.ndarray, "sums counts"], name: str) -> Float64[np.ndarray, " sums"]:
    right, predicted, there = sums.reshape(len(sums), 3, -1).swapaxes(0, 1)
    if name == "accuracy":
        return 100 * right.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    chosen = slice(1, 2) if right.shape[1] == 3 else slice(0, right.shape[1])  # two classes, and those not seen
    right, predicted, there = right[:, chosen], predicted[:, chosen], there[:, chosen]
    divided = {"f1": (predicted + there) / 2, "precision": predicted, "recall": there}[name]
    each = 100 * right / np.maximum(divided, 0.5)
    counted = (predicted + there) > 0  # a class that is nowhere is no failure
    return np.where(counted, each, 0).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)


def average_precision(probs: np.ndarray, right: np.ndarray) -> float:
    """The area under precision over recall in steps; equal probabilities are one step. NaN if none is right."""
    total = int(right.sum())
    if not total:
        return float("nan")
    _, counts, hits = by_threshold(probs, right)
    precision, recall = hits / counts, hits / total
    return float(100 * (np.diff(np.concatenate([[0.0], recall])) * precision).sum())


def mean_average_precision(probs: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> float:
    """Over all cells of all photos (probabilities: ``r c k``): of two classes the marked one's, of several the mean."""
    flat = np.concatenate([one.reshape(-1, one.shape[-1]) for one in probs])
    labels = np.concatenate([one.ravel() for one in gold])
    flat, labels = flat[labels >= 0], labels[labels >= 0]
    classes = flat.shape[1]
    chosen = [1] if classes == 2 else range(classes)
    values = [average_precision(flat[:, one], labels == one) for one in chosen]
    known = [one for one in values if not np.isnan(one)]
    return float(np.mean(known)) if known else float("nan")


def near(marked: np.ndarray, distance: int) -> np.ndarray:
    """Everything no further than ``distance`` from what is marked, as the crow flies."""
    if not distance:
        return marked
    height, width = marked.shape
    wide = np.pad(marked, distance)
    within = np.zeros_like(marked)
    for down in range(-distance, distance + 1):
        reach = int((distance**2 - down**2) ** 0.5)
        line = wide[distance + down : distance + down + height]
        # Along a line what lies within reach is found with sums: no loop over the pixels of it.
        summed = np.cumsum(np.pad(line, ((0, 0), (1, 0))), axis=1, dtype=np.int32)
        first = distance - reach
        within |= summed[:, first + 2 * reach + 1 :][:, :width] > summed[:, first : first + width]
    return within


def pixel_counts(
    predicted: np.ndarray, gold: np.ndarray, distance: int, around: np.ndarray | None = None
) -> list[float]:
    """Marked and right, marked, there and found, there. ``around`` is what is `near` the gold, if it is known."""
    around = near(gold, distance) if around is None else around
    return [
        float((predicted & around).sum()),
        float(predicted.sum()),
        float((gold & near(predicted, distance)).sum()),
        float(gold.sum()),
    ]


def pixel_statistics(rows: Sequence[Sequence[float]]) -> dict[str, Statistics]:
    """F1, precision and recall of pixels out of `pixel_counts` of each photo."""
    counts = np.array(rows, dtype=np.float64).reshape(len(rows), 4)
    return {
        name: Statistics(counts, lambda sums, name=name: pixel_scores(sums)[name])  # type: ignore[misc]
        for name in ("f1", "precision", "recall")
    }


def pixel_scores(sums: Float64[np.ndarray, "sums counts"]) -> dict[str, Float64[np.ndarray, " sums"]]:
    precision = sums[:, 0] / np.maximum(sums[:, 1], 1)
    recall = sums[:, 2] / np.maximum(sums[:, 3], 1)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return {"f1": 100 * f1, "precision": 100 * precision, "recall": 100 * recall}


def best_threshold(probs: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> tuple[float, float]:
    """The probability from which a cell is marked that gives the best F1, and that F1."""
    flat = np.concatenate([one.ravel() for one in probs])
    labels = np.concatenate([one.ravel() for one in gold])
    return threshold_of_best_f1(flat[labels >= 0], labels[labels >= 0] == 1)


def difference_interval(one: Statistics, other: Statistics, samples: int, seed: int) -> tuple[float, float]:
    """What holds 95 % of the differences between two systems, over resamples of the photos that both labelled."""
    differences = [
        one.scores_of_sums(counts @ one.rows) - other.scores_of_sums(counts @ other.rows)
        for counts in resamples(len(one), samples, seed)
    ]
    return interval_of(np.concatenate(differences))
