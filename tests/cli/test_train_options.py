"""The options of `train`: sizes, files of configuration, trying without keeping, going on from an earlier run."""

import json

import numpy as np
import pytest

import runs
import sightline
from invoke import run
from pairs import QUICK, make_pairs, write_tsv
from sightline.cli.train import configured, preset
from sightline.config import ConfigError
from sightline.errors import UserError
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.missing import count_missing
from sightline.tasks.registry import task_named
from sightline.tasks.translate import MODELS, TRANSLATE
from sightline.text.tokeniser import Tokeniser, TokeniserConfig, train_tokeniser
from sightline.training.folder import load_tensors
from sightline.training.loop import TrainingConfig
from sightline.view.charts import draw_curves

pytestmark = pytest.mark.unchecked_shapes


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A run of a few steps, by command, with everything written that can be."""
    folder = tmp_path_factory.mktemp("short")
    pairs = make_pairs(200)
    write_tsv(folder / "train.tsv", pairs)
    write_tsv(folder / "valid.tsv", [*pairs[:7], ("hhhh", "hhhh")])
    done = run(
        "train", "translate", "--data", "train.tsv", "--valid", "valid.tsv", "--out", "run", "--model", "rnnsearch",
        "--steps", "12", "--tensorboard", "--set", *QUICK, "training.validate_every=4", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    return folder, done.stdout


def test_pairs_on_both_sides_are_counted(short):
    _, output = short
    assert "of 8 validation pairs, 7 are in the training data" in " ".join(output.split())


def test_evaluation_says_what_was_trained_on(short):
    folder, _ = short
    known = make_pairs(200)[:3]
    write_tsv(folder / "test.tsv", [*known, known[0], (known[1][0], "hhh"), ("hgg", "ggh"), ("hhgg", "hh")])
    found = json.loads(run("evaluate", "run", "--data", "test.tsv", "--beam", "1", "--json", cwd=folder).stdout)
    assert found["in_training"] == {"pairs": 4, "sources": 5}
    table = run("evaluate", "run", "--data", "test.tsv", "--beam", "1", cwd=folder).stdout
    assert "4 of these pairs are in the training data, and 5 have their source there" in table


def test_the_card_says_data_scores_command_and_limits(short):
    folder, _ = short
    card = (folder / "run" / "card.md").read_text()
    assert "200 pairs to train on, from train.tsv" in card
    assert "8 pairs to validate on, from valid.tsv. Of these, 7 are in the training data too." in card
    assert "sightline train translate --data train.tsv" in card
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert f"| exact | {lines[-1]['exact']:g} |" in card
    assert "## Limits" in card
    assert str(folder) not in card


def test_the_record_has_what_the_curves_show(short):
    folder, _ = short
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [4, 8, 12, 12]
    assert lines[0]["loss"] > lines[2]["loss"] > 0
    assert lines[0]["tokens_per_second"] > 0
    assert lines[2]["learning_rate"] < lines[1]["learning_rate"]
    assert (folder / "run" / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_tensorboard_reads_what_was_written(short):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = short
    events = EventAccumulator(str(folder / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 13))
    assert [event.step for event in events.Scalars("valid/exact")] == [4, 8, 12]


def test_curves_need_something_to_draw(tmp_path):
    assert draw_curves([{"step": 3, "final": True}], tmp_path / "curves.png") is None
    lines = [{"step": step, "epoch": step, "seconds": 1.0, "chrf": float("nan")} for step in (1, 2)]
    assert draw_curves(lines, tmp_path / "curves.svg").exists()


def test_a_dry_run_keeps_nothing(short):
    folder, _ = short
    before = sorted(path.name for path in folder.iterdir())
    done = run(
        "train", "translate", "--data", "train.tsv", "--out", "dry", "--model", "luong", "--dry-run", "--epochs", "7",
        "--set", *QUICK, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for word in ("190 pairs to train on", "minutes at most (7 epochs)", "target tokens a second", "MB", "luong"):
        assert word in done.stdout, word
    assert sorted(path.name for path in folder.iterdir()) == before


def test_going_on_from_a_run_keeps_its_vocabulary_and_begins_with_its_weights(short):
    folder, _ = short
    write_tsv(folder / "new.tsv", [("abc", "xyz"), ("cab", "zxa"), ("bca", "aaa"), *make_pairs(60, seed=4)])
    done = run(
        "train", "translate", "--data", "new.tsv", "--out", "next", "--from", "run", "--steps", "1",
        "--set", "training.learning_rate=1e-9", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "cannot write 5 of " in done.stdout
    assert "z (2)" in done.stdout
    for name in ("source.json", "target.json"):
        assert (folder / "next" / name).read_text() == (folder / "run" / name).read_text()
    before, after = (load_tensors(folder / name / "model.safetensors") for name in ("run", "next"))
    for name in before:
        np.testing.assert_allclose(before[name], after[name], atol=1e-6)
    config = json.loads((folder / "next" / "config.json").read_text())["config"]
    assert config["model"]["size"] == 32
    assert "weights and the vocabulary of the run `run`" in (folder / "next" / "card.md").read_text()


WRONG = {
    "another model": (["--from", "run", "--model", "luong"], "run is a rnnsearch"),
    "no such run": (["--from", "nowhere"], "nowhere"),
    "config and model": (["--config", "c.json", "--model", "luong"], "leave out --model"),
    "no such config": (["--config", "missing.json"], "missing.json"),
    "no JSON": (["--config", "train.tsv"], "train.tsv is not JSON"),
    "unknown field": (["--config", "wrong.json"], "did you mean 'model'?"),
    "no such preset": (["--preset", "huge"], "huge"),
    "size of an earlier run": (["--from", "run", "--preset", "small"], "leave out --preset"),
    "another size": (["--from", "run", "--set", "model.size=16"], "differs from that of the earlier run"),
    "heads that do not fit": (["--set", "model.size=10"], "invalid model configuration"),
    "a negative size": (["--model", "rnnsearch", "--set", "model.size=-4"], "invalid model configuration"),
    "two vocabularies, one table": (["--set", "tokeniser.joint=false"], "also set model.tied=output"),
    "a negative seed": (["--set", "seed=-1"], "seed is -1"),
    "columns of files without": (["--source", "a", "--target", "b", "--columns", "x", "y"], ""),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options_are_one_sentence(short, case):
    folder, _ = short
    (folder / "c.json").write_text("{}")
    (folder / "wrong.json").write_text('{"modle": {}}')
    options, message = WRONG[case]
    done = run("train", "translate", "--data", "train.tsv", "--out", "none", *options, cwd=folder)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert not (folder / "none").exists()


def test_the_help_states_the_limit_that_training_has_without_one(tmp_path):
    told = run("train", "classify", "--help", cwd=tmp_path).stdout
    limits = [TrainingConfig().limited(batches).epochs for batches in (10**6, 1)]
    assert f"Without a limit: {limits[0]}, or with few rows up to {limits[1]:,}" in " ".join(
        told.replace("│", "").split()
    )


def test_presets_differ_in_size_and_have_their_rates():
    (variant,) = TRANSLATE.variants
    for model, sizes in MODELS.items():
        models = [preset(variant, model, size).model.build(50, 50) for size in sizes]
        counts = [sum(one.numel() for one in built.parameters()) for built in models]
        assert counts == sorted(counts)
        assert len(set(counts)) == 3
    rates = [preset(variant, model).training.learning_rate for model in ("transformer", "rnnsearch")]
    assert rates[0] > rates[1]
    assert preset(variant, "luong", "base").model.layers == 4
    with pytest.raises(ConfigError, match="one of tiny, small, base"):
        preset(variant, "luong", "huge")


def config_of(task="translate", **given):
    """The configuration that these options of `train` make."""
    names = ("model", "preset", "start", "config", "seed", "metric", "epochs", "steps", "minutes")
    task = task_named(task)
    return configured(task, task.variants[0], {**dict.fromkeys(names), "set": (), **given}, [])


def test_what_comes_later_counts(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"model": "luong", "batch_tokens": 100, "seed": 5, "training": {"steps": 9}}))
    config = config_of(config=path, metric="chrf", steps=3, set=("batch_tokens=7",))
    assert (config.model.kind, config.metric, config.training.steps) == ("luong", "chrf", 3)
    assert (config.batch_tokens, config.seed) == (7, 5)
    assert config_of(seed=3).seed == 3
    with pytest.raises(UserError, match="--seed is -1"):
        config_of(seed=-1)


def test_summaries_are_judged_by_rouge():
    assert config_of("summarise").metric == "rougeL"
    assert config_of("summarise", metric="bleu").metric == "bleu"
    assert config_of("summarise", model="luong").metric == "rougeL"
    assert config_of().metric == "bleu"


@pytest.mark.slow
def test_documents_may_be_long_when_they_are_summarised(tmp_path):
    pairs = [("ab " * 600 + str(i), f"ab {i}") for i in range(4)]
    write_tsv(tmp_path / "long.tsv", pairs)
    options = ["--data", "long.tsv", "--dry-run", "--steps", "1", "--model", "rnnsearch", "--set", *QUICK[:4]]
    refused = run("train", "translate", "--out", "run", *options, cwd=tmp_path)
    assert refused.returncode == 2
    assert "too long" in refused.stderr
    done = run("train", "summarise", "--out", "run", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    longer = run("train", "translate", "--out", "run", *options, "--max-characters", "5000", cwd=tmp_path)
    assert longer.returncode == 0, longer.stderr


def test_bpe_dropout_cuts_the_same_text_anew(tmp_path):
    write_tsv(tmp_path / "pairs.tsv", [(f"the cat number {i} sat", f"die katze nummer {i} sass") for i in range(80)])
    batches = {}
    for dropout in (0.0, 0.5):
        config = TranslateConfig(tokeniser=TokeniserConfig(vocab_size=500, dropout=dropout), batch_tokens=300)
        with runs.prepared_as("translate", tmp_path / "pairs.tsv", tmp_path / str(dropout), config) as (prepared, _):
            drawn = prepared.output.batches(prepared, config)
            handle = drawn.epoch(0)[0]
            batches[dropout] = drawn.batch(handle)
            target = prepared.output.tokeniser
            texts = target.decode(batches[dropout][1].tolist())
            assert texts == target.decode([prepared.corpus[row][1].tolist() for row in handle.rows.tolist()])
    assert batches[0.5][1].shape[1] > batches[0.0][1].shape[1]


def test_bpe_dropout_stays_when_a_run_goes_on(tmp_path):
    tokeniser = train_tokeniser(["die katze sass", "die katze lief"] * 5, TokeniserConfig(vocab_size=400))
    config = TranslateConfig(model=RNNSearchConfig(8, 8), tokeniser=TokeniserConfig(vocab_size=400, dropout=0.9))
    model = config.model.build(tokeniser.words, tokeniser.words)
    earlier = runs.translator(model, tokeniser, tokeniser, config=TranslateConfig(model=config.model))
    saved = runs.saved(earlier, tmp_path / "run")
    with runs.prepared_as("translate", make_pairs(20), tmp_path / "data", config, start=saved) as (prepared, _):
        source = prepared.input.tokeniser
    assert source.same_as(tokeniser)
    text = "die katze sass die katze lief"
    assert len(source.encode([text], dropout=True)[0]) > len(source.encode([text])[0])


def test_pairs_with_unknown_words_are_not_called_known(tmp_path):
    from sightline.data.store import write_corpus
    from sightline.tasks.prepare import overlap_with_training

    words = train_tokeniser(["hello bye"], TokeniserConfig(method="words", vocab_size=50, min_frequency=1))
    pairs = [("hello bye", "bye hello"), ("hello new bye", "bye")]
    ids = [(words.encode([a])[0], words.encode([b])[0]) for a, b in pairs]
    write_corpus(tmp_path / "data" / "train", iter(ids))
    found = overlap_with_training(tmp_path, words, words, [pairs[0], ("hello other bye", "bye")])
    assert (found.pairs, found.sources) == (1, 1)
    assert overlap_with_training(tmp_path / "moved", words, words, pairs) is None


def test_rows_left_out_of_an_evaluation_are_said(short):
    folder, _ = short
    (folder / "bad.tsv").write_text("source\ttarget\n" + "abc\tcba\n" * 300 + "abc\t\n")
    done = run("evaluate", "run", "--data", "bad.tsv", "--beam", "1", "--json", cwd=folder)
    assert json.loads(done.stdout)["pairs"] == 300
    assert "1 rows left out: empty side 1" in done.stderr


def test_what_a_vocabulary_cannot_write():
    words = train_tokeniser(["the cat", "the dog"], TokeniserConfig(method="words", vocab_size=50, min_frequency=1))
    found = count_missing(words, iter(["the bird", "the bird sat"]))
    assert (found.unit, found.total, found.unwritable) == ("words", 5, 3)
    assert found.examples == (("bird", 2), ("sat", 1))
    pieces = train_tokeniser(["the cat", "the dog"] * 3, TokeniserConfig(vocab_size=400))
    found = count_missing(pieces, iter(["the äää ö"]))
    assert (found.unit, found.unwritable) == ("characters", 4)
    assert isinstance(pieces, Tokeniser)
    assert "all characters" in count_missing(pieces, iter(["the cat"])).lines()[0]


@pytest.mark.long
def test_a_small_file_is_learnt_with_the_defaults_of_training(tmp_path):
    """Two hundred pairs are few batches an epoch: limits, warm-up and validations must suit that."""
    write_tsv(tmp_path / "pairs.tsv", make_pairs(150))
    config = TranslateConfig(
        model=RNNSearchConfig(24, 32, dropout=0.0),
        tokeniser=TokeniserConfig(method="characters"),
        training=TrainingConfig(learning_rate=4e-3, patience=3),
        metric="exact",
    )
    translator = sightline.train(tmp_path / "pairs.tsv", tmp_path / "run", config=config, steps=250)
    found = translator.predict([source for source, _ in make_pairs(150)], beam=1)
    assert sum(one.text == target for one, (_, target) in zip(found, make_pairs(150), strict=True)) > 120
