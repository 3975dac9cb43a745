"""Tables and folders of images, rows of them kept on disk, and made images."""

import json
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from encoded_images import encoded
from grid_samples import write_photos
from runs import prepared_as
from sightline.data.checking import RowLimits
from sightline.data.features import Features, Fitted, write_features
from sightline.data.image_tables import in_folder, is_image_data, read_image_table
from sightline.errors import UserError
from sightline.synthetic.shapes import COLOURS, made_shapes
from sightline.tasks.configs.grid import GridConfig

pytestmark = pytest.mark.fast

CAPTION_NAMES, LABEL_NAMES, MASK_NAMES = ("caption", "captions"), ("label",), ("mask",)


def test_a_table_names_images_beside_it(tmp_path):
    (tmp_path / "data").mkdir()
    table = tmp_path / "data" / "train.tsv"
    table.write_text("id\tImage\tcaption\n1\timages/a.jpg\tA dog .\n2\t/b.png\t\n3\t \tx\n4\tc\n")
    rows = list(read_image_table(str(table), CAPTION_NAMES))
    assert [row.values for row in rows[:2]] == [(tmp_path / "data/images/a.jpg", "A dog ."), (Path("/b.png"), "")]
    assert [row.values for row in rows[2:]] == [(), ()]
    assert [row.line for row in rows] == [2, 3, 4, 5]
    assert rows[2].problem.startswith("empty: found no text in the image")
    assert rows[3].problem.startswith("wrong number of columns")


def test_json_may_have_several_captions_and_numbers_as_labels(tmp_path):
    table = tmp_path / "train.jsonl"
    lines = [
        {"image": "a.jpg", "captions": ["one", "two"]},
        {"image": "b.jpg", "captions": []},
        {"image": 3, "captions": "x"},
    ]
    table.write_text("\n".join(map(json.dumps, lines)))
    rows = list(read_image_table(str(table), CAPTION_NAMES))
    assert [row.values for row in rows] == [(tmp_path / "a.jpg", "one"), (tmp_path / "a.jpg", "two"), (), ()]
    assert rows[2].problem.startswith("empty: found a list of no captions")
    assert rows[3].problem.startswith("field is not text")
    table.write_text('{"image": "a.jpg", "label": 3}\n{"image": "a.jpg", "label": ["x"]}')
    good, bad = read_image_table(str(table), LABEL_NAMES)
    assert good.values == (tmp_path / "a.jpg", "3")
    assert bad.problem.startswith("field is not text")


