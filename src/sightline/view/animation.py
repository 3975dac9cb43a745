"""Decoding word by word as a GIF: where the t-th word looked, and what was written up to there."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from sightline.errors import UserError
from sightline.explain.explanation import Step
from sightline.files import whole_file
from sightline.picture import WHOLE, Box
from sightline.records import Grid, Record
from sightline.view.fonts import fit_fonts, quiet
from sightline.view.highlight import flow, height_of, sheet, words_along, write
from sightline.view.layout import (
    COLOURS,
    COLUMN_WIDTH,
    TEXT_WIDTH,
    fits,
    inches,
    ink,
    largest,
    line_of,
    size_for,
    thin_frame,
)
from sightline.view.overlay import frame, scale_of, to_pixels, veil
from sightline.view.pictures import STEADY, heat_map_figure
from sightline.view.words import shown

DOTS = 100  # per inch: enough for a screen
HOLD = 4  # how many times longer the whole map is shown at the end
MOST_FRAMES = 200
COLOURS_OF_A_GIF = 255  # as many as a GIF can have, one of them left for what stays the same


@dataclass
class _Scene:
    """The parts of the picture that change from frame to frame."""

    figure: Figure
    looked_at: list[tuple[Rectangle, Text]]
    written: list[tuple[Rectangle, Text]]
    caption: Text
    weights: np.ndarray
    most: float
    colours: str

    def show(self, step: int | None, caption: str) -> Image.Image:
        """The frame of one step; None shows the whole."""
        last = len(self.weights) - 1 if step is None else step
        for place, (box, text) in enumerate(self.looked_at):
            weight = 0.0 if step is None else float(self.weights[step, place])
            paper, colour = ink(weight, self.most, self.colours)
            box.set_facecolor("none" if step is None else paper)
            text.set_color("black" if step is None else colour)
        for place, (box, text) in enumerate(self.written):
            text.set_visible(place <= last)
            box.set_edgecolor("black" if place == step else "none")
        seen = np.where(np.arange(len(self.weights))[:, None] <= last, self.weights, 0.0)
        self.figure.axes[0].images[0].set_data(seen)
        for tick in self.figure.axes[0].yaxis.get_major_ticks():
            tick.label1.set_visible(tick.get_loc() <= last)
        self.caption.set_text(caption)
        canvas = FigureCanvasAgg(self.figure)
        canvas.draw()
        return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def replay_gif(
    record: Record,
    steps: Sequence[Step] | None,
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    seconds: float = 0.8,
    colours: str = COLOURS,
    most: float | None = None,
) -> Path:
    """One frame for each row: the words it looked at, what was written so far, and the map as it grows.

    ``steps``, where there is one for each row, add how likely each word was. The last frame is the whole map, shown for
    longer; then it starts again.
    """
    if not 1 <= len(record.rows) <= MOST_FRAMES:
        raise UserError(f"a replay has 1 to {MOST_FRAMES} steps; the map has {len(record.rows)} rows")
    if steps is not None and len(steps) != len(record.rows):
        raise UserError(f"there are {len(steps)} steps for {len(record.rows)} rows")
    with matplotlib.rc_context(STEADY), quiet():
        scene = _set(record, title, width, colours, largest([record]) if most is None else most)
        fit_fonts(scene.figure, path)
        frames = [scene.show(step, caption_of(record, steps, step)) for step in range(len(record.rows))]
        frames.append(scene.show(None, "the whole map"))
    return write_gif(frames, path, seconds)


def write_gif(frames: Sequence[Image.Image], path: Path, seconds: float, *, photograph: bool = False) -> Path:
    """The frames one after the other, again and again; the last one is shown for longer.

    A ``photograph`` has more colours than a GIF: each frame gets its own, and mixes those that are missing.
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
            optimize=False,  # it would give each frame a palette of its own
        )
    return path


