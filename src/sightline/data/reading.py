"""Pairs of sentences out of files, row by row.

A row that cannot be used is yielded with its ``problem`` and never raises: the caller decides how many are too many.
A file that cannot be used raises a `UserError`, when the first row is asked for or where the file turns out broken.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sightline.data.columns import Columns, TableRow, named_columns, read_columns, text_problem
from sightline.data.headers import is_language
from sightline.data.made import made_rows
from sightline.data.source import Source
from sightline.data.tables import decode, lines_of, listed, name_of, nearest
from sightline.errors import UserError
from sightline.synthetic.made import SYMBOLS, is_made

SOURCE_NAMES = ("source", "src", "input", "document", "article")
TARGET_NAMES = ("target", "tgt", "trg", "output", "summary", "highlights")
LONGEST_CELL = 1 << 17  # characters in a cell of CSV; sentences are shorter


def pair_cells(source: Source, columns: Sequence[Any] = ()) -> Iterator[TableRow]:
    """Every pair of a source as its two texts, those with a problem too: of one table, or of two aligned files (the
    options ``source`` and ``target``), a sentence a line.

    The columns are those that the source names; else those called source and target, or by other names of these; else
    the two that are called by languages, in their order. In a table of two columns, a column that has its name keeps
    its side and the other column is the other side; one that has none of the names has no header
    (`sightline.data.headers`), and the first column is the source.
    """
    source.check_columns(("source", "target"))
    if is_made(source.data, SYMBOLS):
        return made_rows(source)
    sides = source.options.get("source"), source.options.get("target")
    if sides == ("-", "-"):
        raise UserError("source and target are both standard input; give it one of them, or a table as data")
    rows = _aligned_rows(*map(str, sides)) if source.data is None else _table_rows(source.data, source.columns)
    again = " (it can be read only once)" if source.data == "-" else ""
    return source.some(rows, f"has no rows: found an empty file or a header alone{again}; expected pairs")


def is_symbol_source(source: Source) -> bool:
    """Whether data is pairs of texts by the names of its columns, or made as such."""
    if source.held is not None:
        first = None if isinstance(source.held, Iterator) else next(iter(source.held), None)
        return isinstance(first, Mapping) and {"source", "target"} <= {*first}
    if source.data is None or is_made(source.data):
        return is_made(source.data, SYMBOLS)
    there: list[str] = []

    def find(name: str, header: Sequence[str]) -> Columns:
        there.extend(one.strip().casefold() for one in header)
        return Columns(())

    try:
        next(iter(read_columns(source.data, find)), None)
    except UserError:  # the reader says what is wrong
        return False
    return {"source", "target"} <= {*there} or source.columns == ("source", "target")


def _table_rows(data: str, given: tuple[str, ...] | None) -> Iterator[TableRow]:
    names = ["the first column", "the second column"]

    def find(name: str, header: Sequence[str]) -> Columns | None:
        columns = _find_columns(name, header, given)
        if columns is not None:
            names[:] = map(repr, columns)
        return None if columns is None else Columns(columns)

    for cells in read_columns(data, find, LONGEST_CELL):
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


def _find_columns(name: str, header: Sequence[str], given: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The two columns; None where what was found may be a row and no header. `pair_cells` says the rule."""
    if given is not None:
        return named_columns(name, header, given).needed
    there = {column.strip().casefold(): column for column in reversed(header)}
    source, target = (
        next((there[one] for one in names if one in there), None) for names in (SOURCE_NAMES, TARGET_NAMES)
    )
    if len(header) == 2 and (source is None) != (target is None):
        other = header[1 - list(header).index(source or target or "")]
        source, target = source or other, target or other
    if source is not None and target is not None:
        return source, target
    languages = [column for column in header if is_language(column)]
    if len(languages) == 2 and source is None and target is None:
        return languages[0], languages[1]
    if len(header) == 2:
        return None
    missing = [names[0] for names, one in ((SOURCE_NAMES, source), (TARGET_NAMES, target)) if one is None]
    raise UserError(
        f"{name}: found the columns {listed(header)}; expected 'source' and 'target'{nearest(missing, header)}; "
        "name the columns to use: --columns SOURCE TARGET"
    )
