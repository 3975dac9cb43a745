"""Tables made to do harm, and good ones damaged at random: every reader answers with rows or with one sentence.

    python benchmarks/hostile_tables.py --mutated 4000 --write

Allowed: rows, rows with a problem, or an error of ours of one line. Counted as a fault: any other exception, more than
5 seconds of the processor, or more than 1 GB beyond what the program needs by itself.
"""

import argparse
import gzip
import importlib
import io
import json
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fuzz import TooLong, _too_long, damaged
from fuzz_targets import tables
from report import machine, write_section

SECONDS, MEGABYTES, HANGING = 5.0, 1000, 60
LONGEST_SENTENCE = 1500  # characters of an error
HEADER = b"source\ttarget\n"
_OFFSETS = b"\x03\0\0\0\x06\0\0\0"  # of the first cells of an Arrow column
ROW = b'{"source": "a", "target": "b"}'


# Those that take a second or more to make or to read.
SLOW = {"bomb.tsv.gz", "endless line.tsv", "repeated.parquet", "lists.parquet", "long.parquet", "many columns.csv"}


class Hostile(NamedTuple):
    """A file or a folder made to do harm, or an address; the task that reads it, and its path below the folder."""

    name: str
    content: bytes | Callable[[Path], Any]
    task: str = "translate"
    data: str | None = None


