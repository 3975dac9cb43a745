"""Explanations are plain data: they survive JSON, and refuse what does not fit together."""

import json

import numpy as np
import pytest

from explanations import make
from sightline.explain.explanation import Explanation, Stack
from sightline.records import Tokens

pytestmark = pytest.mark.fast


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