def _set(record: Record, title: str | None, width: float, colours: str, most: float) -> _Scene:
    """The words above, the map below: a picture as wide as asked for."""
    size = size_for(width) + 1
    line = line_of(size)
    figure = heat_map_figure(
        record, rows_label="written", width=min(width, _enough(record)), colours=colours, most=most
    )
    figure.set_dpi(DOTS)
    map_width, map_height = figure.get_size_inches()
    own = [flow(words_along(axis), width - 1.1, size) for axis in (record.columns, record.rows)]
    heights = [height_of(one) for one in own]
    above = 1.9 * line if title else 0.1
    top = above + 1.5 * line + sum(heights) + 0.2 + 0.25
    boxes = [(axes, axes.get_position()) for axes in figure.axes]
    figure.set_size_inches(width, top + map_height)
    for axes, box in boxes:  # the map keeps its size, at the bottom and in the middle
        left = (box.x0 * map_width + max(width - map_width, 0) / 2) / width
        high = map_height / (top + map_height)
        axes.set_position((left, box.y0 * high, box.width * map_width / width, box.height * high))
    if title:
        text = shown(title, fits(title, size + 1, width - 0.2))
        figure.text(0.1 / width, 1 - line / (top + map_height), text, fontsize=size + 1, va="center", parse_math=False)
    caption = figure.text(
        0.1 / width, 1 - (above + 0.6 * line) / (top + map_height), "", fontsize=size, va="center", parse_math=False
    )
    parts = []
    start = above + 1.5 * line
    for name, placed, height in zip(("source", "written"), own, heights, strict=True):
        page = sheet(figure, 1.0, start, width - 1.05, height)
        parts.append([write(page, one, size) for one in placed])
        figure.text(
            0.1 / width,
            1 - (start + 0.55 * line) / (top + map_height),
            name,
            fontsize=size,
            va="center",
            color="#555555",
        )
        start += height + 0.2
    return _Scene(figure, parts[0], parts[1], caption, record.matrix(), most, colours)


def _enough(record: Record) -> float:
    """A width that leaves the cells of a small map their ordinary size."""
    return float(heat_map_figure(record, rows_label="written").get_size_inches()[0])


def caption_of(record: Record, steps: Sequence[Step] | None, step: int) -> str:
    """Which step it is, and how likely what was written there."""
    likely = "" if steps is None else f", written with probability {steps[step].probability:.2f}"
    return f"step {step + 1} of {len(record.rows)}{likely}"  # the word itself is framed below