def test_masks_are_complete_paths_and_images_may_stand_alone(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("picture,truth\na.jpg,m/a.png\nb.jpg,\n")
    good, unmarked = read_image_table(str(table), MASK_NAMES, ("picture", "truth"))
    assert good.values == (tmp_path / "a.jpg", str(tmp_path / "m/a.png"))
    assert unmarked.values == (tmp_path / "b.jpg", ""), "an empty cell says that nothing is marked"
    rows = list(read_image_table(str(table), (), ("picture",)))
    assert [row.values for row in rows] == [(tmp_path / "a.jpg",), (tmp_path / "b.jpg",)]


@pytest.mark.parametrize(
    ("text", "columns", "expected"),
    [
        ("a\tb\nx\ty\n", None, "none of them is called 'image'.*--columns IMAGE CAPTION"),
        ("image\tb\nx\ty\n", None, "none of them is called 'caption'"),
        ("image\tcaption\n", None, "has no rows: found an empty file or a header alone; expected images"),
        ("image\tcaption\nx\ty\n", ("image", "captoin"), "did you mean 'caption'"),
        ("image\tcaption\nx\ty\n", ("image",), "expected the names of image and caption"),
    ],
)
def test_a_table_that_cannot_be_used_says_so(tmp_path, text, columns, expected):
    (tmp_path / "t.tsv").write_text(text)
    with pytest.raises(UserError, match=expected):
        list(read_image_table(str(tmp_path / "t.tsv"), CAPTION_NAMES, columns))


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def test_folders_are_labels(tmp_path):
    touch(
        tmp_path, "dog/2.JPG", "dog/1.png", "dog/more/3.webp", "cat/1.png", "cat/notes.txt", ".git/a.png", "cat/.b.png"
    )
    rows = [row.values for row in read_image_table(str(tmp_path), LABEL_NAMES)]
    found = [(image.relative_to(tmp_path).as_posix(), label) for image, label in rows]
    assert found == [("cat/1.png", "cat"), ("dog/1.png", "dog"), ("dog/2.JPG", "dog"), ("dog/more/3.webp", "dog")]
    assert len(list(read_image_table(str(tmp_path), ()))) == 4


def test_masks_stand_in_a_folder_of_their_own(tmp_path):
    touch(
        tmp_path,
        "images/a.jpg",
        "images/b.jpg",
        "images/c/d.png",
        "masks/a.png",
        "masks/c/d.bmp",
        "masks/b.png",
        "masks/b.gif",
    )
    rows = list(read_image_table(str(tmp_path), MASK_NAMES))
    first, second = (tmp_path / "images" / name for name in ("a.jpg", "c/d.png"))
    masks = [str(tmp_path / "masks" / name) for name in ("a.png", "c/d.bmp")]
    assert [row.values for row in rows] == [(first, masks[0]), (), (second, masks[1])]
    assert rows[1].problem.startswith("missing mask: found b.gif, b.png")


def test_masks_may_stand_beside_their_images_and_are_no_images(tmp_path, monkeypatch):
    touch(tmp_path, "beside/a.jpg", "beside/a_mask.png", "beside/b.jpg", "beside/b-Mask.npy", "beside/c_mask_old.jpg")
    rows = list(read_image_table(str(tmp_path / "beside"), MASK_NAMES))
    assert [(row.values[0].name, Path(row.values[1]).name) for row in rows[:2]] == [
        ("a.jpg", "a_mask.png"),
        ("b.jpg", "b-Mask.npy"),
    ]
    assert "an empty cell says that nothing is marked" in rows[2].problem
    touch(tmp_path, "apart/images/a.jpg", "apart/masks/a_mask.png", "apart/masks/a.txt")
    monkeypatch.chdir(tmp_path)
    (row,) = read_image_table("apart", MASK_NAMES)  # relative: nothing is put in front of it
    assert row.values == (Path("apart/images/a.jpg"), "apart/masks/a_mask.png")
    assert [path.name for path in in_folder(Path("beside"))] == ["a.jpg", "b.jpg", "c_mask_old.jpg"]
    assert in_folder(Path("apart")) == [Path("apart/images/a.jpg")]
    touch(tmp_path, "alone/x_mask.png")
    assert len(in_folder(Path("alone"))) == 1, "a mask of nothing is an image"


def test_paths_of_a_table_are_beside_it_or_in_the_working_folder(tmp_path, monkeypatch):
    touch(tmp_path, "data/near/a.jpg", "far/a.jpg", "outside.jpg", "data/near/b c.jpg")
    names = ["near/a.jpg", "far/a.jpg", "near\\a.jpg", "../outside.jpg", "no\\where.jpg", " near/b c.jpg ", "x" * 5000]
    bad = ["https://example.org/a.jpg", "s3://b/a.jpg", "data:image/png;base64,AAAA", ""]
    table = tmp_path / "data" / "t.jsonl"
    table.write_text("".join(json.dumps({"image": name, "mask": name}) + "\n" for name in [*names, *bad]))
    monkeypatch.chdir(tmp_path)
    rows = list(read_image_table("data/t.jsonl", MASK_NAMES))
    places = ["data/near/a.jpg", "far/a.jpg", "data/near/a.jpg", "data/../outside.jpg", "data/no/where.jpg"]
    places += ["data/near/b c.jpg", f"data/{'x' * 5000}"]
    assert [row.values for row in rows[: len(names)]] == [(Path(one), one) for one in places]
    problems = [row.problem.partition(":")[0] for row in rows[len(names) :]]
    assert problems == ["address", "address", "address", "empty"]


def test_a_missing_file_says_where_it_was_looked_for(tmp_path):
    table = write_photos(tmp_path, 3)
    for line, expected in (("images/0.png\tno.png\n", "no.png"), ("no.png\tmasks/0.png\n", "no.png")):
        text = table.read_text()
        table.write_text(text + line)
        reason = f"{expected}: there is no such file.*a path in a table is relative to"
        with pytest.raises(UserError, match=reason), prepared_as("grid", table, tmp_path / "data", GridConfig()):
            pass
        table.write_text(text)


def test_a_folder_with_metadata_is_that_table(tmp_path):
    touch(tmp_path, "a.jpg", "deep/b.jpg")
    (tmp_path / "metadata.jsonl").write_text(
        '{"file_name": "a.jpg", "text": "A"}\n{"file_name": "deep/b.jpg", "text": "B"}'
    )
    assert is_image_data(str(tmp_path))
    rows = [row.values for row in read_image_table(str(tmp_path), ("caption", "text"))]
    assert rows == [(tmp_path / "a.jpg", "A"), (tmp_path / "deep/b.jpg", "B")]
    assert len(in_folder(tmp_path)) == 2
    (tmp_path / "metadata.jsonl").write_text('{"image": {"bytes": "x", "path": null}, "label": "A"}')
    (row,) = read_image_table(str(tmp_path), LABEL_NAMES)
    assert row.problem.startswith("image in the table")


def test_captions_stand_beside_their_image(tmp_path):
    touch(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg", "c.txt")
    (tmp_path / "a.txt").write_text("\ufeff一只狗\n\n  another \n", encoding="utf-8")
    (tmp_path / "d.txt").write_bytes(b"\xff\xfe")
    rows = list(read_image_table(str(tmp_path), CAPTION_NAMES))
    image = tmp_path / "a.jpg"
    assert [row.values for row in rows] == [(image, "一只狗"), (image, "another"), (), (), ()]
    assert [row.line for row in rows] == [1, 3, 0, 0, 0]
    kinds = [row.problem.partition(":")[0] for row in rows[2:]]
    assert kinds == ["missing caption", "empty", "bad UTF-8"]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (LABEL_NAMES, "found no folders in it; expected one for each label"),
        (MASK_NAMES, "found no folder 'images'"),
        (CAPTION_NAMES, r"has no rows: found no image \(.jpg"),
        ((), "has no rows: found no image"),
    ],
)
def test_an_empty_folder_says_what_was_expected(tmp_path, known, expected):
    with pytest.raises(UserError, match=expected):
        list(read_image_table(str(tmp_path), known))


