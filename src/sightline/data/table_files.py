"""Tables that questions are about, out of files: CSV, TSV, JSON, JSON lines, Parquet and Arrow, read once each.

Files are not trusted. How large one is, is known before it is read; what is packed is read no further than the limits
go; and all cells are text, formulas too.
"""

import csv
import itertools
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sightline.data.arrow import arrow_cells
from sightline.data.image_tables import placed
from sightline.data.json_files import json_line
from sightline.data.tables import (
    ENCODING_RULE,
    LINE_LIMIT,
    Line,
    TableRecord,
    csv_records,
    decoded,
    format_of,
    lines_of,
    open_named,
    open_unpacked,
    opening,
    tsv_records,
)
from sightline.errors import UserError
from sightline.table import LONGEST_CELL, MOST_CELLS, MOST_COLUMNS, MOST_ROWS, DataTable

MOST_BYTES = 64 << 20  # of a file, unpacked
MOST_HELD = 1 << 26  # characters of the tables that are kept in memory
SCANNED = 1 << 16  # bytes of a file whose name tells no format


class BadTableError(ValueError):
    """A table that cannot be used: ``kind: what was found, what was expected``."""


def read_table(path: str | Path) -> DataTable:
    """The table in a file. Raises a `BadTableError` that names the file."""
    place = Path(path)
    try:
        open_named(place, MOST_BYTES, BadTableError, "a table").close()
        kind = format_of(str(place)) or _guessed(place)
        with ExitStack() as stack:
            stack.callback(csv.field_size_limit, csv.field_size_limit(LINE_LIMIT))
            return _read(place, kind)
    except (UserError, ValueError) as error:
        text = str(error)
        named = text if place.name in text else f"{place.name}: {text}"
        raise BadTableError(f"bad table: {named}") from None


def _read(place: Path, kind: str) -> DataTable:
    name = place.name
    if kind in ("parquet", "arrow"):
        header: list[str] = []

        def choose(names: Any) -> Any:
            header.extend(map(str, names))
            return list(names)

        rows = _good(arrow_cells(str(place), kind, choose))
        first = list(itertools.islice(rows, 1))
        return DataTable.of(header, itertools.chain(first, rows), name)
    if kind == "json":
        with opening(str(place), lambda: 0), ExitStack() as stack:
            content = open_unpacked(str(place), stack).read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise BadTableError(f"too large: found more than {MOST_BYTES:,} bytes, expected at most that")
        return _from_json(content, name)
    lines = _limited(lines_of(str(place)))
    if kind == "jsonl":
        records = list[Mapping[str, Any]]()
        for number, record, problem in map(json_line, lines):
            if problem is not None:
                raise BadTableError(f"line {number:,}: {problem}")
            records.append(record)
            if len(records) > MOST_ROWS:
                break
        return DataTable.from_value(records, name)
    return _of_records(tsv_records(lines), name) if kind == "tsv" else _of_csv(place, lines, name)


def _from_json(content: bytes, name: str) -> DataTable:
    """A table as `DataTable.from_value` reads it, or an object that holds one list."""
    try:
        value = json.loads(decoded(content))
    except json.JSONDecodeError as error:
        records = [line for line in content.splitlines() if line.strip()]
        if len(records) > 1 and records[0].lstrip().startswith(b"{"):  # lines of JSON under another name
            return DataTable.from_value([json.loads(decoded(line)) for line in records], name)
        raise BadTableError(f"bad JSON: found a fault at line {error.lineno}, expected a table") from None
    except RecursionError:
        raise BadTableError("bad JSON: found lists in lists in lists, expected a table") from None
    if isinstance(value, dict) and "rows" not in value:
        lists = [one for one in value.values() if isinstance(one, list)]
        value = lists[0] if len(lists) == 1 else value
    return DataTable.from_value(value, name)


def _of_csv(place: Path, lines: Iterator[Line], name: str) -> DataTable:
    """As RFC 4180 says, or with ``\\"`` for a quotation mark, where only that reads the file."""
    try:
        return _of_records(csv_records(lines), name)
    except BadTableError as error:
        if "bad CSV" not in str(error):
            raise
        first = error
    texts = (line.content.decode("utf-8", "replace") + "\n" for line in _limited(lines_of(str(place))))
    try:
        rows = list(csv.reader(texts, escapechar="\\", doublequote=False, strict=True))
    except csv.Error:
        raise first from None
    return _of_rows(iter(rows), name)


def _of_records(records: Iterator[TableRecord], name: str) -> DataTable:
    def rows() -> Iterator[list[str]]:
        for line, cells, problem in records:
            if problem is not None:
                rule = f"; {ENCODING_RULE}" if "UTF-8" in problem else ""
                raise BadTableError(f"line {line:,}: {problem}{rule}")
            yield cells

    return _of_rows(rows(), name)


