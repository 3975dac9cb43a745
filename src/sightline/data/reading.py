"""Pairs of sentences out of files, row by row.

A row that cannot be used is yielded with its ``problem`` and never raises: the caller decides how many are too many.
A file that cannot be used raises a `UserError`, when the first row is asked for or where the file turns out broken.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from sightline.data.columns import Columns, TableRow, read_columns, text_problem
from sightline.data.source import Source
from sightline.data.tables import decode, format_of, lines_of, listed, name_of, nearest
from sightline.errors import UserError

DEFAULT_COLUMNS = ("source", "target")
LONGEST_CELL = 1 << 17  # characters in a cell of CSV; sentences are shorter


def pair_cells(source: Source, columns: Sequence[Any] = ()) -> Iterator[TableRow]:
    """Every pair of a source as its two texts, those with a problem too: of one table, or of two aligned files (the
    options ``source`` and ``target``), a sentence a line.

    A table of exactly two columns may have other names than source and target (or than the source's ``columns``), or
    none: a column that has its name keeps its side and the other column is the other side; where neither name is there,
    the first column is the source. Its first line is then read as data if no ``columns`` are given, and as a header if
    they are. A table of Parquet always has names, and every line of JSON must have both.
    """
    source.check_columns(DEFAULT_COLUMNS)
    names = source.columns or DEFAULT_COLUMNS
    sides = source.options.get("source"), source.options.get("target")
    if sides == ("-", "-"):
        raise UserError("source and target are both standard input; give it one of them, or a table as data")
    rows = _aligned_rows(*map(str, sides)) if source.data is None else _table_rows(source.data, (names[0], names[1]))
    again = " (it can be read only once)" if source.data == "-" else ""
    return source.some(rows, f"has no rows: found an empty file or a header alone{again}; expected pairs")


def _table_rows(data: str, expected: tuple[str, str]) -> Iterator[TableRow]:
    names = [repr(column) for column in expected]

    def find(name: str, header: Sequence[str]) -> Columns | None:
        columns = _find_columns(name, header, expected)
        if columns is not None or format_of(name) == "parquet":  # else what was found is a row, and names nothing
            names[:] = map(repr, columns or header)
        return None if columns is None else Columns(columns)

    for cells in read_columns(data, find, expected, LONGEST_CELL):
        problem = cells.problem
        if problem is None:
            problem = text_problem(cells.values[0], names[0]) or text_problem(cells.values[1], names[1])
        yield cells if problem is None else cells._replace(values=("", ""), problem=problem)


def _aligned_rows(source: str, target: str) -> Iterator[TableRow]:
    names = name_of(source), name_of(target)
    sides = lines_of(source), lines_of(target)
    for number, lines in enumerate(itertools.zip_longest(*sides), start=1):
        if None in lines:
            short = lines.index(None)
            longer = number + sum(1 for _ in sides[1 - short])
            raise UserError(
                f"{names[short]} has {number - 1:,} lines and {names[1 - short]} has {longer:,}; "
                "expected as many, because line n of the one belongs to line n of the other"
            )
        texts, problems = zip(*map(decode, lines), strict=True)
        wrong = problems[0] is None and problems[1] is not None  # the place is the file that has the problem
        problem = problems[wrong]
        if problem is None:
            problem = text_problem(texts[0], "the source") or text_problem(texts[1], "the target")
        yield TableRow(texts if problem is None else ("", ""), names[wrong], number, problem)


def _find_columns(name: str, header: Sequence[str], columns: tuple[str, str]) -> tuple[str, ...] | None:
    """The two columns; None where what was found is data and no header. `pair_cells` says the rule."""
    there = [column for column in columns if column in header]
    if len(there) == 2:
        return columns
    if len(header) == 2:
        first, second = header
        if there:
            of_source = there[0] == columns[0]
            return (first, second) if (there[0] == first) == of_source else (second, first)
        named = {cell.casefold() for cell in header} & {column.casefold() for column in columns}
        return None if columns == DEFAULT_COLUMNS and not named else (first, second)
    missing = [column for column in columns if column not in header]
    raise UserError(
        f"{name}: found the columns {listed(header)}; expected {' and '.join(map(repr, columns))}"
        f"{nearest(missing, header)}; name the columns to use"
    )
