"""One measurement in a process of its own: a job as JSON on the command line, what came of it as one line of JSON."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import jobs

# The module that knows a tool. Each is imported alone: what a tool needs to start is part of its memory.
MODULES = {
    jobs.OURS: "ours",
    jobs.HF: "marian",
    jobs.HF_EVERYWHERE: "marian",
    jobs.TORCH: "plain",
    jobs.JOEY: "joey",
    jobs.JOEY_OWN: "joey",
    jobs.CT2: "engine",
    jobs.LIMIT: "limit",
}


def peak_memory() -> float | None:
    """Megabytes resident at the most (Linux)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    return next(int(line.split()[1]) / 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM:"))


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    if job["tool"] != jobs.CT2:
        import torch

        torch.set_num_threads(job["threads"])
        torch.manual_seed(0)
    tool = importlib.import_module(MODULES[job["tool"]])
    found = getattr(tool, job["kind"])(job)
    about = {"seconds": found.seconds, "count": found.amount, "rate": found.amount / found.seconds, **found.more}
    print(json.dumps({**about, "peak": peak_memory()}), flush=True)


if __name__ == "__main__":
    main()
