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
