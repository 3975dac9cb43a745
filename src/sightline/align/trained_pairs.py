"""Which pairs a run was trained on, told from its training corpus."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sightline.data.splitting import Overlap
from sightline.data.store import Corpus
from sightline.text.tokenise import Tokeniser
from sightline.vocabulary import UNKNOWN


def overlap_with_training(
    run: Path, source: Tokeniser, target: Tokeniser, pairs: Sequence[tuple[str, str]]
) -> Overlap | None:
    """How many of these pairs the run was trained on; None where it was moved without its data."""
    if not (run / "data" / "train").is_dir():
        return None
    corpus = Corpus.open(run / "data" / "train")
    sides = [
        [np.array(row, dtype=np.int64).tobytes() for row in tokeniser.encode([pair[side] for pair in pairs])]
        for side, tokeniser in enumerate((source, target))
    ]
    wanted: dict[bytes, Counter[bytes]] = {}
    unknown = np.int64(UNKNOWN).tobytes()
    for read, written in zip(*sides, strict=True):
        if _holds(read, unknown) or _holds(written, unknown):
            continue  # unknown words all look alike: whether these were seen cannot be said
        wanted.setdefault(read, Counter())[written] += 1
    sources, found = 0, 0
    met: dict[bytes, set[bytes]] = {}
    # Only rows as long as one of the sources can be one of them: most are passed over without being read.
    lengths = np.unique([len(read) // 8 for read in wanted])
    for row in _of_lengths(corpus.lengths()[0], lengths):
        read, written = (side.astype(np.int64).tobytes() for side in corpus[row])
        if read not in wanted:
            continue
        if read not in met:
            met[read] = set()
            sources += wanted[read].total()
        if written not in met[read]:
            met[read].add(written)
            found += wanted[read][written]
    return Overlap(len(pairs), found, sources)


def _of_lengths(lengths: np.ndarray, wanted: np.ndarray, some: int = 1 << 18) -> Iterator[int]:
    """The rows that are as long as one of those wanted, looked for in parts: a corpus may be large."""
    for start in range(0, len(lengths), some):
        yield from (start + np.flatnonzero(np.isin(lengths[start : start + some], wanted))).tolist()


def _holds(tokens: bytes, token: bytes) -> bool:
    return any(tokens[start : start + 8] == token for start in range(0, len(tokens), 8))
