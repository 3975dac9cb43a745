"""Keep freed memory in the process: glibc returns large tensors to the system after every step.

Allocating them again costs page faults, a third of the time of a training step of a small model. Raised thresholds keep
the memory. Huge pages, where the system offers them, gain 2 to 4 % more. Only the command line calls this: a library
must not change the allocator of the process that imports it.
"""

import ctypes
import functools
import sys
import threading

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_LARGEST = 2**31 - 1
_MADV_HUGEPAGE, _PAGE = 14, 1 << 21
_ROOM = 1 << 30


@functools.cache
def keep_memory() -> bool:
    """Raise glibc's thresholds for this process, once. True where that is possible: on Linux with glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        library = ctypes.CDLL("libc.so.6")
        mallopt = library.mallopt
    except (OSError, AttributeError):  # another C library
        return False
    kept = bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) or bool(mallopt(_MMAP_MAX, 0))
    kept = bool(mallopt(_TRIM_THRESHOLD, _LARGEST)) and kept
    if kept and threading.current_thread() is threading.main_thread():  # others have heaps of their own
        _ask_for_large_pages(library)
    return kept


def _ask_for_large_pages(library: ctypes.CDLL) -> None:
    """For the next gigabyte of the heap: fewer entries of the processor's address cache then cover it.

    The room is allocated and freed at once: with the thresholds raised the heap keeps it, and its pages take no memory
    until they are written to. Where the system has no such pages, or too little room, nothing changes.
    """
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    place = library.malloc(_ROOM)
    if place is None:
        return
    begin, end = -(-place // _PAGE) * _PAGE, (place + _ROOM) // _PAGE * _PAGE
    library.madvise(begin, end - begin, _MADV_HUGEPAGE)
    library.free(place)
