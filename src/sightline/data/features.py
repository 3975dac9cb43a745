"""What is kept of many images, one row each, in a file that is memory-mapped: the states of a frozen encoder, computed
once, or the pixels themselves.

A folder holds ``features.npy`` and ``features.json``, which describes the rows and how many are done: work that was
interrupted is resumed, and a folder that belongs to other images or to another encoder is not used. One process at a
time works in a folder: another that needs the same features waits until they are done.
"""

import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sightline.data.checking import RowLimits, remedies
from sightline.data.disk import mapped_as
from sightline.data.images import LIMITS, BadImage, Fit, read_images
from sightline.errors import MachineError, UserError
from sightline.files import RECORDS, alone_in, make_folder, read_json, write_text

FORMAT, VERSION = "sightline features", 1
ARRAY, ABOUT = "features.npy", "features.json"
_TYPES = ("uint8", "float16")
_SAVED_EVERY = 20.0  # seconds

Encode = Callable[[np.ndarray], np.ndarray]  # uint8 b h w 3 -> float16 b s d, or any other rows
Tell = Callable[[int, int, float], None]  # images done, all images, images a second


@dataclass(frozen=True)
class Fitted:
    """The size that images are read at."""

    height: int
    width: int
    fit: Fit = "stretch"


class Features:
    """The rows of some images, read from disk when they are asked for.

    ``bad`` are the images that could not be read, by their number, with the reason; their rows hold nothing.
    """

    def __init__(self, array: np.ndarray, bad: Mapping[int, str]) -> None:
        self._array, self.bad = array, dict(bad)

    def __len__(self) -> int:
        return len(self._array)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row: places and size of encoder states, or height, width and 3 of pixels."""
        return self._array.shape[1:]

    @property
    def dtype(self) -> np.dtype:
        return self._array.dtype

    def rows(self, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
        """The rows of these images, in this order."""
        return np.asarray(self._array[np.asarray(numbers, dtype=np.int64)])

    @classmethod
    def open(cls, folder: Path) -> "Features":
        """Those that `write_features` has written, all of them."""
        try:
            about = _read_about(folder)
            if about["done"] != about["images"]:
                raise ValueError(f"{about['done']} of {about['images']} images are done")
            return cls(_map(folder, about, "r"), about["bad"])
        except FileNotFoundError as error:
            name = Path(error.filename).name
            raise UserError(f"{folder} holds no features: it has no {name}; compute them again") from None
        except (OSError, ValueError, RecursionError) as error:
            raise UserError(f"the features in {folder} cannot be used ({error}); compute them again") from None


def write_features(
    folder: Path,
    images: Sequence[Path],
    size: Fitted,
    encode: Encode | None = None,
    *,
    key: str = "",
    batch: int = 16,
    bad_limits: RowLimits | None = None,
    tell: Tell | None = None,
    waiting: Callable[[], None] = lambda: None,
    also: Path | None = None,
) -> Features:
    """Read every image and keep what ``encode`` gives for it (None: its pixels), or resume where this was interrupted.

    ``key`` says which encoder it is: features that a folder has from the same key, images (by path, size and time of
    change) and size are used as they are. As soon as more images are bad than ``bad_limits`` allow, a `UserError`
    names the first ones. ``waiting`` is called where another process works in the folder, and this one waits for it.

    ``also`` is a second folder that has them in the end, and that they are read from: what else becomes of the first
    does not matter then.
    """
    if not images:
        raise UserError("there are no images; expected one or more")
    with alone_in(folder, waiting):
        work = _Work(folder, images, _digest(images, size, key), bad_limits or RowLimits())
        if work.done < len(images):
            began, start = time.perf_counter(), work.done
            read = read_images(images[start:], size.height, size.width, size.fit)
            for rows in _batches(read, start, batch, work.bad):
                work.check()
                pixels = np.stack([pixels for _, pixels in rows]) if rows else None
                work.write(
                    [number for number, _ in rows], pixels if encode is None or pixels is None else encode(pixels)
                )
                if tell is not None:
                    tell(work.done, len(images), (work.done - start) / max(1e-9, time.perf_counter() - began))
            work.finish()
        work.check()
        if also is not None:
            _share(folder, also)
        return Features.open(also or folder)


def _share(folder: Path, also: Path) -> None:
    """The same files under a second name, or copies where that cannot be."""
    make_folder(also)
    for name in (ARRAY, ABOUT):  # the one that says that all is there comes last
        (also / name).unlink(missing_ok=True)
        try:
            os.link(folder / name, also / name)
        except OSError:
            shutil.copyfile(folder / name, also / name)


def _batches(
    images: Iterator[tuple[int, "np.ndarray | BadImage"]], start: int, batch: int, bad: dict[int, str]
) -> Iterator[list[tuple[int, np.ndarray]]]:
    """Good images in batches; the bad ones are noted. A long stretch of bad ones gives an empty batch."""
    rows: list[tuple[int, np.ndarray]] = []
    passed = 0
    for number, pixels in images:
        passed += 1
        if isinstance(pixels, BadImage):
            bad[start + number] = str(pixels)
        else:
            rows.append((start + number, pixels))
        if len(rows) == batch or passed >= 4 * batch:
            yield rows
            rows, passed = [], 0
    if rows or passed:
        yield rows


class _Work:
    """The file while it is written: rows go to their place, and what is done is noted now and then."""

    def __init__(self, folder: Path, images: Sequence[Path], digest: str, limits: RowLimits) -> None:
        self.folder, self.images, self.digest, self.limits = folder, images, digest, limits
        self.done = 0
        self.bad: dict[int, str] = {}
        self._array: np.memmap | None = None
        self._saved = time.monotonic()
        try:
            about = _read_about(folder)
            if about["digest"] == digest and about["images"] == len(images):
                self._array = _map(folder, about, "r+")
                self.done, self.bad = about["done"], about["bad"]
        except (OSError, ValueError, RecursionError):
            pass  # nothing there that can be used
        if not self.done:
            for name in (ABOUT, ARRAY):
                (folder / name).unlink(missing_ok=True)
            self._array, self.bad = None, {}

    def check(self) -> None:
        """Raise where more images are bad than may be."""
        advice = self.limits.too_many(len(self.bad), len(self.images), len(self.images) - len(self.bad))
        if advice is None:
            return
        first = "; ".join(f"{self.images[number]}: {why}" for number, why in sorted(self.bad.items())[:3])
        first += "; and so on" if len(self.bad) > 3 else ""
        rule = remedies(map(str, self.bad.values()))
        read, total = max([self.done, *(number + 1 for number in self.bad)]), len(self.images)
        of_read = f"{total:,}" if read == total else f"the first {read:,} (of {total:,})"
        raise UserError(f"{len(self.bad):,} of {of_read} images are bad ({first}), {'; '.join([advice, *rule])}")

    def write(self, numbers: Sequence[int], rows: np.ndarray | None) -> None:
        """Rows of good images; none where all of some images were bad."""
        if rows is not None:
            if self._array is None:
                self._array = self._begin(rows)
            if rows.dtype == np.float16 and not np.isfinite(rows).all():
                raise UserError("the encoder gives numbers that are not finite; check its weights")
            self._array[np.asarray(numbers)] = rows
        self.done = max([self.done, *(number + 1 for number in numbers), *(number + 1 for number in self.bad)])
        if time.monotonic() - self._saved > _SAVED_EVERY:
            self._note()

    def finish(self) -> None:
        self.done = len(self.images)
        self._note()

    def _begin(self, rows: np.ndarray) -> np.memmap:
        if rows.dtype.name not in _TYPES:
            raise ValueError(f"rows are {rows.dtype}; expected {' or '.join(_TYPES)}")
        shape = (len(self.images), *rows.shape[1:])
        size = math.prod(shape) * rows.dtype.itemsize
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise MachineError(
                f"{self.folder}: the features need {size / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free"
            )
        try:
            return np.lib.format.open_memmap(self.folder / ARRAY, "w+", rows.dtype, shape)
        except OSError as error:
            raise MachineError(f"cannot write {self.folder / ARRAY}: {error.strerror or error}") from error

    def _note(self) -> None:
        if self._array is None:
            return
        self._array.flush()
        about = {
            "format": FORMAT,
            "version": VERSION,
            "digest": self.digest,
            "images": len(self.images),
            "shape": list(self._array.shape[1:]),
            "type": self._array.dtype.name,
            "done": self.done,
            "bad": {str(number): why for number, why in self.bad.items()},
        }
        write_text(self.folder / ABOUT, json.dumps(about, indent=1, ensure_ascii=False))
        self._saved = time.monotonic()


def _digest(images: Sequence[Path], size: Fitted, key: str) -> str:
    digest = hashlib.sha256(f"{size} {LIMITS} {key}".encode())
    for path in images:
        try:
            about = path.stat()
            state = f"{about.st_size} {about.st_mtime_ns}"
        except (OSError, ValueError):
            state = "missing"
        digest.update(f"\n{path.absolute()}\0{state}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _read_about(folder: Path) -> dict[str, Any]:
    about = read_json(folder / ABOUT, RECORDS)
    if not isinstance(about, dict) or about.get("format") != FORMAT or about.get("version") != VERSION:
        raise ValueError(f"{ABOUT} does not describe features of version {VERSION}")
    shape, bad, counts = about.get("shape"), about.get("bad"), (about.get("images"), about.get("done"))
    if not isinstance(shape, list) or not isinstance(bad, dict) or about.get("type") not in _TYPES:
        raise ValueError(f"{ABOUT} is damaged")
    numbers = all(type(number) is int and number >= 0 for number in (*counts, *shape))
    reasons = all(key.isdecimal() and isinstance(why, str) for key, why in bad.items())
    if not numbers or not reasons or "digest" not in about:
        raise ValueError(f"{ABOUT} is damaged")
    return {**about, "bad": {int(number): why for number, why in bad.items()}}


def _map(folder: Path, about: Mapping[str, Any], mode: Any) -> np.memmap:
    return mapped_as(folder / ARRAY, about["type"], (about["images"], *about["shape"]), ABOUT, mode)
