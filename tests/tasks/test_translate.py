"""From a file of pairs to a trained, searched, scored model: by command and in Python."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import sightline
from invoke import run as invoke
from pairs import QUICK, make_pairs, write_tsv
from sightline.errors import UserError
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.tasks.configs.translate import TranslateConfig
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.folder import load_tensors
from sightline.training.loop import TrainingConfig
from signals import start_interruptible

pytestmark = [pytest.mark.unchecked_shapes, pytest.mark.slow]


def run(*arguments, cwd, **options):
    command = [sys.executable, "-m", "sightline", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment, **options)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One run for all the tests that only read it."""
    folder = tmp_path_factory.mktemp("trained")
    write_tsv(folder / "train.tsv", make_pairs(400))
    done = run(
        "train", "translate", "--data", "train.tsv", "--out", "run", "--model", "rnnsearch", "--epochs", "25",
        "--set", *QUICK, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def test_training_reaches_its_score_and_says_so(trained):
    lines = [json.loads(line) for line in (trained / "run" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["final"]
    assert lines[-1]["exact"] >= 90
    assert {"config.json", "model.safetensors", "source.json", "target.json", "metrics.jsonl", "checksums.json"} <= {
        path.name for path in (trained / "run").iterdir()
    }
    assert not [path for path in (trained / "run").rglob("*") if path.suffix in (".pt", ".pkl", ".bin", ".part")]


def test_evaluate_gives_every_metric(trained):
    done = run("evaluate", "run", "--data", "train.tsv", "--json", cwd=trained)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["pairs"] == 400
    assert found["exact"]["value"] >= 90
    assert "tok:13a" in found["bleu"]["signature"]
    assert found["perplexity"] < 2
    table = invoke("evaluate", "run", "--data", "train.tsv", "--beam", "1", cwd=trained).stdout
    assert "perplexity" in table
    assert "400 pairs" in table


def test_predictions_come_in_order_with_empty_lines(trained):
    texts = ["abc", "", "hgf", "  ", "deb", ""]
    piped = run("predict", "run", cwd=trained, input="".join(f"{text}\n" for text in texts))
    assert piped.returncode == 0, piped.stderr
    lines = piped.stdout.split("\n")
    assert len(lines) == len(texts) + 1, "as many lines out as in"
    assert (lines[1], lines[5]) == ("", "")
    assert [lines[0], lines[2], lines[4]] == ["cba", "fgh", "bed"]
    given = invoke("predict", "run", "--text", "abc", "hgf", "--format", "jsonl", cwd=trained)
    found = [json.loads(line) for line in given.stdout.splitlines()]
    assert [one["prediction"] for one in found] == ["cba", "fgh"]
    assert all(one["log_prob"] <= 0 for one in found)


def test_a_run_moves_to_another_place(trained, tmp_path):
    import shutil

    shutil.copytree(trained / "run", tmp_path / "elsewhere", ignore=shutil.ignore_patterns("checkpoints", "data"))
    translator = sightline.load(tmp_path / "elsewhere")
    assert [one.text for one in translator.predict(["abc", "", "hgf"])] == ["cba", "", "fgh"]


def test_a_batch_in_any_order_gives_what_single_texts_give(trained):
    translator = sightline.load(trained / "run")
    texts = ["abc", "a", "hgfedcbaabcdefgh", "", "gg", "cab" * 9]
    whole = [one.text for one in translator.predict(texts, beam=3)]
    assert whole == [translator.predict([text], beam=3)[0].text for text in texts]
    assert whole[::-1] == [one.text for one in translator.predict(texts[::-1], beam=3)]


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "source.json", "target.json", "metrics.jsonl"])
def test_a_damaged_run_is_refused_by_name(trained, tmp_path, file):
    import shutil

    shutil.copytree(trained / "run", tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "data"))
    path = tmp_path / "run" / file
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    done = invoke("predict", "run", "--text", "abc", cwd=tmp_path)
    assert done.returncode == 2
    assert file in done.stderr
    assert "Traceback" not in done.stderr
    path.unlink()
    assert file in invoke("predict", "run", "--text", "abc", cwd=tmp_path).stderr


def test_a_checkpoint_can_be_used_as_it_was(trained):
    paths = sorted((trained / "run" / "checkpoints").glob("step-*"))
    translator = sightline.load(paths[0])
    assert translator.name == str(paths[0])
    kept = load_tensors(paths[0] / "model.safetensors")
    for name, parameter in translator.model.state_dict().items():
        assert torch.equal(parameter, kept[name])
    assert invoke("predict", paths[0], "--text", "abc", cwd=trained).returncode == 0
    refused = invoke("predict", trained / "run" / "checkpoints" / "step-1000000", "--text", "abc", cwd=trained)
    assert refused.returncode == 2
    assert "there is no run folder" in refused.stderr


