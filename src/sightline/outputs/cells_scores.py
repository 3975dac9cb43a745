"""Labels out of probabilities, and scores of them: counts of each photo, and the thresholds that are best."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sightline.inputs.grid import GridFacts
from sightline.metrics import OfClass, Statistics, per_class
from sightline.metrics.cells import (
    DISTANCES,
    best_threshold,
    cell_statistics,
    mean_average_precision,
    near,
    pixel_counts,
    pixel_scores,
    pixel_statistics,
)
from sightline.outputs.cells_batches import gold_cells

FITTED_WITHIN = 2  # pixels: the distance that the threshold of pixels is fitted for
THRESHOLDS = np.arange(1, 20) / 20


class RawCells(NamedTuple):
    """Probabilities of each class of the cells (``r c k``), and what refines them (``h w``) where a model does.

    That is all that is ever asked of pixels, and little enough to keep of a large photo: of two classes the probability
    of being marked, or 1 where it is high enough; of several, the likeliest class.
    """

    probs: np.ndarray
    refined: np.ndarray | None
    size: tuple[int, ...]  # height and width
    parts: int
    seconds: float  # that the model took


class GridPrediction(NamedTuple):
    """The label of each cell (``r c``) and the probability of each class (``r c k``); the class of each pixel."""

    name: str
    labels: np.ndarray
    chances: np.ndarray
    pixels: np.ndarray | None
    pixel_chances: np.ndarray | None = None  # of being marked; of two classes, from a model that refines
    parts: int = 1  # in how many the image was labelled; of several, no cell knows of what lies beyond its own

    def to_json(self, facts: GridFacts) -> dict[str, Any]:
        """Plain data: names of classes, a list for each row of cells."""
        probs = self.chances[:, :, 1] if len(facts.names) == 2 else self.chances
        return {
            "image": self.name,
            "cell": facts.cell,
            "classes": list(facts.names),
            "labels": self.labels.tolist(),
            "probabilities": np.round(probs.astype(np.float64), 6).tolist(),
            **({"parts": self.parts} if self.parts > 1 else {}),
        }


def label_cells(facts: GridFacts, probs: np.ndarray, threshold: float | None = None) -> np.ndarray:
    """Labels out of probabilities: of two classes by the threshold, of several the likeliest."""
    if probs.shape[-1] > 2:
        return probs.argmax(axis=-1)
    return (probs[..., 1] >= (facts.threshold if threshold is None else threshold)).astype(np.int64)


def paint(
    facts: GridFacts,
    labels: np.ndarray,
    refined: np.ndarray | None,
    size: tuple[int, ...],
    threshold: float | None = None,
) -> np.ndarray | None:
    """The class of each pixel: that of its cell, or inside cells that are not ground what was refined."""
    cell = facts.cell
    if not cell:
        return None
    cells = labels.repeat(cell, axis=0).repeat(cell, axis=1)[: size[0], : size[1]]
    if refined is None:
        return cells.astype(np.uint8)
    if len(facts.names) == 2:
        chosen = refined >= (facts.pixel_threshold if threshold is None else threshold)
        return ((cells == 1) & chosen).astype(np.uint8)
    return np.where(cells > 0, refined, 0).astype(np.uint8)


def fit_thresholds(facts: GridFacts, raws: Sequence[RawCells], classes: Sequence[np.ndarray]) -> tuple[float, float]:
    """Of two classes: from which probability on cells, and pixels inside marked cells, are marked, for the best F1."""
    if len(facts.names) > 2:
        return 0.5, 0.5
    gold = [gold_cells(one, facts.cell, facts.share, 2) for one in classes]
    threshold, _ = best_threshold([one.probs[:, :, 1].astype(np.float64) for one in raws], gold)
    if any(one.refined is None for one in raws):
        return threshold, 0.5
    sums = np.zeros((len(THRESHOLDS), 4))
    for one, right in zip(raws, classes, strict=True):
        labels, marked = label_cells(facts, one.probs, threshold), right == 1
        around = near(marked, FITTED_WITHIN)
        for place, least in enumerate(THRESHOLDS):
            painted = paint(facts, labels, one.refined, one.size, float(least))
            assert painted is not None
            sums[place] += pixel_counts(painted > 0, marked, FITTED_WITHIN, around)
    return threshold, float(THRESHOLDS[int(pixel_scores(sums)["f1"].argmax())])


class Scored(dict[str, Statistics]):
    """The statistics of every score by its name, with the labels that they were counted from.

    Gold labels meet predictions here, and only here: ``gold`` gives the class of every pixel, image by image.
    """

    def __init__(self, facts: GridFacts, predictions: Sequence[GridPrediction], gold: Iterable[np.ndarray]) -> None:
        self.facts, self.predictions = facts, predictions
        self.gold: list[np.ndarray] = []
        pixels: dict[int, list[list[float]]] = {distance: [] for distance in DISTANCES}
        for one, classes in zip(predictions, gold, strict=True):
            self.gold.append(gold_cells(classes, facts.cell, facts.share, len(facts.names)))
            if one.pixels is not None:
                for distance, rows in pixels.items():
                    rows.append(pixel_counts(one.pixels > 0, classes > 0, distance))
        super().__init__(cell_statistics([one.labels for one in predictions], self.gold, len(facts.names)))
        for distance, rows in pixels.items():
            if rows:
                self.update({f"pixel_{name}_{distance}": one for name, one in pixel_statistics(rows).items()})

    @property
    def cells(self) -> int:
        """Cells that have a label."""
        return sum(int((gold >= 0).sum()) for gold in self.gold)

    def values_of_all(self) -> dict[str, float]:
        """Every score of all photos."""
        precision = mean_average_precision([one.chances for one in self.predictions], self.gold)
        values = {name: one.score() for name, one in self.items()}
        cells = {name: values.pop(name) for name in ("f1", "precision", "recall", "accuracy")}
        return {**cells, "average_precision": precision, **values}

    def loss(self) -> float:
        """−log p of the right label, over the cells whose class training had."""
        total, count = 0.0, 0
        for one, gold in zip(self.predictions, self.gold, strict=True):
            known = (gold >= 0) & (gold < one.chances.shape[-1])
            right = one.chances[known, gold[known]].astype(np.float64)
            total, count = total - float(np.log(np.maximum(right, 1e-12)).sum()), count + int(known.sum())
        return total / count if count else float("nan")

    def table(self) -> list[OfClass]:
        """Precision, recall and F1 of each class."""
        names = self.facts.names
        gold = np.concatenate([one.ravel() for one in self.gold])
        labels = np.concatenate([one.labels.ravel() for one in self.predictions])[gold >= 0]
        gold = gold[gold >= 0]
        unseen = bool((gold >= len(names)).any())
        shown = (*names, "(not in the training data)") if unseen else names
        matrix = np.zeros((len(shown), len(shown)), dtype=np.int64)
        np.add.at(matrix, (np.minimum(gold, len(names)), labels), 1)
        return per_class(matrix, shown)
