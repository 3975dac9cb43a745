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

import grid_samples
import invoke
from runs import saved
from sightline.errors import UserError
from sightline.inputs.grid import GridFacts, cut, joined, parts_of, stretches
from sightline.models.grid import Inputs
from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
from sightline.tasks.configs.grid import GridConfig

FACTS = GridFacts(("none", "crack"), (0, 255), (5, 1), 8, 3, 0.0)


def gridder(model, most_cells, facts=FACTS):
    torch.manual_seed(0)
    config = GridConfig(model=model, cell=8, most_cells=most_cells)
    return grid_samples.gridder(model.build(Inputs(8, 3, len(facts.names)), pretrained=False), facts, config)


def single(folder):
    """The folder of a run that labels photos in parts."""
    return saved(gridder(SingleConfig(width=8, cell_size=8), 60), folder)


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
    assert (expected.parts, found.parts) == (1, len(parts_of(pixels, 8, 60)))
    assert found.parts > 20
    np.testing.assert_allclose(found.probs, expected.probs, atol=1e-6)
    np.testing.assert_allclose(found.pixel_probs, expected.pixel_probs, atol=1e-6)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert found.pixels.shape == expected.pixels.shape == pixels.shape[:2]


def test_parts_are_read_where_they_lie():
    """A model that says of a cell what its first feature is."""
    values = np.arange(30 * 50, dtype=np.float32).reshape(30, 50, 1)
    parts = parts_of(values, 1, 100)
    seen = [cut(values, 1, part) for part in parts]
    found, pixels = joined(values.shape[:2], 1, zip(parts, ((one, None) for one in seen), strict=True))
    np.testing.assert_array_equal(found, values)
    assert pixels is None
    assert {one.shape[:2] for one in seen} == {(10, 10)}


def test_a_model_that_looks_everywhere_works_in_parts_and_small_images_stay_whole():
    model = AtOnceConfig(width=8, cell_size=8, rnn_size=4, pixel_width=4)
    found = gridder(model, 80).predict([photo(64, 64), photo(100, 100, 1), photo(40, 40, 2), photo(40, 40, 3)])
    assert [one.parts for one in found] == [1, len(parts_of(photo(100, 100), 8, 80)), 1, 1]
    assert [one.labels.shape for one in found] == [(8, 8), (13, 13), (5, 5), (5, 5)]


def test_where_cells_look_is_not_shown_in_parts():
    with pytest.raises(UserError, match=r"image 1 has 169 cells; at most 80 \(most_cells\) are read together"):
        gridder(AtOnceConfig(width=8, cell_size=8, rnn_size=4, pixel_width=0), 80).explain(photo(100, 100))


def test_predicting_says_so(tmp_path):
    run, tmp_path = single(tmp_path / "run"), tmp_path / "photos"
    tmp_path.mkdir()
    Image.fromarray(photo(120, 120)).save(tmp_path / "large.png")
    Image.fromarray(photo(24, 24)).save(tmp_path / "small.png")
    said = invoke.run("predict", run, "--image", tmp_path, "--out", tmp_path / "out", cwd=tmp_path)
    assert said.stdout.count("crack") == 2
    assert "large.png was labelled in 9 parts that overlap" in said.stderr
    assert "small.png" not in said.stderr
    assert {path.name for path in (tmp_path / "out").glob("*.mask.png")} == {"large.mask.png", "small.mask.png"}


def test_several_classes_in_parts_need_little_memory():
    """Of each pixel its class is kept, not the probabilities of all classes."""
    facts = GridFacts(("none", *"abcdefg"), tuple(range(8)), (5,) * 8, 8, 3, 0.0)
    parts = gridder(SingleConfig(width=8, cell_size=8, pixel_width=4), 60, facts)
    whole = grid_samples.gridder(parts.model, facts, replace(parts.config, most_cells=20_000))
    pixels = photo(131, 245)
    (expected,), (found,) = whole.predict([pixels]), parts.predict([pixels])
    np.testing.assert_array_equal(found.pixels, expected.pixels)
    assert len(np.unique(found.pixels)) > 2
    (raw,) = parts.raw(parts.input.items([pixels]))
    assert raw.refined.dtype == np.uint8
    assert raw.refined.shape == (131, 245)


def test_images_that_are_read_are_never_written_over(tmp_path):
    """A mask beside its photo, both read, and results that would be called as the mask is."""
    run, tmp_path = single(tmp_path / "run"), tmp_path / "photos"
    tmp_path.mkdir()
    Image.fromarray(photo(24, 24)).save(tmp_path / "x.png")
    Image.fromarray(photo(80, 16, 1)).save(tmp_path / "x.mask.png")
    before = (tmp_path / "x.mask.png").read_bytes()
    done = invoke.run(
        "predict", run, "--image", "x.png", "x.mask.png", "--out", tmp_path, "--format", "jsonl", cwd=tmp_path
    )
    assert (tmp_path / "x.mask.png").read_bytes() == before
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(one["labels"]) for one in found] == [3, 10]
    assert {path.name for path in tmp_path.glob("*.json")} == {"x-2.json", "x.mask.json"}


def test_a_viewed_photo_may_end_in_capitals_and_go_in_parts(tmp_path):
    run = single(tmp_path / "run")

    def view(image, out):
        return invoke.run("view", run, "--image", image, "--out", out, cwd=tmp_path)

    Image.fromarray(photo(24, 24)).save(tmp_path / "small.png")
    Image.fromarray(photo(120, 120)).save(tmp_path / "large.png")
    for name in ("a.JSON", "b.HTML", "c.PNG"):
        view("small.png", name)
        assert (tmp_path / name).stat().st_size > 100
    assert "large.png was labelled in 9 parts" in view("large.png", "d.png").stderr
    (tmp_path / "folder.png").mkdir()
    assert "which is a folder; name a file" in view("small.png", "folder.png").stderr
