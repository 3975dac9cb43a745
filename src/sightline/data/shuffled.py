"""Batches of corpora so large that even an order of their rows is too much for memory.

The rows are grouped by their lengths once, in a file. The order of a group in an epoch is never made: where a row goes
is computed when it is asked for, by a permutation that is a formula with a key (the swap-or-not shuffle of Hoang,
Morris and Rogaway 2012, which takes any number of rows). What is kept grows with the number of different lengths and of
batches, not of rows.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sightline.data.scratch import scratch_array

CHUNK = 1 << 17  # rows looked at together
ROUNDS = 24  # after it, one place in sixteen million has never been swapped
_ODD, _MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_STEPS = [np.uint64(number * int(_ODD) % 2**64) for number in range(1, ROUNDS + 1)]
_HALF = np.uint64(32)


class Groups(NamedTuple):
    """Rows of the same lengths, in the order of `batches.sort_key`, and which rows they are."""

    source: np.ndarray  # of each group
    target: np.ndarray
    ends: np.ndarray  # behind its last place
    rows: np.ndarray  # of all groups, one behind the other


Sides = tuple[np.ndarray, np.ndarray]


def group_rows(
    count: int, read: Callable[[int, int], Sides], key: Callable[[np.ndarray, np.ndarray], np.ndarray]
) -> Groups:
    """Group all rows. ``read(start, end)`` gives the two lengths of some, ``key`` what lengths are sorted by."""
    found: dict[int, int] = {}
    for start in range(0, count, CHUNK):
        different, counts = np.unique(_joined(*read(start, min(start + CHUNK, count))), return_counts=True)
        for one, times in zip(different.tolist(), counts.tolist(), strict=True):
            found[one] = found.get(one, 0) + times
    joined = np.array(sorted(found), np.uint64)
    source, target = (joined >> _HALF).astype(np.int64), (joined & np.uint64(2**32 - 1)).astype(np.int64)
    order = np.argsort(key(source, target), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    sizes = np.array([found[one] for one in joined[order].tolist()], np.int64)
    ends = np.cumsum(sizes)
    rows, free = scratch_array(count, np.uint32 if count < 2**32 else np.int64), ends - sizes
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


class Rows:
    """The rows of a batch, computed when they are needed."""

    __slots__ = ("_end", "_epoch", "_order", "_start")

    def __init__(self, order: "Order", epoch: int, start: int, end: int) -> None:
        self._order, self._epoch, self._start, self._end = order, epoch, start, end

    def __len__(self) -> int:
        return self._end - self._start

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self._order.rows(self._start, self._end, self._epoch).astype(dtype or np.int64, copy=False)

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        return self.__array__().tolist()


class Order:
    """The order of all rows: groups one behind the other, each shuffled anew in every epoch."""

    def __init__(self, groups: Groups, seed: int, shuffle: bool) -> None:
        self.groups, self.seed, self.shuffle = groups, seed, shuffle

    def rows(self, start: int, end: int, epoch: int) -> np.ndarray:
        """The rows at these places."""
        places = np.arange(start, end)
        if self.shuffle:
            ends = self.groups.ends
            group = np.searchsorted(ends, places, side="right")
            first = np.where(group > 0, ends[group - 1], 0)
            key = np.random.SeedSequence([self.seed, epoch]).generate_state(1, np.uint64)
            keys = _drawn(group.astype(np.uint64) * _ODD ^ key)
            places = first + permuted(places - first, ends[group] - first, keys)
        return np.asarray(self.groups.rows[places], np.int64)

    def batches(self, starts: list[int], epoch: int) -> list[Rows]:
        return [Rows(self, epoch, start, end) for start, end in itertools.pairwise(starts)]


def cut(groups: Groups, tokens: int, most: int | None) -> np.ndarray:
    """As `batches._cut`, of groups."""
    widths, ends = np.maximum(groups.source, groups.target).tolist(), groups.ends.tolist()
    starts, row, group, count = [0], 0, 0, ends[-1]
    while row < count:
        while ends[group] <= row:
            group += 1
        fitting = max(1, tokens // widths[group])
        row = min(count, row + (fitting if most is None else min(fitting, most)))
        starts.append(row)
    return np.array(starts)


def padding_share(groups: Groups, starts: np.ndarray) -> float:
    """As `batches._padding_share`, of groups."""
    pieces = np.unique(np.concatenate([starts[:-1], groups.ends[:-1]]))  # of one group and one batch each
    group = np.searchsorted(groups.ends, pieces, side="right")
    first, rows = np.searchsorted(pieces, starts[:-1]), np.diff(starts)
    sizes = np.diff(groups.ends, prepend=0)
    sides = groups.source, groups.target
    places = sum(int((np.maximum.reduceat(side[group], first) * rows).sum()) for side in sides)
    return 1 - float(sum((side * sizes).sum() for side in sides)) / places
