"""Attention weights over an image."""

import math
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from PIL import Image

from sightline.errors import UserError
from sightline.picture import WHOLE, Box
from sightline.records import Grid, Record
from sightline.view.highlight import words_along
from sightline.view.layout import (
    SMALLEST,
    TALLEST,
    TEXT_WIDTH,
    add_title,
    fits,
    inches,
    largest,
    line_of,
    show_image,
    size_for,
)
from sightline.view.pictures import save
from sightline.view.words import shown

DARKEST = 0.72  # how much a place without weight is darkened: its shape can still be seen
FINEST = 512  # pixels along an image's longer side, in one panel
DOTS = 300  # pixels of an image in an inch of a picture
PANEL, GAP = 1.15, 0.06  # inches: how wide a panel is at least, and what is between two
MOST_PANELS = 200
FLAT = " (flat)"  # behind the word of a row without a frame


def overlay(
    image: np.ndarray,
    record: Record,
    path: Path,
    *,
    box: Box = WHOLE,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    most: float | None = None,
) -> Path:
    """An image once for each row of the map: bright where the row has weight, dark where it has none.

    Brightness instead of colour: the image keeps its colours, and it works for every kind of colour vision. All rows
    have one scale; a frame is around the places with the highest weights of a row, also where the image itself is dark.
    A row whose weights are flat has no frame (`is_flat`) and its title says so. The first panel is the image itself.
    ``box`` is where the places lie over the image (`sightline.picture.Picture`).
    """
    grid = grid_of(record)
    words = words_along(record.rows)
    if len(words) > MOST_PANELS:
        raise UserError(
            f"a picture with an image for each of {len(words):,} words cannot be read; draw at most {MOST_PANELS}, or "
            f"make a page (.html)"
        )
    top = largest([record]) if most is None else most
    weights = record.matrix()
    size = size_for(width)
    line = line_of(size)
    across = max(1, min(len(words) + 1, int((width + GAP) / PANEL)))
    wide = (width - GAP * (across - 1)) / across
    pixels = to_pixels(image, min(FINEST, max(64, round(DOTS * wide))))
    # A flat image keeps room for its word, and a tall one fits on a page.
    tall = min(wide * pixels.shape[0] / pixels.shape[1], TALLEST - 4 * line)
    down = math.ceil((len(words) + 1) / across)
    step = tall + 1.4 * line
    above = 1.1 * line if title else 0.0
    high = above + down * step + 1.6 * line
    figure = Figure(figsize=(width, high))
    for number in range(len(words) + 1):
        row, column = divmod(number, across)
        axes = figure.add_axes(inches(figure, column * (wide + GAP), high - above - (row + 1) * step, wide, tall))
        show_image(axes, pixels)
        if number:
            axes.imshow(veil(weights[number - 1], grid, pixels.shape[:2], top, box), aspect="equal")
            axes.add_line(frame(weights[number - 1], grid, pixels.shape[:2], box))
        name = "image" if number == 0 else words[number - 1]
        if number and is_flat(weights[number - 1]):
            name += FLAT
        axes.set_title(shown(name, fits(name, size, wide)), fontsize=size, pad=2, parse_math=False)
        axes.title.set_fontstyle("italic" if number == 0 else "normal")
    figure.text(0.0, 0.3 * line / high, scale_of(top, len(words)), fontsize=SMALLEST)
    add_title(figure, title, size + 1, width)
    return save(figure, path)


def scale_of(most: float, rows: int) -> str:
    """What brightness and frames mean, in words; a single row may be that of a label."""
    whose = "the word's" if rows > 1 else "the"
    return f"dark: weight 0, full brightness: {most:g} or more; framed: at least half of {whose} largest weight"


def is_flat(weights: np.ndarray) -> bool:
    """Whether more than half of the places have at least half of the largest weight.

    A frame around them would surround the places with little weight, and be read as the opposite.
    """
    values = np.nan_to_num(weights)
    most = float(values.max(initial=0.0))
    return most > 0 and 2 * int((values >= most / 2).sum()) > values.size


