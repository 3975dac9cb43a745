"""Images out of files: upright, in colour, eight bits, and no larger than agreed.

A `BadImage` gives what is wrong with a file in one sentence, without the file's name; the caller decides how many bad
ones are too many. Files are not trusted: only common formats are read, and the size that a header states and the number
of the file's parts are checked before anything is decoded. All images are decoded here, those of the server in a
process that can be killed (`sightline.data.decoding`).
"""

import hashlib
import io
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from sightline.data.disk import hash_of
from sightline.data.image_parts import MOST_TILES, too_many_parts
from sightline.data.tables import open_named, too_many_bytes
from sightline.data.workers import in_order
from sightline.errors import UserError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
MOST_PIXELS = 178_000_000  # Pillow itself refuses more
MOST_SIDE = 16_384  # of what an image is fitted to
BAND = 4_000_000  # pixels that are turned into RGB at once
LARGE = 20_000_000  # pixels from which on images are decoded one at a time: several copies of one are made on the way

Fit = Literal["stretch", "crop", "pad"]
Box = tuple[int, int, int, int]  # left, top, right, bottom

ORIENTATION = 0x0112
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_WITH_ALPHA = ("LA", "La", "PA", "RGBA", "RGBa")


class BadImage(ValueError):  # noqa: N818 - it is also a value, in the place of an image
    """An image that cannot be used. Its text is the reason, without the name of the file."""


@dataclass(frozen=True)
class ImageLimits:
    """How large an image may be: what its header says, and the file itself."""

    most_pixels: int = 100_000_000
    most_bytes: int = 200_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.most_pixels <= MOST_PIXELS:
            raise UserError(f"most_pixels is {self.most_pixels:,}; it must be at least 1 and at most {MOST_PIXELS:,}")
        if self.most_bytes < 1:
            raise UserError(f"most_bytes is {self.most_bytes:,}; it must be at least 1")


LIMITS = ImageLimits()


class Fitting(NamedTuple):
    """Which part of an image goes where: the box ``of`` the image fills the box ``to`` of what it is fitted to."""

    of: Box
    to: Box


def read_image(source: Path | bytes, limits: ImageLimits = LIMITS) -> np.ndarray:
    """The pixels, height × width × 3 of uint8: turned as its EXIF says, 16 bits scaled to 8, alpha laid over white."""
    with open_image(source, limits) as image:
        return _in_turn(image, lambda: _array(_upright_colour(image)))


def read_fitted(
    source: Path | bytes, height: int, width: int, fit: Fit = "stretch", limits: ImageLimits = LIMITS
) -> np.ndarray:
    """As `read_image` and then `fit_image`, but quicker for a large JPEG, which is decoded at a part of its size.

    It is never decoded at less than twice the size asked for, so that shrinking it the rest of the way leaves no trace.
    """
    _check_side(height, width)
    with open_image(source, limits) as image:
        least = 2 * max(height, width)  # which side is which is known only when it stands upright
        if min(image.size) > least:
            image.draft("RGB", (least, least))
        return _in_turn(image, lambda: _fitted(_upright_colour(image), height, width, fit))


def fit_image(pixels: np.ndarray, height: int, width: int, fit: Fit = "stretch", *, smooth: bool = True) -> np.ndarray:
    """The image at another size. ``stretch`` gives up its proportions, ``crop`` its edges, ``pad`` adds black ones.

    ``smooth`` averages where it shrinks; without it every pixel is one that was there, as labels in a mask need it.
    """
    _check_side(height, width)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise ValueError(f"found {pixels.dtype} of shape {pixels.shape}; expected uint8, height × width (× 3)")
    return _fitted(Image.fromarray(pixels), height, width, fit, smooth)


def fitting(height: int, width: int, to_height: int, to_width: int, fit: Fit) -> Fitting:
    """How an image of one size is fitted to another, as `fit_image` does it."""
    of, to = (0, 0, width, height), (0, 0, to_width, to_height)
    if fit == "crop":
        scale = max(to_height / height, to_width / width)
        kept_height, kept_width = (min(height, round(to_height / scale)), min(width, round(to_width / scale)))
        top, left = (height - kept_height) // 2, (width - kept_width) // 2
        return Fitting((left, top, left + max(1, kept_width), top + max(1, kept_height)), to)
    if fit == "pad":
        scale = min(to_height / height, to_width / width)
        new_height, new_width = (min(to_height, round(height * scale)), min(to_width, round(width * scale)))
        new_height, new_width = max(1, new_height), max(1, new_width)
        top, left = (to_height - new_height) // 2, (to_width - new_width) // 2
        return Fitting(of, (left, top, left + new_width, top + new_height))
    return Fitting(of, to)


