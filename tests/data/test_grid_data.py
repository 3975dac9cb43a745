"""Masks, cells and pixels: what is read, which label a cell gets, how it is scored, how it is shown."""

import re

import numpy as np
import pytest
from PIL import Image

from grid_samples import write_photos
from runs import prepared_as
from sightline.data.grids import (
    BadImage,
    GridStore,
    MaskClasses,
    Raw,
    cell_labels,
    classes_of,
    read_mask,
    read_values,
    whole_map,
    write_store,
)
from sightline.errors import UserError
from sightline.metrics.cells import (
    average_precision,
    best_threshold,
    cell_statistics,
    difference_interval,
    near,
    pixel_counts,
    pixel_statistics,
)
from sightline.picture import colours_of, numbers_of
from sightline.tasks.configs.grid import GridConfig, class_weights
from sightline.view.cells import picture, save_mask

pytestmark = pytest.mark.fast


def test_masks_of_every_kind(tmp_path):
    shown = np.array([[0, 1], [2, 1]], dtype=np.uint8)
    palette = Image.fromarray(shown, mode=None).convert("P")
    palette.putdata(shown.ravel().tolist())
    kinds = {
        "grey.png": Image.fromarray(shown),
        "palette.png": palette,
        "deep.png": Image.fromarray(shown.astype(np.uint16) * 300),
        "bits.png": Image.fromarray(shown > 0),
        "colour.png": Image.fromarray(np.stack([shown * 10, shown * 20, shown], axis=-1)),
        "even.png": Image.fromarray(np.stack([shown] * 3, axis=-1)),
    }
    for name, image in kinds.items():
        image.save(tmp_path / name)
    np.save(tmp_path / "labels.npy", shown.astype(np.int64))
    assert (read_mask(tmp_path / "grey.png") == shown).all()
    assert (read_mask(tmp_path / "palette.png") == shown).all()
    assert (read_mask(tmp_path / "even.png") == shown).all()
    assert (read_mask(tmp_path / "labels.npy") == shown).all()
    assert (read_mask(tmp_path / "deep.png") == 300 * shown.astype(int)).all()
    assert (read_mask(tmp_path / "bits.png") == 255 * (shown > 0)).all()
    assert read_mask(tmp_path / "colour.png")[1, 0] == (20 << 16) + (40 << 8) + 2


def test_a_colour_has_one_number_in_all_masks(tmp_path):
    """White is white, whether a mask has red in it or not; and no colour is taken for a grey."""
    white, red, blue = (255, 255, 255), (255, 0, 0), (0, 0, 5)
    masks = {}
    for name, colours in {"plain": [white, white], "marked": [white, red], "blue": [blue, (5, 5, 5)]}.items():
        Image.fromarray(np.array([colours], dtype=np.uint8)).save(tmp_path / f"{name}.png")
        masks[name] = read_mask(tmp_path / f"{name}.png")[0].tolist()
    assert masks["plain"] == [255, 255]
    assert masks["marked"] == [255, 0xFF0000]
    assert masks["blue"][1] == 5
    assert masks["blue"][0] > 65535
    found = classes_of({*masks["plain"], *masks["marked"]}, None, None)
    assert found.of(np.array(masks["marked"])).tolist() == [0, 1]
    assert found.of(np.array(masks["plain"])).tolist() == [0, 0]
    some = np.array([[0, 0, 0], [7, 7, 7], [0, 0, 7], [0, 7, 0], [7, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], np.uint8)
    assert len(set(numbers_of(some).tolist())) == len(some)
    assert np.array_equal(colours_of(numbers_of(some)), some)
    assert colours_of(np.array([0, 300])) is None  # grey of 16 bits


def test_arrays_that_are_not_safe_or_no_grids(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.zeros(2))
    (tmp_path / "several.npz").rename(tmp_path / "several.npy")
    np.save(tmp_path / "flat.npy", np.zeros(3))
    np.save(tmp_path / "infinite.npy", np.full((2, 2, 1), np.inf))
    np.save(tmp_path / "half.npy", np.zeros((2, 2)))
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "half.npy").read_bytes()[:40])
    whole = np.lib.format.open_memmap(tmp_path / "large.npy", mode="w+", dtype=np.uint8, shape=(1, 200, 600_000))
    del whole
    wrong = {
        "objects": "safely", "several": "several arrays", "flat": "height × width", "infinite": "not finite",
        "text": "^it is not a NumPy array file: expected", "large": "too large", "missing": "no such file",
        "empty": "not a NumPy array file", "cut": "safely",
    }  # fmt: skip
    for name, reason in wrong.items():
        with pytest.raises(BadImage, match=reason) as caught:
            read_values(tmp_path / f"{name}.npy")
        assert "allow_pickle" not in str(caught.value)
    with pytest.raises(BadImage, match="whole numbers"):
        read_mask(tmp_path / "half.npy")
    assert read_values(tmp_path / "half.npy").shape == (2, 2, 1)


