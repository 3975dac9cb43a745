"""Training from Python and again: what is refused before a folder is made, what a new limit does, what is printed."""

import json
import shutil
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

import sightline
from invoke import run
from sightline.errors import UserError
from sightline.tasks.train import train_task
from sightline.training.checkpoint import checkpoints, read_progress
from task_samples import KINDS, RUNS, sample

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manners")
    task, data, config, _ = sample("classify-text", folder)
    config = replace(config, training=replace(config.training, steps=4, epochs=None, minutes=None))
    return data, config, sightline.train(data, folder / "run", task=task, config=config), folder / "run"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"steps": "5"}, "steps: expected int, found '5'"),
        ({"labels": "severl"}, "labels"),
        ({"epoch": 3}, "no option"),
    ],
)
def test_wrong_keywords_leave_no_folder(trained, tmp_path, wrong, said):
    data, config, *_ = trained
    with pytest.raises(UserError, match=said):
        sightline.train(data, tmp_path / "run", task="classify", config=config, **wrong)
    with pytest.raises(TypeError, match="on_stp"):
        train_task(None, data, tmp_path / "run", config, on_stp=print)
    assert not (tmp_path / "run").exists()


def test_a_run_is_shown_in_a_line(trained):
    shown = repr(trained[2])
    assert shown.startswith("<Run of classify: ")
    assert len(shown) < 300


def test_progress_is_shown_where_it_is_asked_for(trained, tmp_path, capsys):
    data, config, *_ = trained
    sightline.train(data, tmp_path / "run", task="classify", config=config)
    assert not capsys.readouterr().out
    sightline.train(data, tmp_path / "run", task="classify", config=config, progress=True, overwrite=True)
    assert "to train on" in capsys.readouterr().out


def test_a_run_is_overwritten_only_by_one_that_can_be_trained(trained, tmp_path):
    data, config, *_ = trained
    out = tmp_path / "run"
    sightline.train(data, out, task="classify", config=config)
    before = (out / "metrics.jsonl").read_text()
    with pytest.raises(UserError, match="holds a run already"):
        sightline.train(data, out, task="classify", config=config)
    (tmp_path / "bad.tsv").write_text("text\tlabel\nonly one\ta\n")
    with pytest.raises(UserError):
        sightline.train(tmp_path / "bad.tsv", out, task="classify", config=config, overwrite=True)
    assert (out / "metrics.jsonl").read_text() == before
    again = replace(config, seed=1)
    sightline.train(data, out, task="classify", config=again, overwrite=True)
    assert json.loads((out / "config.json").read_text())["config"]["seed"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.tsv", "run"]


def test_new_limits_replace_those_of_the_run(trained):
    out = trained[3]
    refused = run("resume", out, "--steps", "4", cwd=out.parent)
    assert refused.returncode == 2
    assert "has trained 4 steps already, and --steps counts from its beginning: give more than 4" in refused.stderr
    done = run("resume", out, "--steps", "7", "--learning-rate", "0.001", cwd=out.parent)
    assert done.returncode == 0, done.stderr
    assert read_progress(checkpoints(out)[-1]).step == 7
    training = json.loads((out / "config.json").read_text())["config"]["training"]
    assert (training["steps"], training["learning_rate"]) == (7, 0.001)


def test_tidy_keeps_what_predictions_need(trained, tmp_path):
    copy = shutil.copytree(trained[3], tmp_path / "run")
    before = sightline.load(copy).predict(["ga di gi"])
    optimisers = [path for path in checkpoints(copy) if (path / "optimiser.safetensors").exists()]
    assert optimisers == checkpoints(copy)[-1:]
    done = run("tidy", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "MB removed" in done.stdout
    assert [path.name for path in (copy / "data").iterdir()] == ["texts.npy"]
    assert sightline.load(copy).predict(["ga di gi"]) == before
    assert sightline.load(copy).evaluate(str(trained[0])).seen.all()
    refused = run("resume", "run", "--steps", "9", cwd=tmp_path)
    assert refused.returncode == 2
    assert "has no data and no checkpoints (sightline tidy removes them)" in refused.stderr


@pytest.mark.parametrize("kind", ["translate", "grid"])
def test_evaluate_says_that_a_tidied_run_does_not_recognise_its_rows(kind, tmp_path):
    copy = shutil.copytree(RUNS / kind / "run", tmp_path / "run")
    known = run("evaluate", "run", "--data", RUNS / kind / "data.tsv", cwd=tmp_path)
    assert "is not known" not in known.stdout
    done = run("tidy", "run", cwd=tmp_path)
    assert "evaluate no longer recognises rows that are in the run's training data" in done.stdout, done.stderr
    assert not list((copy / "data").iterdir())
    told = run("evaluate", "run", "--data", RUNS / kind / "data.tsv", cwd=tmp_path)
    assert "no training data: whether it has some of these rows is not known" in told.stdout


def test_a_run_that_has_not_ended_is_not_tidied(trained, tmp_path):
    copy = shutil.copytree(trained[3], tmp_path / "run")
    (copy / "checksums.json").unlink()
    assert "has not ended" in run("tidy", "run", cwd=tmp_path).stderr
    assert checkpoints(copy)


def test_fields_that_look_like_options_have_a_hint(tmp_path):
    for name, said in {"--batch-tokens": "--set batch_tokens=", "--lr": "--learning-rate"}.items():
        refused = run("train", "classify", "--data", "x.tsv", "--out", "run", name, "3", cwd=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_item_is_said(kind):
    loaded = sightline.load(RUNS / kind / "run")
    for wrong in (3, None, {"a": 1}, [3, 4], Decimal(1), object(), {"a"}):
        with pytest.raises(UserError, match="expected"):
            loaded.explain(wrong)
        with pytest.raises(UserError, match="expected"):
            loaded.predict([wrong])
    for wrong, named in {3: "a number: 3", None: "None", Decimal(1): "Decimal: Decimal"}.items():
        with pytest.raises(UserError, match=rf"expected a list of \w+, such as \[.*\], found {named}"):
            loaded.predict(wrong)
    with pytest.raises(UserError, match=r"expected a list of .* found an object: \{'a': 1\}"):
        loaded.predict({"a": 1})
    with pytest.raises(UserError, match="expected a list of"):
        loaded.predict(SimpleNamespace(columns=["text"], __iter__=None))  # a table, whose iterator gives names
