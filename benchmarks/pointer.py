"""Pointer networks on made data: how often all positions are right, and how much of a hull is covered.

    python benchmarks/pointer.py train --work FOLDER [--only sort] [--scale 0.1]
    python benchmarks/pointer.py report --work FOLDER [--write]

`train` trains with one thread, for the minutes of the table. `report` scores the runs that are there on sequences that
other seeds draw, one for each test set, and gives 95 % intervals of 2,000 resamples. A predicted hull is valid where it
is a simple polygon: three or more points, none twice, no two sides that meet elsewhere than at a point they share. Its
area is a share of that of the true hull (Vinyals et al. 2015, section 4.2).
"""

import argparse
import os
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from report import machine, write_section

SAMPLES = 2000


class Experiment(NamedTuple):
    """What is trained on, minutes of training, what is set, and the test sets by name."""

    data: str
    minutes: float
    settings: tuple[str, ...]
    tests: dict[str, str]


LONG = ("training.patience=100000",)
EXPERIMENTS = {
    "sort": Experiment(
        "made:sort", 10, LONG,
        {"5–10": "made:sort:count=1000:seed=101", "20": "made:sort:lengths=20:count=500:seed=102"},
    ),
    "sort-20": Experiment(
        "made:sort:lengths=5-20", 20, LONG,
        {"5–10": "made:sort:count=1000:seed=103", "20": "made:sort:lengths=20:count=500:seed=104"},
    ),
    "convex-hull": Experiment(
        "made:convex-hull", 20, LONG,
        {"5–10": "made:convex-hull:count=1000:seed=105", "20": "made:convex-hull:lengths=20:count=500:seed=106"},
    ),
}  # fmt: skip


def train(name: str, work: Path, scale: float) -> None:
    """Train one; what is there is left as it is."""
    one, here = EXPERIMENTS[name], work / name
    if (here / "run" / "card.md").exists():
        return
    here.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src"), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "sightline", "train", "sequence", "--data", one.data, "--model", "pointer"]
    line += ["--out", str(here / "run"), "--overwrite", "--minutes", str(one.minutes * scale), "--threads", "1"]
    began = time.time()
    done = subprocess.run([*line, "--set", *one.settings], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}:\n{done.stderr[-2000:]}")
    log = f"{done.stdout}{done.stderr}\n{time.time() - began:.0f} seconds in all\n"
    (here / "log.txt").write_text(log, encoding="utf-8")
    print(name, done.stdout.strip().splitlines()[-3], flush=True)


# -- polygons


def area(points: np.ndarray) -> float:
    """Of a simple polygon (Gauss's formula)."""
    x, y = points[:, 0], points[:, 1]
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2


def _side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    return float(np.sign((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])))


def _between(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> bool:
    """Whether c, which is on the line through a and b, is between them."""
    return bool((np.minimum(a, b) <= c).all() and (c <= np.maximum(a, b)).all())


def meet(a: np.ndarray, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> bool:
    """Whether the sides a b and c d have a point in common."""
    sides = _side(a, b, c), _side(a, b, d), _side(c, d, a), _side(c, d, b)
    if sides[0] != sides[1] and sides[2] != sides[3]:
        return True
    ends = ((a, b, c), (a, b, d), (c, d, a), (c, d, b))
    return any(side == 0 and _between(*end) for side, end in zip(sides, ends, strict=True))


def is_simple(points: np.ndarray) -> bool:
    """Whether these points, one behind the other, are a simple polygon."""
    count = len(points)
    if count < 3 or len({tuple(point) for point in points.tolist()}) < count:
        return False
    sides = [(points[place], points[(place + 1) % count]) for place in range(count)]
    apart = ((i, j) for i, j in combinations(range(count), 2) if j - i not in (1, count - 1))
    return not any(meet(*sides[i], *sides[j]) for i, j in apart)


# -- scores


def interval(values: np.ndarray, seed: int = 0) -> str:
    """The mean of per cents, and where 95 % of the means of resamples are."""
    if not len(values):
        return "–"
    draws = np.random.default_rng(seed).integers(0, len(values), (SAMPLES, len(values)))
    low, high = np.percentile(values[draws].mean(axis=1), [2.5, 97.5])
    return f"{values.mean():.1f} ({low:.1f}–{high:.1f})"


def scored(run: Path, data: str) -> tuple[str, str, str]:
    """Of a test set: all positions right, and of hulls those that are valid, and the area that these cover."""
    import torch

    import sightline
    from sightline.synthetic.made import MadeData

    torch.set_num_threads(1)
    rows: list[Any] = list(MadeData.read(data).rows())
    made: Any = sightline.load(run).predict([x for x, _ in rows])
    chosen = [np.array(one.positions, np.int64) for one in made]
    exact = np.array([100.0 * np.array_equal(own, y) for own, (_, y) in zip(chosen, rows, strict=True)])
    if "hull" not in data:
        return interval(exact), "", ""
    pairs = [(x[own], x[y]) for own, (x, y) in zip(chosen, rows, strict=True)]
    valid = np.array([100.0 * is_simple(own) for own, _ in pairs])
    covered = [100 * area(own) / area(true) for own, true in pairs if is_simple(own)]
    return interval(exact), interval(valid), interval(np.array(covered))


def report(work: Path) -> list[str]:
    lines = ["| in % (95 % interval) | numbers, points | exact | valid polygons | area covered by these |"]
    lines.append("|---|---|--:|--:|--:|")
    for name, one in EXPERIMENTS.items():
        if (work / name / "run" / "model.safetensors").exists():
            for test, data in one.tests.items():
                lines.append(f"| {name} | {test} | {' | '.join(scored(work / name / 'run', data))} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("train", "report"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=EXPERIMENTS, default=list(EXPERIMENTS))
    parser.add_argument("--scale", type=float, default=1.0, help="of the minutes of training")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    work = options.work.resolve()
    if options.verb == "train":
        for name in options.only:
            train(name, work, options.scale)
        return
    lines = report(work)
    print("\n".join(lines))
    if options.write:
        minutes = ", ".join(f"{name} {one.minutes:g}" for name, one in EXPERIMENTS.items())
        title = f"## Pointer networks\n\nMeasured on {machine()}. One thread; minutes of training: {minutes}."
        how = "Reproduce: `python benchmarks/pointer.py train --work FOLDER`, then `report … --write`."
        write_section("pointer", "\n".join([title, "", *lines, "", how]))


if __name__ == "__main__":
    main()
