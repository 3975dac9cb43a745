"""The table of an explanation: the question about it, the passes of the program that answered, and what it gave.

Plain data like the rest of an explanation. Needs NumPy only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

MOST_CELLS = 1 << 20  # of a table, and of the rows of all passes
MOST_COLUMNS = 10_000
MOST_CHARACTERS = 1 << 24  # of all cells together
LONGEST_CELL = 2_000  # characters
MOST_WORDS, MOST_PASSES, MOST_OPERATIONS = 10_000, 64, 1_000
LEAST_SELECTED = 0.5  # how much of a row must be selected for it to count as selected


@dataclass(frozen=True, eq=False)
class AskedPass:
    """One pass of a program: the operation that it chose (a number of the table's ``operations``) and the column, or −1
    where the operation uses none. The probabilities of all of them, and the weights of the question's words.

    ``rows`` is how much of each row is selected behind the pass, 0 to 1; ``rows_selected`` counts those of the whole
    table. ``sentence`` is the pass in words.
    """

    operation: int
    column: int
    operation_probs: np.ndarray
    column_probs: np.ndarray
    word_weights: np.ndarray
    rows: np.ndarray
    sentence: str
    rows_selected: int = -1

    def __post_init__(self) -> None:
        if self.rows_selected == -1:
            object.__setattr__(self, "rows_selected", len(self.selected))

    @property
    def selected(self) -> np.ndarray:
        """The places of the rows that are selected."""
        return np.flatnonzero(self.rows >= LEAST_SELECTED)

    @property
    def probability(self) -> float:
        """That of the operation, times that of the column where it uses one."""
        column = float(self.column_probs[self.column]) if self.column >= 0 else 1.0
        return float(self.operation_probs[self.operation]) * column


_SHARES = {"operation_probs": "operations", "column_probs": "header", "word_weights": "words", "rows": "rows"}


@dataclass(frozen=True, eq=False)
class AskedTable:
    """A table (``header`` and ``rows`` as text), the ``words`` of a question, and the passes of a program.

    The program gave a ``count`` of rows, or printed ``cells`` (row, column) in order, or neither. Of a very large table
    only some rows are kept: ``numbers`` are theirs in the whole table, counted from 0, and ``total`` is how many rows
    that has. All other rows are places among those that are kept.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]
    operations: tuple[str, ...]
    passes: tuple[AskedPass, ...]
    count: int | None = None
    cells: tuple[tuple[int, int], ...] = ()
    numbers: tuple[int, ...] = ()
    total: int = 0

    def __post_init__(self) -> None:
        columns, rows = len(self.header), len(self.rows)
        _limit("columns", columns, MOST_COLUMNS)
        _limit("cells", rows * max(columns, 1), MOST_CELLS)
        _limit("words", len(self.words), MOST_WORDS)
        _limit("passes", len(self.passes), MOST_PASSES)
        _limit("rows of all passes", len(self.passes) * rows, MOST_CELLS)
        _limit("operations", len(self.operations), MOST_OPERATIONS)
        if any(len(row) != columns for row in self.rows):
            raise ValueError(f"a row of the table has another number of cells than the {columns} of the header")
        texts = [*self.header, *self.words, *self.operations, *(one.sentence for one in self.passes)]
        size = 0
        for text in (*texts, *(cell for row in self.rows for cell in row)):
            if not isinstance(text, str) or len(text) > LONGEST_CELL:
                raise ValueError(f"a table has texts of at most {LONGEST_CELL:,} characters; found {str(text)[:40]!r}")
            size += len(text)
        _limit("characters", size, MOST_CHARACTERS)
        if not self.numbers and not self.total:
            object.__setattr__(self, "numbers", tuple(range(rows)))
            object.__setattr__(self, "total", rows)
        self._check_numbers()
        for one in self.passes:
            self._check(one)

    def _check_numbers(self) -> None:
        numbers = (*self.numbers, self.total)
        if len(self.numbers) != len(self.rows) or not all(map(_is_whole, numbers)) or numbers[0] < 0:
            raise ValueError(f"numbers and total do not fit the {len(self.rows):,} rows of the table")
        if any(after <= before for before, after in pairwise(numbers)):
            raise ValueError("the numbers of the rows must grow, and total must be more than the last")
        if self.count is not None and not (_is_whole(self.count) and 0 <= self.count <= 1 << 40):
            raise ValueError(f"count is {self.count!r}; expected a number of rows")
        _limit("printed cells", len(self.cells), MOST_CELLS)
        for row, column in self.cells:
            if not (_is_place(row, len(self.rows)) and _is_place(column, len(self.header))):
                raise ValueError(f"a printed cell is at {row!r}, {column!r}, which the table does not have")

    def _check(self, one: AskedPass) -> None:
        if not _is_place(one.operation, len(self.operations)):
            raise ValueError(f"an operation is {one.operation!r}; there are {len(self.operations)}")
        if one.column != -1 and not _is_place(one.column, len(self.header)):
            raise ValueError(f"a column is {one.column!r}; there are {len(self.header)}")
        if not (_is_whole(one.rows_selected) and len(one.selected) <= one.rows_selected <= self.total):
            raise ValueError(f"a pass has selected {one.rows_selected!r} rows of {self.total:,}")
        for name, of in _SHARES.items():
            shares, size = getattr(one, name), len(getattr(self, of))
            if shares.shape != (size,):
                raise ValueError(f"{name} has shape {shares.shape}; expected {size}, one for each of the {of}")
            if not bool(np.all((shares >= 0) & (shares <= 1.001))):  # also refuses NaN
                raise ValueError(f"{name} has numbers that are not between 0 and 1")

    @classmethod
    def of(
        cls,
        header: Sequence[str],
        rows: Sequence[Sequence[str]],
        words: Sequence[str],
        operations: Sequence[str],
        passes: Sequence[AskedPass],
        count: int | None = None,
        cells: Sequence[tuple[int, int]] = (),
        most: int = MOST_CELLS // 4,
    ) -> "AskedTable":
        """Of a whole table: long texts are cut, and of very many rows those are kept that matter, then the first."""
        shares = [replace(one, sentence=_cut(one.sentence), **_floats(one)) for one in passes]
        kept = np.arange(len(rows))
        room = max(most // max(len(header), len(passes), 1), 1)
        if len(rows) > room:
            order = np.argsort(-importance(len(rows), shares, cells), kind="stable")
            kept = np.sort(order[:room])
        place = {int(row): at for at, row in enumerate(kept)}
        return cls(
            tuple(map(_cut, header)),
            tuple(tuple(map(_cut, rows[int(row)])) for row in kept),
            tuple(map(_cut, words)),
            tuple(operations),
            tuple(replace(one, rows=one.rows[kept]) for one in shares),
            count,
            tuple((place[row], column) for row, column in cells if row in place),
            tuple(map(int, kept)),
            len(rows),
        )

    def pass_name(self, number: int) -> str:
        """A pass in a few words, such as "1 match Nation"."""
        one = self.passes[number]
        column = f" {self.header[one.column]}" if one.column >= 0 else ""
        return f"{number + 1} {self.operations[one.operation]}{column}"

    @property
    def pass_names(self) -> tuple[str, ...]:
        return tuple(map(self.pass_name, range(len(self.passes))))

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {name: list(getattr(self, name)) for name in ("header", "words", "operations")}
        data["rows"] = [list(row) for row in self.rows]
        data["passes"] = [
            {
                "operation": one.operation,
                "column": one.column,
                "sentence": one.sentence,
                "rows_selected": one.rows_selected,
                **{name: getattr(one, name).tolist() for name in _SHARES},
            }
            for one in self.passes
        ]
        data |= {"count": self.count, "cells": [list(cell) for cell in self.cells]}
        if len(self.rows) < self.total:
            data |= {"numbers": list(self.numbers), "total": self.total}
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "AskedTable":
        """Sizes are checked before anything is made of them: a file may come from a stranger."""
        header, rows = _list(data, "header", MOST_COLUMNS), _list(data, "rows", MOST_CELLS)
        passes, cells = _list(data, "passes", MOST_PASSES), _list(data, "cells", MOST_CELLS)
        if not all(isinstance(row, list) and len(row) == len(header) for row in rows):
            raise ValueError(f"a row of the table is no list of {len(header)} cells")
        if not all(isinstance(cell, list) and len(cell) == 2 for cell in cells):
            raise ValueError("a printed cell is no pair of a row and a column")
        return cls(
            tuple(header),
            tuple(map(tuple, rows)),
            tuple(_list(data, "words", MOST_WORDS)),
            tuple(_list(data, "operations", MOST_OPERATIONS)),
            tuple(map(_pass, passes)),
            data.get("count"),
            tuple((row, column) for row, column in cells),
            tuple(_list(data, "numbers", MOST_CELLS)) if "numbers" in data else (),
            data.get("total", 0),
        )


def _pass(data: Mapping[str, Any]) -> AskedPass:
    shares = {}
    for name in _SHARES:
        values = _list(data, name, MOST_CELLS)
        if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
            raise ValueError(f"{name} of a pass is no list of numbers")
        shares[name] = np.array(values, dtype=np.float64).astype(np.float32)
    count = data["rows_selected"]
    return AskedPass(data["operation"], data["column"], sentence=data["sentence"], rows_selected=count, **shares)


def _list(data: Mapping[str, Any], name: str, most: int) -> list[Any]:
    items = data[name]
    if not isinstance(items, list):
        raise ValueError(f"{name} of a table is no list")
    _limit(name, len(items), most)
    return items


def _limit(what: str, count: int, most: int) -> None:
    if count > most:
        raise ValueError(f"a table has {count:,} {what}; it may have {most:,}")


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _is_place(number: object, size: int) -> bool:
    return _is_whole(number) and 0 <= number < size  # type: ignore[operator]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"


def _floats(one: AskedPass) -> dict[str, Any]:
    return {name: np.clip(np.asarray(getattr(one, name), dtype=np.float32), 0.0, 1.0) for name in _SHARES}


def importance(rows: int, passes: Sequence[AskedPass], cells: Sequence[tuple[int, int]]) -> np.ndarray:
    """Rows that are printed first, then those that were selected by the fewest: the last passes select those."""
    printed = np.zeros(rows)
    printed[[row for row, _ in cells]] = 1.0
    interest = 4.0 * printed
    for one in passes:
        interest += one.rows / max(float(one.rows.sum()), 1.0)
    near = np.maximum(np.append(interest[1:], 0.0), np.append(0.0, interest[:-1]))
    return interest + 1e-3 * near
