"""The commands of runs that label cells: what they print, ask for and leave on the disk."""

import json
import re
from types import SimpleNamespace

import pytest

import invoke
import sightline.tasks.train
from grid_samples import write_parity, write_photos
from runs import trained_on
from sightline.models.grid_at_once import AtOnceConfig
from sightline.tasks.configs.grid import GridConfig
from sightline.training.loop import TrainingConfig

TINY = AtOnceConfig(width=8, cell_size=16, rnn_size=4, pixel_width=8)
CONFIG = GridConfig(model=TINY, training=TrainingConfig(steps=1, averaged=1), cell=8, crop=4, batch=4)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Photos and a run of them, and a run of features."""
    folder = tmp_path_factory.mktemp("grid")
    photos, features = write_photos(folder / "photos", 10), write_parity(folder / "features", 10)
    with pytest.MonkeyPatch.context() as patch:
        # Drawing takes longer than the training.
        patch.setattr("sightline.view.charts.draw_curves", lambda metrics, path, unit: None)
        trained_on("grid", photos, folder / "run", CONFIG)
        trained_on("grid", features, folder / "other", CONFIG)
    return SimpleNamespace(photos=photos, images=photos.parent / "images", run=folder / "run", other=folder / "other")


def test_an_interrupt_before_the_first_step_says_what_is_kept(made, tmp_path, monkeypatch):
    small = ("model.width=8", "model.cell_size=16", "model.rnn_size=4", "model.pixel_width=8")

    def interrupted(place):
        def stop(*_, **__):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(sightline.tasks.train, place, stop)
            done = invoke.run(
                "train", "grid", "--data", made.photos, "--out", "run", "--steps", "1", "--set", *small, cwd=tmp_path
            )
        assert done.returncode == 130
        return done.stderr

    said = "sightline: stopped before training began; nothing was kept: give the same command again\n"
    assert interrupted("preparing") == said
    assert not (tmp_path / "run").exists()
    said = "sightline: stopped before the first step; the prepared data is kept; continue with: sightline resume run\n"
    assert interrupted("train") == said
    done = invoke.run("resume", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ended after 1 steps" in done.stdout
    assert "best –" not in done.stdout  # there is one, from the validation behind the last step
    assert re.search(r"cells/s best \d", done.stdout)


def test_predictions_keep_their_lines(made, tmp_path):
    def predict(run, *arguments):
        return invoke.run("predict", run, *arguments, cwd=tmp_path)

    images = made.images
    (tmp_path / "text.png").write_text("no image")
    given = [tmp_path / "no.png", images / "0.png", tmp_path / "text.png", images / "0.png", images / "1.png"]
    given.append(tmp_path / "last.png")
    said = predict(made.run, "--image", *given, "--out", "out")
    lines = said.stdout.splitlines()
    assert [line.partition("\t")[0] for line in lines] == list(map(str, given))
    assert [line.partition("\t")[2] == "" for line in lines] == [True, False, True, False, False, True]
    assert f"{tmp_path / 'text.png'}: it is no image" in said.stderr
    assert (tmp_path / "out" / "0-2.mask.png").exists()  # named twice, and both were answered
    rows = [json.loads(line) for line in predict(made.run, "--image", *given, "--format", "jsonl").stdout.splitlines()]
    assert [row["image"] for row in rows] == list(map(str, given))
    assert rows[0]["problem"] == "there is no such file"
    refused = predict(made.run, "--image", *given[:1] * 2, "--out", tmp_path / "new" / "out")
    assert (refused.returncode, "no.png: there is no such file" in refused.stderr) == (2, True)
    assert not (tmp_path / "new").exists()
    refused = predict(made.other, "--image", images / "0.png")
    assert (refused.returncode, "none of the images" in refused.stderr) == (2, True)
    assert f"sightline: {images / '0.png'}: it has 3 pixels at each place; " in refused.stderr


def test_view_asks_for_an_image_and_shows_runs_side_by_side(made, tmp_path):
    def view(*arguments, out="map.png"):
        return invoke.run("view", made.run, *arguments, "--out", tmp_path / out, cwd=tmp_path)

    images = made.images
    for out in ("map.png", "map.html"):
        asked = view(out=out)
        assert asked.returncode == 2
        assert f"{made.run} reads images; name one with --image" in asked.stderr
    assert "reads images, and --text is for runs that read texts" in view("--text", "a").stderr
    assert f"--image is {images}, which is a folder; name one image" in view("--image", images).stderr
    assert not list(tmp_path.iterdir())
    both = view(made.run, "--image", images / "0.png", out="map.html")
    assert both.returncode == 0, both.stderr
    assert both.stdout.count("0.png  →  cells: ") == 2
