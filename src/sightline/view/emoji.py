"""Emoji in pictures: most systems have them only as coloured images in a font, which matplotlib cannot use.

Pillow can. So an emoji that no other font has is left out of the text, as a blank of its width, and painted there.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.image import BboxImage
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import Bbox
from PIL import Image, ImageDraw, ImageFont

from sightline.view.texts import right_to_left

_ROOM = "\u2003"  # as wide as the letters are high
_ONE = "[\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u231a-\u23ff]"
_CHANGES = "[\U0001f3fb-\U0001f3ff\ufe0f\u20e3\U000e0020-\U000e007f]*"
# a flag is two letters; a family is people joined by a joiner
_CLUSTER = re.compile(
    f"[\U0001f1e6-\U0001f1ff]{{2}}|{_ONE}{_CHANGES}(?:\u200d{_ONE}{_CHANGES})*|[\U0001f3fb-\U0001f3ff]"
)
_SIZES = (109, 136, 128, 160, 96, 64, 48)  # such fonts have images of one size, and only that size can be asked for


def is_emoji(character: str) -> bool:
    """Whether a character is an emoji or a part of one."""
    return bool(re.fullmatch(f"{_ONE}|[\U0001f1e6-\U0001f1ff]|[\U0001f3fb-\U0001f3ff]|\u20e3", character))


def paint(figure: Figure, texts: Iterable[str], missing: Iterable[str]) -> set[str]:
    """Paint the emoji of a figure's texts if any of them is missing from all other fonts.

    All of them, so that they look alike. Returns the characters that are now there.
    """
    if not any(map(is_emoji, missing)):
        return set()
    path = colour_font()
    if path is None:
        return set()
    face = FT2Font(path)
    wanted = {cluster for text in texts for cluster in _CLUSTER.findall(text)}
    able = {cluster for cluster in wanted if face.get_char_index(ord(cluster[0]))}
    for axis in figure.findobj(Axis):
        if isinstance(axis, Axis):
            _make_room_on(axis, able)
    for text in figure.findobj(Text):
        if isinstance(text, Text) and any(cluster in text.get_text() for cluster in able):
            _paint_text(figure, text, able)
    return {character for cluster in able for character in cluster}


@lru_cache(maxsize=1)
def colour_font() -> str | None:
    """The file of an installed font of coloured emoji."""
    for path in sorted(font_manager.findSystemFonts()):
        if "emoji" in Path(path).name.lower():
            try:
                if not FT2Font(path).scalable:
                    return path
            except (OSError, RuntimeError):
                continue
    return None


@lru_cache(maxsize=512)
def picture(cluster: str) -> np.ndarray | None:
    """One emoji in colour: height × width × 4, or None if the font cannot be read."""
    path = colour_font()
    for size in _SIZES if path else ():
        try:
            font = ImageFont.truetype(str(path), size)
        except OSError:
            continue
        left, top, right, bottom = map(int, font.getbbox(cluster))
        canvas = Image.new("RGBA", (max(right - left, 1), max(bottom - top, 1)))
        ImageDraw.Draw(canvas).text((-left, -top), cluster, font=font, embedded_color=True)
        return np.asarray(canvas)
    return None


def _without(text: str, able: set[str]) -> tuple[str, list[tuple[str, str]]]:
    """The text with room for its emoji, and for each of them what stands before it."""
    places: list[tuple[str, str]] = []
    built, done = "", 0
    for found in _CLUSTER.finditer(text):
        if found[0] in able:
            built += text[done : found.start()]
            places.append((built, found[0]))
            built, done = built + _ROOM, found.end()
    return built + text[done:], places


def _make_room_on(axis: Axis, able: set[str]) -> None:
    """Labels of an axis are set anew at each drawing: the axis has to know them as they will be."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return
    labels = axis.get_majorticklabels()
    texts = [label.get_text() for label in labels]
    reduced = [_without(text, able)[0] for text in texts]
    if reduced != texts:
        axis.set_ticklabels(reduced)
        for label, text in zip(labels, texts, strict=True):
            label.set_text(text)  # until it is painted


def _paint_text(figure: Figure, text: Text, able: set[str]) -> None:
    reduced, places = _without(text.get_text(), able)
    text.set_text(reduced)
    for before, cluster in places:
        pixels = picture(cluster)
        if pixels is not None:
            image = _Painted(text, before)
            image.set_data(pixels)
            image.set_in_layout(False)
            image.set_zorder(text.get_zorder() + 10)
            figure.add_artist(image)


class _Painted(BboxImage):
    """An emoji in its room in a text, seen as long as the text is."""

    def __init__(self, text: Text, before: str) -> None:
        super().__init__(_place(text, before), interpolation="hanning")
        self._text = text

    def draw(self, renderer: Any) -> None:  # a wrapped one for PDF, which is of no common class
        if self._text.get_visible():
            super().draw(renderer)


def _place(text: Text, before: str) -> Callable[[Any], Bbox]:
    """Where the room behind ``before`` lies when the text is drawn: only then is it known."""

    def box(renderer: Any) -> Bbox:
        whole = text.get_window_extent(renderer)
        properties = text.get_fontproperties()
        side = renderer.points_to_pixels(float(text.get_fontsize()))
        along = renderer.get_text_width_height_descent(before, properties, ismath=False)[0] if before else 0.0
        x, y = (whole.x0 + whole.x1 - side) / 2, (whole.y0 + whole.y1 - side) / 2
        upright = float(text.get_rotation()) == 90
        if right_to_left(text.get_text()):
            along = (whole.height if upright else whole.width) - along - side
        if upright:
            y = whole.y0 + along
        else:
            x = whole.x0 + along
        return Bbox.from_bounds(x, y, side, side)

    return box
