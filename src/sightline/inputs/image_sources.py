"""Images as an encoder takes them: out of files, bytes or pixels, some at a time, the bad ones named."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sightline.data.images import LIMITS, BadImage, ImageLimits, fit_image, read_image, read_images
from sightline.errors import UserError
from sightline.nn.image import ImageEncoderConfig

AT_ONCE = 64  # images that are in work together
Source = Path | str | bytes | np.ndarray  # an image: its file, what is in the file, or its pixels


class Some(NamedTuple):
    """Pixels of the good images among some, with their numbers; what is wrong with the bad ones, by number."""

    pixels: np.ndarray
    numbers: list[int]
    bad: dict[int, str]


def read_some(
    images: Sequence[Source],
    how: ImageEncoderConfig,
    at_once: int = AT_ONCE,
    *,
    limits: ImageLimits = LIMITS,
    workers: int | None = None,
) -> Iterator[Some]:
    """All images in the size that the encoder takes, in order; files are decoded ahead in other threads."""
    files = [one if isinstance(one, bytes) else Path(one) for one in images if not isinstance(one, np.ndarray)]
    reading = read_images(
        files, how.size, how.size, how.fit, limits=limits, workers=workers if len(files) > 1 or workers else 0
    )
    pixels: list[np.ndarray] = []
    numbers: list[int] = []
    bad: dict[int, str] = {}
    for number, image in enumerate(images):
        found = _fitted(image, how) if isinstance(image, np.ndarray) else next(reading)[1]
        if isinstance(found, BadImage):
            bad[number] = str(found)
        else:
            pixels.append(found)
            numbers.append(number)
        if len(pixels) == at_once or number == len(images) - 1:
            shape = (0, how.size, how.size, 3)
            yield Some(np.stack(pixels) if pixels else np.zeros(shape, np.uint8), numbers, bad)
            pixels, numbers, bad = [], [], {}


def check_several(images: Any) -> None:
    """One path would be read letter by letter."""
    if isinstance(images, str | bytes | Path | np.ndarray):
        raise UserError("images is one image; expected a list of images")


def named(image: Source, number: int) -> str:
    """What errors call an image."""
    return str(image) if isinstance(image, Path | str) else f"image {number + 1}"


def pixels_of(image: Source) -> np.ndarray:
    """The pixels of one image, in the size that it has."""
    if isinstance(image, np.ndarray):
        return image
    return read_image(image if isinstance(image, bytes) else Path(image))


def _fitted(pixels: np.ndarray, how: ImageEncoderConfig) -> "np.ndarray | BadImage":
    if pixels.ndim != 3 or pixels.shape[-1] != 3:
        return BadImage(f"found an array of shape {pixels.shape}, expected height × width × 3")
    try:
        return fit_image(pixels, how.size, how.size, how.fit)
    except ValueError as error:
        return BadImage(str(error))
