"""Where the files of a corpus are: one file, a folder of shards, a pattern of names, or an address elsewhere.

An address has a protocol in front (``s3://bucket/corpus/*.jsonl.gz``, ``memory://pairs.tsv``) and is opened by fsspec.
Shards are read in the order of their names. One that breaks off is left out from there on, and what it lost is counted
as bad rows: the caller decides whether these are too many.
"""

import glob
import importlib
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from sightline.errors import UserError

DAMAGED = "damaged shard"  # a kind of problem of rows

Row = TypeVar("Row")


class DamagedError(UserError):
    """A file that breaks off: ``what`` is wrong behind ``line``, and how many rows are ``lost``, where it says so."""

    def __init__(self, file: str, what: str, line: int, lost: int | None = None) -> None:
        super().__init__(f"{file} {what}")
        self.file, self.what, self.line, self.lost = file, what, line, lost


def is_address(path: str) -> bool:
    return "://" in path


def ending_of(path: str) -> str:
    """The ending of a file's name without that of gzip."""
    return PurePosixPath(Path(path).name.lower().removesuffix(".gz")).suffix


def shards_of(data: str, endings: Collection[str]) -> list[str]:
    """The files that are meant, in the order of their names. Of a folder, those with one of the endings."""
    if data == "-":
        return [data]
    if is_address(data):
        return _distant_shards(data, endings)
    if Path(data).is_dir():
        try:
            with os.scandir(data) as entries:
                paths = [entry.path for entry in entries if entry.is_file()]
        except OSError as error:
            raise UserError(f"{data} cannot be read: {error.strerror}") from None
        return _of_folder(data, paths, endings)
    if glob.has_magic(data) and not Path(data).exists():
        return _of_pattern(data, [path for path in glob.glob(data, recursive=True) if not Path(path).is_dir()])
    return [data]


def _of_pattern(data: str, paths: Sequence[str]) -> list[str]:
    if not paths:
        raise UserError(f"{data}: no file has a name like that; expected some (put the pattern in quotes)")
    return sorted(paths)


def _of_folder(data: str, paths: Sequence[str], endings: Collection[str]) -> list[str]:
    """Not those of the folders in it: they may be other parts of the data. Names with ``.`` or ``_`` are no data."""
    shards = sorted(path for path in paths if ending_of(path) in endings and not Path(path).name.startswith((".", "_")))
    if any(Path(path).name == "dataset_dict.json" for path in paths):
        raise UserError(f"{data} holds several datasets; name one of its folders, such as {data.rstrip('/')}/train")
    if not shards:
        raise UserError(
            f"{data} is a folder; expected files in it that end in {', '.join(endings)}, or these with .gz "
            f"(to read those of the folders in it, give a pattern: '{data.rstrip('/')}/**/*.jsonl')"
        )
    kinds = sorted({ending_of(path) for path in shards})
    if len(kinds) > 1 and ".json" in kinds:  # it describes the others
        shards = [path for path in shards if ending_of(path) != ".json"]
        kinds.remove(".json")
    if len(kinds) > 1:
        raise UserError(
            f"{data} is a folder of files of several kinds: found {', '.join(kinds)}, expected one; say with a pattern "
            f"which to read: '{data.rstrip('/')}/*{kinds[0]}'"
        )
    return shards


def _distant_shards(data: str, endings: Collection[str]) -> list[str]:
    system, place = file_system(data)
    try:
        if glob.has_magic(place):
            return _of_pattern(data, [system.unstrip_protocol(path) for path in system.glob(place)])
        if not system.isdir(place):
            return [data]
        entries = system.ls(place, detail=True)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{data} cannot be read: {one_line(error)}") from None
    files = [system.unstrip_protocol(entry["name"]) for entry in entries if entry["type"] == "file"]
    return _of_folder(data, files, endings)


def file_system(address: str) -> tuple[Any, str]:
    """What opens an address, and the path there."""
    if "::" in address or address.startswith("reference:"):
        # A cache writes where it likes, and a list of references may name any file of this machine.
        raise UserError(f"{address} is a chain of addresses, which is not followed; download the file first")
    try:
        core = importlib.import_module("fsspec.core")
    except ImportError:
        raise UserError(f"{address}: reading from addresses needs fsspec; pip install 'sightline[remote]'") from None
    try:
        system, place = core.url_to_fs(address)
    except Exception as error:  # an unknown protocol, a package that is missing, credentials
        raise UserError(f"{address} cannot be opened: {one_line(error)}") from None
    return system, place


def open_bytes(path: str) -> Any:
    """A file, or what an address leads to."""
    if not is_address(path):
        return open(path, "rb")
    system, place = file_system(path)
    return system.open(place, "rb")


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def over_shards(
    shards: Sequence[str], read: Callable[[str], Iterator[Row]], bad: Callable[[str, int, str], Row]
) -> Iterator[Row]:
    """The rows of all shards, one shard behind the other.

    What a damaged one lost comes at the end, as that many ``bad`` rows: as many as it says itself (Parquet does), or as
    the whole ones have on average, without those that could be read. A file that is alone raises.
    """
    if len(shards) == 1:
        yield from read(shards[0])
        return
    whole: list[int] = []
    damaged: list[tuple[DamagedError, int]] = []
    for shard in shards:
        count = 0
        try:
            for row in read(shard):
                count += 1
                yield row
        except DamagedError as error:
            damaged.append((error, count))
        else:
            whole.append(count)
    if damaged and not whole:
        raise damaged[0][0]
    for damage, count in damaged:
        usual = round(sum(whole) / len(whole)) - count if damage.lost is None else damage.lost
        lost = max(1, usual)
        problem = f"{DAMAGED}: it {damage.what}; its rest counts as {lost:,} rows, left out"
        yield from itertools.repeat(bad(damage.file, damage.line + 1, problem), lost)
