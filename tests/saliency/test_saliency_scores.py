"""Scores of maps against fixations, each against a ten-line transcription; the command and its picture."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image

import invoke
from sightline.errors import UserError
from sightline.saliency import (
    SaliencyConfig,
    auc_judd,
    auc_shuffled,
    fixation_density,
    kl_divergence,
    nss,
    prepare_image,
    saliency,
    similarity,
)
from sightline.saliency.picture import PANEL, PATH, draw
from sightline.saliency.truth import METRICS, HumanFixations, read_fixations, score_each

pytestmark = pytest.mark.fast

EMPTY = np.zeros((0, 2))


@pytest.fixture
def drawn():
    return np.random.default_rng(5)


def binary(fixations, shape):
    """The map of the definitions: 1 where someone looked."""
    found = np.zeros(shape, dtype=bool)
    for x, y in fixations:
        if 0 <= x < shape[1] and 0 <= y < shape[0]:
            found[int(y), int(x)] = True
    return found


def plain_auc_judd(values, looked):
    """The loop over thresholds of the published definition."""
    curve = [(0.0, 0.0)]
    for threshold in sorted(set(values[looked]), reverse=True):
        above = values >= threshold
        curve.append(((above & ~looked).sum() / (~looked).sum(), (above & looked).sum() / looked.sum()))
    curve.append((1.0, 1.0))
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(curve))


@pytest.mark.parametrize("levels", [0, 4])
def test_auc_judd(drawn, levels):
    values = drawn.random((30, 40)) if not levels else drawn.integers(0, levels, (30, 40)).astype(float)  # with ties
    fixations = drawn.random((25, 2)) * [44, 33]  # some outside
    assert auc_judd(values, fixations) == pytest.approx(plain_auc_judd(values, binary(fixations, values.shape)))
    assert auc_judd(np.ones((5, 5)), fixations) == pytest.approx(0.5)
    assert math.isnan(auc_judd(values, EMPTY))
    best = binary(fixations, values.shape).astype(float)
    assert auc_judd(best, fixations) == 1


@pytest.mark.parametrize("levels", [0, 4])
def test_auc_shuffled(drawn, levels):
    values = drawn.random((30, 40)) if not levels else drawn.integers(0, levels, (30, 40)).astype(float)
    fixations, elsewhere = drawn.random((20, 2)) * [40, 30], drawn.random((60, 2)) * [42, 32]
    here = values[binary(fixations, values.shape)]
    there = [values[int(y), int(x)] for x, y in elsewhere if x < 40 and y < 30]
    wins = [float(a > b) + 0.5 * float(a == b) for a in here for b in there]
    assert auc_shuffled(values, fixations, elsewhere) == pytest.approx(np.mean(wins))
    assert auc_shuffled(values, fixations, fixations) == pytest.approx(0.5)
    assert math.isnan(auc_shuffled(values, fixations, EMPTY))


def test_nss(drawn):
    values, fixations = drawn.random((30, 40)), drawn.random((20, 2)) * [40, 30]
    normal = (values - values.mean()) / values.std()
    assert nss(values, fixations) == pytest.approx(normal[binary(fixations, values.shape)].mean())
    assert nss(np.ones((4, 4)), fixations) == 0
    assert math.isnan(nss(values, EMPTY))


def test_similarity_and_kl(drawn):
    said, seen = drawn.random((9, 7)), drawn.random((9, 7)) + 0.5
    p, q = ((one - one.min()) / (one.max() - one.min()) for one in (said, seen))
    assert similarity(said, seen) == pytest.approx(sum(np.minimum(p / p.sum(), q / q.sum()).ravel()))
    p, q = said / said.sum(), seen / seen.sum()
    assert kl_divergence(said, seen) == pytest.approx(float(np.sum(q * np.log(q / p))))
    assert similarity(seen, seen) == pytest.approx(1)
    assert kl_divergence(seen, seen) == pytest.approx(0, abs=1e-9)
    left, right = np.zeros((4, 4)), np.zeros((4, 4))
    left[0, 0] = right[3, 3] = 1
    assert similarity(left, right) == 0
    assert 30 < kl_divergence(left, right) < 40
    assert kl_divergence(np.zeros((4, 4)), np.ones((4, 4))) == pytest.approx(0)  # a map that says nothing is even


def test_the_density_counts_every_fixation():
    found = fixation_density(
        np.array([[10.2, 5.9], [10.8, 5.1], [30.0, 20.0], [-1.0, 3.0], [math.nan, 1.0]]), 26, 41, 2.0
    )
    assert found.shape == (26, 41)
    assert np.unravel_index(found.argmax(), found.shape) == (5, 10)
    assert found[5, 10] == pytest.approx(2 * found[20, 30], rel=1e-6)
    assert found[5, 12] / found[5, 10] == pytest.approx(math.exp(-0.5), rel=1e-6)


def test_fixations_elsewhere_are_shares_of_the_sides():
    small = HumanFixations(np.array([[9.5, 9.5]]), 10, 10)
    large = HumanFixations(np.array([[5.0, 95.0]]), 100, 200)
    map_of = [np.eye(10), np.arange(20_000.0).reshape(100, 200)].__getitem__
    each = score_each(map(map_of, range(2)), [small, large], ["shuffled AUC"])
    assert each["shuffled AUC"][0] == 1  # the corner against (0, 9), where eye is 0
    assert each["shuffled AUC"][1] == 0.0 if 95 * 200 + 5 < 95 * 200 + 190 else 1.0


def test_a_table_of_fixations_is_read_and_its_mistakes_are_said(tmp_path):
    table = tmp_path / "looked.tsv"
    table.write_text("viewer\timage\tx\ty\n1\ta/b.jpg\t1.5\t2\n2\ta/b.jpg\t3\t4\n1\tc.png\t0\t0\n")
    found = read_fixations(table)
    assert found[(tmp_path / "a" / "b.jpg").resolve()].tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert len(found) == 2
    for content, message in {
        "image\tx\ty\na.jpg\t1\tnan\n": r"looked\.tsv:2: y is 'nan'; expected a number of pixels",
        "image\tx\ty\na.jpg\tleft\t3\n": r"looked\.tsv:2: x is 'left'",
        "image\tx\ty\na.jpg\t1\n": "wrong number of columns",
        "picture\tx\ty\na.jpg\t1\t2\n": "none of them is called 'image'",
        "image\tx\ty\n": "has no rows",
    }.items():
        table.write_text(content)
        with pytest.raises(UserError, match=message):
            read_fixations(table)


# ---- The picture.


def scene(height=48, width=64, x=50, y=10):
    image = np.full((height, width, 3), 60, dtype=np.uint8)
    image[y - 4 : y + 4, x - 4 : x + 4] = (230, 30, 30)
    return image


def test_the_picture_has_its_numbers_where_the_fixations_are():
    image, config = scene(), SaliencyConfig(side=640)
    (found,) = saliency([image], config)
    picture = np.asarray(draw(prepare_image(image, config), found))
    scale = PANEL / 64
    first = found.path[0]
    assert math.dist((first.x, first.y), (50, 10)) < 6
    x, y = round(first.x * scale), round(first.y * scale) + 22
    around = picture[y - 9 : y + 10, x - 9 : x + 10].reshape(-1, 3).astype(int)
    assert (np.abs(around - PATH).max(axis=1) < 10).mean() > 0.4  # the disc, around its number
    assert (around.max(axis=1) < 60).any()
    lit = picture[22 : 22 + 360, PANEL + 10 : 2 * PANEL + 10].astype(float).sum(axis=2)
    at_odd = lit[round(10 * scale) - 3 : round(10 * scale) + 3, round(50 * scale) - 3 : round(50 * scale) + 3].mean()
    assert at_odd > 2 * lit[round(40 * scale), round(10 * scale)]


@pytest.mark.parametrize("shape", [(1, 1), (4, 900), (900, 4)])
def test_any_shape_has_a_picture(shape):
    image = np.full((*shape, 3), 9, dtype=np.uint8)
    config = SaliencyConfig(side=256)
    (found,) = saliency([image], config)
    assert min(draw(prepare_image(image, config), found).size) > 40


# ---- The command.


@pytest.fixture
def look_at(tmp_path):
    """`sightline saliency ...` in a folder with a.png and b/a.png, which differ, and some that are no images."""
    (tmp_path / "b").mkdir()
    Image.fromarray(scene()).save(tmp_path / "a.png")
    Image.fromarray(scene(40, 60, 12, 30)).save(tmp_path / "b" / "a.png")
    (tmp_path / "text.jpg").write_text("no image")
    (tmp_path / "empty.png").write_bytes(b"")

    def call(*arguments):
        return invoke.run("saliency", *arguments, "--side", "640", cwd=tmp_path)

    return call


def test_the_command_writes_picture_array_and_path(look_at, tmp_path):
    done = look_at("a.png", "b", "--out", "out", "--fixations", "3")
    assert done.returncode == 0, done.stderr
    assert "2 images → out" in done.stdout
    names = ["a-2.saliency", "a.saliency"]
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == [
        f"{name}.{ending}" for name in names for ending in ("json", "npy", "png")
    ]
    content = json.loads((tmp_path / "out" / "a-2.saliency.json").read_text())
    assert content["image"] == "b/a.png"
    assert (content["width"], content["height"], content["blur"]) == (60, 40, SaliencyConfig().blur)
    assert 1 <= len(content["fixations"]) <= 3
    first = content["fixations"][0]
    assert math.dist((first["x"], first["y"]), (12, 30)) < 6
    (direct,) = saliency([tmp_path / "a.png"], SaliencyConfig(side=640))
    np.testing.assert_allclose(np.load(tmp_path / "out" / "a.saliency.npy"), direct.map, atol=1e-5)
    with Image.open(tmp_path / "out" / "a.saliency.png") as picture:
        assert picture.width == 2 * PANEL + 10


def test_bad_images_are_named_and_do_not_stop_the_others(look_at, tmp_path):
    done = look_at("text.jpg", "a.png", "missing.png", "empty.png", "--out", "out", "--quick")
    assert done.returncode == 0
    assert "text.jpg: it is no image" in done.stderr
    assert "missing.png: there is no such file" in done.stderr
    assert "empty.png: it is empty" in done.stderr
    assert "1 image → out" in done.stdout
    assert "3 of 4 could not be read" in done.stdout
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == ["a.saliency.json", "a.saliency.npy"]
    none = look_at("text.jpg", "empty.png", "--out", "new/folder")
    assert none.returncode == 2
    assert "none of the 2 images could be read" in none.stderr
    assert not (tmp_path / "new").exists()


def test_no_image_is_written_over(look_at, tmp_path):
    before = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.saliency.png").write_bytes(before)  # as if an image were called that
    done = look_at("a.png", "a.saliency.png", "--out", ".")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").read_bytes() == before
    assert (tmp_path / "a.saliency.png").read_bytes() == before
    assert (tmp_path / "a-2.saliency.png").exists()
    assert (tmp_path / "a.saliency.saliency.png").exists()


def test_maps_are_scored_by_where_people_looked(look_at, tmp_path):
    rows = [("a.png", 50, 10), ("a.png", 51, 12), ("b/a.png", 12, 30), ("b/a.png", 11, 29)]
    (tmp_path / "looked.tsv").write_text("image\tx\ty\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    done = look_at("a.png", "b/a.png", "--out", "out", "--quick", "--truth", "looked.tsv")
    assert done.returncode == 0, done.stderr
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["images"] == 2
    assert scores["mean"]["AUC-Judd"] > 0.9
    assert scores["mean"]["shuffled AUC"] == 1
    assert [row["image"] for row in scores["each"]] == ["a.png", "b/a.png"]
    assert all(name in done.stdout for name in METRICS)
    before = scores["mean"]["similarity"]
    done = look_at("a.png", "b/a.png", "a.png", "--out", "twice", "--quick", "--truth", "looked.tsv")
    twice = json.loads((tmp_path / "twice" / "scores.json").read_text())
    assert [row["image"] for row in twice["each"]] == ["a.png", "b/a.png"]
    assert twice["mean"] == pytest.approx(scores["mean"], abs=1e-4)
    rows = [*rows, ("a.png", 900, 2), ("far.png", 900, 900)]
    Image.open(tmp_path / "a.png").save(tmp_path / "far.png")
    (tmp_path / "looked.tsv").write_text("image\tx\ty\n" + "".join("\t".join(map(str, row)) + "\n" for row in rows))
    done = look_at("a.png", "b/a.png", "far.png", "--out", "out", "--quick", "--truth", "looked.tsv")
    assert "a.png: 1 of 3 fixations lie outside the image" in done.stderr
    assert "far.png: 1 of 1 fixations lie outside the image" in done.stderr
    scores = json.loads((tmp_path / "out" / "scores.json").read_text())
    assert scores["images"] == 2
    assert scores["mean"]["similarity"] == pytest.approx(before, abs=1e-6)
    done = look_at("far.png", "--out", "out", "--quick", "--truth", "looked.tsv")
    assert done.returncode == 2
    assert "none of the fixations of --truth lies inside its image" in done.stderr
    (tmp_path / "other.tsv").write_text("image\tx\ty\nelse.png\t1\t2\n")
    done = look_at("a.png", "--out", "early", "--quick", "--truth", "other.tsv")
    assert done.returncode == 2
    assert "none of the images is in the table of --truth, whose first is " in done.stderr
    assert not (tmp_path / "early").exists()  # said before any map is made
    (tmp_path / "other.tsv").write_text("photo\tx\ty\na.png\t1\t2\n")
    done = look_at("a.png", "--out", "early", "--quick", "--truth", "other.tsv")
    assert done.returncode == 2
    assert "none of them is called 'image'; expected 'image', 'x', 'y' in its first line" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.png", "--out", "text.jpg"], "which is a file; name a folder"),
        (["a.png", "--out", "out", "--blur", "3"], "blur is 3"),
        (["a.png", "--out", "out", "--fixations", "1000"], "fixations is 1000"),
        (["nothing", "--out", "out"], "nothing: there is no such file"),
        (["--out", "out"], "name an image"),
    ],
)
def test_wrong_use_is_said(look_at, tmp_path, arguments, message):
    (tmp_path / "void").mkdir()
    done = look_at(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "holds no image" in look_at("void", "--out", "out").stderr
