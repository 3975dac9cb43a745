"""Made tables: what is asked can be read from the words, and the answers are right."""

import subprocess
import sys
from collections import Counter
from itertools import product

import pytest

from sightline.data.values import cell_matches, column_order, column_values, compare_values, question_numbers
from sightline.models.asking import OPERATIONS
from sightline.synthetic.tables import KINDS, MadeQuestion, made_questions

SIGNS = {"greater": (1,), "less": (-1,), "at_least": (0, 1), "at_most": (-1, 0)}


def operations(kind: str) -> list[str]:
    """The operations that a kind names, in order."""
    text, steps = kind, []
    while text:
        step = next(one for one in OPERATIONS if text == one or text.startswith(one + "_"))
        steps.append(step)
        text = text[len(step) :].removeprefix("_")
    return steps


def run(made: MadeQuestion, steps: list[tuple[str, int]]) -> tuple[str, ...]:
    """A program of operations and columns, by what the parser of values finds: nothing that the maker knows."""
    columns = list(zip(*made.rows, strict=True))
    rows, answer = list(range(len(made.rows))), ()
    matches = cell_matches(made.rows, made.question)
    for step, column in steps:
        values = column_values(columns[column])
        order = column_order(values)
        if step == "match":
            rows = [row for row in rows if matches[row][column]]
        elif step in SIGNS:
            asked = [one.value for one in question_numbers(made.question)]
            rows = [row for row in rows if asked and compare_values(values[row], asked[0]) in SIGNS[step]]
        elif step in ("max", "min"):
            known = [row for row in rows if order[row] is not None]
            best = max if step == "max" else min
            rows = [best(known, key=lambda row: order[row] or 0.0)] if known else []
        elif step in ("first", "last"):
            rows = rows[:1] if step == "first" else rows[-1:]
        elif step in ("previous", "next"):
            moved = [row + (1 if step == "next" else -1) for row in rows]
            rows = [row for row in moved if 0 <= row < len(made.rows)]
        elif step == "reset":
            rows = list(range(len(made.rows)))
        if step == "count":
            answer = (str(len(rows)),)
        elif step == "print":
            answer = tuple(columns[column][row] for row in rows)
        elif step == "most_frequent":
            answer = (Counter(columns[column]).most_common(1)[0][0],)
    return answer


def test_answers_follow_from_the_words() -> None:
    for made in made_questions(0, 5 * len(KINDS)):
        # Columns are those that the question names; each operation may use any of them.
        named = [place for place, name in enumerate(made.header) if name.lower() in made.question]
        steps = operations(made.kind)
        programs = (list(zip(steps, chosen, strict=True)) for chosen in product(named or [0], repeat=len(steps)))
        assert made.answer in [run(made, program) for program in programs], made


def test_every_operation_is_asked_for() -> None:
    assert {step for kind in KINDS for step in operations(kind)} == set(OPERATIONS)


def test_the_same_seed_makes_the_same_questions() -> None:
    first, again, other = (list(made_questions(seed, 60)) for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert len({made.rows for made in first + other}) == 120  # no table comes twice
    assert Counter(made.kind for made in made_questions(1, 2 * len(KINDS))) == dict.fromkeys(KINDS, 2)


def test_tables_have_the_size_that_is_asked_for() -> None:
    for made in made_questions(0, 60, kinds=["count", "max_print"], rows=(4, 6), columns=(5, 7)):
        assert made.kind in ("count", "max_print")
        assert 4 <= len(made.rows) <= 6
        assert 5 <= len(made.header) <= 7
        assert {len(row) for row in made.rows} == {len(made.header)} == {len(set(made.header))}
    assert len(list(made_questions(0, len(KINDS), rows=(4, 4), columns=(4, 4)))) == len(KINDS)
    assert len(next(made_questions(0, 1, rows=(500, 500), columns=(12, 12))).rows) == 500


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no kind add"):
        made_questions(0, 1, kinds=["add"])
    with pytest.raises(ValueError, match="rows is 2-5"):
        made_questions(0, 1, rows=(2, 5))
    with pytest.raises(ValueError, match="columns is 8-4"):
        made_questions(0, 1, columns=(8, 4))


def test_torch_is_not_imported() -> None:
    code = "import sys, sightline.synthetic.tables, sightline.data.values; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
