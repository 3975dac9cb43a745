"""Rows of named columns out of every form that tables come in: TSV, CSV, JSON lines, Parquet.

A row that cannot be used is yielded with its problem and never raises: the caller decides how many are too many.
"""

import csv
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from sightline.data.headers import refuse_header, unknown_header
from sightline.data.shards import DamagedError, is_address, one_line, open_bytes, over_shards, shards_of
from sightline.data.tables import (
    FORMATS,
    LINE_LIMIT,
    Line,
    TableRecord,
    csv_records,
    decode,
    format_of,
    json_object,
    kind_of,
    lines_of,
    listed,
    name_of,
    nearest,
    tsv_records,
)
from sightline.errors import UserError

PARQUET_BATCH = 1024
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
    if kind == "parquet":
        return _parquet_rows(name, find)
    lines: Iterator[Line] = lines_of(data)
    if kind is None:
        first = list(itertools.islice(lines, 1))
        lines = itertools.chain(first, lines)
        kind = "jsonl" if first and first[0].content.removeprefix(b"\xef\xbb\xbf").startswith(b"{") else "tsv"
    if kind == "jsonl":
        return _json_rows(name, lines, find)
    return _table_rows(name, csv_records(lines) if kind == "csv" else tsv_records(lines), find)


def _table_rows(name: str, records: Iterator[TableRecord], find: Find) -> Iterator[TableRow]:
    first = next(records, None)
    if first is None:
        return
    if first.problem is not None:
        raise UserError(f"{name}:{first.line}: the first line has {first.problem}; expected the names of the columns")
    header = [cell.strip() for cell in first.cells]
    columns = find(name, header)
    places: Sequence[int]
    if columns is None:
        below = list(itertools.islice(records, LOOKED_AT))
        refuse_header(name, header, [record.cells for record in below if record.problem is None])
        places, records = range(len(header)), itertools.chain([first], below, records)
    else:
        places = [_place(name, header, column) for column in columns.all]
    for line, cells, problem in records:
        if problem is None and len(cells) != len(header):
            problem = f"wrong number of columns: found {len(cells)}, expected {len(header)}"
        yield TableRow(() if problem else tuple(cells[place] for place in places), name, line, problem)


def _place(name: str, header: list[str], column: str) -> int:
    if header.count(column) > 1:
        raise UserError(f"{name}: found {header.count(column)} columns that are called {column!r}; expected one")
    return header.index(column)


def _json_rows(name: str, lines: Iterator[Line], find: Find) -> Iterator[TableRow]:
    parsed: Iterator[tuple[int, dict[str, Any], str | None]] = map(_json_line, lines)
    head = list(itertools.islice(parsed, LOOKED_AT))
    parsed = itertools.chain(head, parsed)
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


def _json_line(line: Line) -> tuple[int, dict[str, Any], str | None]:
    text, problem = decode(line)
    return (line.number, *json_object(text, "an object")) if problem is None else (line.number, {}, problem)


def _parquet_rows(name: str, find: Find) -> Iterator[TableRow]:
    if not is_address(name) and not Path(name).is_file():
        next(lines_of(name), None)  # says what is wrong with it, as for any file
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(f"{name}: reading Parquet needs pyarrow; pip install 'sightline[parquet]'") from None
    number, rows = 0, None
    try:
        with ExitStack() as stack:
            place = stack.enter_context(open_bytes(name)) if is_address(name) else name
            table = stack.enter_context(parquet.ParquetFile(place))
            rows, names = table.metadata.num_rows, list(table.schema_arrow.names)
            columns = find(name, names)
            if columns is None:
                raise unknown_header(name, names)
            for batch in table.iter_batches(batch_size=PARQUET_BATCH, columns=list(dict.fromkeys(columns.all))):
                for values, problem in _parquet_values(columns.all, batch):
                    number += 1
                    yield TableRow(values, name, number, problem)
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{name}: there is no such file") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of what stands there
            raise UserError(f"{name} cannot be read: {error.strerror or one_line(error)}") from None
        if isinstance(error, arrow.ArrowException | OSError | UnicodeDecodeError):  # the last: names of columns
            lost = None if rows is None else rows - number
            raise DamagedError(name, f"is no Parquet file that can be read: {one_line(error)}", number, lost) from None
        if not is_address(name):
            raise
        raise UserError(f"{name} cannot be read: {one_line(error)}") from None


def _parquet_values(columns: Sequence[str], batch: Any) -> Iterator[tuple[tuple[Any, ...], str | None]]:
    try:
        lists = [batch.column(column).to_pylist() for column in columns]
    except UnicodeDecodeError:  # somewhere: look for the rows
        for cells in zip(*(batch.column(column) for column in columns), strict=True):
            yield _cells_values(columns, cells)
        return
    yield from ((values, None) for values in zip(*lists, strict=True))


def _cells_values(columns: Sequence[str], cells: Sequence[Any]) -> tuple[tuple[Any, ...], str | None]:
    values = []
    for column, cell in zip(columns, cells, strict=True):
        try:
            values.append(cell.as_py())
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            return (), f"bad UTF-8: found byte 0x{byte:02x} at offset {error.start} in {column!r}"
    return tuple(values), None
