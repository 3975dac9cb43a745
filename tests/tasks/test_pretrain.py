"""Pre-training on plain text, and every task that begins with it: the same tensors, the same vocabulary."""

import gzip
import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import sightline
from invoke import run
from runs import config_from, read_as, trained_on
from sightline.data.checking import RowLimits
from sightline.errors import UserError
from sightline.models.encoder import EncoderConfig, translator_tensors
from sightline.tasks.configs.pretrain import PretrainConfig
from sightline.tasks.run import Run
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.folder import load_tensors
from sightline.training.loop import TrainingConfig
from sightline.vocabulary import MASK

pytestmark = [pytest.mark.unchecked_shapes, pytest.mark.slow]

WORDS = [a + b for a in "bdgk" for b in "aeiou"]
TINY = EncoderConfig(size=32, heads=2, feed_forward=64, layers=1, dropout=0.0, positions="rotary")


def config(steps=250, rate=0.02, **options):
    training = TrainingConfig(learning_rate=rate, warmup=50, steps=steps, validate_every=steps, averaged=1)
    words = TokeniserConfig("words", vocab_size=60, min_frequency=1)
    plan = PretrainConfig(model=TINY, tokeniser=words, training=training, valid_share=0.1, batch_rows=128, **options)
    return replace(plan, masking=replace(plan.masking, length=16))


