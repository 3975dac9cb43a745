"""Pairs of sentences out of files, row by row.

A row that cannot be used is yielded with its ``problem`` and never raises: whoever reads decides how many are too many.
A file that cannot be used raises a `UserError`, when the first row is asked for or where the file turns out broken.
"""

import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sightline.data.columns import Cells, Columns, read_columns, text_problem
from sightline.data.source import Source
from sightline.data.tables import STANDARD_INPUT, decode, format_of, lines_of, listed, name_of, nearest
from sightline.errors import UserError

DEFAULT_COLUMNS = ("source", "target")
LONGEST_CELL = 1 << 17  # characters in a cell of CSV; sentences are shorter


@dataclass(frozen=True)
class PairFiles:
    """Where the pairs stand: one table ``data`` (``"-"`` is standard input), or two aligned files, a sentence a line.

    ``columns`` are the names of the two columns. A table of exactly two columns may have other names, or none: a
    column that has its name keeps its side and the other column is the other side; where neither name is there, the
    first column is the source. Its first line is then read as data if ``columns`` are the default ones, and as a header
    if they are not. A table of Parquet always has names, and every line of JSON must have both.
    """

    data: str | None = None
    source: str | None = None
    target: str | None = None
    columns: tuple[str, str] = DEFAULT_COLUMNS

    def __post_init__(self) -> None:
        aligned = (self.source, self.target)
        if self.data is None and None in aligned:
            raise UserError("no pairs were given; expected either one data file, or both a source and a target file")
        if self.data is not None and aligned != (None, None):
            raise UserError("a data file and a source or target file were given; expected one or the other")
        if aligned == ("-", "-"):
            raise UserError("source and target are both standard input; give it one of them, or a table as data")
        if len(self.columns) != 2 or not all(self.columns):
            raise UserError(f"columns: found {', '.join(map(repr, self.columns))}; expected two names")


class Row(NamedTuple):
    """A pair and where it stands. A ``problem`` is ``"kind: what was found, what was expected"``; its texts are empty.

    ``line`` counts from 1, and is where a record starts; in Parquet it is the row.
    """

    source: str
    target: str
    file: str
    line: int
    problem: str | None = None


def pair_cells(source: Source, columns: Sequence[Any]) -> Iterator[Cells]:
    """Every pair of a source as its two texts, those with a problem too."""
    names = source.columns or DEFAULT_COLUMNS
    if len(names) != 2:
        raise UserError(f"--columns has {len(names)} names; expected two, of the source and of the target")
    aligned = source.options.get("source"), source.options.get("target")
    yield from _pairs(PairFiles(source.data, *aligned, (names[0], names[1])))


def read_rows(files: PairFiles, standard_input: io.BufferedIOBase | None = None) -> Iterator[Row]:
    """Every row, in order, those with a problem too. ``standard_input`` is what ``"-"`` reads, if not the real one."""
    for (source, target), file, line, problem in _pairs(files, standard_input):
        yield Row(source, target, file, line, problem)


def _pairs(files: PairFiles, standard_input: io.BufferedIOBase | None = None) -> Iterator[Cells]:
    row = None
    for row in _rows(files, standard_input):
        yield row
    if row is None:
        name = name_of(files.data or files.source or "")
        again = " (it can be read only once)" if name == STANDARD_INPUT else ""
        raise UserError(f"{name} has no rows: found an empty file or a header alone{again}; expected pairs")


def _rows(files: PairFiles, standard_input: io.BufferedIOBase | None) -> Iterator[Cells]:
    if files.data is None:
        yield from _aligned_rows(str(files.source), str(files.target), standard_input)
        return

    names = [repr(column) for column in files.columns]

    def find(name: str, found: Sequence[str]) -> Columns | None:
        columns = _find_columns(name, found, files.columns)
        if columns is not None or format_of(name) == "parquet":  # else what was found is a row, and names nothing
            names[:] = map(repr, columns or found)
        return None if columns is None else Columns(columns)

    for cells in read_columns(files.data, find, files.columns, standard_input, LONGEST_CELL):
        problem = cells.problem
        if problem is None:
            problem = text_problem(cells.values[0], names[0]) or text_problem(cells.values[1], names[1])
        yield cells if problem is None else cells._replace(values=("", ""), problem=problem)


def _aligned_rows(source: str, target: str, standard_input: io.BufferedIOBase | None) -> Iterator[Cells]:
    names = name_of(source), name_of(target)
    sides = lines_of(source, standard_input), lines_of(target, standard_input)
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
        yield Cells(texts if problem is None else ("", ""), names[wrong], number, problem)


def _find_columns(name: str, found: Sequence[str], columns: tuple[str, str]) -> tuple[str, ...] | None:
    """The two columns; None where what was found is data and no header. `PairFiles` says the rule."""
    there = [column for column in columns if column in found]
    if len(there) == 2:
        return columns
    if len(found) == 2:
        first, second = found
        if there:
            of_source = there[0] == columns[0]
            return (first, second) if (there[0] == first) == of_source else (second, first)
        named = {cell.casefold() for cell in found} & {column.casefold() for column in columns}
        return None if columns == DEFAULT_COLUMNS and not named else (first, second)
    missing = [column for column in columns if column not in found]
    raise UserError(
        f"{name}: found the columns {listed(found)}; expected {' and '.join(map(repr, columns))}"
        f"{nearest(missing, found)}; name the columns to use"
    )
