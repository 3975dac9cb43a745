"""Every task killed in training and gone on with, the same seed twice, and one thread against two: what is equal.

    python benchmarks/kills.py --work FOLDER [--kills 30] [--tasks tag grid …] [--part kills seed threads] [--write]

Data and models are those of the frozen runs of the tests (`tests/fixtures/runs/make.py`), so the script needs the
repository. ``--part kills``: one training of each task is killed with SIGKILL ``--kills`` times, each time within
training (behind another checkpoint, at a random moment of a step or of a write), and resumed by command; all
parameters, the optimiser, the random state and the scores must be those of a training without a break. ``--part seed``:
the same command twice. ``--part threads``: with one and with two threads. It exits with 1 where kills or the same seed
change anything.
"""

import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from report import machine, write_section
from sightline.errors import UserError
from sightline.tasks.registry import stored_task
from sightline.training.checkpoint import OPTIMISER, checkpoints, read_progress
from sightline.training.folder import CONFIG, MODEL, RunFolder, load_tensors

RUNS = Path(__file__).parents[1] / "tests" / "fixtures" / "runs"
TASKS = ("classify-text", "classify-image", "tag", "span", "pretrain", "caption", "grid", "translate", "transcribe")
ROWS = {"grid": 12, "caption": 16, "classify-image": 20}
PARTS = ("kills", "seed", "threads")
A_KILL = 10  # steps of a training for each kill, so that all of them fall within it
NOT_COMPARED = ("seconds", "tokens_per_second", "loss")
LONGEST = 0.05  # seconds from a new checkpoint to a kill


class Sample:
    """The data and the configuration of a task in a folder, and the command that trains it."""

    def __init__(self, kind: str, folder: Path, steps: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        about = json.loads((RUNS / kind / "run" / CONFIG).read_text(encoding="utf-8"))
        self.task, self.folder = stored_task(about["task"], folder).name, folder
        make = _make()
        make.KINDS[kind][0](folder, "data", 1, ROWS.get(kind, 40))
        (self.data,) = folder.glob("data.*")
        # A checkpoint at every step; several validations; no end but the number of steps.
        changed = {"steps": steps, "validate_every": max(1, steps // 4), "save_minutes": 1e-9, "patience": 10**6}
        about["config"]["training"] |= {**changed, "averaged": 3}
        (folder / "given.json").write_text(json.dumps(about["config"]), encoding="utf-8")

    def train(self, name: str, threads: int = 1) -> list[str]:
        words = ["train", self.task, "--data", self.data, "--out", self.folder / name]
        return _command(*words, "--config", self.folder / "given.json", "--threads", threads)


def _make() -> Any:
    """The module that makes the data of the frozen runs."""
    sys.path.insert(0, str(RUNS.parents[1] / "helpers"))
    spec = importlib.util.spec_from_file_location("make_runs", RUNS / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    return make


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "sightline", *map(str, words)]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _step(run: Path) -> int:
    try:
        paths = checkpoints(run)
        return read_progress(paths[-1]).step if paths else 0
    except (OSError, UserError):  # it is being replaced
        return 0


def killed(sample: Sample, kills: int, steps: int) -> int:
    """How many SIGKILLs fell within training; at the end it is trained to its end."""
    run, draw, count = sample.folder / "killed", random.Random(sample.task), 0
    resume = _command("resume", run, "--threads", 1)
    for number in range(kills):
        after = max(_step(run), steps * number // (kills + 1))
        command = resume if (run / "checkpoints").exists() else sample.train("killed")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            if after < _step(run) < steps:
                time.sleep(LONGEST * draw.random())
                process.kill()
                count += process.wait() == -9
                break
            time.sleep(0.002)
    _run(resume)
    return count


def state(run: Path) -> dict[str, torch.Tensor]:
    """Everything that a run ends with: its weights, and parameters, optimiser and random state of its last step."""
    last = checkpoints(run)[-1]
    tensors = {f"run.{name}": one for name, one in load_tensors(run / MODEL).items()}
    for file in (MODEL, OPTIMISER):
        tensors |= {f"{file}.{name}": one for name, one in load_tensors(last / file).items()}
    return tensors


def difference(one: Path, other: Path) -> str:
    """What differs between two runs in one phrase; "" where nothing does. Times are not compared."""
    states = state(one), state(other)
    if states[0].keys() != states[1].keys():
        return "tensors of other names"
    unequal = [name for name, tensor in states[0].items() if not torch.equal(tensor, states[1][name])]
    if unequal:
        most = max(float((states[0][name].double() - states[1][name].double()).abs().max()) for name in unequal)
        return f"{len(unequal)} of {len(states[0])} tensors, by {most:.1e} at most"
    return "" if _scores(one) == _scores(other) else "scores"


def _scores(run: Path) -> list[dict[str, object]]:
    """Without times, and without the mean loss since the last validation: since a resume, it is that of fewer steps."""
    lines = RunFolder(run).metrics()
    return [{name: one for name, one in line.items() if not name.startswith(NOT_COMPARED)} for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--tasks", nargs="+", default=TASKS, choices=TASKS)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    os.environ["PYTHONHASHSEED"] = "random"
    steps, failed = max(20, A_KILL * options.kills), False
    names = ("task", "SIGKILLs within training", "killed and resumed", "same seed again", "two threads")
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for kind in options.tasks:
        sample, began = Sample(kind, options.work / kind, steps), time.monotonic()
        _run(sample.train("whole"))
        whole, cells = sample.folder / "whole", {"count": "–", "kills": "–", "seed": "–", "threads": "–"}
        if "kills" in options.part:
            cells["count"] = str(killed(sample, options.kills, steps))
            cells["kills"] = difference(whole, sample.folder / "killed") or "equal"
        for part, threads in (("seed", 1), ("threads", 2)):
            if part in options.part:
                _run(sample.train(part, threads))
                cells[part] = difference(whole, sample.folder / part) or "equal"
        failed |= any(cells[part] not in ("equal", "–") for part in ("kills", "seed"))
        lines.append(f"| {kind} | {' | '.join(cells.values())} |")
        print(lines[-1], f"{time.monotonic() - began:.0f} s", flush=True)
    about = f'{steps:,} steps of the small models of the tests, a checkpoint at every step. "equal": bit for bit.'
    print("\n".join(lines))
    if options.write:
        page = ["## Killed, repeated, with two threads", "", about, "", *lines, "", machine()]
        write_section("kills", "\n".join(page))
    sys.exit(failed)


if __name__ == "__main__":
    main()
