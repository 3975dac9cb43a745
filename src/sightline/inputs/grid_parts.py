"""Grids too large to be labelled whole: in parts that overlap, of which each gives the cells far from its own edges.

What a model needs grows with all cells (their annotations) or with their square (where each looks at all). Photos that
it learnt from have some hundred cells; a part has at most some thousand.
"""

import math
from collections.abc import Iterable
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from sightline.data.grids import Raw, grid_size

SIDE = 96  # cells along a part
OVERLAP = 16  # cells that two parts share at least
Answered = tuple[np.ndarray, np.ndarray | None]  # r c k of the cells, h w of the pixels where they are refined


class Stretch(NamedTuple):
    """Cells from ``start`` to ``stop`` are read, and those from ``first`` to ``last`` are taken from what comes out."""

    start: int
    stop: int
    first: int
    last: int


Part = tuple[Stretch, Stretch]  # down and across


def stretches(cells: int, side: int, overlap: int) -> list[Stretch]:
    """A row or column of cells in parts of at most ``side``; each pair of neighbours meets in the middle of what they
    share."""
    if cells <= side:
        return [Stretch(0, cells, 0, cells)]
    count = math.ceil((cells - overlap) / (side - overlap))
    starts = [round(number * (cells - side) / (count - 1)) for number in range(count)]
    meet = [(after + before + side) // 2 for before, after in pairwise(starts)]
    return [
        Stretch(start, start + side, first, last)
        for start, first, last in zip(starts, [0, *meet], [*meet, cells], strict=True)
    ]


def parts_of(raw: Raw, cell: int, most: int) -> list[Part]:
    """Rows and columns of each part; one part where there are at most ``most`` cells."""
    rows, columns = grid_size(raw.values, cell)
    if rows * columns <= most:
        return [(Stretch(0, rows, 0, rows), Stretch(0, columns, 0, columns))]
    side = max(1, min(SIDE, math.isqrt(most)))
    overlap = min(OVERLAP, side // 2)
    return list(product(stretches(rows, side, overlap), stretches(columns, side, overlap)))


def cut(raw: Raw, cell: int, part: Part) -> Raw:
    """One part of an image."""
    down, across = part
    values = raw.values[down.start * cell : down.stop * cell, across.start * cell : across.stop * cell]
    return raw._replace(values=values, mask=None)


def joined(size: tuple[int, ...], cell: int, answers: Iterable[tuple[Part, Answered]]) -> Answered:
    """The answer for an image of this height and width, put together out of those for its parts."""
    height, width = size
    probs = pixels = None
    for (down, across), (some, refined) in answers:
        if probs is None:
            probs = np.empty((-(-height // cell), -(-width // cell), some.shape[-1]), some.dtype)
            pixels = None if refined is None else np.empty((height, width), refined.dtype)
        probs[down.first : down.last, across.first : across.last] = some[_inner(down), _inner(across)]
        if refined is not None and pixels is not None:
            top, left = down.first * cell, across.first * cell
            inner = refined[_inner(down, cell), _inner(across, cell)][: height - top, : width - left]
            pixels[top : top + len(inner), left : left + inner.shape[1]] = inner
    assert probs is not None
    return probs, pixels


def _inner(of: Stretch, cell: int = 1) -> slice:
    """What is taken, counted from where the part begins."""
    return slice((of.first - of.start) * cell, (of.last - of.start) * cell)
