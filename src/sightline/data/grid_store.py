"""Images and their maps of classes on the disk, one behind the other: read when they are asked for.

The folder is whole when ``index.json`` stands in it; that is written last.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sightline.data.grids import MOST_VALUES, Classes, ClassKind, Raw, classes_of
from sightline.errors import MachineError, UserError
from sightline.files import make_folder, write_text

VALUES, MASKS, INDEX = "values.bin", "masks.bin", "index.json"
VERSION = 1


class GridExample(NamedTuple):
    """An image (uint8) or a grid of features (float32), and the class of every pixel or place."""

    name: str
    values: np.ndarray
    classes: np.ndarray


class GridStore:
    """Examples on the disk, mapped into memory."""

    def __init__(self, folder: Path, about: dict[str, Any], classes: Classes, lookup: np.ndarray) -> None:
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
    def open(cls, folder: Path, classes: Classes) -> "GridStore":
        """What `write_store` wrote."""
        try:
            about = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            if about["version"] != VERSION:
                raise ValueError(f"it is of version {about['version']!r}")
            return cls(folder, about, classes, _lookup(about["values"], classes))
        except FileNotFoundError as error:
            raise UserError(f"{error.filename} is missing: without its data the run cannot go on") from None
        except OSError as error:
            raise UserError(f"{folder} cannot be read: {error.strerror}") from None
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise UserError(f"{folder} is damaged: {error}") from None


def write_store(
    folder: Path,
    examples: Iterable[Raw],
    kind: ClassKind | None = None,
    names: tuple[str, ...] | None = None,
    classes: Classes | None = None,
) -> GridStore:
    """Write examples one after the other; what the values in their masks mean is known at the end, or given."""
    make_folder(folder)
    rows: list[list[Any]] = []
    ids: dict[int, int] = {}
    fullest = 0, ""  # how many values a mask has at most, and which one
    pixels, channels = True, 3
    try:
        with (folder / VALUES).open("wb") as values, (folder / MASKS).open("wb") as masks:
            for raw in examples:
                assert raw.mask is not None
                pixels, channels = raw.is_pixels, raw.values.shape[2]
                values.write(np.ascontiguousarray(raw.values).tobytes())
                different = np.unique(raw.mask)
                fullest = max(fullest, (len(different), raw.mask_name), key=lambda one: one[0])
                masks.write(_ids(raw, different, ids).tobytes())
                rows.append([raw.name, *raw.values.shape[:2], raw.digest()])
    except OSError as error:
        raise MachineError(f"cannot write {folder}: {error.strerror or error}") from error
    found = classes or classes_of(ids, kind, names, f", {fullest[0]:,} of them in {fullest[1]}")
    doubt = found.doubt(min(ids), max(ids)) if ids else None
    if doubt is not None:  # every score on them would be of nothing
        raise UserError(f"{doubt}; give masks with the same values")
    about = {"version": VERSION, "pixels": pixels, "channels": channels, "values": list(ids), "rows": rows}
    write_text(folder / INDEX, json.dumps(about, ensure_ascii=False))
    return GridStore(folder, about, found, _lookup(list(ids), found))


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


def _lookup(values: list[int], classes: Classes) -> np.ndarray:
    """The class of each small number."""
    found = np.full(MOST_VALUES, len(classes), dtype=np.uint8)
    if values:
        found[: len(values)] = classes.of(np.array(values, dtype=np.int64))
    return found
