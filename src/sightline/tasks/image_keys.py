"""Images are known by their content: their keys, those that a run keeps, and images that stand on both sides."""

import hashlib
from pathlib import Path

from sightline.data.checking import hash_of

KEYS = "images.npy"  # below the run's data
BAD_IMAGE = "bad image"  # the kind of problem, in a report


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
