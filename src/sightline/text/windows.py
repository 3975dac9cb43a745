"""Texts that are longer than a model reads: stretches of them that overlap."""

import itertools
from collections.abc import Sequence


def windows(lengths: Sequence[int], room: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Stretches of units (words, tokens) of these lengths, each of at most ``room`` in all: first and behind the last.

    Each but the first begins about ``overlap`` before the one before it ended, so that nothing is only ever seen at
    the edge. A unit that is alone longer than the room is a stretch of its own.
    """
    found: list[tuple[int, int]] = []
    start, count = 0, len(lengths)
    while True:
        end, total = start, 0
        while end < count and (end == start or total + lengths[end] <= room):
            total += lengths[end]
            end += 1
        found.append((start, end))
        if end >= count:
            return found
        back, again = end, 0
        while back > start + 1 and again + lengths[back - 1] <= overlap:
            back -= 1
            again += lengths[back]
        start = back


def owners(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which units each stretch answers for: of those that two have, each takes the half that is nearer its middle."""
    starts = [0, *((start + end + 1) // 2 for (_, end), (start, _) in itertools.pairwise(stretches))]
    return list(zip(starts, [*starts[1:], stretches[-1][1]], strict=True))
