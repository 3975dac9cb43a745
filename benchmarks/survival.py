"""Runs that survive: killed fifty times, in two processes, with a worker lost; each compared with a run left in peace.

    python benchmarks/survival.py --work FOLDER --write

The data is made here. ``--part kills``: one training of ``--steps`` steps is killed with SIGKILL at random moments,
``--kills`` times, from its first second on (while data is prepared, within steps, within writes), and gone on with by
the command a user gives; its parameters must be those of a run without a break. ``--part processes``: tokens a second
of one process with one and with two threads, and of two processes. ``--part worker``: `torchrun` with two workers, one
of which is killed; the launcher starts them anew, and as many examples must have been seen.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from report import machine, write_section
from sightline.errors import SightlineError
from sightline.training.checkpoint import OPTIMISER, checkpoints, read_progress
from sightline.training.folder import CONFIG, LOCK, MODEL, RunFolder, load_tensors

SETTINGS = ["training.validate_every=50", "training.save_minutes=0.02", "batch_tokens=1024", "validated=50"]


def make_pairs(path: Path, count: int) -> None:
    """Numbers of five digits, and the same backwards with blanks between them."""
    draw = random.Random(0)
    rows = (f"{number} {number * 7 % 99_991}" for number in draw.choices(range(10_000, 99_999), k=count))
    path.write_text("source\ttarget\n" + "".join(f"{row}\t{' '.join(row[::-1])}\n" for row in rows), encoding="utf-8")


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "sightline", *map(str, words)]


def training(data: Path, run: Path, steps: int, threads: int, *settings: str) -> list[str]:
    words = ("train", "translate", "--data", data, "--out", run, "--steps", steps, "--threads", threads)
    return command(*words, "--set", *SETTINGS, *settings)


def going_on(run: Path, fresh: list[str], threads: int) -> list[str]:
    """What a user would give: resume where there is a run, and the first command again where there is none yet."""
    return command("resume", run, "--threads", threads) if (run / CONFIG).exists() else fresh


def finish(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {done.stderr[-800:]}")


def state_of(run: Path) -> dict[str, object]:
    last = checkpoints(run)[-1]
    used = {f"used.{name}": tensor for name, tensor in load_tensors(run / MODEL).items()}
    return {**load_tensors(last / MODEL), **load_tensors(last / OPTIMISER), **used}


def kills(work: Path, count: int, steps: int) -> str:
    """The run that is killed, and what came of it."""
    data, whole, killed = work / "pairs.tsv", work / "whole", work / "killed"
    make_pairs(data, 20_000)
    finish(training(data, whole, steps, 2))
    fresh, draw = training(data, killed, steps, 2), random.Random(1)
    where: dict[str, int] = {}
    done, step, began = 0, 0, time.perf_counter()
    while done < count:
        process = subprocess.Popen(
            going_on(killed, fresh, 2), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            process.wait(timeout=draw.uniform(0.2, 12.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
            found = checkpoints(killed)
            before, step = step, read_progress(found[-1]).step if found else 0
            if step > before:
                stage = "after new checkpoints"
            elif found:
                stage = "before a new checkpoint"
            else:
                stage = "before the first checkpoint" if (killed / CONFIG).exists() else "while preparing"
            where[stage] = where.get(stage, 0) + 1
            print(f"killed {done} times, {stage}; the last checkpoint is of step {step}", flush=True)
            continue
        if process.returncode:
            raise SystemExit(f"it did not go on: {process.stderr.read() if process.stderr else ''}")
        if (killed / "checksums.json").exists():
            raise SystemExit(f"it ended after {done} kills; give more --steps")
    finish(going_on(killed, fresh, 2))
    minutes = (time.perf_counter() - began) / 60
    states = state_of(whole), state_of(killed)
    differing = [name for name, tensor in states[0].items() if not tensor.equal(states[1][name])]  # type: ignore[attr-defined]
    left = [path.name for path in killed.rglob(".*") if path.name != LOCK]
    lines = [[(line["step"], line.get("final")) for line in RunFolder(run).metrics()] for run in (whole, killed)]
    differing += ["the lines of metrics.jsonl"] if lines[0] != lines[1] else []
    said = "equal, bit for bit" if not differing else f"NOT equal: {differing[:3]}"
    moments = ", ".join(f"{number} {stage}" for stage, number in where.items())
    return (
        f"{count} SIGKILLs at random moments ({moments}) through one training of {steps:,} steps, in {minutes:.0f} "
        f"minutes: parameters, optimiser and random state are {said}; files left over: {len(left)}."
    )


def launched(processes: int, words: list[str], restarts: int = 0) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    return [*launcher, "--max-restarts", str(restarts), *words[1:]]


def speed_of(run: Path) -> float:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    measured = [line["tokens_per_second"] for line in lines if "tokens_per_second" in line]
    return statistics.median(measured[1:])  # the first steps are slower


def processes(work: Path, rounds: int) -> str:
    """The same updates: two batches each, in one process or two."""
    data = work / "pairs.tsv"
    make_pairs(data, 20_000)
    ways = {
        "one process, one thread": (1, 1, "training.accumulate=2"),
        "one process, two threads": (1, 2, "training.accumulate=2"),
        "two processes, one thread each": (2, 1, "training.accumulate=1"),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for place, (name, (count, threads, setting)) in enumerate(ways.items()):
            run = work / f"speed-{number}-{place}"
            words = training(
                data, run, 300, threads, setting, "training.save_minutes=10", "training.validate_every=100"
            )
            finish(launched(count, words) if count > 1 else words)
            speeds[name].append(speed_of(run))
            print(f"{name}: {speeds[name][-1]:,.0f} tokens/s", flush=True)
    rows = [f"| {name} | {statistics.median(some):,.0f} |" for name, some in speeds.items()]
    return "\n".join(["| | target tokens/s |", "|---|--:|", *rows])


def worker(work: Path, steps: int) -> str:
    """The writing worker killed at a random moment, and in another run the other one; both are started anew."""
    data, whole = work / "pairs.tsv", work / "whole-two"
    make_pairs(data, 20_000)
    finish(launched(2, training(data, whole, steps, 1)))
    names = {0: "the one that writes", 1: "the other one"}
    return "\n\n".join(_lose(data, whole, work / f"lost-{which}", steps, which, name) for which, name in names.items())


def _step_of(run: Path) -> int:
    try:
        return read_progress(checkpoints(run)[-1]).step
    except (IndexError, SightlineError):  # none yet, or it made way for a newer one just now
        return 0


def _lose(data: Path, whole: Path, lost: Path, steps: int, which: int, name: str) -> str:
    process = subprocess.Popen(
        launched(2, training(data, lost, steps, 1), restarts=3), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    draw = random.Random(which)
    moment = draw.randrange(steps // 4, steps // 2)
    while _step_of(lost) < moment:
        time.sleep(0.02)
        if process.poll() is not None:
            raise SystemExit("training ended before a worker was killed; give more --steps")
    time.sleep(draw.uniform(0.0, 1.0))  # not always behind a checkpoint
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(children[which]), signal.SIGKILL)
    if process.wait() != 0:
        raise SystemExit("training did not go on after a worker was killed")
    ended = [read_progress(checkpoints(run)[-1]) for run in (whole, lost)]
    seen = "as many" if (ended[0].step, ended[0].tokens) == (ended[1].step, ended[1].tokens) else "NOT as many"
    return (
        f"Of two workers, {name} was killed some time after step {moment}: `torchrun --max-restarts` restarted both, "
        f"training ended at step {ended[1].step:,} with {ended[1].tokens:,} target tokens seen, {seen} as without "
        "the loss."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a new folder for runs")
    parser.add_argument("--part", nargs="+", choices=["kills", "processes", "worker"], default=[])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="put what was found into RESULTS.md")
    chosen = parser.parse_args()
    chosen.work.mkdir(parents=True)
    parts = chosen.part or ["kills", "processes", "worker"]
    found = []
    if "kills" in parts:
        found.append(kills(chosen.work, chosen.kills, chosen.steps))
    if "worker" in parts:
        found.append(worker(chosen.work, max(200, chosen.steps // 4)))
    if "processes" in parts:
        found.append(processes(chosen.work, chosen.rounds))
    text = "\n\n".join(found)
    print(text)
    if chosen.write:
        again = "Reproduce: `python benchmarks/survival.py --work FOLDER --write`."
        write_section("survival", "\n\n".join(["## Survival", f"Measured on {machine()}.", text, again]))


if __name__ == "__main__":
    main()
