"""The cells of an image with their labels, as a picture for a paper: tinted, with what each colour means."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sightline.errors import UserError
from sightline.picture import WHOLE, Box, Labelling
from sightline.view.cells import STRENGTH, colour_of
from sightline.view.fonts import widths
from sightline.view.layout import TALLEST, TEXT_WIDTH, fits, inches, line_of, size_for, thin_frame
from sightline.view.overlay import to_pixels
from sightline.view.pictures import save
from sightline.view.texts import shown

GROUND = 232  # the grey of a grid that has no image
CELL = 14  # pixels of a cell of it
SWATCH = 0.11  # inches


def label_cells(
    cells: Labelling,
    path: Path,
    *,
    image: np.ndarray | None = None,
    box: Box = WHOLE,
    title: str | None = None,
    width: float = TEXT_WIDTH / 2,
) -> Path:
    """The image with its cells tinted by their labels, and below it how many cells have which.

    ``box`` is where the cells lie over the image, as `sightline.picture.Picture` has it.
    """
    rows, columns = cells.labels.shape
    if not cells.labels.size:
        raise UserError("there are no cells to draw")
    if image is None:
        pixels = np.full((rows * CELL, columns * CELL, 3), GROUND, dtype=np.uint8)
    else:
        pixels = to_pixels(image)
    size = size_for(width)
    line = line_of(size)
    names = [f"{shown(name, 40)} {np.sum(cells.labels == label):,}" for label, name in enumerate(cells.names)]
    places = _flowed(names, width, size)
    above = 1.8 * line if title else 0.02
    below = (places[-1][1] + 1.6) * line
    tall = min(width * pixels.shape[0] / pixels.shape[1], TALLEST - above - below)
    figure = Figure(figsize=(width, above + tall + below))
    axes = figure.add_axes(inches(figure, 0.0, below, width, tall))
    high, wide = pixels.shape[:2]
    axes.imshow(pixels, aspect="equal", interpolation="antialiased")
    axes.imshow(
        _tints(cells),
        aspect="equal",
        interpolation="nearest",
        extent=(box[0] * wide - 0.5, box[2] * wide - 0.5, box[3] * high - 0.5, box[1] * high - 0.5),
    )
    axes.set(xticks=[], yticks=[], xlim=(-0.5, wide - 0.5), ylim=(high - 0.5, -0.5))
    thin_frame(axes)
    page = figure.add_axes(inches(figure, 0.0, 0.0, width, below))
    page.set(xlim=(0, width), ylim=(below, 0))
    page.axis("off")
    for label, (text, (left, row)) in enumerate(zip(names, places, strict=True)):
        top = (row + 0.5) * line
        colour = _colour(cells, label)
        face = "white" if colour is None else tuple(colour / 255)
        page.add_patch(
            Rectangle((left + 0.01, top), SWATCH, SWATCH, facecolor=face, edgecolor="#666666", linewidth=0.4)
        )
        page.text(left + SWATCH + 0.06, top + SWATCH / 2, text, fontsize=size, va="center", parse_math=False)
    if title:
        text = shown(title, fits(title, size + 1, width))
        figure.text(0.5, 1.0, text, fontsize=size + 1, ha="center", va="top", parse_math=False)
    return save(figure, path)


def _tints(cells: Labelling) -> np.ndarray:
    """Height × width × 4 from 0 to 1: the colour of each cell, and nothing where nothing is."""
    found = np.zeros((*cells.labels.shape, 4))
    for label in range(len(cells.names)):
        colour = _colour(cells, label)
        if colour is not None:
            found[cells.labels == label] = (*(colour / 255), STRENGTH)
    return found


def _colour(cells: Labelling, label: int) -> np.ndarray | None:
    coloured = [number for number, name in enumerate(cells.names) if name != cells.plain]
    return colour_of(coloured.index(label) + 1) if label in coloured else None


def _flowed(names: list[str], width: float, size: float) -> list[tuple[float, int]]:
    """Where each entry of the legend begins: inches from the left, and its line."""
    left, row = 0.0, 0
    places = []
    for wide in widths(names, size):
        if left and left + wide + SWATCH + 0.06 > width:
            left, row = 0.0, row + 1
        places.append((left, row))
        left += wide + SWATCH + 0.26
    return places
