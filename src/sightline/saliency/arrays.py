"""Synthetic images in which one bar differs from many equal ones, as in experiments on visual search.

People find such a bar at once, however many others there are (Treisman and Gelade, 1980); the model must do the same.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

Oddity = Literal["colour", "orientation"]
RED, GREEN = (212, 52, 52), (52, 212, 52)  # as bright as each other: only the hue tells them apart
FINER = 4  # drawn larger by this factor and scaled down, for smooth edges


@dataclass(frozen=True)
class PopOut:
    """The image, the centres of all bars in pixels (x, y), and the index of the odd one."""

    pixels: UInt8[np.ndarray, "h w 3"]
    places: tuple[tuple[float, float], ...]
    odd: int

    def nearest(self, x: float, y: float) -> int:
        """The index of the bar nearest to a place."""
        return min(range(len(self.places)), key=lambda bar: math.dist(self.places[bar], (x, y)))


def pop_out(oddity: Oddity, seed: int, side: int = 480) -> PopOut:
    """A jittered field of bars, one of them red among green or tilted among upright.

    The seed decides the number of bars, their size and positions, the grey of the background and the odd one; in fields
    of one colour also that colour, and the tilt of the odd one.
    """
    draw = np.random.default_rng([seed, oddity == "colour"])
    across = int(draw.integers(13, 19))
    pitch = side / across
    coloured = oddity == "colour"
    length = pitch * float(draw.uniform(0.7, 0.8) if coloured else draw.uniform(0.5, 0.65))
    width = length * float(draw.uniform(0.45, 0.55) if coloured else draw.uniform(0.3, 0.4))
    ground = int(draw.integers(0, 90))
    odd = int(draw.integers(across * across))
    tilt = float(draw.uniform(45, 90)) * (1 if draw.random() < 0.5 else -1)
    bright = int(draw.integers(170, 256))
    canvas = Image.new("RGB", (side * FINER, side * FINER), (ground,) * 3)
    pen, places = ImageDraw.Draw(canvas), []
    for bar in range(across * across):
        row, column = divmod(bar, across)
        x = (column + 0.5 + float(draw.uniform(-0.07, 0.07))) * pitch
        y = (row + 0.5 + float(draw.uniform(-0.07, 0.07))) * pitch
        places.append((x, y))
        if coloured:
            _bar(pen, x, y, length, width, 0.0, RED if bar == odd else GREEN)
        else:
            _bar(pen, x, y, length, width, tilt if bar == odd else 0.0, (bright,) * 3)
    pixels = np.array(canvas.resize((side, side), Image.Resampling.BOX))
    return PopOut(pixels, tuple(places), odd)


def _bar(
    pen: ImageDraw.ImageDraw, x: float, y: float, length: float, width: float, tilt: float, colour: tuple[int, ...]
) -> None:
    angle = math.radians(tilt)
    along = (math.sin(angle) * length / 2, math.cos(angle) * length / 2)
    beside = (math.cos(angle) * width / 2, -math.sin(angle) * width / 2)
    corners = [
        (FINER * (x + a * along[0] + b * beside[0]), FINER * (y + a * along[1] + b * beside[1]))
        for a, b in ((1, 1), (1, -1), (-1, -1), (-1, 1))
    ]
    pen.polygon(corners, fill=colour)
