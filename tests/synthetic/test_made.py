"""Made data: what is drawn is what the papers describe, and always the same by one seed."""

import itertools

import numpy as np
import pytest

from sightline.errors import UserError
from sightline.synthetic.made import MADE, MadeData, hull

pytestmark = pytest.mark.fast


def rows(text, count=40):
    return list(MadeData.read(text, count=count).rows())


@pytest.mark.parametrize("name", MADE)
def test_the_same_seed_draws_the_same(name):
    made = [rows(f"made:{name}", 5) for _ in range(2)]
    for pair, again in zip(*made, strict=True):
        assert all(map(np.array_equal, pair, again))
    other = rows(f"made:{name}:seed=1", 5)
    assert not all(np.array_equal(one[0], two[0]) for one, two in zip(made[0], other, strict=True))


def test_copies():
    for x, y in rows("made:copy:lengths=3-6"):
        assert 3 <= len(y) <= 6
        assert np.array_equal(x[:-1, :-1], y)
        assert x[-1].tolist() == [0] * 8 + [1]
    for x, y in rows("made:repeat-copy:lengths=4:repeats=2-3:width=5"):
        times = round(float(x[-1, -1]) * np.sqrt(8.25) + 5.5)
        assert 2 <= times <= 3
        assert np.array_equal(y, np.tile(x[:-1, :5], (times, 1)))


def test_recall_gives_the_item_behind_the_one_that_is_asked_for():
    for x, y in rows("made:associative-recall"):
        items = [x[at + 1 : at + 4, :-2] for at in np.flatnonzero(x[:, -2])]
        asked = np.flatnonzero(x[:, -1])
        assert asked[1] == len(x) - 1
        place = next(n for n, one in enumerate(items) if np.array_equal(one, x[asked[0] + 1 : asked[0] + 4, :-2]))
        assert any(np.array_equal(one, y) for one in items[place + 1 :])


def test_sorted_by_priority():
    for x, y in rows("made:priority-sort"):
        assert len(y) == 16
        best = sorted(range(20), key=lambda row: -x[row, -2])[:16]
        assert np.array_equal(x[best, :8], y)


def test_ngrams_have_a_next_bit():
    for x, y in rows("made:dynamic-ngrams:lengths=50", 5):
        assert np.array_equal(x[1:], y[:-1])


@pytest.mark.parametrize("name", ["parity", "scattered-parity"])
def test_parity_counts_the_ones(name):
    for x, y in rows(f"made:{name}:lengths=1-64"):
        assert set(np.unique(x)) <= {-1.0, 0.0, 1.0}
        assert y.item() == (x == 1).sum() % 2
        assert 1 <= (x != 0).sum() <= 64
        if name == "parity":
            assert (np.diff((x[0] != 0).astype(int)) <= 0).all()


def test_gates_of_logic():
    gates = ["not (a or b)", "a != b", "a and b", "not (a and b)", "a or b", "a == b", "a", "b", "(not a) or b"]
    gates += ["a or not b"]
    for x, y in rows("made:logic"):
        last = None
        for frame, answer in zip(x, y, strict=True):
            a, b = bool(frame[0]) if last is None else last, bool(frame[1])
            for gate in frame[2:].reshape(10, 10):
                if gate.any():
                    a, b = b, bool(eval(gates[int(gate.argmax())], {"a": a, "b": b}))
            assert answer.item() == b
            last = b


def test_sums():
    for x, y in rows("made:addition"):
        total = 0
        for frame, answer in zip(x.reshape(5, 5, 10), y.reshape(5, 6, 11), strict=True):
            total += int("".join(str(one.argmax()) for one in frame if one.any()))
            shown = [int(one.argmax()) for one in answer]
            assert int("".join(str(one) for one in shown if one < 10)) == total


def test_places_in_order():
    for x, places in rows("made:sort"):
        assert (np.diff(x[places, 0]) >= 0).all()
        assert sorted(places) == list(range(len(x)))


def test_the_hull_holds_all_points_on_its_left():
    for x, places in rows("made:convex-hull:lengths=3-12"):
        assert places[0] == min(places)
        corners = x[places].astype(np.float64)
        for start, end in itertools.pairwise([*corners, corners[0]]):
            (a, b), others = end - start, x.astype(np.float64) - start
            turns = a * others[:, 1] - b * others[:, 0]
            assert (turns >= -1e-6).all()
    assert hull(np.array([[0, 0], [1, 0], [2, 0], [1, 1.0]])).tolist() == [0, 2, 3]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("made:nothing", "there is no made data 'nothing'; there is copy"),
        ("made:copy:lengths=0-4", "lengths is '0-4'; expected numbers from 1"),
        ("made:copy:lengths=9-4", "the smaller one first"),
        ("made:copy:lengths=many", "expected a number or a range, such as 1-20"),
        ("made:copy:length=4", "found 'length=4'; expected one of lengths=…"),
        ("made:copy:count=-1", "count is -1; expected 1 to 1,000,000"),
        ("made:copy:width=9999", "width is 9,999; expected 1 to 1,024"),
    ],
)
def test_wrong_options_are_one_sentence(text, said):
    with pytest.raises(UserError, match=said):
        MadeData.read(text)


def test_what_is_written_is_read_again():
    made = MadeData.read("made:repeat-copy:lengths=3-7:count=9", repeats="2", width=5)
    assert str(made) == "repeat-copy:lengths=3-7:width=5:repeats=2"
    assert MadeData.read(f"made:{made}", count=9) == made
