"""Words in lines, as in a text: where each of them stands when lines are as wide as the picture."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from sightline.records import Axis
from sightline.view.fonts import widths
from sightline.view.layout import INCH, inches, line_of, names
from sightline.view.texts import right_to_left

_NO_BLANK_BEFORE = frozenset(".,;:!?)]}»”’…%。，、；：！？）」』")
_NO_BLANK_AFTER = frozenset("([{«“„（「『")
PAD = 0.02  # inches around a word


@dataclass(frozen=True)
class Placed:
    """A word: its text and where it stands, in inches from the left and the top."""

    text: str
    left: float
    top: float
    width: float
    height: float


def words_along(axis: Axis) -> list[str]:
    """The words along an axis, or numbers where it has none."""
    return names(axis) or [str(place) for place in range(len(axis))]


def flow(texts: Sequence[str], width: float, size: float) -> list[Placed]:
    """Lines of words, from the right if most of them are written from the right."""
    height = line_of(size) * 1.15
    blank = 0.3 * size / INCH
    backwards = right_to_left("".join(texts))
    placed: list[Placed] = []
    along, top = 0.0, 0.0
    for place, (text, wide) in enumerate(zip(texts, widths(texts, size), strict=True)):
        gap = blank if place and _parted(texts[place - 1], text) else 0.0
        full = wide + 2 * PAD
        if along > 0 and along + gap + full > width:
            along, gap, top = 0.0, 0.0, top + height + 0.03
        left = along + gap
        along = left + full
        placed.append(Placed(text, width - left - full if backwards else left, top, full, height))
    return placed


def height_of(placed: Sequence[Placed]) -> float:
    """How high some words stand, in inches."""
    return max((one.top + one.height for one in placed), default=0.0)


def sheet(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """An empty part of a figure, measured in inches from its own top left corner; ``top`` is from the figure's top."""
    whole = float(figure.get_size_inches()[1])
    axes = figure.add_axes(inches(figure, left, whole - top - height, width, height))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    return axes


def write(axes: Axes, one: Placed, size: float, paper: str = "none", colour: str = "black") -> tuple[Rectangle, Text]:
    """A word on a shade."""
    box = Rectangle((one.left, one.top), one.width, one.height, facecolor=paper, edgecolor="none", linewidth=0.6)
    axes.add_patch(box)
    text = axes.text(
        one.left + one.width / 2,
        one.top + one.height * 0.72,
        one.text,
        ha="center",
        va="baseline",
        fontsize=size,
        color=colour,
        parse_math=False,
    )
    return box, text


def _parted(before: str, after: str) -> bool:
    """Whether a blank stands between two words: not before a full stop, and not in Chinese or Japanese."""
    if after[:1] in _NO_BLANK_BEFORE or before[-1:] in _NO_BLANK_AFTER:
        return False
    wide = [unicodedata.east_asian_width(side) in "WF" and not _is_hangul(side) for side in (before[-1], after[0])]
    return not all(wide)


def _is_hangul(character: str) -> bool:
    return unicodedata.name(character, "").startswith("HANGUL")
