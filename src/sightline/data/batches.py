"""Batches of pairs, or of texts, of like length: little padding, a budget of tokens, an order that can be resumed.

Pairs are sorted by the longer of their sides and then by the other, and cut where the budget is full. Which lengths
share a batch is therefore the same in every epoch. Which of the pairs of those lengths share it, and the order of the
batches, is drawn from the seed and the epoch alone: training that stopped in epoch 7 asks for epoch 7, and nothing is
replayed. (NumPy promises the same draws for one version of NumPy, not for all of them.)

Above `LARGE` rows even an order of the rows is too much for memory. The rows are grouped by their lengths once, in a
file, and where a row goes in an epoch is computed when the row is needed, by a permutation that is a formula with a key
(the swap-or-not shuffle of Hoang, Morris and Rogaway 2012, which takes any number of rows). What is kept grows with the
number of different lengths and of batches, not of rows. The batches have the same widths as with an order in memory,
but other rows of the same lengths come together.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sightline.data.disk import scratch_array

SOURCE_EXTRA, TARGET_EXTRA = 1, 2  # END behind a source; START before and END behind a target
LARGE = 500_000  # rows; an order of more is not held in memory
CHUNK = 1 << 17  # rows looked at together
ROUNDS = 24  # after it, one place in sixteen million has never been swapped
_ODD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_STEPS = [np.uint64(number * int(_ODD) % 2**64) for number in range(1, ROUNDS + 1)]
_HALF = np.uint64(32)


class BatchPlan:
    """Which rows are a batch, for every epoch.

    Args:
        lengths_source, lengths_target: tokens of each pair, as `Corpus.lengths` counts them. Without targets the rows
            are single texts that have their start and end already.
        tokens: the budget: rows of a batch times the width of its wider side, padding and added tokens counted. A pair
            that is alone longer than that is a batch of its own.
        rows: the most rows of a batch: where the loss is of rows and not of words, a batch of very many short texts
            would be few, large steps.
        shuffle: without it every epoch is the same, the longest pairs first: what does not fit into memory fails at
            once.
    """

    def __init__(
        self,
        lengths_source: np.ndarray,
        lengths_target: np.ndarray | None,
        tokens: int,
        seed: int = 0,
        shuffle: bool = True,
        rows: int | None = None,
    ) -> None:
        if (lengths_target is not None and lengths_source.shape != lengths_target.shape) or lengths_source.ndim != 1:
            shapes = lengths_source.shape, getattr(lengths_target, "shape", None)
            raise ValueError(f"lengths are one number for each pair, found {shapes[0]} and {shapes[1]}")
        if tokens < 1 or seed < 0 or (rows is not None and rows < 1):
            raise ValueError(f"tokens and rows are at least 1 and seed at least 0, found {tokens}, {rows} and {seed}")
        self.tokens, self.seed, self.shuffle = tokens, seed, shuffle

        def widths(start: int, end: int) -> Sides:
            return _widths(lengths_source[start:end], None if lengths_target is None else lengths_target[start:end])

        self._large = len(lengths_source) > LARGE
        self._groups = _group_rows(len(lengths_source), widths, self._large)
        self._starts = _cut(self._groups, tokens, rows)
        self.padding_share = _padding_share(self._groups, self._starts)

    def __len__(self) -> int:
        """Batches in an epoch; the same for all of them."""
        return len(self._starts) - 1

    def epoch(self, epoch: int) -> "Sequence[BatchRows]":
        """The rows of each batch of this epoch, in order: arrays, or of a large corpus `LazyRows` that become such."""
        random, pieces = np.random.default_rng([self.seed, epoch]), itertools.pairwise(self._starts.tolist())
        batches: Sequence[BatchRows]
        if self._large:
            batches = [LazyRows(self, epoch, start, end) for start, end in pieces]
        else:
            order = self._shuffled(random) if self.shuffle else self._groups.rows
            batches = [order[start:end] for start, end in pieces]
        return [batches[index] for index in random.permutation(len(batches))] if self.shuffle else batches

    def _shuffled(self, random: np.random.Generator) -> np.ndarray:
        """All rows, group by group; those of a group in the order that was drawn."""
        count = len(self._groups.ends)
        groups = np.empty(len(self._groups.rows), np.min_scalar_type(max(0, count - 1)))  # small numbers sort faster
        groups[self._groups.rows] = np.repeat(np.arange(count), np.diff(self._groups.ends, prepend=0))
        drawn = random.permutation(len(groups))
        return drawn[np.argsort(groups[drawn], kind="stable")]

    def rows(self, start: int, end: int, epoch: int) -> np.ndarray:
        """The rows at these places of the order of an epoch of a large corpus."""
        places = np.arange(start, end)
        if self.shuffle:
            ends = self._groups.ends
            group = np.searchsorted(ends, places, side="right")
            first = np.where(group > 0, ends[group - 1], 0)
            key = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)
            keys = _drawn(group.astype(np.uint64) * _ODD ^ key)
            places = first + permuted(places - first, ends[group] - first, keys)
        return np.asarray(self._groups.rows[places], np.int64)


class LazyRows:
    """The rows of a batch, computed when they are needed."""

    __slots__ = ("_end", "_epoch", "_plan", "_start")

    def __init__(self, plan: BatchPlan, epoch: int, start: int, end: int) -> None:
        self._plan, self._epoch, self._start, self._end = plan, epoch, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._plan.rows(self._start, self._end, self._epoch).astype(dtype or np.int64, copy=False)

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        return self.__array__().tolist()


BatchRows = np.ndarray | LazyRows


class Groups(NamedTuple):
    """Rows of the same lengths, in the order of `_sort_key`, and which rows they are."""

    source: np.ndarray  # of each group
    target: np.ndarray
    ends: np.ndarray  # behind its last place
    rows: np.ndarray  # of all groups, one behind the other


Sides = tuple[np.ndarray, np.ndarray]


def _widths(source: np.ndarray, target: np.ndarray | None) -> Sides:
    """What rows take in a batch, with the tokens that are added."""
    if target is None:
        widths = np.maximum(source.astype(np.int64), 1)
        return widths, widths
    return source.astype(np.int64) + SOURCE_EXTRA, target.astype(np.int64) + TARGET_EXTRA


def _group_rows(count: int, read: Callable[[int, int], Sides], on_disk: bool) -> Groups:
    """Group all rows by their widths, of which ``read(start, end)`` gives some."""
    counts: dict[int, int] = {}
    for start in range(0, count, CHUNK):
        different, times = np.unique(_joined(*read(start, min(start + CHUNK, count))), return_counts=True)
        for one, many in zip(different.tolist(), times.tolist(), strict=True):
            counts[one] = counts.get(one, 0) + many
    joined = np.array(sorted(counts), np.uint64)
    source, target = (joined >> _HALF).astype(np.int64), (joined & np.uint64(2**32 - 1)).astype(np.int64)
    order = np.argsort(_sort_key(source, target), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    sizes = np.array([counts[one] for one in joined[order].tolist()], np.int64)
    ends = np.cumsum(sizes)
    free = ends - sizes
    rows = scratch_array(count, np.uint32 if count < 2**32 else np.int64) if on_disk else np.empty(count, np.int64)
    for start in range(0, count, CHUNK):
        groups = place[np.searchsorted(joined, _joined(*read(start, min(start + CHUNK, count))))]
        within = np.argsort(groups, kind="stable")
        groups = groups[within]
        first = np.flatnonzero(np.diff(groups, prepend=-1))
        some, times = groups[first], np.diff(np.append(first, len(groups)))
        rows[free[groups] + np.arange(len(groups)) - np.repeat(first, times)] = within + start
        free[some] += times
    return Groups(source[order], target[order], ends, rows)


def _joined(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    return (source.astype(np.uint64) << _HALF) | target.astype(np.uint64)


def _sort_key(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """One number to sort by: the wider side, longest first, then the other side, which goes up and down in turn.

    In turn, so that a batch at the border of two widths does not hold the shortest and the longest other sides at once.
    """
    wide, narrow = np.maximum(source, target), np.minimum(source, target)
    base = int(wide.max(initial=0)) + 1
    second = np.where(wide % 2 == 0, narrow, base - 1 - narrow)
    # Pairs whose source is the wider are kept apart from those whose target is: their narrow sides are different ones.
    side = np.where(wide % 2 == 0, source > target, source <= target)
    return ((base - wide) * 2 + side) * base + second


def _cut(groups: Groups, tokens: int, most: int | None) -> np.ndarray:
    """Where batches begin, and the last one ends. Widths never grow: the first row of a batch is its widest."""
    widths, ends = np.maximum(groups.source, groups.target).tolist(), groups.ends.tolist()
    starts, row, group, count = [0], 0, 0, len(groups.rows)
    while row < count:
        while ends[group] <= row:
            group += 1
        fitting = max(1, tokens // widths[group])
        row = min(count, row + (fitting if most is None else min(fitting, most)))
        starts.append(row)
    return np.array(starts)


def _padding_share(groups: Groups, starts: np.ndarray) -> float:
    """The share of all places, on both sides, that hold padding."""
    if not len(groups.rows):
        return 0.0
    pieces = np.unique(np.concatenate([starts[:-1], groups.ends[:-1]]))  # of one group and one batch each
    group = np.searchsorted(groups.ends, pieces, side="right")
    first, rows = np.searchsorted(pieces, starts[:-1]), np.diff(starts)
    sizes = np.diff(groups.ends, prepend=0)
    sides = groups.source, groups.target
    places = sum(int((np.maximum.reduceat(side[group], first) * rows).sum()) for side in sides)
    return 1 - float(sum((side * sizes).sum() for side in sides)) / places


def permuted(places: np.ndarray, sizes: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where each place goes in a permutation of ``sizes`` places that its key decides.

    Each round pairs the places up (x with k - x) and swaps each pair or not, by a bit drawn for the pair.
    """
    at, sizes = places.astype(np.uint64), sizes.astype(np.uint64)
    for step in _STEPS:
        drawn = _drawn(keys + step)
        other = (drawn % sizes + sizes - at) % sizes
        pair = _drawn(np.maximum(at, other) ^ _drawn(drawn))
        at = np.where(pair >> np.uint64(63), other, at)
    return at.astype(np.int64)


def _drawn(values: np.ndarray) -> np.ndarray:
    """A number for each number, in which every bit depends on every bit."""
    values = (values ^ (values >> _HALF)) * _MIX
    values = (values ^ (values >> _HALF)) * _MIX
    return values ^ (values >> _HALF)


def drawn_share(start: int, end: int, share: float, seed: int) -> np.ndarray:
    """Which of these rows belong to a share of all that is drawn by the seed."""
    key = np.random.SeedSequence([seed, 1]).generate_state(1, np.uint64)
    return _drawn(_drawn(np.arange(start, end, dtype=np.uint64) * _ODD ^ key)) < np.uint64(share * 2**63) * np.uint64(2)
