"""Captions: soft and hard attention and the mean feature alone on a corpus of your own, each within a limit of time.

    python benchmarks/captions.py DATA --runs runs/captions --only soft --write

DATA holds train.tsv, valid.tsv and test.tsv with the columns image and caption (Flickr8k: five captions of each photo).
What a frozen encoder makes of the images is computed once, for all systems. The penalty for length is chosen on the
validation data, by BLEU-4 without brevity penalty; then the test data are scored once. A run that is there is gone on
with, a run that has ended is only scored, and a score that is there is only read. ``--overlays 12`` also draws where
the words of so many test captions looked.
"""

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import machine, write_section

BEAM, PENALTIES = 5, (0.0, 0.5, 1.0)
HARD = 'model.attention.normaliser={"kind": "hard", "soft_share": 0.5}'


@dataclass(frozen=True)
class System:
    """A model and what is set of it."""

    title: str
    model: str = "show_attend_tell"
    settings: tuple[str, ...] = ()


SYSTEMS: dict[str, System] = {
    "soft": System("soft attention"),
    "hard": System("hard attention", settings=(HARD,)),
    "mean": System("the mean feature alone (no attention)", settings=("model.attention=null",)),
    "transformer": System("Transformer decoder", "transformer"),
}


def sightline(*arguments: object) -> str:
    """A command, as a user gives it."""
    command = [sys.executable, "-m", "sightline", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def train(system: System, data: Path, run: Path, features: Path, minutes: float, threads: int) -> None:
    """A new run, or on with the one that is there."""
    if (run / "checksums.json").exists():
        return
    if (run / "checkpoints").exists():
        sightline("resume", run, "--threads", threads)
        return
    arguments: list[object] = ["--data", data / "train.tsv", "--valid", data / "valid.tsv", "--out", run]
    arguments += ["--features", features, "--model", system.model, "--minutes", minutes, "--threads", threads]
    arguments += ["--set", *system.settings] if system.settings else []
    sightline("train", "caption", *arguments)


def scored(run: Path, data: Path, name: str, penalty: float, threads: int) -> dict[str, Any]:
    """The scores of a part of the data; read where they stand already."""
    kept = run / f"{name}-beam{BEAM}-penalty{penalty:g}.json"
    if not kept.exists():
        search = ["--beam", BEAM, "--length-penalty", penalty, "--threads", threads]
        kept.write_text(sightline("evaluate", run, "--data", data / f"{name}.tsv", "--json", *search), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def best_penalty(run: Path, data: Path, threads: int) -> float:
    """Chosen on validation data: the test data decide nothing."""

    def value(penalty: float) -> float:
        return scored(run, data, "valid", penalty, threads)["bleu4_no_bp"]["value"]

    return max(PENALTIES, key=value)


def minutes_of(run: Path) -> float:
    """Of training with its validations."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return max(json.loads(line).get("seconds", 0.0) for line in lines) / 60


def features_speed(run: Path, data: Path, threads: int) -> float:
    """Images a second, decoded and gone through the frozen encoder, after some that do not count."""
    import torch

    from sightline import load

    torch.set_num_threads(threads)
    captioner = load(run)
    images = [data / name for name in test_images(data)]
    captioner.encode(captioner.input.items(images[:50]))
    began = time.perf_counter()
    for start in range(0, len(images), 50):
        captioner.encode(captioner.input.items(images[start : start + 50]))
    return len(images) / (time.perf_counter() - began)


def test_images(data: Path) -> list[str]:
    lines = (data / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return list(dict.fromkeys(line.split("\t")[0] for line in lines))


def draw_overlays(run: Path, data: Path, count: int, out: Path) -> None:
    """Where the words of some test captions looked; every so-manieth image, not chosen ones."""
    from sightline import load

    captioner = load(run)
    images = test_images(data)
    for number in range(0, len(images), max(1, len(images) // count))[:count]:
        found = captioner.explain(data / images[number], measure=False)
        path = found.save(out / f"{run.name}-{Path(images[number]).stem}.png")
        print(f"{path}: {found.output}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/captions"))
    parser.add_argument("--only", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--minutes", type=float, default=42.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--overlays", type=int, default=0, help="how many test images to draw, of each run")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    chosen = parser.parse_args()
    rows, signatures = [], {}
    for name in chosen.only:
        system, run = SYSTEMS[name], chosen.runs / name
        train(system, chosen.data, run, chosen.runs / "features", chosen.minutes, chosen.threads)
        penalty = best_penalty(run, chosen.data, chosen.threads)
        found = scored(run, chosen.data, "test", penalty, chosen.threads)
        signatures = {metric: found[metric]["signature"] for metric in ("bleu4_no_bp", "bleu4", "cider_d", "rougeL")}
        rows.append(row_of(system, found, minutes_of(run)))
        print(rows[-1], flush=True)
        if chosen.overlays and name != "mean":
            draw_overlays(run, chosen.data, chosen.overlays, chosen.runs / "overlays")
    if chosen.write:
        speed = features_speed(chosen.runs / chosen.only[0], chosen.data, chosen.threads)
        write_section("captions", table(rows, signatures, speed, chosen))


def row_of(system: System, found: dict[str, Any], minutes: float) -> str:
    orders = [[found[f"bleu{order}{kind}"]["value"] for order in range(1, 5)] for kind in ("_no_bp", "")]
    bleus = [" / ".join(f"{value:.1f}" for value in values) for values in orders]
    others = [f"{found[name]['value']:.1f}" for name in ("cider_d", "rougeL", "chrf")]
    return (
        f"| {system.title} | {' | '.join(bleus)} | {' | '.join(others)} | {found['length_penalty']:g} | {minutes:.1f} |"
    )


def table(rows: list[str], signatures: dict[str, str], speed: float, chosen: argparse.Namespace) -> str:
    head = "| | BLEU-1 / 2 / 3 / 4 without brevity penalty | BLEU-1 / 2 / 3 / 4 | CIDEr-D | ROUGE-L | chrF "
    penalties = ", ".join(f"{penalty:g}" for penalty in PENALTIES)
    return "\n".join(
        [
            "## Captions",
            "",
            f"Measured on {machine()}. Features: {speed:,.0f} images per second, including decoding.",
            "",
            f"{head}| length penalty | minutes |",
            "|---|--:|--:|--:|--:|--:|--:|--:|",
            *rows,
            "",
            f"Test data scored once, beam {BEAM}; the length penalty is the best of {penalties} on validation data by "
            "BLEU-4 without brevity penalty. "
            f"At most {chosen.minutes:g} minutes of training each, after the features. Signatures of the scores:",
            "",
            *(f"- `{signature}`" for signature in signatures.values()),
            "",
            "Reproduce: `python benchmarks/captions.py DATA --write`.",
        ]
    )


if __name__ == "__main__":
    main()
