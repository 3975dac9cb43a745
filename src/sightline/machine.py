"""Options of the machine, checked once for every command."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from sightline.errors import UserError

MOST_THREADS = 1024


def set_threads(threads: int | None) -> None:
    """Use this many processor threads; None leaves the choice to PyTorch."""
    if threads is None:
        return
    if not 1 <= threads <= MOST_THREADS:
        raise UserError(f"--threads is {threads}; it must be at least 1 and at most {MOST_THREADS}")
    torch.set_num_threads(threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """For work in pieces so small that waking a second thread takes longer than it helps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_seed(seed: int) -> int:
    """A seed that PyTorch takes."""
    if not 0 <= seed < 2**63:
        raise UserError(f"--seed is {seed}; it must be at least 0 and below 2^63")
    return seed


def choose_device(name: str) -> str:
    """The device to use: auto is a graphics card where there is one."""
    available = ["cpu"]
    if torch.cuda.is_available():
        available.insert(0, "cuda")
    if name == "auto":
        return available[0]
    if name not in available:
        raise UserError(f"--device is {name}; here there is {' and '.join(available)}")
    return name


CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def whole_memory() -> int | None:
    """The bytes of memory that this machine has, or that its container may use; None if unknown."""
    known = []
    names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
    if hasattr(os, "sysconf") and {*names} <= {*os.sysconf_names}:
        pages, size = map(os.sysconf, names)
        known.append(pages * size if min(pages, size) > 0 else 0)
    with suppress(OSError, ValueError):  # "max" is no number
        known.append(int(CONTAINER_LIMIT.read_text()))
    return min((one for one in known if one > 0), default=None)


def forget_peak() -> None:
    """Measure the peak of memory from here on, where the system can (Linux)."""
    if sys.platform == "linux":
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int | None:
    """The most bytes this process has held, since `forget_peak` where that works; None if unknown."""
    if sys.platform == "linux":
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
