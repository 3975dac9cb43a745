"""Labels of the cells of an image: over it, as a mask, as plain data, as a picture for a paper."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.picture import WHOLE, Box, Labelling, colours_of
from sightline.view.fonts import widths
from sightline.view.highlight import sheet
from sightline.view.layout import TALLEST, TEXT_WIDTH, add_title, inches, line_of, show_image, size_for
from sightline.view.overlay import to_pixels
from sightline.view.pictures import save
from sightline.view.words import shown

# The colours of Okabe and Ito, distinct for every kind of colour vision; the ground has none.
COLOURS = ((213, 94, 0), (0, 114, 178), (240, 228, 66), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))
STRENGTH = 0.45  # of the colour of a cell over the image
SHOWN = 512  # pixels along the longer side of a grid of features that has no image


def colour_of(label: int) -> np.ndarray:
    return np.array(COLOURS[(label - 1) % len(COLOURS)], dtype=np.float64)


def picture(
    values: np.ndarray,
    labels: np.ndarray,
    cell: int,
    *,
    pixels: np.ndarray | None = None,
    gold: np.ndarray | None = None,
) -> np.ndarray:
    """The image with its cells tinted by their labels, each with a thin edge.

    ``pixels`` of a class keep the image's own colours, so that what was marked can be checked, inside a line of the
    class's colour. Cells whose ``gold`` label is another have a white edge. The ground (label 0) is not tinted.
    """
    image, cell = _image(values, labels.shape, cell)
    height, width = image.shape[:2]
    tinted = image.astype(np.float64)
    large = _large(labels, cell)[:height, :width]
    for label in sorted(set(labels.ravel().tolist()) - {0}):
        here = large == label
        strength = STRENGTH if pixels is None else STRENGTH / 2
        tinted[here] = (1 - strength) * tinted[here] + strength * colour_of(label)
        edge = here & ~_inside(here)
        tinted[edge] = 0.35 * tinted[edge] + 0.65 * colour_of(label)
    if pixels is not None:
        marked = pixels > 0
        for label in sorted(set(pixels.ravel().tolist()) - {0}):
            tinted[~_inside(pixels != label) & (pixels != label)] = colour_of(label)
        tinted[marked] = image[marked]
    if gold is not None:
        wrong = _large((gold != labels) & (gold >= 0), cell)[:height, :width]
        frame = np.ones((cell, cell), dtype=bool)
        frame[1:-1, 1:-1] = False
        edges = np.tile(frame, labels.shape)[:height, :width]
        tinted[wrong & edges] = 255
    return np.clip(np.rint(tinted), 0, 255).astype(np.uint8)


def _image(values: np.ndarray, shape: tuple[int, ...], cell: int) -> tuple[np.ndarray, int]:
    """Pixels, and the side of a cell in pixels; features become a grey picture of their means."""
    if values.dtype == np.uint8:
        return values, cell
    size = max(3, SHOWN // max(shape))
    means = values.mean(axis=-1)
    low, high = float(means.min()), float(means.max())
    grey = np.rint(255 * (means - low) / max(high - low, 1e-12)).astype(np.uint8)
    return np.repeat(_large(grey, size)[:, :, None], 3, axis=2), size


def _large(cells: np.ndarray, cell: int) -> np.ndarray:
    return cells.repeat(cell, axis=0).repeat(cell, axis=1)


def _inside(marked: np.ndarray) -> np.ndarray:
    """Pixels with only marked neighbours; pixels outside of the image count as marked."""
    wide = np.pad(marked, 1, constant_values=True)
    return wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:] & marked


def save_picture(pixels: np.ndarray, path: Path) -> Path:
    """Write an image, height × width × 3, in the format of the ending."""
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise UserError(f"{path} is not the name of a picture; it must end in .png, .jpg or .webp")
    with whole_file(path) as part:
        Image.fromarray(pixels).save(part)
    return path


def save_mask(classes: np.ndarray, values: Sequence[int], path: Path) -> Path:
    """Write a mask with the values of the training masks: grey of 8 or 16 bits, or colours.

    Labels from arrays may have values that no image can hold: then the numbers of the classes are written.
    """
    given = np.array(values, dtype=np.int64)
    colours = colours_of(given)
    if given.max() < 256:
        image = Image.fromarray(given.astype(np.uint8)[classes])
    elif given.max() < 65536:
        image = Image.fromarray(given.astype(np.uint16)[classes])
    elif colours is not None:
        image = Image.fromarray(colours[classes])
    else:
        image = Image.fromarray(classes.astype(np.uint8))
    with whole_file(path) as part:
        image.save(part, format="PNG")
    return path


def save_json(data: dict[str, Any], path: Path) -> Path:
    return write_text(path, json.dumps(data, ensure_ascii=False, allow_nan=False) + "\n")


# --- A picture for a paper: tinted cells, and a legend of the colours.

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
    """The image with its cells tinted by their labels, and below it the number of cells of each label.

    ``box`` is where the cells lie over the image (`sightline.picture.Picture`).
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
    show_image(axes, pixels)
    axes.imshow(
        _tints(cells),
        aspect="equal",
        interpolation="nearest",
        extent=(box[0] * wide - 0.5, box[2] * wide - 0.5, box[3] * high - 0.5, box[1] * high - 0.5),
    )
    page = sheet(figure, 0.0, above + tall, width, below)
    for label, (text, (left, row)) in enumerate(zip(names, places, strict=True)):
        top = (row + 0.5) * line
        colour = _colour(cells, label)
        face = "white" if colour is None else tuple(colour / 255)
        page.add_patch(
            Rectangle((left + 0.01, top), SWATCH, SWATCH, facecolor=face, edgecolor="#666666", linewidth=0.4)
        )
        page.text(left + SWATCH + 0.06, top + SWATCH / 2, text, fontsize=size, va="center", parse_math=False)
    add_title(figure, title, size + 1, width)
    return save(figure, path)


def _tints(cells: Labelling) -> np.ndarray:
    """Height × width × 4 from 0 to 1: the colour of each cell, and none for the plain label."""
    tints = np.zeros((*cells.labels.shape, 4))
    for label in range(len(cells.names)):
        colour = _colour(cells, label)
        if colour is not None:
            tints[cells.labels == label] = (*(colour / 255), STRENGTH)
    return tints


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
