"""Labels of cells: training batches (cut out, turned, mirrored and lit by the seed), thresholds, and scores."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch

from sightline.data.grids import NO_PIXEL, GridExample, GridStore, cell_labels, whole_map
from sightline.inputs.grid import GridFacts, collate
from sightline.metrics import OfClass, Statistics, per_class
from sightline.metrics import cells as metrics
from sightline.models.grid import NOTHING, Gold, Grids
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.prepare import SomePrepared


@dataclass(frozen=True)
class StoredRows:
    """Some examples of a store."""

    store: GridStore
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, row: int) -> GridExample:
        return self.store[int(self.chosen[row])]


@dataclass(frozen=True)
class CellHandle:
    """One batch of an epoch. Its length is how many images it has."""

    rows: np.ndarray
    seed: tuple[int, int, int]

    def __len__(self) -> int:
        return len(self.rows)


class CellBatches:
    """Images of like size together; what is drawn of each depends on the seed, the epoch and the batch's place."""

    def __init__(self, prepared: SomePrepared, config: TaskConfig) -> None:
        self.corpus, self.output, self.config = prepared.corpus, prepared.output, config
        self.cell = prepared.input.facts.cell  # type: ignore[attr-defined]

    def epoch(self, number: int) -> list[CellHandle]:
        """Little padding, and the same order for the same number."""
        config, rows = self.config, self.corpus
        draw = np.random.default_rng((config.seed, number))
        order = draw.permutation(len(rows))
        if not (config.crop and self.cell):
            sizes = rows.store.sizes[rows.chosen[order]].prod(axis=1)
            order = order[np.argsort(sizes, kind="stable")]
        cuts = [order[start : start + config.batch] for start in range(0, len(order), config.batch)]
        handles = [CellHandle(some, (config.seed, number, place)) for place, some in enumerate(cuts)]
        return [handles[place] for place in draw.permutation(len(handles))]

    def batch(self, handle: CellHandle) -> tuple[Grids, Gold]:
        config = self.config
        draw = np.random.default_rng(handle.seed)
        values, classes = [], []
        for row in handle.rows.tolist():
            example = self.corpus[row]
            pixels = self.cell and (config.crop or config.augment)
            side, turn = (config.crop * self.cell, config.augment) if pixels else (0, False)
            one, gold = cut_and_turn(example, side, turn, draw)
            values.append(one)
            classes.append(gold)
        grids = collate(values, self.cell)
        return grids, cast("Gold", self.output.collate(classes, grids))


