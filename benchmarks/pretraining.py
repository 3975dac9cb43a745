"""Does reading plain text first pay? An encoder that guessed hidden words, against the same one from nothing.

    python benchmarks/pretraining.py IMDB --pairs MULTI30K --runs runs/pretraining --write

IMDB holds train.tsv.gz and test.tsv.gz with the columns text and label. The encoder reads the training texts without
their labels for ``--minutes``; then it learns from 1,000 labelled reviews, three times with others of them, and so does
one that begins from nothing, with the same steps. ``tag`` puts commas and stops back into sentences of the same texts;
``translate`` begins with an encoder that read both sides of MULTI30K (train.tsv.gz, valid.tsv and test.tsv with the
columns source and target). Test data are scored once, at the end; a run that is there is only scored.
"""

import argparse
import gzip
import json
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from report import machine, write_section

LABELLED, SEEDS, SENTENCES = 1000, 3, 2000
STEPS = {"classify": 600, "tag": 600, "translate": 1500}
MARKS = {",": "COMMA", ".": "STOP"}


def sightline(*arguments: object) -> str:
    """A command, as a user gives it."""
    command = [sys.executable, "-m", "sightline", *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def rows(folder: Path, name: str) -> Iterator[list[str]]:
    """Those of a table, without its header."""
    path = next(path for path in (folder / f"{name}.tsv", folder / f"{name}.tsv.gz") if path.exists())
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    yield from (line.split("\t") for line in content.decode().split("\n")[1:] if line)


def made(path: Path, lines: Iterator[str]) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(lines), encoding="utf-8")
    return path


def some_labelled(imdb: Path, seed: int) -> Iterator[str]:
    """As many reviews of each label."""
    drawn = random.Random(seed).sample(sorted(rows(imdb, "train")), 4 * LABELLED)
    taken: dict[str, int] = {}
    yield "text\tlabel\n"
    for text, label in drawn:
        taken[label] = taken.get(label, 0) + 1
        if taken[label] <= LABELLED // 2:
            yield f"{text}\t{label}\n"


def punctuation(imdb: Path, name: str, count: int) -> Iterator[str]:
    """Lower-cased words without their commas and stops, each with the mark that stood behind it."""
    done = 0
    for text, _ in rows(imdb, name):
        for sentence in re.findall(r"[A-Z][^.!?<>\t]{30,200}\.", text)[:2]:
            words = re.findall(r"[a-z']+|[,.]", sentence.lower())
            behind = [*words[1:], ""]
            lines = [f"{word}\t{MARKS.get(after, 'O')}\n" for word, after in zip(words, behind, strict=True)]
            yield "".join(line for line, word in zip(lines, words, strict=True) if word not in MARKS) + "\n"
            done += 1
            if done == count:
                return


def trained(task: str, data: Path, run: Path, start: Path | None, settings: list[str], *more: object) -> Path:
    if not (run / "checksums.json").exists():
        words: list[object] = ["--data", data, "--out", run, *more]
        words += ["--from", start] if start is not None else []
        sightline("train", task, *words, *(["--set", *settings] if settings else []))
    return run


def score(run: Path, data: Path, metric: str) -> float:
    """Once: what was found is kept."""
    kept = run / "test.json"
    if not kept.exists():
        kept.write_text(sightline("evaluate", run, "--data", data, "--json"), encoding="utf-8")
    found = json.loads(kept.read_text(encoding="utf-8"))[metric]
    return found["value"] if isinstance(found, dict) else found


def reader(data: Path, run: Path, minutes: float) -> Path:
    return trained("pretrain", data, run, None, [], "--minutes", minutes)


