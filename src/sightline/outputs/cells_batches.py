"""Training batches of images with masks: cut out, turned, mirrored and lit alike, by the seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sightline.data.grid_store import GridExample, GridStore
from sightline.data.grids import NO_PIXEL, cell_labels, whole_map
from sightline.inputs.grid import collate
from sightline.models.grid import NOTHING, Gold, Grids
from sightline.tasks.prepare import Prepared


@dataclass(frozen=True)
class StoredRows:
    """Some examples of a store."""

    store: GridStore
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, row: int) -> GridExample:
        return self.store[int(self.chosen[row])]


class Handle:
    """One batch of an epoch. Its length is how many images it has."""

    def __init__(self, rows: np.ndarray, seed: tuple[int, int, int]) -> None:
        self.rows, self.seed = rows, seed

    def __len__(self) -> int:
        return len(self.rows)


class CellBatches:
    """Images of like size together; what is drawn of each depends on the seed, the epoch and the batch's place."""

    def __init__(self, prepared: Prepared, config: Any) -> None:
        self.corpus, self.output, self.config = prepared.corpus, prepared.output, config
        self.cell = prepared.input.facts.cell  # type: ignore[attr-defined]

    def epoch(self, number: int) -> list[Handle]:
        """Little padding, and the same order for the same number."""
        config, rows = self.config, self.corpus
        draw = np.random.default_rng((config.seed, number))
        order = draw.permutation(len(rows))
        if not (config.crop and self.cell):
            sizes = rows.store.sizes[rows.chosen[order]].prod(axis=1)
            order = order[np.argsort(sizes, kind="stable")]
        cuts = [order[start : start + config.batch] for start in range(0, len(order), config.batch)]
        handles = [Handle(some, (config.seed, number, place)) for place, some in enumerate(cuts)]
        return [handles[place] for place in draw.permutation(len(handles))]

    def batch(self, handle: Handle) -> tuple[Grids, Gold]:
        config = self.config
        draw = np.random.default_rng(handle.seed)
        values, classes = [], []
        for row in handle.rows.tolist():
            example = self.corpus[row]
            one, gold = example.values, example.classes
            if self.cell and (config.crop or config.augment):
                one, gold = cut_and_turn(example, config.crop * self.cell, config.augment, draw)
            values.append(one)
            classes.append(gold)
        grids = collate(values, self.cell)
        return grids, self.output.collate(classes, grids)


def cut_and_turn(example: GridExample, side: int, turn: bool, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
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
