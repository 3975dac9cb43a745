"""Images decoded in a process of its own, which is killed if one takes too long: a decoder cannot be interrupted.

`Decoding` starts the process (`python -m sightline.data.decoding`) for the first image, and another one after a kill.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from sightline.data.images import BadImage, Fit, ImageLimits, read_fitted, read_image
from sightline.data.workers import Arrays, Process, Request, limit_memory, serve
from sightline.picture import Picture

PER_PIXEL, BESIDE = 12, 64 << 20  # bytes that a decoder may take; only the largest WebP images need more


class Decoding:
    """A process that decodes one image at a time, within ``seconds``. Threads must not share it."""

    def __init__(self, limits: ImageLimits, seconds: float) -> None:
        self.limits, self.seconds = limits, seconds
        self._process: Process | None = None
        self._ended = False

    def image(self, content: bytes) -> np.ndarray:
        """As `read_image`."""
        head, data = self._ask({"do": "image"}, content)
        return data.reshape(head["shape"])

    def fitted(self, content: bytes, height: int, width: int, fit: Fit) -> np.ndarray:
        """As `read_fitted`."""
        head, data = self._ask({"do": "fitted", "height": height, "width": width, "fit": fit}, content)
        return data.reshape(head["shape"])

    def picture(self, content: bytes, height: int, width: int, fit: Fit) -> Picture:
        """A small picture of it, for a model that reads it at this size."""
        head, data = self._ask({"do": "picture", "height": height, "width": width, "fit": fit}, content)
        return Picture(data.tobytes(), head["width"], head["height"], box=tuple(head["box"]))

    def end(self) -> None:
        """Kill the process; no other one is started."""
        self._ended, process = True, self._process
        if process is not None:
            process.end()

    def _ask(self, request: Request, content: bytes) -> tuple[dict[str, Any], np.ndarray]:
        process = self._process = self._process or Process("sightline.data.decoding", asdict(self.limits))
        try:
            head, data = process.ask({**request, "bytes": len(content)}, content, self.seconds)
        except (OSError, EOFError, ValueError):
            process.end()
            self._process = None
            reason = "the server is stopping" if self._ended else f"it was not decoded within {self.seconds:g} seconds"
            raise BadImage(f"{reason}, or it broke the decoder") from None
        about = json.loads(head.tobytes())
        if "problem" in about:
            raise BadImage(about["problem"])
        return about, data


def _begin(setting: Request) -> Callable[[Request], Arrays]:
    """What the process does."""
    limits = ImageLimits(**setting)
    limit_memory(PER_PIXEL * limits.most_pixels + 4 * limits.most_bytes + BESIDE)

    def do(request: Request) -> Arrays:
        content = sys.stdin.buffer.read(request["bytes"])
        try:
            about, data = _decoded(request, content, limits)
        except BadImage as error:
            about, data = {"problem": str(error)}, np.empty(0, np.uint8)
        except MemoryError:
            about, data = {"problem": "it takes too much memory"}, np.empty(0, np.uint8)
        return np.frombuffer(json.dumps(about).encode(), np.uint8), data

    return do


def _decoded(request: Request, content: bytes, limits: ImageLimits) -> tuple[dict[str, Any], np.ndarray]:
    if request["do"] == "image":
        pixels = read_image(content, limits)
    elif request["do"] == "fitted":
        pixels = read_fitted(content, request["height"], request["width"], request["fit"], limits)
    else:
        shape = request["height"], request["width"]
        picture = Picture.of(read_image(content, limits), fit=request["fit"], shape=shape)
        about = {"width": picture.width, "height": picture.height, "box": picture.box}
        return about, np.frombuffer(picture.content, np.uint8)
    return {"shape": pixels.shape}, pixels.reshape(-1)


if __name__ == "__main__":
    serve(_begin)
