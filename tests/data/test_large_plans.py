"""Plans of corpora so large that no order of their rows is held in memory, and hashes counted on the disk."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data import batches, splitting, store
from sightline.data import batches as shuffled
from sightline.data.batches import BatchPlan
from sightline.data.disk import hash_of
from sightline.data.store import Corpus, write_corpus
from sightline.errors import UserError


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(1, 40), max_size=300), run=st.integers(1, 30), spread=st.booleans())
def test_different_hashes_are_found(values, run, spread):
    values = np.array([hash_of(str(value)) for value in values] if spread else values, np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitting, "_CHUNK", run)
        assert splitting.count_different(values) == len(set(values.tolist()))
        np.testing.assert_array_equal(splitting.different_keys(values), np.unique(values))
        first = np.concatenate([np.zeros(0, np.int64), *(rows for _, rows in splitting._ranges(values))])
    np.testing.assert_array_equal(first, np.unique(values, return_index=True)[1])


def lengths_of(count, seed=0):
    random = np.random.default_rng(seed)
    source = np.clip(random.lognormal(2.5, 0.6, count), 1, 80).astype(np.int64)
    return source, np.clip(source * random.lognormal(0, 0.2, count), 1, 90).astype(np.int64)


def large(monkeypatch, *arguments, chunk=1000, **options):
    monkeypatch.setattr(batches, "LARGE", 0)
    monkeypatch.setattr(shuffled, "CHUNK", chunk)
    return BatchPlan(*arguments, **options)


@pytest.mark.parametrize("options", [{"tokens": 700}, {"tokens": 300, "rows": 8}, {"tokens": 700, "shuffle": False}])
@pytest.mark.parametrize("texts", [False, True])
def test_a_large_plan_has_the_batches_of_a_small_one(monkeypatch, options, texts):
    source, target = lengths_of(400)
    target = None if texts else target
    small = BatchPlan(source, target, seed=3, **options)
    plan = large(monkeypatch, source, target, seed=3, **options)
    assert len(plan) == len(small)
    assert plan.padding_share == pytest.approx(small.padding_share, abs=1e-12)
    both = [[batch.tolist() for batch in one.epoch(2)] for one in (small, plan)]
    # The same lengths in the same batches; other rows of these lengths.
    in_batches = [sorted(tuple(sorted(source[batch].tolist())) for batch in one) for one in both]
    assert in_batches[0] == in_batches[1]
    assert sorted(row for batch in both[1] for row in batch) == list(range(400))
    if options.get("shuffle", True):
        assert both[0] != both[1]
        assert both[1] == [batch.tolist() for batch in plan.epoch(2)]
        again = large(monkeypatch, source, target, seed=3, chunk=777, **options)
        assert both[1] == [batch.tolist() for batch in again.epoch(2)]  # a new process goes on with the same
        assert {tuple(sorted(batch)) for batch in both[1]} != {tuple(sorted(batch.tolist())) for batch in plan.epoch(3)}
        other = large(monkeypatch, source, target, seed=4, **options)
        assert both[1] != [batch.tolist() for batch in other.epoch(2)]
    else:
        assert both[0] == both[1]


def test_rows_are_used_as_arrays_are(monkeypatch):
    source, target = lengths_of(500)
    rows = large(monkeypatch, source, target, tokens=400).epoch(0)[0]
    assert len(rows) == len(rows.tolist()) == len(list(rows))
    assert source[rows].tolist() == source[rows.tolist()].tolist()


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 300), min_size=1, max_size=5), key=st.integers(0, 2**64 - 1))
def test_a_permutation_takes_every_place_once(sizes, key):
    places = np.concatenate([np.arange(size) for size in sizes])
    keys = np.repeat(np.arange(len(sizes), dtype=np.uint64) + np.uint64(key // 2), sizes)
    found = shuffled.permuted(places, np.repeat(sizes, sizes), keys)
    for part, size in zip(np.split(found, np.cumsum(sizes)[:-1]), sizes, strict=True):
        assert sorted(part.tolist()) == list(range(size))


@pytest.mark.parametrize("size", [2, 3, 4, 100])
def test_permutations_are_even(size):
    """Over many keys, each place comes to each place as often, and neighbours do not stay together."""
    count = 24_000 // size
    places = np.tile(np.arange(size), count)
    keys = shuffled._drawn(np.repeat(np.arange(count, dtype=np.uint64), size))
    found = shuffled.permuted(places, np.full(len(places), size), keys).reshape(count, size)
    seen = np.stack([np.bincount(found[:, place], minlength=size) for place in range(size)])
    expected = count / size
    assert ((seen - expected) ** 2 / expected).sum() < (size - 1) ** 2 + 6 * np.sqrt(2) * size  # chi squared
    apart = np.abs(np.diff(found, axis=1))
    assert apart.mean() == pytest.approx((size + 1) / 3, rel=0.1)


FLAT = """
import numpy as np
from sightline.data.batches import BatchPlan
from sightline.data.disk import scratch_array
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
rows = 2_000_000
lengths = scratch_array(rows, np.int32), scratch_array(rows, np.int32)
random = np.random.default_rng(0)
for side in lengths:
    for start in range(0, rows, 100_000):
        side[start : start + 100_000] = random.integers(1, 60, 100_000)
before = anonymous()
plan = BatchPlan(*lengths, tokens=4096)
seen = sum(len(rows.tolist()) for rows in plan.epoch(1)[:150])
print(seen, anonymous() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RssAnon is Linux")
def test_a_plan_of_millions_is_flat():
    done = subprocess.run([sys.executable, "-c", FLAT], capture_output=True, text=True, check=True)
    seen, grown = map(float, done.stdout.split())
    assert seen > 5_000
    assert grown < 32  # megabytes; an order of eight bytes a row would be 16, and sorting takes several


def test_lengths_and_offsets_of_a_large_corpus(tmp_path, monkeypatch):
    made = write_corpus(tmp_path / "corpus", [([5] * (row % 7), [6] * (row % 5)) for row in range(100)])
    expected = [side.tolist() for side in made.lengths()]
    monkeypatch.setattr(store, "_HELD", 10)
    monkeypatch.setattr(store, "_CHUNK", 16)
    corpus = Corpus.open(tmp_path / "corpus")
    assert [side.tolist() for side in corpus.lengths()] == expected
    offsets = tmp_path / "corpus" / "source_offsets.npy"
    content = bytearray(offsets.read_bytes())
    content[128 + 8 * 32 : 128 + 8 * 33] = (0).to_bytes(8, "little")
    offsets.write_bytes(bytes(content))  # where two parts meet
    with pytest.raises(UserError, match="does not fit"):
        Corpus.open(tmp_path / "corpus")
