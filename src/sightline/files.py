"""Writing files so that nothing is ever half-written: to a temporary name beside the file, then renamed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sightline.errors import MachineError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to. It becomes ``path`` when the block ends well, and is removed when it does not.

    It keeps the file's ending, because some writers choose their format by it.
    """
    make_folder(path.parent)
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


def make_folder(path: Path) -> None:
    """A folder, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"cannot make the folder {path}: {error.strerror or error}") from error


def check_writable(folder: Path) -> None:
    """Make a folder and try to write to it: better before long work than after it."""
    with whole_file(folder / ".try") as part:
        part.write_bytes(b"")
    (folder / ".try").unlink()


def write_text(path: Path, text: str) -> Path:
    """Write UTF-8 text, whole or not at all."""
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path
