"""Writing files so that nothing is ever half-written: to a temporary name beside the file, then renamed."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sightline.errors import MachineError, UserError

try:
    import fcntl
except ImportError:  # no such thing on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
TRIED = 20  # how often a folder is made again that others remove


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


@contextmanager
def alone_in(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While the block runs, no other process is in such a block with the same folder; nor another thread.

    It waits for its turn, after it has called ``waiting``; the system lets go of the lock with the process. Where
    there are no locks (some network file systems, Windows) it does not wait.
    """
    make_folder(folder)
    try:
        file = (folder / LOCK).open("a")
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
