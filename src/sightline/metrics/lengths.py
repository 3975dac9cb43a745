"""Scores by the length of the source: models without attention fall off where sentences get long."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from sightline.metrics.scripts import count_letters

EDGES = (1, 10, 15, 20, 30)


@dataclass(frozen=True)
class Bucket:
    """Texts of about one length, by their row. ``most`` is None where there is no end."""

    unit: str  # words, or characters in scripts without spaces
    least: int
    most: int | None
    rows: list[int]

    @property
    def label(self) -> str:
        if self.most is None:
            return f"{self.least}+"
        return str(self.least) if self.most == self.least else f"{self.least}–{self.most}"


def buckets_by_length(sources: Sequence[str], edges: Sequence[int] = EDGES) -> list[Bucket]:
    """From the shortest to the longest; those without a text are left out. ``edges`` are where buckets begin."""
    if list(edges) != sorted(set(edges)) or not edges:
        raise ValueError(f"edges are {list(edges)}; expected one or more, each above the one before")
    by_character = count_letters(sources).mostly_without_spaces
    rows: list[list[int]] = [[] for _ in edges]
    for row, source in enumerate(sources):
        parts = source.split()
        length = sum(map(len, parts)) if by_character else len(parts)
        rows[max(0, bisect.bisect_right(edges, length) - 1)].append(row)  # what is shorter still is with the shortest
    ends = [*(edge - 1 for edge in edges[1:]), None]
    unit = "characters" if by_character else "words"
    return [Bucket(unit, *bucket) for bucket in zip(edges, ends, rows, strict=True) if bucket[2]]
