"""The image of an explanation: a small picture of it, and labels for the cells of a grid over it.

Plain data like the rest of an explanation. Pillow reads and writes the file.
"""

import io
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np

LONGEST = 512  # pixels along the longer side: enough for a page, and a page may have many
MOST_BYTES = 2 << 20  # of the file; uncompressed pixels take half of that
MOST_CELLS = 1 << 20
FARTHEST = 20_000.0  # of a box from its picture: one row of pixels padded to a large square
WHOLE = (0.0, 0.0, 1.0, 1.0)
KINDS = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
QUALITY = 90
EXACT = 32 << 10  # bytes up to which pixels are kept without loss
_NO_RED = 1 << 24
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Picture:
    """The image that a model read, as a small PNG or JPEG file.

    ``box`` is where a grid lies over it: left, top, right and bottom as fractions of its width and height. A model that
    crops the image has a smaller box than the whole, one that pads it a larger one.
    """

    content: bytes
    width: int
    height: int
    name: str = ""
    box: Box = WHOLE

    def __post_init__(self) -> None:
        if len(self.content) > MOST_BYTES:
            raise ValueError(f"the picture has {len(self.content):,} bytes; it may have {MOST_BYTES:,}")
        if not (1 <= self.width <= LONGEST and 1 <= self.height <= LONGEST):
            raise ValueError(f"the picture is {self.width} × {self.height}; a side may have 1 to {LONGEST} pixels")
        left, top, right, bottom = self.box
        if not (all(abs(one) <= FARTHEST for one in self.box) and left < right and top < bottom):
            raise ValueError(f"the box of the picture is {self.box}; expected left < right and top < bottom, near it")
        with self._opened() as file:
            if file.size != (self.width, self.height):  # a page trusts these numbers
                raise ValueError(f"the picture is {file.size}, but its size is given as {(self.width, self.height)}")

    @property
    def kind(self) -> str:
        """Its media type."""
        for start, kind in KINDS.items():
            if self.content.startswith(start):
                return kind
        raise ValueError("the picture is neither PNG nor JPEG")

    @classmethod
    def of(
        cls,
        pixels: np.ndarray,
        name: str = "",
        *,
        fit: Literal["stretch", "crop", "pad"] = "stretch",
        shape: tuple[int, int] | None = None,
    ) -> "Picture":
        """The picture of an image (uint8: height × width × 3), made smaller if it is large.

        ``fit`` and ``shape`` (height, width) are how a model prepares the image.
        """
        from PIL import Image

        if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size or pixels.dtype != np.uint8:
            raise ValueError(f"an image is height × width × 3 of uint8; this is {pixels.shape} of {pixels.dtype}")
        height, width = pixels.shape[:2]
        small = Image.fromarray(np.ascontiguousarray(pixels))
        if max(height, width) > LONGEST:
            share = LONGEST / max(height, width)
            size = max(1, round(width * share)), max(1, round(height * share))
            small = small.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0)
        png, jpeg = io.BytesIO(), io.BytesIO()
        small.save(png, "PNG")
        small.save(jpeg, "JPEG", quality=QUALITY, subsampling=0)
        # drawings and small images are kept without loss, photographs small
        exact = len(png.getvalue()) <= max(len(jpeg.getvalue()), EXACT)
        content = png.getvalue() if exact else jpeg.getvalue()
        return cls(content, small.width, small.height, name, fitted_box(height, width, fit, shape))

    def pixels(self) -> np.ndarray:
        """Height × width × 3 of uint8."""
        with self._opened() as file:
            try:
                return np.asarray(file.convert("RGB"))
            except (OSError, SyntaxError, ValueError) as error:
                raise ValueError(f"the picture is damaged: {error}") from None

    def _opened(self) -> Any:
        from PIL import Image

        try:
            return Image.open(io.BytesIO(self.content), formats=(self.kind.removeprefix("image/").upper(),))
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(f"the picture cannot be read: {error}") from None

    def to_json(self) -> dict[str, Any]:
        content = b64encode(self.content).decode()
        size = {"width": self.width, "height": self.height}
        return {"name": self.name, **size, "box": list(self.box), "kind": self.kind, "content": content}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Picture":
        if len(data["content"]) > 2 * MOST_BYTES:
            raise ValueError(f"the picture is larger than the {MOST_BYTES:,} bytes that it may have")
        left, top, right, bottom = map(float, data["box"])
        content = b64decode(data["content"], validate=True)
        return cls(content, data["width"], data["height"], data["name"], (left, top, right, bottom))


