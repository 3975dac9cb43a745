"""Arrays of numbers in files (.npy) that are mapped and not loaded: a foreign header breaks in many ways."""

import hashlib
import io
import math
import os
import tempfile
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from sightline.errors import MachineError
from sightline.files import open_regular


def mapped(path: Path, mode: Literal["r", "r+"] = "r") -> np.memmap:
    """The array in a file, nothing of it read yet; a `ValueError` where there is none that can be read safely.

    Pickles are refused. NumPy parses headers with Python's own tokeniser, whose errors are of many kinds.
    """
    open_regular(path).close()
    try:
        return np.lib.format.open_memmap(path, mode)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{path.name}: {str(error).partition(chr(10))[0][:200]}") from None


def array_of(content: bytes) -> np.ndarray:
    """The array in the bytes of a file; a `ValueError` where there is none that can be read safely."""
    stream = io.BytesIO(content)
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(stream)
        there, stated = len(content) - stream.tell(), math.prod(shape) * dtype.itemsize
        if dtype.hasobject or there != stated:
            raise ValueError("it holds objects" if dtype.hasobject else f"{there:,} of {stated:,} bytes are there")
        return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape, order="F" if by_columns else "C")
    except Exception as error:
        raise ValueError(str(error).partition("\n")[0][:200]) from None


def mapped_as(
    path: Path, dtype: Any, shape: tuple[int, ...], described_by: str, mode: Literal["r", "r+"] = "r"
) -> np.memmap:
    """The same, of an array that another file describes."""
    array = mapped(path, mode)
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(
            f"{path.name} holds {array.dtype} of shape {array.shape}, which is not what {described_by} says"
        )
    return array


# Room on the disk for what would not fit into memory: nameless files that go with the process, however it ends.


def scratch_place() -> str:
    """``TMPDIR`` where it is set, else ``/var/tmp``, which is on a disk: ``/tmp`` is in memory on many machines."""
    usual = Path("/var/tmp")
    if "TMPDIR" not in os.environ and usual.is_dir() and os.access(usual, os.W_OK):
        return str(usual)
    return tempfile.gettempdir()


def scratch_file() -> IO[bytes]:
    """A file without a name, to write and to read."""
    place = scratch_place()
    try:
        return tempfile.TemporaryFile(dir=place)
    except OSError as error:
        raise cannot_keep(error) from None


def scratch_array(length: int, kind: Any) -> np.ndarray:
    """An array of zeros in such a file: its pages are the file's, not the process's own memory."""
    kind = np.dtype(kind)
    if not length:
        return np.empty(0, kind)
    with scratch_file() as file:  # the mapping keeps it
        try:
            # A full disk is said now; a page that cannot be written later would end the process without a word.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, length * kind.itemsize)
            else:
                file.truncate(length * kind.itemsize)
            return np.asarray(np.memmap(file, kind, "r+", shape=(length,)))
        except OSError as error:
            raise cannot_keep(error) from None


def cannot_keep(error: OSError) -> MachineError:
    reason = error.strerror or error
    return MachineError(f"cannot keep what does not fit into memory in {scratch_place()}: {reason}; set TMPDIR")


def hash_of(text: str, key: bytes = b"") -> int:
    """Eight bytes that are the same in every process, unlike Python's own hash. Never 0."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big") or 1
