"""What a new user gets: the defaults on seven corpora, with the scores of two versions of the package side by side.

    python benchmarks/newcomer.py DATA --work FOLDER [--earlier SRC] [--only trec hotel] [--write]

DATA holds a folder for each corpus. Every training has one thread and the minutes of the table; with ``--earlier``, the
folder of another version's package, both versions train and score at the same time, so that a slow machine slows both.
Settings are the defaults; test data is scored once. Intervals are those of a bootstrap over the test rows.
"""

import argparse
import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from report import machine, write_section


class Corpus(NamedTuple):
    """A folder, its task, how many minutes to train, the score and the options of scoring."""

    folder: str
    task: str
    minutes: float
    score: str
    rows: int | None = None  # of the training data, drawn at random


CORPORA = {
    "multi30k": Corpus("translate-multi30k-en-de", "translate", 6, "bleu"),
    "sst2": Corpus("classify-sst2", "classify", 2, "accuracy"),
    "trec": Corpus("classify-trec", "classify", 2, "accuracy"),
    "imdb": Corpus("classify-imdb", "classify", 5, "accuracy"),
    "hotel": Corpus("classify-hotel-zh", "classify", 2, "accuracy"),
    "crackforest": Corpus("grid-crackforest", "grid", 4, "f1"),
    "flickr8k": Corpus("caption-flickr8k", "caption", 12, "bleu4", rows=1000),
}


def part(folder: Path, name: str) -> Path | None:
    return next((path for ending in (".tsv", ".tsv.gz") if (path := folder / f"{name}{ending}").exists()), None)


def some_images(path: Path, count: int, out: Path) -> Path:
    """The rows of so many images, drawn at random, with whole paths."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        header, *rows = file.read().strip("\n").split("\n")
    names = sorted({row.split("\t")[0] for row in rows})
    chosen = set(random.Random(0).sample(names, min(count, len(names))))
    kept = [str(path.parent / row) for row in rows if row.split("\t")[0] in chosen]
    out.write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")
    return out


def command(source: Path, *arguments: object) -> tuple[list[str], dict[str, str]]:
    line = [sys.executable, "-m", "sightline", *map(str, arguments)]
    return line, os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def together(jobs: dict[str, tuple[list[str], dict[str, str]]], cwd: Path) -> dict[str, str]:
    """The output of commands that run at the same time."""
    running = {
        name: subprocess.Popen(line, env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name, (line, env) in jobs.items()
    }
    outputs = {}
    for name, process in running.items():
        output, problem = process.communicate()
        if process.returncode:
            raise SystemExit(f"{name}: {' '.join(jobs[name][0])}:\n{problem[-2000:]}")
        outputs[name] = output
    return outputs


def measured(name: str, data: Path, work: Path, sources: dict[str, Path]) -> dict[str, Any]:
    """The evaluations of all versions; those that are there are only read."""
    corpus, here = CORPORA[name], work / name
    here.mkdir(parents=True, exist_ok=True)
    train, valid, test = (part(data / corpus.folder, one) for one in ("train", "valid", "test"))
    assert train is not None
    assert test is not None
    if corpus.rows is not None:
        train = some_images(train, corpus.rows, here / "train.tsv")
    given = ["--data", train, *([] if valid is None else ["--valid", valid])]
    missing = {one: source for one, source in sources.items() if not (here / f"{one}.json").exists()}
    limits = ["--minutes", corpus.minutes, "--threads", 1]
    jobs = {
        one: command(source, "train", corpus.task, *given, "--out", here / one, *limits)
        for one, source in missing.items()
        if not (here / one / "model.safetensors").exists()
    }
    together(jobs, here)
    for one, output in together(
        {
            one: command(
                source, "evaluate", here / one, "--data", test, "--json", "--threads", 1, "--out", here / f"{one}.jsonl"
            )
            for one, source in missing.items()
        },
        here,
    ).items():
        (here / f"{one}.json").write_text(output, encoding="utf-8")
    return {one: json.loads((here / f"{one}.json").read_text(encoding="utf-8")) for one in sources}


def value(scores: Any, name: str) -> float:
    """A score, wherever the evaluation has it."""
    score = scores[name] if name in scores else scores["scores"][name]
    return float(score["value"] if isinstance(score, dict) else score)


def interval(rows: Path) -> str:
    """Of the share of right labels, 95 % of 2,000 resamples; nothing for other scores."""
    lines = [json.loads(line) for line in rows.read_text(encoding="utf-8").split("\n") if line]
    if not lines or "label" not in lines[0]:
        return ""
    right = np.array([one["label"] == one["prediction"] for one in lines], float)
    draws = np.random.default_rng(0).integers(0, len(right), (2000, len(right)))
    low, high = np.quantile(right[draws].mean(axis=1), (0.025, 0.975))
    return f" ({100 * low:.1f}–{100 * high:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--earlier", type=Path)
    parser.add_argument("--only", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sources = {"now": Path(__file__).parents[1] / "src"}
    if options.earlier is not None:
        sources = {"earlier": options.earlier, **sources}
    lines = [f"| | score | minutes | {' | '.join(sources)} | calibration error (ECE, %) | baselines |"]
    lines.append(f"|---|---|--:|{'--:|' * len(sources)}--:|---|")
    for name in options.only:
        corpus, work = CORPORA[name], options.work.resolve()
        scores = measured(name, options.data.resolve(), work, sources)
        cells = [f"{value(scores[one], corpus.score):.2f}{interval(work / name / f'{one}.jsonl')}" for one in sources]
        now = scores["now"]
        calibration = now.get("calibration") or now.get("scores", {}).get("calibration")
        ece = f"{calibration['ece']:.2f}" if calibration else "–"
        floors = now.get("floors") or now.get("scores", {}).get("floors") or now.get("baselines") or {}
        known = ", ".join(
            f"{one} {values[corpus.score]:.2f}" for one, values in floors.items() if corpus.score in values
        )
        lines.append(f"| {name} | {corpus.score} | {corpus.minutes:g} | {' | '.join(cells)} | {ece} | {known or '–'} |")
        print(lines[-1], flush=True)
    if options.write:
        what = "One thread each" + (", both versions at the same time" if options.earlier else "")
        body = [
            f"## A new user's scores\n\nMeasured on {machine()}. {what}; the defaults within the minutes of the table.",
            *lines,
        ]
        how = "Reproduce: `python benchmarks/newcomer.py DATA --work FOLDER --earlier SRC --write`."
        write_section("newcomer", "\n".join([body[0], "", *body[1:], "", how]))


if __name__ == "__main__":
    main()
