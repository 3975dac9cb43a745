"""From images and masks to what training reads: checked, split, stored; and batches of grids of any size."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sightline.data.checking import Limits
from sightline.data.grid_store import Example, GridStore, write_store
from sightline.data.grids import (
    NO_PIXEL,
    CheckedGrids,
    Classes,
    GridFile,
    GridReport,
    Raw,
    cell_labels,
    grid_size,
    read_grids,
    whole_cells,
    whole_map,
)
from sightline.data.splitting import Overlap
from sightline.errors import UserError
from sightline.files import write_text
from sightline.models.grid import NOTHING, Gold, Grids
from sightline.tasks.course import overlap_lines

if TYPE_CHECKING:
    from sightline.tasks.grid import GridConfig

SPLIT, TRAIN, VALID = "split.json", "train", "valid"


@dataclass(frozen=True)
class Rows:
    """Some examples of a store."""

    store: GridStore
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, row: int) -> Example:
        return self.store[int(self.chosen[row])]


@dataclass(frozen=True)
class PreparedGrids:
    """What the values in masks mean, the training examples on the disk, and those to validate on."""

    classes: Classes
    cell: int  # pixels along a cell; 0: features
    channels: int
    corpus: Rows
    valid: Rows
    counts: tuple[int, ...]  # training cells of each class
    report: GridReport | None = None
    valid_report: GridReport | None = None
    overlap: Overlap | None = None

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        total = max(1, sum(self.counts))
        shares = ", ".join(
            f"{name} {count:,} ({count / total:.1%})"
            for name, count in zip(self.classes.names, self.counts, strict=True)
        )
        found.append(f"cells to train on: {shares}")
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        return found + overlap_lines(self.overlap, "images")

    def summary(self) -> str:
        """One line of what is trained on."""
        return (
            f"{len(self.corpus):,} images to train on, {len(self.valid):,} to validate; {sum(self.counts):,} cells, "
            f"{len(self.classes)} classes"
        )


def prepare_grids(
    files: GridFile, valid: GridFile | None, config: "GridConfig", limits: Limits | None, folder: Path
) -> PreparedGrids:
    """Read and check everything, store it under ``folder``, and keep some images apart to validate on."""
    data = folder / "data"
    reading = _checked(files, config, limits)
    store = write_store(data / TRAIN, reading, config.classes, config.names)
    classes, overlap, valid_report = store.classes, None, None
    if valid is None:
        chosen = split(store.digests, config.valid_share, config.seed)
        kept = Rows(store, np.flatnonzero(chosen))
        training = Rows(store, np.flatnonzero(~chosen))
    else:
        others = _checked(valid, config, limits)
        apart = write_store(data / VALID, others, classes=classes)
        if (apart.pixels, apart.channels) != (store.pixels, store.channels):
            raise UserError("the validation data is of another kind than the training data: one is of images")
        training, kept = Rows(store, np.arange(len(store))), Rows(apart, np.arange(len(apart)))
        valid_report = others.report
        found = int(np.isin(apart.digests, store.digests).sum())
        overlap = Overlap(len(apart), found, found)
    if not len(training) or not len(kept):
        raise UserError(
            f"there are {len(training):,} images to train on and {len(kept):,} to validate on; expected at least one "
            "of each: give more images, or --valid"
        )
    split_json = {"train": training.chosen.tolist(), "valid": kept.chosen.tolist(), "apart": valid is not None}
    write_text(data / SPLIT, json.dumps(split_json))
    counts = _count(training, config)
    return PreparedGrids(
        classes, _cell(store, config), store.channels, training, kept, counts, reading.report, valid_report, overlap
    )


def prepared_before(folder: Path, config: "GridConfig", classes: Classes) -> PreparedGrids:
    """What an earlier session prepared."""
    path = folder / "data" / SPLIT
    try:
        split_json = json.loads(path.read_text(encoding="utf-8"))
        store = GridStore.open(folder / "data" / TRAIN, classes)
        apart = GridStore.open(folder / "data" / VALID, classes) if split_json["apart"] else store
        training, kept = (
            Rows(one, np.array(split_json[name], dtype=np.int64)) for one, name in ((store, "train"), (apart, "valid"))
        )
    except FileNotFoundError:
        raise UserError(f"{path} is missing: without its data the run cannot go on") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return PreparedGrids(classes, _cell(store, config), store.channels, training, kept, _count(training, config))


def in_training(run: Path | None, digests: Sequence[int]) -> np.ndarray | None:
    """Which of these images the run was trained on or chosen by; None where it was moved without its data."""
    index = None if run is None else run / "data" / TRAIN / "index.json"
    if index is None or not index.is_file():
        return None
    seen: set[int] = set()
    for name in (TRAIN, VALID):
        path = index.parent.parent / name / "index.json"
        if path.is_file():
            try:
                seen |= {row[3] for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
            except (LookupError, TypeError, ValueError, RecursionError) as error:
                raise UserError(f"{path} is damaged: {error}") from None
    return np.array([one in seen for one in digests], dtype=bool)


def split(digests: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Which examples are kept apart: about that share, at least one, and the same image never on both sides."""
    different = np.unique(digests)
    wanted = min(len(different) - 1, max(1, round(share * len(different))))
    drawn = np.random.default_rng(seed).permutation(len(different))[: max(0, wanted)]
    return np.isin(digests, different[drawn])


