"""Photos too large to be labelled whole go in parts that overlap."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import sightline.commands.gridding as gridding
from sightline.data.grids import Raw
from sightline.errors import UserError
from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
from sightline.tasks.grid import GridConfig
from sightline.tasks.grid_parts import in_parts, parts_of, stretches
from sightline.tasks.gridder import Gridder, GridFacts

FACTS = GridFacts(("none", "crack"), (0, 255), (5, 1), 8, 3, 0.0)


def gridder(model, most_cells):
    torch.manual_seed(0)
    config = GridConfig(model=model, cell=8, most_cells=most_cells)
    return Gridder(config.build(8, 3, FACTS.counts, pretrained=False), FACTS, config)


def photo(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@given(st.integers(1, 500), st.integers(1, 60), st.data())
def test_stretches_cover_all_cells_and_take_none_near_an_inner_edge(cells, side, data):
    overlap = data.draw(st.integers(0, side // 2))
    found = stretches(cells, side, overlap)
    assert [number for one in found for number in range(one.first, one.last)] == list(range(cells))
    for one in found:
        assert 0 <= one.start <= one.first < one.last <= one.stop <= cells
        assert one.stop - one.start == min(side, cells)
        assert one.first == 0 or one.first - one.start >= overlap // 2
        assert one.last == cells or one.stop - one.last >= overlap // 2
    assert all(after.start - before.start >= 1 for before, after in pairwise(found))


def test_a_model_of_single_cells_says_the_same_in_parts():
    """It sees nothing around a cell, so that parts cannot matter; at the right and lower edge cells are cut off."""
    model = SingleConfig(width=8, cell_size=8, pixel_width=4)
    pixels = photo(131, 245)
    whole, parts = gridder(model, 20_000), gridder(model, 60)
    parts.model.load_state_dict(whole.model.state_dict())
    (expected,), (found,) = whole.predict([pixels]), parts.predict([pixels])
    assert (expected.parts, found.parts) == (1, len(parts_of(Raw("a", pixels, None), 8, 60)))
    assert found.parts > 20
    np.testing.assert_allclose(found.chances, expected.chances, atol=1e-6)
    np.testing.assert_allclose(found.pixel_chances, expected.pixel_chances, atol=1e-6)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.pixels.shape == expected.pixels.shape == pixels.shape[:2]


def test_parts_are_read_where_they_lie():
    """A model that says of a cell what its first feature is."""
    values = np.arange(30 * 50, dtype=np.float32).reshape(30, 50, 1)
    raw = Raw("a", values, None)
    parts = parts_of(raw, 1, 100)
    seen = []
    found, pixels = in_parts(raw, 1, parts, lambda one: (seen.append(one.values.shape[:2]) or one.values, None))
    np.testing.assert_array_equal(found, values)
    assert pixels is None
    assert set(seen) == {(10, 10)}
    assert len(seen) == len(parts)


def test_a_model_that_looks_everywhere_works_in_parts_and_small_images_stay_whole():
    model = AtOnceConfig(width=8, cell_size=8, rnn_size=4, pixel_width=4)
    found = gridder(model, 80).predict([photo(64, 64), photo(100, 100, 1), photo(40, 40, 2), photo(40, 40, 3)])
    assert [one.parts for one in found] == [1, len(parts_of(Raw("a", photo(100, 100), None), 8, 80)), 1, 1]
    assert [one.labels.shape for one in found] == [(8, 8), (13, 13), (5, 5), (5, 5)]


def test_where_cells_look_is_not_shown_in_parts():
    with pytest.raises(UserError, match=r"image 1 has 169 cells; at most 80 \(most_cells\) are looked at together"):
        gridder(AtOnceConfig(width=8, cell_size=8, rnn_size=4, pixel_width=0), 80).explain(photo(100, 100))


def test_predicting_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gridding, "load_run", lambda run: gridder(SingleConfig(width=8, cell_size=8), 60))
    Image.fromarray(photo(120, 120)).save(tmp_path / "large.png")
    Image.fromarray(photo(24, 24)).save(tmp_path / "small.png")
    gridding.predict_command(tmp_path, [tmp_path], None, tmp_path / "out", False, None, None)
    said = capsys.readouterr()
    assert said.out.count("crack") == 2
    assert "large.png was labelled in 9 parts that overlap" in said.err
    assert "small.png" not in said.err
    assert {path.name for path in (tmp_path / "out").glob("*.mask.png")} == {"large.mask.png", "small.mask.png"}


def test_several_classes_in_parts_need_little_memory():
    """Of each pixel its class is kept, not the probabilities of all classes."""
    facts = GridFacts(("none", *"abcdefg"), tuple(range(8)), (5,) * 8, 8, 3, 0.0)
    config = GridConfig(model=SingleConfig(width=8, cell_size=8, pixel_width=4), cell=8, most_cells=60)
    torch.manual_seed(0)
    parts = Gridder(config.build(8, 3, facts.counts, pretrained=False), facts, config)
    whole = Gridder(parts.model, facts, replace(config, most_cells=20_000))
    pixels = photo(131, 245)
    (expected,), (found,) = whole.predict([pixels]), parts.predict([pixels])
    np.testing.assert_array_equal(found.pixels, expected.pixels)
    assert len(np.unique(found.pixels)) > 2
    _, refined = parts._answer([Raw("a", pixels, None)])
    assert refined.dtype == np.uint8
    assert refined.shape[1:] == (136, 248)


def test_images_that_are_read_are_never_written_over(tmp_path, monkeypatch, capsys):
    """A mask beside its photo, both read, and results that would be called as the mask is."""
    monkeypatch.setattr(gridding, "load_run", lambda run: gridder(SingleConfig(width=8, cell_size=8), 60))
    Image.fromarray(photo(24, 24)).save(tmp_path / "x.png")
    Image.fromarray(photo(80, 16, 1)).save(tmp_path / "x.mask.png")
    before = (tmp_path / "x.mask.png").read_bytes()
    gridding.predict_command(tmp_path, [tmp_path / "x.png", tmp_path / "x.mask.png"], None, tmp_path, True, None, None)
    assert (tmp_path / "x.mask.png").read_bytes() == before
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(one["labels"]) for one in found] == [3, 10]
    assert {path.name for path in tmp_path.glob("*.json")} == {"x-2.json", "x.mask.json"}


def test_a_viewed_photo_may_end_in_capitals_and_go_in_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gridding, "load_run", lambda run: gridder(SingleConfig(width=8, cell_size=8), 60))
    Image.fromarray(photo(24, 24)).save(tmp_path / "small.png")
    Image.fromarray(photo(120, 120)).save(tmp_path / "large.png")
    for name in ("a.JSON", "b.HTML", "c.PNG"):
        gridding.view_command(tmp_path, [tmp_path / "small.png"], None, tmp_path / name, None)
        assert (tmp_path / name).stat().st_size > 100
    gridding.view_command(tmp_path, [tmp_path / "large.png"], None, tmp_path / "d.png", None)
    assert "large.png was labelled in 9 parts" in capsys.readouterr().err
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match="which is a folder; name a file"):
        gridding.view_command(tmp_path, [tmp_path / "small.png"], None, tmp_path / "folder.png", None)
