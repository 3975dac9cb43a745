"""Answers to questions about tables: the cells that hold them, programs in words, and what leaves as text."""

import numpy as np
import pytest

from sightline.inputs.table import Asked, TableInput
from sightline.models.asking import OPERATIONS, Pass, Program
from sightline.outputs.answer import Answer, AnswerOutput
from sightline.outputs.answer_words import answer_arrays, likely_cell, program_steps, program_text
from sightline.table import DataTable
from sightline.tasks.ask import ASK
from sightline.tasks.configs.ask import AskConfig
from sightline.tasks.prepare import Prepared
from sightline.tasks.task import BadValueError

TABLE = DataTable.of(
    ["Nation", "Gold", "Year"],
    [["Norway", "14", "2018"], ["Germany", "14", "2014"], ["Norway", "1,000", "2010"], ["=cmd()", "9", "2006"]],
    "medals",
)
NORWAY = Asked("when did Norway win the most gold, more than 10?", TABLE)


def one(operation, column, rows, number=-1):
    probs = np.full(len(OPERATIONS), 0.01)
    probs[OPERATIONS.index(operation)] = 0.86
    return Pass(OPERATIONS.index(operation), column, probs, np.full(3, 1 / 3), np.full(10, 0.1), number, np.array(rows))


PROGRAM = Program(
    (
        one("reset", 0, [1, 1, 1, 1]),
        one("match", 0, [1, 0, 1, 0]),
        one("greater", 1, [1, 0, 1, 0], number=0),
        one("max", 1, [0, 0, 1, 0]),
        one("print", 2, [0, 0, 1, 0]),
    ),
    None,
    ((2, 2),),
    -0.5,
)


def test_a_program_in_words():
    steps = program_steps(NORWAY, PROGRAM)
    assert [step.sentence for step in steps] == [
        "all rows",
        "rows where *Nation* matches 'Norway'",
        "of these, rows where *Gold* is more than 10",
        "of these, the row with the largest *Gold*",
        "print *Year*",
    ]
    assert [step.idle for step in steps] == [True, False, True, False, False]
    said = "rows where *Nation* matches 'Norway'; of these, the row with the largest *Gold*; print *Year*"
    assert program_text(steps) == said
    prediction = AnswerOutput(AskConfig()).decide(NORWAY, PROGRAM)
    assert prediction.answers == ("2010",)
    assert prediction.program == said


def test_all_rows_are_selected_again_only_where_they_were_not():
    passes = (one("reset", 0, [1, 1, 1, 1]), one("last", 0, [0, 0, 0, 1]), one("reset", 0, [1, 1, 1, 1]))
    steps = program_steps(NORWAY, Program(passes, None, (), 0.0))
    assert [step.sentence for step in steps] == ["all rows", "the last row", "all rows again"]


def test_a_match_of_no_cell_is_told():
    (step,) = program_steps(
        Asked("when did Sweden win?", TABLE), Program((one("match", 0, [0, 0, 0, 0]),), None, (), 0.0)
    )
    assert step.sentence == "rows where *Nation* matches the question (no cell does)"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_has_words(operation):
    (step,) = program_steps(NORWAY, Program((one(operation, 1, [1, 0, 0, 0]),), None, (), 0.0))
    assert step.sentence
    assert (step.column is None) == (operation in ("count", "previous", "next", "first", "last", "reset"))


def test_cells_that_hold_an_answer():
    both = answer_arrays(TABLE, ["norway", "1,000"])
    assert both.cells.tolist() == [[1, 0, 0], [0, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert (both.count, both.items, both.reachable) == (-1, 2, True)
    three = answer_arrays(TABLE, ["3"])
    assert (three.count, three.reachable) == (3, True)
    assert not answer_arrays(TABLE, ["5"]).reachable
    assert not answer_arrays(TABLE, ["Norway", "Sweden"]).reachable


def test_questions_that_no_program_answers_are_counted_and_left_out():
    config = AskConfig(max_rows=2)
    output, reading = AnswerOutput(config), TableInput(config, ["when"])
    for items in (("2018",), ("1,000",), ("sum of all",), ("2",)):
        (parts,) = reading.train_parts([NORWAY])
        list(output.encode(NORWAY, Answer(items), parts))
    assert (output.trained, output.cut_off, output.unreachable) == (2, 1, 1)
    notes = output.notes(Prepared(reading, output, None, [], config, ASK))
    assert "no program of this kind can answer 1 of 4 training questions" in notes[0]
    assert "behind the first 2 (max_rows)" in notes[1]


def test_what_leaves_as_text_is_no_formula_and_json_is_exact():
    output = AnswerOutput(AskConfig())
    prediction = output.decide(NORWAY, Program((one("print", 0, [0, 0, 0, 1]),), None, ((3, 0),), -0.1))
    assert output.line(NORWAY, prediction).split("\t")[0] == "'=cmd()"
    assert output.to_json(NORWAY, prediction)["answers"] == ["=cmd()"]
    nothing = output.decide(NORWAY, Program((one("print", 0, [0, 0, 0, 0]),), None, (), -0.1))
    assert nothing.answers == ()
    assert "no answer" in output.remark(NORWAY, nothing)
    assert output.line(NORWAY, output.decide(NORWAY, output.merge(NORWAY, [], []))) == ""


def test_an_answer_without_a_model():
    assert likely_cell(Asked("what gold did Germany win?", TABLE)) == ("14",)
    assert likely_cell(Asked("what?", DataTable.of(["a"], []))) == ()


def test_targets_are_read_with_their_kind():
    output = AnswerOutput(AskConfig())
    y = output.read({"answer": "a|b", "kind": " max  print ", "id": 7}, NORWAY)
    assert y == (("a", "b"), "max print", "7")
    assert output.unpack(output.pack(y)) == y
    with pytest.raises(BadValueError, match="no answer"):
        output.read({"answer": ""}, NORWAY)