def test_python_does_the_same(tmp_path):
    with gzip.open(tmp_path / "pairs.jsonl.gz", "wt", encoding="utf-8") as file:
        for source, target in make_pairs(300):
            file.write(json.dumps({"source": source, "target": target}) + "\n")
    config = TranslateConfig(
        model=RNNSearchConfig(24, 32, dropout=0.0),
        tokeniser=TokeniserConfig(method="characters", vocab_size=40),
        training=TrainingConfig(learning_rate=1e-2, warmup=30),
        metric="exact",
        batch_tokens=400,
    )
    steps = []
    translator = sightline.train(
        tmp_path / "pairs.jsonl.gz",
        tmp_path / "run",
        config=config,
        epochs=2,
        on_step=lambda event: steps.append(event),
    )
    assert len(steps) == steps[-1].progress.step
    again = sightline.load(tmp_path / "run")
    assert again.predict(["abc"]) == translator.predict(["abc"])
    with pytest.raises(UserError, match="holds a run already"):
        sightline.train(tmp_path / "pairs.jsonl.gz", tmp_path / "run", config=config, epochs=1)


def test_ctrl_c_saves_and_resume_goes_on(tmp_path):
    write_tsv(tmp_path / "train.tsv", make_pairs(400))
    command = [sys.executable, "-m", "sightline", "train", "translate", "--data", "train.tsv", "--out", "run"]
    command += ["--model", "rnnsearch", "--epochs", "1000", "--set", *QUICK, "training.patience=1000"]
    running = start_interruptible(command, cwd=tmp_path)
    deadline = time.monotonic() + 90
    while not (tmp_path / "run" / "checkpoints").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    _, error = running.communicate(timeout=60)
    assert running.returncode == 130, error
    assert "continue with: sightline resume run" in error
    assert "Traceback" not in error
    done = invoke("resume", "run", "--set", "epochs=3", "patience=5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "epochs" in done.stdout
    assert invoke("predict", "run", "--text", "abc", cwd=tmp_path).returncode == 0


def test_training_from_a_real_pipe(tmp_path):
    raw = "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in make_pairs(60))
    words = ["train", "translate", "--data", "-", "--out", "run", "--model", "rnnsearch", "--steps", "1"]
    done = run(*words, "--set", *QUICK, cwd=tmp_path, input=raw)
    assert done.returncode == 0, done.stderr
    assert "60 pairs of 60 rows" in done.stdout


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["tsv", "jsonl"])
def test_training_from_a_pipe(tmp_path, kind, packed):
    pairs = make_pairs(60)
    if kind == "tsv":
        content = "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in pairs)
    else:
        content = "".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in pairs)
    raw = gzip.compress(content.encode(), mtime=0) if packed else content.encode()
    words = ["train", "translate", "--data", "-", "--out", "run", "--model", "rnnsearch", "--steps", "1"]
    done = invoke(*words, "--threads", "1", "--set", *QUICK, cwd=tmp_path, stdin=raw)
    assert done.returncode == 0, done.stderr
    assert "60 pairs of 60 rows" in done.stdout


def bad_bytes(path):
    path.write_bytes(b"source\ttarget\na\tb\n\xff\tc\n")


WRONG = {
    "no such file": (None, ["--data", "data.tsv"], "data.tsv"),
    "empty file": (lambda path: path.write_text(""), ["--data", "data.tsv"], "data.tsv"),
    "bad UTF-8": (bad_bytes, ["--data", "data.tsv"], "data.tsv:3"),
    "wrong columns": (lambda path: path.write_text("a\tb\tc\n1\t2\t3\n"), ["--data", "data.tsv"], "data.tsv"),
    "wrong number of columns": (
        lambda path: path.write_text("source\ttarget\na\tb\nonly one\n"),
        ["--data", "data.tsv"],
        "data.tsv:3",
    ),
    "nothing given": (None, [], "give either --data FILE, or --source FILE and --target FILE"),
    "one side only": (Path.touch, ["--source", "data.tsv"], "--source and --target go together"),
    "unknown field": (
        lambda path: write_tsv(path, make_pairs(20)),
        ["--data", "data.tsv", "--set", "model.sise=3"],
        "did you mean 'size'?",
    ),
    "unknown option": (None, ["--dat", "data.tsv"], "--data"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, case):
    make, options, message = WRONG[case]
    if make is not None:
        make(tmp_path / "data.tsv")
    done = invoke("train", "translate", *options, "--out", "run", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_unequal_files_name_both_counts(tmp_path):
    (tmp_path / "a.txt").write_text("x\ny\nz\n")
    (tmp_path / "b.txt").write_text("x\ny\n")
    done = invoke("train", "translate", "--source", "a.txt", "--target", "b.txt", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "3" in done.stderr
    assert "2" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_a_run_is_left_alone(trained):
    before = (trained / "run" / "config.json").read_bytes()
    done = invoke("train", "translate", "--data", "train.tsv", "--out", "run", "--steps", "1", cwd=trained)
    assert done.returncode == 2
    assert "run holds a run already" in done.stderr
    assert (trained / "run" / "config.json").read_bytes() == before
