"""Splitting pairs into training and validation so that neither knows a sentence of the other, and counting overlap."""

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sightline.data.hashes import hash_of
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
