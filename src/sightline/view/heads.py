"""Many maps at a glance: all heads of a layer, and all layers."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from sightline.errors import UserError
from sightline.records import Record
from sightline.view.layout import (
    COLOURS,
    SMALLEST,
    TALLEST,
    TEXT_WIDTH,
    add_scale,
    fits,
    inches,
    label,
    largest,
    line_of,
    room,
    shade,
    size_for,
    thin_frame,
)
from sightline.view.pictures import RIGHT, save
from sightline.view.texts import shown

GAP = 0.08  # inches between maps


def all_heads(
    records: Sequence[Record],
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
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
        image = shade(axes, record.matrix(), top, colours)
        axes.set_title(f"head {record.head + 1}" if record.head >= 0 else "mean", fontsize=size, pad=2)
        label(axes, "x", record.columns, size)
        label(axes, "y", record.rows, size)
        thin_frame(axes)
        leftmost, lowest = column == 0, number + across >= len(records)
        axes.tick_params(left=leftmost, labelleft=leftmost, bottom=lowest, labelbottom=lowest)
        if number + 1 == min(across, len(records)):
            add_scale(axes, image, top, size)
    _title(figure, title, size_for(width), width)
    return save(figure, path)


def all_layers(
    records: Sequence[Record],
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
) -> Path:
    """Layers from top to bottom, heads from left to right: a small map each, with one scale for all.

    Layers are told apart by their names, and come in the order in which they are given. Too small for words: the shape
    of a map is what can be seen, and `all_heads` shows the words.
    """
    if not records:
        raise UserError("there is no map to draw")
    names = list(dict.fromkeys(record.name for record in records))
    layers = [[record for record in records if record.name == name] for name in names]
    heads = max(map(len, layers))
    top = largest(records) if most is None else most
    size = SMALLEST if width < 5 else 7.0
    line = line_of(size)
    left, above = 3.4 * line, (1.6 * line_of(size_for(width)) if title else 0.02) + 2.6 * line
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
            axes.set_xticks([])
            axes.set_yticks([])
            thin_frame(axes)
            if place == 0:
                axes.set_ylabel(f"{number + 1}", fontsize=size, rotation=0, ha="right", va="center", labelpad=3)
            if number == 0:
                axes.set_title(f"{record.head + 1}", fontsize=size, pad=2)
            if number == 0 and place == len(layer) - 1:
                add_scale(axes, image, top, size)
    middle = (left + (heads * wide + (heads - 1) * gap) / 2) / full
    high = figure.get_size_inches()[1]
    down = len(layers) * (tall + gap) / 2 / high
    figure.text(middle, (high - above + 1.4 * line) / high, "head", fontsize=size, ha="center", va="bottom")
    figure.text((left - 2.0 * line) / full, down, "layer", fontsize=size, rotation=90, ha="right", va="center")
    _title(figure, title, size_for(width), full)
    return save(figure, path)


def _check(records: Sequence[Record]) -> None:
    if not records:
        raise UserError("there is no map to draw")
    if any((one.rows, one.columns) != (records[0].rows, records[0].columns) for one in records):
        raise UserError("heads beside each other need the same rows and columns")


def _across(count: int, free: float, columns: int) -> int:
    """How many maps stand in a row: as many as leave each an inch and a half, and no lonely one at the end."""
    most = max(1, min(count, int((free + GAP) / (1.45 if columns > 12 else 1.1)), 8))
    return math.ceil(count / math.ceil(count / most))


def _title(figure: Figure, title: str | None, size: float, width: float) -> None:
    if title:
        text = shown(title, fits(title, size + 1, width))
        figure.text(0.5, 1.0, text, fontsize=size + 1, ha="center", va="top", parse_math=False)
