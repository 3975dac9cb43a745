"""Images and sounds decoded in a process of its own, which is killed if one takes too long: a decoder cannot be
interrupted, and may crash.

`Decoding` starts the process (`python -m sightline.data.decoding`) for the first one, and another one after a kill.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from sightline.data.images import BadImage, Fit, ImageLimits, read_fitted, read_image
from sightline.data.sound import BadSound, SoundLimits, read_sound
from sightline.data.workers import Arrays, Process, Request, limit_memory, serve
from sightline.errors import UserError
from sightline.picture import Picture

PER_PIXEL, BESIDE = 12, 64 << 20  # bytes that a decoder may take; only the largest WebP images need more
PER_SECOND = 2 * 4 * 48_000  # bytes of a sound at the highest usual rate, which is copied once


class Decoding:
    """A process that decodes one image or sound at a time, within ``seconds``. Threads must not share it.

    It takes the memory that the limits allow; without ``sound_limits`` it decodes no sound.
    """

    def __init__(self, limits: ImageLimits, seconds: float, sound_limits: SoundLimits | None = None) -> None:
        self.limits, self.seconds, self.sound_limits = limits, seconds, sound_limits
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

    def sound(self, content: bytes, rate: int) -> np.ndarray:
        """As `read_sound`."""
        if self.sound_limits is None:
            raise ValueError("this process decodes no sound: it was made without sound_limits")
        return self._ask({"do": "sound", "rate": rate}, content, BadSound)[1]

    def end(self) -> None:
        """Kill the process; no other one is started."""
        self._ended, process = True, self._process
        if process is not None:
            process.end()

    def _ask(
        self, request: Request, content: bytes, bad: type[ValueError] = BadImage
    ) -> tuple[dict[str, Any], np.ndarray]:
        setting = {"image": asdict(self.limits), "sound": self.sound_limits and asdict(self.sound_limits)}
        process = self._process = self._process or Process("sightline.data.decoding", setting)
        try:
            head, data = process.ask({**request, "bytes": len(content)}, content, self.seconds)
        except (OSError, EOFError, ValueError):
            process.end()
            self._process = None
            reason = "the server is stopping" if self._ended else f"it was not decoded within {self.seconds:g} seconds"
            raise bad(f"{reason}, or it broke the decoder") from None
        about = json.loads(head.tobytes())
        if "problem" in about:
            if about.get("user"):
                raise UserError(about["problem"])
            raise bad(about["problem"])
        return about, data


def _begin(setting: Request) -> Callable[[Request], Arrays]:
    """What the process does."""
    limits, sound = ImageLimits(**setting["image"]), SoundLimits(**setting["sound"] or {"most_bytes": 1})
    image_bytes = PER_PIXEL * limits.most_pixels + 4 * limits.most_bytes
    sound_bytes = int(PER_SECOND * sound.most_seconds) + 4 * sound.most_bytes if setting["sound"] else 0
    limit_memory(max(image_bytes, sound_bytes) + BESIDE)

    def do(request: Request) -> Arrays:
        content = sys.stdin.buffer.read(request["bytes"])
        try:
            about, data = _decoded(request, content, limits, sound)
        except (BadImage, BadSound) as error:
            about, data = {"problem": str(error)}, np.empty(0, np.uint8)
        except UserError as error:  # the extra is missing
            about, data = {"problem": str(error), "user": True}, np.empty(0, np.uint8)
        except MemoryError:
            about, data = {"problem": "it takes too much memory"}, np.empty(0, np.uint8)
        return np.frombuffer(json.dumps(about).encode(), np.uint8), data

    return do


def _decoded(
    request: Request, content: bytes, limits: ImageLimits, sound: SoundLimits
) -> tuple[dict[str, Any], np.ndarray]:
    if request["do"] == "sound":
        return {}, read_sound(content, request["rate"], sound)
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