def _of_rows(rows: Iterator[list[str]], name: str) -> DataTable:
    """The first row is the header; empty lines are no rows."""
    there = (row for row in rows if row and row != [""])
    header = next(there, None)
    if header is None:
        raise BadTableError("no columns: found an empty file, expected names of columns and rows")
    return DataTable.of(header, there, name)


def _good(cells: Iterator[tuple[tuple[Any, ...], str | None]]) -> Iterator[tuple[Any, ...]]:
    for number, (values, problem) in enumerate(cells, start=1):
        if problem is not None:
            raise BadTableError(f"row {number:,}: {problem}")
        yield values


def _limited(lines: Iterator[Line]) -> Iterator[Line]:
    """Lines up to the limit of bytes: a packed file may be much larger than it looks."""
    size = 0
    for line in lines:
        size += line.length
        if size > MOST_BYTES:
            raise BadTableError(f"too large: found more than {MOST_BYTES:,} bytes, expected at most that")
        yield line


def _guessed(place: Path) -> str:
    """The format of a file whose name does not tell it, by its beginning."""
    with opening(str(place), lambda: 0), ExitStack() as stack:
        start = open_unpacked(str(place), stack).read(SCANNED).removeprefix(b"\xef\xbb\xbf").lstrip()
    line = start.split(b"\n", 1)[0]
    if start.startswith((b"[", b"{")):
        return "json"
    return "tsv" if b"\t" in line and line.count(b"\t") >= line.count(b",") else "csv"


def table_of_text(text: str, name: str = "") -> DataTable:
    """A table that was pasted: JSON, or lines with tabs, semicolons or commas between the cells."""
    if len(text) > MOST_BYTES:
        raise BadTableError(f"bad table: found {len(text):,} characters, expected at most {MOST_BYTES:,}")
    try:
        if text.lstrip().startswith(("[", "{")):
            return _from_json(text.encode("utf-8", "surrogatepass"), name)
        contents = text.encode("utf-8", "surrogatepass").split(b"\n")
        lines = (Line(number, one, len(one)) for number, one in enumerate(contents, start=1))
        first = text.lstrip("\n").split("\n", 1)[0]
        records = tsv_records(lines) if "\t" in first else csv_records(lines)
        return _of_records(records, name)
    except BadTableError:
        raise
    except (UserError, ValueError) as error:
        raise BadTableError(f"bad table: {error}") from None


class TableFiles:
    """Tables by their paths. Each file is read once while the tables in memory are not too large together."""

    def __init__(self, base: Path | None = None) -> None:
        self.base = base or Path()
        self._tables: OrderedDict[str, DataTable | BadTableError] = OrderedDict()
        self._held = 0

    def table(self, value: object) -> DataTable:
        """The table that a cell names or holds. Raises a `BadTableError`."""
        if isinstance(value, TableCell):
            return value.table
        if isinstance(value, DataTable):
            return value
        try:
            if isinstance(value, str | Path) and not str(value).lstrip().startswith(("[", "{")):
                return self._named(str(value))
            return table_of_text(value) if isinstance(value, str) else DataTable.from_value(_rows_of(value))
        except BadTableError:
            raise
        except ValueError as error:
            raise BadTableError(str(error)) from None

    def _named(self, text: str) -> DataTable:
        if text not in self._tables:
            table: DataTable | BadTableError
            try:
                if "\0" in text:
                    raise BadTableError("NUL character: found one in the table, expected the path of a table")
                place, problem = placed(self.base, text, "table")
                if problem is not None:
                    raise BadTableError(problem)
                read = read_table(place)
                table = DataTable(text.strip(), read.header, read.rows)
            except BadTableError as error:
                table = error
            self._tables[text] = table
            self._held += _size(table)
            while self._held > MOST_HELD and len(self._tables) > 1:
                self._held -= _size(self._tables.popitem(last=False)[1])
        self._tables.move_to_end(text)
        table = self._tables[text]
        if isinstance(table, BadTableError):
            raise table
        return table


class TableCell(dict[str, Any]):
    """A table in a row of data: an object of JSON as `DataTable.to_json` gives it, with the table itself."""

    def __init__(self, table: DataTable) -> None:
        super().__init__(name=table.name, header=table.header, rows=table.rows)
        self.table = table


def _rows_of(value: object) -> object:
    """A DataFrame of pandas or polars as a header and rows; all else as it is."""
    if hasattr(value, "iter_rows") and hasattr(value, "columns"):
        return {"header": list(map(str, value.columns)), "rows": list(value.iter_rows())}
    if hasattr(value, "itertuples") and hasattr(value, "columns"):
        return {"header": list(map(str, value.columns)), "rows": list(value.itertuples(index=False, name=None))}
    return value


def _size(table: DataTable | BadTableError) -> int:
    return table.characters + 64 if isinstance(table, DataTable) else 256


LIMITS = (
    f"a table has at most {MOST_ROWS:,} rows, {MOST_COLUMNS:,} columns and {MOST_CELLS:,} cells of {LONGEST_CELL:,} "
    f"characters; its file has at most {MOST_BYTES:,} bytes"
)
