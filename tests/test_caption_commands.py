"""Predict, evaluate, compare and view for runs that write captions."""

import json

import pytest
from PIL import Image

import invoke
from captioning import FLOOR, tiny, written
from sightline.commands.captioning import (
    captioning_eye,
    check_train_options,
    compare_command,
    evaluate_command,
    image_paths,
    predict_command,
    training_files,
)
from sightline.data.shapes import made_shapes
from sightline.errors import UserError
from sightline.tasks.caption import train_caption
from sightline.tasks.caption_data import CaptionFile
from sightline.tasks.explaining import Wanted
from sightline.tasks.searching import SearchConfig


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioning")
    table, _ = written(folder)
    for name, config in {"soft": tiny(), "floor": tiny(FLOOR)}.items():
        train_caption(CaptionFile(str(table)), folder / name, config)
    return folder


def predict(folder, *images, path=None, out=None, as_json=False, run="soft", **search):
    predict_command(folder / run, images, path, out, as_json, SearchConfig(**search), None)


def test_a_line_for_each_image_of_files_and_folders(trained, capsys):
    assert (trained / "soft" / "curves.png").exists()
    predict(trained, trained / "images" / "0-3.png", trained / "images")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13
    paths, captions = zip(*(line.split("\t") for line in lines), strict=True)
    assert paths[0] == paths[6] == str(trained / "images" / "0-3.png")  # by name: 0, 1, 10, 11, 2, 3
    assert captions[0] == captions[6]


def test_jsonl_says_where_each_token_looked(trained, tmp_path):
    out = tmp_path / "found.jsonl"
    predict(trained, trained / "images" / "0-0.png", as_json=True, out=out, best=2)
    (found,) = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    assert found["grid"] == [4, 4]
    assert found["captions"][0]["text"] == found["caption"]
    assert len(found["alignment"]) > 0
    for one in found["alignment"]:
        assert 0 <= one["row"] < 4
        assert 0 <= one["column"] < 4
        assert 1 / 16 <= one["weight"] <= 1
    predict(trained, trained / "images" / "0-0.png", as_json=True, out=out, run="floor")
    assert "alignment" not in json.loads(out.read_text(encoding="utf-8"))


def test_bad_images_keep_their_line_and_are_named(trained, tmp_path, capsys):
    (tmp_path / "text.jpg").write_text("no image", encoding="utf-8")
    images = [tmp_path / "text.jpg", trained / "images" / "0-0.png", tmp_path / "missing.png"]
    predict(trained, *images)
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == f"{tmp_path / 'text.jpg'}\t"
    assert lines[1].startswith(f"{trained / 'images' / '0-0.png'}\t")
    assert lines[2] == f"{tmp_path / 'missing.png'}\t"
    assert "text.jpg: it is no image" in captured.err
    assert "missing.png: there is no such file" in captured.err
    predict(trained, *images, as_json=True)
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert found[2] == {"image": str(images[2]), "problem": "there is no such file"}
    with pytest.raises(UserError, match="none of the images"):
        predict(trained, images[0])
    with pytest.raises(UserError, match="no image to caption"):
        predict(trained)
    with pytest.raises(UserError, match="--format jsonl"):
        predict(trained, images[1], best=2)


def test_lists_tables_and_folders_name_images(trained, tmp_path, monkeypatch):
    listed = trained / "list.txt"
    listed.write_text("images/0-1.png\n\nimages/0-0.png\n", encoding="utf-8")
    assert image_paths((), str(listed)) == [trained / "images/0-1.png", trained / "images/0-0.png"]
    assert len(image_paths((), str(trained / "captions-0.tsv"))) == 12  # each once, though it has two captions
    assert len(image_paths((), str(trained / "images"))) == 12
    assert image_paths((), str(trained / "images" / "0-1.png")) == [trained / "images" / "0-1.png"]
    with pytest.raises(UserError, match="there is no file"):
        image_paths((), str(tmp_path / "nothing.txt"))
    monkeypatch.setenv("WORLD_SIZE", "2")  # as a launcher says it
    with pytest.raises(UserError, match="by one"):
        image_paths((), str(listed))


def test_a_table_to_predict_says_what_its_column_must_be_called(tmp_path):
    (tmp_path / "list.tsv").write_text("photo\tyear\na.png\t1999\n")
    with pytest.raises(UserError, match=r"none of them is called 'image'; expected 'image' in its first line$"):
        image_paths([], str(tmp_path / "list.tsv"))  # predict has no --columns


def evaluate(folder, data="captions-0.tsv", **options):
    evaluate_command(folder / "soft", str(folder / data), None, 2, 1.0, options.pop("as_json", False), None, **options)