def test_data_of_images_is_known_from_its_columns(tmp_path):
    for name, text, expected in (
        ("a.tsv", "image\tlabel\nx\ty\n", True),
        ("b.tsv", "text\tlabel\nx\ty\n", False),
        ("c.jsonl", '{"label": 1, "Image": "x"}\n', True),
        ("d.csv", "", False),
    ):
        (tmp_path / name).write_text(text)
        assert is_image_data(str(tmp_path / name)) is expected
    assert not is_image_data(str(tmp_path)), "a folder of tables is of shards"
    (tmp_path / "cats").mkdir()
    assert is_image_data(str(tmp_path)), "a folder with folders is of labels"
    assert not is_image_data("-")
    (tmp_path / "e.csv").write_text("photo,note,label\na/b.JPG,fine,x\n")
    assert is_image_data(str(tmp_path / "e.csv"), ("photo", "label"))
    assert not is_image_data(str(tmp_path / "e.csv"), ("note", "label"))
    assert not is_image_data(str(tmp_path / "e.csv"))


# Rows on disk


def folder_of(tmp_path, count, bad=()):
    paths = []
    for number in range(count):
        paths.append(tmp_path / f"{number:03}.png")
        paths[-1].write_bytes(b"no image" if number in bad else encoded(np.full((9, 7, 3), number % 256, np.uint8)))
    return paths


def means(pixels):
    """An encoder to count with: the mean of every image, at two places."""
    return np.repeat(pixels.mean(axis=(1, 2))[:, None, :1], 2, axis=1).astype(np.float16)


def test_features_are_computed_once_and_read_from_disk(tmp_path):
    paths, calls, told = folder_of(tmp_path, 11, bad=(4,)), [], []

    def encode(pixels):
        calls.append(len(pixels))
        return means(pixels)

    options = {"key": "means", "batch": 4, "bad_limits": RowLimits(max_bad_share=0.2)}
    kept = write_features(tmp_path / "f", paths, Fitted(8, 8), encode, tell=lambda *all_: told.append(all_), **options)
    assert (len(kept), kept.shape, kept.dtype) == (11, (2, 1), np.float16)
    assert kept.rows([10, 0, 3])[:, 0, 0].tolist() == [10, 0, 3]
    assert list(kept.bad) == [4]
    assert sum(calls) == 10
    assert [done for done, _, _ in told][-1] == 11
    assert all(total == 11 and rate > 0 for _, total, rate in told)
    again = write_features(tmp_path / "f", paths, Fitted(8, 8), encode, **options)
    assert sum(calls) == 10
    assert again.bad == kept.bad == Features.open(tmp_path / "f").bad