def fitted_box(height: int, width: int, fit: str, shape: tuple[int, int] | None) -> Box:
    """The part of the image that a model reads when it is stretched, cropped or padded to a shape.

    In whole pixels, as in `sightline.data.images.fit_image`: cropped or padded on both sides alike.
    """
    if fit == "stretch" or shape is None:
        return WHOLE
    scales = shape[0] / height, shape[1] / width
    scale = max(scales) if fit == "crop" else min(scales)
    side = _cropped if fit == "crop" else _padded
    (top, bottom), (left, right) = side(height, shape[0], scale), side(width, shape[1], scale)
    return left, top, right, bottom


def _cropped(size: int, to: int, scale: float) -> tuple[float, float]:
    kept = min(size, round(to / scale))
    start = (size - kept) // 2
    return start / size, (start + max(1, kept)) / size


def _padded(size: int, to: int, scale: float) -> tuple[float, float]:
    new = max(1, min(to, round(size * scale)))
    start = (to - new) // 2
    return -start / new, (to - start) / new


def numbers_of(colours: np.ndarray) -> np.ndarray:
    """A number for each colour (uint8, ... × 3) of a mask: 0xRRGGBB, or the value of grey, as in a grey image.

    A colour without red would equal a grey of 16 bits and is 0x1000000 higher: numbers are unique.
    """
    red, green, blue = np.moveaxis(colours.astype(np.int32), -1, 0)
    numbers = np.where(red > 0, red << 16, _NO_RED) + (green << 8) + blue
    return np.where((red == green) & (green == blue), red, numbers)


def colours_of(numbers: np.ndarray) -> np.ndarray | None:
    """The colours of these numbers; None where a number has no colour."""
    parts = [np.where(numbers < 256, numbers, numbers >> shift) & 255 for shift in (16, 8, 0)]
    colours = np.stack(parts, axis=-1).astype(np.uint8)
    return colours if np.array_equal(numbers_of(colours), numbers) else None


@dataclass(frozen=True, eq=False)
class Labelling:
    """A label for each cell of a grid, row by row, and its probability.

    ``labels`` are numbers of ``names``. ``plain`` is the label of the background, which is not coloured.
    """

    names: tuple[str, ...]
    labels: np.ndarray  # height, width: int32
    probabilities: np.ndarray  # height, width: float32
    plain: str | None = None

    def __post_init__(self) -> None:
        if self.labels.ndim != 2 or self.labels.shape != self.probabilities.shape:
            shapes = f"labels has shape {self.labels.shape} and probabilities {self.probabilities.shape}"
            raise ValueError(f"{shapes}; both are height × width")
        if self.labels.size > MOST_CELLS:
            raise ValueError(f"there are {self.labels.size:,} cells; there may be {MOST_CELLS:,}")
        if self.labels.size and not 0 <= self.labels.min() <= self.labels.max() < len(self.names):
            between = f"labels lie between {self.labels.min()} and {self.labels.max()}"
            raise ValueError(f"{between}; there are {len(self.names)} names")
        if self.plain is not None and self.plain not in self.names:
            raise ValueError(f"plain is {self.plain!r}; the names are {', '.join(self.names)}")

    def to_json(self) -> dict[str, Any]:
        probabilities = [[one if isfinite(one) else None for one in row] for row in self.probabilities.tolist()]
        labels = self.labels.tolist()
        return {"names": list(self.names), "plain": self.plain, "labels": labels, "probabilities": probabilities}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Labelling":
        labels = np.array(data["labels"], dtype=np.int32)
        probabilities = np.array(data["probabilities"], dtype=np.float32)  # None becomes NaN
        if not labels.size:
            labels, probabilities = labels.reshape(0, 0), probabilities.reshape(0, 0)
        return cls(tuple(data["names"]), labels, probabilities, data["plain"])
