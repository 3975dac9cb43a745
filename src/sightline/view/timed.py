"""Attention over time: a spectrogram above the map of each word, or the frames of a clip that each word attended to."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sightline.errors import UserError
from sightline.recording import Recording
from sightline.records import Frames, Record, Tokens
from sightline.view.highlight import words_along
from sightline.view.layout import (
    COLOURS,
    SMALLEST,
    TALLEST,
    TEXT_WIDTH,
    add_scale,
    add_title,
    fits,
    inches,
    label,
    largest,
    largest_of,
    line_of,
    room,
    shade,
    show_image,
    size_for,
    thin_frame,
)
from sightline.view.pictures import RIGHT, save
from sightline.view.words import shown

SHARE = 0.9  # of a row's weights, in the stretch of time that it attended to
SPECTROGRAM, GAP = 1.0, 0.06  # inches: how high it is, and what is below it
MARK = "#c2410c"  # over the greys of a spectrogram
MOST_STRIPS = 60
FAINT = 0.05  # of a row's largest weight: a frame with less is not shown
FRAME = 0.85  # inches of a frame in a strip, at most


class Times(NamedTuple):
    """Where frames and columns of a map are in time: seconds, or frames where their times are unknown.

    The map is as long as its columns: the last one may end after the recording.
    """

    end: float
    frame: float
    column: float
    unit: str


def times_of(recording: Recording, columns: Frames) -> Times:
    """The times of a recording, and of a map over it."""
    count, frame = len(recording.values), recording.frame_seconds
    if not frame or not columns.seconds:
        return Times(count, 1.0, count / max(len(columns), 1), "frame")
    return Times(max(recording.seconds, count * frame), frame, columns.seconds, "seconds")


def attended_stretch(weights: np.ndarray, share: float = SHARE) -> tuple[int, int] | None:
    """The shortest run of columns that holds this share of a row's weights: the first, and the one after the last.

    Of several that are as short, the one with the most weight; None for a row without weight.
    """
    values = np.clip(np.nan_to_num(weights.astype(np.float64)), 0, None)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    if not sums[-1] > 0:
        return None
    ends = np.searchsorted(sums, sums[:-1] + share * sums[-1] * (1 - 1e-9))
    starts = np.flatnonzero(ends < len(sums))
    lengths = ends[starts] - starts
    short = starts[lengths == lengths.min()]
    first = int(short[np.argmax(sums[ends[short]] - sums[short])])
    return first, int(ends[first])


def frames_of(record: Record) -> Frames:
    if not isinstance(record.columns, Frames):
        raise UserError(f"{record.name} does not attend to frames of a recording")
    return record.columns


def over_recording(
    recording: Recording,
    record: Record,
    path: Path,
    *,
    title: str | None = None,
    width: float = TEXT_WIDTH,
    colours: str = COLOURS,
    most: float | None = None,
) -> Path:
    """The picture of a map over a recording, in the format of the file's ending.

    Of sound and features: the spectrogram, low bands below, above the map, both along one axis of time. Of a clip: for
    each word the frames with the largest weights, in their order.
    """
    top = largest_weight(record) if most is None else most
    if recording.values.ndim == 3:
        return save(_strips(recording, record, title, width), path)
    return save(recording_figure(recording, record, title, width, colours, top)[0], path)


def largest_weight(record: Record) -> float:
    """The end of the scale: the largest weight of a word. The end of a text attends to one moment, words to many."""
    special = record.rows.special if isinstance(record.rows, Tokens) else ()
    words = np.delete(record.matrix(), list(special), axis=0)
    return largest_of(words) if words.size else largest([record])


def recording_figure(
    recording: Recording, record: Record, title: str | None, width: float, colours: str, most: float
) -> tuple[Figure, Axes, AxesImage]:
    """The figure of a spectrogram with a map, the axes of the spectrogram, and the map."""
    times = times_of(recording, frames_of(record))
    size = size_for(width)
    line = line_of(size)
    rows = max(len(record.rows), 1)
    left, below = max(room(record.rows, size), 2.2 * line) + 0.02, 3.0 * line
    above = 1.8 * line if title else 0.05
    wide = width - left - RIGHT - 0.08
    tall = min(rows * 1.15 * line, TALLEST - above - SPECTROGRAM - GAP - below)
    figure = Figure(figsize=(width, above + SPECTROGRAM + GAP + tall + below))
    heard = figure.add_axes(inches(figure, left, below + tall + GAP, wide, SPECTROGRAM))
    draw_spectrogram(heard, recording, times)
    heard.set_ylabel("frequency" if recording.wav else "feature", fontsize=size)
    axes = figure.add_axes(inches(figure, left, below, wide, tall))
    image = shade(axes, record.matrix(), most, colours)
    image.set_extent((0.0, len(record.columns) * times.column, rows - 0.5, -0.5))
    label(axes, "y", record.rows, size)
    axes.set(xlim=(0.0, times.end), ylim=(rows - 0.5, -0.5))
    axes.tick_params(axis="x", length=2, width=0.5, labelsize=size, pad=2)
    axes.set_xlabel(times.unit, fontsize=size)
    if len(record.rows) == 1:
        draw_weights(heard, record.matrix()[0], most, times)
    add_scale(heard if rows == 1 else axes, image, most, size)
    for part in (heard, axes):
        thin_frame(part)
    add_title(figure, title, size + 1, width)
    return figure, heard, image


def draw_spectrogram(axes: Axes, recording: Recording, times: Times) -> None:
    """Frames from left to right, the lowest band below; dark is loud."""
    bands = recording.values.T
    extent = (0.0, len(recording.values) * times.frame, 0.0, len(bands))
    axes.imshow(
        bands, cmap="Greys", vmin=0, vmax=255, origin="lower", aspect="auto", extent=extent, interpolation="antialiased"
    )
    axes.set(xticks=[], yticks=[], xlim=(0.0, times.end), ylim=(0.0, len(bands)))


def draw_weights(axes: Axes, weights: np.ndarray, most: float, times: Times) -> list[Any]:
    """The weights of one row as steps over a spectrogram, and lines around the stretch that it attended to."""
    edges = np.arange(len(weights) + 1) * times.column
    high = axes.get_ylim()[1] * np.clip(np.nan_to_num(weights) / most, 0, 1)
    drawn: list[Any] = [axes.stairs(high, edges, color=MARK, linewidth=1.0)]
    drawn.append(axes.stairs(high, edges, color=MARK, alpha=0.25, fill=True))
    stretch = attended_stretch(weights)
    for column in stretch or ():
        drawn.append(axes.axvline(min(column * times.column, times.end), color=MARK, linewidth=0.8, linestyle="--"))
    return drawn


def best_frames(weights: np.ndarray, recording: Recording, times: Times, most: int) -> list[tuple[int, float, float]]:
    """The frames in the middle of the columns with the largest weights, in their order, with time and weight."""
    values = np.nan_to_num(weights)
    columns = sorted(np.argsort(-values, kind="stable")[:most].tolist())
    least = FAINT * float(values.max(initial=0.0))
    middles = ((column, (column + 0.5) * times.column) for column in columns if values[column] > least)
    last = len(recording.values) - 1
    return [(min(int(at / times.frame), last), at, float(values[column])) for column, at in middles]


def moment(at: float, times: Times) -> str:
    """A time, in words."""
    return f"{at:.2f} s" if times.unit == "seconds" else f"frame {math.floor(at) + 1:,}"


def _strips(recording: Recording, record: Record, title: str | None, width: float) -> Figure:
    """A row of frames for each word."""
    times, words, weights = times_of(recording, frames_of(record)), words_along(record.rows), record.matrix()
    if len(words) > MOST_STRIPS:
        raise UserError(
            f"a picture with frames for each of {len(words):,} words cannot be read; draw at most {MOST_STRIPS}, or "
            f"make a page (.html)"
        )
    size = size_for(width)
    line = line_of(size)
    left = room(record.rows, size) + 0.06
    high, across = recording.values.shape[1:]
    tall = min(FRAME, FRAME * high / across, max(0.2, (TALLEST - line) / max(len(words), 1) - 1.5 * line))
    wide = min(tall * across / high, width - left)
    most = max(1, int((width - left) / (max(wide, 0.55) + GAP)))
    step = tall + 1.5 * line
    above = 1.8 * line if title else 0.05
    figure = Figure(figsize=(width, above + step * max(len(words), 1) + 1.3 * line))
    whole = float(figure.get_size_inches()[1])
    pitch = max(wide, 0.55) + GAP
    for row, word in enumerate(words):
        bottom = whole - above - row * step - tall
        name = shown(word, fits(word, size, left))
        figure.text(0.0, (bottom + tall / 2) / whole, name, fontsize=size, va="center", parse_math=False)
        for place, (frame, at, weight) in enumerate(best_frames(weights[row], recording, times, most)):
            axes = figure.add_axes(inches(figure, left + place * pitch, bottom, wide, tall))
            show_image(axes, np.repeat(recording.values[frame][:, :, None], 3, axis=2))
            axes.set_xlabel(f"{moment(at, times)}: {weight:.2f}", fontsize=SMALLEST, labelpad=1.5)
    what = "frames with the largest weights of each word, with their times and weights"
    figure.text(0.0, 0.3 * line / whole, what, fontsize=SMALLEST)
    add_title(figure, title, size + 1, width)
    return figure