def _palette(frames: Sequence[Image.Image]) -> Image.Image:
    """The colours of all frames together, so that nothing flickers."""
    few = [frames[place] for place in sorted({0, len(frames) // 2, len(frames) - 1})]
    together = Image.new("RGB", (few[0].width, few[0].height * len(few)))
    for number, one in enumerate(few):
        together.paste(one, (0, number * one.height))
    few_colours = COLOURS_OF_A_GIF - 1
    palette = together.quantize(few_colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    colours = np.full((COLOURS_OF_A_GIF, 3), 255, dtype=np.uint8)  # the last one is white
    found = np.array(palette.getpalette(), dtype=np.uint8).reshape(-1, 3)[:few_colours]
    colours[: len(found)] = found
    palette.putpalette(colours.tobytes())
    return palette


def _flat(frame: Image.Image, palette: Image.Image, dither: Image.Dither = Image.Dither.NONE) -> Image.Image:
    """A frame in the colours of a palette. Pillow looks for near ones only, and paper has to be white."""
    places = np.array(frame.quantize(palette=palette, dither=dither))
    places[(np.asarray(frame) == 255).all(axis=2)] = COLOURS_OF_A_GIF - 1
    flat = Image.fromarray(places).convert("P")
    flat.putpalette(palette.getpalette() or [])
    return flat


# A caption word by word as a GIF: the image, bright where the word that is being written looked.


WIDTH = 1.4 * COLUMN_WIDTH  # inches
TALLEST = 5.0  # inches of an image: a film is seen on a screen
MARGIN = 0.1


@dataclass
class _ImageScene:
    """What changes from frame to frame."""

    figure: Figure
    dark: AxesImage
    written: list[tuple[Rectangle, Text]]
    caption: Text
    weights: np.ndarray
    grid: Grid
    shape: tuple[int, int]
    most: float
    box: Box

    def show(self, step: int | None, caption: str) -> Image.Image:
        """The frame of one step; None shows the whole caption under the image as it is."""
        for line in [*self.dark.axes.lines]:
            line.remove()
        if step is None:
            self.dark.set_data(np.zeros((*self.shape, 4)))
        else:
            self.dark.set_data(veil(self.weights[step], self.grid, self.shape, self.most, self.box))
            self.dark.axes.add_line(frame(self.weights[step], self.grid, self.shape, self.box))
        for place, (around, text) in enumerate(self.written):
            text.set_visible(step is None or place <= step)
            around.set_edgecolor("black" if place == step else "none")
        self.caption.set_text(caption)
        canvas = FigureCanvasAgg(self.figure)
        canvas.draw()
        return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def image_gif(
    image: np.ndarray,
    record: Record,
    steps: Sequence[Step] | None,
    path: Path,
    *,
    box: Box = WHOLE,
    title: str | None = None,
    width: float = WIDTH,
    seconds: float = 0.8,
    most: float | None = None,
) -> Path:
    """One frame for each row: the image, bright where it looked, and what was written so far.

    ``steps``, where there is one for each row, add how likely each word was. The last frame is the image itself with
    the whole caption, shown for longer.
    """
    if not isinstance(record.columns, Grid):
        raise UserError(f"{record.name} does not look at places of an image or a grid")
    if not 1 <= len(record.rows) <= MOST_FRAMES:
        raise UserError(f"a replay has 1 to {MOST_FRAMES} steps; the map has {len(record.rows)} rows")
    if steps is not None and len(steps) != len(record.rows):
        raise UserError(f"there are {len(steps)} steps for {len(record.rows)} rows")
    with matplotlib.rc_context(STEADY), quiet():
        scene = _set_image(
            image, record, record.columns, title, width, largest([record]) if most is None else most, box
        )
        fit_fonts(scene.figure, path)
        frames = [scene.show(step, caption_of(record, steps, step)) for step in range(len(record.rows))]
        frames.append(scene.show(None, "the whole caption"))
    return write_gif(frames, path, seconds, photograph=True)


def _set_image(
    image: np.ndarray, record: Record, grid: Grid, title: str | None, width: float, most: float, box: Box
) -> _ImageScene:
    """The title, the image, the words under it."""
    size = size_for(width) + 1
    line = line_of(size)
    pixels = to_pixels(image)
    room = width - 2 * MARGIN
    wide = min(room, TALLEST * pixels.shape[1] / pixels.shape[0])
    tall = max(wide * pixels.shape[0] / pixels.shape[1], 0.02)
    placed = flow(words_along(record.rows), room, size)
    above = 1.9 * line if title else MARGIN
    below = above + tall + 0.5 * line
    height = below + height_of(placed) + 3.0 * line
    figure = Figure(figsize=(width, height), dpi=DOTS)
    axes = figure.add_axes(inches(figure, (width - wide) / 2, height - above - tall, wide, tall))
    axes.imshow(pixels, aspect="auto", interpolation="antialiased")
    dark = axes.imshow(np.zeros((*pixels.shape[:2], 4)), aspect="auto")
    axes.set(xticks=[], yticks=[], xlim=(-0.5, pixels.shape[1] - 0.5), ylim=(pixels.shape[0] - 0.5, -0.5))
    thin_frame(axes)
    if title:
        text = shown(title, fits(title, size + 1, room))
        figure.text(MARGIN / width, 1 - line / height, text, fontsize=size + 1, va="center", parse_math=False)
    page = sheet(figure, MARGIN, below, room, height_of(placed) + 0.02)
    written = [write(page, one, size) for one in placed]
    caption = figure.text(MARGIN / width, 1.9 * line / height, "", fontsize=size - 1, va="center", parse_math=False)
    scale = scale_of(most, len(record.rows))
    figure.text(MARGIN / width, 0.8 * line / height, scale, fontsize=size - 2, va="center", color="#555555")
    return _ImageScene(figure, dark, written, caption, record.matrix(), grid, pixels.shape[:2], most, box)