@pytest.mark.parametrize("change", ["key", "size", "image", "order"])
def test_other_features_are_computed_again(tmp_path, change):
    paths, calls = folder_of(tmp_path, 3), []

    def encode(pixels):
        calls.append(len(pixels))
        return means(pixels)

    write_features(tmp_path / "f", paths, Fitted(8, 8), encode, key="a")
    if change == "image":
        paths[1].write_bytes(encoded(np.full((9, 7, 3), 200, np.uint8)))
        os.utime(paths[1], ns=(1, 1))
    kept = write_features(
        tmp_path / "f",
        paths[::-1] if change == "order" else paths,
        Fitted(8, 9) if change == "size" else Fitted(8, 8),
        encode,
        key="b" if change == "key" else "a",
    )
    assert sum(calls) == 6
    expected = {"image": [0, 200, 2], "order": [2, 1, 0]}.get(change, [0, 1, 2])
    assert kept.rows(range(3))[:, 0, 0].tolist() == expected


def test_interrupted_work_goes_on_where_it_was(tmp_path, monkeypatch):
    paths, seen = folder_of(tmp_path, 20, bad=(1, 18)), []
    monkeypatch.setattr("sightline.data.features._SAVED_EVERY", -1.0)

    def encode(pixels):
        if len(seen) == 8:
            raise KeyboardInterrupt
        seen.extend(pixels[:, 0, 0, 0].tolist())
        return means(pixels)

    options = {"batch": 4, "bad_limits": RowLimits(max_bad_share=0.5)}
    with pytest.raises(KeyboardInterrupt):
        write_features(tmp_path / "f", paths, Fitted(8, 8), encode, **options)
    with pytest.raises(UserError, match="9 of 20 images are done"):
        Features.open(tmp_path / "f")
    rest = []

    def resume_from(pixels):
        rest.extend(pixels[:, 0, 0, 0].tolist())
        return means(pixels)

    kept = write_features(tmp_path / "f", paths, Fitted(8, 8), resume_from, **options)
    assert sorted(seen + rest) == [number for number in range(20) if number not in (1, 18)]
    assert kept.rows(range(20))[:, 1, 0].tolist() == [0 if number in (1, 18) else number for number in range(20)]
    assert list(kept.bad) == [1, 18]


@pytest.mark.parametrize("same", [True, False], ids=["same", "other"])
def test_one_at_a_time_works_in_a_folder(tmp_path, same):
    """One that comes while another is at work waits for it: it finds the features done, or makes its own."""
    pytest.importorskip("fcntl")
    paths = folder_of(tmp_path, 6)
    begun, go, came, waits = (threading.Event() for _ in range(4))

    def slowly(pixels):
        begun.set()
        assert go.wait(20)
        return means(pixels)

    def at_once(pixels):
        came.set()
        return means(pixels)

    folder, others = tmp_path / "f", paths if same else paths[:3]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(write_features, folder, paths, Fitted(8, 8), slowly, batch=2, also=tmp_path / "own")
        assert begun.wait(20)
        second = pool.submit(write_features, folder, others, Fitted(8, 8), at_once, waiting=waits.set)
        try:
            assert waits.wait(20)
            assert not came.wait(0.1)
        finally:
            go.set()
        assert first.result().rows(range(6))[:, 0, 0].tolist() == list(range(6))
        assert second.result().rows(range(len(others)))[:, 0, 0].tolist() == list(range(len(others)))
    assert came.is_set() is not same
    assert len(Features.open(tmp_path / "own")) == 6  # whatever became of the first folder
    assert len(Features.open(folder)) == len(others)


