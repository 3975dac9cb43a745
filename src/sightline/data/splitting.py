"""Splitting pairs into training and validation so that neither knows a sentence of the other, and counting overlap."""

import hashlib
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from sightline.data.hashes import HashSet, hash_of
from sightline.errors import UserError

Pair = tuple[str, str]
Part = Literal["train", "valid", "left out"]
MOST_VALID = 20_000  # pairs that a share comes to; more say no more, and are held in memory
_BINS_BITS = 20  # fine enough that a bin of a large corpus is a handful of pairs
_CHUNK = 1 << 18


def normalise(text: str) -> str:
    """The text by which sentences are the same: NFC, no white space around, one blank for any within."""
    return " ".join(unicodedata.normalize("NFC", text).split())


@dataclass(frozen=True)
class Counts:
    train: int
    valid: int
    left_out: int  # of training, because validation has their target


class Splitter:
    """Says for each pair where it goes. Made by `split_pairs`.

    A pair is for validation if the hash of its source falls into a chosen bin, so all pairs of a source go together. Of
    the others, those whose target stands in validation are left out: a model would have been shown the answer.
    """

    def __init__(
        self, pairs_factory: Callable[[], Iterator[Pair]], key: bytes, chosen: bytearray, valid_targets: HashSet
    ) -> None:
        self._pairs_factory = pairs_factory
        self._key = key
        self._chosen = chosen
        self._valid_targets = valid_targets

    def part_of(self, source: str, target: str) -> Part:
        if self._chosen[_bin_of(source, self._key)]:
            return "valid"
        return "left out" if hash_of(normalise(target)) in self._valid_targets else "train"

    def train(self) -> Iterator[Pair]:
        """One more reading of the pairs; those for training."""
        count = 0
        for pair in self._pairs_factory():
            if self.part_of(*pair) == "train":
                count += 1
                yield pair
        if not count:
            raise _nothing_left()

    def valid(self) -> Iterator[Pair]:
        """One more reading of the pairs; those for validation."""
        return (pair for pair in self._pairs_factory() if self._chosen[_bin_of(pair[0], self._key)])

    def count(self) -> Counts:
        """One more reading of the pairs; how many go where."""
        parts = Counter(self.part_of(*pair) for pair in self._pairs_factory())
        if not parts["train"]:
            raise _nothing_left()
        return Counts(parts["train"], parts["valid"], parts["left out"])


def split_pairs(pairs_factory: Callable[[], Iterator[Pair]], share_or_count: float | int, seed: int) -> Splitter:
    """Split by seed and content: the same pairs in any order give the same parts.

    ``share_or_count`` is the share of the pairs for validation (0.05), but no more than 20,000 of them, or their number
    (2000), met within 10 % or 50 pairs. ``pairs_factory`` begins the pairs anew; it is called twice here.
    """
    _check_asked(share_or_count)
    key = key_of(seed)
    bins = array("Q", [0]) * (1 << _BINS_BITS)
    total = 0
    for source, _ in pairs_factory():
        bins[_bin_of(source, key)] += 1
        total += 1
    chosen = _choose_bins(bins, _asked(share_or_count, total))
    valid_targets, again = HashSet(), 0
    for source, target in pairs_factory():
        again += 1
        if chosen[_bin_of(source, key)]:
            valid_targets.add(hash_of(normalise(target)))
    if again != total:
        raise UserError(
            f"the pairs were {total:,} at the first reading and {again:,} at the second; expected the same, "
            "so save them to a file if they come from a pipe"
        )
    return Splitter(pairs_factory, key, chosen, valid_targets)


class HashedSplit(NamedTuple):
    """Which pairs are for training and which for validation, by their hashes."""

    sources: np.ndarray
    targets: np.ndarray
    chosen: np.ndarray  # of the bins
    valid_targets: np.ndarray

    def valid(self, start: int, end: int) -> np.ndarray:
        return self.chosen[_bins_of(self.sources[start:end])]

    def train(self, start: int, end: int) -> np.ndarray:
        return ~(self.valid(start, end) | _among(self.targets[start:end], self.valid_targets))


def split_hashes(sources: np.ndarray, targets: np.ndarray, share_or_count: float | int) -> HashedSplit:
    """As `split_pairs` splits, by the hashes of normalised texts: of the sources with the key of the seed."""
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


def _bin_of(source: str, key: bytes) -> int:
    return hash_of(normalise(source), key) >> (64 - _BINS_BITS)


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


def count_overlap(train: Iterable[Pair], evaluation: Iterable[Pair]) -> Overlap:
    """Read evaluation, which is held as hashes, then training, which streams."""
    pairs: Counter[int] = Counter()
    sources: Counter[int] = Counter()
    for source, target in evaluation:
        pairs[_pair_hash(source, target)] += 1
        sources[hash_of(normalise(source))] += 1
    total = pairs.total()
    found_pairs = found_sources = 0
    for source, target in train:
        found_sources += sources.pop(hash_of(normalise(source)), 0)
        found_pairs += pairs.pop(_pair_hash(source, target), 0)
    return Overlap(total, found_pairs, found_sources)


def overlap_of_hashes(train: tuple[np.ndarray, np.ndarray], evaluation: Sequence[Pair], key: bytes) -> Overlap:
    """As `count_overlap`, by the hashes of the normalised training texts: of sources (with the key) and targets."""
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


def _pair_hash(source: str, target: str) -> int:
    return hash_of(f"{normalise(source)}\n{normalise(target)}")  # no line break is left in what is normalised
