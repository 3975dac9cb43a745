"""Images with masks, or grids of features with labels: what is read, what is wrong with it, which label a cell has.

A mask says of every pixel what it shows; a cell, a square of pixels, gets its label from them. A grid of features is a
`.npy` file, height × width × numbers, whose every place is a cell; its labels are another `.npy`, height × width, or an
image of that size. Files are not trusted: nothing that could run code is read, and sizes are checked first.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from sightline.data.checking import Report
from sightline.data.columns import TableRow
from sightline.data.disk import mapped
from sightline.data.image_tables import read_image_table
from sightline.data.images import (
    ENDINGS,
    LIMITS,
    ORIENTATION,
    UPRIGHT,
    BadImage,
    ImageLimits,
    open_image,
    read_image,
)
from sightline.data.source import Source
from sightline.data.tables import NO_FILE
from sightline.errors import MachineError, UserError
from sightline.files import RECORDS, make_folder, read_json, write_text
from sightline.picture import numbers_of

ARRAY = ".npy"
GRID_ENDINGS = (*ENDINGS, ARRAY)
PACKED = b"PK"  # what a file of several arrays (.npz) begins with
NO_PIXEL = 255  # of a map of classes: behind the edge of the image
MOST_CLASSES = 64
MOST_NAMED = 8  # grey values of classes that are far apart; more are shades
RARE_SHADES = 0.1  # of the pixels: if fewer have a value between the lowest and the highest, it is a soft edge
MOST_VALUES = 256  # different ones in masks while they are read
MOST_NUMBERS = 100_000_000  # in a grid of features
ClassKind = Literal["binary", "several"]


class Raw(NamedTuple):
    """One image as it was read: pixels ``h w 3`` of uint8 or features ``h w d``, and what the mask holds (or None)."""

    name: str
    values: np.ndarray
    mask: np.ndarray | None
    mask_name: str = "a mask"

    @property
    def is_pixels(self) -> bool:
        return self.values.dtype == np.uint8

    def digest(self) -> int:
        """The same for the same content, whatever the file is called."""
        digest = hashlib.blake2b(np.ascontiguousarray(self.values).tobytes(), digest_size=8)
        digest.update(repr(self.values.shape).encode())
        return int.from_bytes(digest.digest(), "big")


def read_values(path: Path, limits: ImageLimits = LIMITS) -> np.ndarray:
    """Pixels of an image, or the features of a grid as float32."""
    if path.suffix.lower() != ARRAY:
        return read_image(path, limits)
    array = _array(path)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.dtype.kind not in "fiub" or not array.size:
        shape = " × ".join(map(str, array.shape))
        raise BadImage(f"it holds {array.dtype} of shape {shape}; expected numbers, height × width × features")
    values = np.asarray(array, dtype=np.float32)
    if not np.isfinite(values).all():
        raise BadImage("it holds numbers that are not finite")
    return values


def read_mask(path: Path, limits: ImageLimits = LIMITS) -> np.ndarray:
    """What a mask holds, height × width of whole numbers: grey values, places in a palette, or colours.

    A colour is a number as `numbers_of` has it; so a grey pixel is its grey value whatever the pixels beside it are.
    """
    if path.suffix.lower() == ARRAY:
        array = _array(path)
        if array.ndim != 2 or array.dtype.kind not in "iub":
            shape = " × ".join(map(str, array.shape))
            raise BadImage(f"it holds {array.dtype} of shape {shape}; expected whole numbers, height × width")
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < 2**31:
            raise BadImage(f"its labels go from {array.min()} to {array.max()}; expected 0 or more")
        return np.asarray(array, dtype=np.int32)
    with open_image(path, limits) as image:
        image.load()
        turn = image.getexif().get(ORIENTATION)
        turned = image.transpose(UPRIGHT[turn]) if turn in UPRIGHT else image
        if turned.mode in ("F", "CMYK", "YCbCr", "LAB", "HSV"):
            raise BadImage(f"its colours are of the kind {turned.mode}; expected grey, a palette or RGB")
        values = np.asarray(turned.convert("L") if turned.mode == "1" else turned)  # white is 255 in every depth
    if values.ndim == 3:
        values = values[:, :, 0] if values.shape[2] == 2 else numbers_of(values[:, :, :3])
    return values.astype(np.int32)


def _array(path: Path) -> np.ndarray:
    """A NumPy file, mapped: its header says how large it is before anything is read, and pickles are refused."""
    try:
        if not path.is_file():
            raise BadImage(NO_FILE)
        with path.open("rb") as file:
            begins = file.read(len(np.lib.format.MAGIC_PREFIX))
        if begins.startswith(PACKED):
            raise BadImage("it holds several arrays; expected one (.npy)")
        if begins != np.lib.format.MAGIC_PREFIX:  # NumPy takes it for a pickle, and advises to allow those
            raise BadImage("it is not a NumPy array file: expected what numpy.save writes")
        array = mapped(path)
    except BadImage:
        raise
    except OSError as error:
        raise BadImage(f"it cannot be read ({error.strerror or error})") from None
    except ValueError as error:
        raise BadImage(
            f"it is no array that can be read safely ({str(error).removeprefix(f'{path.name}: ')})"
        ) from None
    if array.size > MOST_NUMBERS:
        raise BadImage(f"it is too large: found {array.size:,} numbers, expected at most {MOST_NUMBERS:,}")
    return array


def read_gold(path: str, size: tuple[int, ...], of: str) -> np.ndarray:
    """What a mask holds, which must be as large as the image that is named. Without a path nothing is marked."""
    if not path:
        return np.zeros(size, dtype=np.int32)
    try:
        mask = read_mask(Path(path))
    except BadImage as error:
        raise BadImage(f"{path}: {error}") from None
    if mask.shape != size:
        (h, w), (height, width) = mask.shape, size
        raise BadImage(f"{path}: the mask is {w} × {h}, and {of} is {width} × {height}; expected one size")
    return mask


@dataclass
class GridReport(Report):
    """The report on such data; ``pairs`` are the images kept."""

    kept: ClassVar[str] = "images"
    again: ClassVar[str] = "images were there before (kept, on one side of the split)"
    sizes: Counter[str] = field(default_factory=Counter)
    without_mask: int = 0

    def add(self, x: Any, y: Any) -> None:
        self.sizes[f"{x.width} × {x.height}"] += 1
        self.without_mask += not y.path

    def repeats(self, rows: int, different: int, items: int) -> None:
        self.duplicates = rows - items

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "sizes": dict(self.sizes.most_common(20))}

    def heading(self) -> str:
        sizes = ", ".join(f"{size} ({count:,})" for size, count in self.sizes.most_common(3))
        more = f" and {len(self.sizes) - 3:,} more" if len(self.sizes) > 3 else ""
        return f"{self.pairs:,} images of {self.rows:,} rows; sizes {sizes}{more}"

    def more(self) -> list[str]:
        return [f"{self.without_mask:,} images have no mask: nothing is marked in them"] if self.without_mask else []


def grid_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """The paths of images and of their masks: out of a table, or a folder with ``images`` and ``masks`` in it."""
    for row in read_image_table(str(source.data), columns[1].all, source.columns, endings=GRID_ENDINGS):
        yield row._replace(values=tuple(map(str, row.values)))


def grid_size(values: np.ndarray, cell: int) -> tuple[int, int]:
    """Rows and columns of cells; the last ones may reach over the edge."""
    return -(-values.shape[0] // cell), -(-values.shape[1] // cell)


@dataclass(frozen=True)
class MaskClasses:
    """What the values in masks mean.

    Binary: a pixel is marked where its value is nearer to the second value than to the first. Several: each value is a
    class, and the first is the ground that cells have unless enough of their pixels show something else.
    """

    names: tuple[str, ...] = ("background", "marked")
    values: tuple[int, ...] = (0, 255)

    def __post_init__(self) -> None:
        if not 2 <= len(self.names) == len(self.values) <= MOST_CLASSES:
            raise ValueError(f"found {len(self.names)} names for {len(self.values)} values of masks")
        if len(set(self.names)) != len(self.names) or not all(isinstance(one, str) and one for one in self.names):
            raise ValueError("a name of a class is empty, there twice, or no text")
        if list(self.values) != sorted(set(self.values)) or not all(
            type(one) is int and 0 <= one < 2**31 for one in self.values
        ):
            raise ValueError(f"the values of masks are {self.values!r}")

    @property
    def binary(self) -> bool:
        return len(self.names) == 2

    def __len__(self) -> int:
        return len(self.names)

    @property
    def _middle(self) -> float:
        return sum(self.values) / 2

    def doubt(self, lowest: int, highest: int) -> str | None:
        """What is to be said of masks with these values: that they differ, and all of them mean the same class.

        Masks of another program may hold 0 and 1 where those of the training data held 0 and 255.
        """
        if not self.binary or lowest == highest or (lowest > self._middle) != (highest > self._middle):
            return None
        meant = self.names[int(lowest > self._middle)]
        return (
            f"the values in the masks go from {lowest} to {highest}, and all of them mean {meant!r}: in the training "
            f"data they were {self.values[0]} for {self.names[0]!r} and {self.values[1]} for {self.names[1]!r}"
        )

    def of(self, mask: np.ndarray) -> np.ndarray:
        """The class of every pixel; a value that training did not have is one class more."""
        if self.binary:
            return (mask > self._middle).astype(np.uint8)
        places = np.searchsorted(self.values, mask).clip(max=len(self.values) - 1)
        return np.where(np.array(self.values)[places] == mask, places, len(self.values)).astype(np.uint8)


def classes_of(
    of_masks: Iterable[int], kind: ClassKind | None, names: Sequence[str] | None, fullest: str = ""
) -> MaskClasses:
    """What the values found in masks mean; ``kind`` left out: binary if there are two, else several.

    ``of_masks`` may say how many pixels have each value. ``fullest`` says which mask has most values, for errors.
    """
    values = sorted(of_masks)
    many = f"{len(values):,} different values in the masks{fullest}"
    if len(values) < 2 or (kind == "several" and len(values) > MOST_CLASSES):
        what = f"only the value {values[0]} in the masks" if len(values) == 1 else many
        raise UserError(f"found {what}; expected at least 2 and at most {MOST_CLASSES} classes")
    if kind is None and len(values) > MOST_CLASSES:
        raise UserError(
            f"found {many}; expected at most {MOST_CLASSES} classes. Masks with soft edges, or kept as JPEG, have two "
            "classes all the same: say --set classes=binary"
        )
    if kind is None and _are_soft(values, of_masks if isinstance(of_masks, Mapping) else {}):
        raise UserError(
            f"found {many}, from {values[0]} to {values[-1]}, as masks with soft edges or kept as JPEG have; say --set "
            "classes=binary to mark what is nearer to the highest, or --set classes=several if each value is a class"
        )
    if kind == "binary" or (kind is None and len(values) == 2):
        chosen, default = (values[0], values[-1]), ("background", "marked")
    else:
        chosen, default = tuple(values), tuple(map(str, values))  # type: ignore[assignment]
    if names is not None and len(names) != len(chosen):
        raise UserError(f"names has {len(names)} entries; the masks have {len(chosen)} classes")
    return MaskClasses(tuple(names or default), chosen)


def _are_soft(values: Sequence[int], pixels: Mapping[int, int]) -> bool:
    """Whether values are shades between black and white, and no numbers of classes: many, or few of rare pixels."""
    if len(values) < 3 or values[-1] > 255 or values[-1] - values[0] < 100:
        return False
    between = sum(pixels.get(value, 0) for value in values[1:-1])
    rare = bool(pixels) and between < RARE_SHADES * sum(pixels.values())
    return rare or (len(values) > MOST_NAMED and 2 * len(values) < values[-1] - values[0])


def cell_labels(classes: np.ndarray, cell: int, share: float, count: int) -> np.ndarray:
    """The label of each cell of a map of classes (whole cells; `NO_PIXEL` behind the edge).

    The ground (class 0), unless other classes have any pixel, and at least ``share`` of the pixels: then the most
    frequent one of them. A cell without pixels gets `NO_PIXEL`.
    """
    rows, columns = classes.shape[0] // cell, classes.shape[1] // cell
    blocks = classes.reshape(rows, cell, columns, cell).swapaxes(1, 2).reshape(rows, columns, -1)
    counts = np.stack([(blocks == one).sum(axis=-1) for one in range(count + 1)], axis=-1)
    there = counts.sum(axis=-1)
    others = there - counts[:, :, 0]
    named = 1 + counts[:, :, 1:].argmax(axis=-1)
    labels = np.where((others > 0) & (others >= share * there), named, 0)
    return np.where(there > 0, labels, NO_PIXEL).astype(np.int64)


def whole_cells(values: np.ndarray, cell: int) -> np.ndarray:
    """An image with its last row and column repeated until it has whole cells."""
    missing = _missing(values, cell)
    return np.pad(values, missing, mode="edge") if any(map(any, missing)) else values


def whole_map(classes: np.ndarray, cell: int) -> np.ndarray:
    """A map of classes as large as `whole_cells` makes its image."""
    return np.pad(classes, _missing(classes, cell), constant_values=NO_PIXEL)


def _missing(values: np.ndarray, cell: int) -> list[tuple[int, int]]:
    """What is missing before and behind each axis until there are whole cells."""
    return [(0, -values.shape[0] % cell), (0, -values.shape[1] % cell), *[(0, 0)] * (values.ndim - 2)]


# Images and their maps of classes on the disk, one behind the other, read when they are needed. The folder is complete
# when it has ``index.json``, which is written last.

VALUES, MASKS, INDEX = "values.bin", "masks.bin", "index.json"
VERSION = 1


class GridExample(NamedTuple):
    """An image (uint8) or a grid of features (float32), and the class of every pixel or place."""

    name: str
    values: np.ndarray
    classes: np.ndarray


class GridStore:
    """Examples on the disk, mapped into memory."""

    def __init__(self, folder: Path, about: dict[str, Any], classes: MaskClasses, lookup: np.ndarray) -> None:
        self.classes, self.rows, self._lookup = classes, about["rows"], lookup
        self.pixels = bool(about["pixels"])
        self.channels = int(about["channels"])
        self._values = np.memmap(folder / VALUES, dtype=np.uint8 if self.pixels else np.float32, mode="r")
        self._masks = np.memmap(folder / MASKS, dtype=np.uint8, mode="r")
        sizes = np.array([(row[1], row[2]) for row in self.rows], dtype=np.int64).reshape(-1, 2)
        self.sizes = sizes
        self._starts = np.concatenate([[0], np.cumsum(sizes.prod(axis=1))])
        total = int(self._starts[-1])
        if self._masks.size != total or self._values.size != total * self.channels:
            raise ValueError("its files are not as large as its index says")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> GridExample:
        height, width = self.sizes[row].tolist()
        start, end = self._starts[row : row + 2].tolist()
        values = self._values[start * self.channels : end * self.channels].reshape(height, width, self.channels)
        masks = self._masks[start:end].reshape(height, width)
        return GridExample(self.rows[row][0], np.asarray(values), self._lookup[masks])

    @classmethod
    def open(cls, folder: Path, classes: MaskClasses) -> "GridStore":
        """What `write_store` wrote."""
        try:
            about = read_json(folder / INDEX, RECORDS)
            if about["version"] != VERSION:
                raise ValueError(f"it is of version {about['version']!r}")
            return cls(folder, about, classes, _lookup(about["values"], classes))
        except FileNotFoundError as error:
            raise UserError(f"{error.filename} is missing: without its data the run cannot be resumed") from None
        except OSError as error:
            raise UserError(f"{folder} cannot be read: {error.strerror}") from None
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise UserError(f"{folder} is damaged: {error}") from None


def write_store(
    folder: Path,
    examples: Iterable[Raw],
    kind: ClassKind | None = None,
    names: tuple[str, ...] | None = None,
    classes: MaskClasses | None = None,
) -> GridStore:
    """Write examples one after the other; what the values in their masks mean is known at the end, or given."""
    make_folder(folder)
    rows: list[list[Any]] = []
    ids: dict[int, int] = {}
    pixels_of: Counter[int] = Counter()  # values in the masks
    fullest = 0, ""  # how many values a mask has at most, and which one
    pixels, channels = True, 3
    try:
        with (folder / VALUES).open("wb") as values, (folder / MASKS).open("wb") as masks:
            for raw in examples:
                assert raw.mask is not None
                pixels, channels = raw.is_pixels, raw.values.shape[2]
                values.write(np.ascontiguousarray(raw.values).tobytes())
                different, counts = np.unique(raw.mask, return_counts=True)
                pixels_of.update(dict(zip(different.tolist(), counts.tolist(), strict=True)))
                fullest = max(fullest, (len(different), raw.mask_name), key=lambda one: one[0])
                masks.write(_ids(raw, different, ids).tobytes())
                rows.append([raw.name, *raw.values.shape[:2], raw.digest()])
    except OSError as error:
        raise MachineError(f"cannot write {folder}: {error.strerror or error}") from error
    meanings = classes or classes_of(pixels_of, kind, names, f", {fullest[0]:,} of them in {fullest[1]}")
    doubt = meanings.doubt(min(ids), max(ids)) if ids else None
    if doubt is not None:  # every score on them would be of nothing
        raise UserError(f"{doubt}; give masks with the same values")
    about = {"version": VERSION, "pixels": pixels, "channels": channels, "values": list(ids), "rows": rows}
    write_text(folder / INDEX, json.dumps(about, ensure_ascii=False))
    return GridStore(folder, about, meanings, _lookup(list(ids), meanings))


def _ids(raw: Raw, different: np.ndarray, ids: dict[int, int]) -> np.ndarray:
    """A mask with a small number for each of its ``different`` values, the same for all masks."""
    assert raw.mask is not None
    for value in different.tolist():
        ids.setdefault(value, len(ids))
    if len(ids) > MOST_VALUES:
        raise UserError(
            f"{raw.mask_name}: it has {len(different):,} different values, and with it there are more than "
            f"{MOST_VALUES} in the masks; expected a value for each class, or grey values with soft edges"
        )
    small = np.array([ids[value] for value in different.tolist()], dtype=np.uint8)
    return small[np.searchsorted(different, raw.mask)]


def _lookup(values: list[int], classes: MaskClasses) -> np.ndarray:
    """The class of each small number."""
    lookup = np.full(MOST_VALUES, len(classes), dtype=np.uint8)
    if values:
        lookup[: len(values)] = classes.of(np.array(values, dtype=np.int64))
    return lookup