def test_too_many_bad_images_stop_it_and_are_named(tmp_path):
    paths = folder_of(tmp_path, 300, bad=range(4, 300, 2))
    calls = []
    with pytest.raises(UserError) as error:
        write_features(tmp_path / "f", paths, Fitted(8, 8), lambda x: calls.append(len(x)) or means(x), batch=4)
    assert "004.png: it is no image" in str(error.value)
    assert re.match(r"4 of the first 1[12] \(of 300\) images are bad", str(error.value))
    assert "more than max_bad_share = 0.01; mend them" in str(error.value)
    assert sum(calls) <= 12  # it stops as soon as it is clear
    with pytest.raises(UserError, match=r"3 of 3 images are bad .*, so that none is left"):
        write_features(tmp_path / "g", paths[4:9:2], Fitted(8, 8), bad_limits=RowLimits(max_bad_share=1.0))
    with pytest.raises(UserError, match="there are no images"):
        write_features(tmp_path / "g", [], Fitted(8, 8))


def test_pixels_are_kept_as_they_are(tmp_path):
    paths = folder_of(tmp_path, 5)
    kept = write_features(tmp_path / "f", paths, Fitted(6, 8))
    assert kept.shape == (6, 8, 3)
    assert kept.dtype == np.uint8
    assert (kept.rows([3]) == 3).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "features.json").write_text("{"),
        lambda folder: (folder / "features.json").write_text("[]"),
        lambda folder: (folder / "features.npy").write_bytes(b"x"),
        lambda folder: np.save(folder / "features.npy", np.zeros((2, 2), np.float16)),
        lambda folder: (folder / "features.npy").unlink(),
        lambda folder: (folder / "features.npy").write_bytes((folder / "features.npy").read_bytes()[:-1]),
        lambda folder: np.save(folder / "features.npy", np.array([{}] * 3, object), allow_pickle=True),
    ],
)
def test_damaged_features_are_refused_and_made_again(tmp_path, damage):
    paths = folder_of(tmp_path, 3)
    write_features(tmp_path / "f", paths, Fitted(8, 8), means)
    damage(tmp_path / "f")
    with pytest.raises(UserError, match="compute them again"):
        Features.open(tmp_path / "f")
    assert write_features(tmp_path / "f", paths, Fitted(8, 8), means).rows([2])[0, 0, 0] == 2


def test_an_encoder_that_breaks_is_noticed(tmp_path):
    with pytest.raises(UserError, match="not finite"):
        write_features(tmp_path / "f", folder_of(tmp_path, 2), Fitted(8, 8), lambda x: np.full_like(means(x), np.inf))


# Made images


def test_shapes_are_the_same_for_the_same_seed():
    first, again, other = made_shapes(5, 1), made_shapes(5, 1), made_shapes(5, 2)
    assert all(
        np.array_equal(a.pixels, b.pixels) and a.captions == b.captions for a, b in zip(first, again, strict=True)
    )
    assert not np.array_equal(first[0].pixels, other[0].pixels)
    with pytest.raises(ValueError, match="size"):
        made_shapes(1, size=16)


def test_shapes_stand_where_the_captions_say():
    for made in made_shapes(24, 3, size=48):
        for caption, places in zip(made.captions, made.places, strict=True):
            words = caption.split()
            for word, (left, top, right, bottom) in places.items():
                if words[word] in COLOURS:
                    box = made.pixels[top:bottom, left:right].astype(int)
                    near = np.abs(box - COLOURS[words[word]]).max(-1) < 60
                    assert near.mean() > 0.25, caption
            if len(made.shapes) == 2:
                (a, b), middle = (
                    sorted(set(places), key=int)[::2],
                    lambda box: np.array([box[0] + box[2], box[1] + box[3]]),
                )
                x, y = middle(places[b]) - middle(places[a])
                said = next(word for word in words if word in ("left", "right", "above", "below"))
                assert {"left": x > 0, "right": x < 0, "above": y > 0, "below": y < 0}[said], caption


def test_chinese_captions_know_their_characters():
    made = next(made for made in made_shapes(20, 0, language="zh") if len(made.shapes) == 2)
    caption, places = made.captions[0], made.places[0]
    assert caption.startswith("一个")
    assert {place for place, box in places.items() if box == made.shapes[0].box} < set(range(caption.index("在")))
    named = "".join(caption[place] for place in places)
    assert not set(named) & set("一个在的上下左右边面")
    assert len(set(made.captions)) == 2
