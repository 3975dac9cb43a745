"""A corpus on disk: the tokens of all pairs one after the other, and where each pair begins.

Four plain `.npy` files that are memory-mapped, so that a corpus may be larger than memory, and `corpus.json` that says
what must be in them. A corpus is written under another name and renamed when it is complete: a folder of that name is
a whole corpus, or something happened to it afterwards, which `Corpus.open` looks for.
"""

import itertools
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from sightline.data.disk import mapped_as, scratch_array
from sightline.errors import MachineError, UserError
from sightline.files import open_regular, read_json

FORMAT, VERSION = "sightline corpus", 1
SIDES = ("source", "target")
_HEADER = 128  # bytes before the numbers, fixed so that the header can be written last, when the length is known
_CHUNK = 2**18  # numbers held in memory while writing
_HELD = 2**19  # rows; the lengths of more are not held in memory
_NARROW, _WIDE, _REAL, _OFFSET = map(np.dtype, ("<u2", "<i4", "<f4", "<i8"))
_KEPT = (np.dtype("<f2"), np.dtype("u1"))  # numbers of frames: arrays of these types stay as they are
_TYPES = (_NARROW.str, _WIDE.str, _REAL.str, *(one.str for one in _KEPT))
Numbers = Sequence[int] | np.ndarray


class TokenBlock(NamedTuple):
    """Some pairs: the tokens of each side one after the other, and how many each pair has."""

    source: np.ndarray
    source_lengths: np.ndarray
    target: np.ndarray
    target_lengths: np.ndarray


