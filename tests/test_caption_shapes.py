"""The example of made shapes: a short training already looks at shapes and not at the ground."""

import importlib.util
import sys
from pathlib import Path

import numpy as np

from sightline.data.shapes import made_shapes
from sightline.tasks.captioner import load_captioner

PATH = Path(__file__).parents[1] / "examples" / "shapes.py"


def load(monkeypatch):
    spec = importlib.util.spec_from_file_location("shapes", PATH)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "shapes", module)
    spec.loader.exec_module(module)
    return module


def test_words_look_at_shapes_after_a_short_training(tmp_path, monkeypatch, capsys):
    module = load(monkeypatch)
    out = tmp_path / "pictures" / "shapes.png"
    measured = module.main(out=out, quick=True, only=("soft",), keep=tmp_path / "kept")
    # Boxes cover an eighth of an image; so much would be inside by chance.
    assert measured.colour_words["soft"] > 0.3
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert "wrote" in capsys.readouterr().out
    again, _ = load_captioner(tmp_path / "kept" / "soft")
    assert again.caption([made_shapes(1, 3, 32)[0].pixels])


def test_a_peak_counts_where_its_middle_is(monkeypatch):
    module = load(monkeypatch)
    (made,) = made_shapes(1, 0, 32)
    maps = np.zeros((1, 4, 4))
    maps[0, 1, 2] = 1  # its middle is 20 from the left and 12 from the top
    for box, inside in (((16, 8, 24, 16), True), ((20, 12, 30, 30), True), ((21, 8, 30, 16), False)):
        assert module.Looked(made, ["circle"], maps, {0: box}).inside(0) is inside
