"""Every pair once in an epoch, under the budget, in an order that the seed and the epoch alone decide."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.batches import BatchPlan

pytestmark = pytest.mark.fast


def plausible_lengths(count, seed=0):
    """As of sentences and their translations: log-normal, mean 24, the other side 1.1 times that, with noise."""
    random = np.random.default_rng(seed)
    source = np.clip(random.lognormal(3.0, 0.6, count), 1, 200).astype(np.int64)
    target = np.clip(source * 1.1 * random.lognormal(0, 0.15, count), 1, 220).astype(np.int64)
    return source, target


LENGTHS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=60)


@settings(max_examples=200, deadline=None)
@given(lengths=LENGTHS, tokens=st.integers(1, 120), seed=st.integers(0, 5), shuffle=st.booleans())
def test_every_row_once_and_the_budget_kept(lengths, tokens, seed, shuffle):
    source, target = (np.array([pair[side] for pair in lengths], np.int64) for side in (0, 1))
    plan = BatchPlan(source, target, tokens, seed, shuffle)
    padding = real = 0
    for epoch in (0, 3):
        batches = plan.epoch(epoch)
        assert len(batches) == len(plan)
        assert sorted(row for batch in batches for row in batch.tolist()) == list(range(len(lengths)))
        for batch in batches:
            widths = int(source[batch].max()) + 1, int(target[batch].max()) + 2
            assert len(batch) == 1 or max(widths) * len(batch) <= tokens
            places = sum(widths) * len(batch)
            kept = int((source[batch] + 1 + target[batch] + 2).sum())
            padding, real = padding + places - kept, real + kept
    assert plan.padding_share == pytest.approx(padding / (padding + real) if lengths else 0)


def test_the_epoch_decides():
    lengths = plausible_lengths(3000)
    plan, again = (BatchPlan(*lengths, tokens=1000, seed=5) for _ in range(2))
    other = BatchPlan(*lengths, tokens=1000, seed=6)
    as_lists = lambda batches: [batch.tolist() for batch in batches]  # noqa: E731
    plan.epoch(0)
    seventh = as_lists(plan.epoch(7))
    assert seventh == as_lists(again.epoch(7))
    assert seventh != as_lists(plan.epoch(8))
    assert seventh != as_lists(other.epoch(7))
    assert {tuple(sorted(batch)) for batch in seventh} != {tuple(sorted(batch)) for batch in as_lists(plan.epoch(8))}


def test_without_shuffling_the_longest_come_first():
    source, target = plausible_lengths(500)
    plan = BatchPlan(source, target, tokens=1000, seed=5, shuffle=False)
    widths = [max(source[batch].max() + 1, target[batch].max() + 2) for batch in plan.epoch(0)]
    assert widths == sorted(widths, reverse=True)
    assert all(np.array_equal(first, second) for first, second in zip(plan.epoch(0), plan.epoch(1), strict=True))


def test_shuffled_batches_come_in_no_order_of_length():
    source, target = plausible_lengths(5000)
    batches = BatchPlan(source, target, tokens=1000, seed=0).epoch(0)
    widths = [float(source[batch].mean()) for batch in batches]
    assert abs(np.corrcoef(widths, range(len(widths)))[0, 1]) < 0.3


def test_an_over_long_pair_is_alone():
    plan = BatchPlan(np.array([3, 500, 3]), np.array([3, 3, 3]), tokens=20, seed=0)
    assert sorted(map(len, plan.epoch(0))) == [1, 2]


@pytest.mark.parametrize(("count", "most"), [(10_000, 0.09), (100_000, 0.03)])
def test_little_padding(count, most):
    plan = BatchPlan(*plausible_lengths(count), tokens=4096, seed=0)
    assert plan.padding_share < most


def test_a_million_pairs_are_planned_in_two_seconds():
    lengths = plausible_lengths(1_000_000)
    begin = time.process_time()
    plan = BatchPlan(*lengths, tokens=4096, seed=0)
    planned = time.process_time()
    batches = plan.epoch(3)
    ready = time.process_time()
    assert sum(map(len, batches)) == 1_000_000
    assert planned - begin < 2
    assert ready - planned < 2


@pytest.mark.parametrize("wrong", [{"tokens": 0}, {"seed": -1}, {"lengths_target": np.array([1, 2])}])
def test_wrong_use(wrong):
    right = {"lengths_source": np.array([1]), "lengths_target": np.array([1]), "tokens": 9, "seed": 0}
    with pytest.raises(ValueError):
        BatchPlan(**{**right, **wrong})
