"""Weights laid over what was looked at: an image, sound, a grid, a memory."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from sightline.errors import UserError
from sightline.records import Frames, Grid, Record, TopK
from sightline.view.flow import words_along
from sightline.view.layout import (
    COLOURS,
    INCH,
    SMALLEST,
    TALLEST,
    TEXT_WIDTH,
    add_scale,
    fits,
    inches,
    ink,
    label,
    largest,
    largest_of,
    line_of,
    room,
    shade,
    size_for,
    thin_frame,
    write_title,
)
from sightline.view.pictures import RIGHT, heat_map, save
from sightline.view.texts import shown

DARKEST = 0.72  # how much of the light is taken from what was not looked at: its shape can still be seen
FINEST = 512  # pixels along an image's longer side


def overlay(
    image: np.ndarray,
    record: Record,
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    most: float | None = None,
) -> Path:
    """An image once for each row of the map: bright where that row looked, dark where it did not.

    Light instead of colour: the image keeps its own, and every kind of colour vision sees the same. The first panel is
    the image itself.
    """
    grid = _grid(record)
    pixels = _pixels(image)
    top = largest([record]) if most is None else most
    words = words_along(record.rows)
    weights = record.matrix()
    size = size_for(width)
    line, gap = line_of(size), 0.06
    across = max(1, min(len(words) + 1, int((width + gap) / 1.15)))
    wide = (width - gap * (across - 1)) / across
    tall = wide * pixels.shape[0] / pixels.shape[1]
    down = math.ceil((len(words) + 1) / across)
    step = tall + 1.4 * line
    above = 1.1 * line if title else 0.0
    high = above + down * step + 1.6 * line
    figure = Figure(figsize=(width, high))
    for number in range(len(words) + 1):
        row, column = divmod(number, across)
        axes = figure.add_axes(inches(figure, column * (wide + gap), high - above - (row + 1) * step, wide, tall))
        axes.imshow(pixels, aspect="auto", interpolation="antialiased")
        if number:
            axes.imshow(_veil(weights[number - 1], grid, pixels.shape[:2], top), aspect="auto")
        axes.set(xticks=[], yticks=[])
        thin_frame(axes)
        axes.set_title("image" if number == 0 else words[number - 1], fontsize=size, pad=2, parse_math=False)
        axes.title.set_fontstyle("italic" if number == 0 else "normal")
    figure.text(0.0, 0.3 * line / high, f"dark: weight 0, full light: {top:g} or more", fontsize=SMALLEST)
    if title:
        text = shown(title, fits(title, size + 1, width))
        figure.text(0.5, 1.0, text, fontsize=size + 1, ha="center", va="top", parse_math=False)
    return save(figure, path)


def over_spectrogram(
    spectrogram: np.ndarray,
    record: Record,
    path: Path,
    *,
    row: int | None = None,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
) -> Path:
    """A spectrogram (bins × time, low sounds first) above the map of who looked where, along the same seconds.

    ``row`` darkens what that row did not look at.
    """
    if not isinstance(record.columns, Frames):
        raise UserError(f"{record.name} does not look at frames of sound")
    if spectrogram.ndim != 2 or not spectrogram.size:
        raise UserError(f"a spectrogram is bins × time; found the shape {spectrogram.shape}")
    top = largest([record]) if most is None else most
    size = size_for(width)
    line = line_of(size)
    left, above = room(record.rows, size) + 0.02, 1.8 * line if title else 0.05
    wide, sound, gap, below = width - left - RIGHT, 0.9, 0.06, 3.0 * line
    tall = min(max(len(record.rows), 1) * 1.15 * line, TALLEST - above - sound - below)
    figure = Figure(figsize=(width, above + sound + gap + tall + below))
    heard = figure.add_axes(inches(figure, left, below + tall + gap, wide, sound))
    heard.imshow(spectrogram, cmap="Greys", origin="lower", aspect="auto", interpolation="antialiased")
    heard.set(xticks=[], yticks=[])
    heard.set_ylabel("frequency", fontsize=size)
    if row is not None:
        values = _row(record, row)
        veil = _veil(values, Grid(1, len(values)), (1, max(len(values), 256)), top)
        box = (-0.5, spectrogram.shape[1] - 0.5, -0.5, spectrogram.shape[0] - 0.5)
        heard.imshow(veil, aspect="auto", extent=box)
    axes = figure.add_axes(inches(figure, left, below, wide, tall))
    image = shade(axes, record.matrix(), top, colours)
    label(axes, "x", record.columns, size)
    label(axes, "y", record.rows, size)
    axes.set_xlabel("time", fontsize=size)
    add_scale(axes, image, top, size)
    for part in (heard, axes):
        thin_frame(part)
    write_title(heard, title, size + 1, fits(title, size + 1, wide + left))
    return save(figure, path)


def over_grid(
    cells: np.ndarray,
    record: Record,
    row: int,
    path: Path,
    *,
    title: str | None = None,
    width: float | None = None,
    colours: str = COLOURS,
    most: float | None = None,
) -> Path:
    """A grid with what its cells hold, each shaded by the weight that one row gave it."""
    grid = _grid(record)
    if cells.shape != (grid.height, grid.width):
        raise UserError(f"the cells are {cells.shape}, but the map looks at {grid.height} × {grid.width}")
    weights = _row(record, row).reshape(grid.height, grid.width)
    top = largest_of(weights) if most is None else most
    size = size_for(width)
    line = line_of(size)
    above = 1.8 * line if title else 0.05
    free = TEXT_WIDTH - RIGHT if width is None else width - RIGHT
    cell = min(0.36 if width is None else 1.0, free / grid.width, (TALLEST - above) / grid.height)
    wide, tall = cell * grid.width, cell * grid.height
    figure = Figure(figsize=(wide + RIGHT, tall + above + 0.05))
    axes = figure.add_axes(inches(figure, 0.0, 0.05, wide, tall))
    image = shade(axes, weights, top, colours)
    axes.set(xticks=[], yticks=[])
    _write_cells(axes, cells, weights, cell, top, colours)
    add_scale(axes, image, top, size)
    thin_frame(axes)
    write_title(axes, title, size + 1, fits(title, size + 1, wide + RIGHT))
    return save(figure, path)


def memory_over_time(
    record: Record,
    path: Path,
    *,
    title: str | None = None,
    width: float | None = None,
    colours: str = COLOURS,
    most: float | None = 1.0,
) -> Path:
    """The slots of a memory from top to bottom, time from left to right: which slot was used when."""
    turned = replace(record, rows=record.columns, columns=record.rows, weights=record.matrix().T, scores=None)
    return heat_map(
        turned,
        path,
        title=title,
        rows_label="memory slot",
        columns_label="time",
        width=width,
        colours=colours,
        most=most,
    )


def _grid(record: Record) -> Grid:
    if not isinstance(record.columns, Grid):
        raise UserError(f"{record.name} does not look at places of an image or a grid")
    return record.columns


def _row(record: Record, row: int) -> np.ndarray:
    if not 0 <= row < len(record.rows):
        raise UserError(f"row is {row}; the map has {len(record.rows)} rows, counted from 0")
    if isinstance(record.weights, TopK):
        top = record.weights
        return TopK(top.places[row : row + 1], top.weights[row : row + 1], top.columns).dense()[0]
    return record.weights[row]


def _pixels(image: np.ndarray) -> np.ndarray:
    """Red, green and blue from 0 to 1, no finer than can be seen in a panel."""
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    if pixels.ndim != 3 or pixels.shape[2] not in (3, 4) or not pixels.size:
        raise UserError(f"an image is height × width or height × width × 3; found the shape {pixels.shape}")
    if pixels.dtype.kind in "iub":
        pixels = pixels / (1 if pixels.dtype.kind == "b" else 255)
    every = max(1, math.ceil(max(pixels.shape[:2]) / FINEST))
    return np.clip(pixels[::every, ::every, :3].astype(np.float64), 0.0, 1.0)


def _veil(weights: np.ndarray, grid: Grid, shape: tuple[int, int], most: float) -> np.ndarray:
    """Black that hides what was not looked at: height × width × 4. Between places the weights go over smoothly."""
    light = np.clip(weights.reshape(grid.height, grid.width) / most, 0.0, 1.0).astype(np.float32)
    smooth = Image.fromarray(light).resize((shape[1], shape[0]), Image.Resampling.BILINEAR)
    veil = np.zeros((*shape, 4))
    veil[..., 3] = DARKEST * (1.0 - np.asarray(smooth))
    return veil


def _write_cells(axes: Axes, cells: np.ndarray, weights: np.ndarray, cell: float, most: float, colours: str) -> None:
    texts = np.vectorize(lambda one: shown(f"{one:g}" if isinstance(one, float) else str(one), 8), otypes=[object])(
        cells
    )
    longest = max((len(text) for text in texts.flat), default=1)
    size = min(9.0, cell * INCH * 0.9 / max(0.65 * longest, 1.2))
    if size < SMALLEST:
        raise UserError(
            f"the text of a cell does not fit into {cell:.2f} inches; give fewer cells, shorter texts or a larger width"
        )
    for (row, column), text in np.ndenumerate(texts):
        _, colour = ink(float(weights[row, column]), most, colours)
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour, parse_math=False)
