"""Strangers' files: damaged at random, read by every reader and loader, which must answer with their own errors.

    python benchmarks/fuzz.py --cases 100000 --write

Each case takes a good file or run folder, damages it (bytes flipped, cut, doubled, swapped, numbers made huge, parts of
JSON replaced by other kinds) and reads it. Allowed: that it is read, or an error of ours, which the command line prints
as one sentence. Counted as a fault: any other exception, more than 5 seconds, or more than ``--megabytes`` beyond what
the good files need.
"""

import argparse
import contextlib
import gzip
import importlib
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from report import machine, write_section

SECONDS = 5.0
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1e308,
    10**30,
    "",
    "x" * 500,
    [],
    {},
    [[]],
    {"kind": "additive"},
    [None],
    "nan",
    2**31,
]
NUMBERS = [b"0", b"-1", b"99999999999", b"1e999", b"NaN", b"null", b"2147483648", b"1e-400"]


def damaged(content: bytes, draw: random.Random) -> bytes:
    """One to four faults."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        content = draw.choice(FAULTS)(content, draw)
    return content


def _flip(content: bytes, draw: random.Random) -> bytes:
    found = bytearray(content)
    for _ in range(draw.choice((1, 1, 3, 20))):
        if found:
            found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def _double(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    end = min(len(content), start + draw.choice((1, 8, 64, 1024)))
    return content[:end] + content[start:end] * draw.choice((1, 2, 50)) + content[end:]


def _put_in(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    odd = (b"\0", b"\xff\xfe", b"\xed\xa0\x80", b'"', b"\t" * 9, b"\n\r", b"{" * 3000, b"[" * 3000, *NUMBERS)
    return content[:start] + draw.choice(odd) + content[start + draw.choice((0, 1, 4)) :]


def _number(content: bytes, draw: random.Random) -> bytes:
    places = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not places:
        return _flip(content, draw)
    start = draw.choice(places)
    end = start
    while end < len(content) and 48 <= content[end] < 58:
        end += 1
    return content[:start] + draw.choice(NUMBERS) + content[end:]


def _json(content: bytes, draw: random.Random) -> bytes:
    """A value somewhere in a JSON file, or in one of its lines, becomes another kind."""
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        return _flip(content, draw)
    places = list(_places(data))
    if not places:
        return json.dumps(draw.choice(ODD)).encode()
    holder, key = draw.choice(places)
    if draw.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = draw.choice(ODD)
    return json.dumps(data).encode()


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    keys = data.keys() if isinstance(data, dict) else range(min(len(data), 50)) if isinstance(data, list) else ()
    for key in list(keys):
        yield data, key
        yield from _places(data[key])


FAULTS = (_flip, _cut, _double, _put_in, _number, _json, _json)


class Target:
    """Good files, and what reads them. ``content`` is by path; the case damages one of ``names``."""

    def __init__(self, content: dict[str, bytes], read: Callable[[Path], Any], names: list[str] | None = None) -> None:
        self.content, self.read, self.names = content, read, names or list(content)

    def write(self, folder: Path, changed: dict[str, bytes]) -> None:
        for name, content in {**self.content, **changed}.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def files_of(folder: Path, names: list[str]) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names}


def tables() -> dict[str, Target]:
    """Every reader of rows, from every form."""
    from sightline.data.answers import AnswersFile, read_answers
    from sightline.data.labelled import LabelledFile, read_labelled
    from sightline.data.plain import PlainFile, read_plain
    from sightline.data.reading import PairFiles, read_rows
    from sightline.data.tagged import TaggedFile, read_tagged

    pairs = [(f"a b {i}", f"ü {i}") for i in range(20)]
    tsv = "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in pairs)
    csv = "source,target\n" + "".join(f'"{a}","{b}, ""x"""\n' for a, b in pairs)
    lines = "".join(json.dumps({"source": a, "target": b}, ensure_ascii=False) + "\n" for a, b in pairs)
    labels = "".join(json.dumps({"text": a, "label": i % 3}) + "\n" for i, (a, _) in enumerate(pairs))
    asked = "".join(json.dumps({"question": "q?", "text": a, "answer": a[:1], "start": 0}) + "\n" for a, _ in pairs)
    tagged = "".join("Ann\tB-PER\nsleeps\tO\n\n" for _ in range(9))

    def drained(make: Callable[[str], Iterator[Any]], name: str) -> Callable[[Path], Any]:
        return lambda folder: [None for _ in make(str(folder / name))]

    found = {
        "pairs.tsv": Target({"a.tsv": tsv.encode()}, drained(lambda p: read_rows(PairFiles(p)), "a.tsv")),
        "pairs.csv": Target({"a.csv": csv.encode()}, drained(lambda p: read_rows(PairFiles(p)), "a.csv")),
        "pairs.jsonl": Target({"a.jsonl": lines.encode()}, drained(lambda p: read_rows(PairFiles(p)), "a.jsonl")),
        "pairs.tsv.gz": Target(
            {"a.tsv.gz": gzip.compress(tsv.encode())}, drained(lambda p: read_rows(PairFiles(p)), "a.tsv.gz")
        ),
        "labels": Target({"a.jsonl": labels.encode()}, drained(lambda p: read_labelled(LabelledFile(p)), "a.jsonl")),
        "answers": Target({"a.jsonl": asked.encode()}, drained(lambda p: read_answers(AnswersFile(p)), "a.jsonl")),
        "tags": Target({"a.conll": tagged.encode()}, drained(lambda p: read_tagged(TaggedFile(p)), "a.conll")),
        "plain": Target({"a.txt": tsv.encode()}, drained(lambda p: read_plain(PlainFile(p)), "a.txt")),
    }
    try:
        pyarrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        return found
    held = io.BytesIO()
    parquet.write_table(pyarrow.table({"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}), held)
    found["pairs.parquet"] = Target(
        {"a.parquet": held.getvalue()}, drained(lambda p: read_rows(PairFiles(p)), "a.parquet")
    )
    return found


def runs(folder: Path) -> dict[str, Target]:
    """Run folders of small trained models, and what they hold."""
    from sightline.api import load
    from sightline.data.labelled import LabelledFile
    from sightline.data.reading import PairFiles
    from sightline.explanation import Explanation
    from sightline.models.rnnsearch import RNNSearchConfig
    from sightline.tasks.classify import ClassifyConfig, train_classify
    from sightline.tasks.translate import TranslateConfig, train_translate
    from sightline.training.loop import TrainingConfig

    training = TrainingConfig(steps=2)
    (folder / "pairs.tsv").write_text("source\ttarget\n" + "".join(f"ab{i}\tba{i}\n" for i in range(60)))
    (folder / "texts.tsv").write_text("text\tlabel\n" + "".join(f"{'ab'[i % 2]} {i}\t{i % 2}\n" for i in range(60)))
    quiet: dict[str, Any] = {"on_remark": lambda text: None}
    model = RNNSearchConfig(8, 8)
    translator, _ = train_translate(
        PairFiles(str(folder / "pairs.tsv")), folder / "run", TranslateConfig(model=model, training=training), **quiet
    )
    train_classify(
        LabelledFile(str(folder / "texts.tsv")), folder / "classify", ClassifyConfig(training=training), **quiet
    )
    names = ["config.json", "model.safetensors", "source.json", "target.json"]
    labels = ["config.json", "labels.json", "tokenizer.json", "model.safetensors", "floors.json", "floors.safetensors"]

    def explained(path: Path) -> Any:
        return Explanation.from_json(json.loads((path / "a.json").read_text(encoding="utf-8")))

    text = json.dumps(translator.explain("ab1", measure=False).to_json()).encode()
    return {
        "run of translate": Target(
            files_of(folder / "run", names), lambda path: load(path).predict(["ab1"], beam=1, max_length=4)
        ),
        "run of classify": Target(files_of(folder / "classify", labels), lambda path: load(path).predict(["a 1"])),
        "explanation": Target(
            {"a.json": text}, _allowing(explained, (KeyError, TypeError, ValueError, AttributeError))
        ),
    }


def _allowing(read: Callable[[Path], Any], errors: tuple[type[Exception], ...]) -> Callable[[Path], Any]:
    """Plain data given to Python, not to a command: Python's own errors are the answer."""

    def reading(path: Path) -> None:
        with contextlib.suppress(*errors):
            read(path)

    return reading


def images() -> dict[str, Target]:
    from PIL import Image

    from sightline.data.images import read_image

    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    found = {}
    for name in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"):
        held = io.BytesIO()
        Image.fromarray(pixels).save(held, name)

        found[f"image {name}"] = Target({"a.img": held.getvalue()}, lambda folder: read_image(folder / "a.img"))
    return found


def attempt(target: Target, folder: Path, draw: random.Random) -> tuple[str, float]:
    """What came of one case: read, refused or a fault; and the seconds it took."""
    from sightline.data.images import BadImage
    from sightline.errors import SightlineError

    name = draw.choice(target.names)
    target.write(folder, {name: damaged(target.content[name], draw)})
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(folder)
        result = "read"
    except (SightlineError, BadImage):
        result = "refused"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        result = f"fault: {type(error).__name__}: {str(error)[:80]} ({Path(where.filename).name}:{where.lineno})"
    seconds = time.perf_counter() - began
    return (result if seconds <= SECONDS else f"fault: {seconds:.1f} s"), seconds


def work(names: list[str] | None, cases: int, seed: int, megabytes: int, queue: Any) -> None:
    """The share of one process."""
    import torch

    torch.set_num_threads(1)
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="sightline-fuzz-") as name:
        made = Path(name) / "made"
        made.mkdir()
        targets = {**tables(), **runs(made), **images()}
        targets = {key: target for key, target in targets.items() if names is None or key in names}
        for key, target in targets.items():  # what is good must be read, and what it needs is not counted
            folder = Path(name) / "good" / key.replace(" ", "-")
            target.write(folder, {})
            target.read(folder)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(cases):
            key = list(targets)[number % len(targets)]
            folder = Path(name) / "case"
            result, seconds = attempt(targets[key], folder, draw)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024
            if grown > megabytes:
                result = f"fault: {grown:,.0f} MB"
                base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if result.startswith("fault"):
                kept = Path(tempfile.gettempdir()) / f"sightline-fuzz-fault-{seed}-{number}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(folder, kept)
                result += f" [{kept}]"
            queue.put((key, result, seconds))
            shutil.rmtree(folder, ignore_errors=True)
    queue.put(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    queue = multiprocessing.get_context("spawn").Queue()
    share = -(-chosen.cases // chosen.processes)
    started = [
        multiprocessing.get_context("spawn").Process(
            target=work, args=(chosen.only, share, chosen.seed + number, chosen.megabytes, queue)
        )
        for number in range(chosen.processes)
    ]
    for process in started:
        process.start()
    counts: dict[str, Counter[str]] = {}
    faults: Counter[str] = Counter()
    slowest, ended, done = 0.0, 0, 0
    while ended < len(started):
        found = queue.get()
        if found is None:
            ended += 1
            continue
        key, result, seconds = found
        counts.setdefault(key, Counter())[result.split(":")[0]] += 1
        slowest, done = max(slowest, seconds), done + 1
        if result.startswith("fault"):
            faults[f"{key}: {result}"] += 1
            print(f"{key}: {result}", file=sys.stderr, flush=True)
        if done % 5000 == 0:
            print(f"{done:,} cases, {faults.total()} faults", file=sys.stderr, flush=True)
    rows = [
        f"| {key} | {some.total():,} | {some['read']:,} | {some['refused']:,} | {some['fault']} |"
        for key, some in sorted(counts.items())
    ]
    text = "\n".join(
        [
            f"{done:,} cases, {faults.total()} faults; the slowest took {slowest:.2f} s; no process grew by more than "
            f"{chosen.megabytes} MB."
            if not faults
            else f"{done:,} cases, {faults.total()} faults.",
            "",
            "| | cases | read | refused in a sentence | faults |",
            "|---|--:|--:|--:|--:|",
            *rows,
        ]
    )
    print(text)
    if chosen.write:
        again = "Again: `python benchmarks/fuzz.py --cases 100000 --write`."
        write_section("fuzz", "\n\n".join(["## Strangers' files", f"Measured on {machine()}.", text, again]))


if __name__ == "__main__":
    main()
