"""Memory that is kept instead of given back: glibc returns large tensors to the system after every step.

Fetching them again costs page faults, a third of a training step of a small model. Raised thresholds keep them.
"""

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_LARGEST = 2**31 - 1


def keep_memory() -> bool:
    """Raise glibc's thresholds for this process. Says whether it could: on Linux with glibc it can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    kept = bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) or bool(mallopt(_MMAP_MAX, 0))
    return bool(mallopt(_TRIM_THRESHOLD, _LARGEST)) and kept
