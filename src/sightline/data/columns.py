"""Rows of named columns out of every form that tables come in: TSV, CSV, JSON, Parquet, Arrow.

A row that cannot be used is yielded with its problem and never raises: the caller decides how many are too many.
"""

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

from sightline.data.arrow import NESTED, arrow_cells
from sightline.data.headers import refuse_header, unknown_header
from sightline.data.json_files import JsonRow, json_line, json_rows
from sightline.data.shards import DamagedError, over_shards, shards_of
from sightline.data.tables import (
    BAD_UTF8,
    ENCODING_RULE,
    FORMATS,
    LINE_LIMIT,
    Line,
    TableRecord,
    bar_records,
    csv_records,
    fasttext_records,
    format_of,
    guess,
    kind_of,
    lines_of,
    listed,
    name_of,
    nearest,
    tsv_records,
)
from sightline.errors import UserError

Looked = TypeVar("Looked")
LOOKED_AT = 100  # lines of JSON whose fields are the columns


class TableRow(NamedTuple):
    """The values of the columns of a row, as the file has them, or the ``problem`` of the row."""

    values: tuple[Any, ...]
    file: str
    line: int
    problem: str | None = None


class Columns(NamedTuple):
    """The names of the columns to read. In JSON an optional one may be missing from a line: its value is then None."""

    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.needed, *self.optional)


# The file's name and the columns found: those to read. None: what was found is no header but the first row of a table,
# whose columns are read in their order.
Find = Callable[[str, Sequence[str]], Columns | None]


def choose_columns(
    name: str,
    columns: Sequence[str],
    known: Sequence[Sequence[str]],
    given: Sequence[str] | None,
    optional: Sequence[Sequence[str]] = (),
    *,
    option: bool = True,
) -> Columns:
    """The columns to read: those ``given`` by name, or one by each list of names, as the file writes it.

    Of the ``optional`` ones, those that are there come behind. Without ``option`` there is no --columns to name them
    with: they must be called as expected.
    """
    if given is not None:
        return named_columns(name, columns, given)
    there = {column.strip().casefold(): column for column in reversed(columns)}
    chosen = []
    for names in known:
        if (column := next((there[one] for one in names if one in there), None)) is None:
            advice = f"name the columns to use: --columns {' '.join(one[0].upper() for one in known)}"
            if not option:
                advice = f"expected {listed([one[0] for one in known])} in its first line"
            none = f"none of them is called {names[0]!r}"
            raise UserError(f"{name}: found the columns {listed(columns)}; {none}; {advice}")
        chosen.append(column)
    behind = (next((there[one] for one in names if one in there), None) for names in optional)
    return Columns(tuple(chosen), tuple(column for column in behind if column is not None))


def no_cells(file: str, line: int, problem: str) -> TableRow:
    """A row that nothing is known of but its problem."""
    return TableRow((), file, line, problem)


def named_columns(name: str, columns: Sequence[str], names: Sequence[str]) -> Columns:
    """The columns of these names, which must be there."""
    missing = [column for column in names if column not in columns]
    if missing:
        expected = ", ".join(map(repr, names))
        raise UserError(f"{name}: found the columns {listed(columns)}; expected {expected}{nearest(missing, columns)}")
    return Columns(tuple(names))


def read_columns(data: str, find: Find, longest_cell: int = LINE_LIMIT) -> Iterator[TableRow]:
    """Every row, in order, those with a problem too, of one file or of all shards that ``data`` means.

    Of JSON, ``find`` is given the fields of the first hundred lines.
    ``longest_cell`` counts characters of CSV: a quote that is never closed fills no more.
    """
    with ExitStack() as stack:
        # A text of a hundred thousand words is longer than the csv module takes by itself.
        stack.callback(csv.field_size_limit, csv.field_size_limit(longest_cell))
        shards = shards_of(data, FORMATS)
        alike = find if len(shards) == 1 else _alike(data, find)
        yield from over_shards(shards, lambda shard: _rows(shard, alike), no_cells)


def _alike(data: str, find: Find) -> Find:
    """``find``, and all shards must have names of columns, or none of them."""
    named: dict[bool, str] = {}

    def found(name: str, columns: Sequence[str]) -> Columns | None:
        chosen = find(name, columns)
        named.setdefault(chosen is not None, name)
        if len(named) == 2:
            raise UserError(
                f"{data}: {named[True]} begins with the names of its columns and {named[False]} does not; expected the "
                "same of all files"
            )
        return chosen

    return found


