"""Series of frames on disk: the frames of all files one behind the other, memory-mapped (`sightline.data.store`).

Each file has one row for each speed that it is trained at. What is stored is what a model reads: log-mel features,
vectors, or small images.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from sightline.data.store import Corpus, write_corpus
from sightline.errors import UserError
from sightline.files import RECORDS, read_json, write_text

ABOUT = "series.json"
CORPUS = "frames"


class SeriesStore:
    """The series of some files. ``frame`` is the shape of a frame, ``variants`` how many rows each file has."""

    def __init__(self, corpus: Corpus, frame: tuple[int, ...], variants: int, bad: Mapping[int, str]) -> None:
        self._corpus, self.frame, self.variants, self.bad = corpus, frame, variants, dict(bad)
        self._size = int(np.prod(frame))

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._corpus) // self.variants

    def length(self, file: int, variant: int = 0) -> int:
        """How many frames a file has."""
        return int(self._corpus.lengths()[0][file * self.variants + variant]) // self._size

    def lengths(self, files: np.ndarray) -> np.ndarray:
        """How many frames these files have."""
        return self._corpus.lengths()[0][files * self.variants] // self._size

    def frames(self, file: int, variant: int = 0) -> np.ndarray:
        """The frames of a file."""
        return self._corpus[file * self.variants + variant][0].reshape(-1, *self.frame)

    @classmethod
    def open(cls, folder: Path) -> "SeriesStore":
        """What `write_series` wrote."""
        try:
            about = read_json(folder / ABOUT, RECORDS)
            frame, variants, bad = tuple(about["frame"]), about["variants"], about["bad"]
            if not all(type(one) is int and 0 < one < 1 << 20 for one in (*frame, variants)) or not frame:
                raise ValueError(f"frame is {list(frame)} and variants {variants}")
            reasons = {int(number): str(why) for number, why in bad.items()}
        except FileNotFoundError:
            raise UserError(f"{folder} holds no frames: it has no {ABOUT}; prepare the data again") from None
        except (OSError, TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
            raise UserError(f"the frames in {folder} cannot be used ({error}); prepare the data again") from None
        store = cls(Corpus.open(folder / CORPUS), frame, variants, reasons)
        if len(store._corpus) % variants or (store._corpus.lengths()[0] % store._size).any():
            raise UserError(f"the frames in {folder} cannot be used: rows are no whole frames; prepare the data again")
        return store


def write_series(
    folder: Path, files: Iterable[tuple[list[np.ndarray], str | None]], frame: tuple[int, ...], variants: int
) -> SeriesStore:
    """Store the frames of files: of each one array for every variant, or none and the reason why it is bad."""
    bad: dict[int, str] = {}

    def rows() -> Iterator[tuple[np.ndarray, list[int]]]:
        nothing = None
        for number, (arrays, problem) in enumerate(files):
            if problem is not None:
                bad[number] = problem
                nothing = np.empty(0, np.float16) if nothing is None else nothing
                yield from ((nothing, []) for _ in range(variants))
            else:
                nothing = np.empty(0, arrays[0].dtype)
                yield from ((array.reshape(-1), []) for array in arrays)

    folder.mkdir(parents=True, exist_ok=True)
    write_corpus(folder / CORPUS, rows())
    about = {"frame": list(frame), "variants": variants, "bad": {str(number): why for number, why in bad.items()}}
    write_text(folder / ABOUT, json.dumps(about, ensure_ascii=False))
    return SeriesStore.open(folder)
