"""Does reading plain text first pay? An encoder that guessed hidden words, against the same one from nothing.

    python benchmarks/pretraining.py IMDB --pairs MULTI30K --runs runs/pretraining --write

IMDB holds train.tsv.gz and test.tsv.gz with the columns text and label. The encoder reads the training texts without
their labels for ``--minutes``; then it learns from 1,000 labelled reviews, three times with others of them, and so do
the same encoder and the default classifier from nothing, with the same steps. ``tag`` puts commas and stops back into
sentences of the same texts; ``translate`` begins with an encoder that read both sides of MULTI30K (train.tsv.gz,
valid.tsv and test.tsv with the columns source and target). Test data are scored once, at the end; a run that is there
is only scored.
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
from typing import Any

from report import machine, write_section

LABELLED, SEEDS, SENTENCES, TESTED = 1000, 3, 2000, 5000
STEPS = {"classify": 400, "tag": 600, "translate": 1500}
# The shape and the kind of vocabulary of the encoder that reads. What begins from nothing has the course that is the
# default for such a model (learning rate, cool-down, weight decay); what begins with the encoder has the one for that.
ENCODER = (
    "model.layers=4",
    "max_length=256",
    "tokeniser.method=bpe",
    "tokeniser.vocab_size=8000",
    "tokeniser.lower=false",
)
TRANSLATING = ("model.feed_forward=512", "model.activation=gelu")
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


def trained(task: str, data: Path, run: Path, threads: int, *more: object) -> Path:
    """A run that is there, gone on with if it has not ended; or a new one."""
    if (run / "checkpoints").exists() and not (run / "checksums.json").exists():
        sightline("resume", run, "--threads", threads)
    elif not (run / "checksums.json").exists():
        sightline("train", task, "--data", data, "--out", run, "--threads", threads, *more)
    return run


def reading(chosen: argparse.Namespace, texts: Path, name: str, minutes: float) -> Path:
    """An encoder. More words to guess than the paper's 15 % cost little and teach more in a short time."""
    more = ("--set", "masking.share=0.25", "training.validate_every=500", "--minutes", minutes)
    return trained("pretrain", texts, chosen.runs / name, chosen.threads, *more)


def scored(run: Path, data: Path) -> dict[str, Any]:
    """Once: what was found is kept."""
    kept = run / "test.json"
    if not kept.exists():
        kept.write_text(sightline("evaluate", run, "--data", data, "--json"), encoding="utf-8")
    return json.loads(kept.read_text(encoding="utf-8"))


def value(found: dict[str, Any], metric: str) -> float:
    return found[metric]["value"] if isinstance(found[metric], dict) else found[metric]


def classify(chosen: argparse.Namespace, start: Path) -> dict[str, list[float]]:
    """Accuracies of each beginning, for each draw of labelled reviews; those of the floors with them."""
    found: dict[str, list[float]] = {}
    drawn = random.Random(0).sample(list(rows(chosen.imdb, "test")), TESTED)
    test = made(chosen.runs / f"test-{TESTED}.tsv", (f"{a}\t{b}\n" for a, b in [["text", "label"], *drawn]))
    ways: dict[str, list[object]] = {
        "from": ["--from", start],
        "scratch": ["--model", "encoder", "--set", *ENCODER],
        "attentive": ["--model", "attentive"],
    }
    for seed in range(SEEDS):
        data = made(chosen.runs / f"labelled-{seed}.tsv", some_labelled(chosen.imdb, seed))
        for name, how in ways.items():
            run = chosen.runs / f"classify-{name}-{seed}"
            common = ["--steps", STEPS["classify"], "--seed", seed]
            scores = scored(trained("classify", data, run, chosen.threads, *common, *how), test)
            found.setdefault(name, []).append(value(scores, "accuracy"))
            print(f"classify, {name}, seed {seed}: {found[name][-1]:.2f}", flush=True)
        for name, floor in scores["floors"].items():
            found.setdefault(name, []).append(value(floor, "accuracy"))
    return found


