"""Decoding step by step as a GIF: the attention of each word, and the output up to there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sightline.explain.explanation import OutputStep
from sightline.picture import WHOLE, Box
from sightline.recording import Recording
from sightline.records import Grid, Record, called
from sightline.view.copied import COPIED_FRAME, Copies, from_where, output_called, show_marks
from sightline.view.film import DOTS, MARGIN, Scene, Words, put_line, put_title, put_written, scene_frames, write_gif
from sightline.view.highlight import flow, height_of, sheet, words_along, write
from sightline.view.layout import (
    COLOURS,
    COLUMN_WIDTH,
    SIZE,
    TEXT_WIDTH,
    inches,
    ink,
    line_of,
    show_image,
    size_for,
)
from sightline.view.overlay import frame, grid_of, scale_of, to_pixels, veil
from sightline.view.pictures import heat_map_figure
from sightline.view.timed import (
    Times,
    best_frames,
    draw_weights,
    frames_of,
    largest_weight,
    moment,
    recording_figure,
    times_of,
)

WIDTH = 1.4 * COLUMN_WIDTH  # inches, of a film of an image
TALLEST = 5.0  # inches of an image: a film is seen on a screen
CLIP = 3.0  # inches of a frame of a clip, at most


@dataclass
class _TextScene(Scene):
    """The words of the source and of the output above, the map below."""

    source: Words
    colours: str
    copies: Copies

    def paint(self, step: int | None) -> None:
        copied = None if step is None or not self.copies else from_where(self.copies[step])
        for place, (box, text) in enumerate(self.source):
            weight = 0.0 if step is None else float(self.weights[step, place])
            paper, colour = ink(weight, self.most, self.colours)
            box.set_facecolor("none" if step is None else paper)
            box.set(edgecolor=COPIED_FRAME if place == copied else "none", linewidth=1.4)
            text.set_color("black" if step is None else colour)
        last = len(self.weights) - 1 if step is None else step
        axes = self.figure.axes[0]
        show_marks(axes, last)
        axes.images[0].set_data(np.where(np.arange(len(self.weights))[:, None] <= last, self.weights, 0.0))
        for tick in axes.yaxis.get_major_ticks():
            tick.label1.set_visible(tick.get_loc() <= last)


@dataclass
class _ImageScene(Scene):
    """The image, bright where the attention of the current word is, and the words below."""

    dark: AxesImage
    grid: Grid
    shape: tuple[int, int]
    box: Box

    def paint(self, step: int | None) -> None:
        for line in [*self.dark.axes.lines]:
            line.remove()
        if step is None:
            self.dark.set_data(np.zeros((*self.shape, 4)))
        else:
            self.dark.set_data(veil(self.weights[step], self.grid, self.shape, self.most, self.box))
            self.dark.axes.add_line(frame(self.weights[step], self.grid, self.shape, self.box))


@dataclass
class _RecordingScene(Scene):
    """The spectrogram with the weights of the current word over it, and the map as it grows."""

    heard: Axes
    map: AxesImage
    times: Times
    marks: list[Any] = field(default_factory=list)

    def paint(self, step: int | None) -> None:
        for mark in self.marks:
            mark.remove()
        self.marks = [] if step is None else draw_weights(self.heard, self.weights[step], self.most, self.times)
        last = len(self.weights) - 1 if step is None else step
        self.map.set_data(np.where(np.arange(len(self.weights))[:, None] <= last, self.weights, 0.0))
        for tick in self.map.axes.yaxis.get_major_ticks():
            tick.label1.set_visible(tick.get_loc() <= last)


@dataclass
class _ClipScene(Scene):
    """The frame that the current word attended to most."""

    image: AxesImage
    recording: Recording
    times: Times

    def paint(self, step: int | None) -> None:
        best = [] if step is None else best_frames(self.weights[step], self.recording, self.times, 1)
        frame, at, _ = best[0] if best else (0, 0.0, 0.0)
        self.image.set_data(np.repeat(self.recording.values[frame][:, :, None], 3, axis=2))
        self.image.axes.set_title(moment(at, self.times) if best else "", fontsize=SIZE, pad=2)


def replay_gif(
    record: Record,
    steps: Sequence[OutputStep] | None,
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    seconds: float = 0.8,
    colours: str = COLOURS,
    most: float | None = None,
    copies: Copies = (),
    unit: str = "weight",
) -> Path:
    """One frame for each row: the attention to the source, the output up to there, and the map as it grows.

    ``steps``, where there is one for each row, add the probability of each word; ``copies`` whether it was copied, and
    from which word. The last frame is the whole map, shown for longer; then it starts again.
    """

    def scene(end: float) -> Scene:
        return _text_scene(record, title, width, colours, end, copies, unit)

    frames = scene_frames(record, steps, path, scene, most, "the whole map", copies)
    return write_gif(frames, path, seconds)


def image_gif(
    image: np.ndarray,
    record: Record,
    steps: Sequence[OutputStep] | None,
    path: Path,
    *,
    box: Box = WHOLE,
    title: str | None = None,
    width: float = WIDTH,
    seconds: float = 0.8,
    most: float | None = None,
) -> Path:
    """One frame for each row: the image, bright where the attention is, and the caption up to there.

    ``steps``, where there is one for each row, add the probability of each word. The last frame is the image itself
    with the whole caption, shown for longer.
    """
    grid = grid_of(record)

    def scene(end: float) -> Scene:
        return _image_scene(image, record, grid, title, width, end, box)

    frames = scene_frames(record, steps, path, scene, most, "the whole caption")
    return write_gif(frames, path, seconds, photograph=True)


def recording_gif(
    recording: Recording,
    record: Record,
    steps: Sequence[OutputStep] | None,
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    seconds: float = 0.8,
    colours: str = COLOURS,
    most: float | None = None,
) -> Path:
    """One frame for each row: its weights over the spectrogram, or the frame of the clip with the most of them."""

    def scene(end: float) -> Scene:
        return _recording_scene(recording, record, title, width, colours, end)

    frames = scene_frames(record, steps, path, scene, largest_weight(record) if most is None else most, "the whole map")
    return write_gif(frames, path, seconds, photograph=recording.values.ndim == 3)


def _text_scene(
    record: Record,
    title: str | None,
    width: float,
    colours: str,
    most: float,
    copies: Copies = (),
    unit: str = "weight",
) -> _TextScene:
    """A picture of the given width."""
    size = size_for(width) + 1
    line = line_of(size)
    # A small map keeps the ordinary size of its cells.
    source, written = called(record.columns, "source"), called(record.rows, output_called("written", copies) or "")
    enough = float(heat_map_figure(record, rows_label=written, copies=copies).get_size_inches()[0])
    marks: dict[str, Any] = {"copies": copies, "unit": unit}
    figure = heat_map_figure(record, None, written, width=min(width, enough), colours=colours, most=most, **marks)
    figure.set_dpi(DOTS)
    map_width, map_height = figure.get_size_inches()
    own = [flow(words_along(axis), width - 1.1, size) for axis in (record.columns, record.rows)]
    heights = [height_of(one) for one in own]
    above = 1.9 * line if title else MARGIN
    top = above + 1.5 * line + sum(heights) + 0.2 + 0.25
    height = top + map_height
    boxes = [(axes, axes.get_position()) for axes in figure.axes]
    figure.set_size_inches(width, height)
    for axes, box in boxes:  # the map keeps its size, at the bottom and in the middle
        left = (box.x0 * map_width + max(width - map_width, 0) / 2) / width
        high = map_height / height
        axes.set_position((left, box.y0 * high, box.width * map_width / width, box.height * high))
    put_title(figure, title, size + 1, width - 2 * MARGIN, line)
    caption = put_line(figure, above + 0.6 * line, "", size)
    parts = []
    start = above + 1.5 * line
    brief = source.partition(" (")[0]  # without the note of what is left out
    for name, placed, own_height in zip((brief, written), own, heights, strict=True):
        page = sheet(figure, 1.0, start, width - 1.05, own_height)
        parts.append([write(page, one, size) for one in placed])
        put_line(figure, start + 0.55 * line, name, size, "#555555")
        start += own_height + 0.2
    return _TextScene(figure, caption, parts[1], record.matrix(), most, parts[0], colours, copies)


def _image_scene(
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
    show_image(axes, pixels, "auto")
    dark = axes.imshow(np.zeros((*pixels.shape[:2], 4)), aspect="auto")
    put_title(figure, title, size + 1, room, line)
    page = sheet(figure, MARGIN, below, room, height_of(placed) + 0.02)
    written = [write(page, one, size) for one in placed]
    caption = put_line(figure, height - 1.9 * line, "", size - 1)
    put_line(figure, height - 0.8 * line, scale_of(most, len(record.rows)), size - 2, "#555555")
    return _ImageScene(figure, caption, written, record.matrix(), most, dark, grid, pixels.shape[:2], box)


def _recording_scene(
    recording: Recording, record: Record, title: str | None, width: float, colours: str, most: float
) -> Scene:
    """The words, and below them the spectrogram with the map, or a frame of the clip."""
    size = size_for(width) + 1
    line = line_of(size)
    placed = flow(words_along(record.rows), width - 2 * MARGIN, size)
    above = 1.9 * line if title else MARGIN
    start = above + 1.5 * line
    top = start + height_of(placed) + 0.2
    times = times_of(recording, frames_of(record))
    if recording.values.ndim == 3:
        high, across = recording.values.shape[1:]
        wide = min(width - 2 * MARGIN, CLIP, TALLEST * across / high)
        figure = Figure(figsize=(width, top + wide * high / across + MARGIN), dpi=DOTS)
        axes = figure.add_axes(inches(figure, (width - wide) / 2, MARGIN, wide, wide * high / across))
        show_image(axes, np.repeat(recording.values[0][:, :, None], 3, axis=2), "auto")
        written = put_written(figure, placed, start, width, size)
        put_title(figure, title, size + 1, width - 2 * MARGIN, line)
        caption = put_line(figure, above + 0.6 * line, "", size)
        return _ClipScene(figure, caption, written, record.matrix(), most, axes.images[0], recording, times)
    figure, heard, image = recording_figure(recording, record, None, width, colours, most)
    figure.set_dpi(DOTS)
    own = float(figure.get_size_inches()[1])
    figure.set_size_inches(width, own + top)
    for axes in figure.axes:
        box = axes.get_position()
        axes.set_position((box.x0, box.y0 * own / (own + top), box.width, box.height * own / (own + top)))
    written = put_written(figure, placed, start, width, size)
    put_title(figure, title, size + 1, width - 2 * MARGIN, line)
    caption = put_line(figure, above + 0.6 * line, "", size)
    return _RecordingScene(figure, caption, written, record.matrix(), most, heard, image, times)
