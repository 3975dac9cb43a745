"""Films: the frames of a scene whose parts change from step to step, written as a GIF."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from sightline.errors import UserError
from sightline.explain.explanation import OutputStep
from sightline.files import whole_file
from sightline.records import Record
from sightline.view.copied import Copies, copied_phrase
from sightline.view.fonts import fit_fonts, quiet
from sightline.view.highlight import height_of, sheet, write
from sightline.view.layout import fits, largest
from sightline.view.pictures import STEADY
from sightline.view.words import shown

DOTS = 100  # per inch: enough for a screen
HOLD = 4  # how many times longer the last frame is shown
MOST_FRAMES = 200
COLOURS_OF_A_GIF = 255  # as many as a GIF can have, one of them reserved for unchanged pixels
MARGIN = 0.1
Words = list[tuple[Rectangle, Text]]


@dataclass
class Scene(ABC):
    """A picture and the parts of it that change from frame to frame."""

    figure: Figure
    caption: Text
    written: Words
    weights: np.ndarray
    most: float

    @abstractmethod
    def paint(self, step: int | None) -> None:
        """The attention of one step; None shows the whole."""

    def show(self, step: int | None, caption: str) -> Image.Image:
        """The frame of one step, with the output up to there."""
        self.paint(step)
        for place, (box, text) in enumerate(self.written):
            text.set_visible(step is None or place <= step)
            box.set_edgecolor("black" if place == step else "none")
        self.caption.set_text(caption)
        canvas = FigureCanvasAgg(self.figure)
        canvas.draw()
        return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def scene_frames(
    record: Record,
    steps: Sequence[OutputStep] | None,
    path: Path,
    scene_of: Callable[[float], Scene],
    most: float | None,
    last: str,
    copies: Copies = (),
) -> list[Image.Image]:
    """A frame for each row and one of the whole. ``scene_of`` takes the end of the scale. ``copies`` say of each row
    whether it was copied."""
    rows = len(record.rows)
    if not 1 <= rows <= MOST_FRAMES:
        raise UserError(f"a replay has 1 to {MOST_FRAMES} steps; the map has {rows} rows")
    if steps is not None and len(steps) != rows:
        raise UserError(f"there are {len(steps)} steps for {rows} rows")
    probabilities = [""] * rows if steps is None else [f", probability {one.probability:.2f}" for one in steps]
    phrases = [copied_phrase(one, record.columns) for one in copies] or [""] * rows
    notes = [f"{one}; {phrase}" if phrase else one for one, phrase in zip(probabilities, phrases, strict=True)]
    with matplotlib.rc_context(STEADY), quiet():
        scene = scene_of(largest([record]) if most is None else most)
        fit_fonts(scene.figure, path)
        # The word itself is framed in the picture.
        frames = [scene.show(step, f"step {step + 1} of {rows}{notes[step]}") for step in range(rows)]
        return [*frames, scene.show(None, last)]


def write_gif(frames: Sequence[Image.Image], path: Path, seconds: float, *, photograph: bool = False) -> Path:
    """The frames in a loop; the last one is shown for longer.

    A ``photograph`` has more colours than a GIF: each frame gets its own palette, and is dithered.
    """
    if photograph:
        flat = [_flat(frame, _palette([frame]), Image.Dither.FLOYDSTEINBERG) for frame in frames]
    else:
        palette = _palette(frames)
        flat = [_flat(frame, palette) for frame in frames]
    pause = round(1000 * seconds)
    with whole_file(path) as part:
        flat[0].save(
            part,
            format="GIF",
            save_all=True,
            append_images=flat[1:],
            duration=[pause] * (len(frames) - 1) + [HOLD * pause],
            loop=0,
            optimize=False,  # it would give each frame its own palette
        )
    return path


def put_written(figure: Figure, placed: Sequence[Any], start: float, width: float, size: float) -> Words:
    page = sheet(figure, MARGIN, start, width - 2 * MARGIN, height_of(placed) + 0.02)
    return [write(page, one, size) for one in placed]


def put_title(figure: Figure, title: str | None, size: float, width: float, top: float) -> None:
    if title:
        put_line(figure, top, shown(title, fits(title, size, width)), size)


def put_line(figure: Figure, top: float, text: str, size: float, colour: str = "black") -> Text:
    """A line of text, in inches from the top."""
    x, y = MARGIN / figure.get_size_inches()[0], 1 - top / figure.get_size_inches()[1]
    return figure.text(x, y, text, fontsize=size, va="center", color=colour, parse_math=False)


def _palette(frames: Sequence[Image.Image]) -> Image.Image:
    """The colours of all frames together, so that nothing flickers."""
    few = [frames[place] for place in sorted({0, len(frames) // 2, len(frames) - 1})]
    together = Image.new("RGB", (few[0].width, few[0].height * len(few)))
    for number, one in enumerate(few):
        together.paste(one, (0, number * one.height))
    few_colours = COLOURS_OF_A_GIF - 1
    palette = together.quantize(few_colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    colours = np.full((COLOURS_OF_A_GIF, 3), 255, dtype=np.uint8)  # the last one is white
    own = np.array(palette.getpalette(), dtype=np.uint8).reshape(-1, 3)[:few_colours]
    colours[: len(own)] = own
    palette.putpalette(colours.tobytes())
    return palette


def _flat(frame: Image.Image, palette: Image.Image, dither: Image.Dither = Image.Dither.NONE) -> Image.Image:
    """A frame in the colours of a palette. Pillow takes near colours; paper has to be white."""
    places = np.array(frame.quantize(palette=palette, dither=dither))
    places[(np.asarray(frame) == 255).all(axis=2)] = COLOURS_OF_A_GIF - 1
    flat = Image.fromarray(places).convert("P")
    flat.putpalette(palette.getpalette() or [])
    return flat
