"""A program in words, the answer that it gives, the cells that hold an answer, and answers without a model."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from sightline.data.values import cell_matches
from sightline.explain.asking import WITHOUT_COLUMN
from sightline.inputs.table import Asked
from sightline.inputs.table_arrays import columns_named, compared_numbers, words_of
from sightline.metrics.denotations import Item, equal_items, read_item
from sightline.models.asking import OPERATIONS, AnswerArrays, Program
from sightline.table import DataTable

LONGEST_SHOWN = 40  # characters of a cell in a program
MATCHES_SHOWN = 3  # cells that a condition names
COMPARED = {"greater": "is more than", "less": "is less than", "at_least": "is at least", "at_most": "is at most"}


class ProgramStep(NamedTuple):
    """One pass in words, with its parts. ``column`` and ``number`` are None where the operation uses none; ``rows``
    counts the rows that are selected behind it. ``idle``: the pass changed nothing."""

    operation: str
    column: str | None
    number: str | None
    rows: int
    probability: float
    sentence: str
    idle: bool


def program_steps(x: Asked, program: Program) -> list[ProgramStep]:
    """The passes of a program in words."""
    numbers = compared_numbers(x.question)
    before, steps = np.ones(len(x.table.rows)), list[ProgramStep]()
    for place, one in enumerate(program.passes):
        operation = OPERATIONS[one.operation]
        column = None if operation in WITHOUT_COLUMN else x.table.header[one.column]
        number = numbers[one.number] if 0 <= one.number < len(numbers) and operation in COMPARED else None
        written = None if number is None else x.question[number.start : number.end]
        named = _matched(x, one.column) if operation == "match" else ""
        own = np.asarray(one.rows) > 0.5
        gives = place == len(program.passes) - 1
        idle = operation not in ("count", "print") and bool((own == (before > 0.5)).all())
        idle = idle or (operation in ("count", "print") and not gives)
        probability = float(one.operation_probs[one.operation])
        if column is not None:
            probability *= float(one.column_probs[one.column])
        sentence = _sentence(operation, column or "", written, named, bool((before > 0.5).all()))
        steps.append(ProgramStep(operation, column, written, int(own.sum()), probability, sentence, idle))
        before = own.astype(float)
    return steps


def program_text(steps: Sequence[ProgramStep]) -> str:
    """A program in one line; passes that changed nothing are left out."""
    return "; ".join(one.sentence for one in steps if not one.idle)


def _sentence(operation: str, column: str, number: str | None, named: str, whole: bool) -> str:
    of, name = "" if whole else "of these, ", f"*{column}*"
    if operation in COMPARED:
        return f"{of}rows where {name} {COMPARED[operation]} {number or 'a number that the question does not have'}"
    phrases = {
        "match": f"{of}rows where {name} matches {named or 'the question (no cell does)'}",
        "max": f"{of}the row with the largest {name}",
        "min": f"{of}the row with the smallest {name}",
        "most_frequent": f"{of}rows with the most frequent {name}",
        "previous": "the row before",
        "next": "the row after",
        "first": f"{of}the first row",
        "last": f"{of}the last row",
        "reset": "all rows" if whole else "all rows again",
        "count": "count the rows",
        "print": f"print {name}",
    }
    return phrases[operation]


def _matched(x: Asked, column: int) -> str:
    """The cells of a column that the question names, quoted."""
    cells = [[row[column]] for row in x.table.rows]
    pairs = zip(cells, cell_matches(cells, x.question), strict=True)
    texts = dict.fromkeys(cell for (cell,), (own,) in pairs if own)
    shown = [f"'{_short(text)}'" for text in list(texts)[:MATCHES_SHOWN]]
    return " or ".join(shown) + (f" or {len(texts) - len(shown):,} others" if len(texts) > len(shown) else "")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"


def program_answers(table: DataTable, program: Program) -> tuple[str, ...]:
    """The items of the answer that a program gives, each once."""
    if program.count is not None:
        return (str(program.count),)
    return tuple(dict.fromkeys(table.rows[row][column] for row, column in program.cells))


@lru_cache(maxsize=100_000)
def _item(text: str) -> Item:
    return read_item(text)


def answer_arrays(table: DataTable, items: Sequence[str]) -> AnswerArrays:
    """The cells that hold items of an answer by the rules of denotations, and the number of rows that it may be."""
    own = [read_item(one, target=True) for one in dict.fromkeys(items)]
    cells = np.zeros((len(table.rows), len(table.header)), np.int64)
    held: dict[str, int] = {}
    for row, texts in enumerate(table.rows):
        for column, text in enumerate(texts):
            if text not in held:
                item = _item(text) if len(text) <= 1000 else read_item(text)
                held[text] = next((place for place, one in enumerate(own, start=1) if equal_items(one, item)), 0)
            cells[row, column] = held[text]
    number = own[0].number if len(own) == 1 else None
    whole = number is not None and number.is_integer() and 0 <= number <= len(table.rows)
    return AnswerArrays(int(number) if whole and number is not None else -1, len(own), cells)


def likely_cell(x: Asked) -> tuple[str, ...]:
    """An answer without a model: of the row with most words of the question, the cell in the column that the question
    names, or in the first column that it does not match."""
    table, asked = x.table, {*words_of(x.question)}
    if not table.rows:
        return ()
    matches = np.array(cell_matches(table.rows, x.question)).reshape(len(table.rows), len(table.header))
    shared = [len(asked & {word for cell in row for word in words_of(cell[:1000])}) for row in table.rows]
    row = int(np.argmax(matches.sum(axis=1) * 100 + np.array(shared)))
    named = [place for place, own in enumerate(columns_named(x.question, table)) if own]
    free = [place for place in range(len(table.header)) if not matches[row, place]]
    column = (named or free or [0])[0]
    return (table.rows[row][column],)
