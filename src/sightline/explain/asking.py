"""The program that answered a question about a table, as an explanation: the table, and maps of its choices."""

from collections.abc import Sequence

import numpy as np

from sightline.asked import AskedPass, AskedTable
from sightline.explain.explanation import Choice, OutputStep, Stack
from sightline.models.asking import OPERATIONS, Program
from sightline.records import Record, Tokens

WITHOUT_COLUMN = frozenset({"count", "previous", "next", "first", "last", "reset"})  # they use no column
QUESTION, CHOSEN, COLUMNS = "question", "operations", "columns"  # the names of the maps
LISTED = 5  # operations beside a pass


def asked_table(
    program: Program,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[str],
    sentences: Sequence[str],
) -> AskedTable:
    """The table with what a program did: ``sentences`` are its passes in words, ``words`` those of the question.

    The stars around the name of a column, which tell it from other words in a line of text, are left out.
    """
    passes = [
        AskedPass(
            one.operation,
            -1 if OPERATIONS[one.operation] in WITHOUT_COLUMN else one.column,
            one.operation_probs,
            one.column_probs[: len(header)],
            one.question_weights[: len(words)],
            one.rows[: len(rows)],
            sentence.replace(f"*{header[one.column]}*", header[one.column]) if header else sentence,
        )
        for one, sentence in zip(program.passes, sentences, strict=True)
    ]
    return AskedTable.of(header, rows, words, OPERATIONS, passes, program.count, program.cells)


def asked_maps(table: AskedTable) -> tuple[tuple[Record, ...], tuple[Stack, ...], tuple[OutputStep, ...]]:
    """Rows are passes; columns are words of the question, operations, or columns of the table."""
    if not table.passes:
        return (), (), ()
    rows = Tokens(table.pass_names, name="pass")
    sides = {
        QUESTION: ("Words of the question", Tokens(table.words, name="word"), "word_weights"),
        CHOSEN: ("Operations", Tokens(table.operations, name="operation"), "operation_probs"),
        COLUMNS: ("Columns of the table", Tokens(table.header, name="column"), "column_probs"),
    }
    records, stacks = list[Record](), list[Stack]()
    for layer, (name, (title, columns, field)) in enumerate(sides.items()):
        weights = np.array([getattr(one, field) for one in table.passes], dtype=np.float32)
        records.append(Record(name, layer, 0, rows, columns, weights.reshape(len(rows), len(columns))))
        stacks.append(Stack(title, "cross", (name,)))
    return tuple(records), tuple(stacks), tuple(map(_step, [table] * len(table.passes), table.passes))


def _step(table: AskedTable, one: AskedPass) -> OutputStep:
    best = np.argsort(-one.operation_probs, kind="stable")[:LISTED]
    likeliest = tuple(Choice(table.operations[place], float(one.operation_probs[place])) for place in best)
    return OutputStep(table.operations[one.operation], float(one.operation_probs[one.operation]), likeliest)
