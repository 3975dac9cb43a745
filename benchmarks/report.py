"""What the benchmarks share: timing that survives a noisy machine, peak memory, and the page of results."""

import multiprocessing
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "RESULTS.md"


def write_section(name: str, body: str) -> None:
    """Put a section between its markers in RESULTS.md, or at the end where there are none yet."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    if start not in text:
        text = (text.rstrip() + "\n\n").lstrip() + f"{start}\n{end}\n"
    before, after = text.split(start)[0], text.split(end)[1]  # a marker without its partner is an error, not a guess
    RESULTS.write_text(f"{before}{start}\n{body}\n{end}{after}", encoding="utf-8")


def interleaved(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each run, taken in turn: a slow moment of the machine hits all of them alike."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            started = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - started)
    return times


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    """The median over rounds of ours ÷ theirs, both from the same round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def extra_memory(prepare: Callable[..., Callable[[], Any]], *arguments: Any) -> float:
    """Megabytes that ``prepare(*arguments)()`` needs at its peak, beyond what was there before, in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_measure_memory, prepare, arguments).result()


def _measure_memory(prepare: Callable[..., Callable[[], Any]], arguments: tuple[Any, ...]) -> float:
    run = prepare(*arguments)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew (Linux)
    before = _status("VmRSS")
    run()
    return (_status("VmHWM") - before) / 1024


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")


def machine() -> str:
    """What the figures were measured on."""
    import torch

    name = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            name = line.partition(":")[2].strip()
            break
    return f"{name}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}, float32"
