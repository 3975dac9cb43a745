"""Scores of labels of cells, and of the pixels that they become.

Of two classes precision, recall and F1 are those of the marked one; of several, the mean over classes. Counts are kept
for each photo, so that a resample of photos needs nothing again. Pixels may miss by a distance: a marked pixel is right
if a right one lies no further away, and a right one is found if a marked one does.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from sightline.metrics.base import Statistics, _interval, _resamples

DISTANCES = (0, 2, 5)  # pixels


def cell_statistics(said: Sequence[np.ndarray], gold: Sequence[np.ndarray], classes: int) -> dict[str, Statistics]:
    """What to compute F1, precision, recall and accuracy from: for each photo, right, said and there of each class.

    A gold class of ``classes`` or more is one that training did not have: there, and never found. Below 0: no cell.
    """
    rows = np.array([_counts(a, b, classes) for a, b in zip(said, gold, strict=True)], dtype=np.float64)
    rows = rows.reshape(len(said), 3 * (classes + 1))
    return {
        name: Statistics(rows, lambda sums, name=name: _scores(sums, name))  # type: ignore[misc]
        for name in ("f1", "precision", "recall", "accuracy")
    }


def _counts(said: np.ndarray, gold: np.ndarray, classes: int) -> np.ndarray:
    there = gold >= 0
    said, gold = said[there], np.minimum(gold[there], classes)
    sizes = {"minlength": classes + 1}
    right = np.bincount(gold[said == gold], **sizes)
    return np.stack([right, np.bincount(said, **sizes), np.bincount(gold, **sizes)]).ravel()


def _scores(sums: Float64[np.ndarray, "sums counts"], name: str) -> Float64[np.ndarray, " sums"]:
    right, said, there = sums.reshape(len(sums), 3, -1).swapaxes(0, 1)
    if name == "accuracy":
        return 100 * right.sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    chosen = slice(1, 2) if right.shape[1] == 3 else slice(0, right.shape[1])  # two classes, and those not seen
    right, said, there = right[:, chosen], said[:, chosen], there[:, chosen]
    divided = {"f1": (said + there) / 2, "precision": said, "recall": there}[name]
    each = 100 * right / np.maximum(divided, 0.5)
    counted = (said + there) > 0  # a class that is nowhere is no failure
    return np.where(counted, each, 0).sum(axis=1) / np.maximum(counted.sum(axis=1), 1)


def average_precision(chances: np.ndarray, right: np.ndarray) -> float:
    """The area under precision over recall, as a sum of steps; equal chances are one step. NaN if none is right."""
    total = int(right.sum())
    if not total:
        return float("nan")
    order = np.argsort(-chances, kind="stable")
    ranked, found = chances[order], np.cumsum(right[order])
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)  # of equal chances
    precision = found[last] / (last + 1)
    recall = found[last] / total
    return float(100 * (np.diff(np.concatenate([[0.0], recall])) * precision).sum())


def mean_average_precision(chances: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> float:
    """Over all cells of all photos (chances: ``r c k``): of two classes the marked one's, of several the mean."""
    flat = np.concatenate([one.reshape(-1, one.shape[-1]) for one in chances])
    labels = np.concatenate([one.ravel() for one in gold])
    flat, labels = flat[labels >= 0], labels[labels >= 0]
    classes = flat.shape[1]
    chosen = [1] if classes == 2 else range(classes)
    found = [average_precision(flat[:, one], labels == one) for one in chosen]
    known = [one for one in found if not np.isnan(one)]
    return float(np.mean(known)) if known else float("nan")


def near(marked: np.ndarray, distance: int) -> np.ndarray:
    """Everything no further than ``distance`` from what is marked, as the crow flies."""
    if not distance:
        return marked
    height, width = marked.shape
    wide = np.pad(marked, distance)
    found = np.zeros_like(marked)
    for down in range(-distance, distance + 1):
        reach = int((distance**2 - down**2) ** 0.5)
        line = wide[distance + down : distance + down + height]
        # Along a line what lies within reach is found with sums: no loop over the pixels of it.
        summed = np.cumsum(np.pad(line, ((0, 0), (1, 0))), axis=1, dtype=np.int32)
        first = distance - reach
        found |= summed[:, first + 2 * reach + 1 :][:, :width] > summed[:, first : first + width]
    return found


def pixel_counts(said: np.ndarray, gold: np.ndarray, distance: int, around: np.ndarray | None = None) -> list[float]:
    """Marked and right, marked, there and found, there. ``around`` is what is `near` the gold, if it is known."""
    around = near(gold, distance) if around is None else around
    return [
        float((said & around).sum()),
        float(said.sum()),
        float((gold & near(said, distance)).sum()),
        float(gold.sum()),
    ]


def pixel_statistics(rows: Sequence[Sequence[float]]) -> dict[str, Statistics]:
    """F1, precision and recall of pixels out of `pixel_counts` of each photo."""
    found = np.array(rows, dtype=np.float64).reshape(len(rows), 4)
    return {
        name: Statistics(found, lambda sums, name=name: pixel_scores(sums)[name])  # type: ignore[misc]
        for name in ("f1", "precision", "recall")
    }


def pixel_scores(sums: Float64[np.ndarray, "sums counts"]) -> dict[str, Float64[np.ndarray, " sums"]]:
    precision = sums[:, 0] / np.maximum(sums[:, 1], 1)
    recall = sums[:, 2] / np.maximum(sums[:, 3], 1)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return {"f1": 100 * f1, "precision": 100 * precision, "recall": 100 * recall}


def best_threshold(chances: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> tuple[float, float]:
    """The chance from which a cell is marked that gives the best F1, and that F1; half-way between two chances."""
    flat = np.concatenate([one.ravel() for one in chances])
    labels = np.concatenate([one.ravel() for one in gold])
    flat, labels = flat[labels >= 0], labels[labels >= 0] == 1
    if not labels.any():
        return 0.5, 0.0
    order = np.argsort(-flat, kind="stable")
    ranked, found = flat[order], np.cumsum(labels[order])
    last = np.append(np.flatnonzero(np.diff(ranked)), len(ranked) - 1)
    f1 = 2 * found[last] / (last + 1 + labels.sum())
    best = int(f1.argmax())
    below = ranked[last[best] + 1] if last[best] + 1 < len(ranked) else 0.0
    return float((ranked[last[best]] + below) / 2), float(100 * f1[best])


def difference_interval(one: Statistics, other: Statistics, samples: int, seed: int) -> tuple[float, float]:
    """What holds 95 % of the differences between two systems, over resamples of the photos that both labelled."""
    differences = [
        one.scores_of_sums(counts @ one.rows) - other.scores_of_sums(counts @ other.rows)
        for counts in _resamples(len(one), samples, seed)
    ]
    return _interval(np.concatenate(differences))
