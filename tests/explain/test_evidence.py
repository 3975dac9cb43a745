"""The numbers beside a map, on a subject whose truth is known: hiding column j costs row i exactly truth[i, j]."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from sightline.attention import ComposedConfig, DotConfig
from sightline.attention.tap import active_taps
from sightline.errors import UserError
from sightline.explain.evidence import believe, choose_shift, leave_one_out, sentences
from sightline.explain.evidence.measures import agreement, chance_range, chosen_rows, kendall, moved, removal
from sightline.explain.evidence.panel import spread
from sightline.explain.explanation import Explanation, Stack
from sightline.records import Record, Slots, Tokens


class Additive:
    """Log-probabilities that are a plain sum over the columns. Whoever hides a column that may not be, is told."""

    row_name, column_name = "written token", "source token"

    def __init__(self, truth, never=(), attention_matters=0.0):
        self.truth = torch.tensor(truth, dtype=torch.float64)
        self.rows, self.columns = self.truth.shape
        self.hideable = np.array([column not in never for column in range(self.columns)])
        self.attention_matters = attention_matters
        self.model = nn.ModuleDict({"looks": ComposedConfig(DotConfig()).build(1), "other": ComposedConfig().build(1)})
        self.unchanged = self.read()

    def attends_to_columns(self, name):
        return name == "looks"

    def log_probs(self, keep):
        assert keep[:, torch.from_numpy(~self.hideable)].all(), "a column was hidden that may not be"
        read = self.read() if active_taps() else self.unchanged
        return (keep.double() @ self.truth.T) - 40 + self.attention_matters * read[0] + read[1]

    def read(self):
        keys = torch.eye(self.columns)[:, :1] * 20  # a query of 1 looks at the first column, and reads 1 from it
        return [one(torch.ones(1, 1), one.remember(keys, keys / 20)).context.item() for one in self.model.values()]

    def gradient_times_input(self, rows):
        return -self.truth[list(rows)]  # the sign must not matter


@pytest.fixture
def truth():
    return np.random.default_rng(0).uniform(0, 3, size=(6, 24))


def test_kendall_counts_pairs_as_the_definition_does():
    assert kendall(np.array([1.0, 2, 3, 4]), np.array([1.0, 3, 2, 4])) == pytest.approx(4 / 6)
    random = np.random.default_rng(1)
    for _ in range(20):
        x, y = (random.integers(0, 4, size=9).astype(float) for _ in range(2))
        same = opposite = tied_x = tied_y = 0
        for i, j in itertools.combinations(range(9), 2):
            product = (x[i] - x[j]) * (y[i] - y[j])
            same, opposite = same + (product > 0), opposite + (product < 0)
            tied_x, tied_y = tied_x + (x[i] == x[j]), tied_y + (y[i] == y[j])
        expected = (same - opposite) / math.sqrt((36 - tied_x) * (36 - tied_y))
        assert kendall(x, y) == pytest.approx(expected)
    assert math.isnan(kendall(np.ones(3), np.array([1.0, 2, 3])))


def test_agreement_leaves_out_columns_whose_worth_is_not_known():
    weights = np.array([[0.1, 0.2, 0.7], [0.1, 0.2, 0.7]])
    worth = np.array([[1.0, 2.0, np.nan], [2.0, 1.0, 3.0]])
    np.testing.assert_allclose(agreement(weights, worth), [1.0, 1 / 3])


def test_entropy_and_shares_by_hand():
    looks = np.array([[0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]])
    entropy, special, first = spread(Additive(np.zeros((2, 4))), looks, special=(3, 3))
    assert entropy.value == pytest.approx((math.log(2) / math.log(4) + 1) / 2)
    assert (special.value, special.reference) == pytest.approx((0.125, 0.25))
    assert (first.value, first.reference) == pytest.approx((0.375, 0.25))
    assert (
        spread(Additive(np.zeros((1, 1))), np.ones((1, 1)), ())[0].value is None
    )  # one column: nothing to spread over


def test_nothing_is_not_said_to_be_less_than_nothing():
    looks = np.array([[0.0, 1.0, 0.0, 0.0]])  # all of it on one: minus the sum of 1 · log 1 is a negative zero
    found = spread(Additive(np.zeros((1, 4))), looks, ())[0]
    assert math.copysign(1, found.value) == 1
    assert "is 0% of the maximum" in found.sentence
    assert "(0.00 nats)" in sentences.made_uniform(Additive(np.zeros((1, 4))), -1e-9).sentence


def test_leave_one_out_is_exact(truth):
    subject = Additive(truth, never=(23,))
    costs = leave_one_out(subject, [1, 4])
    np.testing.assert_allclose(costs[:, :23], truth[[1, 4], :23], atol=1e-5)
    assert np.isnan(costs[:, 23]).all()


def test_removal_of_one_is_exact(truth):
    subject = Additive(truth, never=(23,))
    found = removal(subject, truth, range(6), k=1)
    hideable = np.sort(truth[:, :23], axis=1)
    assert found.highest == pytest.approx(hideable[:, -1].mean(), abs=1e-5)
    assert found.others == pytest.approx(hideable[:, :-1].mean(), abs=1e-5)


def test_removal_of_several_hides_each_rows_own_and_draws_from_the_others(truth):
    subject = Additive(truth, never=(23,))
    found = removal(subject, truth, range(6), draws=100)
    assert found.k == 2
    hideable = np.sort(truth[:, :23], axis=1)
    assert found.highest == pytest.approx(hideable[:, -2:].sum(axis=1).mean(), abs=1e-5)
    assert found.others == pytest.approx(2 * hideable[:, :-2].mean(), rel=0.05)
    assert removal(subject, truth, range(6), seed=3) == removal(subject, truth, range(6), seed=3)
    assert removal(subject, truth, range(6), seed=3) != removal(subject, truth, range(6), seed=4)
    assert removal(subject, truth, range(6), k=12) is None  # 11 others are not 12
    with pytest.raises(UserError, match="k is 0"):
        removal(subject, truth, range(6), k=0)


def test_equal_weights_have_no_favourite_place():
    truth = np.zeros((1, 20))
    truth[0, :5] = 1.0  # a sort that keeps the order would take these
    subject = Additive(truth)
    costs = [removal(subject, np.zeros((1, 20)), [0], k=1, seed=seed).highest for seed in range(40)]
    assert 0 < np.mean(costs) < 0.6


def test_long_outputs_are_measured_at_evenly_chosen_rows():
    assert chosen_rows(5) == [0, 1, 2, 3, 4]
    rows = chosen_rows(1000)
    assert len(set(rows)) == 64
    assert (rows[0], rows[-1]) == (0, 999)
    assert {b - a for a, b in itertools.pairwise(rows)} <= {15, 16}
    truth = np.random.default_rng(0).uniform(size=(300, 12))
    belief = believe(Additive(truth), truth, heads=False)
    assert belief.rows == 64
    assert "64 of 300 rows" in belief.about


def findings(*arguments, **options):
    return {one.key: one for one in believe(*arguments, heads=False, **options).findings}


def test_the_panel_of_a_map_that_is_the_truth_and_of_one_that_is_not(truth):
    subject = Additive(truth, attention_matters=2.0)
    right, wrong = findings(subject, truth), findings(subject, truth[:, ::-1].copy())
    for key in ("leave_one_out", "gradient"):
        assert right[key].value == pytest.approx(1.0)
        assert abs(wrong[key].value) < 0.3
    assert right["removal"].value > 1.5 * right["removal"].reference
    assert wrong["removal"].value < 1.5 * wrong["removal"].reference
    # Looking at the first column reads 1, at all alike 1/24; the other attention is left as it is.
    assert right["uniform"].value == pytest.approx(2.0 * (1 - 1 / 24), rel=1e-3)
    weight = math.exp(20) / (math.exp(20) + 23)  # what the other attention (of size 1: scaled by 1) reads
    assert findings(subject, truth, names=["other"])["uniform"].value == pytest.approx(weight - 1 / 24, rel=1e-3)
    with pytest.raises(ValueError, match="no attention named 'decoder' ran; there is looks, other"):
        findings(subject, truth, names=["decoder"])


def test_every_finding_is_a_sentence_about_attention_that_gives_no_reasons(truth):
    belief = believe(Additive(truth, never=(23,)), truth)
    assert [one.key for one in belief.findings] == [
        "entropy",
        "special",
        "first",
        "leave_one_out",
        "gradient",
        "removal",
        "uniform",
    ]
    for one in belief.findings:
        assert one.sentence[0].isupper() or one.sentence[0].isdigit()
        assert one.sentence.endswith(".")
        assert "nan" not in one.sentence
        assert "attention" in one.sentence.lower()
        assert not any(word in one.sentence.lower() for word in ("because", "trust", "explains", "reason"))
    assert [one.cost for one in belief.heads] == sorted((one.cost for one in belief.heads), reverse=True)
    assert {one.name for one in belief.heads} == {"looks", "other"}


def test_a_map_may_be_records_whose_mean_is_meant(truth):
    columns = Tokens(tuple("abcdefghijklmnopqrstuvwx"), special=(22, 23))
    records = [Record("looks", 0, head, Slots(6), columns, truth * 2 * head) for head in range(2)]
    belief = believe(Additive(truth), records, heads=False)
    plain = findings(Additive(truth), truth, special=(22, 23))
    assert {one.key: one for one in belief.findings} == plain
    assert belief.about == "looks, mean of 2 heads, every row measured"
    shown = Explanation("t", "translate", "", "", tuple(records), (Stack("s", "cross", ("looks",)),), belief=belief)
    again = Explanation.from_json(json.loads(json.dumps(shown.to_json(), allow_nan=False)))
    assert again.belief == belief


def test_too_few_columns_are_said_not_guessed():
    found = findings(Additive(np.ones((2, 1))), np.ones((2, 1)))
    assert (found["removal"].value, found["leave_one_out"].value, found["entropy"].value) == (None, None, None)
    found = findings(Additive(np.ones((2, 3)), never=(0, 1, 2)), np.ones((2, 3)))
    assert found["removal"].value is None


def test_maps_that_do_not_fit_are_refused(truth):
    with pytest.raises(UserError, match=r"the map has shape \(5, 24\); there are 6 rows"):
        believe(Additive(truth), truth[:5])
    with pytest.raises(UserError, match="no records"):
        believe(Additive(truth), [])
    with pytest.raises(UserError, match="no row with any weight"):
        believe(Additive(truth), np.zeros((6, 24)))


def test_rows_move_down_and_leave_nothing_behind():
    weights = np.array([[1.0, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(moved(weights, 0), weights)
    np.testing.assert_array_equal(moved(weights, 1), [[np.nan, np.nan], [1, 2], [3, 4]])
    np.testing.assert_array_equal(moved(weights, -1), [[3, 4], [5, 6], [np.nan, np.nan]])
    np.testing.assert_array_equal(moved(weights, 5), np.full((3, 2), np.nan))


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_the_shift_of_a_map_that_was_moved_is_found_and_mended(shift, truth):
    subjects = [Additive(truth), Additive(truth[:, ::-1].copy())]
    off = {id(one): np.nan_to_num(moved(one.truth.numpy(), -shift)) for one in subjects}
    assert choose_shift(subjects, lambda one: off[id(one)]) == shift
    belief = {one.key: one for one in believe(subjects[0], off[id(subjects[0])], shift=shift, heads=False).findings}
    assert belief["leave_one_out"].value == pytest.approx(1.0)


def test_maps_are_not_shifted_without_a_clear_reason(truth):
    random = np.random.default_rng(2)
    subjects = [Additive(random.permuted(truth, axis=1)) for _ in range(3)]
    for _ in range(10):
        noise = {id(one): random.uniform(size=truth.shape) for one in subjects}
        assert choose_shift(subjects, lambda one, noise=noise: noise[id(one)]) == 0
    # A little better when moved, in every row: not enough to show something else than what was computed.
    values = np.tile(np.arange(24.0), (6, 1))
    values[::2, [0, 1]] = values[::2, [1, 0]]
    late = np.nan_to_num(moved(values, -1))
    assert choose_shift([Additive(values), Additive(values)], lambda one: late) == 0
    # Four rows that agree much better when moved are still only four rows.
    early = np.nan_to_num(moved(truth, 1))
    assert choose_shift([Additive(truth)], lambda one: early) == 0
    assert choose_shift([Additive(truth), Additive(truth)], lambda one: early) == -1
    assert choose_shift([Additive(truth[:2])], lambda one: truth[:2]) == 0  # two rows: none that every shift has
    assert choose_shift([], lambda one: truth) == 0


def test_one_scale_of_words_for_agreement_with_its_interval_of_chance():
    subject = Additive(np.zeros((2, 3)))

    def kind(tau, chance=0.1):
        return sentences.gradient(subject, tau, chance).sentence.split(" gives ")[1].split(":")[0]

    assert [kind(tau) for tau in (0.7, 0.31, 0.2, 0.19)] == [
        "strong agreement",
        "moderate agreement",
        "weak agreement",
        "weak agreement",
    ]
    assert [kind(tau, 0.25) for tau in (0.2, 0.19, -0.2)] == ["no clear agreement"] * 3
    assert kind(-0.4) == "moderate disagreement"
    assert "within ±0.25 in 95 of 100 cases" in sentences.gradient(subject, 0.2, 0.25).sentence


def test_random_orders_are_within_the_interval_of_chance_19_times_in_20():
    generator = np.random.default_rng(0)
    weights, worth = generator.random((2, 400, 4, 12))
    inside = [abs(agreement(*pair).mean()) <= chance_range(*pair) for pair in zip(weights, worth, strict=True)]
    assert 0.92 < np.mean(inside) < 0.98
    assert chance_range(np.ones((1, 3)), np.ones((1, 3))) == 1.0  # nothing can be ranked
