"""The fonts of a picture: which of those that are installed can draw its texts.

matplotlib takes each character from the first font of a list that has it, and since 3.11 lays text out with HarfBuzz:
right-to-left text is in visual order and Arabic letters are joined. What remains is to find installed fonts for the
characters of a picture, and to warn where there is none.
"""

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import font_manager, ft2font
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontEntry, FontProperties
from matplotlib.ft2font import FT2Font
from matplotlib.image import BboxImage
from matplotlib.text import Text
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import Bbox
from PIL import Image, ImageDraw, ImageFont

from sightline.view.words import right_to_left, unseen

# --- Emoji. Most systems have them only as coloured images in a font, which Pillow can use and matplotlib cannot.
#
# So an emoji that no other font has is replaced by a blank of its width in the text, and painted over the blank.

_ROOM = "\u2003"  # as wide as the font is high
_ONE = "[\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u231a-\u23ff]"
_CHANGES = "[\U0001f3fb-\U0001f3ff\ufe0f\u20e3\U000e0020-\U000e007f]*"
# a flag is two letters; a family is people joined by a joiner
_CLUSTER = re.compile(
    f"[\U0001f1e6-\U0001f1ff]{{2}}|{_ONE}{_CHANGES}(?:\u200d{_ONE}{_CHANGES})*|[\U0001f3fb-\U0001f3ff]"
)
_SIZES = (109, 136, 128, 160, 96, 64, 48)  # such fonts have images of one size, and open only at that size


def is_emoji(character: str) -> bool:
    """Whether a character is an emoji or a part of one."""
    return bool(re.fullmatch(f"{_ONE}|[\U0001f1e6-\U0001f1ff]|[\U0001f3fb-\U0001f3ff]|\u20e3", character))


def paint(figure: Figure, texts: Iterable[str], missing: Iterable[str]) -> set[str]:
    """Paint the emoji of a figure's texts if any of them is missing from all other fonts.

    All of them, so that they have one style. Returns the characters that were painted.
    """
    path = colour_font() if any(map(is_emoji, missing)) else None
    if path is None:
        return set()
    face = FT2Font(path)
    clusters = {cluster for text in texts for cluster in _CLUSTER.findall(text)}
    able = {cluster for cluster in clusters if face.get_char_index(ord(cluster[0]))}
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
    """The text with room for its emoji, and for each emoji the text before it."""
    places: list[tuple[str, str]] = []
    built, done = "", 0
    for match in _CLUSTER.finditer(text):
        if match[0] in able:
            built += text[done : match.start()]
            places.append((built, match[0]))
            built, done = built + _ROOM, match.end()
    return built + text[done:], places


def _make_room_on(axis: Axis, able: set[str]) -> None:
    """An axis sets its labels again at each drawing: it needs the final texts."""
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
    """An emoji in a text, visible while the text is."""

    def __init__(self, text: Text, before: str) -> None:
        super().__init__(_place(text, before), interpolation="hanning")
        self._text = text

    def draw(self, renderer: Any) -> None:  # renderers have no common class
        if self._text.get_visible():
            super().draw(renderer)


def _place(text: Text, before: str) -> Callable[[Any], Bbox]:
    """Where the emoji after ``before`` lies; known only when the text is drawn."""

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


# --- Fonts for the characters of a picture.

BASE = "DejaVu Sans"  # part of matplotlib; has Latin, Greek, Cyrillic, Arabic, Hebrew and most signs
_UNFIT = ("Last Resort", "cmb10", "cmex", "cmmi", "cmr10", "cmss", "cmsy", "cmtt", "STIXNon", "STIXSize")


def families(texts: Iterable[str]) -> list[str]:
    """The fonts for these texts, in order of preference."""
    return list(_choose(_characters(texts))[0])


def widths(texts: Sequence[str], size: float) -> list[float]:
    """How wide each text is, in inches, at a size in points."""
    chosen = tuple(families(texts))
    with quiet():
        return [_width(text, chosen, size) for text in texts]


@lru_cache(maxsize=4096)
def _width(text: str, chosen: tuple[str, ...], size: float) -> float:
    properties = FontProperties(family=list(chosen), size=size)
    return float(text_to_path.get_text_width_height_descent(text, properties, ismath=False)[0]) / 72