def test_what_values_of_masks_mean():
    two = classes_of({0, 255}, None, None)
    assert two == MaskClasses(("background", "marked"), (0, 255))
    assert two.of(np.array([0, 100, 200])).tolist() == [0, 0, 1]
    several = classes_of({0, 3, 7}, None, ("ground", "water", "wood"))
    assert several.of(np.array([7, 3, 0, 5])).tolist() == [2, 1, 0, 3]  # 5 is one that training did not have
    assert classes_of(range(200), "binary", None).values == (0, 199)
    near = classes_of({2, 3}, None, None)  # both are more than half of the larger
    assert near == MaskClasses(("background", "marked"), (2, 3))
    assert near.of(np.array([2, 3, 2])).tolist() == [0, 1, 0]
    red, yellow = 0xFF0000, 0xFFFF00
    assert classes_of({yellow, red}, None, None).of(np.array([red, yellow])).tolist() == [0, 1]
    for found, kind, names, reason in (
        (range(200), None, None, "classes=binary"),
        ({4}, None, None, "only the value 4"),
        ({0, 1}, None, ("a", "b", "c"), "names has 3"),
        (range(100), "several", None, "at most 64"),
    ):
        with pytest.raises(UserError, match=reason):
            classes_of(found, kind, names)


def test_soft_edges_are_no_classes():
    grey = dict.fromkeys(range(0, 256, 5), 1)
    for of_masks in (grey, {0: 900, 128: 20, 255: 80}, dict.fromkeys(range(0, 250, 25), 1)):
        with pytest.raises(UserError, match=r"soft edges .* classes=binary .* classes=several"):
            classes_of(of_masks, None, None)
        assert len(classes_of(of_masks, "binary", None)) == 2
        assert len(classes_of(of_masks, "several", None)) == len(of_masks)
    for of_masks in (
        {0: 500, 128: 300, 255: 200},
        {0: 990, 1: 5, 2: 5},
        dict.fromkeys(range(34), 1),
        {0: 9, 5: 1, 9: 9},
    ):
        assert len(classes_of(of_masks, None, None)) == len(of_masks)
    assert len(classes_of({0: 900, 0xFF0000: 1, 0xFFFF00: 99}, None, None)) == 3  # colours


def test_inverted_masks_and_images_without_a_mask_are_said(tmp_path):
    table = write_photos(tmp_path, 4)
    table.write_text(table.read_text().replace("masks/3.png", ""))
    with prepared_as("grid", table, tmp_path / "data", GridConfig(cell=8)) as (prepared, rows):
        assert "1 images have no mask: nothing is marked in them" in prepared.lines()
        assert not any("inverted" in line for line in prepared.lines())
        row = next(one.x for one in [*rows, *prepared.valid] if one.x.name.endswith("3.png"))
        assert not prepared.input.stores[0][row.row].classes.any()
    for path in (tmp_path / "masks").iterdir():
        Image.fromarray(255 - np.asarray(Image.open(path))).save(path)
    with prepared_as("grid", table, tmp_path / "data2", GridConfig(cell=8)) as (prepared, _):
        assert any("if the masks are inverted" in line for line in prepared.lines())


def test_a_mask_with_too_many_values_is_named(tmp_path):
    (tmp_path / "masks").mkdir()
    (tmp_path / "images").mkdir()
    for number, values in enumerate((2, 100, 30)):
        Image.new("RGB", (10, 10), (number, 0, 0)).save(tmp_path / "images" / f"{number}.png")
        mask = np.arange(100, dtype=np.uint8).reshape(10, 10) % values
        Image.fromarray(mask).save(tmp_path / "masks" / f"{number}.png")
    fullest = re.escape(str(tmp_path / "masks" / "1.png"))

    def write(kind=None):
        with prepared_as("grid", tmp_path, tmp_path / "data", GridConfig(classes=kind)) as (prepared, _):
            return prepared.output.facts

    for kind in (None, "several"):
        with pytest.raises(UserError, match=rf"100 different values in the masks, 100 of them in {fullest}; expected"):
            write(kind)
    assert write("binary").values == (0, 99)
    colours = np.random.default_rng(0).integers(256, size=(10, 10, 3), dtype=np.uint8)
    for number in range(3):
        Image.fromarray(colours + np.uint8(number)).save(tmp_path / "masks" / f"{number}.png")
    with pytest.raises(UserError, match=r"masks/2\.png: it has 100 different values, and with it .* more than 256"):
        write("binary")