def read_images(
    sources: Iterable[Path | bytes],
    height: int,
    width: int,
    fit: Fit = "stretch",
    *,
    workers: int | None = None,
    limits: ImageLimits = LIMITS,
) -> Iterator[tuple[int, "np.ndarray | BadImage"]]:
    """The images one after the other, each with its number, fitted; a bad one is yielded and does not raise.

    They are decoded ahead in ``workers`` threads (None: one for each processor, at most 8; 0: none), which is enough:
    decoding and resizing let other threads run. No more than four images a worker wait to be taken. Of large images
    one is decoded at a time, so that a few of them do not fill the memory.
    """
    count = min(8, os.cpu_count() or 1) if workers is None else workers
    if count < 0:
        raise ValueError(f"workers is {count}; it must be at least 0")

    def read(source: Path | bytes) -> "np.ndarray | BadImage":
        try:
            return read_fitted(source, height, width, fit, limits)
        except BadImage as error:
            return error

    if not count:
        yield from enumerate(map(read, sources))
        return
    pool = ThreadPoolExecutor(count, thread_name_prefix="images")
    try:
        yield from enumerate(in_order(pool, read, sources, 4 * count + 1))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # the garbage collector may end an iterator, anywhere


@contextmanager
def open_image(source: Path | bytes, limits: ImageLimits) -> Iterator[Image.Image]:
    """An image whose header is good. Whatever goes wrong while it is decoded in the block is a `BadImage` too."""
    content = source if isinstance(source, bytes) else _content(source, limits)
    if not content:
        raise BadImage("it is empty")
    if len(content) > limits.most_bytes:
        raise BadImage(too_many_bytes(len(content), limits.most_bytes))
    if (problem := too_many_parts(content)) is not None:
        raise BadImage(problem)
    try:
        with _quiet(), Image.open(io.BytesIO(content), formats=FORMATS) as image:
            height, width = image.height, image.width
            if height * width > limits.most_pixels:
                raise BadImage(
                    f"it is too large: found {width:,} × {height:,} pixels, expected at most {limits.most_pixels:,}"
                )
            if not height * width:
                raise BadImage(f"it has no pixels: found {width} × {height}")
            if len(image.tile) > MOST_TILES:
                raise BadImage(f"it has too many parts: {len(image.tile):,} tiles; expected at most {MOST_TILES:,}")
            yield image
    except (BadImage, MemoryError):
        raise
    except Image.UnidentifiedImageError:
        if content[4:8] == b"ftyp":  # HEIF, of which HEIC and AVIF are kinds
            raise BadImage("it is a HEIC or AVIF image: convert it to JPEG or PNG first") from None
        raise BadImage(f"it is no image: expected {', '.join(FORMATS[:-1])} or {FORMATS[-1]}") from None
    except Image.DecompressionBombError as error:
        number = re.search(r"(\d+) pixels", str(error))
        pixels = f"{int(number[1]):,}" if number else f"more than {MOST_PIXELS:,}"
        raise BadImage(f"it is too large: found {pixels} pixels, expected at most {limits.most_pixels:,}") from None
    except Exception as error:  # Pillow raises nearly every kind of exception for a file that is broken
        reason = str(error).partition("\n")[0].rstrip(".")[:200] or type(error).__name__
        kind = "truncated" if "truncated" in reason.lower() else "damaged"
        raise BadImage(f"it is {kind} ({reason})") from None


def _content(path: Path, limits: ImageLimits) -> bytes:
    with open_named(path, limits.most_bytes, BadImage, "an image") as file:
        return file.read(limits.most_bytes + 1)


_large_one = threading.Lock()


def _in_turn(image: Image.Image, make: Callable[[], np.ndarray]) -> np.ndarray:
    """What is made of an image; a large one, at the size at which it is decoded, waits until no other one is in work.

    It is decoded in a thread that ends with it: memory that was freed stays with the thread that had asked for it, and
    each of some threads would keep that of a large image.
    """
    if image.width * image.height <= LARGE:
        return make()
    with _large_one, ThreadPoolExecutor(1, thread_name_prefix="large") as thread:
        try:
            return thread.submit(make).result()
        finally:
            image.close()  # its pixels go before those of the next one come


def _check_side(height: int, width: int) -> None:
    for name, side in (("height", height), ("width", width)):
        if not 1 <= side <= MOST_SIDE:
            raise ValueError(f"{name} is {side}; it must be at least 1 and at most {MOST_SIDE}")