@contextmanager
def quiet() -> Iterator[None]:
    """Silence matplotlib's warning for each missing character: `fit_fonts` warns once for all."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        warnings.filterwarnings("ignore", message=r"Matplotlib currently does not support")
        yield


def fit_fonts(figure: Figure, path: Path) -> None:
    """Give every text of a figure fonts that have its characters, and warn where there are none.

    Text in an SVG file stays text and is drawn with the fonts of the viewer, so there is no warning.
    """
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
    everything = [text.get_text() for text in texts]
    chosen, missing = _choose(_characters(everything))
    if chosen != (BASE,):
        for text in texts:
            text.set_fontfamily(list(chosen))
    if path.suffix.lower() == ".svg":
        return
    missing -= paint(figure, everything, missing)
    _warn_missing(missing, everything)


def _warn_missing(missing: Iterable[str], texts: Iterable[str]) -> None:
    """One warning that names the scripts without a font, and what to install."""
    scripts = {_script(character) for character in missing}
    if scripts:
        packages = sorted({_package(script) for script in scripts})
        warnings.warn(
            f"no installed font has the characters of {_and(sorted(scripts))}, so the picture shows boxes "
            f"instead; install {_and(packages)}, or any other font with them",
            UserWarning,
            stacklevel=2,
        )
    if not hasattr(ft2font, "__libraqm_version__") and any(map(right_to_left, texts)):
        warnings.warn(
            "this matplotlib cannot lay out right-to-left text; install matplotlib 3.11 or newer",
            UserWarning,
            stacklevel=2,
        )


def _characters(texts: Iterable[str]) -> frozenset[str]:
    """Those that need a glyph: not blanks, joiners and variation selectors."""
    return frozenset(
        character
        for text in texts
        for character in text
        if not character.isspace() and not unseen(character) and not 0xE0000 <= ord(character) <= 0xE01EF
    )


@lru_cache(maxsize=256)
def _choose(characters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The families, the base first, and the characters that none of them has.

    Each further family is the one with most of the missing characters, so that a word is not made of two fonts.
    """
    chosen = [BASE]
    known = _installed()
    missing = characters - _covered(known[BASE], characters) if BASE in known else characters
    for rescan in (False, True):
        if missing and rescan:  # matplotlib caches its list of fonts and misses new ones
            _find_new_fonts()
            known = _installed()
        candidates = {name: _covered(entry, missing) for name, entry in known.items()} if missing else {}
        preferred = sorted(candidates, key=partial(_rank, language=_language(characters)))
        while missing:
            best = max(preferred, key=lambda name: len(candidates[name] & missing), default=BASE)
            if not candidates.get(best, frozenset()) & missing:
                break
            chosen.append(best)
            missing = missing - candidates[best]
    return tuple(chosen), frozenset(missing)


def _installed() -> dict[str, FontEntry]:
    """One face of each family: upright and of regular weight where there is one."""
    faces: dict[str, FontEntry] = {}
    for entry in _all_faces():
        best = faces.get(entry.name)
        if not entry.name.startswith(_UNFIT) and (best is None or _oddity(entry) < _oddity(best)):
            faces[entry.name] = entry
    return faces


def _all_faces() -> list[FontEntry]:
    return list(font_manager.fontManager.ttflist)


def _oddity(entry: FontEntry) -> tuple[bool, bool, int]:
    weight = font_manager.weight_dict.get(entry.weight, 400) if isinstance(entry.weight, str) else entry.weight
    return entry.style != "normal", entry.stretch != "normal", abs(int(weight) - 400)


@lru_cache(maxsize=1)
def _find_new_fonts() -> None:
    known = {entry.fname for entry in _all_faces()}
    for path in font_manager.findSystemFonts():
        if path not in known:
            try:
                font_manager.fontManager.addfont(path)
            except (OSError, RuntimeError, NotImplementedError, ValueError):
                continue  # a font that matplotlib cannot use, such as one of colour bitmaps


def _covered(entry: FontEntry, characters: frozenset[str]) -> frozenset[str]:
    try:
        face = FT2Font(entry.fname)
        return frozenset(character for character in characters if face.get_char_index(ord(character)))
    except (OSError, RuntimeError):  # removed since the list was made
        return frozenset()


def _language(characters: frozenset[str]) -> str:
    """The suffix in the names of fonts: Chinese, Japanese and Korean have different shapes of shared characters."""
    scripts = {_script(character) for character in characters if ord(character) > 0x2E7F}
    return " JP" if "Japanese" in scripts else " KR" if "Korean" in scripts else " SC"


def _rank(name: str, language: str) -> tuple[bool, bool, bool, str]:
    """The order of families that have the same characters, the best first."""
    plain = "sans" in name.lower() or "gothic" in name.lower()
    return language not in name, not plain, "mono" in name.lower(), name


def _script(character: str) -> str:
    first = unicodedata.name(character, "").split(" ")[0]
    if is_emoji(character):
        return "emoji"
    if first in ("CJK", "KANGXI", "BOPOMOFO", "IDEOGRAPHIC"):
        return "Chinese"
    if first in ("HIRAGANA", "KATAKANA", "HALFWIDTH"):
        return "Japanese"
    if first == "HANGUL":
        return "Korean"
    if unicodedata.category(character)[0] in "LM" and first:
        return first.title()
    return "some signs"


def _package(script: str) -> str:
    if script in ("Chinese", "Japanese", "Korean"):
        return "Noto Sans CJK (Debian: fonts-noto-cjk)"
    if script == "emoji":
        return "Noto Color Emoji (Debian: fonts-noto-color-emoji)"
    return "the Noto fonts (Debian: fonts-noto-core)"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
