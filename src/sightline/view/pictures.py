"""Pictures of attention fit for a paper, made with matplotlib."""

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sightline.files import whole_file
from sightline.records import Axis, Record, Tokens

# One hue from white to dark: the same order in grey print and for every kind of colour vision.
COLOURS = "Blues"


def heat_map(record: Record, path: Path, *, title: str | None = None, rows_label: str | None = None) -> Path:
    """One line of sight a row: where it looked, column by column. The format follows the file's ending."""
    rows, columns = len(record.rows), len(record.columns)
    cell = min(0.32, 6.0 / max(columns, 1), 8.0 / max(rows, 1))
    figure = Figure(figsize=(max(2.6, cell * columns + 1.6), max(1.4, cell * rows + 1.1)), layout="constrained")
    axes = figure.subplots()
    draw_heat_map(axes, record)
    if title:
        axes.set_title(title, fontsize=10)
    if rows_label:
        axes.set_ylabel(rows_label)
    return save(figure, path)


def draw_heat_map(axes: Axes, record: Record) -> None:
    """The weights of a record as shades in given axes, with a scale that always runs from 0 to 1."""
    image = axes.imshow(
        np.asarray(record.matrix()),
        cmap=COLOURS,
        vmin=0.0,
        vmax=1.0,
        aspect="equal" if record.matrix().shape[0] < 60 else "auto",
    )
    _label(axes, "x", record.columns)
    _label(axes, "y", record.rows)
    axes.set_xlabel("looked at")
    scale = axes.inset_axes((1.02, 0.0, 0.02, 1.0))  # as high as the map, whatever shape the map has
    axes.figure.colorbar(image, cax=scale, ticks=[0.0, 0.5, 1.0]).set_label("weight", fontsize=9)
    for part in (axes, scale):
        part.tick_params(length=0, labelsize=9)


def save(figure: Figure, path: Path) -> Path:
    """Write the picture, whole or not at all."""
    with whole_file(path) as part, matplotlib.rc_context({"svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(part, dpi=200, bbox_inches="tight", pad_inches=0.05)
    return path


def _label(axes: Axes, side: str, axis: Axis) -> None:
    set_ticks = axes.set_xticks if side == "x" else axes.set_yticks
    if isinstance(axis, Tokens):
        # A dollar sign starts a formula in matplotlib; in a user's text it is a dollar sign.
        # Half a character (a lone surrogate) cannot be drawn, nor written.
        whole = [text.encode("utf-8", "replace").decode("utf-8") for text in axis.texts]
        texts = [text.replace("$", r"\$") for text in whole]
        upright = side == "x" and max(map(len, axis.texts), default=0) > 2
        set_ticks(range(len(axis)), texts, rotation=90 if upright else 0)