def test_masks_whose_values_mean_something_else_are_said(tmp_path):
    classes = MaskClasses(("ground", "crack"), (0, 255))
    assert classes.doubt(0, 255) is None
    assert classes.doubt(0, 0) is None  # nothing is marked, and that may be so
    assert classes.doubt(255, 255) is None
    assert "go from 0 to 1, and all of them mean 'ground'" in classes.doubt(0, 1)
    assert "0 for 'ground' and 255 for 'crack'" in classes.doubt(0, 1)
    assert "all of them mean 'crack'" in classes.doubt(200, 255)
    assert MaskClasses(("a", "b", "c"), (0, 1, 2)).doubt(5, 9) is None  # unknown values are one class
    pixels, mask = np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.int32)
    mask[0] = 1
    with pytest.raises(UserError, match=r"from 0 to 1, and all .* 255 for 'crack'; give masks with the same values"):
        write_store(tmp_path / "valid", [Raw("a", pixels, mask)], classes=classes)
    assert write_store(tmp_path / "good", [Raw("a", pixels, 255 * mask)], classes=classes)[0].classes.sum() == 4
    assert not write_store(tmp_path / "plain", [Raw("a", pixels, 0 * mask)], classes=classes)[0].classes.any()


def test_the_label_of_a_cell_is_the_share_of_its_pixels():
    classes = np.zeros((8, 10), dtype=np.uint8)
    classes[0, 0] = 1  # one pixel of sixteen
    classes[4:, 4:8] = 2
    classes[4, 4:7] = 1  # three of sixteen
    classes[:2, 8:] = 1  # four of the eight pixels that this cell has
    whole = whole_map(classes, 4)
    assert cell_labels(whole, 4, 0.0, 3).tolist() == [[1, 0, 1], [0, 2, 0]]
    assert cell_labels(whole, 4, 0.3, 3).tolist() == [[0, 0, 1], [0, 2, 0]]
    assert cell_labels(whole, 4, 0.6, 3).tolist() == [[0, 0, 0], [0, 2, 0]]


def test_the_same_image_is_on_one_side_of_the_split(tmp_path):
    table = write_photos(tmp_path, 5)
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, *lines[1:4]]) + "\n")
    for seed in range(5):
        with prepared_as("grid", table, tmp_path / "data", GridConfig(valid_share=0.4, seed=seed)) as (prepared, rows):
            kept, learnt = ({one.x.digest for one in some} for some in (prepared.valid, rows))
            assert len(kept) + len(learnt) == 5
            assert len(prepared.valid) + rows.count == 8
            assert kept
            assert learnt
    table.write_text("\n".join(lines[:3]) + "\n")
    with prepared_as("grid", table, tmp_path / "data", GridConfig(valid_share=0.01)) as (prepared, rows):
        assert len(prepared.valid) == rows.count == 1


def test_several_classes_and_a_store_that_is_damaged(tmp_path):
    draw = np.random.default_rng(0)
    raws = [
        Raw(str(n), draw.integers(256, size=(6, 5, 3), dtype=np.uint8), draw.choice([0, 9, 70_000], size=(6, 5)))
        for n in range(3)
    ]
    store = write_store(tmp_path / "store", raws)
    assert store.classes.names == ("0", "9", "70000")
    again = GridStore.open(tmp_path / "store", store.classes)
    for raw, example in zip(raws, (again[row] for row in range(3)), strict=True):
        assert (example.values == raw.values).all()
        assert (np.array([0, 9, 70_000])[example.classes] == raw.mask).all()
    (tmp_path / "store" / "masks.bin").write_bytes(b"short")
    with pytest.raises(UserError, match="damaged"):
        GridStore.open(tmp_path / "store", store.classes)