def cut_and_turn(
    example: GridExample, side: int, turn: bool, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A square of an image, anywhere in it: never the same cells twice. Also turned, mirrored, lighter or darker."""
    values, classes = example.values, example.classes
    height, width = classes.shape
    if side and (height > side or width > side):
        top, left = (int(draw.integers(max(0, size - side) + 1)) for size in (height, width))
        values = values[top : top + side, left : left + side]
        classes = classes[top : top + side, left : left + side]
    if not turn:
        return values, classes
    turns = int(draw.integers(4)) if values.shape[0] == values.shape[1] else 2 * int(draw.integers(2))
    values, classes = np.rot90(values, turns), np.rot90(classes, turns)
    if draw.integers(2):
        values, classes = values[:, ::-1], classes[:, ::-1]
    light, contrast = draw.uniform(-25, 25), draw.uniform(0.75, 1.3)
    mean = values.mean()
    values = np.clip((values - mean) * contrast + mean + light, 0, 255).astype(np.uint8)
    return values, np.ascontiguousarray(classes)


def gold_cells(classes: np.ndarray, cell: int, share: float, count: int) -> np.ndarray:
    """The label of each cell of an image, `NOTHING` where there is none; ``cell`` 0: of features, place by place."""
    labels = cell_labels(whole_map(classes, cell or 1), cell or 1, share, count)
    return np.where(labels == NO_PIXEL, NOTHING, labels)


def collate_gold(classes: Sequence[np.ndarray], grids: Grids, cell: int, share: float, count: int) -> Gold:
    """The right labels of a batch that `collate` made; pixels too where there are any."""
    cells = np.full(tuple(grids.mask.shape), NOTHING, dtype=np.int64)
    pixels = np.full(tuple(grids.values.shape[:3]), NOTHING, dtype=np.int64) if cell else None
    for place, one in enumerate(classes):
        labels = gold_cells(one, cell, share, count)
        cells[place, : labels.shape[0], : labels.shape[1]] = labels
        if pixels is not None:
            pixels[place, : one.shape[0], : one.shape[1]] = one
    return Gold(torch.from_numpy(cells), None if pixels is None else torch.from_numpy(pixels))


# -- labels out of probabilities, their scores (counts of each photo), and the thresholds that are best

FITTED_WITHIN = 2  # pixels: the distance that the threshold of pixels is fitted for
THRESHOLDS = np.arange(1, 20) / 20


class RawCells(NamedTuple):
    """Probabilities of each class of the cells (``r c k``), and what refines them (``h w``) where a model does.

    Of pixels nothing else is needed, and it is little enough to keep of a large photo: of two classes the probability
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
    probs: np.ndarray
    pixels: np.ndarray | None
    pixel_probs: np.ndarray | None = None  # of being marked; of two classes, from a model that refines
    parts: int = 1  # in how many the image was labelled, each without the others

    def to_json(self, facts: GridFacts) -> dict[str, object]:
        """Plain data: names of classes, a list for each row of cells."""
        probs = self.probs[:, :, 1] if len(facts.names) == 2 else self.probs
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
    threshold, _ = metrics.best_threshold([one.probs[:, :, 1].astype(np.float64) for one in raws], gold)
    if any(one.refined is None for one in raws):
        return threshold, 0.5
    sums = np.zeros((len(THRESHOLDS), 4))
    for one, right in zip(raws, classes, strict=True):
        labels, marked = label_cells(facts, one.probs, threshold), right == 1
        around = metrics.near(marked, FITTED_WITHIN)
        for place, least in enumerate(THRESHOLDS):
            painted = paint(facts, labels, one.refined, one.size, float(least))
            assert painted is not None
            sums[place] += metrics.pixel_counts(painted > 0, marked, FITTED_WITHIN, around)
    return threshold, float(THRESHOLDS[int(metrics.pixel_scores(sums)["f1"].argmax())])


class Scored(dict[str, Statistics]):
    """The statistics of every score by its name, with the labels that they were counted from.

    Only here predictions are compared with gold labels: ``gold`` gives the class of every pixel, image by image.
    """

    def __init__(self, facts: GridFacts, predictions: Sequence[GridPrediction], gold: Iterable[np.ndarray]) -> None:
        self.facts, self.predictions = facts, predictions
        self.gold: list[np.ndarray] = []
        pixels: dict[int, list[list[float]]] = {distance: [] for distance in metrics.DISTANCES}
        for one, classes in zip(predictions, gold, strict=True):
            self.gold.append(gold_cells(classes, facts.cell, facts.share, len(facts.names)))
            if one.pixels is not None:
                for distance, rows in pixels.items():
                    rows.append(metrics.pixel_counts(one.pixels > 0, classes > 0, distance))
        super().__init__(metrics.cell_statistics([one.labels for one in predictions], self.gold, len(facts.names)))
        for distance, rows in pixels.items():
            if rows:
                self.update({f"pixel_{name}_{distance}": one for name, one in metrics.pixel_statistics(rows).items()})

    @property
    def cells(self) -> int:
        """Cells that have a label."""
        return sum(int((gold >= 0).sum()) for gold in self.gold)

    def values_of_all(self) -> dict[str, float]:
        """Every score of all photos."""
        precision = metrics.mean_average_precision([one.probs for one in self.predictions], self.gold)
        values = {name: one.score() for name, one in self.items()}
        cells = {name: values.pop(name) for name in ("f1", "precision", "recall", "accuracy")}
        return {**cells, "average_precision": precision, **values}

    def loss(self) -> float:
        """−log p of the right label, over the cells whose class training had."""
        total, count = 0.0, 0
        for one, gold in zip(self.predictions, self.gold, strict=True):
            known = (gold >= 0) & (gold < one.probs.shape[-1])
            right = one.probs[known, gold[known]].astype(np.float64)
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