def _checked(files: GridFile, config: "GridConfig", limits: Limits | None) -> CheckedGrids:
    return CheckedGrids(read_grids(files), limits, most_cells=config.most_cells, cell=config.cell)


def _cell(store: GridStore, config: "GridConfig") -> int:
    return config.cell if store.pixels else 0


def _count(rows: Rows, config: "GridConfig") -> tuple[int, ...]:
    cell, classes = _cell(rows.store, config) or 1, len(rows.store.classes)
    counts = np.zeros(classes, dtype=np.int64)
    for row in range(len(rows)):
        found = cell_labels(whole_map(rows[row].classes, cell), cell, config.share, classes)
        counts += np.bincount(found[found < classes], minlength=classes)
    return tuple(counts.tolist())


def gold_cells(classes: np.ndarray, cell: int, share: float, count: int) -> np.ndarray:
    """The label of each cell of an image, `NOTHING` where there is none; ``cell`` 0: of features, place by place."""
    found = cell_labels(whole_map(classes, cell or 1), cell or 1, share, count)
    return np.where(found == NO_PIXEL, NOTHING, found)


def collate(values: Sequence[np.ndarray], cell: int) -> Grids:
    """Images or features of any sizes as one batch, padded to the right and below."""
    side = cell or 1
    sizes = [grid_size(one, side) for one in values]
    rows, columns = max(size[0] for size in sizes), max(size[1] for size in sizes)
    mask = np.zeros((len(values), rows, columns), dtype=bool)
    whole = np.zeros((len(values), rows * side, columns * side, values[0].shape[2]), dtype=values[0].dtype)
    for place, (one, (r, c)) in enumerate(zip(values, sizes, strict=True)):
        mask[place, :r, :c] = True
        whole[place, : r * side, : c * side] = whole_cells(one, side)
    return Grids(torch.from_numpy(whole), torch.from_numpy(mask))


def collate_gold(classes: Sequence[np.ndarray], grids: Grids, cell: int, share: float, count: int) -> Gold:
    """The right labels of a batch that `collate` made; pixels too where there are any."""
    cells = np.full(tuple(grids.mask.shape), NOTHING, dtype=np.int64)
    pixels = np.full(tuple(grids.values.shape[:3]), NOTHING, dtype=np.int64) if cell else None
    for place, one in enumerate(classes):
        found = gold_cells(one, cell, share, count)
        cells[place, : found.shape[0], : found.shape[1]] = found
        if pixels is not None:
            pixels[place, : one.shape[0], : one.shape[1]] = one
    return Gold(torch.from_numpy(cells), None if pixels is None else torch.from_numpy(pixels))


def cut_and_turn(example: Example, side: int, turn: bool, draw: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
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


def raw_rows(files: GridFile, config: Any, masks: bool, limits: Limits | None = None) -> CheckedGrids:
    """The images of a table, a folder or a file, to predict or to score: of any size, since these can go in parts."""
    return CheckedGrids(read_grids(files, masks), limits, most_cells=None, cell=config.cell)


def classes_in(raw: Raw, classes: Classes) -> np.ndarray:
    assert raw.mask is not None
    return classes.of(raw.mask)
