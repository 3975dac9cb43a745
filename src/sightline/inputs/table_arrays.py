"""A question and its table as the numbers that models of `ask` read (`sightline.models.asking.TableArrays`).

What does not depend on the question (ranks, equal cells) is worked out once for a table.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sightline.data.values import (
    QuestionNumber,
    Value,
    cell_matches,
    column_order,
    column_values,
    compare_values,
    question_numbers,
    question_words,
)
from sightline.models.asking import NOT_COMPARABLE, NUMBERS, TableArrays
from sightline.table import DataTable

MOST_HELD = 1_000_000  # cells of the tables that are kept in memory
PADDING, UNKNOWN = 0, 1
MOST_WORDS = 200  # of a question; further ones are left out
MOST_NAME_WORDS = 20  # of the name of a column


class ColumnFacts(NamedTuple):
    """What is known of each column whatever the question: the values of its different cells, and which cell is which.

    ``entries`` (R × C) number the different cells of a column, ``ranks`` (R × C) order its numbers, 0 for none.
    """

    texts: list[list[str]]  # of each column, its different cells
    values: list[list[Value]]
    entries: np.ndarray
    ranks: np.ndarray


def column_facts(table: DataTable) -> ColumnFacts:
    """The facts of a table."""
    shape = (len(table.rows), len(table.header))
    entries = np.zeros(shape, np.int64)
    texts, values = list[list[str]](), list[list[Value]]()
    for column in range(shape[1]):
        places: dict[str, int] = {}
        for row, cells in enumerate(table.rows):
            entries[row, column] = places.setdefault(" ".join(cells[column].split()).casefold(), len(places))
        first: dict[int, str] = {}
        for row, entry in enumerate(entries[:, column].tolist()):
            first.setdefault(entry, table.rows[row][column])
        texts.append(list(first.values()))
        values.append(column_values(texts[-1]))
    return ColumnFacts(texts, values, entries, ranks_of(values, entries))


def ranks_of(values: Sequence[Sequence[Value]], entries: np.ndarray) -> np.ndarray:
    """Ranks of the cells in their columns, by the values of each column's different cells."""
    ranks = np.zeros(entries.shape, np.int64)
    for column, own in enumerate(values):
        order = column_order(own)
        known = sorted({one for one in order if one is not None})
        rank = {one: number for number, one in enumerate(known, start=1)}
        if len(entries):
            ranks[:, column] = np.array([0 if one is None else rank[one] for one in order], np.int64)[
                entries[:, column]
            ]
    return ranks


class TableFacts:
    """The facts of tables, kept for those that were asked about last."""

    def __init__(self) -> None:
        self._facts: OrderedDict[str, ColumnFacts] = OrderedDict()
        self._cells = 0

    def of(self, table: DataTable) -> ColumnFacts:
        digest = table.digest
        if digest not in self._facts:
            self._facts[digest] = column_facts(table)
            self._cells += self._facts[digest].entries.size
            while self._cells > MOST_HELD and len(self._facts) > 1:
                self._cells -= self._facts.popitem(last=False)[1].entries.size
        self._facts.move_to_end(digest)
        return self._facts[digest]


def words_of(text: str) -> list[str]:
    """The words of a question or of the name of a column, as a vocabulary has them."""
    return [word for word, _, _ in question_words(text)]


def shown_words(question: str) -> list[str]:
    """The words of a question as they are written, one for each that a model reads."""
    return [question[start:end] for _, start, end in question_words(question)[:MOST_WORDS]]


def compared_numbers(question: str) -> list[QuestionNumber]:
    """The numbers of a question that comparisons may use."""
    return list(question_numbers(question)[:NUMBERS])


def table_arrays(question: str, table: DataTable, facts: ColumnFacts, ids: Mapping[str, int]) -> TableArrays:
    """A question and its table as numbers; ``ids`` are those of the vocabulary's words."""
    words = question_words(question)[:MOST_WORDS]
    numbers = compared_numbers(question)
    rows, columns = facts.entries.shape
    number_at = np.full(NUMBERS, -1, np.int64)
    signs = np.full((NUMBERS, rows, columns), NOT_COMPARABLE, np.int64)
    for place, number in enumerate(numbers):
        at = next((i for i, (_, _, end) in enumerate(words) if end > number.start), None)
        if at is None:
            continue
        number_at[place] = at

        def sign(value: Value, asked: Value = number.value) -> int:
            compared = compare_values(value, asked)
            return NOT_COMPARABLE if compared is None else compared

        signs[place] = _of_entries(facts, [list(map(sign, values)) for values in facts.values])
    names = [[ids.get(one, UNKNOWN) for one in words_of(name)[:MOST_NAME_WORDS]] for name in table.plain_header]
    longest = max([1, *map(len, names)])
    padded = [[*one, *[PADDING] * (longest - len(one))] for one in names]
    matches = cell_matches(table.rows, question)
    return TableArrays(
        words=np.array([ids.get(word, UNKNOWN) for word, _, _ in words], np.int64),
        number_at=number_at,
        names=np.array(padded, np.int64).reshape(columns, longest),
        ranks=facts.ranks,
        signs=signs,
        entries=facts.entries,
        matches=np.array(matches, np.int64).reshape(rows, columns),
        named=np.array(columns_named(question, table), np.int64),
    )


def columns_named(question: str, table: DataTable) -> list[bool]:
    """Which columns have a name that stands in the question, word by word; a plural is the same word."""
    asked = list(map(_singular, words_of(question)))
    named = []
    for name in table.plain_header:
        own = list(map(_singular, words_of(name)))
        places = range(len(asked) - len(own) + 1) if own else ()
        named.append(any(asked[place : place + len(own)] == own for place in places))
    return named


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _of_entries(facts: ColumnFacts, numbers: Sequence[Sequence[int]]) -> np.ndarray:
    """Numbers of the different cells of each column, as numbers of all cells."""
    made = np.zeros(facts.entries.shape, np.int64)
    if len(facts.entries):
        for column, own in enumerate(numbers):
            made[:, column] = np.array(own, np.int64)[facts.entries[:, column]]
    return made
