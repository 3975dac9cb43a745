"""Images are known by their content: the number that each has."""

import hashlib
from pathlib import Path

from sightline.data.hashes import hash_of

KEYS = "images.npy"  # below the run's data


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
