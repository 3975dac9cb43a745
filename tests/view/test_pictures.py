"""Pictures: written whole, in the format of the file's ending, with the user's text as text."""

import numpy as np
import pytest

from sightline import Record, Slots, Tokens
from sightline.view.pictures import heat_map


def record(rows, columns):
    weights = np.full((len(rows), len(columns)), 1 / len(columns), dtype=np.float32)
    return Record("attention", 0, 0, rows, columns, weights)


@pytest.mark.parametrize(("ending", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_formats(tmp_path, ending, start):
    path = heat_map(record(Tokens(("a", "b")), Slots(7)), tmp_path / "new" / f"map.{ending}", title="a map")
    assert path.read_bytes().startswith(start)
    assert [file.name for file in path.parent.iterdir()] == [path.name], "no temporary file is left"


def test_text_is_text(tmp_path):
    """Dollar signs are no formulas, and angle brackets no markup."""
    words = Tokens(("$x_1$", "</text><script>", "100$", "&amp;"))
    text = heat_map(record(words, words), tmp_path / "map.svg").read_text(encoding="utf-8")
    assert "$x_1$" in text
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "&amp;amp;" in text


def test_a_failed_picture_leaves_the_old_one(tmp_path):
    path = heat_map(record(Slots(2), Slots(2)), tmp_path / "map.png")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not supported"):
        heat_map(record(Slots(2), Slots(2)), tmp_path / "map.nonsense")
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["map.png"]


def test_large_maps_stay_within_a_page(tmp_path):
    from matplotlib.image import imread

    path = heat_map(record(Slots(300), Slots(300)), tmp_path / "map.png")
    height, width, _ = imread(path).shape
    assert width <= 2000
    assert height <= 2000