def _upright_colour(image: Image.Image) -> Image.Image:
    image.load()
    colour = _in_colour(image)
    try:
        turn = image.getexif().get(ORIENTATION)  # after loading: the reader of TIFF turns by itself
    except Exception:  # a broken note about an image does not make the image bad
        turn = None
    if colour is not image:
        image.close()  # a large image is held once, not twice
    return colour.transpose(UPRIGHT[turn]) if turn in UPRIGHT else colour


def _in_colour(image: Image.Image) -> Image.Image:
    """Some rows at a time: what is made on the way to RGB takes several times the memory of the image."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    top = _top_of(image) if image.mode in ("F", "I") else 65535.0
    colour = Image.new("RGB", image.size)
    for start, band in _bands(image):
        colour.paste(_band_in_colour(band, top), (0, start))
    return colour


def _bands(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Some rows of an image at a time, with the number of the first one."""
    step = max(1, BAND // image.width)
    for start in range(0, image.height, step):
        yield start, image.crop((0, start, image.width, min(image.height, start + step)))


def _array(image: Image.Image) -> np.ndarray:
    """Its pixels, without a second copy on the way."""
    pixels = np.empty((image.height, image.width, 3), dtype=np.uint8)
    for start, band in _bands(image):
        pixels[start : start + band.height] = np.asarray(band)
    return pixels


def _band_in_colour(image: Image.Image, top: float) -> Image.Image:
    if image.mode == "F" or image.mode.startswith("I"):
        return Image.fromarray(_eight_bits(image, top)).convert("RGB")
    if image.mode in _WITH_ALPHA or "transparency" in image.info:
        over = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image, top: float) -> np.ndarray:
    """Grey of more than eight bits, whose white is ``top``."""
    values = np.asarray(image)
    if image.mode.startswith("I;16"):
        clear = image.info.get("transparency")
        if isinstance(clear, int):
            values = np.where(values == clear, 65535, values)
        return np.rint(values / 257).astype(np.uint8)
    return np.rint(values * (255 / top)).astype(np.uint8)


def _top_of(image: Image.Image) -> float:
    """What 32 bits mean is seen from their range."""
    values = np.asarray(image)
    low, high = float(values.min()), float(values.max())
    tops = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
    top = next((top for top in tops if high <= top), None)
    if not low >= 0 or top is None:  # also where there is a NaN
        raise BadImage(
            f"its values are not those of an image: found {low:g} to {high:g} in 32 bits, expected 0 to 1, 255 or 65535"
        )
    return top


def _fitted(image: Image.Image, height: int, width: int, fit: Fit, smooth: bool = True) -> np.ndarray:
    of, to = fitting(image.height, image.width, height, width, fit)
    size = (to[2] - to[0], to[3] - to[1])
    if of != (0, 0, *image.size) or size != image.size:
        # Pillow averages over all the pixels that fall into one, which torch's and NumPy's usual ways do not.
        image = image.resize(size, Image.Resampling.BICUBIC if smooth else Image.Resampling.NEAREST, box=of)
    if size == (width, height):
        return np.array(image)
    padded = Image.new(image.mode, (width, height))
    padded.paste(image, to[:2])
    return np.array(padded)


_quiet_lock = threading.Lock()
_quiet_users = 0
_quiet_before: warnings.catch_warnings | None = None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Pillow's warnings about a file: a `BadImage` gives what matters of them.

    The filters of warnings are the whole process's: the first thread that comes in sets them, the last one out puts
    them back.
    """
    global _quiet_users, _quiet_before
    with _quiet_lock:
        if not _quiet_users:
            _quiet_before = warnings.catch_warnings()
            _quiet_before.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\.")
        _quiet_users += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_users -= 1
            if not _quiet_users and _quiet_before is not None:
                _quiet_before.__exit__(None, None, None)
                _quiet_before = None


KEYS = "images.npy"  # below the run's data: the keys of its images


def image_key(path: Path) -> int:
    """A number for the content of an image, or for its path where it cannot be read, which is reported later."""
    try:
        if path.is_dir():  # a clip: the names and contents of its files
            inside = sorted(one for one in path.iterdir() if one.is_file())
            return hash_of("\0".join(f"{one.name}\0{image_key(one)}" for one in inside))
        if path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).digest()
                return int.from_bytes(digest, "big") or 1
    except (OSError, ValueError):
        pass
    return hash_of(f"\0{path}")
