"""Fonts: characters are drawn wherever a font exists, and one warning says where none does."""

import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.image import imread

from sightline import Record, Slots, Tokens
from sightline.view import fonts
from sightline.view import fonts as emoji
from sightline.view.pictures import heat_map
from sightline.view.words import right_to_left, shown


def record(*texts):
    weights = np.full((1, len(texts)), 1 / len(texts), dtype=np.float32)
    return Record("attention", 0, 0, Slots(1), Tokens(texts), weights)


@pytest.fixture
def only_base(monkeypatch):
    """A machine with no fonts but those that come with matplotlib."""
    base = [face for face in font_manager.fontManager.ttflist if face.name == fonts.BASE]
    monkeypatch.setattr(fonts, "_all_faces", lambda: base)
    monkeypatch.setattr(fonts, "_find_new_fonts", lambda: None)
    monkeypatch.setattr(emoji, "colour_font", lambda: None)
    fonts._choose.cache_clear()
    yield
    fonts._choose.cache_clear()


def test_one_warning_names_the_scripts_and_what_to_install(tmp_path, only_base):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        heat_map(record("猫", "は", "नमस्ते", "🐶", "cat", "кот", "قط"), tmp_path / "map.png")
    assert len(found) == 1
    assert found[0].category is UserWarning
    message = str(found[0].message)
    assert "Chinese, Devanagari, Japanese and emoji" in message
    assert "fonts-noto-cjk" in message
    assert "fonts-noto-color-emoji" in message
    assert "Arabic" not in message, "the font that comes with matplotlib has it"


def test_svg_needs_no_font_here(tmp_path, only_base):
    """Its text is drawn with the fonts of whoever opens it."""
    path = heat_map(record("猫", "🐶"), tmp_path / "map.svg")
    assert {"猫", "🐶"} <= set(ElementTree.parse(path).getroot().itertext())


def test_ordinary_text_needs_one_font(tmp_path):
    assert fonts.families(["Männer", "שלום", "Ω", "кот"]) == [fonts.BASE]


def test_the_family_with_most_of_the_missing_characters_comes_first(monkeypatch):
    has = {
        fonts.BASE: "ab",
        "Odd": "猫",
        "Han Sans JP": "猫犬",
        "Han Sans SC": "猫犬",
        "Han Serif SC": "猫犬",
        "Kana": "は",
    }
    monkeypatch.setattr(
        fonts,
        "_all_faces",
        lambda: [font_manager.FontEntry(name=name, style="normal", weight=400, stretch="normal") for name in has],
    )
    monkeypatch.setattr(fonts, "_find_new_fonts", lambda: None)
    monkeypatch.setattr(fonts, "_covered", lambda face, wanted: frozenset(has[face.name]) & wanted)
    fonts._choose.cache_clear()
    assert fonts.families(["ab", "猫犬"]) == [fonts.BASE, "Han Sans SC"]
    assert fonts.families(["猫犬", "は"]) == [fonts.BASE, "Han Sans JP", "Kana"]
    assert fonts._choose(frozenset("猫ب"))[1] == {"ب"}
    fonts._choose.cache_clear()


def test_fonts_installed_since_matplotlib_made_its_list_are_found(monkeypatch):
    known = [face for face in font_manager.fontManager.ttflist if face.name == fonts.BASE]
    added = []
    new = [face for face in font_manager.fontManager.ttflist if face.name == "STIXGeneral"]
    monkeypatch.setattr(fonts, "_all_faces", lambda: known + added)
    monkeypatch.setattr(fonts, "_find_new_fonts", lambda: added.extend(new))
    only_there = next(
        chr(code)
        for code in range(0x2100, 0x2E00)
        if fonts._covered(new[0], frozenset(chr(code))) and not fonts._covered(known[0], frozenset(chr(code)))
    )
    fonts._choose.cache_clear()
    assert fonts.families([only_there]) == [fonts.BASE, "STIXGeneral"]
    fonts._choose.cache_clear()


def test_colour_emoji_are_painted_in_their_place(tmp_path, monkeypatch, only_base):
    """With a font of coloured images, here one red square for all: it is in the picture, and there is no warning."""
    red = np.zeros((20, 20, 4), dtype=np.uint8)
    red[..., 0] = red[..., 3] = 255
    monkeypatch.setattr(emoji, "colour_font", lambda: "a font")
    monkeypatch.setattr(emoji, "picture", lambda cluster: red)

    class Face:
        def get_char_index(self, code):
            return 1

    real = emoji.FT2Font
    monkeypatch.setattr(emoji, "FT2Font", lambda path: Face() if path == "a font" else real(path))
    pixels = imread(heat_map(record("a🐶b", "c"), tmp_path / "map.png"))[..., :3]
    red_ones = (pixels[..., 0] > 0.9) & (pixels[..., 1] < 0.1) & (pixels[..., 2] < 0.1)
    height, width = (np.ptp(np.flatnonzero(red_ones.any(axis=side))) + 1 for side in (1, 0))
    expected = 8 / 72 * 200  # eight points at 200 dots an inch
    assert abs(height - expected) <= 2
    assert abs(width - expected) <= 2
    plain = imread(heat_map(record("ab", "c"), tmp_path / "plain.png"))[..., :3]
    assert not ((plain[..., 0] > 0.9) & (plain[..., 1] < 0.1)).any()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word", "word"),
        (" word ", "word"),
        ("", "␣"),
        ("   ", "␣"),
        ("a\x00b\tc\n\x7f", "a␀b␉c␊␡"),
        ("\x85", "�"),
        ("\ud800x\uffff", "�x�"),
        ("\u202eabc", "⟨U+202E⟩abc"),
        ("\u200f", "⟨U+200F⟩"),
        ("\u0301", "◌\u0301"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("a\u2028b", "a␤b"),
    ],
)
def test_what_is_shown_of_a_text(text, expected):
    assert shown(text) == expected


def test_long_texts_are_cut_in_the_middle():
    text = shown("a" * 5000 + "b" * 5000)
    assert text == "a" * 12 + "…" + "b" * 11
    assert shown("x" * 24) == "x" * 24


def test_direction():
    assert right_to_left("مرحبا abc")
    assert not right_to_left("hello مر")
    assert not right_to_left("123")


@pytest.mark.filterwarnings("ignore:no installed font")
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_hostile_text_breaks_nothing(tmp_path, ending):
    hostile = (
        "$x_1$",
        r"\$",
        "\x00",
        "\ud800",
        "x" * 10_000,
        "\u202e",
        "\uffff",
        "</text><script>",
        "\u0301",
        "👩\u200d👧",
        "",
    )
    path = heat_map(record(*hostile), tmp_path / f"map.{ending}", title="$ \x01 <b>")
    if ending == "svg":
        texts = set(ElementTree.parse(path).getroot().itertext())
        assert {"$x_1$", r"\$", "␀", "�", "</text><script>", "␣", "⟨U+202E⟩", "$ ␁ <b>"} <= texts
