"""Room on the disk for what would not fit into memory: nameless files that go with the process, however it ends."""

import os
import tempfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from sightline.errors import MachineError


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
