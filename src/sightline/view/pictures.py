"""Pictures of attention fit for a paper, made with matplotlib."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sightline.files import whole_file
from sightline.records import Record
from sightline.view.fonts import fit_fonts, quiet
from sightline.view.layout import (
    COLOURS,
    SIZE,
    SMALLEST,
    TALLEST,
    TEXT_WIDTH,
    add_scale,
    inches,
    label,
    largest,
    line_of,
    names,
    room,
    shade,
    size_for,
    stand,
    thin_frame,
    title_lines,
)
from sightline.view.texts import shown

# Without a date or a random number, so that the same record makes the same file.
STEADY: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "sightline", "pdf.fonttype": 42}
NO_DATE: dict[str, dict[str, str | None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
RIGHT = 0.62  # inches beside a map, for its scale


def heat_map(
    record: Record,
    path: Path,
    *,
    title: str | None = None,
    rows_label: str | None = None,
    columns_label: str = "looked at",
    width: float | None = None,
    colours: str = COLOURS,
    most: float | None = 1.0,
) -> Path:
    """One line of sight a row: where it looked, column by column. The format follows the file's ending.

    ``width`` is in inches; left out, it is what the labels need and at most the width of a page. ``most`` is the weight
    with the darkest shade; None takes the largest there is, rounded up. Where labels do not fit, every second, third,
    ... is written.
    """
    return save(heat_map_figure(record, title, rows_label, columns_label, width, colours, most), path)


def heat_map_figure(
    record: Record,
    title: str | None = None,
    rows_label: str | None = None,
    columns_label: str = "looked at",
    width: float | None = None,
    colours: str = COLOURS,
    most: float | None = 1.0,
) -> Figure:
    """The figure behind `heat_map`."""
    rows, columns = max(len(record.rows), 1), max(len(record.columns), 1)
    for size in (size_for(width), SMALLEST):  # smaller only where the words would not fit
        left = room(record.rows, size) + (1.5 * line_of(size) if rows_label else 0.02)
        free = max((TEXT_WIDTH if width is None else width) - left - RIGHT, 0.6)
        cell = min(0.3, free / columns) if width is None else free / columns
        if cell >= line_of(size):
            break
    line = line_of(size)
    below = (room(record.columns, size) if stand(record.columns, size, cell) else line) + 1.7 * line
    lines = title_lines(title, size + 1, left + cell * columns + RIGHT)
    above = (1.25 * len(lines) + 0.7) * line if lines else 0.05
    # Square, unless rows would be too low for their words, or higher than a hand.
    lowest = line if names(record.rows) else 0.0
    high = min(max(min(cell, 0.34), lowest), (TALLEST - above - below) / rows)
    wide, tall = cell * columns, high * rows
    figure = Figure(figsize=(left + wide + RIGHT, above + tall + below))
    axes = figure.add_axes(inches(figure, left, below, wide, tall))
    draw_heat_map(axes, record, colours=colours, most=most, size=size)
    axes.set_xlabel(shown(columns_label, 60), fontsize=size, parse_math=False)
    if lines:
        figure.text(
            0.5, 1.0, "\n".join(lines), fontsize=size + 1, ha="center", va="top", linespacing=1.15, parse_math=False
        )
    if rows_label:
        axes.set_ylabel(shown(rows_label, 60), fontsize=size, parse_math=False)
    return figure


def draw_heat_map(
    axes: Axes, record: Record, *, colours: str = COLOURS, most: float | None = 1.0, size: float = SIZE
) -> None:
    """The weights of a record as shades in given axes, with a scale that runs from 0 to 1 unless told otherwise."""
    top = largest([record]) if most is None else most
    image = shade(axes, record.matrix(), top, colours)
    label(axes, "x", record.columns, size)
    label(axes, "y", record.rows, size)
    axes.set_xlabel("looked at", fontsize=size)
    add_scale(axes, image, top, size)
    thin_frame(axes)


def save(figure: Figure, path: Path) -> Path:
    """Write the picture, whole or not at all, with fonts that have its characters."""
    ending = path.suffix.lower()
    with matplotlib.rc_context(STEADY), quiet():
        fit_fonts(figure, path)
        with whole_file(path) as part:
            figure.savefig(part, dpi=200, bbox_inches="tight", pad_inches=0.05, metadata=NO_DATE.get(ending))
    return path
