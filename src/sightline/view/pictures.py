"""Attention maps for a paper, made with matplotlib."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.transforms import Bbox

from sightline.errors import UserError
from sightline.files import whole_file
from sightline.records import Record, called
from sightline.view.copied import NOTE, Copies, marks_room, put_marks, put_note
from sightline.view.fonts import fit_fonts, quiet, widths
from sightline.view.layout import (
    COLOURS,
    SMALLEST,
    TALLEST,
    TEXT_WIDTH,
    add_scale,
    add_title,
    inches,
    label,
    largest,
    line_of,
    names,
    put_lines,
    room,
    shade,
    size_for,
    stand,
    thin_frame,
    title_lines,
)
from sightline.view.words import shown

# Without a date or a random number, so that the same record gives the same file.
STEADY: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "sightline", "pdf.fonttype": 42}
NO_DATE: dict[str, dict[str, str | None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
RIGHT = 0.62  # inches beside a map, for its scale


def heat_map(
    record: Record,
    path: Path,
    *,
    title: str | None = None,
    rows_label: str | None = None,
    columns_label: str = "attended to",
    width: float | None = None,
    colours: str = COLOURS,
    most: float | None = 1.0,
    copies: Copies = (),
    unit: str = "weight",
) -> Path:
    """One attention row for each row of the picture, weights from left to right. The ending gives the format.

    An axis that has a name is labelled with it, and not with ``rows_label`` or ``columns_label``.
    ``width`` is in inches; by default the labels decide it, up to the width of a page. ``most`` is the weight with the
    darkest shade; None takes the largest weight, rounded up; ``unit`` is what a number is called. Where labels do not
    fit, every second, third, ... is written. ``copies`` say of each row whether it was copied, and from which column.
    """
    figure = heat_map_figure(record, title, rows_label, columns_label, width, colours, most, copies, unit)
    return save(figure, path)


def heat_map_figure(
    record: Record,
    title: str | None = None,
    rows_label: str | None = None,
    columns_label: str = "attended to",
    width: float | None = None,
    colours: str = COLOURS,
    most: float | None = 1.0,
    copies: Copies = (),
    unit: str = "weight",
) -> Figure:
    """The figure behind `heat_map`."""
    rows, columns = max(len(record.rows), 1), max(len(record.columns), 1)
    rows_label, columns_label = called(record.rows, rows_label or ""), called(record.columns, columns_label)
    for size in (size_for(width), SMALLEST):  # smaller only where the words would not fit
        marks = marks_room(size) if copies else 0.0
        left = room(record.rows, size) + marks + (1.5 * line_of(size) if rows_label else 0.02)
        free = max((TEXT_WIDTH if width is None else width) - left - RIGHT, 0.6)
        cell = min(0.3, free / columns) if width is None else free / columns
        if cell >= line_of(size):
            break
    line = line_of(size)
    below = (room(record.columns, size) if stand(record.columns, size, cell) else line) + 1.7 * line
    lines = title_lines(title, size + 1, left + cell * columns + RIGHT)
    above = (1.25 * len(lines) + 0.7) * line if lines else 0.05
    notes = title_lines(NOTE, size - 1, left + cell * columns + RIGHT) if copies else []
    if copies:
        above, below = above + 0.7 * line, below + (len(notes) + 0.3) * line
    # Square cells, unless rows would be too low for their words, or the map higher than a page.
    lowest = line if names(record.rows) else 0.0
    high = min(max(min(cell, 0.34), lowest), (TALLEST - above - below) / rows)
    wide, tall = cell * columns, high * rows
    figure = Figure(figsize=(left + wide + RIGHT, above + tall + below))
    axes = figure.add_axes(inches(figure, left, below, wide, tall))
    top = largest([record]) if most is None else most
    image = _map(axes, record, top, colours, size)
    add_scale(axes, image, top, size, unit)
    if copies:
        put_marks(axes, copies, size)
        put_note(axes, notes, size - 1, left, below)
    axes.set_xlabel(shown(columns_label, 60), fontsize=size, parse_math=False)
    put_lines(figure, lines, size + 1)
    if rows_label:
        axes.set_ylabel(shown(rows_label, 60), fontsize=size, parse_math=False)
    return figure


def _map(axes: Axes, record: Record, most: float, colours: str, size: float) -> AxesImage:
    """The weights of a record as shades, with its words."""
    image = shade(axes, record.matrix(), most, colours)
    label(axes, "x", record.columns, size)
    label(axes, "y", record.rows, size)
    thin_frame(axes)
    return image


def save(figure: Figure, path: Path) -> Path:
    """Write the picture atomically, with fonts that have its characters."""
    ending = path.suffix.lower()
    with matplotlib.rc_context(STEADY), quiet():
        fit_fonts(figure, path)
        with whole_file(path) as part:
            figure.savefig(part, dpi=200, bbox_inches="tight", pad_inches=0.05, metadata=NO_DATE.get(ending))
    return path


# --- Many maps at once: all heads of a layer, and all layers.

GAP = 0.08  # inches between maps


def all_heads(
    records: Sequence[Record],
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
    unit: str = "weight",
) -> Path:
    """The heads of one layer beside each other, with the same words along them and one scale for all."""
    _check(records)
    first, size = records[0], SMALLEST
    line = line_of(size)
    top = largest(records) if most is None else most
    rows, columns = max(len(first.rows), 1), max(len(first.columns), 1)
    left, below = room(first.rows, size) + 0.02, room(first.columns, size) + 1.6 * line
    free = width - left - RIGHT
    across = _across(len(records), free, columns)
    wide = (free - GAP * (across - 1)) / across
    down = math.ceil(len(records) / across)
    above = (1.6 * line_of(size_for(width)) if title else 0.02) + 1.3 * line
    step = GAP + 1.3 * line
    tall = min(wide * min(max(rows / columns, 0.35), 1.6), (TALLEST - above - below - step * (down - 1)) / down)
    figure = Figure(figsize=(width, above + down * tall + (down - 1) * step + below))
    for number, record in enumerate(records):
        row, column = divmod(number, across)
        bottom = below + (down - 1 - row) * (tall + step)
        axes = figure.add_axes(inches(figure, left + column * (wide + GAP), bottom, wide, tall))
        image = _map(axes, record, top, colours, size)
        axes.set_title(f"head {record.head + 1}" if record.head >= 0 else "mean", fontsize=size, pad=2)
        leftmost, lowest = column == 0, number + across >= len(records)
        axes.tick_params(left=leftmost, labelleft=leftmost, bottom=lowest, labelbottom=lowest)
        if number + 1 == min(across, len(records)):
            add_scale(axes, image, top, size, unit)
    _name_sides(figure, first, size, 0.0 if stand(first.columns, size, wide / columns) else below - 1.8 * line)
    add_title(figure, title, size_for(width) + 1, width)
    return save(figure, path)


def all_layers(
    records: Sequence[Record],
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
    layer_names: Sequence[str] = (),
    unit: str = "weight",
) -> Path:
    """Layers from top to bottom, heads from left to right: a small map each, with one scale for all.

    Records of one name are one layer, in the given order; ``layer_names`` replace their numbers. The maps are too small
    for words, which `all_heads` shows.
    """
    if not records:
        raise UserError("there is no map to draw")
    names = list(dict.fromkeys(record.name for record in records))
    layers = [[record for record in records if record.name == name] for name in names]
    heads = max(map(len, layers))
    top = largest(records) if most is None else most
    size = SMALLEST if width < 5 else 7.0
    line = line_of(size)
    beside = max(widths(layer_names, size), default=0.0)
    left = beside + line if layer_names else 3.4 * line
    above = (1.6 * line_of(size_for(width)) if title else 0.02) + 2.6 * line
    gap = 0.05
    wide = min((width - left - RIGHT - gap * (heads - 1)) / heads, 1.2)
    shape = max(len(records[0].rows), 1) / max(len(records[0].columns), 1)
    tall = min(wide * min(max(shape, 0.5), 1.5), (TALLEST - above) / len(layers) - gap)
    full = left + heads * wide + (heads - 1) * gap + RIGHT
    figure = Figure(figsize=(full, above + len(layers) * (tall + gap)))
    for number, layer in enumerate(layers):
        bottom = (len(layers) - 1 - number) * (tall + gap) + gap
        for place, record in enumerate(layer):
            axes = figure.add_axes(inches(figure, left + place * (wide + gap), bottom, wide, tall))
            image = shade(axes, record.matrix(), top, colours)
            axes.set(xticks=[], yticks=[])
            thin_frame(axes)
            if place == 0:
                name = layer_names[number] if layer_names else f"{number + 1}"
                axes.set_ylabel(name, fontsize=size, rotation=0, ha="right", va="center", labelpad=3)
            if number == 0:
                axes.set_title(f"{record.head + 1}", fontsize=size, pad=2)
            if number == 0 and place == len(layer) - 1:
                add_scale(axes, image, top, size, unit)
    middle = (left + (heads * wide + (heads - 1) * gap) / 2) / full
    high = figure.get_size_inches()[1]
    down = len(layers) * (tall + gap) / 2 / high
    figure.text(middle, (high - above + 1.4 * line) / high, "head", fontsize=size, ha="center", va="bottom")
    if not layer_names:
        figure.text((left - 2.0 * line) / full, down, "layer", fontsize=size, rotation=90, ha="right", va="center")
    _name_sides(figure, records[0], size)
    add_title(figure, title, size_for(width) + 1, full)
    return save(figure, path)


def _name_sides(figure: Figure, record: Record, size: float, bottom: float = 0.0) -> None:
    """What rows and columns are, where they have names: once for all maps, ``bottom`` inches from the lower edge."""
    rows, columns = called(record.rows, ""), called(record.columns, "")
    whole = Bbox.union([axes.get_position() for axes in figure.axes])
    across, down = (whole.x0 + whole.x1) / 2, (whole.y0 + whole.y1) / 2
    low = bottom / float(figure.get_size_inches()[1])
    if rows:
        figure.text(0.0, down, shown(rows, 60), fontsize=size, rotation=90, ha="right", va="center", parse_math=False)
    if columns:
        figure.text(across, low, shown(columns, 60), fontsize=size, ha="center", va="top", parse_math=False)


def _check(records: Sequence[Record]) -> None:
    if not records:
        raise UserError("there is no map to draw")
    if any((one.rows, one.columns) != (records[0].rows, records[0].columns) for one in records):
        raise UserError("heads beside each other need the same rows and columns")


def _across(count: int, free: float, columns: int) -> int:
    """How many maps are in a row: each at least about an inch and a half wide, and rows of similar length."""
    most = max(1, min(count, int((free + GAP) / (1.45 if columns > 12 else 1.1)), 8))
    return math.ceil(count / math.ceil(count / most))