def classify(chosen: argparse.Namespace, start: Path) -> tuple[list[float], list[float]]:
    """Accuracy of both, for each seed."""
    found: dict[str, list[float]] = {"scratch": [], "from": []}
    test = made(chosen.runs / "test.tsv", (f"{a}\t{b}\n" for a, b in [["text", "label"], *rows(chosen.imdb, "test")]))
    for seed in range(SEEDS):
        data = made(chosen.runs / f"labelled-{seed}.tsv", some_labelled(chosen.imdb, seed))
        for name, begin in {"from": start, "scratch": None}.items():
            model = [] if begin is not None else ["--model", "encoder"]
            run = chosen.runs / f"classify-{name}-{seed}"
            trained("classify", data, run, begin, [], "--steps", STEPS["classify"], "--seed", seed, *model)
            found[name].append(score(run, test, "accuracy"))
            print(f"classify, {name}, seed {seed}: {found[name][-1]:.2f}", flush=True)
    return found["scratch"], found["from"]


def one_of_each(task: str, data: Path, test: Path, start: Path, runs: Path, metric: str, *more: object) -> list[float]:
    found = []
    for name, begin in {"scratch": None, "from": start}.items():
        model: list[object] = [] if begin is not None or task == "translate" else ["--model", "encoder"]
        run = trained(task, data, runs / f"{task}-{name}", begin, [], "--steps", STEPS[task], *model, *more)
        found.append(score(run, test, metric))
        print(f"{task}, {name}: {found[-1]:.2f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("imdb", type=Path)
    parser.add_argument("--pairs", type=Path, help="a folder of pairs for translate")
    parser.add_argument("--runs", type=Path, default=Path("runs/pretraining"))
    parser.add_argument("--minutes", type=float, default=38.0, help="of reading")
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    chosen = parser.parse_args()
    plain = made(chosen.runs / "plain.txt", (f"{text}\n" for text, _ in rows(chosen.imdb, "train")))
    start = reader(plain, chosen.runs / "reader", chosen.minutes)
    scratch, begun = classify(chosen, start)
    lines = [
        f"| classify, {LABELLED:,} reviews | accuracy | {statistics.mean(scratch):.2f} ({_listed(scratch)}) "
        f"| {statistics.mean(begun):.2f} ({_listed(begun)}) | {STEPS['classify']:,} |"
    ]
    words = {name: made(chosen.runs / f"{name}.conll", punctuation(chosen.imdb, name, SENTENCES)) for name in PARTS}
    found = one_of_each("tag", words["train"], words["test"], start, chosen.runs, "f1")
    lines.append(f"| tag, {SENTENCES:,} sentences | span F1 | {found[0]:.2f} | {found[1]:.2f} | {STEPS['tag']:,} |")
    if chosen.pairs is not None:
        both = (f"{a}\n{b}\n" for a, b in rows(chosen.pairs, "train"))
        begin = reader(made(chosen.runs / "both.txt", both), chosen.runs / "reader-of-pairs", chosen.minutes / 4)
        parts = [next(chosen.pairs.glob(f"{name}.tsv*")) for name in ("train", "valid", "test")]
        more = ("--valid", parts[1])
        found = one_of_each("translate", parts[0], parts[2], begin, chosen.runs, "tokenised_bleu", *more)
        lines.append(
            f"| translate, encoder only | tokenised BLEU | {found[0]:.2f} | {found[1]:.2f} | {STEPS['translate']:,} |"
        )
    head = ["| | | from nothing | from the encoder that read | steps |", "|---|---|--:|--:|--:|"]
    text = "\n".join([*head, *lines])
    print(text)
    if chosen.write:
        about = (
            f"Measured on {machine()}. The encoder read {chosen.minutes:g} minutes (for translate, both sides of the "
            f"pairs, {chosen.minutes / 4:g} minutes); then both learn with the same data and steps. Three draws of the "
            "labelled reviews, whose scores stand in brackets."
        )
        again = "Again: `python benchmarks/pretraining.py IMDB --pairs MULTI30K --write`."
        write_section("pretraining", "\n\n".join(["## Pre-training", about, text, again]))


PARTS = ("train", "test")


def _listed(values: list[float]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)


if __name__ == "__main__":
    main()
