"""A table as plain data: the names of its columns and rows of cells, all of them text.

What stands in a cell is text and stays text: ``=cmd()`` is no formula here, and `for_spreadsheet` keeps it from
becoming one elsewhere.
"""

import csv
import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MOST_ROWS, MOST_COLUMNS, MOST_CELLS = 100_000, 1_000, 2_000_000
LONGEST_CELL = 100_000  # characters
LONGEST_NAME = 1_000  # characters of the name of a column
_NUMBERED = re.compile(r" \(\d+\)$")
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_NUMBER = re.compile(r"[-+]?\d[\d.,  ]*%?")


@dataclass(frozen=True)
class DataTable:
    """``name`` is the table's name in errors. Every row has as many cells as there are columns (`DataTable.of`)."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, header: Sequence[object], rows: Iterable[Sequence[object]], name: str = "") -> "DataTable":
        """A table of any values, or a `ValueError` that says what is wrong.

        Short rows are filled with empty cells; cells beyond the header have columns of their own. Columns without a
        name are numbered, and so are columns whose name was there before.
        """
        names, texts = list(map(cell_text, header)), list[tuple[str, ...]]()
        for number, row in enumerate(rows, start=1):
            if number > MOST_ROWS:
                raise ValueError(f"too many rows: found more than {MOST_ROWS:,}, expected at most that")
            _check_columns(len(row))
            texts.append(tuple(_checked(cell_text(cell), number) for cell in row))
            if number * max(len(names), len(row)) > MOST_CELLS:
                raise ValueError(f"too many cells: found more than {MOST_CELLS:,}, expected at most that")
        width = max([len(names), *map(len, texts)], default=0)
        _check_columns(width)
        if not width:
            raise ValueError("no columns: found an empty table, expected names of columns and rows")
        names += [""] * (width - len(names))
        filled = tuple(row if len(row) == width else (*row, *[""] * (width - len(row))) for row in texts)
        return cls(name, numbered([_checked(one, 0) for one in names]), filled)

    @classmethod
    def from_value(cls, value: object, name: str = "") -> "DataTable":
        """A table out of JSON: an object with ``header`` and ``rows``, a list of objects, or a list of lists of which
        the first is the header. Raises a `ValueError`."""
        if isinstance(value, Mapping):
            header, rows = value.get("header"), value.get("rows")
            if not isinstance(header, list | tuple) or not isinstance(rows, list | tuple):
                raise ValueError("bad table: found an object, expected one with the lists header and rows")
            given = value.get("name")
            return cls.of(header, _lists(rows), given if isinstance(given, str) and given else name)
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f"bad table: found {type(value).__name__}, expected an object with header and rows")
        if all(isinstance(one, Mapping) for one in value):
            fields = list(dict.fromkeys(str(key) for one in value for key in one))
            _check_columns(len(fields))
            return cls.of(fields, ([one.get(key) for key in fields] for one in value), name)
        first, *rest = _lists(value)
        return cls.of(first, rest, name)

    @cached_property
    def digest(self) -> str:
        """The same for tables of the same content, whatever their names. No cell holds the sign that ends a row."""
        digest = hashlib.blake2b(digest_size=16)
        for row in (self.header, *self.rows):
            text = "\0".join(row).replace("\2", "\2\2").replace("\1", "\2\3")
            digest.update(text.encode("utf-8", "surrogatepass") + b"\1")
        return digest.hexdigest()

    @cached_property
    def plain_header(self) -> tuple[str, ...]:
        """The names of the columns as the data has them, without the numbers of names that repeat."""
        there = {*self.header}
        short = [_NUMBERED.sub("", name) for name in self.header]
        return tuple(one if one in there else name for one, name in zip(short, self.header, strict=True))

    @property
    def characters(self) -> int:
        return sum(len(cell) for row in (self.header, *self.rows) for cell in row)

    def head(self, rows: int) -> "DataTable":
        """The first rows."""
        return self if len(self.rows) <= rows else DataTable(self.name, self.header, self.rows[:rows])

    def without_row(self, number: int) -> "DataTable":
        return DataTable(self.name, self.header, (*self.rows[:number], *self.rows[number + 1 :]))

    def without_column(self, number: int) -> "DataTable":
        def left(row: tuple[str, ...]) -> tuple[str, ...]:
            return (*row[:number], *row[number + 1 :])

        return DataTable(self.name, left(self.header), tuple(map(left, self.rows)))

    def to_json(self) -> dict[str, Any]:
        """What `from_value` reads."""
        named = {"name": self.name} if self.name else {}
        return {**named, "header": list(self.header), "rows": [list(row) for row in self.rows]}

    def to_csv(self) -> str:
        """As text that a person may read, exact; not for spreadsheets."""
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows((self.header, *self.rows))
        return stream.getvalue()


def cell_text(value: object) -> str:
    """What stands in a cell, as text."""
    if isinstance(value, str):
        return value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Names of columns, all of them different: the second *Gold* is *Gold (2)*, the third column without a name is
    *column 3*."""
    stripped = [" ".join(name.split()) or f"column {place}" for place, name in enumerate(names, start=1)]
    taken, again, made = {*stripped}, Counter[str](), list[str]()
    for name in stripped:
        again[name] += 1
        number, own = again[name], name
        while number > 1 and (own := f"{name} ({number})") in taken:
            number += 1
        taken.add(own)
        made.append(own)
    return tuple(made)


def for_spreadsheet(text: str) -> str:
    """A cell for a file that a spreadsheet may open: what would be a formula there begins with ``'``. Numbers stay."""
    if not text.startswith(_FORMULA) or _NUMBER.fullmatch(text.strip()):
        return text
    return f"'{text}"


def _lists(rows: Iterable[object]) -> list[Sequence[object]]:
    own: list[Sequence[object]] = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list | tuple):
            raise ValueError(f"bad table: found {type(row).__name__} as row {number:,}, expected a list of cells")
        own.append(row)
    return own


def _check_columns(count: int) -> None:
    if count > MOST_COLUMNS:
        raise ValueError(f"too many columns: found {count:,}, expected at most {MOST_COLUMNS:,}")


def _checked(text: str, row: int) -> str:
    """A cell, or the name of a column in row 0; a `ValueError` where no file could hold it."""
    where, longest = (f"row {row:,}", LONGEST_CELL) if row else ("the header", LONGEST_NAME)
    if len(text) > longest:
        raise ValueError(f"cell too long: found {len(text):,} characters in {where}, expected at most {longest:,}")
    if "\0" in text:
        raise ValueError(f"NUL character: found one in {where}, expected text")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"bad text: found half a surrogate pair in {where}, expected whole characters") from None
    return text
