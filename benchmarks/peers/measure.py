"""Runs the jobs, each in a process of its own, in turn over the tools; keeps what they say as it comes."""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from environment import HERE, REPOSITORY, variables
from jobs import Job
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sightline.errors import UserError
from sightline.files import write_text

EVERY = 0.05  # seconds between two looks at a worker's memory


class Results:
    """What was measured, in a file that is whole after every measurement."""

    def __init__(self, path: Path, settings: dict[str, Any], again: bool) -> None:
        self.path, self.settings = path, settings
        self.found: dict[str, list[dict[str, Any]]] = {}
        if again or not path.exists():
            return
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = [name for name, value in settings.items() if before["settings"].get(name) != value]
        if changed:
            raise UserError(
                f"{path} was measured with other {' and '.join(changed)}: what is measured must be measured together; "
                f"begin anew with --again, or choose another --work"
            )
        self.found = before["found"]

    def of(self, job: Job) -> list[dict[str, Any]]:
        return self.found.get(job.key, [])

    def add(self, job: Job, result: dict[str, Any]) -> None:
        self.found.setdefault(job.key, []).append(result)
        write_text(self.path, json.dumps({"settings": self.settings, "found": self.found}, ensure_ascii=False))


def code_mark() -> str:
    """Changes with our code: speed measured before an edit says nothing of the code after it."""
    mark = hashlib.sha256()
    for folder in (REPOSITORY / "src" / "sightline", HERE):
        for path in sorted(folder.rglob("*.py")):
            if not any(part.startswith(".") for part in path.relative_to(folder).parts):
                mark.update(path.read_bytes())
    return mark.hexdigest()[:12]


def measure(
    jobs: Sequence[Job], repeats: int, results: Results, threads: int, limit: float, console: Console
) -> list[str]:
    """Every job ``repeats`` times: once through all of them, then again, so that a slow hour hits all alike.

    Says what failed.
    """
    failed: list[str] = []
    columns = [TextColumn("{task.description}"), BarColumn(bar_width=12), MofNCompleteColumn()]
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as progress:
        left = sum(max(0, repeats - len(results.of(job))) for job in jobs)
        task = progress.add_task("", total=left)
        for number in range(repeats):
            for job in jobs:
                if len(results.of(job)) > number:
                    continue
                what = f"{number + 1}/{repeats} {job.label}: [bold]{job.tool}[/bold]"
                progress.update(task, description=what)
                result = run(job, threads, limit)
                if "error" in result:
                    line = f"{job.group}, {job.label}, {job.tool}: {result['error']}"
                    console.print(line, style="red", markup=False, highlight=False)
                    failed.append(line)
                else:
                    results.add(job, result)  # what failed is tried again next time
                progress.advance(task)
    return list(dict.fromkeys(failed))


def run(job: Job, threads: int, limit: float) -> dict[str, Any]:
    """One worker to its end, and the most memory of its own that it was seen to hold."""
    command = [sys.executable, str(HERE / "worker.py"), json.dumps(job.message(threads=threads))]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begun = time.monotonic()
        worker = subprocess.Popen(command, stdout=output, stderr=errors, cwd=HERE, env=variables(threads))
        anonymous = 0.0
        try:
            while worker.poll() is None:
                anonymous = max(anonymous, _anonymous(worker.pid))
                if time.monotonic() - begun > limit:
                    return {"error": f"was not done after {limit:g} seconds"}
                time.sleep(EVERY)
        finally:
            worker.kill()
            worker.wait()
        for file in (output, errors):
            file.seek(0)
        if worker.returncode:
            lines = errors.read().strip().splitlines() or [f"ended with code {worker.returncode}"]
            return {"error": lines[-1]}
        found: dict[str, Any] = json.loads(output.read().splitlines()[-1])
    return {**found, "anonymous": anonymous or None, "whole": time.monotonic() - begun}


def _anonymous(process: int) -> float:
    """Megabytes that are the process's own, not mapped files (Linux; elsewhere 0)."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:")), 0.0)
