"""Files, read and written safely.

Nothing is ever half-written: a file is written to a temporary name beside it, then renamed. Only regular files of a
bounded size are read: a device has no end, and a pipe would be waited for.
"""

import errno
import gc
import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from sightline.errors import MachineError, UserError

try:
    import fcntl
except ImportError:  # no such thing on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
TRIED = 20  # how often a folder is made again that others remove
SETTINGS = 16 << 20  # bytes of a file of settings; parsed JSON takes up to thirty times as much memory
RECORDS = 1 << 30  # bytes of a file with a line or a record for each row of data
MOST_TENSORS = 20_000  # in one file of weights: each takes time, also without a number in it


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to. It becomes ``path`` when the block ends well, and is removed when it does not.

    It keeps the file's ending, because some writers choose their format by it.
    """
    make_folder(path.parent)
    if path.exists() and not path.is_file() and not path.is_dir():
        raise UserError(f"{path} is a device or a pipe, which would be replaced by a file; name a file")
    part = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())  # the name must not reach the disk before the content does
        part.replace(path)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def is_no_folder(path: Path) -> bool:
    """Whether something else has this name: a file, a device, a link to nowhere."""
    return os.path.lexists(path) and not os.path.isdir(path)


def make_folder(path: Path) -> None:
    """A folder, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if is_no_folder(path):
            raise UserError(f"{path} is a file; name a folder") from None
        for above in path.parents:
            if is_no_folder(above):
                raise UserError(f"cannot make the folder {path}: {above} is a file") from None
        raise MachineError(f"cannot make the folder {path}: {error.strerror or error}") from error


def open_lock(path: Path) -> FileIO:
    """A file to lock, made if it is not there. A pipe of that name is not waited for."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    return FileIO(os.open(path, flags, 0o666), "r+")


@contextmanager
def alone_in(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While the block runs, no other process is in such a block with the same folder; nor another thread.

    It waits for its turn, after it has called ``waiting``; the system lets go of the lock with the process. Where
    there are no locks (some network file systems, Windows) it does not wait.
    """
    make_folder(folder)
    try:
        file = open_lock(folder / LOCK)
    except OSError as error:
        raise MachineError(f"cannot write to the folder {folder}: {error.strerror or error}") from error
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError:
                pass
        yield


def check_writable(folder: Path) -> None:
    """Try to make a folder and to write to it: better before long work than after it.

    What was not there is gone afterwards: work that comes to nothing leaves no empty folder.
    """
    missing = [one for one in (folder, *folder.parents) if not os.path.exists(one)]
    try:
        for again in range(TRIED):
            make_folder(folder)
            try:
                with tempfile.TemporaryFile(dir=folder):
                    return
            except FileNotFoundError as error:  # another process that tried has taken it away again
                if again == TRIED - 1:
                    raise MachineError(f"cannot write to the folder {folder}: {error.strerror}") from error
            except OSError as error:
                raise MachineError(f"cannot write to the folder {folder}: {error.strerror or error}") from error
    finally:
        for made in missing:
            with suppress(OSError):  # somebody else may have begun to use it
                made.rmdir()


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text, whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def place_of(path: Path) -> str:
    """The same for the same file, however its path is written."""
    return str(path.resolve()).casefold()


def open_regular(path: Path, most: int | None = None) -> BufferedReader:
    """A file to read. Anything else is refused, and a file of more than ``most`` bytes."""
    _check_regular(path, path.stat(), most)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # no wait for a pipe
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _check_regular(path, os.fstat(file.fileno()), most)
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(path: Path, about: os.stat_result, most: int | None) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(about.st_mode):
        raise UserError(f"{path} is a device or a pipe; a regular file is expected")
    if most is not None and about.st_size > most:
        raise UserError(f"{path} has {about.st_size:,} bytes; at most {most:,} are read")


def read_bytes(path: Path, most: int = SETTINGS) -> bytes:
    """The content of a regular file of at most so many bytes."""
    with open_regular(path, most) as file:
        return file.read(most)


def read_text(path: Path, most: int = SETTINGS, errors: str = "strict") -> str:
    """The same, of UTF-8 text."""
    return read_bytes(path, most).decode("utf-8", errors)


def read_json(path: Path, most: int = SETTINGS) -> Any:
    """The same, of JSON. The garbage collector is off meanwhile: with millions of small lists it takes ten times as
    long."""
    return parsed_json(read_bytes(path, most))


def parsed_json(content: bytes) -> Any:
    enabled = gc.isenabled()
    gc.disable()
    try:
        return json.loads(content.decode("utf-8"))
    finally:
        if enabled:
            gc.enable()


def check_tensors(path: Path) -> None:
    """Refuse a safetensors file whose header is unreasonable, or whose size is another than its header describes.

    A million empty tensors would take minutes to read, and so would a sparse file, which takes no room on a disk.
    """
    with open_regular(path) as file:
        there = os.fstat(file.fileno()).st_size
        size = int.from_bytes(file.read(8), "little")
        header = file.read(min(size, SETTINGS + 1))
    if size > SETTINGS:
        raise UserError(f"{path} is damaged: its header has {size:,} bytes; at most {SETTINGS:,} are read")
    try:
        described = parsed_json(header)
        if not isinstance(described, dict) or len(described) > MOST_TENSORS:
            raise UserError(f"{path} is damaged: its header does not describe at most {MOST_TENSORS:,} tensors")
        ends = [int(one["data_offsets"][1]) for name, one in described.items() if name != "__metadata__"]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise UserError(f"{path} is damaged: its header is not JSON that describes tensors") from None
    if there != (expected := 8 + size + max(ends, default=0)):
        raise UserError(f"{path} is damaged: it has {there:,} bytes, and its header describes {expected:,}")
