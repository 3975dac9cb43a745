"""Tables that questions are about, made to do harm or damaged at random: each is read, or refused in one sentence.

    python benchmarks/hostile_questions.py --mutated 10000 --write

A table that is read is also asked: numbers are made of it, an untrained model answers, and the answer is written for a
spreadsheet. Counted as a fault: any exception that is not an error of ours of one line, more than 5 seconds of the
processor, more than 1 GB, cells that are lost, and an answer that a spreadsheet would run as a formula.
"""

import argparse
import csv
import io
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fuzz import _too_long, damaged
from hostile_tables import LONGEST_SENTENCE, _parquet, attempt
from report import machine, write_section
from sightline.data.table_files import BadTableError, read_table
from sightline.data.values import cell_matches
from sightline.errors import UserError
from sightline.inputs.table import Asked, TableInput
from sightline.models.asking import collate_tables
from sightline.models.neural_programmer import NeuralProgrammerConfig
from sightline.outputs.answer import AnswerOutput
from sightline.tasks.configs.ask import AskConfig

QUESTION = "which nation won more than 10 medals after 2010, and how many?"
HEADER, ROWS = ["Nation", "Gold", "Year"], [["Norway", "16", "2022"], ["Italy", "1,5", "2010"], ["=cmd()", "-3", ""]]


def _csv(rows: list[list[str]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    return text.getvalue().encode()


def _large(path: Path) -> None:
    """A file of 1 GB that takes no room on the disk."""
    with path.open("wb") as file:
        file.write(b"a,b\n1,2\n")
        file.truncate(1 << 30)


def hostile() -> dict[str, bytes | Callable[[Path], Any]]:
    """The cases, by the names of their files."""
    wide = [[f"c{n}" for n in range(500)], *[[str(n * m) for n in range(500)] for m in range(40)]]
    return {
        "ragged.csv": b"a,b,c\n1\n1,2,3,4,5\n\n,,\n",
        "ten thousand rows.csv": _csv([HEADER, *ROWS * 3334]),
        "five hundred columns.csv": _csv(wide),
        "too many columns.csv": _csv([[f"c{n}" for n in range(50_000)], ["1"] * 50_000]),
        "empty cells.csv": _csv([HEADER, ["", "", ""], ["Norway", "", ""]]),
        "no rows.csv": _csv([HEADER]),
        "nothing.csv": b"",
        "blank.csv": b"\n" * 1000,
        "same headers.csv": _csv([["a", "a", "a", ""], ["1", "2", "3", "4"]]),
        "merged.csv": _csv([["Medals", "", ""], HEADER, *ROWS]),
        "latin.csv": "Größe,Höhe\nKöln,1\n".encode("latin-1"),
        "utf-16.csv": "a,b\n1,2\n".encode("utf-16"),
        "mark.csv": b"\xef\xbb\xbfa,b\n1,2\n",
        "formulas.csv": _csv([["=1+1", "+2", "@a"], ["=cmd|' /C calc'!A0", "-2+3", "@SUM(1)"]]),
        "semicolons.csv": _csv([HEADER, *ROWS], ";"),
        "tabs.tsv": _csv([HEADER, *ROWS], "\t"),
        "quote.csv": b'a,b\n"1,2\n' * 2000,
        "long cell.csv": b"a,b\n" + b"x" * 2_000_000 + b",1\n",
        "zeros.csv": bytes(200_000),
        "large.csv": _large,
        "digits.csv": b"a,b\n" + b"9" * 90_000 + b",1\n",
        "commas.csv": _csv([["a"], ["1," * 40_000]]),
        "brackets.csv": _csv([["a"], ["(" * 90_000], ["[" * 90_000], ["1st " * 20_000], ["january " * 10_000]]),
        "direction.csv": "a,b\n\u202eabc,\u0000\n".encode(),
        "rows.json": json.dumps({"header": HEADER, "rows": ROWS}).encode(),
        "objects.json": json.dumps([dict(zip(HEADER, row, strict=True)) for row in ROWS]).encode(),
        "nested.json": json.dumps([{"a": {"b": [1, {"c": None}]}, "d": [True, 1e400]}]).encode(),
        "deep.json": b"[" * 500_000,
        "surrogates.json": b'[{"a": "\\ud800"}]',
        "lines.jsonl": b'{"a": 1}\n{"b": 2}\nnull\n[1]\n',
        "values.parquet": _parquet(nation=["Norway", None, "x"], gold=[1.5, float("nan"), float("inf")]),
        "folder.csv": lambda path: path.mkdir(),
        "link.csv": lambda path: path.symlink_to("/dev/zero"),
    }


class Reader:
    """Reads a table, and asks it."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        config = AskConfig()
        self.input, self.output = TableInput(config, ("which", "nation", "won", "more", "gold")), AnswerOutput(config)
        self.model = NeuralProgrammerConfig(size=16).build(self.input.vocabulary_size).eval()

    def __call__(self, path: Path) -> str:
        try:
            item = Asked(QUESTION, read_table(str(path)))
        except (UserError, BadTableError) as error:
            sentence = str(error)
            if "\n" in sentence or len(sentence) > LONGEST_SENTENCE:
                return f"fault: {len(sentence):,} characters or several lines"
            return "refused"
        table = item.table
        if any(len(row) != len(table.header) for row in table.rows):
            return "fault: ragged rows"
        if not table.rows:
            return "read"
        cell_matches(table.rows, QUESTION)
        (program,) = self.model.programs(collate_tables([self.input.arrays(*item)]))
        prediction = self.output.decide(item, program)
        line = self.output.line(item, prediction)
        json.dumps(self.output.to_json(item, prediction))
        if "\n" in line or any(cell.startswith(("=", "+", "@")) for cell in line.split("\t")):
            return f"fault: the line {line[:60]!r}"
        return "read"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutated", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_long)
    torch.set_num_threads(1)
    counts: dict[str, Counter[str]] = {"made to do harm": Counter(), "damaged at random": Counter()}
    read, cases = Reader(), hostile()

    def note(kind: str, name: str, path: Path) -> None:
        result = attempt(lambda: read(path))
        counts[kind][result.partition(":")[0]] += 1
        if result.startswith("fault"):
            print(f"{name}: {result}", file=sys.stderr)

    with tempfile.TemporaryDirectory(prefix="sightline-questions-") as name:
        good: dict[str, bytes] = {}
        for case, content in cases.items():
            path = Path(name) / case
            if isinstance(content, bytes):
                path.write_bytes(content)
            else:
                content(path)
            note("made to do harm", case, path)
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 20_000:
                good[case] = path.read_bytes()
        draw = random.Random(chosen.seed)
        for number in range(chosen.mutated):
            case = list(good)[number % len(good)]
            path = Path(name) / f"case{Path(case).suffix}"
            path.write_bytes(damaged(good[case], draw))
            note("damaged at random", f"{case}, case {number}", path)
    rows = [
        f"| {kind} | {some.total():,} | {some['read']:,} | {some['refused']:,} | {some['fault']:,} |"
        for kind, some in counts.items()
    ]
    text = "\n".join(["| tables | cases | read and asked | refused | faults |", "|---|--:|--:|--:|--:|", *rows])
    print(text)
    if chosen.write:
        again = f"Reproduce: `python benchmarks/hostile_questions.py --mutated {chosen.mutated} --write`."
        write_section(
            "questions", "\n\n".join(["## Hostile tables of questions", f"Measured on {machine()}.", text, again])
        )
    if any(some["fault"] for some in counts.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