def test_scores_against_their_definitions():
    draw = np.random.default_rng(0)
    chances, right = np.round(draw.random(60), 1), draw.random(60) < 0.3
    steps, before = 0.0, 0.0
    for least in sorted(set(chances.tolist()), reverse=True):
        said = chances >= least
        recall = (said & right).sum() / right.sum()
        steps += (recall - before) * (said & right).sum() / said.sum()
        before = recall
    assert average_precision(chances, right) == pytest.approx(100 * steps)
    f1 = {
        least: 200 * (right & (chances >= least)).sum() / ((chances >= least).sum() + right.sum()) for least in chances
    }
    threshold, best = best_threshold([chances], [right.astype(int)])
    assert best == pytest.approx(max(f1.values()))
    said = chances >= threshold
    assert 200 * (said & right).sum() / (said.sum() + right.sum()) == pytest.approx(best)
    marked = draw.random((9, 13)) < 0.05
    places = np.argwhere(marked)
    for distance in (0, 2, 5):
        for at in np.ndindex(marked.shape):
            close = ((places - at) ** 2).sum(axis=1).min() <= distance**2
            assert near(marked, distance)[at] == close


def test_counts_of_cells_and_pixels():
    said = [np.array([[1, 1], [0, 0]]), np.array([[0, 1]])]
    gold = [np.array([[1, 0], [1, -1]]), np.array([[0, 2]])]  # −1: no cell; 2: a class that training did not have
    found = {name: one.score() for name, one in cell_statistics(said, gold, 2).items()}
    assert found["precision"] == pytest.approx(100 / 3)
    assert found["recall"] == pytest.approx(50)
    assert found["accuracy"] == pytest.approx(40)
    line = np.zeros((5, 9), dtype=bool)
    line[2] = True
    moved = np.roll(line, 2, axis=0)
    moved[:, 6:] = False
    assert pixel_counts(moved, line, 0) == [0, 6, 0, 9]
    assert pixel_counts(moved, line, 2) == [6, 6, 6, 9]
    rows = [pixel_counts(moved, line, 2), pixel_counts(line, line, 2)]
    scores = {name: one.score() for name, one in pixel_statistics(rows).items()}
    assert scores["precision"] == 100
    assert scores["recall"] == pytest.approx(100 * 15 / 18)
    better = cell_statistics([np.ones((1, 4), int)] * 9, [np.ones((1, 4), int)] * 9, 2)["f1"]
    worse = cell_statistics([np.array([[1, 1, 0, 0]])] * 9, [np.ones((1, 4), int)] * 9, 2)["f1"]
    low, high = difference_interval(better, worse, 200, 0)
    assert low == pytest.approx(high)
    assert low == pytest.approx(100 / 3)
    assert class_weights((30, 10), "balanced") == pytest.approx([2 / 3, 2])
    assert class_weights((30, 10), "none") is None


def test_pictures_and_masks(tmp_path):
    image = np.full((20, 30, 3), 100, dtype=np.uint8)
    labels = np.array([[0, 1, 0], [0, 0, 0]])
    shown = picture(image, labels, 10)
    assert (shown[:, :10] == 100).all()
    assert (shown[10:] == 100).all()
    assert (shown[:10, 10:20] != 100).any(axis=-1).all()
    wrong = picture(image, labels, 10, gold=np.array([[0, 0, 0], [0, 0, 1]]))
    assert (wrong[0, 10:20] == 255).all()
    assert (wrong[10, 20:] == 255).all()
    assert (wrong[0, :10] == 100).all()
    pixels = np.zeros((20, 30), dtype=np.uint8)
    pixels[3, 12] = 1
    fine = picture(image, labels, 10, pixels=pixels)
    assert (fine[3, 12] == 100).all()  # what is marked can be seen
    for beside in ((2, 12), (4, 12), (3, 11), (3, 13)):
        assert (fine[beside] == (213, 94, 0)).all()
    assert picture(np.zeros((2, 3, 4), dtype=np.float32), labels, 0).shape == (340, 510, 3)
    for values in ((0, 255), (0, 700), (0, 0x123456), (255, 0xFF0000), (3, 0x1000005)):
        path = save_mask(pixels, values, tmp_path / "mask.png")
        assert (read_mask(path) == np.array(values)[pixels]).all()
    assert (read_mask(save_mask(pixels, (500, 0x123456), tmp_path / "mask.png")) == pixels).all()
