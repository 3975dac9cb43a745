"""`classify` by command: what is printed, exit codes, what stays on the disk."""

import json
import random
from dataclasses import replace

import pytest
import torch

from classify_samples import ordered, texts
from invoke import run
from runs import config_from, trained_on
from sightline.training.folder import load_tensors

pytestmark = [pytest.mark.unchecked_shapes, pytest.mark.slow]

QUICK = ["model.size=16", "model.embedding_size=16", "model.dropout=0.0", "model.word_dropout=0.0"]
QUICK += ["tokeniser.vocab_size=60", "tokeniser.min_frequency=1", "training.learning_rate=0.02", "training.warmup=5"]


def write(path, rows, header="text\tlabel"):
    path.write_text(header + "\n" + "".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One run by command for all the tests that only read it, and a second with another seed."""
    folder = tmp_path_factory.mktemp("commands")
    write(folder / "train.tsv", ordered(400))
    for name, seed, steps in (("run", "0", "120"), ("other", "1", "4")):
        done = run(
            "train", "classify", "--data", "train.tsv", "--out", name, "--steps", steps, "--seed", seed,
            "--set", *QUICK, cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
    return folder, done.stdout


def test_training_says_what_the_data_is(trained):
    folder, output = trained
    lines = " ".join(output.split())
    assert "400 texts of 400 rows" in lines
    assert "2 labels: " in lines
    assert "texts to train on" in lines
    assert "macro_f1" in lines
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["task"] == "classify"
    assert config["config"]["model"]["kind"] == "attentive"
    card = (folder / "run" / "card.md").read_text()
    assert "## Beside the floors" in card
    assert str(folder) not in card


def test_evaluate_prints_scores_floors_table_and_confusions(trained):
    folder, _ = trained
    rows = [*ordered(100, seed=4), ordered(400)[3], ("up and down", "maybe")]
    write(folder / "test.tsv", rows)
    done = run("evaluate", "run", "--data", "test.tsv", "--errors", "1", "--out", "rows.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words in ("this model", "linear", "nb-svm", "without texts of the training data", "calibration error",
                  "labels that training did not have, in 1 of 102 rows: 'maybe' (1)", "right ╲ given", "precision",
                  "1. "):  # fmt: skip
        assert words in done.stdout, words
    written = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert len(written) == 102
    assert {"text", "label", "prediction", "probability", "probabilities", "in_training"} == set(written[0])
    found = json.loads(run("evaluate", "run", "--data", "test.tsv", "--json", cwd=folder).stdout)
    assert found["texts"] == 102
    right = sum(row["label"] == row["prediction"] for row in written)
    assert found["accuracy"] == pytest.approx(100 * right / 102)
    assert found["in_training"] >= 1
    assert set(found["floors"]) == {"linear", "nb-svm"}
    assert found["calibration"]["temperature"] > 0


def test_predict_gives_a_label_a_line(trained):
    folder, _ = trained
    rows = ordered(50, seed=6)
    (folder / "in.txt").write_text("".join(text + "\n" for text, _ in rows))
    done = run("predict", "run", "--input", "in.txt", cwd=folder)
    assert done.returncode == 0, done.stderr
    labels = done.stdout.splitlines()
    assert sum(a == b for a, (_, b) in zip(labels, rows, strict=True)) >= 45
    (folder / "in.jsonl").write_text("".join(json.dumps({"text": text, "id": 3}) + "\n" for text, _ in rows))
    done = run("predict", "run", "--input", "in.jsonl", "--format", "jsonl", "--out", "out.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert [one["label"] for one in found] == labels
    assert set(found[0]["probabilities"]) == {"no", "yes"}


def test_compare_says_who_is_better(trained):
    folder, _ = trained
    write(folder / "new.tsv", ordered(100, seed=12))
    done = run("compare", "other", "run", "--data", "new.tsv", "--samples", "200", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "macro f1" in done.stdout
    assert "paired bootstrap with 200 resamples" in done.stdout
    command = ["compare", "other", "run", "--data", "new.tsv", "--metrics", "accuracy", "--samples", "200", "--json"]
    found = json.loads(run(*command, cwd=folder).stdout)["metrics"]["accuracy"]["runs"]
    assert found["run"]["difference"] == pytest.approx(found["run"]["value"] - found["other"]["value"])
    assert found["run"]["p"] < 0.05


def test_resume_goes_on(trained, tmp_path):
    folder, _ = trained
    done = run("train", "classify", "--data", folder / "train.tsv", "--out", "run", "--steps", "3", "--no-baselines",
               "--set", *QUICK, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "floors.json").exists()
    assert "were left out" in (tmp_path / "run" / "card.md").read_text()
    done = run("resume", "run", "--set", "steps=6", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 6
    assert "without floors" in run("evaluate", "run", "--data", folder / "train.tsv", cwd=tmp_path).stdout


def test_old_names_work_with_a_warning_and_the_new_ones_are_written(trained, tmp_path):
    folder, _ = trained
    old = ["tokeniser.words=60", "tokeniser.minimum=1", "model.deviation=0.2", "longest=100"]
    done = run("train", "classify", "--data", folder / "train.tsv", "--out", "run", "--steps", "2", "--no-floors",
               "--set", *old, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for before, after in (
        ("--no-floors", "--no-baselines"),
        ("tokeniser.words", "tokeniser.vocab_size"),
        ("tokeniser.minimum", "tokeniser.min_frequency"),
        ("model.deviation", "model.init_std"),
        ("longest", "max_length"),
    ):
        assert f"sightline: {before} is now called {after}; the old name works in this release only\n" in done.stderr
    assert not (tmp_path / "run" / "floors.json").exists()
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (config["baselines"], config["max_length"], config["model"]["init_std"]) == (False, 100, 0.2)
    assert (config["tokeniser"]["vocab_size"], config["tokeniser"]["min_frequency"]) == (60, 1)
    assert not {"floors", "longest"} & config.keys()
    assert not {"words", "minimum"} & config["tokeniser"].keys()
    assert "deviation" not in config["model"]


def test_a_dry_run_keeps_nothing(trained, tmp_path):
    folder, _ = trained
    done = run("train", "classify", "--data", folder / "train.tsv", "--out", "dry", "--model", "han", "--dry-run",
               "--epochs", "2", "--set", *QUICK, cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    for words in ("texts to train on", "minutes at most (2 epochs)", "texts a second", "han", "MB"):
        assert words in done.stdout, words
    assert not list(tmp_path.iterdir())


def test_several_labels_pairs_and_numbers_by_command(tmp_path):
    draw = random.Random(0)
    several = [(text, "|".join(name for name in ("ab", "cd") if name in text)) for text in texts(60)]
    write(tmp_path / "several.tsv", several)
    pairs = [(text, other, str(draw.random())) for text, other in zip(texts(60), texts(60, seed=5), strict=True)]
    write(tmp_path / "pairs.tsv", pairs, "sentence1\tsentence2\tscore")
    short = ["--steps", "2", "--set", *QUICK]
    done = run("train", "classify", "--data", "several.tsv", "--out", "a", "--labels", "several", *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = run("predict", "a", "--text", "ab cd", "--threshold", "0", cwd=tmp_path)
    assert found.stdout == "ab|cd\n"
    done = run("train", "classify", "--data", "pairs.tsv", "--out", "b", "--labels", "number", *short, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "pearson" in done.stdout
    found = run("predict", "b", "--text", "ab\tcd", cwd=tmp_path)
    assert 0 < float(found.stdout) < 1
    assert "no tab" in run("predict", "b", "--text", "ab", cwd=tmp_path).stderr
    assert "rmse" in run("evaluate", "b", "--data", "pairs.tsv", cwd=tmp_path).stdout


WRONG = {
    "one class": (["--data", "one.tsv"], "all 30 rows have the label 'a'"),
    "numbers as labels": (["--data", "numbers.tsv"], "--labels number"),
    "no label column": (["--data", "train.tsv", "--columns", "text", "class"], "expected 'text', 'class'"),
    "four columns": (["--data", "train.tsv", "--columns", "a", "b", "c", "d"], "(optional) and label"),
    "a metric of numbers": (["--data", "train.tsv", "--metric", "pearson"], "metric is pearson"),
    "a model of text": (
        ["--data", "train.tsv", "--model", "luong"],
        "no kind 'luong'; there is attentive, encoder, han",
    ),
    "aligned files": (["--source", "a", "--target", "b"], "--source is for translate and summarise, not for classify"),
    "no data": ([], "give --data FILE"),
    "no such start": (["--data", "train.tsv", "--from", "nowhere"], "nowhere"),
    "a start of another task": (["--data", "train.tsv", "--from", "translation"], "is a run of the task 'translate'"),
    "pairs for han": (["--data", "pairs.tsv", "--model", "han"], "reads one text"),
    "lora from nothing": (["--data", "train.tsv", "--set", "lora={}"], "there is none; name one with --from"),
    "another vocabulary": (
        ["--data", "train.tsv", "--from", "run", "--set", "tokeniser.vocab_size=9"],
        "has a vocabulary",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_trained_is_one_sentence_and_leaves_nothing(trained, case):
    folder, _ = trained
    write(folder / "one.tsv", [(f"text {i}", "a") for i in range(30)])
    write(folder / "numbers.tsv", [(f"text {i}", str(i / 7)) for i in range(30)])
    write(folder / "pairs.tsv", [(f"text {i}", "b", "xy"[i % 2]) for i in range(30)], "text\ttext2\tlabel")
    (folder / "translation").mkdir(exist_ok=True)
    (folder / "translation" / "config.json").write_text('{"format": 1, "task": "translate"}')
    options, expected = WRONG[case]
    done = run("train", "classify", "--out", "wrong", *options, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "wrong").exists()


USE = {
    "beams": (["predict", "run", "--split", "--text", "a"], "--split is no option of this run"),
    "aligned": (
        ["evaluate", "run", "--source", "train.tsv", "--target", "train.tsv"],
        "--source is no option of classify; give --data FILE",
    ),
    "no data": (["evaluate", "run"], "give --data FILE"),
    "a threshold": (["predict", "run", "--threshold", "2", "--text", "a"], "a probability"),
    "the same run": (["compare", "run", "run", "--data", "train.tsv"], "given twice"),
    "a metric of text": (["compare", "run", "other", "--data", "train.tsv", "--metrics", "bleu"], "no metric"),
    "a picture": (["compare", "run", "other", "--data", "train.tsv", "--out", "a.png"], "run has no source texts"),
    "no JSON": (["predict", "run", "--input", "bad.jsonl"], "line 1 is not JSON"),
}


@pytest.mark.parametrize("case", USE)
def test_wrong_use_is_one_sentence(trained, case):
    folder, _ = trained
    (folder / "bad.jsonl").write_text("text\n")
    arguments, expected = USE[case]
    done = run(*arguments, cwd=folder)
    assert done.returncode == 2
    assert expected in done.stderr


def test_options_of_classify_are_refused_for_pairs(tmp_path):
    (tmp_path / "x.tsv").touch()
    for options, expected in (
        (["--labels", "one"], "--labels is for classify, not for translate"),
        (["--no-baselines"], "--no-baselines is for classify, not for translate"),
        (["--metric", "macro_f1"], "invalid choice 'macro_f1' for argument '--metric'"),
        (["--model", "han"], "no kind 'han'; there is grammar, luong, rnnsearch, seq2seq, transformer"),
    ):
        done = run("train", "translate", "--data", "x.tsv", "--out", "run", *options, cwd=tmp_path)
        assert done.returncode == 2
        assert expected in done.stderr
    done = run("train", "classify", "--data", "x.tsv", "--out", "run", "--metric", "bleu", cwd=tmp_path)
    assert done.returncode == 2
    assert "invalid choice 'bleu' for argument '--metric'" in done.stderr
    assert "macro_f1" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]


def test_a_folder_named_data_is_the_users_own(tmp_path):
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "train.tsv", [(f"text {i}", "a") for i in range(30)])
    for task in ("classify", "translate", "tag"):
        done = run("train", task, "--data", "data/train.tsv", "--out", ".", cwd=tmp_path)
        assert done.returncode == 2
        assert "has a folder 'data' already" in done.stderr, task
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["train.tsv"]


def test_what_a_run_began_with_is_there_when_it_is_gone_on_with_before_its_first_checkpoint(trained, tmp_path):
    folder, _ = trained
    seen = []

    def see(prepared, model):
        seen.append({name: value.clone() for name, value in model.state_dict().items()})

    def stop():
        raise RuntimeError("a power cut")

    data, config = folder / "train.tsv", config_from("classify", folder / "run")
    with pytest.raises(RuntimeError):
        trained_on("classify", data, tmp_path / "cut", config, start=folder / "run", on_report=see, on_begin=stop)
    began = load_tensors(tmp_path / "cut" / "model.safetensors")
    config = replace(config, baselines=False, training=replace(config.training, steps=1, learning_rate=1e-12))
    trained_on("classify", None, tmp_path / "cut", config)
    after = load_tensors(tmp_path / "cut" / "model.safetensors")
    assert all(torch.allclose(after[name], began[name], atol=1e-6) for name in began)
    assert all(torch.equal(began[name], seen[0][name]) for name in began)


def test_the_kind_of_labels_of_a_run_to_begin_with_counts(tmp_path):
    write(tmp_path / "numbers.tsv", [(f"text {i} {'long ' * (i % 5)}", str(i % 5)) for i in range(60)])
    first = run(
        "train", "classify", "--data", "numbers.tsv", "--labels", "number", "--out", "n", "--steps", "2", cwd=tmp_path
    )
    assert first.returncode == 0, first.stderr
    done = run("train", "classify", "--data", "numbers.tsv", "--out", "m", "--from", "n", "--steps", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "m" / "labels.json").read_text())["kind"] == "number"
