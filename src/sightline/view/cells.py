"""What was said of the cells of an image: laid over it, as a mask, as plain data."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.picture import colours_of

# Okabe and Ito's colours, told apart by every kind of colour vision; the ground has none.
COLOURS = ((213, 94, 0), (0, 114, 178), (240, 228, 66), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))
STRENGTH = 0.45  # of a cell's colour over the image
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
    """The image with its cells tinted by their labels, each with a thin edge; ``pixels`` of a class in full colour.

    Cells whose ``gold`` label is another have a white edge. The ground (label 0) is left as it is.
    """
    image, cell = _image(values, labels.shape, cell)
    height, width = image.shape[:2]
    found = image.astype(np.float64)
    large = _large(labels, cell)[:height, :width]
    for label in sorted(set(labels.ravel().tolist()) - {0}):
        here = large == label
        strength = STRENGTH if pixels is None else STRENGTH / 2
        found[here] = (1 - strength) * found[here] + strength * colour_of(label)
        if pixels is not None:
            found[pixels == label] = colour_of(label)
        edge = here & ~_inside(here)
        found[edge] = 0.35 * found[edge] + 0.65 * colour_of(label)
    if gold is not None:
        wrong = _large((gold != labels) & (gold >= 0), cell)[:height, :width]
        frame = np.ones((cell, cell), dtype=bool)
        frame[1:-1, 1:-1] = False
        edges = np.tile(frame, labels.shape)[:height, :width]
        found[wrong & edges] = 255
    return np.clip(np.rint(found), 0, 255).astype(np.uint8)


def _image(values: np.ndarray, shape: tuple[int, ...], cell: int) -> tuple[np.ndarray, int]:
    """Pixels, and how many of them are along a cell; features become a grey picture of their means."""
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
    """What has only marked pixels beside it; behind the edge of the image all are."""
    wide = np.pad(marked, 1, constant_values=True)
    return wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:] & marked


def save_picture(pixels: np.ndarray, path: Path) -> Path:
    """Write an image, height × width × 3, as the ending says."""
    if path.suffix.lower() not in (".png", ".jpg", ".jpeg", ".webp"):
        raise UserError(f"{path} is to be a picture; its name must end in .png, .jpg or .webp")
    with whole_file(path) as part:
        Image.fromarray(pixels).save(part)
    return path


def save_mask(classes: np.ndarray, values: Sequence[int], path: Path) -> Path:
    """Write a mask with the values that the masks of the training data had: grey of 8 or 16 bits, or colours.

    Labels out of arrays may be what no image can hold: then the numbers of the classes are written.
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
