"""Corpora that do not fit: what preparing, training and going on take with very many pairs, beside few of them.

    python benchmarks/corpora.py --pairs 10000000 --work FOLDER --write

The pairs are made here, in a folder of shards. Each part runs in a process of its own, whose anonymous memory (RssAnon:
what is its own, and no page of a file) is looked at twenty times a second, that of its workers with it: preparing, then
``--steps`` steps of a tiny model; there the process ends at once, as if killed, and another goes on from the last
checkpoint, of nine tenths of the steps.
"""

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from report import machine, write_section

SHARDS = 16
# A checkpoint at validations only: the place to go on from is to be known.
SETTINGS = ["batch_tokens=1024", "validated=20", "training.save_minutes=1e6"]
FEW = 29_000


def make_pairs(folder: Path, count: int) -> None:
    """Sentences of made-up words, and the same with every word backwards."""
    part = folder.with_name(f".{folder.name}.part")  # made wholly, or not there
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    random = np.random.default_rng(0)
    syllables = ["".join(letters) for letters in itertools.product("bdfgklmnprstvz", "aeiou")]
    words = ["".join(random.choice(syllables, random.integers(1, 5))) for _ in range(50_000)]
    both = np.array([words, [word[::-1] for word in words]], dtype=object)
    per_shard = -(-count // SHARDS)
    for shard in range(SHARDS):
        with (part / f"part-{shard:02}.tsv").open("w", encoding="utf-8") as file:
            file.write("source\ttarget\n")
            for start in range(0, min(per_shard, max(0, count - shard * per_shard)), 10_000):
                some = min(10_000, per_shard - start, count - shard * per_shard - start)
                ends = np.cumsum(np.clip(random.lognormal(2.0, 0.5, some), 1, 40).astype(int))
                drawn = (len(words) * random.random(ends[-1]) ** 3).astype(int)
                sides = both[:, drawn].tolist()
                places = itertools.pairwise([0, *ends.tolist()])
                rows = ("\t".join(" ".join(side[a:b]) for side in sides) for a, b in places)
                file.write("\n".join(rows) + "\n")
    part.rename(folder)


def anonymous(pid: int) -> float:
    """Megabytes of a process and of those it started."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                total += int(line.split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it is gone
        return total / 1024
    return total / 1024 + sum(anonymous(int(child)) for child in children)


class Watch(threading.Thread):
    """The most memory since it was last asked."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0.0
        self.start()

    def run(self) -> None:
        while True:
            self.most = max(self.most, anonymous(os.getpid()))
            time.sleep(0.05)

    def take(self) -> float:
        found, self.most = self.most, 0.0
        return round(found, 1)


def child(data: Path, run: Path, begun: float, steps: int, going_on: bool) -> None:
    """What is measured, in a process of its own; its last line of output is what was found."""
    from sightline.cli.common import set_up
    from sightline.cli.train import preset
    from sightline.config import override
    from sightline.data.progress import watched
    from sightline.data.source import Source
    from sightline.tasks.train import train_task
    from sightline.tasks.translate import TRANSLATE
    from sightline.training.steps import Event

    watch, found = Watch(), dict[str, float]()
    set_up(1)
    limits = [f"training.steps={2 * steps}", f"training.validate_every={3 * steps // 10}"]
    config = override(preset(TRANSLATE.variants[0]), [*SETTINGS, *limits])
    stages: dict[str, float] = {}

    def on_progress(stage: str, done: int, total: int | None) -> None:
        stages[stage] = round(time.time() - begun, 1)

    def on_report(prepared: object, model: object) -> None:
        found.update(prepared=time.time() - begun, preparing_memory=watch.take())

    def on_step(event: Event) -> None:
        step = event.progress.step
        if "first" not in found:
            found.update(first=time.time() - begun, step=step)
        if step in (steps // 10, steps):
            found["memory" if step == steps else "memory_at_first"] = watch.take()
        if going_on or step == steps:
            print(json.dumps({**found, "stages": stages}), flush=True)
            os._exit(0)  # as a killed process ends: nothing more is saved

    with watched(on_progress):
        source = None if going_on else Source(str(data))
        train_task(TRANSLATE, source, run, config, on_report=on_report, on_step=on_step)


def measured(data: Path, run: Path, steps: int, going_on: bool = False) -> dict[str, float]:
    words = [sys.executable, __file__, "--child", str(data), "--work", str(run), "--steps", str(steps)]
    words += ["--begun", str(time.time())]
    done = subprocess.run([*words, *(["--going-on"] if going_on else [])], stdout=subprocess.PIPE, text=True)
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"{' '.join(words)} failed")
    return json.loads(done.stdout.strip().splitlines()[-1])


def of(count: int, work: Path, steps: int) -> dict[str, float]:
    """All that is measured of so many pairs."""
    data, run = work / f"pairs-{count}", work / f"run-{count}"
    if not data.exists():
        make_pairs(data, count)
    found = measured(data, run, steps)
    print(f"{count:,} pairs: {found}", flush=True)
    again = measured(data, run, steps, going_on=True)
    print(f"{count:,} pairs, going on: {again}", flush=True)
    if again["step"] != 9 * steps // 10 + 1:
        raise SystemExit(f"it went on at step {again['step']}, expected {9 * steps // 10 + 1}")
    disk = sum(path.stat().st_size for path in (run / "data").rglob("*") if path.is_file()) / 2**20
    return {
        "pairs": count,
        "preparing": found["prepared"],
        "speed": count / found["prepared"],
        "preparing_memory": found["preparing_memory"],
        "first": found["first"] - found["prepared"],
        "memory_at_first": found["memory_at_first"],
        "memory": found["memory"],
        "resume": again["first"],
        "disk": disk,
    }


ROWS = {
    "preparing": ("preparing, with the start of the program", "{:,.0f} s"),
    "speed": ("pairs/s", "{:,.0f}"),
    "preparing_memory": ("most anonymous memory while preparing, workers with it", "{:,.0f} MB"),
    "first": ("from there to the end of the first step", "{:.1f} s"),
    "memory_at_first": ("maximum anonymous memory in the first tenth of {steps:,} steps", "{:,.0f} MB"),
    "memory": ("in the other steps", "{:,.0f} MB"),
    "resume": (
        "resuming after step {kept:,}: from its start to the end of a step, files in the cache",
        "{:.1f} s",
    ),
    "disk": ("on the disk when prepared", "{:,.0f} MB"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a folder for data and runs")
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="put what was found into RESULTS.md")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--begun", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--going-on", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child is not None:
        child(chosen.child, chosen.work, chosen.begun, chosen.steps, chosen.going_on)
        return
    few, many = (of(count, chosen.work, chosen.steps) for count in (FEW, chosen.pairs))
    lines = [f"| | {few['pairs']:,} pairs | {many['pairs']:,} pairs |", "|---|--:|--:|"]
    for key, (name, form) in ROWS.items():
        said = name.format(steps=chosen.steps, kept=9 * chosen.steps // 10)
        lines.append(f"| {said} | {form.format(few[key])} | {form.format(many[key])} |")
    text = "\n".join(lines)
    print(text)
    if chosen.write:
        again = f"Reproduce: `python benchmarks/corpora.py --pairs {chosen.pairs} --work FOLDER --write`."
        write_section(
            "corpora", "\n\n".join(["## Corpora larger than memory", f"Measured on {machine()}.", text, again])
        )


if __name__ == "__main__":
    main()
