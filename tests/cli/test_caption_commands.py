"""Predict, evaluate, compare and view for runs that write captions."""

import json

import pytest
from PIL import Image

import invoke
from captioning import FLOOR, tiny, written
from runs import trained_on
from sightline.data.image_tables import image_paths
from sightline.errors import UserError
from sightline.synthetic.shapes import made_shapes
from sightline.tasks.run import Run

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioning")
    table, _ = written(folder)
    for name, config in {"soft": tiny(), "floor": tiny(FLOOR)}.items():
        trained_on("caption", table, folder / name, config)
    return folder


def done(*arguments, cwd):
    """What a command printed, which did what it should."""
    ended = invoke.run(*arguments, cwd=cwd)
    assert ended.returncode == 0, ended.stderr
    return ended


def refused(*arguments, cwd):
    """What was wrong with a command."""
    ended = invoke.run(*arguments, cwd=cwd)
    assert ended.returncode == 2, ended.stderr
    return ended.stderr


def named(*images):
    return ["--image", *images]


def test_a_line_for_each_image_of_files_and_folders(trained):
    assert (trained / "soft" / "curves.png").exists()
    images = named(trained / "images" / "0-3.png", trained / "images")
    lines = done("predict", trained / "soft", *images, cwd=trained).stdout.splitlines()
    assert len(lines) == 13
    paths, captions = zip(*(line.split("\t") for line in lines), strict=True)
    assert paths[0] == paths[6] == str(trained / "images" / "0-3.png")  # by name: 0, 1, 10, 11, 2, 3
    assert captions[0] == captions[6]


def test_jsonl_says_where_each_token_looked(trained, tmp_path):
    arguments = (*named(trained / "images" / "0-0.png"), "--format", "jsonl", "--out", "found.jsonl")
    done("predict", trained / "soft", *arguments, "--best", 2, cwd=tmp_path)
    (found,) = map(json.loads, (tmp_path / "found.jsonl").read_text(encoding="utf-8").splitlines())
    assert found["grid"] == [4, 4]
    assert found["captions"][0]["text"] == found["caption"]
    assert len(found["alignment"]) > 0
    for one in found["alignment"]:
        assert 0 <= one["row"] < 4
        assert 0 <= one["column"] < 4
        assert 1 / 16 <= one["weight"] <= 1
    done("predict", trained / "floor", *arguments, cwd=tmp_path)
    assert "alignment" not in json.loads((tmp_path / "found.jsonl").read_text(encoding="utf-8"))


def test_bad_images_keep_their_line_and_are_named(trained, tmp_path):
    (tmp_path / "text.jpg").write_text("no image", encoding="utf-8")
    images = [tmp_path / "text.jpg", trained / "images" / "0-0.png", tmp_path / "missing.png"]
    predict = ("predict", trained / "soft")
    captured = done(*predict, *named(*images), cwd=tmp_path)
    lines = captured.stdout.splitlines()
    assert lines[0] == f"{tmp_path / 'text.jpg'}\t"
    assert lines[1].startswith(f"{trained / 'images' / '0-0.png'}\t")
    assert lines[2] == f"{tmp_path / 'missing.png'}\t"
    assert "text.jpg: it is no image" in captured.stderr
    assert "missing.png: there is no such file" in captured.stderr
    printed = done(*predict, *named(*images), "--format", "jsonl", cwd=tmp_path).stdout
    found = [json.loads(line) for line in printed.splitlines()]
    assert found[2] == {"image": str(images[2]), "problem": "there is no such file"}
    assert "none of the images" in refused(*predict, *named(images[0]), cwd=tmp_path)
    assert "no image to caption" in refused(*predict, cwd=tmp_path)
    assert "--format jsonl" in refused(*predict, *named(images[1]), "--best", 2, cwd=tmp_path)


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
    assert "images are predicted by one" in refused("predict", trained / "soft", "--input", listed, cwd=tmp_path)


def test_a_table_to_predict_says_what_its_column_must_be_called(tmp_path):
    (tmp_path / "list.tsv").write_text("photo\tyear\na.png\t1999\n")
    with pytest.raises(UserError, match=r"none of them is called 'image'; expected 'image' in its first line$"):
        image_paths([], str(tmp_path / "list.tsv"))  # predict has no --columns


def evaluate(folder, *options, data="captions-0.tsv"):
    return done("evaluate", folder / "soft", "--data", folder / data, "--beam", 2, *options, cwd=folder)


def test_evaluate_prints_every_score_with_how_it_was_computed(trained, tmp_path):
    printed = evaluate(trained, "--errors", 1, "--out", tmp_path / "rows.jsonl").stdout
    for name in ("BLEU-4", "BLEU-4 without brevity penalty", "CIDEr-D", "ROUGE-L", "chrF", "exact match"):
        assert name in printed
    assert "tok:alnum" in printed
    assert "12 images with 24 references, beam 2" in printed
    assert "12 of 12 images are in the run's own data: scores on them are too high" in printed
    assert printed.count("reference   ") == 2
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 12
    assert len(rows[0]["references"]) == 2
    found = json.loads(evaluate(trained, "--json", "--errors", 2).stdout)
    assert found["in_training"] == 12
    assert found["beam"] == 2
    assert len(found["errors"]) == 2
    assert "give --data" in refused("evaluate", trained / "soft", cwd=tmp_path)


