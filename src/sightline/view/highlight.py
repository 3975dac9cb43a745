"""Documents with their words, and their sentences, shaded by the weight they were given."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sightline.errors import UserError
from sightline.records import Record
from sightline.view.flow import Placed, flow, height_of, sheet, words_along, write
from sightline.view.fonts import widths
from sightline.view.layout import COLOURS, TEXT_WIDTH, fits, ink, largest_of, line_of, size_for
from sightline.view.pictures import save
from sightline.view.texts import shown

SENTENCES = "Oranges"  # told from the blue of words by every kind of colour vision
BAR = 0.14  # inches: the mark of a sentence beside it
MOST_WORDS = 5000


def highlight(
    words: Record | Sequence[Record],
    path: Path,
    *,
    sentences: Record | None = None,
    row: int | None = None,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
) -> Path:
    """A document with each word shaded by its weight.

    Several records are sentences, each on lines of its own; ``sentences`` has the weight of each of them as its columns
    and is drawn as a mark beside them. ``row`` says who looked; left out, it is the mean of all rows.
    """
    parts = [words] if isinstance(words, Record) else list(words)
    if not parts:
        raise UserError("there is no text to draw")
    if sentences is not None and len(sentences.columns) != len(parts):
        raise UserError(f"there are {len(parts)} sentences but weights for {len(sentences.columns)}")
    count = sum(len(one.columns) for one in parts)
    if count > MOST_WORDS:
        raise UserError(f"a picture of {count:,} words cannot be read; draw at most {MOST_WORDS:,}, or make a page")
    size = size_for(width) + 1
    margin = BAR + 0.08 if sentences is not None else 0.0
    lines = [flow(words_along(one.columns), width - margin - 0.04, size) for one in parts]
    weights = [_weights(one, row) for one in parts]
    end = largest_of(*weights) if most is None else most
    line, gap = line_of(size), 0.08
    above = 1.8 * line if title else 0.0
    body = sum(height_of(one) + gap for one in lines)
    figure = Figure(figsize=(width, above + body + 1.5 * line))
    page = sheet(figure, 0.02, 0.0, width - 0.04, above + body + 1.5 * line)
    if title:
        page.text(0, line, shown(title, fits(title, size + 1, width)), fontsize=size + 1, parse_math=False)
    marks = None if sentences is None else _weights(sentences, row)
    mark_end = 1.0 if marks is None else largest_of(marks)
    top = above
    for number, (placed, values) in enumerate(zip(lines, weights, strict=True)):
        for one, weight in zip(placed, values, strict=True):
            paper, colour = ink(float(weight), end, colours)
            write(page, Placed(one.text, one.left + margin, one.top + top, one.width, one.height), size, paper, colour)
        if marks is not None:
            paper, _ = ink(float(marks[number]), mark_end, SENTENCES)
            page.add_patch(Rectangle((0, top), BAR, height_of(placed), facecolor=paper, edgecolor="#888888", lw=0.4))
        top += height_of(placed) + gap
    behind = _legend(page, 0.0, top + 0.4 * line, "word", end, colours, size - 1)
    if marks is not None:
        _legend(page, behind + 0.3, top + 0.4 * line, "sentence", mark_end, SENTENCES, size - 1)
    return save(figure, path)


def _weights(record: Record, row: int | None) -> np.ndarray:
    matrix = record.matrix()
    if row is not None and not 0 <= row < len(matrix):
        raise UserError(f"row is {row}; the map has {len(matrix)} rows, counted from 0")
    if not len(matrix):
        return np.zeros(len(record.columns))
    return matrix.mean(axis=0) if row is None else matrix[row]


def _legend(page: Axes, left: float, top: float, what: str, most: float, colours: str, size: float) -> float:
    """Which shade is which weight. Returns where it ends."""
    height, step, gap = 0.09, 0.12, 0.06
    texts = [f"{what}: 0", f"{most:g}"]
    lengths = widths(texts, size)
    start = left + lengths[0] + gap
    for place in range(5):
        paper, _ = ink(most * place / 4, most, colours)
        page.add_patch(
            Rectangle((start + step * place, top), step, height, facecolor=paper, edgecolor="#888888", lw=0.3)
        )
    for text, x in zip(texts, (left, start + 5 * step + gap), strict=True):
        page.text(x, top + height / 2, text, fontsize=size, va="center_baseline")
    return start + 5 * step + gap + lengths[1]