def _zeros(path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    block = bytes(1 << 20)
    path.write_bytes(b"".join(packer.compress(block) for _ in range(400)) + packer.flush())


def _parquet(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
        rows = max(len(one) for one in columns.values())
        whole = {name: one if len(one) == rows else ["y"] * rows for name, one in columns.items()}
        pq.write_table(pa.table(whole), path, compression="zstd", dictionary_pagesize_limit=1 << 27)

    return write


def _repeated(text: str, count: int, lists: int = 0) -> Any:
    pa = importlib.import_module("pyarrow")
    array = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))
    return pa.ListArray.from_arrays(pa.array(range(0, count + 1, count // lists)), array) if lists else array


def _arrow(change: Callable[[bytes], bytes]) -> bytes:
    pa = importlib.import_module("pyarrow")
    held = io.BytesIO()
    table = pa.table({"source": [f"a {i}" for i in range(50)], "target": [f"b {i}" for i in range(50)]})
    with pa.ipc.new_stream(held, table.schema) as stream:
        stream.write_table(table)
    return change(held.getvalue())


def _folder(**files: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.mkdir()
        for name, content in files.items():
            (path / name.replace("__", ".")).write_bytes(content)

    return write


def _linked(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def _images(*names: str) -> bytes:
    return "".join(json.dumps({"image": name, "caption": "a"}) + "\n" for name in names).encode()


def hostile() -> list[Hostile]:
    """The cases. The name of each ends as its file does."""
    coco = {"images": [{"id": [1], "file_name": 3}, 5], "annotations": [{"image_id": {}}, 7, {"image_id": 1}]}
    return [
        Hostile("empty.tsv", b""),
        Hostile("header alone.tsv", HEADER),
        Hostile("zeros.tsv", bytes(100_000)),
        Hostile("line breaks.tsv", b"\n" * 100_000),
        Hostile("returns.csv", b"source,target\ra,b\r" * 5000),
        Hostile("one line.tsv", HEADER + b"x" * 5_000_000),
        Hostile("endless line.tsv", _linked("/dev/zero")),
        Hostile("tabs.tsv", b"\t" * 900_000 + b"\n"),
        Hostile("many columns.csv", ",".join(f"c{i}" for i in range(100_000)).encode() + b"\n"),
        Hostile("twice the same column.tsv", b"source\tsource\ttarget\na\tb\tc\n"),
        Hostile("header of other data.tsv", b"text\tlabel\n" + b"a sentence\t1\n" * 50),
        Hostile("header of nothing.tsv", b"one\ttwo\n" + b"a sentence\tand another\n" * 50),
        Hostile("wrong counts.tsv", HEADER + b"a\tb\tc\n" * 10_000),
        Hostile("quote.csv", b'source,target\n"' + b"a,b\n" * 50_000),
        Hostile("quotes.csv", b"source,target\n" + b'"a""' * 100_000),
        Hostile("first quote.csv", b'"source,target\na,b\n'),
        Hostile("long cell.csv", b'source,target\n"' + b"x" * 900_000 + b'",b\n'),
        Hostile("no mark.tsv", "source\ttarget\na\tb\n".encode("utf-16-le")),
        Hostile("two marks.tsv", b"\xef\xbb\xbf\xef\xbb\xbfsource\ttarget\na\tb\n"),
        Hostile("latin.tsv", HEADER + "Größe\tsize\n".encode("latin-1") * 50),
        Hostile("surrogates.jsonl", b'{"source": "\\ud800", "target": "b"}\n'),
        Hostile("escapes.tsv", b"\x1b[31msource\t\x1b]0;title\x07\ttarget\na\tb\tc\n"),
        Hostile("direction.tsv", HEADER + "\u202eabc\tx\n".encode()),
        Hostile("formula.csv", b"source,target\n\"=cmd|' /C calc'!A0\",b\n"),
        Hostile("bomb.tsv.gz", _zeros),
        Hostile("bomb of lines.tsv.gz", gzip.compress(HEADER + b"\t\n" * 50_000)),
        Hostile("cut.tsv.gz", gzip.compress(HEADER + b"a\tb\n" * 1000)[:-9]),
        Hostile("packed twice.tsv.gz", gzip.compress(gzip.compress(HEADER + b"a\tb\n"))),
        Hostile("brackets.jsonl", b"[" * 500_000 + b"\n" + b'{"a":' * 100_000 + b"\n"),
        Hostile("digits.jsonl", b'{"source": ' + b"9" * 100_000 + b', "target": "b"}\n'),
        Hostile("no numbers.jsonl", b'{"source": NaN, "target": Infinity}\n'),
        Hostile("same keys.jsonl", b'{"source": "a", "source": "b", "target": "c"}\n'),
        Hostile("many keys.jsonl", json.dumps({f"k{i}": i for i in range(50_000)}).encode()),
        Hostile("brackets.json", b"[" * 500_000),
        Hostile("never closed.json", b"[" + b",".join([ROW] * 1000)),
        Hostile("no commas.json", b"[" + b" ".join([ROW] * 1000) + b"]"),
        Hostile("lists.json", json.dumps([[1, 2], ["a"], None, 3]).encode()),
        Hostile("long value.json", b'[{"source": "' + b"x" * 5_000_000 + b'", "target": "b"}]'),
        Hostile("long number.json", b"[" + b"1" * 3_000_000 + b"]"),
        Hostile("blanks.json", b" " * 5_000_000),
        Hostile("coco.json", json.dumps(coco).encode(), "caption"),
        Hostile("objects.json", b'{"a": [1], "b": [2], "c": {"d": [3]}}'),
        Hostile("repeated.parquet", _parquet(source=_repeated("x" * 4_000_000, 1000), target=["y"])),
        Hostile("lists.parquet", _parquet(source=_repeated("x" * 900_000, 4000, 4), target=["y"])),
        Hostile("long.parquet", _parquet(source=["x" * 50_000_000], target=["y"])),
        Hostile("numbers.parquet", _parquet(source=[1, 2, 3], target=[None, 1.5, 2.0])),
        Hostile("bytes.parquet", _parquet(source=[b"\xff", b"a"], target=["y", "z"])),
        Hostile("objects.parquet", _parquet(translation=[{"en": {"a": [1]}, "de": None}])),
        Hostile("no parquet.parquet", b"PAR1" + bytes(100) + b"PAR1"),
        Hostile("cut.arrow", _arrow(lambda content: content[: len(content) // 2])),
        Hostile(
            "offsets.arrow", _arrow(lambda content: content.replace(b"\x03\0\0\0\x06\0\0\0", b"\xff\xff\xff\x7f" * 2))
        ),
        Hostile("no arrow.feather", b"FEA1" + bytes(50)),
        Hostile("labels alone.txt", b"__label__a\n" * 100, "classify"),
        Hostile("long label.txt", b"__label__" + b"a" * 500_000 + b" text\n", "classify"),
        Hostile("bars.txt", b"a ||| b\n" + b"|||" * 300_000 + b"\n"),
        Hostile("sheet.xlsx", b"PK\x03\x04" + bytes(50)),
        Hostile("pickle.pkl", b"cos\nsystem\n(S'false'\ntR."),
        Hostile("a folder.tsv", _folder()),
        Hostile("shards", _folder(a__tsv=HEADER + b"a\tb\n", b__tsv=b"a sentence\tb c\n")),
        Hostile("kinds", _folder(a__tsv=HEADER + b"a\tb\n", b__csv=b"source,target\na,b\n")),
        Hostile("chain", b"", data="simplecache::file:///etc/hostname"),
        Hostile("protocol", b"", data="nothing://a.tsv"),
        Hostile("no such file", b"", data="none.tsv"),
        Hostile("pattern", b"", data="none-*.tsv"),
        Hostile("addresses.jsonl", _images("http://127.0.0.1:1/a.png", "data:image/png;base64,AAAA"), "caption"),
        Hostile("paths.jsonl", _images("../" * 500 + "etc/passwd", "/dev/zero", "x" * 200_000, "a\0b"), "caption"),
        Hostile("separators.jsonl", _images("C:\\a\\b.png", "\\\\host\\share\\a.png", "a\\..\\b.png"), "caption"),
        Hostile("metadata", _folder(metadata__csv=b"name,text\na.png,b\n"), "caption"),
        Hostile("many columns.conll", b"w\t" * 200_000 + b"O\n\n", "tag"),
        Hostile("words alone.conll", b"word\n" * 5000, "tag"),
        Hostile("one sentence.conll", b"word\tO\n" * 100_000, "tag"),
        Hostile("no answers.jsonl", b'{"question": {}, "text": [], "answer": 3, "start": "x"}\n', "span"),
        Hostile("nested words.jsonl", b'{"words": [[["a"]]], "tags": {"a": 1}}\n', "tag"),
    ]


def read(data: str, task: str) -> str:
    """Read all rows: what came of it."""
    from sightline.data.source import Source
    from sightline.errors import SightlineError
    from sightline.tasks.prepare import table_of
    from sightline.tasks.registry import task_named

    chosen, source = task_named(task), Source(data)
    rows: Counter[bool] = Counter()
    try:
        variant = chosen.variant_for(source)
        for row in table_of(source, chosen.of(variant), variant.columns or chosen.columns):
            rows[row.problem is not None] += 1
            assert row.problem is None or ("\n" not in row.problem and len(row.problem) < LONGEST_SENTENCE), row.problem
    except SightlineError as error:
        sentence = str(error)
        assert "\n" not in sentence, f"several lines: {sentence!r}"
        assert len(sentence) < LONGEST_SENTENCE, f"a long sentence: {len(sentence)} characters"
        return "refused"
    return "rows with problems" if rows[True] else "read"


def made(folder: Path, quick: bool) -> Iterator[tuple[str, str, str]]:
    """The hostile tables on the disk: the name, the path or address, and the task of each."""
    for case in hostile():
        if quick and case.name in SLOW:
            continue
        path = folder / case.name
        if case.data is None and isinstance(case.content, bytes):
            path.write_bytes(case.content)
        elif case.data is None:
            case.content(path)  # type: ignore[operator]
        yield case.name, case.data or str(path), case.task


def attempt(do: Callable[[], str]) -> str:
    """What came of one case: `read`, or the fault."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_REAL, HANGING)
    try:
        result = do()
    except TooLong:
        return f"fault: cut off after {HANGING} s"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"fault: {type(error).__name__}: {str(error)[:200]} ({Path(where.filename).name}:{where.lineno})"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    seconds, grown = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    if seconds > SECONDS:
        return f"fault: {seconds:.1f} s"
    return f"fault: {grown / 1024:,.0f} MB" if grown > 1024 * MEGABYTES else result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutated", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="leave out what takes a second or more")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    counts: dict[str, Counter[str]] = {"made to do harm": Counter(), "damaged at random": Counter()}

    def note(kind: str, name: str, result: str) -> None:
        counts[kind][result.partition(":")[0]] += 1
        if result.startswith("fault"):
            print(f"{name}: {result}", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="sightline-tables-") as name:
        for case, data, task in made(Path(name), chosen.quick):
            note("made to do harm", case, attempt(lambda data=data, task=task: read(data, task)))  # type: ignore[misc]
        draw, targets, folder = random.Random(chosen.seed), tables(), Path(name) / "case"
        for number in range(chosen.mutated):
            key = list(targets)[number % len(targets)]
            target = targets[key]
            file = draw.choice(target.names)
            target.write(folder, {file: damaged(target.content[file], draw)})
            result = attempt(lambda folder=folder, file=file, task=target.task: read(str(folder / file), task))  # type: ignore[misc]
            note("damaged at random", f"{key}, case {number}", result)
            shutil.rmtree(folder)
    kinds = ("read", "rows with problems", "refused", "fault")
    numbers = {kind: " | ".join(f"{some[one]:,}" for one in kinds) for kind, some in counts.items()}
    rows = [f"| {kind} | {counts[kind].total():,} | {columns} |" for kind, columns in numbers.items()]
    head = "| tables | cases | read | rows with problems | refused with one sentence | faults |"
    text = "\n".join([head, "|---|--:|--:|--:|--:|--:|", *rows])
    print(text)
    if chosen.write:
        again = f"Reproduce: `python benchmarks/hostile_tables.py --mutated {chosen.mutated} --write`."
        write_section("tables", "\n\n".join(["## Hostile tables", f"Measured on {machine()}.", text, again]))
    if any(some["fault"] for some in counts.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
