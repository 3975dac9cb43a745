"""Common to all pictures: sizes in inches and points, labels that fit, shades and their scale."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from sightline.records import Axis, Cells, Frames, Record, Slots, Tokens
from sightline.view.fonts import widths
from sightline.view.words import shown

# One hue from white to dark: the same order in grey print and for every kind of colour vision.
COLOURS = "Blues"
COLUMN_WIDTH, TEXT_WIDTH = 3.4, 7.0  # inches: of a column and of the text of a paper
TALLEST = 9.0  # inches: a page
SIZE, SMALLEST = 8.0, 6.0  # points: of text, and the smallest that is legible in print
INCH = 72.0  # points


def line_of(size: float) -> float:
    """The height of a line of text, in inches."""
    return 1.2 * size / INCH


def size_for(width: float | None) -> float:
    """The font size in a picture of that width: smaller in a column than across a page."""
    return SIZE if width is None or width >= 5 else 7.0


def inches(
    figure: Figure, left: float, bottom: float, width: float, height: float
) -> tuple[float, float, float, float]:
    """A place on a figure, given in inches."""
    across, down = map(float, figure.get_size_inches())
    return left / across, bottom / down, width / across, height / down


def largest(records: Iterable[Record]) -> float:
    """The largest weight of some records, rounded up to a number that is easy to read: the end of their scale."""
    return largest_of(*(one.matrix() for one in records))


def largest_of(*weights: np.ndarray) -> float:
    """The same of plain arrays."""
    weight = max((float(np.nanmax(one, initial=0.0)) for one in weights), default=0.0)
    if not 0 < weight < math.inf:
        return 1.0
    digit = 10.0 ** math.floor(math.log10(weight))
    steps = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
    return round(next((step for step in steps if weight <= step * digit * (1 + 1e-6)), 10.0) * digit, 12)


def shades(colours: str) -> Colormap:
    """The colours of weights; NaN is grey, which no weight is."""
    return matplotlib.colormaps[colours].with_extremes(bad="#bbbbbb")


def shade(axes: Axes, weights: np.ndarray, most: float, colours: str = COLOURS) -> AxesImage:
    """Weights as shades that fill the axes, a cell each."""
    return axes.imshow(
        np.asarray(weights), cmap=shades(colours), vmin=0.0, vmax=most, aspect="auto", interpolation="nearest"
    )


def show_image(axes: Axes, pixels: np.ndarray, aspect: Literal["equal", "auto"] = "equal") -> None:
    """An image that fills the axes, with a hairline around it."""
    height, width = pixels.shape[:2]
    axes.imshow(pixels, aspect=aspect, interpolation="antialiased")
    axes.set(xticks=[], yticks=[], xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    thin_frame(axes)


def add_title(figure: Figure, title: str | None, size: float, width: float) -> None:
    """A title of one line, cut to the width in inches."""
    put_lines(figure, [shown(title, fits(title, size, width))] if title else [], size)


def put_lines(figure: Figure, lines: Sequence[str], size: float) -> None:
    """Lines at the top of a figure, in the middle."""
    if lines:
        text = "\n".join(lines)
        figure.text(0.5, 1.0, text, fontsize=size, ha="center", va="top", linespacing=1.15, parse_math=False)


def add_scale(
    axes: Axes, image: AxesImage, most: float, size: float, name: str = "weight", percent: bool = False
) -> None:
    """Which shade is which weight: to the right of the axes, as high as they are but no higher than two inches."""
    width, height = inner_size(axes)
    share = min(1.0, 2.0 / height)
    scale = axes.inset_axes((1.0 + 0.08 / width, 1.0 - share, 0.09 / width, share))
    bar = axes.figure.colorbar(image, cax=scale, ticks=[0.0, most / 2, most] if height > 0.5 else [0.0, most])
    bar.ax.set_yticklabels([f"{100 * tick:.0f} %" if percent and tick else f"{tick:g}" for tick in bar.get_ticks()])
    bar.set_label(name, fontsize=size)
    bar.outline.set_linewidth(0.4)
    scale.tick_params(length=0, labelsize=size)


def inner_size(axes: Axes) -> tuple[float, float]:
    """Width and height of axes in inches."""
    box = axes.get_position()
    whole_width, whole_height = axes.figure.get_size_inches()  # type: ignore[union-attr]
    return max(float(box.width * whole_width), 0.01), max(float(box.height * whole_height), 0.01)


def names(axis: Axis) -> list[str] | None:
    """The texts along an axis, as they are shown; None if it has only numbers."""
    if isinstance(axis, Tokens):
        return [shown(text) for text in axis.texts]
    if isinstance(axis, Cells):
        rows = [f" {row + 1}" for row in range(axis.rows)] if axis.rows > 1 else [""] * axis.rows
        return [shown(f"{name}{row}") for name in axis.columns for row in rows]
    return None


def first_number(axis: Axis) -> int:
    """Places with a name are counted from 1, others from 0."""
    return int(isinstance(axis, Slots) and bool(axis.name))


def room(axis: Axis, size: float) -> float:
    """How long the longest label of an axis is, in inches."""
    return max(widths(names(axis) or [f"{len(axis):,}"], size), default=0.0) + 0.06


def stand(axis: Axis, size: float, pitch: float) -> bool:
    """Whether the labels under a map have to be vertical, so that neighbours do not touch."""
    texts = names(axis)
    return texts is not None and bool(max(widths(texts, size), default=0.0) > 0.92 * pitch)


def label(axes: Axes, side: str, axis: Axis, size: float) -> None:
    """Label an axis. Where there is no room for every label, every second, third, ... is written."""
    width, height = inner_size(axes)
    pitch = (width if side == "x" else height) / max(len(axis), 1)
    texts = names(axis)
    own = axes.xaxis if side == "x" else axes.yaxis
    if texts is None:
        step = _round_step(len(axis), max(2, min(10, int(pitch * len(axis) / 0.35))))
        numbers = list(range(step - 1 if first_number(axis) else 0, len(axis), step))
        seconds = axis.seconds if isinstance(axis, Frames) else None
        counted = [f"{place + first_number(axis)}" for place in numbers]
        own.set_ticks(numbers, counted if seconds is None else [f"{place * seconds:.3g} s" for place in numbers])
        own.set_tick_params(length=2, width=0.5, labelsize=size, pad=2)
        return
    upright = side == "x" and stand(axis, size, pitch)
    every = math.ceil(line_of(size) * 0.92 / pitch) if side == "y" or upright else 1
    places = range(0, len(texts), every)
    own.set_ticks(list(places), [texts[place] for place in places])
    for one in own.get_majorticklabels():
        # a single Chinese character is not turned
        turned = upright and not (len(one.get_text()) == 1 and pitch > line_of(size))
        one.set(rotation=90 if turned else 0, fontsize=size, parse_math=False)
    own.set_tick_params(length=0 if every == 1 else 2, width=0.5, labelsize=size, pad=2)


def _round_step(count: int, most: int) -> int:
    """The distance of labels along ``count`` numbers so that there are at most so many: 1, 2, 5, 10, 20, ..."""
    return next(
        step * 10**power for power in range(20) for step in (1, 2, 5) if math.ceil(count / (step * 10**power)) <= most
    )


def thin_frame(axes: Axes) -> None:
    """A hairline around a map."""
    for spine in axes.spines.values():
        spine.set_linewidth(0.4)
        spine.set_color("#666666")


def fits(title: str | None, size: float, width: float) -> int:
    """How many characters of a title fit into a width in inches."""
    if not title:
        return 0
    whole = widths([shown(title, 200)], size)[0]
    return max(12, min(200, int(len(shown(title, 200)) * min(1.0, width / max(whole, 0.01)))))


def title_lines(title: str | None, size: float, width: float) -> list[str]:
    """A title in lines that fit into a width in inches, broken between words."""
    lines: list[str] = []
    for word in shown(title, 200).split() if title else ():
        whole = f"{lines[-1]} {word}" if lines else word
        if lines and widths([whole], size)[0] <= width:
            lines[-1] = whole
        else:
            lines.append(shown(word, fits(word, size, width)))
    return lines


def ink(weight: float, most: float, colours: str = COLOURS) -> tuple[str, str]:
    """The shade of a weight, and the legible colour on it: black or white."""
    red, green, blue, _ = shades(colours)(min(weight / most, 1.0))
    bright = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return to_hex((red, green, blue)), "black" if bright > 0.45 else "white"