def text_problem(value: Any, what: str) -> str | None:
    """What is wrong with a text, if anything is; ``what`` says which text."""
    if not isinstance(value, str):
        return f"field is not text: found {kind_of(value)} in {what}, expected a string"
    if "\0" in value:
        return f"NUL character: found one in {what}, expected text"
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return f"bad JSON: found half a surrogate pair in {what}, expected whole characters"
    return None


def _rows(data: str, find: Find) -> Iterator[TableRow]:
    name, kind = name_of(data), format_of(data)
    if kind == "parquet" or kind == "arrow":
        return _arrow_rows(name, find, kind)
    if kind == "json":
        return _json_rows(name, json_rows(data), find)
    lines: Iterator[Line] = lines_of(data)
    if kind is None:
        first = list(itertools.islice(lines, 1))
        lines = itertools.chain(first, lines)
        kind = guess(data, first[0].content if first else b"")
    if kind in ("jsonl", "json"):
        return _json_rows(name, map(json_line, lines) if kind == "jsonl" else json_rows(data), find)
    return _table_rows(name, _RECORDS[kind](lines), find)


_RECORDS = {"tsv": tsv_records, "csv": csv_records, "bars": bar_records, "fasttext": fasttext_records}


def _table_rows(name: str, records: Iterator[TableRecord], find: Find) -> Iterator[TableRow]:
    first = next(records, None)
    if first is None:
        return
    if first.problem is not None:
        expected = ENCODING_RULE if first.problem.startswith(BAD_UTF8) else "expected the names of the columns"
        raise UserError(f"{name}:{first.line}: the first line has {first.problem}; {expected}")
    header = [cell.strip() for cell in first.cells]
    columns = find(name, header)
    places: Sequence[int]
    if columns is None:
        below, records = _looked_at(records)
        refuse_header(name, header, [record.cells for record in below if record.problem is None])
        places, records = range(len(header)), itertools.chain([first], records)
    else:
        places = [_place(name, header, column) for column in columns.all]
    for line, cells, problem in records:
        if problem is None and len(cells) != len(header):
            problem = f"wrong number of columns: found {len(cells)}, expected {len(header)}"
        yield TableRow(() if problem else tuple(cells[place] for place in places), name, line, problem)


def _looked_at(rows: Iterator[Looked]) -> tuple[list[Looked], Iterator[Looked]]:
    """The first rows, and all of them again: where a file breaks off among them, they come before its error."""
    head: list[Looked] = []
    late: DamagedError | None = None
    try:
        for row in itertools.islice(rows, LOOKED_AT):
            head.append(row)
    except DamagedError as error:
        late = error

    def again() -> Iterator[Looked]:
        yield from head
        if late is not None:
            raise late
        yield from rows

    return head, again()


def _place(name: str, header: list[str], column: str) -> int:
    if header.count(column) > 1:
        raise UserError(f"{name}: found {header.count(column)} columns that are called {column!r}; expected one")
    return header.index(column)


def _json_rows(name: str, parsed: Iterator[JsonRow], find: Find) -> Iterator[TableRow]:
    parsed = ((number, unnested(record), problem) for number, record, problem in parsed)
    head, parsed = _looked_at(parsed)
    names = list(dict.fromkeys(field for _, record, _ in head for field in record))
    start = next((number for number, record, _ in head if record), None)
    columns = Columns(()) if start is None else find(f"{name}:{start}", names)
    if columns is None:
        raise unknown_header(name, names)
    for number, record, problem in parsed:
        if problem is None:
            missing = [column for column in columns.needed if column not in record]
            if missing:
                near = nearest(missing, list(record))
                problem = f"missing field: found {listed(list(record))}, expected {missing[0]!r}{near}"
        yield TableRow(() if problem else tuple(record.get(column) for column in columns.all), name, number, problem)


def unnested(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a row, with those of ``translation`` beside them: Hugging Face has pairs so."""
    pair = record.get(NESTED)
    if not isinstance(pair, Mapping):
        return dict(record)
    return {**{name: value for name, value in record.items() if name != NESTED}, **pair}


def _arrow_rows(name: str, find: Find, kind: str) -> Iterator[TableRow]:
    def choose(names: Sequence[str]) -> Sequence[str]:
        columns = find(name, names)
        if columns is None:
            raise unknown_header(name, names)
        return columns.all

    cells = enumerate(arrow_cells(name, kind, choose), start=1)
    return (TableRow(() if problem else values, name, number, problem) for number, (values, problem) in cells)
