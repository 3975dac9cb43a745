"""Batches of pairs, or of texts, of like length: little padding, a budget of tokens, an order that can be resumed.

Pairs are sorted by the longer of their sides and then by the other, and cut where the budget is full. Which lengths
share a batch is therefore the same in every epoch; which of the pairs of those lengths, and the order of the batches,
is drawn anew from the seed and the epoch alone. Training that stopped in epoch 7 asks for epoch 7 and goes on: there is
nothing to play back. (NumPy promises the same draws for one version of NumPy, not for all of them.)

Above `LARGE` rows the order is a formula instead of an array (`sightline.data.shuffled`): the batches have the same
widths, memory stays flat, and other rows of the same lengths come together than an array would have drawn.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from sightline.data.shuffled import Groups, Order, Rows, cut, group_rows, padding_share
from sightline.vocabulary import END, PADDING, START

TokenPair = tuple[np.ndarray, np.ndarray]
BatchRows = np.ndarray | Rows  # of a large corpus they are computed when they are needed
SOURCE_EXTRA, TARGET_EXTRA = 1, 2  # END behind a source; START before and END behind a target
LARGE = 500_000  # rows; an order of more is not held in memory


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
        self._order: Order | None = None
        if len(lengths_source) > LARGE:
            groups = _grouped(lengths_source, lengths_target)
            self._order = Order(groups, seed, shuffle)
            self._starts = cut(groups, tokens, rows)
            self.padding_share = padding_share(groups, self._starts)
            return
        source, target = _widths(lengths_source, lengths_target)
        self._key = _sort_key(source, target)
        order = np.argsort(self._key, kind="stable")
        self._starts = _cut(np.maximum(source, target)[order], tokens, rows)
        self.padding_share = _padding_share(source[order], target[order], self._starts)

    def __len__(self) -> int:
        """Batches in an epoch; the same for all of them."""
        return len(self._starts) - 1

    def epoch(self, epoch: int) -> Sequence[BatchRows]:
        """The rows of each batch of this epoch, in order: arrays, or of a large corpus `Rows` that become such."""
        if self._order is not None:
            large = self._order.batches(self._starts.tolist(), epoch)
            if not self.shuffle:
                return large
            return [large[index] for index in np.random.default_rng([self.seed, epoch]).permutation(len(large))]
        if not self.shuffle:
            return self._slices(np.argsort(self._key, kind="stable"))
        random = np.random.default_rng([self.seed, epoch])
        drawn = random.permutation(len(self._key))
        batches = self._slices(drawn[np.argsort(self._key[drawn], kind="stable")])  # equal lengths stay as drawn
        return [batches[index] for index in random.permutation(len(batches))]

    def _slices(self, order: np.ndarray) -> list[np.ndarray]:
        starts = self._starts.tolist()
        return [order[start:end] for start, end in itertools.pairwise(starts)]


def _widths(source: np.ndarray, target: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """What rows take in a batch, with the tokens that are added."""
    if target is None:
        widths = np.maximum(source.astype(np.int64), 1)
        return widths, widths
    return source.astype(np.int64) + SOURCE_EXTRA, target.astype(np.int64) + TARGET_EXTRA


def _grouped(source: np.ndarray, target: np.ndarray | None) -> Groups:
    def widths(start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        return _widths(source[start:end], None if target is None else target[start:end])

    return group_rows(len(source), widths, _sort_key)


def _sort_key(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """One number to sort by: the wider side, longest first, then the other side, which goes up and down in turn.

    In turn, so that a batch at the border of two widths does not hold the shortest and the longest other sides at once.
    """
    wide, narrow = np.maximum(source, target), np.minimum(source, target)
    if not wide.size:
        return wide
    base = int(wide.max()) + 1
    second = np.where(wide % 2 == 0, narrow, base - 1 - narrow)
    # Pairs whose source is the wider are kept apart from those whose target is: their narrow sides are different ones.
    side = np.where(wide % 2 == 0, source > target, source <= target)
    key = ((base - wide) * 2 + side) * base + second
    ranks = np.unique(key, return_inverse=True)[1]
    return ranks.astype(np.min_scalar_type(int(ranks.max())))  # small numbers sort much faster


def _cut(widths: np.ndarray, tokens: int, most: int | None) -> np.ndarray:
    """Where batches begin, and the last one ends. Widths never grow: the first row of a batch is its widest."""
    starts, row, count = [0], 0, len(widths)
    while row < count:
        fitting = max(1, tokens // int(widths[row]))
        row = min(count, row + (fitting if most is None else min(fitting, most)))
        starts.append(row)
    return np.array(starts)


def _padding_share(source: np.ndarray, target: np.ndarray, starts: np.ndarray) -> float:
    """The share of all places, on both sides, that hold padding."""
    if not source.size:
        return 0.0
    rows = np.diff(starts)
    places = sum(int((np.maximum.reduceat(side, starts[:-1]) * rows).sum()) for side in (source, target))
    return 1 - float(source.sum() + target.sum()) / places


def collate(pairs: Sequence[TokenPair]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs as two arrays, padded behind: sources with `END`, targets between `START` and `END`."""
    source = np.full((len(pairs), max(len(pair[0]) for pair in pairs) + SOURCE_EXTRA), PADDING, np.int64)
    target = np.full((len(pairs), max(len(pair[1]) for pair in pairs) + TARGET_EXTRA), PADDING, np.int64)
    target[:, 0] = START
    for row, (source_ids, target_ids) in enumerate(pairs):
        source[row, : len(source_ids)] = source_ids
        source[row, len(source_ids)] = END
        target[row, 1 : 1 + len(target_ids)] = target_ids
        target[row, 1 + len(target_ids)] = END
    return source, target
