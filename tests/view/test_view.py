"""`sightline view` and `run.explain(...).save(...)`: what they write, and what they refuse."""

import json
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import sightline
from frozen_run import FROZEN
from invoke import run
from sightline.explain.explanation import Explanation

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(FROZEN[-1], tmp_path / "run")
    return tmp_path


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "gif", "html", "json"])
def test_the_ending_says_what_is_written(folder, ending):
    done = run("view", "run", "--text", "abcd", "--out", f"map.{ending}", cwd=folder)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "abcd  →  dcba"
    assert lines[-1] == f"map.{ending}"
    assert lines[1].startswith("  measured on ")
    assert len(lines) == 10, "seven sentences say what to make of it"
    path = folder / f"map.{ending}"
    content = path.read_bytes()
    if ending in ("png", "gif"):
        with Image.open(path) as picture:
            assert getattr(picture, "n_frames", 1) == (1 if ending == "png" else 6)
            assert np.asarray(picture.convert("L")).std() > 5
    elif ending == "svg":
        texts = ["".join(element.itertext()) for element in ElementTree.fromstring(content).iter()]
        assert {"a", "b", "c", "d"} <= {text.strip() for text in texts}
    elif ending == "pdf":
        assert content.startswith(b"%PDF")
    elif ending == "html":
        assert b"<!doctype html>" in content.lower()[:200]
        assert b"http://" not in content.replace(b"http://www.w3.org", b"")
        assert b"https://" not in content
    else:
        found = Explanation.from_json(json.loads(content))
        assert found.output == "dcba"
        assert found.belief is not None


def test_python_saves_the_same(folder):
    found = sightline.load(folder / "run").explain("abcd", measure=False)
    found.save(folder / "python.svg")
    run("view", "run", "--text", "abcd", "--quick", "--out", "command.svg", cwd=folder)
    assert (folder / "python.svg").read_bytes() == (folder / "command.svg").read_bytes()
    assert "<iframe" in found._repr_html_()


def test_several_texts_and_runs_make_one_page(folder):
    (folder / "texts.txt").write_text("abcd\n\nbcd\n")
    shutil.copytree(folder / "run", folder / "other")
    done = run("view", "run", "other", "--input", "texts.txt", "--quick", "--out", "page.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["abcd  →  dcba"] * 2 + ["bcd  →  dcb"] * 2 + ["page.html"]
    many = run("view", "run", "--input", "texts.txt", "--quick", "--out", "both.json", cwd=folder)
    assert many.returncode == 0
    assert [one["input"] for one in json.loads((folder / "both.json").read_text())] == ["abcd", "bcd"]


def test_another_output_is_explained_when_given(folder):
    done = run("view", "run", "--text", "abcd", "--output", "ab", "--quick", "--out", "map.json", cwd=folder)
    assert done.returncode == 0
    found = Explanation.from_json(json.loads((folder / "map.json").read_text()))
    assert [step.written for step in found.steps] == ["a", "b", "</s>"]


WRONG = {
    "an ending": (["--text", "a", "--out", "map.bmp"], "--out is map.bmp; it must end in one of .png"),
    "no text": (["--out", "map.png"], "there is no text to view"),
    "an empty file": (["--input", "empty.txt", "--out", "map.png"], "empty.txt is empty"),
    "no file": (["--input", "none.txt", "--out", "map.png"], "there is no file none.txt"),
    "two texts in a picture": (["--text", "a", "b", "--out", "map.png"], "2 explanations do not go into one picture"),
    "a picture's option": (["--text", "a", "--head", "0", "--out", "map.html"], "are for pictures"),
    "an unknown attention": (["--text", "a", "--attention", "x", "--quick", "--out", "map.png"], "'x'"),
    "an unknown head": (["--text", "a", "--head", "7", "--quick", "--out", "map.png"], "head"),
    "a folder": (["--text", "a", "--out", "run.html"], "which is a folder"),
    "outputs for two texts": (
        ["--text", "a", "b", "--output", "a", "--out", "map.html"],
        "--output explains one text",
    ),
    "too many": (["--input", "many.txt", "--out", "map.html"], "too many for one file"),
    "no weights": (["--text", "a", "--top", "0", "--out", "map.html"], "top is 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_shown_is_one_sentence(folder, case):
    options, message = WRONG[case]
    (folder / "empty.txt").write_text("\n")
    (folder / "many.txt").write_text("a\n" * 51)
    (folder / "run.html").mkdir()
    before = sorted(folder.iterdir())
    done = run("view", "run", *options, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(folder.iterdir()) == before


def test_a_run_of_a_stranger_with_an_odd_shift_is_refused(folder):
    config = json.loads((folder / "run" / "config.json").read_text())
    (folder / "run" / "config.json").write_text(json.dumps({**config, "shift": "__import__('os')"}))
    (folder / "run" / "checksums.json").unlink()
    done = run("view", "run", "--text", "a", "--out", "map.png", cwd=folder)
    assert done.returncode == 2
    assert "is damaged" in done.stderr