def one_of_each(
    chosen: argparse.Namespace, task: str, data: Path, test: Path, ways: dict[str, list[object]], metric: str
) -> list[float]:
    found = []
    for name, how in ways.items():
        run = chosen.runs / f"{task}-{name}"
        trained(task, data, run, chosen.threads, "--steps", STEPS[task], *how)
        found.append(value(scored(run, test), metric))
        print(f"{task}, {name}: {found[-1]:.2f}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("imdb", type=Path)
    parser.add_argument("--pairs", type=Path, help="a folder of pairs for translate")
    parser.add_argument("--runs", type=Path, default=Path("runs/pretraining"))
    parser.add_argument("--minutes", type=float, default=34.0, help="of reading")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    chosen = parser.parse_args()
    plain = made(chosen.runs / "plain.txt", (f"{text}\n" for text, _ in rows(chosen.imdb, "train")))
    start = reading(chosen, plain, "reader", chosen.minutes)
    found = classify(chosen, start)
    lines = [
        f"| classify, {LABELLED:,} reviews | accuracy | {_mean(found['scratch'])} | {_mean(found['from'])} "
        f"| {STEPS['classify']:,} |"
    ]
    words = {name: made(chosen.runs / f"{name}.conll", punctuation(chosen.imdb, name, SENTENCES)) for name in PARTS}
    ways: dict[str, list[object]] = {
        "scratch": ["--model", "encoder", "--set", *(one for one in ENCODER if one.startswith("tokeniser"))],
        "from": ["--from", start],
    }
    scores = one_of_each(chosen, "tag", words["train"], words["test"], ways, TAGGED)
    lines.append(f"| tag, {SENTENCES:,} sentences | macro-F1 | {scores[0]:.2f} | {scores[1]:.2f} | {STEPS['tag']:,} |")
    if chosen.pairs is not None:
        both = (f"{a}\n{b}\n" for a, b in rows(chosen.pairs, "train"))
        texts = made(chosen.runs / "both.txt", both)
        begin = reading(chosen, texts, "reader-of-pairs", chosen.minutes / 4)
        parts = [next(chosen.pairs.glob(f"{name}.tsv*")) for name in ("train", "valid", "test")]
        given: list[object] = ["--valid", parts[1]]
        ways = {"scratch": [*given, "--set", *TRANSLATING], "from": [*given, "--from", begin]}
        scores = one_of_each(chosen, "translate", parts[0], parts[2], ways, "tokenised_bleu")
        lines.append(
            f"| translate, encoder only | tokenised BLEU | {scores[0]:.2f} | {scores[1]:.2f} | {STEPS['translate']:,} |"
        )
    head = ["| | | random start | from the pre-trained encoder | steps |", "|---|---|--:|--:|--:|"]
    text = "\n".join([*head, *lines])
    print(text)
    if chosen.write:
        about = (
            f"Measured on {machine()}, {chosen.threads} of them used. The encoder was pre-trained for "
            f"{chosen.minutes:g} minutes (for translate, on both sides of the pairs, {chosen.minutes / 4:g} minutes); "
            f"then both models train with the same data, shape, kind of vocabulary and steps; classify is tested on "
            f"{TESTED:,} reviews. Three draws of the labelled reviews, with their scores in brackets. "
            f"With the same reviews and steps the default classifier (attentive) has {_mean(found['attentive'])}, a "
            f"linear model on words {_mean(found['linear'])}, NB-SVM on n-grams {_mean(found['nb-svm'])}."
        )
        again = "Reproduce: `python benchmarks/pretraining.py IMDB --pairs MULTI30K --write`."
        write_section("pretraining", "\n\n".join(["## Pre-training", about, text, again]))


PARTS, TAGGED = ("train", "test"), "macro_f1"


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.2f} ({', '.join(f'{value:.1f}' for value in values)})"


if __name__ == "__main__":
    main()
