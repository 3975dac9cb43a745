"""Splitting rows into training and validation so that no text is on both sides, and counting what two sides share.

All of it goes by hashes of the rows, which may be in files: memory stays flat.
"""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sightline.data.disk import hash_of, scratch_array
from sightline.errors import UserError

Pair = tuple[str, str]
MOST_VALID = 20_000  # rows that a share comes to; more say no more, and are held in memory
LEAST_TEXTS = 3  # a label with fewer is for training only
NUMBER_STRATA = 10
LEAST_DOCUMENTS, BLOCKS = 10, 20  # documents that are enough to draw from, else so many blocks
_BINS_BITS = 20  # fine enough that a bin of a large corpus is a handful of pairs
_CHUNK = 1 << 18  # hashes that are in memory together


def normalise(text: str) -> str:
    """The text by which sentences are the same: NFC, no white space around, one blank for any within."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class HashedSplit(NamedTuple):
    """Which pairs are for training and which for validation, by their hashes.

    A pair is for validation if the hash of its source falls into a chosen bin, so all pairs of a source go together. Of
    the others, those whose target is in validation are left out: a model would have been trained on it.
    """

    sources: np.ndarray
    targets: np.ndarray
    chosen: np.ndarray  # of the bins
    valid_targets: np.ndarray

    def valid(self, start: int, end: int) -> np.ndarray:
        return self.chosen[_bins_of(self.sources[start:end])]

    def train(self, start: int, end: int) -> np.ndarray:
        return ~(self.valid(start, end) | among(self.targets[start:end], self.valid_targets))


def split_hashes(sources: np.ndarray, targets: np.ndarray, share_or_count: float | int) -> HashedSplit:
    """Split by seed and content: the same pairs in any order give the same parts.

    ``share_or_count`` is the share of the pairs for validation (0.05), but no more than 20,000 of them, or their number
    (2000), met within 10 % or 50 pairs. Hashes are of normalised texts: of the sources with the key of the seed.
    """
    total, bins = len(sources), np.zeros(1 << _BINS_BITS, np.int64)
    asked = _number_asked(share_or_count, total)
    parts = [(start, min(start + _CHUNK, total)) for start in range(0, total, _CHUNK)]
    for start, end in parts:
        bins += np.bincount(_bins_of(sources[start:end]), minlength=len(bins))
    chosen = np.frombuffer(_choose_bins(bins.tolist(), asked), bool)
    of_valid = [targets[start:end][chosen[_bins_of(sources[start:end])]] for start, end in parts]
    split = HashedSplit(sources, targets, chosen, np.unique(np.concatenate(of_valid)))
    if not any(split.train(start, end).any() for start, end in parts):
        raise UserError(
            "no pair is left to train on, because validation has the target of every one; "
            "ask for less validation, or give validation pairs of your own"
        )
    return split


def _bins_of(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _BINS_BITS)).astype(np.int64)


def among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of the values are among the known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values


def key_of(seed: int) -> bytes:
    """What sources are hashed with, so that every seed chooses others."""
    return hashlib.blake2b(str(seed).encode(), digest_size=32).digest()


def _number_asked(asked: float | int, total: int) -> int:
    """The number of pairs for validation, of a number or a share."""
    if isinstance(asked, bool) or not asked > 0:
        raise UserError(f"validation: found {asked!r}; expected a number of pairs or a share between 0 and 1")
    if isinstance(asked, float) and asked >= 1:
        raise UserError(
            f"validation: found the share {asked!r}; expected one between 0 and 1, or a whole number of pairs"
        )
    number = asked if isinstance(asked, int) else min(max(1, round(asked * total)), MOST_VALID)
    if number >= total:
        raise UserError(
            f"validation: asked for {number:,} pairs of {total:,}; expected fewer, so that some are to train on"
        )
    return number


def _choose_bins(bins: Sequence[int], asked: int) -> bytearray:
    """Bins that hold about as many pairs as asked for, in the order of their hash, without those that hold too many."""
    chosen, taken = bytearray(len(bins)), 0
    passed_over: tuple[int, int] | None = None  # the least of those
    for index, count in enumerate(bins):
        if taken == asked:
            break
        if count and taken + count <= asked:
            chosen[index] = 1
            taken += count
        elif count:
            passed_over = min(passed_over or (count, index), (count, index))
    allowed = max(asked // 10, 50)
    if passed_over and (not taken or asked - taken > allowed):  # one source has very many pairs
        count, index = passed_over
        if taken + count - asked < asked - taken or not taken:
            chosen[index] = 1
            taken += count
    if abs(asked - taken) > allowed:
        raise UserError(
            f"validation: asked for {asked:,} pairs, and the nearest is {taken:,}, because many pairs have the same "
            "source and go together; ask for another number, or leave out repeated sources"
        )
    return chosen


@dataclass(frozen=True)
class Overlap:
    """How much of the evaluation data is in the training data, as numbers of evaluation pairs."""

    evaluation: int
    pairs: int  # whose source and target are together in training
    sources: int  # whose source is in training, with any target


def overlap_of_hashes(train: tuple[np.ndarray, np.ndarray], evaluation: Sequence[Pair], key: bytes) -> Overlap:
    """Count evaluation pairs in training by the hashes of normalised texts: sources (with the key) and targets."""
    sources = np.array([hash_of(normalise(source), key) for source, _ in evaluation], np.uint64)
    targets = np.array([hash_of(normalise(target)) for _, target in evaluation], np.uint64)
    return Overlap(len(evaluation), count_known(_mixed(sources, targets), *train), count_known(sources, train[0]))


def count_known(hashes: np.ndarray, known: np.ndarray, of_targets: np.ndarray | None = None) -> int:
    """How many of the hashes are among those known, or among those mixed with the hashes of their targets."""
    are_known = np.zeros(len(hashes), bool)
    for start in range(0, len(known), _CHUNK):
        some = known[start : start + _CHUNK]
        some = some if of_targets is None else _mixed(some, of_targets[start : start + _CHUNK])
        are_known |= np.isin(hashes, some)
    return int(are_known.sum())


def _mixed(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """One number for both; which is which must matter."""
    return sources * np.uint64(0x9E3779B97F4A7C15) ^ targets


# Labelled texts: labels in like shares on both sides. All rows of one text go together, so the unit is the text. Which
# texts are chosen depends on the seed and on their content, not on their order.


def choose_keys(
    keys: np.ndarray, strata: np.ndarray, share: float, what: str = "texts", least: int = LEAST_TEXTS
) -> np.ndarray:
    """The keys to set apart: this share of the different keys of each stratum that has at least so many, the lowest
    first. The stratum of a key is that of the row that had it first."""
    if not 0 < share < 1:
        raise UserError(f"validation: found the share {share!r}; expected one between 0 and 1")
    share = min(share, MOST_VALID / max(1, len(keys)))
    sizes: Counter[int] = Counter()
    for _, first in _ranges(keys):
        sizes.update(dict(zip(*(one.tolist() for one in np.unique(strata[first], return_counts=True)), strict=True)))
    left = {stratum: min(max(1, round(share * count)), count - 1) for stratum, count in sizes.items() if count >= least}
    total, taken = sizes.total(), sum(left.values())
    if not taken or taken == total:
        raise UserError(
            f"validation: {total:,} different {what} cannot be split so that every label has some to train on and "
            "some to validate on; give more rows, or validation data of your own"
        )
    chosen = []
    for some, first in _ranges(keys):
        of_keys = strata[first]
        for stratum in np.unique(of_keys).tolist():
            if left.get(stratum):
                lowest = some[of_keys == stratum][: left[stratum]]
                left[stratum] -= len(lowest)
                chosen.append(lowest)
    return np.sort(np.concatenate(chosen))


def choose_groups(documents: np.ndarray, share: float, seed: int, what: str) -> tuple[np.ndarray, str]:
    """Which rows to set apart: about this share of them, in whole documents drawn by the seed, and a sentence on that.

    Where there are few documents, the rows are cut into blocks that follow each other, and blocks are drawn.
    """
    count, named = len(documents), len(np.unique(documents))
    block = max(1, round(count / BLOCKS))
    groups = documents if named >= LEAST_DOCUMENTS else np.arange(count) // block
    _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
    sizes, apart = np.bincount(numbers), np.zeros(len(first), bool)
    asked, taken = min(max(1, round(share * count)), MOST_VALID), 0
    for group in np.random.default_rng(seed).permutation(len(first)).tolist():
        if taken < asked and taken + sizes[group] <= max(2 * asked, sizes.min()):
            apart[group], taken = True, taken + sizes[group]
    if not taken or taken == count:
        raise UserError(f"validation: {count:,} {what} are too few to split; give validation data of your own")
    drawn = f"{apart.sum():,} of {len(apart):,}"
    if named >= LEAST_DOCUMENTS:
        return apart[numbers], f"validation {what} are those of {drawn} documents"
    return apart[numbers], f"no documents are marked: validation {what} are {drawn} blocks that run on"


def fold_keys(keys: np.ndarray, strata: np.ndarray, fold: tuple[int, int], what: str) -> np.ndarray:
    """The keys of one of several folds (its number from 0, how many there are): strata are in all of them alike."""
    number, folds = fold
    different, first = np.unique(keys, return_index=True)
    if len(different) < 2 * folds:
        raise UserError(f"--folds is {folds}, and there are {len(different):,} different {what}; expected 2 for each")
    order = np.lexsort((different, strata[first]))
    return different[order[number::folds]]


def different_keys(keys: np.ndarray) -> np.ndarray:
    """Each key once, in order, in a file and not in memory."""
    different, count = scratch_array(len(keys), np.uint64), 0
    for some, _ in _ranges(keys):
        different[count : count + len(some)] = some
        count += len(some)
    return different[:count]


def count_different(keys: np.ndarray) -> int:
    """How many different keys there are."""
    return sum(len(some) for some, _ in _ranges(keys))


def _ranges(keys: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The different keys in order, some at a time, each with the number of the row that had it first.

    The keys are sorted in runs, in files. Then all runs are walked through together, a range of values at a time: what
    is equal is in the same range, and because hashes are spread evenly, ranges hold about as many keys each.
    """
    ordered, rows = scratch_array(len(keys), np.uint64), scratch_array(len(keys), np.int64)
    runs = [slice(start, start + _CHUNK) for start in range(0, len(keys), _CHUNK)]
    for run in runs:
        order = np.argsort(keys[run], kind="stable")
        ordered[run], rows[run] = keys[run][order], order + run.start
    borders = np.array([(1 << 64) * place // len(runs) for place in range(1, len(runs))], np.uint64)
    places = [[run.start, *(run.start + np.searchsorted(ordered[run], borders)), run.stop] for run in runs]
    for part in range(len(runs)):
        pieces = [slice(at[part], at[part + 1]) for at in places]
        different, first = np.unique(np.concatenate([ordered[piece] for piece in pieces]), return_index=True)
        yield different, np.concatenate([rows[piece] for piece in pieces])[first]


def label_order(counts: Counter[str]) -> dict[str, int]:
    """The labels by how rare they are: a row's stratum is that of its rarest label, the frequent ones come with it."""
    return {name: place for place, name in enumerate(sorted(counts, key=lambda name: (counts[name], name)))}


def strata_of_numbers(numbers: np.ndarray) -> np.ndarray:
    """By tenths of the numbers in order; equal numbers stay together."""
    edges = np.quantile(numbers, np.linspace(0, 1, NUMBER_STRATA + 1)[1:-1])
    return np.searchsorted(np.unique(edges), numbers, side="right")
