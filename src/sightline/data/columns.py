"""Rows of named columns out of every form that tables come in: TSV, CSV, JSON lines, Parquet.

As with pairs, a row that cannot be used is yielded with its problem, and whoever reads decides how many are too many.
"""

import csv
import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from sightline.data.labelled import _json_object, _parquet_values, _text_problem
from sightline.data.reading import (
    LINE_LIMIT,
    PARQUET_BATCH,
    _csv_records,
    _decode,
    _format_of,
    _Line,
    _lines,
    _listed,
    _name,
    _nearest,
    _Record,
    _tsv_records,
)
from sightline.errors import UserError

Find = Callable[[str, Sequence[str]], tuple[str, ...]]  # the file's name and the columns found: those to read


class Cells(NamedTuple):
    """What stands in the columns of a row, as the file has it, or the ``problem`` of the row."""

    values: tuple[Any, ...]
    file: str
    line: int
    problem: str | None = None


def choose_columns(
    name: str,
    found: Sequence[str],
    known: Sequence[Sequence[str]],
    wanted: Sequence[str] | None,
    optional: Sequence[Sequence[str]] = (),
) -> tuple[str, ...]:
    """The columns to read: those asked for, or one by each list of names, as the file writes it.

    Of the ``optional`` ones, those that are there come behind.
    """
    if wanted is not None:
        missing = [column for column in wanted if column not in found]
        if missing:
            expected = ", ".join(map(repr, wanted))
            raise UserError(
                f"{name}: found the columns {_listed(list(found))}; expected {expected}{_nearest(missing, list(found))}"
            )
        return tuple(wanted)
    there = {column.strip().casefold(): column for column in reversed(found)}
    chosen = []
    for names in known:
        if (column := next((there[one] for one in names if one in there), None)) is None:
            raise UserError(
                f"{name}: found the columns {_listed(list(found))}; none of them is called {names[0]!r}; name the "
                f"columns to use: --columns {' '.join(one[0].upper() for one in known)}"
            )
        chosen.append(column)
    behind = (next((there[one] for one in names if one in there), None) for names in optional)
    return (*chosen, *(column for column in behind if column is not None))


def read_columns(data: str, find: Find) -> Iterator[Cells]:
    """Every row, in order, those with a problem too."""
    with ExitStack() as stack:
        # A text of a hundred thousand words is longer than the csv module takes; a record is limited by its bytes.
        stack.callback(csv.field_size_limit, csv.field_size_limit(LINE_LIMIT))
        yield from _rows(data, find)


def text_problem(value: Any, column: str) -> str | None:
    """What is wrong with a text, if anything is."""
    return _text_problem(value, column)


def _rows(data: str, find: Find) -> Iterator[Cells]:
    name, kind = _name(data), _format_of(data)
    if kind == "parquet":
        return _parquet_rows(name, find)
    lines: Iterator[_Line] = _lines(data, None)
    if kind is None:
        first = list(itertools.islice(lines, 1))
        lines = itertools.chain(first, lines)
        kind = "jsonl" if first and first[0].content.removeprefix(b"\xef\xbb\xbf").startswith(b"{") else "tsv"
    if kind == "jsonl":
        return _json_rows(name, lines, find)
    return _table_rows(name, _csv_records(lines) if kind == "csv" else _tsv_records(lines), find)


def _table_rows(name: str, records: Iterator[_Record], find: Find) -> Iterator[Cells]:
    first = next(records, None)
    if first is None:
        return
    if first.problem is not None:
        raise UserError(f"{name}:{first.line}: the first line has {first.problem}; expected the names of the columns")
    header = [cell.strip() for cell in first.cells]
    places = [header.index(column) for column in find(name, header)]
    for line, cells, problem in records:
        if problem is None and len(cells) != len(header):
            problem = f"wrong number of columns: found {len(cells)}, expected {len(header)}"
        yield Cells(() if problem else tuple(cells[place] for place in places), name, line, problem)


def _json_rows(name: str, lines: Iterator[_Line], find: Find) -> Iterator[Cells]:
    columns: tuple[str, ...] | None = None
    for line in lines:
        text, problem = _decode(line)
        values: tuple[Any, ...] = ()
        if problem is None:
            found, problem = _json_object(text)
            if problem is None:
                columns = columns or find(f"{name}:{line.number}", list(found))
                missing = [column for column in columns if column not in found]
                if missing:
                    near = _nearest(missing, list(found))
                    problem = f"missing field: found {_listed(list(found))}, expected {missing[0]!r}{near}"
                else:
                    values = tuple(found[column] for column in columns)
        yield Cells(values, name, line.number, problem)


def _parquet_rows(name: str, find: Find) -> Iterator[Cells]:
    if not Path(name).is_file():
        next(_lines(name, None), None)  # says what is wrong with it, as for any file
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(f"{name}: reading Parquet needs pyarrow; pip install 'sightline[parquet]'") from None
    number = 0
    try:
        with parquet.ParquetFile(name) as table:
            columns = find(name, list(table.schema_arrow.names))
            for batch in table.iter_batches(batch_size=PARQUET_BATCH, columns=list(dict.fromkeys(columns))):
                for cells in zip(*(batch.column(column) for column in columns), strict=True):
                    number += 1
                    values, problem = _parquet_values(cells)
                    yield Cells(tuple(values), name, number, problem)
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{name} is no Parquet file that can be read: {str(error).splitlines()[0]}") from None
