"""Explanations of answers from tables, made by hand: no model is trained."""

from collections.abc import Sequence

import numpy as np

from sightline.explain.asking import asked_maps, asked_table
from sightline.explain.explanation import Explanation
from sightline.models.asking import OPERATIONS, Pass, Program

HEADER = ("Year", "Nation", "City", "Gold", "Silver", "Note")
ROWS = (
    ("1992", "Norway", "Albertville", "9", "6", "first place in cross-country skiing"),
    ("1994", "Russia", "Lillehammer", "11", "8", ""),
    ("1994", "Norway", "Lillehammer", "10", "11", "hosts, with more medals than in any winter before"),
    ("1998", "Germany", "Nagano", "12", "9", ""),
    ("1998", "Norway", "Nagano", "10", "10", "ten of each"),
    ("2002", "Norway", "Salt Lake City", "13", "5", "most gold of all nations"),
    ("2006", "Germany", "Turin", "11", "12", ""),
)
WORDS = ("in", "which", "year", "did", "Norway", "win", "the", "most", "gold", "?")


def spread(size: int, peaks: dict[int, float]) -> np.ndarray:
    """Probabilities with these peaks; the rest is shared by the others."""
    found = np.full(size, max(1 - sum(peaks.values()), 0.0) / max(size - len(peaks), 1))
    for place, share in peaks.items():
        found[place] = share
    return found


def made_pass(
    name: str,
    column: int,
    words: dict[int, float],
    rows: Sequence[float],
    columns: int,
    length: int,
    share: float = 0.9,
) -> Pass:
    operation = OPERATIONS.index(name)
    likely = spread(len(OPERATIONS), {operation: share, (operation + 3) % len(OPERATIONS): (1 - share) / 2})
    likely_columns = spread(columns, {column: share})
    return Pass(operation, column, likely, likely_columns, spread(length, words), -1, np.asarray(rows, dtype=float))


def norway() -> Explanation:
    """The year with the most gold of Norway: select, the largest of these, print."""
    size, length = len(HEADER), len(WORDS)
    norway_rows, best = [1, 0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 1, 0]
    passes = (
        made_pass("reset", 0, {0: 0.3, 9: 0.3}, [1] * 7, size, length, 0.98),
        made_pass("match", 1, {4: 0.86, 3: 0.08}, norway_rows, size, length, 0.93),
        made_pass("max", 3, {7: 0.55, 8: 0.38}, best, size, length, 0.88),
        made_pass("print", 0, {2: 0.72, 1: 0.2}, best, size, length, 0.97),
    )
    sentences = ("all rows", "rows where Nation matches 'Norway'", "of these, the largest Gold", "print Year")
    return explained(Program(passes, None, ((5, 0),), -0.4), HEADER, ROWS, WORDS, sentences, "2002")


def explained(
    program: Program,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Sequence[str],
    sentences: Sequence[str],
    answer: str,
    title: str = "programmer",
) -> Explanation:
    table = asked_table(program, header, rows, words, sentences)
    records, stacks, steps = asked_maps(table)
    return Explanation(title, "ask", " ".join(words), answer, records, stacks, steps, table=table)


def large(rows: int = 10_000, columns: int = 40, chosen: int = 17) -> Explanation:
    """Many rows and columns with long cells: how many have more than 900?"""
    header = [f"column {number + 1}" for number in range(columns)]
    cells = [
        [f"{row * 7919 % 1000}" if column == chosen else f"row {row + 1}, cell {column + 1} {'long ' * (column % 5)}"
         for column in range(columns)]
        for row in range(rows)
    ]  # fmt: skip
    words = ["how", "many", "have", "more", "than", "900", "in", "column", "18", "?"]
    above = [float(int(row[chosen]) > 900) for row in cells]
    passes = (
        made_pass("greater", min(chosen, columns - 1), {3: 0.4, 5: 0.5}, above, columns, len(words), 0.8),
        made_pass("count", 0, {0: 0.5, 1: 0.45}, above, columns, len(words), 0.95),
    )
    sentences = ("rows where column 18 is greater than 900", "count the rows")
    count = int(sum(above))
    return explained(Program(passes, count, (), -1.0), header, cells, words, sentences, f"{count}")
