"""Copying: what it makes possible, what it costs in time and memory, and what it does for rare words of translations.

    python benchmarks/copying.py made --folder RUNS                       # names that no vocabulary has
    python benchmarks/copying.py speed                                    # copying on against off, in lock-step
    python benchmarks/copying.py memory                                   # sources of 2,000 tokens
    python benchmarks/copying.py translate --data FOLDER --folder RUNS    # Multi30k with a vocabulary of words
    python benchmarks/copying.py rare --data FOLDER --folder RUNS --test  # rare words of its test data: once

FOLDER has train.tsv, valid.tsv and test.tsv with the columns source and target, gzip or not. One thread is used.
"""

import argparse
import gzip
import json
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = ("transformer", "rnnsearch")
WORDS, SOURCE, ROWS, TARGET = 8000, 150, 24, 10
QUICK = (
    "tokeniser.method=words", "tokeniser.vocab_size=60", "model.embedding_size=24", "model.size=24", "smoothing=0",
    "model.dropout=0", "batch_tokens=1024", "training.learning_rate=0.01", "training.warmup=20",
)  # fmt: skip
MULTI30K = ("tokeniser.method=words", "tokeniser.vocab_size=8000", "training.patience=100")


def train(out: Path, *options: str) -> None:
    if not (out / "card.md").exists():
        command = [
            sys.executable,
            "-m",
            "sightline",
            "train",
            "translate",
            "--out",
            str(out),
            "--threads",
            "1",
            *options,
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def made(folder: Path) -> None:
    """Exact outputs for 1,000 unseen messages: with copying, without, and without but with unknown words replaced."""
    import sightline
    from sightline.synthetic.names import moved_names

    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{x}\t{y}\n" for x, y in moved_names(3000))
    (folder / "names.tsv").write_text(f"source\ttarget\n{rows}", encoding="utf-8")
    test = moved_names(1000, seed=1)
    data = ["--data", str(folder / "names.tsv"), "--model", "rnnsearch", "--steps", "300", "--set", *QUICK]
    for name, option in (("with", "--copy"), ("without", "--no-copy")):
        train(folder / name, option, *data)
        run = sightline.load(folder / name)
        for kept in (True, False):
            predictions: Any = run.predict([x for x, _ in test], keep_unknown=kept)
            exact = sum(one.text == y for one, (_, y) in zip(predictions, test, strict=True))
            print(
                f"{name} copying, unknown words {'kept' if kept else 'replaced'}: {exact / 10:.1f} % exact", flush=True
            )


def build(model: str, copying: bool) -> Any:
    import torch

    from sightline.models.text_to_text import TextToTextConfig

    torch.manual_seed(0)
    return TextToTextConfig.from_json({"kind": model, "copying": copying}).build(WORDS, WORDS)


def batch(rows: int, length: int, unknown: bool) -> Any:
    """Sources, of which every tenth word is unknown, and targets."""
    import torch

    torch.manual_seed(0)
    source, target = torch.randint(5, WORDS, (rows, length)), torch.randint(5, WORDS, (rows, TARGET))
    if unknown:
        source[:, ::10] = WORDS + torch.arange(0, length, 10)
        target[:, 3] = source[:, 20]
    return source, target


def learning(model: Any, data: Any) -> Callable[[], object]:
    model.train().requires_grad_(True)

    def step() -> None:
        model.zero_grad()
        model.loss(*data, smoothing=0.1).total.backward()

    return step


def searching(model: Any, data: Any, beam: int) -> Callable[[], object]:
    import torch

    from sightline.decoding.options import SearchConfig

    model.eval().requires_grad_(False)
    options, source = SearchConfig(beam=beam, min_length=TARGET, max_length=TARGET), data[0]

    def search() -> object:
        with torch.inference_mode():
            step, state = model.searching(source)
            return options.find(step, state, [SOURCE] * len(source), [[]] * len(source), torch.Generator())

    return search


def speed(repeats: int = 9) -> None:
    """The median of the ratios of processor time, copying ÷ none, each repeat both in turn."""
    import torch

    torch.set_num_threads(1)
    kinds: dict[str, Callable[[Any, Any], Callable[[], object]]] = {
        "training": learning,
        "greedy": lambda model, data: searching(model, data, 1),
        "beam 5": lambda model, data: searching(model, data, 5),
    }
    for name in MODELS:
        for what, make in kinds.items():
            works = [make(build(name, on), batch(ROWS, SOURCE, on)) for on in (False, True)]
            times = []
            for _ in range(repeats + 1):
                pair = []
                for work in works:
                    start = time.process_time()
                    work()
                    pair.append(time.process_time() - start)
                times.append(pair)
            off, on = (statistics.median(column) for column in zip(*times[1:], strict=True))
            ratio = statistics.median(on / off for off, on in times[1:])
            print(f"{name:12} {what:9} {1000 * off:6.0f} ms without, {1000 * on:6.0f} ms with: {ratio:.2f}", flush=True)


def memory() -> None:
    for name in MODELS:
        for on in (False, True):
            command = [sys.executable, __file__, "one", "--model", name, *(["--on"] if on else [])]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f"{name:12} copying {'on ' if on else 'off'}: {done.stdout.strip()}", flush=True)