def test_evaluate_prints_every_score_with_how_it_was_computed(trained, tmp_path, capsys):
    evaluate(trained, errors=1, out=tmp_path / "rows.jsonl")
    printed = capsys.readouterr().out
    for name in ("BLEU-4", "BLEU-4 without brevity penalty", "CIDEr-D", "ROUGE-L", "chrF", "exact match"):
        assert name in printed
    assert "tok:alnum" in printed
    assert "12 images with 24 references, beam 2" in printed
    assert "12 of these images stand in the run's own data" in printed
    assert printed.count("reference   ") == 2
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 12
    assert len(rows[0]["references"]) == 2
    evaluate(trained, as_json=True, errors=2)
    found = json.loads(capsys.readouterr().out)
    assert found["in_training"] == 12
    assert found["beam"] == 2
    assert len(found["errors"]) == 2
    with pytest.raises(UserError, match="give --data"):
        evaluate_command(trained / "soft", None, None, 2, 1.0, False, None)


def test_evaluate_says_what_it_leaves_out(trained, capsys):
    Image.fromarray(made_shapes(1, 7, 32)[0].pixels).save(trained / "images" / "new.png")
    table = trained / "some.tsv"
    table.write_text("image\tcaption\nimages/new.png\ta star\nimages/0-0.png\t\nimages/gone.png\ta star\n", "utf-8")
    evaluate(trained, "some.tsv")
    captured = capsys.readouterr()
    assert "1 rows left out: empty caption 1" in captured.err
    assert "gone.png: there is no such file" in captured.err
    assert "1 images with 1 references" in captured.out
    assert "own data" not in captured.out
    (trained / "images" / "new.png").unlink()


def test_compare_says_whether_runs_differ(trained, capsys):
    runs = [trained / "soft", trained / "floor"]
    data = str(trained / "captions-0.tsv")
    compare_command(runs, data, None, ["bleu1", "cider_d"], 20, 0, 1, 1.0, None, False, None)
    printed = capsys.readouterr().out
    assert "BLEU-1" in printed
    assert "12 images; paired bootstrap with 20 resamples" in printed
    compare_command(runs, data, None, None, 20, 0, 1, 1.0, None, True, None)
    assert set(json.loads(capsys.readouterr().out)["metrics"]) == {"bleu4", "bleu4_no_bp", "cider_d"}
    with pytest.raises(UserError, match="not one of captions"):
        compare_command(runs, data, None, ["macro_f1"], 20, 0, 1, 1.0, None, False, None)


def test_the_eye_of_view_explains_an_image(trained):
    look = captioning_eye(trained / "soft", Wanted("a red star", measure=False))
    assert look(trained / "images" / "0-0.png").output == "a red star"
    with pytest.raises(UserError, match="reads images"):
        look(("one", "two"))


def test_view_asks_for_an_image_and_names_what_it_got(trained, tmp_path):
    def refused(*arguments):
        done = invoke.run("view", trained / "soft", *arguments, "--out", tmp_path / "map.png", cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        return done.stderr

    for arguments in ((), ("--text", "a dog")):
        assert f"{trained / 'soft'} reads images; name one with --image" in refused(*arguments)
    images = trained / "images"
    assert f"--image is {images}, which is a folder; name one image" in refused("--image", images)
    table = trained / "captions-0.tsv"
    assert f"sightline: {table} cannot be used: it is no image" in refused("--image", table)
    assert not list(tmp_path.iterdir())


def test_options_for_texts_are_refused_for_what_they_are(trained, tmp_path):
    run_folder = trained / "soft"
    for command, arguments, said in (
        ("predict", ("--text", "a dog"), "reads images, and --text is for runs that read texts; name images with"),
        ("predict", ("--split",), "reads images, and --split is for runs that read texts; leave it out"),
        ("predict", ("--engine", "onnx"), "reads images, and --engine is for runs that read texts; leave it out"),
        ("predict", ("--threshold", "0.5"), "has no threshold, and --threshold is for runs of classify and grid"),
        ("evaluate", ("--by-length",), "reads images, and --by-length is about the length of source texts"),
        ("evaluate", ("--source", "a.txt"), "and --source is for runs that read texts; give the images with --data"),
        ("compare", ("--source", "a.txt"), "and --source is for runs that read texts; give the images with --data"),
    ):
        done = invoke.run(command, run_folder, *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert f"sightline: {run_folder} " in done.stderr
        assert said in done.stderr


def test_options_of_other_tasks_are_refused():
    check_train_options({"--source": None, "--no-floors": False}, "cider_d", "transformer")
    with pytest.raises(UserError, match="--labels is not an option"):
        check_train_options({"--labels": "one"}, None, None)
    with pytest.raises(UserError, match="--metric bleu "):
        check_train_options({}, "bleu", None)
    with pytest.raises(UserError, match="--model han"):
        check_train_options({}, None, "han")
    with pytest.raises(UserError, match="expected two"):
        training_files("a.tsv", None, ("image",))
    files, valid = training_files("a.tsv", "b.tsv", ("photo", "words"))
    assert files.columns == valid.columns == ("photo", "words")
