"""Sequences of frames, such as those of a mouth: a folder of images, one stacked image, an array, or a video.

A `BadFrames` gives what is wrong in one sentence, without the name of the file. Files are not trusted: sizes are
checked before anything is decoded, and frames are counted while they are. Video is read with PyAV (the extra
``video``) in the format of its ending only: FFmpeg would otherwise follow a playlist to other files and to addresses.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from sightline.data import images
from sightline.data.disk import mapped
from sightline.data.images import BadImage, ImageLimits, fit_image, read_image
from sightline.data.tables import NO_FILE
from sightline.errors import UserError
from sightline.files import open_regular

if TYPE_CHECKING:
    from av import VideoFrame
    from av.video.stream import VideoStream

# By ending, the format of FFmpeg that it is read as.
VIDEO = {
    ".mp4": "mov",
    ".m4v": "mov",
    ".mov": "mov",
    ".avi": "avi",
    ".mkv": "matroska",
    ".webm": "matroska",
    ".mpg": "mpeg",
    ".mpeg": "mpeg",
}
ENDINGS = (*VIDEO, ".npy", *images.ENDINGS)


class BadFrames(ValueError):  # noqa: N818 - as `BadImage`
    """Frames that cannot be used. Its text is the reason, without the name of the file."""


@dataclass(frozen=True)
class FrameLimits:
    """How many frames there may be, how many pixels one may have, and how many bytes the file or all frames."""

    most_frames: int = 20_000
    most_pixels: int = 9_000_000
    most_bytes: int = 1_000_000_000

    def __post_init__(self) -> None:
        for name in ("most_frames", "most_pixels", "most_bytes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name):,}; it must be at least 1")

    @property
    def of_image(self) -> ImageLimits:
        return ImageLimits(min(self.most_pixels, images.MOST_PIXELS), self.most_bytes)

    def check(self, frames: int, height: int, width: int) -> None:
        """Refuse so many frames of this size."""
        if not height * width:
            raise BadFrames(f"its frames have no pixels: found {width} × {height}")
        if height * width > self.most_pixels:
            raise BadFrames(
                f"its frames are too large: found {width:,} × {height:,} pixels, expected at most {self.most_pixels:,}"
            )
        if frames > self.most_frames:
            raise BadFrames(f"it has too many frames: expected at most {self.most_frames:,}")
        if frames * height * width > self.most_bytes:
            raise BadFrames(f"its frames are too large together: expected at most {self.most_bytes:,} bytes")


LIMITS = FrameLimits()
Shape = tuple[int, int]  # height, width


def read_frames(
    source: Path,
    shape: Shape | None = None,
    limits: FrameLimits = LIMITS,
    *,
    stacked: int | None = None,
    colour: bool = False,
) -> np.ndarray:
    """The frames as uint8, frames × height × width, with ``colour`` × 3; fitted to ``shape``, if it is given.

    The images of a folder are in natural order: 2 before 10. ``stacked`` is how many rows a frame has in an image that
    has all frames below each other. An array that needs no change is mapped and not read.
    """
    ending = source.suffix.lower()
    with _as_bad_frames():
        if source.is_dir():
            return _of_folder(source, _Frames(shape, limits, colour))
        with open_regular(source, limits.most_bytes) as file:
            if not file.read(1):
                raise BadFrames("it is empty")
        if ending == ".npy":
            return _of_array(source, _Frames(shape, limits, colour))
        if ending in images.ENDINGS:
            return _of_stack(source, stacked, _Frames(shape, limits, colour))
        if ending in VIDEO:
            return _of_video(source, _Frames(shape, limits, colour))
    raise BadFrames(f"its ending is {ending or 'missing'}; expected a folder of images, or {', '.join(ENDINGS)}")


def frame_rate(source: Path) -> float | None:
    """The frames a second that a video states; None for what states none."""
    if source.suffix.lower() not in VIDEO or source.is_dir():
        return None
    with _as_bad_frames(), _video(source, LIMITS) as (_, stream):
        rate = stream.average_rate or stream.guessed_rate
        return float(rate) if rate else None


class _Frames:
    """Frames as they are read, all of one size."""

    def __init__(self, shape: Shape | None, limits: FrameLimits, colour: bool) -> None:
        self.shape, self.limits, self.colour = shape, limits, colour
        self.given = shape is not None
        self.frames: list[np.ndarray] = []

    def add(self, pixels: np.ndarray, name: str = "") -> None:
        """A frame, height × width or × 3."""
        size = pixels.shape[:2]
        self.limits.check(1, *size)
        self.shape = self.shape or (size[0], size[1])
        if size != self.shape and not self.given:
            raise BadFrames(
                f"frame {name or len(self.frames) + 1} has {size[1]} × {size[0]} pixels, and the first one "
                f"{self.shape[1]} × {self.shape[0]}; give a size that all are fitted to"
            )
        self.limits.check(len(self.frames) + 1, self.shape[0], self.shape[1] * (3 if self.colour else 1))
        self.frames.append(self.changed(pixels))

    def changed(self, pixels: np.ndarray) -> np.ndarray:
        if (pixels.ndim == 3) != self.colour:
            pixels = np.array(Image.fromarray(pixels).convert("RGB" if self.colour else "L"))
        return pixels if self.shape in (None, pixels.shape[:2]) else fit_image(pixels, *self.shape)

    def whole(self) -> np.ndarray:
        """All of them."""
        if not self.frames:
            raise BadFrames("it has no frames")
        return np.stack(self.frames)


def _of_folder(folder: Path, frames: _Frames) -> np.ndarray:
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.name.lower().endswith(images.ENDINGS):
                names.append(entry.name)
                frames.limits.check(len(names), 1, 1)
    if not names:
        raise BadFrames(f"it is a folder without images; expected {', '.join(images.ENDINGS)}")
    for name in sorted(names, key=_natural):
        try:
            frames.add(read_image(folder / name, frames.limits.of_image), name)
        except BadImage as error:
            raise BadFrames(f"frame {name}: {error}") from None
    return frames.whole()


def _natural(name: str) -> tuple[list[str | int], str]:
    parts = re.split(r"([0-9]+)", name.casefold())
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], name


def _of_stack(path: Path, rows: int | None, frames: _Frames) -> np.ndarray:
    if rows is None:
        raise BadFrames("it is one image; say how many rows a frame of it has, or give a folder of images")
    if rows < 1:
        raise UserError(f"stacked is {rows}; it must be at least 1")
    pixels = read_image(path, ImageLimits(most_bytes=frames.limits.most_bytes))
    if len(pixels) % rows:
        raise BadFrames(f"it has {len(pixels):,} rows, which is no multiple of the {rows:,} rows of a frame")
    pixels = pixels if frames.colour else np.array(Image.fromarray(pixels).convert("L"))
    for start in range(0, len(pixels), rows):
        frames.add(pixels[start : start + rows])
    return frames.whole()


def _of_array(path: Path, frames: _Frames) -> np.ndarray:
    try:
        array: np.ndarray = mapped(path)
    except ValueError as error:
        reason = str(error).removeprefix(f"{path.name}: ").rstrip(".")
        raise BadFrames(f"it is no array of NumPy, or it is truncated ({reason})") from None
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] not in (1, 3)):
        raise BadFrames(
            f"it holds {array.dtype} of shape {array.shape}; expected uint8 of frames × height × width, or these × 3"
        )
    array = array[..., 0] if array.ndim == 4 and array.shape[3] == 1 else array
    if not len(array):
        raise BadFrames("it has no frames")
    frames.limits.check(len(array), array.shape[1], array.shape[2] * (3 if array.ndim == 4 else 1))
    if (array.ndim == 4) == frames.colour and frames.shape in (None, array.shape[1:3]):
        return array
    for pixels in array:
        frames.add(np.ascontiguousarray(pixels))
    return frames.whole()


def _of_video(path: Path, frames: _Frames) -> np.ndarray:
    with _video(path, frames.limits) as (decoded, stream):
        for frame in decoded:
            frames.limits.check(len(frames.frames) + 1, frame.height, frame.width)
            pixels = frame.to_ndarray(format="rgb24" if frames.colour else "gray")
            frames.add(np.ascontiguousarray(np.rot90(pixels, round(frame.rotation / 90) % 4)))
        count, stated = len(frames.frames), stream.frames
    if 10 * count < 9 * stated:
        raise BadFrames(f"it is truncated: it has {count:,} of the {stated:,} frames that it states")
    return frames.whole()


@contextmanager
def _video(path: Path, limits: FrameLimits) -> "Iterator[tuple[Iterator[VideoFrame], VideoStream]]":
    """The first video stream of a file, with its frames."""
    try:
        import av
    except ImportError:
        raise UserError("video files need PyAV: pip install 'sightline[video]'") from None
    most = {"max_pixels": str(2 * limits.most_pixels + (1 << 16))}  # FFmpeg counts rows with what it pads them with
    try:
        with (
            open_regular(path, limits.most_bytes) as file,
            av.open(file, "r", VIDEO[path.suffix.lower()], most, metadata_errors="replace") as container,
        ):
            if not container.streams.video:
                raise BadFrames("it has no video")
            stream = container.streams.video[0]
            if stream.codec_context is None:
                raise BadFrames("its video is of a kind that FFmpeg does not know")
            stream.codec_context.options = most
            if not stream.width * stream.height:  # FFmpeg opens what has more, and leaves out its size
                raise BadFrames(
                    f"its frames are too large, or of no size: expected at most {limits.most_pixels:,} pixels"
                )
            limits.check(1, stream.height, stream.width)
            yield container.decode(stream), stream
    except (BadFrames, UserError):
        raise
    except Exception as error:  # PyAV raises many kinds for a file that is broken
        if isinstance(error, (OSError, MemoryError)) and not isinstance(error, av.FFmpegError):
            raise
        reason = str(getattr(error, "strerror", "") or error).partition("\n")[0][:200]
        raise BadFrames(f"it is no {path.suffix.lower()} video, or it is damaged ({reason})") from None


@contextmanager
def _as_bad_frames() -> Iterator[None]:
    """What goes wrong with a file, without its name."""
    try:
        yield
    except BadImage as error:
        raise BadFrames(str(error)) from None
    except FileNotFoundError:
        raise BadFrames(NO_FILE) from None
    except OSError as error:
        raise BadFrames(f"it cannot be read ({error.strerror or error})") from None
