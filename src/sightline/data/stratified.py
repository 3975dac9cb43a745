"""Splitting labelled texts into training and validation: labels in like shares, no text on both sides.

All rows of one text go together, so the unit is the text. Which texts are chosen depends on the seed and on their
content, not on their order.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from sightline.data.scratch import scratch_array
from sightline.errors import UserError

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