def test_evaluate_says_what_it_leaves_out(trained):
    Image.fromarray(made_shapes(1, 7, 32)[0].pixels).save(trained / "images" / "new.png")
    table = trained / "some.tsv"
    table.write_text("image\tcaption\nimages/new.png\ta star\nimages/0-0.png\t\nimages/gone.png\ta star\n", "utf-8")
    captured = evaluate(trained, data="some.tsv")
    assert "1 rows left out: empty caption 1" in captured.stderr
    assert "gone.png: there is no such file" in captured.stderr
    assert "1 images with 1 references" in captured.stdout
    assert "own data" not in captured.stdout
    (trained / "images" / "new.png").unlink()


def test_compare_says_whether_runs_differ(trained):
    compare = ("compare", trained / "soft", trained / "floor", "--data", "captions-0.tsv", "--beam", 1, "--samples", 20)
    printed = done(*compare, "--metrics", "bleu1", "cider_d", cwd=trained).stdout
    assert "BLEU-1" in printed
    assert "12 images; paired bootstrap with 20 resamples" in printed
    found = json.loads(done(*compare, "--json", cwd=trained).stdout)
    assert set(found["metrics"]) == {"bleu4", "bleu4_no_bp", "cider_d"}
    said = refused(*compare, "--metrics", "macro_f1", cwd=trained)
    assert "macro_f1 is no metric of" in said
    assert "there is bleu1, bleu2" in said


def test_a_run_explains_an_image(trained):
    run = Run.load(trained / "soft")
    assert run.explain(trained / "images" / "0-0.png", "a red star", measure=False).output == "a red star"


def test_view_asks_for_an_image_and_names_what_it_got(trained, tmp_path):
    def viewed(*arguments):
        return refused("view", trained / "soft", *arguments, "--out", tmp_path / "map.png", cwd=tmp_path)

    run = trained / "soft"
    assert f"{run} reads images; name one with --image" in viewed()
    for arguments in (("--text", "a dog"), ("--text", "one", "--text2", "two")):
        assert f"{run} reads images, and --text is for runs that read texts; name images with" in viewed(*arguments)
    images = trained / "images"
    assert f"--image is {images}, which is a folder; name one image" in viewed("--image", images)
    table = trained / "captions-0.tsv"
    assert f"sightline: {table} cannot be used: it is no image" in viewed("--image", table)
    assert not list(tmp_path.iterdir())


def test_options_for_texts_are_refused_for_what_they_are(trained, tmp_path):
    run, data = trained / "soft", ("--data", trained / "captions-0.tsv")
    (tmp_path / "a.txt").touch()
    for command, arguments, said in (
        ("predict", ("--text", "a dog"), f"{run} reads images, and --text is for runs that read texts; name images"),
        ("predict", ("--split",), "--split is no option of this run; there is --batch-tokens, --beam"),
        ("predict", ("--keep-unknown",), "--keep-unknown is no option of this run"),
        ("predict", ("--engine", "onnx"), f"{run} is a run of caption; export models from text to text to ctranslate2"),
        ("predict", ("--threshold", "0.5"), "--threshold is no option of this run"),
        ("evaluate", (*data, "--by-length"), "--by-length is no option of this run"),
        ("evaluate", ("--source", "a.txt"), "--source is no option of caption; give --data FILE: a table with"),
        ("evaluate", (*data, "--target", "a.txt"), "--target is no option of caption; give --data FILE"),
        ("compare", (trained / "floor", "--source", "a.txt"), "--source is no option of caption; give --data FILE"),
    ):
        assert f"sightline: {said}" in refused(command, run, *arguments, cwd=tmp_path)


def test_options_of_other_tasks_are_refused(trained, tmp_path):
    for arguments, said in (
        (("--labels", "one"), "--labels is for classify, not for caption; leave it out"),
        (("--metric", "bleu"), "invalid choice 'bleu'"),
        (("--model", "han"), "no kind 'han'; there is show_attend_tell, transformer"),
        (("--columns", "image"), "expected the names of image and caption"),
    ):
        command = ("train", "caption", "--data", trained / "captions-0.tsv", "--out", tmp_path / "run")
        assert said in refused(*command, *arguments, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_columns_may_have_any_names_in_both_files(trained, tmp_path):
    text = (trained / "captions-0.tsv").read_text(encoding="utf-8").replace("image\tcaption", "photo\twords")
    for name in ("named.tsv", "valid.tsv"):
        (trained / name).write_text(text, encoding="utf-8")
    options = ("--data", "named.tsv", "--valid", "valid.tsv", "--columns", "photo", "words", "--dry-run")
    small = ("--set", 'encoder={"kind": "cnn", "size": 16, "channels": [8, 8]}', "model.size=8", "training.steps=1")
    printed = done("train", "caption", *options, *small, "--out", tmp_path / "run", cwd=trained).stdout
    assert "24 captions of 12 images to train on, 12 images to validate" in printed
