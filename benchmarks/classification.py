"""Classification: the built-in models on corpora of your own, each within a limit of time, scored once on test data.

    python benchmarks/classification.py DATA --runs runs/classification --only imdb-han --write

DATA holds a folder for each corpus (classify-imdb, classify-trec, classify-sst2, classify-hotel-zh), with train.tsv or
train.tsv.gz, test.tsv(.gz) and where there is one valid.tsv, with the columns text and label. ``--minilm`` names a
Hugging Face folder to fine-tune. A run that is there is gone on with, a run that has ended is only scored, and a score
that is there is only read: the test data decide nothing.
"""

import argparse
import gzip
import json
import random
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import machine, write_section

FLOORS = {"linear": "linear model on words", "nb-svm": "NB-SVM on n-grams"}


@dataclass(frozen=True)
class System:
    """A model, its corpus and its training. ``fine_tuned``: from the Hugging Face folder. ``rows``: a random part."""

    corpus: str
    model: str
    minutes: float | None = None
    epochs: int | None = None
    settings: tuple[str, ...] = ()
    seeds: int = 1
    fine_tuned: bool = False
    rows: int | None = None


SYSTEMS: dict[str, System] = {
    "imdb-attentive": System("classify-imdb", "attentive", minutes=15),
    "imdb-han": System("classify-imdb", "han", minutes=15),
    "imdb-minilm": System(
        "classify-imdb", "encoder", epochs=1, fine_tuned=True, rows=14_000, settings=("valid_share=0.05",)
    ),
    "trec": System("classify-trec", "attentive", settings=("model.init_std=1.0",), seeds=3),
    "sst2-minilm": System("classify-sst2", "encoder", epochs=4, seeds=3, fine_tuned=True),
    "hotel-zh": System("classify-hotel-zh", "attentive", seeds=3),
}


def part(folder: Path, name: str) -> Path | None:
    """A file of a corpus, gzip or not."""
    return next((path for ending in (".tsv", ".tsv.gz") if (path := folder / f"{name}{ending}").exists()), None)


def drawn(path: Path, rows: int, out: Path) -> Path:
    """A table of some rows of another, drawn at random, always the same ones."""
    if not out.exists():
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        head, *lines = content.decode().rstrip("\n").split("\n")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text("\n".join([head, *random.Random(0).sample(lines, rows)]) + "\n", encoding="utf-8")
    return out


def sightline(*arguments: object) -> str:
    """A command, as a user gives it."""
    command = [sys.executable, "-m", "sightline", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def train(system: System, data: Path, run: Path, seed: int, minilm: Path | None, threads: int) -> None:
    """A new run, or on with the one that is there."""
    if (run / "checksums.json").exists():
        return
    if (run / "checkpoints").exists():
        sightline("resume", run, "--threads", threads)
        return
    folder = data / system.corpus
    valid = part(folder, "valid")
    given = part(folder, "train")
    assert given is not None
    if system.rows is not None:
        given = drawn(given, system.rows, run.with_name(f"{run.name}.tsv"))
    arguments: list[object] = ["--data", given, "--out", run, "--seed", seed, "--threads", threads]
    arguments += ["--metric", "accuracy"]
    arguments += ["--valid", valid] if valid else []
    arguments += ["--from", minilm] if system.fine_tuned else ["--model", system.model]
    arguments += ["--minutes", system.minutes] if system.minutes else []
    arguments += ["--epochs", system.epochs] if system.epochs else []
    arguments += ["--set", *system.settings] if system.settings else []
    sightline("train", "classify", *arguments)


def score(system: System, data: Path, run: Path, threads: int) -> dict[str, Any]:
    """The test data, once."""
    kept = run / "test.json"
    if not kept.exists():
        test = part(data / system.corpus, "test")
        kept.write_text(sightline("evaluate", run, "--data", test, "--json", "--threads", threads), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def minutes_of(run: Path) -> float:
    """Of training with its validations."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max(json.loads(line).get("seconds", 0.0) for line in lines) / 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/classification"))
    parser.add_argument("--minilm", type=Path, help="a Hugging Face folder to fine-tune")
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.only:
        system = SYSTEMS[name]
        if system.fine_tuned and chosen.minilm is None:
            parser.error(f"{name} begins with a Hugging Face folder; name it with --minilm")
        found, minutes = [], []
        for seed in range(system.seeds):
            run = chosen.runs / (name if system.seeds == 1 else f"{name}-{seed}")
            train(system, chosen.data, run, seed, chosen.minilm, chosen.threads)
            found.append(score(system, chosen.data, run, chosen.threads))
            minutes.append(minutes_of(run))
        rows.append(row_of(name, found, minutes))
        print(rows[-1], flush=True)
    if chosen.write:
        write_section("classification", table(rows))


def row_of(name: str, found: list[dict[str, Any]], minutes: list[float]) -> str:
    """Accuracies in per cent; with several seeds, the mean, and all of them."""
    accuracy = [one["accuracy"] for one in found]
    shown = f"{statistics.mean(accuracy):.2f}"
    if len(accuracy) > 1:
        shown += f" ({', '.join(f'{one:.1f}' for one in accuracy)})"
    unseen = [rest["accuracy"] for one in found if (rest := one.get("without_training_texts"))]
    apart = f"{statistics.mean(unseen):.2f}" if unseen else "–"
    beside = []
    for floor in FLOORS:
        values = [one["floors"][floor]["accuracy"] for one in found if floor in one.get("floors", {})]
        beside.append(f"{statistics.mean(values):.2f}" if values else "–")
    return f"| {name} | {shown} | {apart} | {' | '.join(beside)} | {statistics.mean(minutes):.1f} |"


def _told() -> list[str]:
    """What is not the default in each system."""
    found = []
    for name, system in SYSTEMS.items():
        words = [f"`{setting}`" for setting in system.settings]
        words += ["from the Hugging Face folder"] if system.fine_tuned else []
        words += [f"{system.rows:,} random rows of the training data, for its baselines too"] if system.rows else []
        words += [f"{system.epochs} epoch{'s' if system.epochs > 1 else ''}"] if system.epochs else []
        found += [f"{name} {', '.join(words)}"] if words else []
    return found


def table(rows: list[str]) -> str:
    head = f"| | accuracy | without rows of the training data | {' | '.join(FLOORS.values())} | minutes |"
    return "\n".join(
        [
            "## Classification",
            "",
            f"Measured on {machine()}.",
            "",
            head,
            "|---|--:|--:|--:|--:|--:|",
            *rows,
            "",
            "Minutes are wall time of training with its validations; with several seeds, the mean. "
            "Settings are the defaults except: " + "; ".join(_told()) + ".",
            "",
            "Reproduce: `python benchmarks/classification.py DATA --minilm FOLDER --write`.",
        ]
    )


if __name__ == "__main__":
    main()