def counted(count, seed=0):
    """Texts in which each word follows from the one before it: what is hidden can be known from its neighbours."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        start = draw.randrange(len(WORDS))
        found.append(" ".join(WORDS[(start + i) % len(WORDS)] for i in range(draw.randint(8, 20))))
    return found


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    data = write(folder / "plain.txt", counted(400))
    write(folder / "labelled.tsv", ["text\tlabel", *(f"{one}\t{len(one) % 2}" for one in counted(40, seed=5))])
    write(folder / "pairs.tsv", [f"{one}\t{one[::-1]}" for one in counted(40, seed=6)])
    write(folder / "words.conll", [f"{word}\t{word[0]}\n" for one in counted(20, seed=7) for word in one.split()])
    return folder, sightline.train(data, folder / "run", task="pretrain", config=config())


@pytest.mark.long
def test_it_learns_what_stands_behind_masks(trained):
    folder, reader = trained
    last = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()][-1]
    assert last["masked_accuracy"] > 85
    assert last["perplexity"] < 2
    found = reader.evaluate(write(folder / "other.txt", counted(300, seed=8)))
    assert found.values["masked_accuracy"] > 85
    text = " ".join(WORDS[:9])
    (found,) = sightline.load(folder / "run").predict([text.replace(WORDS[4], "<mask>")])
    assert found.text == text
    word, chance = found.masks[0][0]
    assert word == WORDS[4]
    assert 0.5 < chance <= 1
    assert reader.predict(["nothing hidden"])[0].masks == ()


def test_the_vocabulary_has_a_mask_that_no_text_can_spell(trained):
    folder, reader = trained
    tokeniser = sightline.load(folder / "run").input.reader.tokeniser
    assert tokeniser.has_mask
    assert MASK not in tokeniser.encode(["<mask> <s> ba"])[0]
    assert reader.input.reader.specials.mask == MASK
    assert json.loads((folder / "run" / "config.json").read_text())["specials"]["mask"] == MASK


def start_of(task, folder, name, changes=lambda config: config):
    """The model at step 0 of a run that begins with the pre-trained one."""
    found = {}
    plan = changes(config_from(task, folder / "run"))
    plan = replace(plan, training=replace(plan.training, steps=1, epochs=None, validate_every=1))
    trained_on(
        task, folder / name, folder / f"of-{task}", plan, start=folder / "run",
        on_report=lambda prepared, model: found.update({k: v.clone() for k, v in model.state_dict().items()}),
    )  # fmt: skip
    return found


def small(config):
    return replace(config, baselines=False)


@pytest.mark.parametrize(
    ("task", "name", "changes"),
    [("classify", "labelled.tsv", small), ("tag", "words.conll", lambda config: config)],
)
def test_every_tensor_of_the_encoder_is_the_source_s_at_step_0(trained, task, name, changes):
    folder, _ = trained
    source = load_tensors(folder / "run" / "model.safetensors")
    encoder = {one.removeprefix("encoder."): tensor for one, tensor in source.items() if one.startswith("encoder.")}
    begun = start_of(task, folder, name, changes)
    assert {one for one in begun if one.startswith("model.")} == {f"model.{one}" for one in encoder}
    assert len(encoder) > 10
    for one, tensor in encoder.items():
        torch.testing.assert_close(begun[f"model.{one}"], tensor, rtol=0, atol=0)
    assert (folder / f"of-{task}" / "tokenizer.json").read_text() == (folder / "run" / "tokenizer.json").read_text()


def test_the_translator_s_encoder_begins_with_it(trained):
    folder, reader = trained
    begun = start_of("translate", folder, "pairs.tsv", lambda plan: replace(plan, validated=4))
    source = translator_tensors(reader.model.encoder)
    ours = {one for one in begun if one.startswith(("encoder.", "encoder_norm.", "source_embedding."))}
    assert ours == set(source)
    for one, tensor in source.items():
        torch.testing.assert_close(begun[one], tensor, rtol=0, atol=0)
    torch.testing.assert_close(begun["target_embedding.weight"], source["source_embedding.weight"], rtol=0, atol=0)
    assert (folder / "of-translate" / "source.json").read_text() == (folder / "run" / "tokenizer.json").read_text()
    assert sightline.load(folder / "of-translate").predict(["ba be"], max_length=3)


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        (
            "translate",
            "model.size=64",
            "does not fit this model: the encoder's size is 32, the translator needs 64",
        ),
        ("translate", "model.activation=relu", "the encoder's activation is gelu, the translator needs relu"),
        ("translate", "tokeniser.vocab_size=50", r"run has a vocabulary of 2\d tokens \(words, 60 requested\)"),
        ("tag", "tokeniser.vocab_size=50", r"run has a vocabulary of 2\d tokens \(words, 60 requested\)"),
        ("tag", "model.feed_forward=16", r"does not fit this model: model\.layers\.0\S+ is .* there and .* here"),
        ("classify", "tokeniser.lower=true", r"run has a vocabulary of 2\d tokens"),
    ],
)
def test_another_vocabulary_or_shape_is_refused_by_name(trained, tmp_path, task, change, message):
    folder, _ = trained
    plan = sightline.config.override(config_from(task, folder / "run"), [change])
    name = {"translate": "pairs.tsv", "tag": "words.conll", "classify": "labelled.tsv"}[task]
    with pytest.raises(UserError, match=message):
        trained_on(task, folder / name, tmp_path / "run", plan, start=folder / "run")
    assert not (tmp_path / "run").exists()


def test_next_sentences_and_what_cannot_go_on_from_them(tmp_path):
    data = write(tmp_path / "plain.txt", counted(40))
    reader, outcome = trained_on("pretrain", data, tmp_path / "run", config(3, next_sentence=True))
    assert reader.model.follow is not None
    assert reader.model.encoder.config.parts == 2
    assert 0 <= outcome.scores["next_accuracy"] <= 100
    with pytest.raises(
        UserError, match=r"does not fit a Transformer that translates: .* parts=0 \(so no next_sentence\)"
    ):
        config_from("translate", tmp_path / "run")
    with pytest.raises(ValueError, match="set next_sentence=true instead"):
        replace(config(), masking=replace(config().masking, pairs=True))


def test_going_on_ends_like_not_stopping(tmp_path):
    data = write(tmp_path / "plain.txt", counted(60))
    plan = config(4)
    plan = replace(plan, training=replace(plan.training, validate_every=2, cooldown=0.0))
    whole, _ = trained_on("pretrain", data, tmp_path / "whole", plan)

    def stop(progress, scores):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained_on("pretrain", data, tmp_path / "parts", plan, on_scores=stop)
    parts, _ = trained_on("pretrain", None, tmp_path / "parts", plan)
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], tensor)


def texts_of(path, **options):
    return [one.x for one in read_as("pretrain", path, **options)[0]]


def test_every_form_of_text_is_read(tmp_path):
    write(tmp_path / "a.txt", ["one two", "", "  three  ", "four"])
    with gzip.open(tmp_path / "b.txt.gz", "wt") as file:
        file.write("one two\n\nthree\nfour\n")
    write(tmp_path / "c.tsv", ["text\tlabel", "one two\tx", "\ty", "three\tx", "four\ty"])
    write(tmp_path / "d.jsonl", [json.dumps({"review": text, "n": 1}) for text in ("one two", "three", "four")])
    for path in sorted(tmp_path.iterdir()):
        assert texts_of(path) == ["one two", "three", "four"], path
    together = texts_of(tmp_path / "a.txt", paragraphs=True)
    assert together == ["one two", "three four"]
    with pytest.raises(UserError, match=r"none of them is called 'text'; name the columns to use: --columns TEXT"):
        texts_of(write(tmp_path / "e.tsv", ["a\tb", "1\t2"]))
    assert texts_of(tmp_path / "e.tsv", columns=("b",)) == ["2"]
    with pytest.raises(UserError, match="found 1 texts; expected at least 3"):
        trained_on("pretrain", write(tmp_path / "f.txt", ["a " * 50]), tmp_path / "run", config())
    assert not (tmp_path / "run").exists()


def test_too_few_texts_name_the_lines_that_cannot_be_read(tmp_path):
    (tmp_path / "few.txt").write_bytes(b"one text\n\xff\xfe\nanother text\n")
    with pytest.raises(UserError, match=r"found 2 texts besides .*few.txt:2: bad UTF-8: found byte 0xff.*at least 3"):
        trained_on("pretrain", tmp_path / "few.txt", tmp_path / "run", config(), limits=RowLimits(1000, 0.5))
    with pytest.raises(UserError, match=r"1 of 3 rows are bad .*few.txt:2: bad UTF-8: found byte 0xff"):
        trained_on("pretrain", tmp_path / "few.txt", tmp_path / "run", config())
    assert not (tmp_path / "run").exists()


def test_by_command_down_to_lora(trained, tmp_path):
    folder, _ = trained

    def said(*arguments, code=0):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    text = " ".join(WORDS[:9])
    assert said("predict", folder / "run", "--text", text.replace(WORDS[4], "<mask>")) == text + "\n"
    write(tmp_path / "plain.txt", counted(300, seed=3))
    assert json.loads(said("evaluate", folder / "run", "--data", "plain.txt", "--json"))["masked_accuracy"] > 85
    dry = said("train", "pretrain", "--data", "plain.txt", "--out", "dry", "--dry-run", "--steps", "2", "--set",
               "model.size=16", "model.layers=1", "tokeniser.method=words", "tokeniser.min_frequency=1")  # fmt: skip
    assert "hidden words a second" in dry
    message = said("train", "pretrain", "--data", "plain.txt", "--out", "no", "--model", "attentive", code=2)
    assert "pre-training needs an encoder" in message
    said("train", "classify", "--data", folder / "labelled.tsv", "--out", "lora", "--from", folder / "run",
         "--steps", "3", "--no-baselines", "--set", "lora.rank=4", "training.learning_rate=0.01")  # fmt: skip
    before, after = (
        load_tensors(folder / "run" / "model.safetensors"),
        load_tensors(tmp_path / "lora/model.safetensors"),
    )
    names = [name.removeprefix("encoder.") for name in before if name.startswith("encoder.")]
    moved = {name for name in names if not torch.equal(before[f"encoder.{name}"], after[f"model.{name}"])}
    adapted = ("project_query.weight", "project_values.weight")
    assert moved == {
        name for name in names if (name.endswith(adapted) and "attention" in name) or name.startswith("pool")
    }
    assert json.loads((tmp_path / "lora" / "config.json").read_text())["config"]["lora"]["rank"] == 4
    unmerged = load_tensors(tmp_path / "lora" / "checkpoints" / "step-3" / "model.safetensors")
    assert any(".parametrizations." in name for name in unmerged)
    merged = Run.load(tmp_path / "lora").raw(["ba be"])
    again = Run.load(tmp_path / "lora" / "checkpoints" / "step-3").raw(["ba be"])
    np.testing.assert_allclose(merged, again, atol=1e-5)
