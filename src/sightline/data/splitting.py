"""Splitting pairs into training and validation so that neither knows a sentence of the other, and counting overlap."""

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
MOST_VALID = 20_000  # pairs that a share comes to; more say no more, and are held in memory
_BINS_BITS = 20  # fine enough that a bin of a large corpus is a handful of pairs
_CHUNK = 1 << 18


def normalise(text: str) -> str:
    """The text by which sentences are the same: NFC, no white space around, one blank for any within."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class HashedSplit(NamedTuple):
    """Which pairs are for training and which for validation, by their hashes.

    A pair is for validation if the hash of its source falls into a chosen bin, so all pairs of a source go together. Of
    the others, those whose target stands in validation are left out: a model would have been shown the answer.
    """

    sources: np.ndarray
    targets: np.ndarray
    chosen: np.ndarray  # of the bins
    valid_targets: np.ndarray

    def valid(self, start: int, end: int) -> np.ndarray:
        return self.chosen[_bins_of(self.sources[start:end])]

    def train(self, start: int, end: int) -> np.ndarray:
        return ~(self.valid(start, end) | _among(self.targets[start:end], self.valid_targets))


def split_hashes(sources: np.ndarray, targets: np.ndarray, share_or_count: float | int) -> HashedSplit:
    """Split by seed and content: the same pairs in any order give the same parts.

    ``share_or_count`` is the share of the pairs for validation (0.05), but no more than 20,000 of them, or their number
    (2000), met within 10 % or 50 pairs. Hashes are of normalised texts: of the sources with the key of the seed.
    """
    _check_asked(share_or_count)
    total, bins = len(sources), np.zeros(1 << _BINS_BITS, np.int64)
    parts = [(start, min(start + _CHUNK, total)) for start in range(0, total, _CHUNK)]
    for start, end in parts:
        bins += np.bincount(_bins_of(sources[start:end]), minlength=len(bins))
    chosen = np.frombuffer(_choose_bins(bins.tolist(), _asked(share_or_count, total)), bool)
    found = [targets[start:end][chosen[_bins_of(sources[start:end])]] for start, end in parts]
    split = HashedSplit(sources, targets, chosen, np.unique(np.concatenate(found)))
    if not any(split.train(start, end).any() for start, end in parts):
        raise _nothing_left()
    return split


def _bins_of(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _BINS_BITS)).astype(np.int64)


def _among(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Which of the values are among those known, which are sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    return known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values


def key_of(seed: int) -> bytes:
    """What sources are hashed with, so that every seed chooses others."""
    return hashlib.blake2b(str(seed).encode(), digest_size=32).digest()


def _asked(share_or_count: float | int, total: int) -> int:
    if isinstance(share_or_count, int):
        asked = share_or_count
    else:
        asked = min(max(1, round(share_or_count * total)), MOST_VALID)
    if asked >= total:
        raise UserError(
            f"validation: asked for {asked:,} pairs of {total:,}; expected fewer, so that some are to train on"
        )
    return asked


def _check_asked(asked: float | int) -> None:
    if isinstance(asked, bool) or (isinstance(asked, int) and asked < 1) or not asked > 0:
        raise UserError(f"validation: found {asked!r}; expected a number of pairs or a share between 0 and 1")
    if isinstance(asked, float) and asked >= 1:
        raise UserError(
            f"validation: found the share {asked!r}; expected one between 0 and 1, or a whole number of pairs"
        )


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


def _nothing_left() -> UserError:
    return UserError(
        "no pair is left to train on, because validation has the target of every one; "
        "ask for less validation, or give validation pairs of your own"
    )


@dataclass(frozen=True)
class Overlap:
    """How much of the evaluation data stands in the training data. All are numbers of evaluation pairs."""

    evaluation: int
    pairs: int  # whose source and target stand together in training
    sources: int  # whose source stands in training, with any target


def overlap_of_hashes(train: tuple[np.ndarray, np.ndarray], evaluation: Sequence[Pair], key: bytes) -> Overlap:
    """How much of it stands in training, by the hashes of its normalised texts: sources (with the key) and targets."""
    sources = np.array([hash_of(normalise(source), key) for source, _ in evaluation], np.uint64)
    pairs = _mixed(sources, np.array([hash_of(normalise(target)) for _, target in evaluation], np.uint64))
    found = []
    for wanted, mixed in ((sources, False), (pairs, True)):
        known = np.unique(wanted)
        met = np.zeros(len(known), bool)
        for start in range(0, len(train[0]), _CHUNK):
            some = train[0][start : start + _CHUNK]
            some = _mixed(some, train[1][start : start + _CHUNK]) if mixed else some
            met[np.searchsorted(known, some[_among(some, known)])] = True
        found.append(int(met[np.searchsorted(known, wanted)].sum()))
    return Overlap(len(evaluation), found[1], found[0])


def _mixed(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """One number for both; which is which must matter."""
    return sources * np.uint64(0x9E3779B97F4A7C15) ^ targets


# Splitting labelled texts into training and validation: labels in like shares, no text on both sides.
#
# All rows of one text go together, so the unit is the text. Which texts are chosen depends on the seed and on their
# content, not on their order.


LEAST_TEXTS = 3  # a label with fewer is for training only
MOST_VALID = 20_000  # rows; more say no more, and are held in memory
NUMBER_STRATA = 10
RANGE = 1 << 18  # rows whose keys are in memory together


def choose_keys(
    keys: np.ndarray, strata: np.ndarray, share: float, what: str = "texts", least: int = LEAST_TEXTS
) -> np.ndarray:
    """The keys to set apart: this share of the different keys of each stratum that has at least so many, the lowest
    first. Memory stays flat: both arrays, which may be in files, are gone through a range of keys at a time."""
    if not 0 < share < 1:
        raise UserError(f"validation: found the share {share!r}; expected one between 0 and 1")
    share = min(share, MOST_VALID / max(1, len(keys)))
    sizes: Counter[int] = Counter()
    for _, of_keys in _ranges(keys, strata):
        sizes.update(dict(zip(*(one.tolist() for one in np.unique(of_keys, return_counts=True)), strict=True)))
    left = {stratum: min(max(1, round(share * count)), count - 1) for stratum, count in sizes.items() if count >= least}
    total, taken = sizes.total(), sum(left.values())
    if not taken or taken == total:
        raise UserError(
            f"validation: {total:,} different {what} cannot be split so that every label has some to train on and "
            "some to validate on; give more rows, or validation data of your own"
        )
    chosen = []
    for some, of_keys in _ranges(keys, strata):
        for stratum in np.unique(of_keys).tolist():
            if left.get(stratum):
                first = some[of_keys == stratum][: left[stratum]]
                left[stratum] -= len(first)
                chosen.append(first)
    return np.sort(np.concatenate(chosen))


def different_keys(keys: np.ndarray) -> np.ndarray:
    """Each key once, in order, in a file and not in memory."""
    found, count = scratch_array(len(keys), np.uint64), 0
    for some, _ in _ranges(keys, None):
        found[count : count + len(some)] = some
        count += len(some)
    return found[:count]


def _ranges(keys: np.ndarray, strata: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The different keys in order, some at a time, each with the stratum of the row that had it first."""
    parts = max(1, -(-len(keys) // RANGE))
    for part in range(parts):
        low, high = (1 << 64) * part // parts, (1 << 64) * (part + 1) // parts - 1
        some, of = [], []
        for start in range(0, len(keys), RANGE):
            block = np.asarray(keys[start : start + RANGE])
            inside = (block >= np.uint64(low)) & (block <= np.uint64(high))
            some.append(block[inside])
            if strata is not None:
                of.append(np.asarray(strata[start : start + RANGE])[inside])
        different, first = np.unique(np.concatenate(some), return_index=True)
        yield different, np.concatenate(of)[first] if of else first


def label_order(counts: Counter[str]) -> dict[str, int]:
    """The labels by how rare they are: a row's stratum is that of its rarest label, the frequent ones come with it."""
    return {name: place for place, name in enumerate(sorted(counts, key=lambda name: (counts[name], name)))}


def strata_of_numbers(numbers: np.ndarray) -> np.ndarray:
    """By tenths of the numbers in order; equal numbers stay together."""
    edges = np.quantile(numbers, np.linspace(0, 1, NUMBER_STRATA + 1)[1:-1])
    return np.searchsorted(np.unique(edges), numbers, side="right")
