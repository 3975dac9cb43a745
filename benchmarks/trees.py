"""Parsing by writing: sentences to trees as tokens, with one context vector, with Luong's decoder and with that of
Grammar as a Foreign Language (Vinyals et al. 2015).

    python benchmarks/trees.py --minutes 20 [--work FOLDER] [--only luong grammar] [--write]

The sentences are made (`sightline.synthetic.trees`): 20,000 to train on, 500 to validate with and 1,000 to test with,
of 3 to 20 words, all different, and 500 of 21 to 30 words, longer than any in training. Each model trains for the same
minutes with one thread, and writes by greedy search. A tree counts if all of it is right. With `--work`, a run that is
there is only scored, and predictions that are there are only read.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from report import machine, write_section
from sightline import load
from sightline.files import write_text
from sightline.synthetic.trees import tree_pairs

TRAIN, VALID, TEST, BEYOND = 20_000, 500, 1_000, 500
LENGTHS, LONGER = (3, 20), (21, 30)
BUCKETS = ((3, 8), (9, 14), (15, 20), LONGER)
LONGEST = 250  # tokens of an output; the longest tree has some 130
# The loss is that of the trees as they are; sentences are of about a hundred words, of which each is a token.
SETTINGS = ("tokeniser.method=words", "training.warmup=300", "training.patience=1000", "smoothing=0", "validated=200")
DEEP = ("model.layers=3",)
SYSTEMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "seq2seq": ("seq2seq", ()),
    "luong": ("luong", ()),
    "grammar": ("grammar", ()),
    "grammar, 3 layers": ("grammar", DEEP),
    "luong, joined": ("luong", ("model.writes_from=joined",)),
    "grammar, both directions": ("grammar", ("model.reads=both",)),
    "grammar, forwards": ("grammar", ("model.reads=forwards",)),
}
FIRST = ("seq2seq", "luong", "grammar")
Pairs = list[tuple[str, str]]


def make_tables(work: Path, seed: int) -> Pairs:
    """Write the tables for training; the pairs to test with are returned."""
    made = list(tree_pairs(seed, TRAIN + VALID + TEST, LENGTHS))
    for name, pairs in (("train", made[:TRAIN]), ("valid", made[TRAIN : TRAIN + VALID])):
        lines = ["source\ttarget", *("\t".join(pair) for pair in pairs)]
        write_text(work / f"{name}.tsv", "\n".join(lines) + "\n")
    return made[TRAIN + VALID :] + list(tree_pairs(seed + 1, BEYOND, LONGER))


def train(name: str, work: Path, run: Path, minutes: float) -> None:
    """By command, as anyone would."""
    if (run / "checksums.json").exists():
        return
    model, settings = SYSTEMS[name]
    command = [sys.executable, "-m", "sightline", "train", "translate", "--model", model, "--metric", "exact"]
    command += ["--data", str(work / "train.tsv"), "--valid", str(work / "valid.tsv"), "--out", str(run), "--overwrite"]
    command += ["--minutes", str(minutes), "--threads", "1", "--set", *SETTINGS, *settings]
    source = Path(__file__).parents[1] / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    print(" ".join(command), file=sys.stderr, flush=True)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])


def written(run: Path, pairs: Pairs) -> list[str]:
    """The trees that a run writes, computed once."""
    path = run / "trees.json"
    if not path.exists():
        predictions: list[Any] = load(run).predict([sentence for sentence, _ in pairs], beam=1, max_length=LONGEST)
        write_text(path, json.dumps([one.text for one in predictions], indent=1))
    return json.loads(path.read_text(encoding="utf-8"))


def is_well_formed(tree: str) -> bool:
    """Whether the brackets are balanced and the first one is closed by the last, whatever is in them."""
    depth, tokens = 0, tree.split()
    for place, token in enumerate(tokens):
        depth += token.startswith("(") - (token == ")")
        if depth < 1 and place < len(tokens) - 1:
            return False
    return tree.startswith("(") and depth == 0


def share(right: list[bool]) -> str:
    """In %, with the interval of 95 % by Wilson, which is one at 0 % and at 100 % too."""
    n, p, z = len(right), sum(right) / len(right), 1.96
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (max(0.0, (middle + side * half) / (1 + z * z / n)) for side in (-1, 1))
    return f"{100 * p:.1f} ({100 * low:.1f}–{100 * high:.1f})"


def row(name: str, trees: list[str], pairs: Pairs) -> str:
    """A line of the table."""
    lengths = [len(sentence.split()) for sentence, _ in pairs]
    exact = [tree == gold for tree, (_, gold) in zip(trees, pairs, strict=True)]
    formed = [is_well_formed(tree) for tree in trees]
    tags = [_leaves(tree) == n for tree, n in zip(trees, lengths, strict=True)]
    cells = [share([one for one, n in zip(exact, lengths, strict=True) if n <= LENGTHS[1]])]
    for least, most in BUCKETS:
        cells.append(share([one for one, n in zip(exact, lengths, strict=True) if least <= n <= most]))
    for kept in (formed, tags):
        for longer in (False, True):
            chosen = [one for one, n in zip(kept, lengths, strict=True) if (n > LENGTHS[1]) == longer]
            cells.append(f"{100 * sum(chosen) / len(chosen):.1f}")
    return f"| {name} | {' | '.join(cells)} |"


def _leaves(tree: str) -> int:
    return sum(not token.startswith("(") and token != ")" for token in tree.split())


def report(work: Path, names: list[str], minutes: float, seed: int) -> list[str]:
    pairs = make_tables(work, seed)
    heads = [f"{least}–{most} words" for least, most in BUCKETS]
    formed, tagged = "well-formed", "one tag for each word"
    heads = ["all of 3–20", *heads, formed, f"{formed}, 21–30", tagged, f"{tagged}, 21–30"]
    lines = [f"| exact trees in % (95 % interval) | {' | '.join(heads)} |", f"|---|{'--:|' * len(heads)}"]
    for name in names:
        run = work / name.replace(", ", "-").replace(" ", "-")
        train(name, work, run, minutes)
        lines.append(row(name, written(run, pairs), pairs))
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, of each model")
    parser.add_argument("--work", type=Path, help="folder for tables and runs; a temporary one if left out")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(FIRST))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or Path(temporary)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        lines = report(work, options.only, options.minutes, options.seed)
    print("\n".join(lines))
    if options.write:
        title = (
            f"## Trees\n\nMeasured on {machine()}. One thread each, {options.minutes:g} minutes of training, greedy "
        )
        title += f"search, {TRAIN:,} made sentences of 3 to 20 words; {TEST:,} to test with, and {BEYOND} of 21 to 30."
        how = f"Reproduce: `python benchmarks/trees.py --minutes {options.minutes:g} --write`."
        write_section("trees", "\n".join([title, "", *lines, "", how]))


if __name__ == "__main__":
    main()
