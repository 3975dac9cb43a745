"""Images are known by their content: their keys, those that a run keeps, and images that stand on both sides."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from sightline.data.arrays import mapped
from sightline.data.checking import hash_of
from sightline.data.splitting import Overlap
from sightline.errors import UserError
from sightline.files import whole_file

KEYS = "images.npy"  # below the run's data
BAD_IMAGE = "bad image"  # the kind of problem, in a report


@runtime_checkable
class Keyed(Protocol):
    """An image with the number of its content."""

    @property
    def key(self) -> int: ...


def image_key(path: Path) -> int:
    """The same number for the same content. What cannot be read is known by its path, and is reported later."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).digest()
                return int.from_bytes(digest, "big") or 1
    except (OSError, ValueError):
        pass
    return hash_of(f"\0{path}")


def write_keys(data: Path, keys: Iterable[int]) -> None:
    """What an evaluation tells images of the run by. Those kept apart chose the weights: they too belong to them."""
    with whole_file(data / KEYS) as part:
        np.save(part, np.array(sorted(set(keys)), dtype=np.uint64), allow_pickle=False)


def seen_images(run: Path | None, keys: Iterable[int]) -> np.ndarray | None:
    """For each of these images, whether the run was trained on it; None where it was moved without its data."""
    path = None if run is None else run / "data" / KEYS
    if path is None or not path.exists():
        return None
    try:
        known = mapped(path)
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return np.isin(np.fromiter(keys, dtype=np.uint64), known)


def image_overlap(training: Iterable[Keyed], validating: Sequence[Keyed]) -> Overlap:
    """How much of validation data that was given stands in the training data."""
    known = {one.key for one in training}
    found = sum(one.key in known for one in validating)
    return Overlap(len(validating), found, found)


def image_overlap_lines(overlap: Overlap | None) -> list[str]:
    """What there is to say of it."""
    if overlap is None or not overlap.pairs:
        return []
    return [
        f"of {overlap.evaluation:,} validation images, {overlap.pairs:,} stand in the training data too: scores on "
        "them flatter"
    ]
