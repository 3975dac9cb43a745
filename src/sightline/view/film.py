"""A caption word by word as a GIF: the image, bright where the word that is being written looked."""

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
from sightline.picture import WHOLE, Box
from sightline.records import Grid, Record
from sightline.view.animation import DOTS, MOST_FRAMES, caption_of, write_gif
from sightline.view.flow import flow, height_of, sheet, words_along, write
from sightline.view.fonts import fit_fonts, quiet
from sightline.view.layout import COLUMN_WIDTH, fits, inches, largest, line_of, size_for, thin_frame
from sightline.view.overlay import frame, scale_of, to_pixels, veil
from sightline.view.pictures import STEADY
from sightline.view.texts import shown

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
        scene = _set_image(image, record, record.columns, title, width, largest([record]) if most is None else most, box)
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