class Corpus:
    """Pairs of token lists, read from disk when they are asked for."""

    def __init__(self, tokens: tuple[np.ndarray, np.ndarray], offsets: tuple[np.ndarray, np.ndarray]) -> None:
        self._tokens, self._offsets = tokens, offsets
        self._lengths: tuple[np.ndarray, np.ndarray] | None = None

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Memory-map a corpus that `write_corpus` wrote."""
        try:
            about = read_json(folder / "corpus.json")
            _check_about(about)
            source, target = (_open_side(folder, side, about[side], about["pairs"]) for side in SIDES)
            _check_content(folder, about.get("checksums"))
        except FileNotFoundError as error:
            name = Path(error.filename).name
            raise UserError(f"{folder} is not a complete corpus: it has no {name}; prepare the data again") from None
        except OSError as error:
            raise UserError(f"the corpus {folder} cannot be read: {error.strerror}") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"the corpus {folder} is damaged ({error}); prepare the data again") from None
        return cls((source[0], target[0]), (source[1], target[1]))

    def __len__(self) -> int:
        return len(self._offsets[0]) - 1

    def __getitem__(self, row: int) -> tuple[np.ndarray, np.ndarray]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of a corpus of {len(self)} pairs")
        row %= len(self)
        source, target = (
            tokens[offsets[row] : offsets[row + 1]] for tokens, offsets in zip(self._tokens, self._offsets, strict=True)
        )
        return source, target

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """How many tokens the sources and the targets have. Of very many rows they are kept in a file."""
        if self._lengths is None:
            source, target = map(_lengths, self._offsets)
            self._lengths = source, target
        return self._lengths


def _lengths(offsets: np.ndarray) -> np.ndarray:
    rows = len(offsets) - 1
    if rows <= _HELD:
        return np.diff(offsets)
    lengths = scratch_array(rows, np.int32)
    for start in range(0, rows, _CHUNK):
        lengths[start : start + _CHUNK] = np.diff(offsets[start : start + _CHUNK + 1])
    return lengths


def write_corpus(folder: Path, pairs: Iterable[tuple[Numbers, Numbers]]) -> Corpus:
    """Write pairs of token ids as they come, in little memory whatever their number, and open the corpus.

    A side may hold arrays of floating-point numbers instead: they are kept as float32; those of 16 bits and of bytes
    stay as they are.
    """
    return write_blocks(folder, _blocks(pairs))


def write_blocks(folder: Path, blocks: Iterable[TokenBlock]) -> Corpus:
    """The same of many pairs at a time."""
    if folder.exists():
        raise UserError(f"{folder} exists already; remove it, or choose another folder")
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)  # of an earlier process with our number that was killed
        part.mkdir(parents=True)
        _write_parts(part, blocks)
        part.rename(folder)
    except OSError as error:
        raise MachineError(f"the corpus {folder} cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return Corpus.open(folder)


def _blocks(pairs: Iterable[tuple[Numbers, Numbers]]) -> Iterator[TokenBlock]:
    """Pairs by as many as are held in memory together."""
    rows: list[tuple[Numbers, Numbers]] = []
    size = 0
    for pair in pairs:
        rows.append(pair)
        size += 1 + len(pair[0]) + len(pair[1])
        if size >= _CHUNK:
            yield _block(rows)
            rows, size = [], 0
    if rows:
        yield _block(rows)


def _block(rows: Sequence[tuple[Numbers, Numbers]]) -> TokenBlock:
    sources, targets = zip(*rows, strict=True)
    return TokenBlock(*flat(sources), *flat(targets))


def flat(rows: Sequence[Numbers], kind: Any = np.int64) -> tuple[np.ndarray, np.ndarray]:
    """Rows of numbers one after the other, and how many each has."""
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    if any(isinstance(row, np.ndarray) for row in rows):
        types = {row.dtype for row in rows if isinstance(row, np.ndarray)}
        if len(types) == 1 and types <= {*_KEPT} and all(isinstance(row, np.ndarray) for row in rows):
            return np.concatenate(rows), lengths
        real = any(isinstance(row, np.ndarray) and row.dtype.kind == "f" for row in rows)
        return np.concatenate([np.asarray(row, _REAL if real else kind) for row in rows]), lengths
    return np.fromiter(itertools.chain.from_iterable(rows), kind, int(lengths.sum())), lengths


def _write_parts(part: Path, blocks: Iterable[TokenBlock]) -> None:
    with _Side(part, "source") as source, _Side(part, "target") as target:
        for block in blocks:
            source.extend(block.source, block.source_lengths)
            target.extend(block.target, block.target_lengths)
        abouts = {"source": source.finish(), "target": target.finish()}
        count = source.count
    if not count:
        raise UserError("there are no pairs to write a corpus of")
    sums = {name: _checksum(part / name) for name in _names()}
    about = {"format": FORMAT, "version": VERSION, "pairs": count, **abouts, "checksums": sums}
    with (part / "corpus.json").open("w", encoding="utf-8") as file:
        json.dump(about, file, indent=2)
        file.flush()
        os.fsync(file.fileno())


class _Side(AbstractContextManager["_Side"]):
    """One side of the pairs while it is written."""

    def __init__(self, folder: Path, name: str) -> None:
        self.count = self._tokens = self._longest = 0
        self._largest = -1
        self._path = folder / f"{name}.npy"
        self._dtype: np.dtype = _NARROW
        self._file = _begin(self._path)
        self._offsets = _begin(folder / f"{name}_offsets.npy")
        np.zeros(1, _OFFSET).tofile(self._offsets)

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._offsets.close()

    def extend(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        (self._tokens + np.cumsum(lengths, dtype=_OFFSET)).tofile(self._offsets)
        self.count += len(lengths)
        self._tokens += len(ids)
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        if ids.dtype in _KEPT or ids.dtype.kind == "f":  # numbers of sound, of vectors: all rows of this side are
            self._dtype = ids.dtype if ids.dtype in _KEPT else _REAL
        elif ids.size:
            if ids.min() < 0 or ids.max() > np.iinfo(_WIDE).max:
                raise ValueError(f"token ids are from 0 to {np.iinfo(_WIDE).max}, found {ids.min()} to {ids.max()}")
            self._largest = max(self._largest, int(ids.max()))
            if self._dtype == _NARROW and self._largest > np.iinfo(_NARROW).max:
                self._widen()
        ids.astype(self._dtype).tofile(self._file)

    def finish(self) -> dict[str, Any]:
        """Write the headers, and say what there is."""
        _end(self._file, self._dtype, self._tokens)
        _end(self._offsets, _OFFSET, self.count + 1)
        return {"tokens": self._tokens, "longest": self._longest, "largest_id": self._largest, "type": self._dtype.str}

    def _widen(self) -> None:
        """Write again what was written as 16 bits: the vocabulary turns out to be larger than that."""
        self._file.close()
        narrow = self._path.with_suffix(".narrow")
        self._path.rename(narrow)
        self._dtype = _WIDE
        self._file = _begin(self._path)
        with narrow.open("rb") as file:
            file.seek(_HEADER)
            while (ids := np.fromfile(file, _NARROW, _CHUNK)).size:
                ids.astype(_WIDE).tofile(self._file)
        narrow.unlink()


def _begin(path: Path) -> BinaryIO:
    file = path.open("wb")
    file.write(bytes(_HEADER))
    file.flush()  # tofile writes behind Python's buffer
    return file


def _end(file: BinaryIO, dtype: np.dtype, length: int) -> None:
    """Put the header of the .npy format, version 1.0, in its place and see it to the disk."""
    about = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({length},), }}".encode("latin1")
    magic = np.lib.format.magic(1, 0) + (_HEADER - 10).to_bytes(2, "little")
    file.seek(0)
    file.write(magic + about.ljust(_HEADER - 11) + b"\n")
    file.flush()
    os.fsync(file.fileno())


def _check_about(about: Any) -> None:
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ValueError("corpus.json does not describe a corpus")
    if about.get("version") != VERSION:
        raise ValueError(f"its format is version {about.get('version')!r}, this program reads {VERSION}")
    counts = [about.get("pairs")]
    for side in SIDES:
        if not isinstance(about.get(side), dict) or about[side].get("type") not in _TYPES:
            raise ValueError(f"corpus.json does not describe the {side}")
        counts.append(about[side].get("tokens"))
    if not all(type(number) is int and number >= 0 for number in counts):
        raise ValueError("corpus.json has no counts")


def _names() -> list[str]:
    return [f"{side}{ending}.npy" for side in SIDES for ending in ("", "_offsets")]


def _checksum(path: Path) -> int:
    """Of a file, a part at a time. It is for disks that lose bytes, not for people who change them: it must be fast."""
    checksum = 0
    with open_regular(path) as file:
        while some := file.read(1 << 22):
            checksum = zlib.crc32(some, checksum)
    return checksum


def _check_content(folder: Path, expected: Any) -> None:
    """Every number is the one that was written. Corpora of earlier versions keep no checksums."""
    if expected is None:
        return
    if not isinstance(expected, dict):
        raise ValueError("corpus.json has no checksums")
    for name in _names():
        if _checksum(folder / name) != expected.get(name):
            raise ValueError(f"{name} is not what was written")


def _open_side(folder: Path, side: str, about: dict[str, Any], pairs: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = _map(folder / f"{side}.npy", about["type"], about["tokens"])
    offsets = _map(folder / f"{side}_offsets.npy", _OFFSET.str, pairs + 1)
    if offsets[0] != 0 or offsets[-1] != len(tokens) or not _rises(offsets):
        raise ValueError(f"{side}_offsets.npy does not fit {side}.npy")
    return tokens, offsets


def _rises(offsets: np.ndarray) -> bool:
    """Whether no number is less than the one before it. In parts: of a large corpus, a copy would be large too."""
    parts = range(0, len(offsets) - 1, _CHUNK)
    return all((np.diff(offsets[start : start + _CHUNK + 1]) >= 0).all() for start in parts)


def _map(path: Path, dtype: str, length: int) -> np.ndarray:
    size = path.stat().st_size
    if size != _HEADER + length * np.dtype(dtype).itemsize:
        raise ValueError(f"{path.name} has {size} bytes, which is not what corpus.json says")
    if not length:
        return np.empty(0, dtype)  # nothing cannot be mapped
    # A plain view: slices of it are cheaper than slices of a memmap.
    return np.asarray(mapped_as(path, dtype, (length,), "corpus.json"))
