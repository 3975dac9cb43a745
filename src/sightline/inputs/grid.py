"""Images, or grids of features, as grids of cells. Those that are too large to be labelled whole are read in parts.

Training data is read and checked once and stored below the run's data (`sightline.data.grids`); items are then
places in the store. To predict and to score, each image is read just before it is used, so that few are in memory.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from sightline.data import grids
from sightline.data.columns import TableRow, text_problem
from sightline.data.decoding import Decoding
from sightline.data.grids import GridStore, MaskClasses, Raw, grid_size, read_values
from sightline.data.image_tables import image_paths
from sightline.data.images import BadImage, read_image
from sightline.errors import UserError
from sightline.files import RECORDS, read_json
from sightline.inputs.base import Input, SomeInput
from sightline.models.grid import Grids
from sightline.outputs.reports import read_record
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.loading import SavedRun
from sightline.tasks.prepare import Setting, checked, unfitted
from sightline.tasks.task import BadValueError

# -- grids too large to be labelled whole: parts that overlap, each of which labels the cells far from its own edges
#
# The memory of a model grows with the cells (their encoder states) or with their square (where each attends to all).
# Training photos have some hundred cells; a part has at most some thousand.

SIDE = 96  # cells along a part
OVERLAP = 16  # cells that two parts share at least
Answered = tuple[np.ndarray, np.ndarray | None]  # r c k of the cells, h w of the pixels where they are refined


class TileRange(NamedTuple):
    """TableRow from ``start`` to ``stop`` are read, and the labels of those from ``first`` to ``last`` are kept."""

    start: int
    stop: int
    first: int
    last: int


Part = tuple[TileRange, TileRange]  # down and across


def stretches(cells: int, side: int, overlap: int) -> list[TileRange]:
    """A row or column of cells in parts of at most ``side``; two neighbours meet in the middle of their overlap."""
    if cells <= side:
        return [TileRange(0, cells, 0, cells)]
    count = math.ceil((cells - overlap) / (side - overlap))
    starts = [round(number * (cells - side) / (count - 1)) for number in range(count)]
    meet = [(after + before + side) // 2 for before, after in pairwise(starts)]
    return [
        TileRange(start, start + side, first, last)
        for start, first, last in zip(starts, [0, *meet], [*meet, cells], strict=True)
    ]


def parts_of(values: np.ndarray, cell: int, most: int) -> list[Part]:
    """Rows and columns of each part; one part where there are at most ``most`` cells."""
    rows, columns = grid_size(values, cell)
    if rows * columns <= most:
        return [(TileRange(0, rows, 0, rows), TileRange(0, columns, 0, columns))]
    side = max(1, min(SIDE, math.isqrt(most)))
    overlap = min(OVERLAP, side // 2)
    return list(product(stretches(rows, side, overlap), stretches(columns, side, overlap)))


def cut(values: np.ndarray, cell: int, part: Part) -> np.ndarray:
    """One part of an image."""
    down, across = part
    return values[down.start * cell : down.stop * cell, across.start * cell : across.stop * cell]


def joined(size: tuple[int, ...], cell: int, answers: Iterable[tuple[Part, Answered]]) -> Answered:
    """The answer for an image of this height and width, put together out of those for its parts."""
    height, width = size
    probs = pixels = None
    for (down, across), (some, refined) in answers:
        if probs is None:
            probs = np.empty((-(-height // cell), -(-width // cell), some.shape[-1]), some.dtype)
            pixels = None if refined is None else np.empty((height, width), refined.dtype)
        probs[down.first : down.last, across.first : across.last] = some[_inner(down), _inner(across)]
        if refined is not None and pixels is not None:
            top, left = down.first * cell, across.first * cell
            inner = refined[_inner(down, cell), _inner(across, cell)][: height - top, : width - left]
            pixels[top : top + len(inner), left : left + inner.shape[1]] = inner
    assert probs is not None
    return probs, pixels


def _inner(of: TileRange, cell: int = 1) -> slice:
    """The cells that are kept, counted from where the part begins."""
    return slice((of.first - of.start) * cell, (of.last - of.start) * cell)


FACTS = "grid.json"
FOLDERS = ("train", "valid")  # the stores, below the run's data
NOT_STORED = -1
CELL_TOKENS = 4  # cells of an image that are as much work as a token
BATCH_CELLS = 2400  # predicted at once: four photos of 480 × 320 in cells of 16


@dataclass(frozen=True)
class GridFacts:
    """Facts about the data of a run. Of two classes, a cell is marked from ``threshold`` on, a pixel of a marked cell
    from ``pixel_threshold`` on: both were best on validation data."""

    names: tuple[str, ...]
    values: tuple[int, ...]
    counts: tuple[int, ...]
    cell: int
    channels: int
    share: float
    threshold: float = 0.5
    pixel_threshold: float = 0.5
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        MaskClasses(self.names, self.values)
        if len(self.counts) != len(self.names) or not all(type(one) is int and one >= 0 for one in self.counts):
            raise ValueError("there is not one count for each class")
        if type(self.cell) is not int or type(self.channels) is not int or not 1 <= self.channels <= 100_000:
            raise ValueError(f"cell and channels are {self.cell!r} and {self.channels!r}")
        for name in ("share", "threshold", "pixel_threshold"):
            if not (isinstance(getattr(self, name), float) and 0 <= getattr(self, name) <= 1):
                raise ValueError(f"{name} is {getattr(self, name)!r}")

    @property
    def classes(self) -> MaskClasses:
        return MaskClasses(self.names, self.values)

    @property
    def side(self) -> int:
        """Pixels along a cell; a place of a grid of features is a cell by itself."""
        return self.cell or 1


class GridItem(NamedTuple):
    """An image or a grid of features: a file of this name, a value in memory, or a place in a store.

    ``digest``, ``height`` and ``width`` are given where it was read before.
    """

    name: str
    digest: int = 0
    height: int = 0
    width: int = 0
    store: int = 0  # which of `FOLDERS`
    row: int = NOT_STORED
    held: np.ndarray | bytes | None = None  # an array, or the bytes of an image

    @classmethod
    def of(cls, raw: Raw, store: int = 0, row: int = NOT_STORED) -> "GridItem":
        return cls(raw.name, raw.digest(), *raw.values.shape[:2])._replace(store=store, row=row)


class GridPart(NamedTuple):
    """What a model reads at once of an image of this ``size`` (height and width)."""

    values: np.ndarray
    place: Part
    size: tuple[int, ...]


class GridInput(Input[GridItem, GridPart, Grids]):
    """Images or grids of features. ``new``: fitted just now, so that a model may start from pretrained weights."""

    kind = "grid"
    noun = "images"
    single = (str, bytes, Path, np.ndarray)
    item_types = (GridItem, *single)
    example = '"photo.png"'
    at_once = 8
    budget = BATCH_CELLS
    keys_file = ""  # the stores hold the keys
    by_item = True
    reads_files = True

    facts: GridFacts

    def __init__(
        self, config: TaskConfig, facts: GridFacts | None = None, stores: Sequence[GridStore] = (), new: bool = False
    ) -> None:
        super().__init__(config)
        self.facts = cast("GridFacts", facts)  # None until it is fitted
        self.stores, self.new = list(stores), new

    # -- reading

    def stage(self, tables: Sequence[Iterable[TableRow]], setting: Setting) -> list[list[TableRow]]:
        """Read, check and store all images and masks; what is left of a row is its place in the store."""
        self.stores, staged = [], []
        for number, table in enumerate(tables):
            staged.append(list[TableRow]())
            images = self._staged(list(table), staged[number], number, setting)
            classes = self.stores[0].classes if number else None
            folder = setting.data / FOLDERS[number]
            self.stores.append(grids.write_store(folder, images, self.config.classes, self.config.names, classes))
        if len({(one.pixels, one.channels) for one in self.stores}) > 1:
            raise UserError("the validation data is of another kind than the training data: one is of images")
        return staged

    def _staged(self, table: list[TableRow], rows: list[TableRow], store: int, setting: Setting) -> Iterator[Raw]:
        kind: str | None = None
        began, good = time.perf_counter(), 0
        for number, row in enumerate(table, start=1):
            raw = None
            if row.problem is None:
                try:
                    raw = _raw(*row.values)
                    self._check_size(raw)
                    if kind not in (None, _kind(raw)):
                        raise BadImage(f"{raw.name}: it is {_kind(raw)}, and those before are {kind}")
                except (BadImage, BadValueError) as error:
                    row, raw = row._replace(problem=f"bad image: {error}"), None
            if raw is not None:
                row = row._replace(values=(GridItem.of(raw, store=store, row=good), raw.mask_name))
                good, kind = good + 1, _kind(raw)
            rows.append(row)
            if setting.on_items is not None:
                setting.on_items(number, len(table), number / max(1e-9, time.perf_counter() - began))
            if raw is not None:
                yield raw
        # The error about too many bad rows comes before the one about classes that their masks lack.
        own, output = cast("SomeInput", self), unfitted(setting)[1]
        for _ in checked(rows, own, output, setting.columns, setting.limits, "images with masks"):
            pass

    def _check_size(self, raw: Raw) -> None:
        cells = math.prod(grid_size(raw.values, self.config.cell if raw.is_pixels else 1))
        if cells > self.config.most_cells:
            raise BadImage(
                f"{raw.name}: it has {cells:,} cells, and one to learn from has at most "
                f"{self.config.most_cells:,} (most_cells); cut it into several with their masks, or make the cells "
                "larger (--set cell=32)"
            )

    def read(self, cells: Mapping[str, object]) -> GridItem:
        image = cells.get("image")
        if isinstance(image, GridItem):
            return image
        try:
            raw = _raw(image)
            self._check(raw.values)
        except (BadImage, BadValueError) as error:
            raise BadValueError(f"bad image: {error}") from None
        return GridItem.of(raw)

    def identity(self, x: GridItem) -> str:
        return str(x.digest)

    def key(self, x: GridItem) -> int:
        return x.digest

    def known_keys(self, data: Path) -> np.ndarray | None:
        """Of all images that the run was trained on or chosen by."""
        keys: list[int] | None = None
        for path in (data / name / grids.INDEX for name in FOLDERS):
            if path.is_file():
                try:
                    rows = read_json(path, RECORDS)["rows"]
                    keys = [*(keys or ()), *(int(row[3]) for row in rows)]
                except (LookupError, TypeError, ValueError, RecursionError) as error:
                    raise UserError(f"{path} is damaged: {error}") from None
        return None if keys is None else np.array(keys, dtype=np.uint64)

    def pack(self, x: GridItem) -> list[object]:
        return [list(x[:-1])]

    def unpack(self, row: Sequence[object]) -> tuple[GridItem, Sequence[object]]:
        return GridItem(*cast("list[Any]", row[0])), row[1:]

    def stored_item(self, store: int, index: int) -> GridItem:
        """The item at a place of a store."""
        name, height, width, digest = self.stores[store].rows[index]
        return GridItem(name, digest, height, width, store, index)

    # -- fitted

    def values(self, x: GridItem) -> np.ndarray:
        """The pixels of an item, or its features."""
        if isinstance(x.held, bytes):
            return read_image(x.held)
        if x.held is not None:
            return x.held
        return self.stores[x.store][x.row].values if x.row != NOT_STORED else read_values(Path(x.name))

    def _check(self, values: np.ndarray) -> None:
        """That the model can read it."""
        pixels, channels = values.dtype == np.uint8, values.shape[2]
        if self.facts is None or (pixels, channels) == (bool(self.facts.cell), self.facts.channels):
            return
        expected = f"images, {self.facts.channels} colours" if self.facts.cell else f"{self.facts.channels} features"
        kind = "pixels" if pixels else "features"
        raise BadValueError(f"it has {channels} {kind} at each place; the run was trained on {expected}")

    def encode(self, xs: Sequence[GridItem]) -> list[list[GridPart | BadValueError]]:
        return [self._parts(x) for x in xs]

    def _parts(self, x: GridItem) -> list[GridPart | BadValueError]:
        try:
            values = self.values(x)
            self._check(values)
        except (BadImage, BadValueError) as error:
            return [BadValueError(str(error))]
        side = self.facts.side
        parts = parts_of(values, side, self.config.most_cells)
        return [GridPart(cut(values, side, part), part, values.shape[:2]) for part in parts]

    def check_whole(self, x: GridItem, values: np.ndarray) -> None:
        """Refuse an image that must be read in parts: its attention cannot be shown, and labelling it takes long."""
        cells = math.prod(grid_size(values, self.facts.side))
        if cells > self.config.most_cells:
            raise UserError(
                f"{x.name} has {cells:,} cells; at most {self.config.most_cells:,} (most_cells) are read "
                "together. Cut out a part of it, or label it with `sightline predict`, which goes in parts"
            )

    def work(self, xs: Sequence[GridItem]) -> list[int]:
        area = self.facts.side**2 * CELL_TOKENS
        return [self.values(x)[:, :, 0].size // area for x in xs]

    def receive(self, content: bytes, decoding: Decoding, shown: bool) -> tuple[GridItem, int, None]:
        """A photo in many parts would take minutes: it is refused."""
        values = decoding.image(content)
        x = GridItem("the image", held=values)
        try:
            self._check(values)
        except BadValueError as error:
            raise UserError(str(error)) from None
        self.check_whole(x, values)
        return x, values.nbytes, None

    def size(self, part: GridPart) -> int:
        """TableRow of the square around it: together, grids are padded to the tallest and to the widest."""
        return max(grid_size(part.values, self.facts.side)) ** 2

    def collate(self, parts: Sequence[GridPart]) -> Grids:
        return collate([part.values for part in parts], self.facts.cell)

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "GridInput":
        return cls(config, read_record(GridFacts, saved.path, FACTS))

    # -- for people

    def label(self, x: GridItem) -> str:
        return x.name

    def named(self, x: GridItem, number: int) -> str:
        return x.name

    def item(self, given: object) -> GridItem:
        """A path, the bytes of an image, pixels (``h w 3`` of uint8), or features (``h w d``)."""
        if isinstance(given, GridItem):
            return given
        if isinstance(given, np.ndarray):
            values = given if given.ndim == 3 else given[:, :, None]
            given = values if values.dtype == np.uint8 else values.astype(np.float32)
        return GridItem("image 1", held=given) if isinstance(given, bytes | np.ndarray) else GridItem(str(given))

    def items(self, given: Iterable[object]) -> list[GridItem]:
        """What has no name has its number."""
        items = map(self.item, given)
        return [x if x.held is None else x._replace(name=f"image {number}") for number, x in enumerate(items, start=1)]

    def paths(self, files: Sequence[Path], listed: str | None) -> list[Path]:
        paths = image_paths(files, listed, grids.GRID_ENDINGS)
        if not paths:
            raise UserError("there is no image to label: name images or folders with --image, or a list with --input")
        return paths


def _raw(image: Any, mask: Any = None) -> Raw:
    """The files that a row names."""
    for value, what in ((image, "the image"), *([] if mask is None else [(mask, "the mask")])):
        if (problem := text_problem(str(value) if isinstance(value, Path) else value, what)) is not None:
            raise BadValueError(problem)
    path = Path(image)
    try:
        values = read_values(path)
    except BadImage as error:
        raise BadImage(f"{path}: {error}") from None
    if mask is None:
        return Raw(str(path), values, None)
    return Raw(str(path), values, grids.read_gold(str(mask), values.shape[:2], path.name), str(mask))


def _kind(raw: Raw) -> str:
    return "an image" if raw.is_pixels else f"a grid of {raw.values.shape[2]} features"


def collate(values: Sequence[np.ndarray], cell: int) -> Grids:
    """Images or features of any sizes as one batch, padded to the right and below."""
    side = cell or 1
    sizes = [grid_size(one, side) for one in values]
    rows, columns = max(size[0] for size in sizes), max(size[1] for size in sizes)
    mask = np.zeros((len(values), rows, columns), dtype=bool)
    whole = np.zeros((len(values), rows * side, columns * side, values[0].shape[2]), dtype=values[0].dtype)
    for place, (one, (r, c)) in enumerate(zip(values, sizes, strict=True)):
        mask[place, :r, :c] = True
        whole[place, : r * side, : c * side] = grids.whole_cells(one, side)
    return Grids(torch.from_numpy(whole), torch.from_numpy(mask))
