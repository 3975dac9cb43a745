"""Hashes of texts, and sets of them: to find what was there before in little memory."""

import hashlib
from array import array
from typing import IO

import numpy as np

from sightline.data.scratch import cannot_keep, scratch_file

RUN = 1 << 18  # hashes sorted and written together


def hash_of(text: str, key: bytes = b"") -> int:
    """Eight bytes that are the same in every process, unlike Python's own hash. Never 0."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest()
    return int.from_bytes(digest, "big") or 1


class HashSet:
    """A set of what `hash_of` gives, in 13 to 27 bytes each. A Python set of integers takes 60 to 90."""

    def __init__(self) -> None:
        self._slots = array("Q", [0]) * 1024  # open addressing; 0 is a free slot
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, value: int) -> bool:
        return self._slots[self._slot(value)] == value

    def add(self, value: int) -> bool:
        """Whether it was new."""
        at = self._slot(value)
        if self._slots[at]:
            return False
        self._slots[at] = value
        self._count += 1
        if self._count * 5 > len(self._slots) * 3:
            old, self._slots = self._slots, array("Q", [0]) * (2 * len(self._slots))
            for moved in filter(None, old):
                self._slots[self._slot(moved)] = moved
        return True

    def _slot(self, value: int) -> int:
        """Where the value is, or where it would go."""
        slots = self._slots
        mask = len(slots) - 1
        at = value & mask
        while slots[at] and slots[at] != value:
            at = (at + 1) & mask
        return at


class Distinct:
    """Counts how many of the hashes that come are different, exactly, in the same few megabytes whatever their number.

    They are written to the disk in sorted runs. At the end all runs are walked through together, a range of values at a
    time: what is equal is in the same range.
    """

    def __init__(self, run: int = RUN) -> None:
        self.count = 0
        self._run, self._waiting = run, array("Q")
        self._file: IO[bytes] | None = None
        self._ends = [0]

    def add(self, value: int) -> None:
        self._waiting.append(value)
        self.count += 1
        if len(self._waiting) >= self._run:
            self._flush()

    def extend(self, values: np.ndarray) -> None:
        """Several at once."""
        self._waiting.frombytes(values.astype(np.uint64).tobytes())
        self.count += len(values)
        if len(self._waiting) >= self._run:
            self._flush()

    def _flush(self) -> None:
        if self._file is None:
            self._file = scratch_file()
        try:
            np.sort(np.frombuffer(self._waiting, np.uint64)).tofile(self._file)
        except OSError as error:
            raise cannot_keep(error) from None
        self._ends.append(self._ends[-1] + len(self._waiting))
        self._waiting = array("Q")

    def different(self) -> int:
        """How many different ones have come; nothing may come afterwards."""
        last = np.sort(np.frombuffer(self._waiting, np.uint64))
        if self._file is None:
            return _different(last)
        with self._file as file:
            file.flush()
            kept = np.asarray(np.memmap(file, np.uint64, "r", shape=(self._ends[-1],)))
            runs = [kept[start:end] for start, end in zip(self._ends, self._ends[1:], strict=False)] + [last]
            # Hashes are spread evenly: equal ranges of values hold about as many each.
            ranges = -(-self.count // self._run)
            borders = np.array([(1 << 64) * place // ranges for place in range(1, ranges)], np.uint64)
            places = [np.concatenate([[0], np.searchsorted(run, borders), [len(run)]]) for run in runs]
            return sum(
                _different(
                    np.sort(np.concatenate([run[at[i] : at[i + 1]] for run, at in zip(runs, places, strict=True)]))
                )
                for i in range(ranges)
            )


def _different(ordered: np.ndarray) -> int:
    return int(len(ordered) and 1 + np.count_nonzero(ordered[1:] != ordered[:-1]))
