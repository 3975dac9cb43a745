"""`sightline resume RUN --verify STEPS`: train a copy, kill it, resume it, and compare with an uninterrupted copy."""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from sightline.errors import SightlineError, UserError
from sightline.training.checkpoint import OPTIMISER, checkpoints, read_progress
from sightline.training.folder import CHECKSUMS, LOCK, METRICS, MODEL, RunFolder, load_tensors

MOST_KILLS = 3
OFTEN = 0.001  # minutes between checkpoints in the copy that is killed
HURRIES = (1.0, 0.1, 1e-6)  # tried in turn: a small model may finish before it can be killed


def verify_command(run: Path, steps: int, threads: int | None, device: str) -> None:
    """Print whether every parameter is the same; exit with 1 if one is not."""
    if steps < 2:
        raise UserError(f"--verify is {steps}; training is killed between the steps: it must be at least 2")
    RunFolder.open(run)
    saved = checkpoints(run)
    start = read_progress(saved[-1]).step if saved else 0
    console = Console()
    with tempfile.TemporaryDirectory(prefix=".verify-", dir=run.absolute().parent) as name:
        whole, killed = Path(name) / "whole", Path(name) / "killed"
        _copy(run, whole)
        command = _command(start + steps, threads, device)
        with console.status(f"training {steps:,} steps from step {start:,} without interruption"):
            _run(command(whole))
        with console.status("the same, killed at random moments"):
            for hurry in HURRIES:
                shutil.rmtree(killed, ignore_errors=True)
                _copy(run, killed)
                often = f"training.save_minutes={OFTEN * hurry:.9f}"
                if moments := _run_killed([*command(killed), often], killed, start, start + steps, hurry):
                    break
        _compare(whole, killed, start + steps, moments, console)


def _copy(run: Path, to: Path) -> None:
    """Copy what training needs. Files that are replaced but never changed are linked, not copied."""

    def link(source: str, target: str) -> None:
        try:
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    last = checkpoints(run)[-1:]
    skipped = {"tensorboard", LOCK, CHECKSUMS, *(path.name for path in run.glob(".*.part*"))}

    def ignored(folder: str, names: list[str]) -> set[str]:
        if Path(folder) == run / "checkpoints":
            return set(names) - {path.name for path in last}
        return set(names) & skipped if Path(folder) == run else set()

    shutil.copytree(run, to, copy_function=link, ignore=ignored)
    if (to / METRICS).exists():  # the only file that is changed, not replaced
        (to / METRICS).unlink()
        shutil.copy2(run / METRICS, to / METRICS)


def _command(goal: int, threads: int | None, device: str) -> Callable[[Path], list[str]]:
    limits = [f"steps={goal}", "epochs=null", "minutes=null", "patience=1000000000"]

    def command(run: Path) -> list[str]:
        words = [sys.executable, "-P", "-m", "sightline", "resume", str(run), "--device", device]
        words += ["--threads", str(threads)] if threads is not None else []
        return [*words, "--set", *limits]

    return command


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SightlineError(f"training the copy failed: {(done.stderr or done.stdout).strip()[-500:]}")


def _run_killed(command: list[str], run: Path, start: int, goal: int, hurry: float) -> list[int]:
    """Kill it once or a few times, sooner with a smaller ``hurry``; returns the steps of the last checkpoints then."""
    generator, moments = random.Random(goal), list[int]()
    kills = max(1, min(MOST_KILLS, (goal - start) // 20))
    for number in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        earliest = start + max(1, round(hurry * (goal - start) * (number + generator.random()) / kills))
        while process.poll() is None:
            saved = checkpoints(run)
            if saved and earliest <= read_progress(saved[-1]).step < goal:
                time.sleep(generator.random() * 0.2 * hurry)  # at any moment: within a step, within a write
                process.kill()
                process.wait()
                moments.append(read_progress(checkpoints(run)[-1]).step)
                break
            time.sleep(0.005)
    _run(command)
    return moments


def _compare(whole: Path, killed: Path, goal: int, moments: list[int], console: Console) -> None:
    if not moments:
        raise UserError("training ended before it could be killed; give more steps to --verify")
    ends = [folder / "checkpoints" / f"step-{goal}" for folder in (whole, killed)]
    states = [{**load_tensors(path / MODEL), **load_tensors(path / OPTIMISER)} for path in ends]
    differing = sorted(states[0].keys() ^ states[1].keys()) or [
        name for name, tensor in states[0].items() if not tensor.equal(states[1][name])
    ]
    progress = [replace(read_progress(path), seconds=0.0) for path in ends]
    if differing or progress[0] != progress[1]:
        what = differing[0] if differing else f"the position ({progress[0]} and {progress[1]})"
        raise SightlineError(f"killed at step {_listed(moments)} and resumed, the run ends differently: {what} differs")
    numbers = sum(tensor.numel() for tensor in load_tensors(ends[0] / MODEL).values())
    console.print(
        f"killed after step {_listed(moments)} and resumed, the run at step {goal:,} equals an uninterrupted run: all "
        f"{numbers:,} parameters, the optimiser and the random state are equal bit for bit",
        highlight=False,
        soft_wrap=True,
    )


def _listed(steps: list[int]) -> str:
    return ", ".join(f"{step:,}" for step in steps)
