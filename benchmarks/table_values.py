"""How far our parser of cells agrees with the values that come with WikiTableQuestions.

    python benchmarks/table_values.py --data FOLDER [--split train|test] [--show 30]

FOLDER has ``tables``, ``cell-values.tsv.gz`` (number, date, second number of each cell, by CoreNLP) and the questions.
Values are compared on the tables of the questions of one split. Some forms of cells are known to be read wrongly, or
otherwise than we mean to (`FORMS`): a cell has such a form by its text alone, whether the two values differ or not. The
share of equal values is given of all cells, and of the plain ones, which have none of these forms. Of each form it is
told how often the values are equal and how often not; who is right then, only a reader can say (``--form``).
"""

import argparse
import csv
import gzip
import random
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sightline.data.dates import Date
from sightline.data.values import Value, column_values

# What the given values do with it, and the form of the text.
FORMS = {
    "day and year as one number": r"[a-z]{3,}\.? \d{1,2},? ?\d{4}",
    "place on a map in parts": r"[°º]",
    "time in parts": r"\d:[0-5]\d",
    "million, billion left out": r"\d ?(?:million|billion|thousand|trillion|mn|bn|crore|lakh)|[$£€¥]\s?[\d.,]+[kmb]",
    "unit of two parts": r"\d ?(?:ft|feet|foot|years?|hours?|h|lb),? (?:and )?\d",
    "sign left out": r"(?:^|[\s(])[-−–]\s?[.\d]",
    "dot of an abbreviation as a decimal point": r"[a-z)]\.\s?\d|\d\.\s\d",
    "list or remark behind a comma as one number": r"\d,\s+\d",
    "decimal comma left out": r"\d,\d{1,2}(?!\d)",
    "groups of two digits": r"\d{1,2},\d{2},\d{3}",
    "numbers apart as one": r"\d \d",
    "season that ends in a two-digit year": r"[12]\d{3} ?[-–/] ?\d\d(?!\d)",
    "footnote as a number": r"\[[^]]*\d[^]]*\]",
    "exponent of a unit": r"m[23]|²|³|mi2|ft2",
    "fraction left out": r"[½¼¾⅓⅔]",
    "number in a word or abbreviation left out": r"\w\.\w|[a-z]/\d|^[^\d]*[./][^\d]*\d|[ivx]+\.",
}
_COMPILED = {name: re.compile(pattern) for name, pattern in FORMS.items()}
DATE_FORMS = {
    "day before month with hyphens or slashes": r"^\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}",
    "season as a month": r"^[12]\d{3}[-/]\d\d$",
    "range, time or remark behind a date": r"[-–—−(\[*†‡/&]|\bto\b|\d,.*\d,|\d:\d|;|\n|[#|]|, \D",
    "several years as one": r"^\d{4},",
}
_DATE_COMPILED = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in DATE_FORMS.items()}


class Given(NamedTuple):
    """The given values of a cell, as text."""

    number: str = ""
    date: str = ""
    second: str = ""


class Case(NamedTuple):
    """A cell with both values of it."""

    where: str
    text: str
    given: Given
    own: Value


def read_given(folder: Path) -> dict[tuple[str, int, int], Given]:
    """The given values by table, row and column, all counted from 0."""
    given: dict[tuple[str, int, int], Given] = {}
    with gzip.open(folder / "cell-values.tsv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            given[row["table"], int(row["row"]), int(row["col"])] = Given(row["number"], row["date"], row["num2"])
    return given


def cases(folder: Path, split: str) -> Iterator[Case]:
    """All cells of the tables of a split."""
    given = read_given(folder)
    lines = (folder / f"{split}.tsv").read_text(encoding="utf-8").split("\n")[1:]
    for table in sorted({line.split("\t")[2] for line in lines if line}):
        with (folder / "tables" / table).open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))[1:]
        for column in range(max(map(len, rows), default=0)):
            cells = [row[column] if column < len(row) else "" for row in rows]
            for number, (text, own) in enumerate(zip(cells, column_values(cells), strict=True)):
                yield Case(f"{table}:{number}:{column}", text, given.get((table, number, column), Given()), own)


def _reason(patterns: dict[str, re.Pattern[str]], text: str) -> str:
    lower = text.lower().replace("\xa0", " ")
    return next((name for name, pattern in patterns.items() if pattern.search(lower)), "")


def _is_dated(given: str) -> bool:
    return re.fullmatch(r"[\dx]+-(?:\d+-..|..-\d+)", given) is not None


def given_date(given: str) -> Date | None:
    """Year, month and day of a given date that is more than a year."""
    if not _is_dated(given):
        return None
    year, month, day = (None if "x" in field else int(field) for field in given.split("-"))
    return year, month, day


class Counts:
    """How often two values are there and equal, for all cells and for each form."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.same: Counter[str] = Counter()
        self.others: dict[str, list[tuple[Case, object, object]]] = defaultdict(list)

    def add(self, case: Case, given: object, own: object, same: bool, form: str) -> None:
        if given is None and own is None:
            return
        self.counts["all"] += 1
        self.counts["given"] += given is not None
        self.counts["own"] += own is not None
        self.same[form] += same
        if not same:
            self.others[form].append((case, given, own))

    def line(self, name: str) -> str:
        same, plain = self.same.total(), self.same[""] + len(self.others[""])
        shares = [100 * same / max(1, self.counts[key]) for key in ("own", "given", "all")]
        figures = " | ".join(f"{share:.1f}" for share in shares)
        return (
            f"| {name} | {self.counts['all']:,} | {figures} | {plain:,} | {100 * self.same[''] / max(1, plain):.2f} |"
        )


def measure(folder: Path, split: str) -> dict[str, Counts]:
    """Numbers and second numbers of cells that are no dates beyond a year; dates beyond a year."""
    counts: dict[str, Counts] = defaultdict(Counts)
    for case in cases(folder, split):
        own_date = case.own.date if case.own.date and case.own.date[1:] != (None, None) else None
        other_date = given_date(case.given.date)
        reason = _reason(_DATE_COMPILED, case.text)
        counts["date"].add(case, other_date, own_date, other_date == own_date, reason)
        if own_date or other_date:
            continue
        reason = _reason(_COMPILED, case.text)
        for name, given, own in (
            ("number", case.given.number, case.own.number),
            ("second number", case.given.second, case.own.second),
        ):
            number = float(given) if given else None
            same = own is not None and number is not None and abs(own - number) <= 1e-6 * max(1, abs(number))
            counts[name].add(case, number, own, same, reason)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="train")
    parser.add_argument("--show", type=int, default=0, help="differences to print, of each form")
    parser.add_argument("--form", help="only those of forms with these words, or plain")
    options = parser.parse_args()
    csv.field_size_limit(sys.maxsize)
    counts = measure(options.data, options.split)
    print("| value | cells | precision % | recall % | same % | plain cells | same % of these |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, one in counts.items():
        print(one.line(name))
    draws = random.Random(0)
    for name, one in counts.items():
        print(f"\n{name}, by form: same, different")
        for form in sorted(one.others, key=lambda form: -len(one.others[form])):
            print(f"  {one.same[form]:7,} {len(one.others[form]):7,}  {form or 'plain'}")
            if options.form is None or options.form in (form or "plain"):
                for case, given, own in draws.sample(one.others[form], min(options.show, len(one.others[form]))):
                    print(f"      {case.where} {case.text[:90]!r}: given {given}, ours {own}")


if __name__ == "__main__":
    main()