def one(name: str, on: bool) -> None:
    """The memory of a step of training, and of a search with a beam of 5, over four sources of 2,000 tokens."""
    import torch

    torch.set_num_threads(1)
    model, data = build(name, on), batch(4, 2000, on)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    learning(model, data)()
    trained = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{(trained - before) / 1024:.0f} MB for a step of training", end=", ")
    searching(model, data, 5)()
    print(f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.0f} MB with a search after it")


def pairs_of(data: Path, name: str) -> list[tuple[str, str]]:
    path = next(one for one in (data / f"{name}.tsv", data / f"{name}.tsv.gz") if one.exists())
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        header, *rows = file.read().rstrip("\n").split("\n")
    places = [header.split("\t").index(column) for column in ("source", "target")]
    split = [row.split("\t") for row in rows]
    return [(row[places[0]], row[places[1]]) for row in split]


def translate(data: Path, folder: Path, minutes: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("train", "valid"):
        rows = "".join(f"{x}\t{y}\n" for x, y in pairs_of(data, name))
        (folder / f"{name}.tsv").write_text(f"source\ttarget\n{rows}", encoding="utf-8")
    for model in MODELS:
        for copy in ("--no-copy", "--copy"):
            out = folder / f"{model}{copy}"
            train(out, "--data", str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv"), "--model", model,
                  "--minutes", str(minutes), copy, "--set", *MULTI30K)  # fmt: skip


def rare(data: Path, folder: Path, split: str, most: int = 2) -> None:
    """Of the words that source and reference share and that at most ``most`` targets of the training data have: how
    many the translation has. Beside it, BLEU."""
    import sightline
    from sightline.metrics import METRICS

    known = Counter(word for _, y in pairs_of(data, "train") for word in set(y.split()))
    test = pairs_of(data, split)
    for out in sorted(path for path in folder.iterdir() if (path / "card.md").exists()):
        run = sightline.load(out)
        for kept in (True, False):
            texts = [one.text for one in run.predict([x for x, _ in test], keep_unknown=kept)]  # type: ignore[attr-defined]
            shared = right = 0
            for (x, y), text in zip(test, texts, strict=True):
                words = {
                    word for word in {*x.split()} & {*y.split()} if known[word] <= most and any(map(str.isalnum, word))
                }
                shared, right = shared + len(words), right + len(words & {*text.split()})
            bleu = METRICS["bleu"](texts, [y for _, y in test]).value
            row = {"run": out.name, "unknown": "kept" if kept else "replaced", "BLEU": round(bleu, 2)}
            print(json.dumps({**row, "rare words right": f"{right} of {shared}"}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("made", "speed", "memory", "translate", "rare", "one"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("runs/copying"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--model", choices=MODELS, default="transformer")
    parser.add_argument("--on", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--test", action="store_true", help="score the test data: once")
    chosen = parser.parse_args()
    if chosen.what in ("translate", "rare") and chosen.data is None:
        parser.error(f"{chosen.what} needs --data FOLDER")
    if chosen.what == "made":
        made(chosen.folder)
    elif chosen.what == "speed":
        speed()
    elif chosen.what == "memory":
        memory()
    elif chosen.what == "translate":
        translate(chosen.data, chosen.folder, chosen.minutes)
    elif chosen.what == "rare":
        rare(chosen.data, chosen.folder, "test" if chosen.test else "valid")
    else:
        one(chosen.model, chosen.on)


if __name__ == "__main__":
    main()
