"""Maps over images: the image travels with the explanation, and pictures and films lay the maps over it."""

import io
import json
import zlib
from base64 import b64decode, b64encode
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from explanations import make
from image_samples import GRID, PEAKS, WORDS, captioned, classified, labelled, looks, scene
from sightline.data.images import fitting
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.picture import LONGEST, Labelling, Picture, fitted_box
from sightline.records import Grid, Record, Tokens
from sightline.view import animation as film
from sightline.view import overlay
from sightline.view.drawing import draw
from sightline.view.page.packing import pack


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved."""
    found = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path, **options: found.append(self) or path.write_bytes(b"x"))
    return found


def again(explanation):
    return Explanation.from_json(json.loads(json.dumps(explanation.to_json(), allow_nan=False)))


def test_an_image_survives_json():
    one = captioned(fit="crop", shape=(64, 64))
    assert again(one).image == one.image
    assert again(one).records[0].columns == GRID
    cells = again(labelled()).cells
    np.testing.assert_array_equal(cells.labels, labelled().cells.labels)
    np.testing.assert_allclose(cells.probabilities, labelled().cells.probabilities)
    assert (cells.names, cells.plain) == (("none", "crack", "pothole"), "none")
    nothing = replace(labelled(), cells=replace(labelled().cells, probabilities=np.full((4, 6), np.nan, np.float32)))
    assert np.isnan(again(nothing).cells.probabilities).all()


def test_an_explanation_without_an_image_is_as_it_was():
    data = make().to_json()
    assert "image" not in data
    assert "cells" not in data
    assert again(make()).image is None


def test_a_drawing_is_kept_exactly_and_a_photograph_small():
    flat = np.zeros((40, 60, 3), dtype=np.uint8)
    flat[10:20] = (200, 30, 30)
    kept = Picture.of(flat, "flat.png")
    assert kept.kind == "image/png"
    np.testing.assert_array_equal(kept.pixels(), flat)
    rng = np.random.default_rng(0)
    photo = Image.fromarray(rng.integers(0, 255, (60, 90, 3), dtype=np.uint8)).resize((1500, 1000))
    small = Picture.of(np.asarray(photo))
    assert (small.kind, small.width, small.height) == ("image/jpeg", LONGEST, 341)
    difference = np.asarray(photo.resize((LONGEST, 341))).astype(int) - small.pixels()
    assert np.abs(difference).mean() < 4
    strip = Picture.of(np.zeros((1, 5000, 3), dtype=np.uint8))
    assert (strip.width, strip.height) == (LONGEST, 1)


@pytest.mark.parametrize(
    ("fit", "box"),
    [("stretch", (0, 0, 1, 1)), ("crop", (0.25, 0, 0.75, 1)), ("pad", (0, -0.5, 1, 1.5))],
)
def test_what_a_model_saw_of_an_image(fit, box):
    assert fitted_box(100, 200, fit, (64, 64)) == pytest.approx(box)
    turned = (box[1], box[0], box[3], box[2])
    assert fitted_box(200, 100, fit, (64, 64)) == pytest.approx(turned)


@pytest.mark.parametrize("fit", ["stretch", "crop", "pad"])
def test_the_box_is_that_of_the_reader_of_images(fit):
    for height, width in ((333, 500), (500, 333), (7, 1000), (1, 1), (224, 224)):
        of, to = fitting(height, width, 224, 224, fit)
        wide, high = (of[2] - of[0]) / (to[2] - to[0]), (of[3] - of[1]) / (to[3] - to[1])
        corners = [(of[0] - to[0] * wide) / width, (of[1] - to[1] * high) / height]
        corners += [(of[0] + (224 - to[0]) * wide) / width, (of[1] + (224 - to[1]) * high) / height]
        assert fitted_box(height, width, fit, (224, 224)) == pytest.approx(corners)


def png(width, height):
    stream = io.BytesIO()
    Image.new("L", (width, height)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"content": b64encode(png(9, 9)).decode()}, r"is \(9, 9\), but its size is given as"),
        ({"content": b64encode(b"<svg onload='alert(1)'/>").decode()}, "neither PNG nor JPEG"),
        ({"content": b64encode(b"\x89PNG\r\n\x1a\nno").decode()}, "cannot be read"),
        ({"content": "A" * (9 << 20)}, "larger than"),
        ({"content": "no base64"}, "base64|padding|alphabet"),
        ({"width": 20_000}, "1 to 512 pixels"),
        ({"box": [0, 0, float("inf"), 1]}, "left < right"),
        ({"box": [0.5, 0, 0.5, 1]}, "left < right"),
    ],
)
def test_a_hostile_image_is_refused(changes, message):
    data = captioned().to_json()
    data["image"].update(changes)
    with pytest.raises(ValueError, match=message):
        Explanation.from_json(data)


def test_damaged_pixels_are_an_error_that_says_so(tmp_path):
    one = captioned()
    content = one.image.content
    cut = replace(one, image=replace(one.image, content=content[: len(content) // 2]))
    with pytest.raises(UserError, match="the image of the explanation cannot be drawn: the picture is damaged"):
        cut.save(tmp_path / "a.png")


def test_labels_that_do_not_fit_are_refused():
    cells = labelled().cells
    for changes, message in [
        ({"labels": np.full((4, 6), 3, np.int32)}, "between 3 and 3; there are 3 names"),
        ({"probabilities": np.zeros((6, 4), np.float32)}, "both are height × width"),
        ({"plain": "other"}, "plain is 'other'"),
    ]:
        with pytest.raises(ValueError, match=message):
            replace(cells, **changes)
    assert isinstance(cells, Labelling)


def test_draw_lays_the_words_over_the_image(figures, tmp_path):
    one = captioned()
    draw(one, tmp_path / "a.png")
    panels = figures[0].axes
    assert [axes.get_title() for axes in panels] == ["image", *WORDS]
    top = overlay.largest([one.records[0]])
    height, width = panels[0].images[0].get_array().shape[:2]
    for axes, weights in zip(panels[1:], one.records[0].weights, strict=True):
        dark = axes.images[1].get_array()[..., 3]
        for place, weight in enumerate(weights):
            row, column = divmod(place, GRID.width)
            middle = dark[int((row + 0.5) * height / GRID.height), int((column + 0.5) * width / GRID.width)]
            assert middle == pytest.approx(overlay.DARKEST * (1 - min(weight / top, 1)), abs=0.04)
    assert "From the caption to the image" in figures[0].texts[-1].get_text()


def test_a_frame_stands_around_what_was_looked_at_most():
    weights = np.array([[0.1, 0.4, 0.0], [0.0, 0.3, 0.2]], dtype=np.float32)
    line = overlay.frame(weights.ravel(), Grid(2, 3), (20, 30)).get_xydata()
    # at least half of 0.4 are the middle column and the last place: three places, eight sides, each apart from the next
    assert len(line) == 8 * 3
    corners = {tuple(point) for point in line}
    assert {(9.5, -0.5), (19.5, -0.5), (29.5, 9.5), (29.5, 19.5), (9.5, 19.5)} <= corners
    assert len(overlay.frame(np.zeros(6), Grid(2, 3), (20, 30)).get_xydata()) == 0


def test_flat_weights_have_no_frame_and_say_so(figures, tmp_path):
    flat = np.array([0.2, 0.2, 0.2, 0.2, 0.15, 0.05], dtype=np.float32)  # a frame would surround the last place
    assert overlay.is_flat(flat)
    assert len(overlay.frame(flat, Grid(2, 3), (20, 30)).get_xydata()) == 0
    assert not overlay.is_flat(np.zeros(6))
    rows = np.stack([flat, np.eye(6, dtype=np.float32)[2]])
    record = Record("cross", 0, 0, Tokens(("a", "dog")), Grid(2, 3), rows)
    overlay.overlay(np.full((20, 30, 3), 90, dtype=np.uint8), record, tmp_path / "a.png")
    assert [axes.get_title() for axes in figures[0].axes] == ["image", "a (flat)", "dog"]


def test_what_the_model_did_not_see_stays_dark():
    weights = np.ones(4, dtype=np.float32)
    dark = overlay.veil(weights, Grid(2, 2), (40, 80), 1.0, (0.25, 0.0, 0.75, 1.0))[..., 3]
    assert (dark[:, 22:58] == 0).all()
    assert (dark[:, :18] == overlay.DARKEST).all()
    assert (dark[:, 62:] == overlay.DARKEST).all()
    only = np.array([1, 0, 0, 0], dtype=np.float32)  # of a padded image the upper half is the margin
    dark = overlay.veil(only, Grid(2, 2), (40, 80), 1.0, (0.0, -1.0, 1.0, 1.0))[..., 3]
    assert dark.min() > overlay.DARKEST / 2 - 0.05


def test_a_label_stands_over_its_evidence(figures, tmp_path):
    draw(classified(), tmp_path / "a.png")
    assert [axes.get_title() for axes in figures[0].axes] == ["image", "circle"]
    assert "circle 83.0%" in figures[0].texts[-1].get_text()
    said = [text.get_text() for text in figures[0].texts]
    assert any(one.endswith("framed: at least half of the largest weight") for one in said)  # a label is no word
    with pytest.raises(UserError, match="a label is one step"):
        draw(classified(), tmp_path / "a.gif")


def test_labelled_cells_are_tinted(figures, tmp_path):
    one = labelled()
    draw(one, tmp_path / "a.png")
    image, legend = figures[0].axes
    tints = image.images[1].get_array()
    assert tints.shape[:2] == one.cells.labels.shape
    assert (tints[..., 3] > 0).tolist() == (one.cells.labels > 0).tolist()
    assert len({tuple(tint) for tint in tints[one.cells.labels > 0]}) == 2
    assert [text.get_text() for text in legend.texts] == ["none 20", "crack 3", "pothole 1"]
    assert figures[0].texts[-1].get_text() == "3 cells: crack"
    draw(labelled(image=False), tmp_path / "b.svg")
    with pytest.raises(UserError, match="a label is one step"):
        draw(one, tmp_path / "a.gif")


def test_without_an_image_the_map_is_drawn_as_before(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr("sightline.view.drawing.heat_map", lambda record, path, **_: drawn.append(record) or path)
    draw(replace(captioned(), image=None), tmp_path / "a.png")
    assert len(drawn) == 1


def test_very_many_words_are_for_the_page(tmp_path):
    many = Tokens(tuple("w" for _ in range(500)))
    one = Record("a", 0, 0, many, GRID, looks(500))
    with pytest.raises(UserError, match="each of 500 words cannot be read"):
        overlay.overlay(scene(), one, tmp_path / "a.png")
    none = Record("a", 0, 0, Tokens(("</s>",)), GRID, looks(1))
    assert overlay.overlay(scene(), none, tmp_path / "a.png").exists()


def test_a_film_has_a_frame_for_each_word(tmp_path):
    path = draw(captioned(("a", "</s>")), tmp_path / "a.gif", width=2.0)
    with Image.open(path) as gif:
        assert gif.n_frames == 3
        assert gif.convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def test_a_film_is_bright_where_the_word_looked():
    one = captioned()
    scene_ = film._image_scene(scene(), one.records[0], GRID, None, 3.0, 1.0, one.image.box)
    scene_.show(1, "")
    dark = np.asarray(scene_.dark.get_array())[..., 3]
    row, column = np.unravel_index(dark.argmin(), dark.shape)
    assert (row * GRID.height // dark.shape[0]) * GRID.width + column * GRID.width // dark.shape[1] == PEAKS[1]
    assert [text.get_visible() for _, text in scene_.written] == [True, True, False, False, False]
    scene_.show(None, "")
    assert not np.asarray(scene_.dark.get_array()).any()


def test_image_and_cells_are_packed_for_the_page():
    found = pack([labelled()], "t")
    about = json.loads(zlib.decompress(b64decode(found["about"])))["explanations"][0]
    image, cells = about["image"], about["cells"]
    assert zlib.decompress(b64decode(found[image["block"]])) == labelled().image.content
    assert (image["kind"], image["width"], image["box"]) == (labelled().image.kind, 180, [0, 0, 1, 1])
    assert (cells["height"], cells["width"], cells["names"]) == (4, 6, ["none", "crack", "pothole"])
    content = zlib.decompress(b64decode(found[cells["block"]]))
    assert content[:24] == labelled().cells.labels.astype(np.uint8).tobytes()  # the first bytes come first
    assert len(content) == 24 * 8
