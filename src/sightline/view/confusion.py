"""The confusion matrix as a picture: what texts of each class were called."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sightline.records import Tokens
from sightline.view.fonts import widths
from sightline.view.layout import (
    COLOURS,
    SIZE,
    SMALLEST,
    inches,
    ink,
    inner_size,
    label,
    line_of,
    room,
    shade,
    stand,
    thin_frame,
    title_lines,
)
from sightline.view.pictures import save

MOST = 50  # classes that are shown
_WIDEST = 3.4  # inches of the cells of a few classes; of many, each is as large as its count needs
_LARGEST_CELL = 0.7
_RIGHT = 0.75  # inches beside the matrix, for its scale


def confusion_matrix(
    matrix: Int[np.ndarray, "gold said"], names: Sequence[str], path: Path, *, title: str | None = None
) -> Path:
    """A row for each class, a column for what its texts were called, in .png, .svg or .pdf.

    Shades are shares of the row, so that a rare class is seen as well as a frequent one; the numbers are texts, and
    nothing is written for none. A class without texts has a grey row. Of more than 50 classes, those with the most
    texts are shown, and the others together as one.
    """
    return save(confusion_figure(matrix, names, title), path)


def confusion_figure(matrix: Int[np.ndarray, "gold said"], names: Sequence[str], title: str | None = None) -> Figure:
    """The figure behind `confusion_matrix`."""
    if matrix.shape != (len(names), len(names)) or not len(names):
        raise ValueError(f"a matrix of shape {matrix.shape} with {len(names)} names")
    counts, shown_names = _largest(matrix, names)
    classes, axis = len(shown_names), Tokens(tuple(shown_names))
    texts = {count: _short(count) for count in np.unique(counts).tolist() if count}
    size = SIZE if classes <= 20 else SMALLEST
    needed = max([*widths(list(texts.values()), size), 0.0]) + 0.07
    wide = max(min(_WIDEST / classes, _LARGEST_CELL), needed, 1.15 * line_of(size))
    high = max(min(_WIDEST / classes, _LARGEST_CELL * 0.8), 0.6 * wide, 1.15 * line_of(size))
    line = line_of(size)
    left = room(axis, size) + 1.6 * line
    below = (room(axis, size) if stand(axis, size, wide) else line) + 1.7 * line
    lines = title_lines(title, size + 1, left + wide * classes + _RIGHT)
    above = (1.25 * len(lines) + 0.7) * line if lines else 0.05
    figure = Figure(figsize=(left + wide * classes + _RIGHT, above + high * classes + below))
    axes = figure.add_axes(inches(figure, left, below, wide * classes, high * classes))
    shares = _shares(counts)
    image = shade(axes, shares, 1.0, COLOURS)
    for row, column in zip(*np.nonzero(counts), strict=True):
        _, colour = ink(float(shares[row, column]), 1.0)
        axes.text(column, row, texts[int(counts[row, column])], ha="center", va="center", fontsize=size, color=colour)
    label(axes, "x", axis, size)
    label(axes, "y", axis, size)
    axes.set_xlabel("given label", fontsize=size)
    axes.set_ylabel("right label", fontsize=size)
    _scale(axes, image, size)
    thin_frame(axes)
    if lines:
        figure.text(
            0.5, 1.0, "\n".join(lines), fontsize=size + 1, ha="center", va="top", linespacing=1.15, parse_math=False
        )
    return figure


def _largest(matrix: np.ndarray, names: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """The classes with the most texts, in their order, and behind them all others as one."""
    if len(names) <= MOST:
        return matrix, list(names)
    texts = matrix.sum(axis=1) + matrix.sum(axis=0)
    kept = np.sort(np.argsort(-texts, kind="stable")[: MOST - 1])
    place = np.full(len(names), MOST - 1)
    place[kept] = np.arange(MOST - 1)
    counts = np.zeros((MOST, MOST), dtype=matrix.dtype)
    np.add.at(counts, (place[:, None], place[None, :]), matrix)
    return counts, [*(names[one] for one in kept.tolist()), f"{len(names) - MOST + 1} others"]


def _shares(counts: np.ndarray) -> Float64[np.ndarray, "gold said"]:
    whole = counts.sum(axis=1, keepdims=True)
    return np.where(whole > 0, counts / np.maximum(whole, 1), np.nan)


def _short(count: int) -> str:
    """At most four characters: 9999, 12k, 1.2M."""
    if count < 10_000:
        return str(count)
    if count < 999_500:
        return f"{count / 1000:.0f}k"
    return f"{count / 1e6:.1f}M" if count < 9_950_000 else f"{count / 1e6:.0f}M"


def _scale(axes: Axes, image: AxesImage, size: float) -> None:
    """Which shade is which share, to the right of the matrix."""
    width, height = inner_size(axes)
    share = min(1.0, 2.0 / height)
    scale = axes.inset_axes((1.0 + 0.08 / width, 1.0 - share, 0.09 / width, share))
    bar = axes.figure.colorbar(image, cax=scale, ticks=[0.0, 0.5, 1.0])
    bar.ax.set_yticklabels(["0", "50 %", "100 %"])
    bar.set_label("of the row", fontsize=size)
    bar.outline.set_linewidth(0.4)
    scale.tick_params(length=0, labelsize=size)
