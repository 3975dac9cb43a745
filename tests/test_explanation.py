"""Explanations are plain data: they survive JSON, and refuse what does not fit together."""

import json

import numpy as np
import pytest

from sightline.explain.explanation import Belief, Calculation, Choice, Explanation, Finding, HeadCost, OutputStep, Stack
from sightline.records import Record, Tokens

pytestmark = pytest.mark.fast

LOOKS = Stack("Looks at the source", "cross", ("decoder.attention",))


def make(stacks=(LOOKS,)):
    rows, columns = Tokens(("x", "</s>"), special=(1,)), Tokens(("a", "b", "</s>"), words=(0, 0, 1), special=(2,))
    weights = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]], dtype=np.float32)
    return Explanation(
        title="run",
        task="translate",
        input="ab",
        output="x",
        records=(Record("decoder.attention", 0, 0, rows, columns, weights),),
        stacks=stacks,
        steps=(OutputStep("x", 0.75, (Choice("x", 0.75), Choice("y", 0.125))), OutputStep("</s>", 1.0)),
        calculations=(Calculation("decoder.attention", 0, np.eye(3, 2), np.ones((2, 4)), weights @ np.eye(3, 2), 8),),
        alternatives=(Choice("y", 0.1),),
        belief=Belief(
            "the mean",
            2,
            (Finding("entropy", "Entropy", 1.0, None, "It is."),),
            (HeadCost("decoder.attention", 0, 0.5),),
        ),
        shift=1,
        notes=("a note",),
    )


def test_an_explanation_survives_json():
    before = make()
    after = Explanation.from_json(json.loads(json.dumps(before.to_json(), allow_nan=False)))
    for name in ("title", "task", "input", "output", "stacks", "steps", "alternatives", "belief", "shift", "notes"):
        assert getattr(after, name) == getattr(before, name)
    assert after.records[0].rows == before.records[0].rows
    assert after.records[0].columns == before.records[0].columns
    np.testing.assert_array_equal(after.records[0].matrix(), before.records[0].matrix())
    for side in ("values", "queries", "contexts"):
        np.testing.assert_allclose(getattr(after.calculations[0], side), getattr(before.calculations[0], side))
    assert after.calculations[0].size == 8


def test_a_stack_names_records_that_are_there():
    with pytest.raises(ValueError, match=r"no record is named 'other'; there is decoder\.attention"):
        make((Stack("?", "self", ("other",)),))


def test_tokens_check_their_words_and_special_places():
    with pytest.raises(ValueError, match="words has 1 entries; expected 2"):
        Tokens(("a", "b"), words=(0,))
    with pytest.raises(ValueError, match="special is"):
        Tokens(("a", "b"), special=(2,))