def grid_of(record: Record) -> Grid:
    if not isinstance(record.columns, Grid):
        raise UserError(f"{record.name} does not attend to places of an image or a grid")
    return record.columns


def to_pixels(image: np.ndarray, finest: int = FINEST) -> np.ndarray:
    """Red, green and blue as bytes, with no more pixels than are visible."""
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = np.repeat(pixels[:, :, None], 3, axis=2)
    if pixels.ndim != 3 or pixels.shape[2] not in (3, 4) or not pixels.size:
        raise UserError(f"an image is height × width or height × width × 3; its shape is {pixels.shape}")
    if pixels.dtype.kind in "fb":
        pixels = np.rint(255 * np.clip(pixels, 0.0, 1.0))
    colours = np.clip(pixels[:, :, :3], 0, 255).astype(np.uint8)
    share = finest / max(colours.shape[:2])
    if share >= 1:
        return colours
    size = max(1, round(colours.shape[1] * share)), max(1, round(colours.shape[0] * share))
    return np.asarray(Image.fromarray(np.ascontiguousarray(colours)).resize(size, Image.Resampling.LANCZOS))


def veil(weights: np.ndarray, grid: Grid, shape: tuple[int, int], most: float, box: Box = WHOLE) -> np.ndarray:
    """Black over places without weight: height × width × 4. Weights are interpolated between places.

    Outside of the box, which the model does not read, it is darkest.
    """
    light = np.clip(np.nan_to_num(weights).reshape(grid.height, grid.width) / most, 0.0, 1.0)
    left, top, right, bottom = box
    smooth = _along(shape[0], grid.height, top, bottom) @ light @ _along(shape[1], grid.width, left, right).T
    black = np.zeros((*shape, 4))
    black[..., 3] = DARKEST * (1.0 - smooth)
    return black


def frame(weights: np.ndarray, grid: Grid, shape: tuple[int, int], box: Box = WHOLE) -> Line2D:
    """A line around the places with at least half of the largest weight; none where the weights are flat."""
    values = np.nan_to_num(weights).reshape(grid.height, grid.width)
    points = np.array([[*side, (np.nan, np.nan)] for side in _edges(values, shape, box)]).reshape(-1, 2)
    line = Line2D(points[:, 0], points[:, 1], color="white", linewidth=0.6, solid_capstyle="projecting")
    line.set_path_effects(
        [withStroke(linewidth=1.5, foreground="black")]
    )  # one line, so that white is never below black
    return line


def _edges(values: np.ndarray, shape: tuple[int, int], box: Box) -> list[list[tuple[float, float]]]:
    """The edges between places above half and places below, in pixels of the image."""
    most = float(values.max(initial=0.0))
    above = np.pad((values >= most / 2) & (most > 0 and not is_flat(values)), 1)
    across = box[0] + (box[2] - box[0]) * np.arange(values.shape[1] + 1) / values.shape[1]
    down = box[1] + (box[3] - box[1]) * np.arange(values.shape[0] + 1) / values.shape[0]
    x, y = across * shape[1] - 0.5, down * shape[0] - 0.5
    lying = np.argwhere(above[1:, 1:-1] != above[:-1, 1:-1])
    upright = np.argwhere(above[1:-1, 1:] != above[1:-1, :-1])
    edges = [[(x[column], y[row]), (x[column + 1], y[row])] for row, column in lying]
    return edges + [[(x[column], y[row]), (x[column], y[row + 1])] for row, column in upright]


def _along(pixels: int, places: int, start: float, end: float) -> np.ndarray:
    """The share of each place in each pixel along one side: linear between places, constant at the edges."""
    share = (np.arange(pixels) + 0.5) / pixels
    at = np.clip((share - start) / (end - start) * places - 0.5, 0, places - 1)
    near = np.clip(1.0 - np.abs(at[:, None] - np.arange(places)), 0.0, 1.0)
    return near * ((share >= start) & (share <= end))[:, None]
