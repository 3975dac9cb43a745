"""Scores of a model that labels cells: on validation data, for `evaluate`, and of several runs side by side.

Predictions are made from the images alone; a mask is looked at when its image has been labelled.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sightline.data.grids import Raw
from sightline.errors import UserError
from sightline.tasks.grid_data import classes_in, gold_cells, in_training
from sightline.tasks.gridder import Gridder, GridPrediction
from sightline.training.scores import OfClass, per_class
from sightline.training.scores.base import Statistics
from sightline.training.scores.bootstrap import paired_bootstrap
from sightline.training.scores.cells import (
    DISTANCES,
    best_threshold,
    cell_statistics,
    difference_interval,
    mean_average_precision,
    near,
    pixel_counts,
    pixel_scores,
    pixel_statistics,
)

FITTED_WITHIN = 2  # pixels: the distance that the threshold of pixels is fitted for
THRESHOLDS = np.arange(1, 20) / 20
COMPARED = ("f1", "precision", "recall", "accuracy", *(f"pixel_f1_{distance}" for distance in DISTANCES))


class Scored:
    """What is counted of each photo while predictions come in: gold labels meet them here, and only here."""

    def __init__(self, gridder: Gridder) -> None:
        self.facts, self.config = gridder.facts, gridder.config
        self.said: list[np.ndarray] = []
        self.gold: list[np.ndarray] = []
        self.chances: list[np.ndarray] = []
        self.pixels: dict[int, list[list[float]]] = {distance: [] for distance in DISTANCES}

    def add(self, found: GridPrediction, classes: np.ndarray) -> None:
        """A prediction, and the class of every pixel."""
        facts = self.facts
        self.said.append(found.labels)
        self.chances.append(found.chances)
        self.gold.append(gold_cells(classes, facts.cell, facts.share, len(facts.names)))
        if found.pixels is not None:
            for distance, rows in self.pixels.items():
                rows.append(pixel_counts(found.pixels > 0, classes > 0, distance))

    def statistics(self) -> dict[str, Statistics]:
        """By the name of the score."""
        found = cell_statistics(self.said, self.gold, len(self.facts.names))
        for distance, rows in self.pixels.items():
            if rows:
                found |= {f"pixel_{name}_{distance}": one for name, one in pixel_statistics(rows).items()}
        return found

    def values(self) -> dict[str, float]:
        """Every score of all photos."""
        statistics = self.statistics()
        names = ("f1", "precision", "recall", "accuracy")
        found = {name: statistics[name].score() for name in names}
        found["average_precision"] = mean_average_precision(self.chances, self.gold)
        return found | {name: one.score() for name, one in statistics.items() if name not in names}

    def loss(self) -> float:
        """−log p of the right label, over the cells whose class training had."""
        total, count = 0.0, 0
        for chances, gold in zip(self.chances, self.gold, strict=True):
            known = (gold >= 0) & (gold < chances.shape[-1])
            right = chances[known, gold[known]].astype(np.float64)
            total, count = total - float(np.log(np.maximum(right, 1e-12)).sum()), count + int(known.sum())
        return total / count if count else float("nan")

    def table(self) -> list[OfClass]:
        """Precision, recall and F1 of each class."""
        names = self.facts.names
        gold = np.concatenate([one.ravel() for one in self.gold])
        said = np.concatenate([one.ravel() for one in self.said])[gold >= 0]
        gold = gold[gold >= 0]
        unseen = bool((gold >= len(names)).any())
        shown = (*names, "(not in the training data)") if unseen else names
        matrix = np.zeros((len(shown), len(shown)), dtype=np.int64)
        np.add.at(matrix, (np.minimum(gold, len(names)), said), 1)
        return per_class(matrix, shown)


@dataclass(frozen=True)
class GridEvaluation:
    """Predictions for images, and every score of them; ``seen``: how many stand in the training data."""

    predictions: list[GridPrediction]
    statistics: dict[str, Statistics]
    values: dict[str, float]
    table: list[OfClass]
    cells: int
    threshold: float | None
    seen: int | None
    without: dict[str, float] | None
    seconds: float
    doubt: str | None = None  # what is to be said of the masks

    def rows(self) -> list[dict[str, Any]]:
        """Each photo with its own scores."""
        each = {name: one.of_each() for name, one in self.statistics.items()}
        return [
            {"image": one.name, **{name: round(values[row], 4) for name, values in each.items()}}
            for row, one in enumerate(self.predictions)
        ]

    def worst(self, count: int) -> list[dict[str, Any]]:
        """The photos with the lowest F1."""
        return sorted(self.rows(), key=lambda row: row["f1"])[:count]

    def to_json(self, errors: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = {"images": len(self.predictions), "cells": self.cells}
        found |= {name: round(value, 4) if np.isfinite(value) else None for name, value in self.values.items()}
        if self.threshold is not None:
            found["threshold"] = self.threshold
        if self.seen is not None:
            found["in_training"] = self.seen
        if self.without is not None:
            found["without_training_images"] = {name: round(value, 4) for name, value in self.without.items()}
        found |= {"per_class": [vars(one) for one in self.table]}
        found["seconds_per_image"] = round(self.seconds / max(1, len(self.predictions)), 4)
        if self.doubt is not None:
            found["doubt"] = self.doubt
        return found | ({"errors": self.worst(errors)} if errors else {})


def evaluate(
    gridder: Gridder, data: Iterable[Raw], *, on_predicted: Callable[[int], None] = lambda count: None
) -> GridEvaluation:
    """Every score of a model on images with masks, with and without those that it was trained on."""
    images, seconds = _Blind(gridder, data), 0.0
    scored, found = Scored(gridder), list[GridPrediction]()
    stream = gridder.stream(images, on_predicted=on_predicted)
    while True:
        began = time.perf_counter()
        one = next(stream, None)
        seconds += time.perf_counter() - began
        if one is None:
            break
        found.append(one._replace(pixel_chances=None))
        scored.add(one, images.classes.popleft())
    if not found:
        raise UserError("there is no image to score; expected at least one")
    flags = in_training(gridder.run, images.digests)
    statistics = scored.statistics()
    without = None
    if flags is not None and flags.any() and not flags.all():
        rows = np.flatnonzero(~flags).tolist()
        without = {name: one.score(rows) for name, one in statistics.items()}
    return GridEvaluation(
        found,
        statistics,
        scored.values(),
        scored.table(),
        sum(int((gold >= 0).sum()) for gold in scored.gold),
        gridder.facts.threshold if len(gridder.facts.names) == 2 else None,
        None if flags is None else int(flags.sum()),
        without,
        seconds - images.seconds,
        gridder.facts.classes.doubt(min(images.values), max(images.values)),
    )


class _Blind:
    """Images on their way to the model without their masks: what decides never sees what is right.

    The masks wait here, as classes, until the prediction has been made; only a batch of images is held at a time.
    """

    def __init__(self, gridder: Gridder, data: Iterable[Raw]) -> None:
        self.gridder, self.data = gridder, iter(data)
        self.classes: deque[np.ndarray] = deque()
        self.digests: list[int] = []
        self.values: set[int] = set()  # the lowest and the highest of each mask
        self.seconds = 0.0  # of reading

    def __iter__(self) -> Iterator[Raw]:
        while True:
            began = time.perf_counter()
            raw = next(self.data, None)
            if raw is None:
                return
            self.gridder.check(raw)
            self.classes.append(classes_in(raw, self.gridder.facts.classes))
            assert raw.mask is not None
            self.values |= {int(raw.mask.min()), int(raw.mask.max())}
            self.digests.append(raw.digest())
            self.seconds += time.perf_counter() - began
            yield raw._replace(mask=None)


def fit_thresholds(
    gridder: Gridder, found: Sequence[GridPrediction], classes: Sequence[np.ndarray]
) -> tuple[float, float]:
    """Of two classes: from which probability on cells, and pixels inside marked cells, are marked, for the best F1."""
    facts = gridder.facts
    if len(facts.names) > 2:
        return 0.5, 0.5
    gold = [gold_cells(one, facts.cell, facts.share, 2) for one in classes]
    threshold, _ = best_threshold([one.chances[:, :, 1].astype(np.float64) for one in found], gold)
    if any(one.pixel_chances is None for one in found):
        return threshold, 0.5
    sums = np.zeros((len(THRESHOLDS), 4))
    for one, right in zip(found, classes, strict=True):
        assert one.pixel_chances is not None
        labels, marked = gridder.decide(one.chances, threshold), right == 1
        around = near(marked, FITTED_WITHIN)
        for place, least in enumerate(THRESHOLDS):
            said = gridder.paint(labels, one.pixel_chances, (right.shape[0], right.shape[1]), float(least))
            assert said is not None
            sums[place] += pixel_counts(said > 0, marked, FITTED_WITHIN, around)
    return threshold, float(THRESHOLDS[int(pixel_scores(sums)["f1"].argmax())])


@dataclass(frozen=True)
class GridComparison:
    """Several runs on the same photos: for each score and run the value, its interval, and the difference to the
    first run with its own interval, from paired resamples of the photos."""

    found: dict[str, dict[str, dict[str, Any]]]
    images: int
    samples: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {"images": self.images, "samples": self.samples, "seed": self.seed, "scores": self.found}


def compare(
    evaluations: Mapping[str, GridEvaluation], metrics: Sequence[str], samples: int = 1000, seed: int = 0
) -> GridComparison:
    """Whether runs differ by more than which photos were drawn."""
    first = next(iter(evaluations.values()))
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for metric in metrics:
        for name, one in evaluations.items():
            if metric not in one.statistics:
                raise UserError(f"{name} has no {metric}; there is {', '.join(one.statistics)}")
        systems = [one.statistics[metric] for one in evaluations.values()]
        resampled = paired_bootstrap(systems, samples, seed)
        found[metric] = {}
        for name, statistics, again in zip(evaluations, systems, resampled, strict=True):
            row: dict[str, Any] = {"value": again.value, "interval": list(again.interval)}
            if again.difference is not None:
                interval = difference_interval(statistics, systems[0], samples, seed)
                row |= {"difference": again.difference, "difference_interval": list(interval), "p": again.p}
            found[metric][name] = row
    return GridComparison(found, len(first.predictions), samples, seed)
