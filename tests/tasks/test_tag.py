"""A label for each word: what is read, what is learnt, how long sentences and unknown labels are told."""

import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import sightline
from classify_samples import bert
from invoke import run
from runs import read_as, trained_on
from sightline.errors import UserError
from sightline.inputs.words import WordsInput, cut_words
from sightline.interop.pretrained import load_pretrained
from sightline.models.attentive import AttentiveConfig
from sightline.models.encoder import EncoderConfig
from sightline.tasks.configs.tag import TagConfig
from sightline.tasks.task import Example
from sightline.text.encoding import TextEncoder, owners, windows
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training.loop import TrainingConfig

pytestmark = pytest.mark.unchecked_shapes

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn", "op", "qr", "st"]
ENCODER = EncoderConfig(size=32, heads=2, feed_forward=64, layers=1, dropout=0.0, positions="rotary")
EMBEDDINGS = AttentiveConfig(
    annotations="embedding", embedding_size=32, size=32, dropout=0.0, word_dropout=0.0, init_std=1.0
)


def config(steps=100, model=ENCODER, rate=0.02, **options):
    training = TrainingConfig(learning_rate=rate, warmup=50, steps=steps, validate_every=steps, averaged=1)
    words = TokeniserConfig("words", vocab_size=60, min_frequency=1)
    return TagConfig(model=model, tokeniser=words, training=training, batch_rows=64, **options)


def two_before(count, seed=0):
    """The label of a word is said by the word two places before it: the word itself says nothing."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        words = draw.choices(WORDS, k=draw.randint(3, 9))
        before = (None, None, *words)
        tags = ["O" if word is None else "X" if word in WORDS[:5] else "Y" for word in before[: len(words)]]
        found.append(Example(tuple(words), tuple(tags)))
    return found


def write(path, sentences):
    parts = ("".join(f"{word}\t{tag}\n" for word, tag in zip(*one, strict=True)) for one in sentences)
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagged")
    data = write(folder / "train.conll", two_before(600))
    return folder, sightline.train(data, folder / "run", task="tag", config=config())


def test_a_label_that_depends_on_the_word_two_places_away(trained):
    _, tagger = trained
    found = tagger.evaluate(two_before(100, seed=9))
    assert found.values["accuracy"] >= 95
    assert {one.name: one.support for one in found.extra["table"]}["O"] == 200


def test_a_model_that_sees_each_word_alone_fails_at_it(tmp_path):
    data = write(tmp_path / "train.conll", two_before(200))
    alone, _ = trained_on("tag", data, tmp_path / "run", config(60, EMBEDDINGS))
    assert alone.evaluate(two_before(100, seed=9)).values["accuracy"] < 60


def test_a_run_folder_is_complete_and_loads_as_it_was(trained):
    folder, tagger = trained
    names = {path.name for path in (folder / "run").iterdir()}
    assert {"config.json", "labels.json", "tokenizer.json", "model.safetensors", "card.md", "checksums.json"} <= names
    loaded = sightline.load(folder / "run")
    given = [["ab", "cd", "ef", "unknown"], "st qr op ab", [], ["ab"]]
    for one, other, words in zip(tagger.predict(given), loaded.predict(given), given, strict=True):
        assert one.tags == other.tags
        assert len(one.tags) == len(words.split() if isinstance(words, str) else words)
        assert one.probabilities == pytest.approx(other.probabilities)
    assert loaded.predict(["ab st cd ef"])[0].tags == ("O", "O", "X", "Y")
    assert "| O | 100.0 |" in (folder / "run" / "card.md").read_text()
    assert "labels.json" in json.loads((folder / "run" / "checksums.json").read_text())


def test_company_and_padding_change_nothing(trained):
    _, tagger = trained
    sentences = [one.x for one in two_before(20, seed=3)]
    together = tagger.raw(sentences)
    for words, rows in zip(sentences, together, strict=True):
        np.testing.assert_allclose(tagger.raw([words])[0], rows, atol=1e-5)


def test_going_on_ends_like_not_stopping(tmp_path):
    data = write(tmp_path / "train.conll", two_before(60))
    plan = config(6)
    plan = replace(plan, training=replace(plan.training, validate_every=3, cooldown=0.0))
    whole, _ = trained_on("tag", data, tmp_path / "whole", plan)

    def stop(progress, scores):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained_on("tag", data, tmp_path / "parts", plan, on_scores=stop)
    parts, _ = trained_on("tag", None, tmp_path / "parts", plan)
    for name, tensor in whole.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], tensor)


def test_words_keep_their_labels_under_subwords(tmp_path):
    text = ["lower newest widest"] * 20
    reader = TextEncoder(train_tokeniser(text, TokeniserConfig(vocab_size=400)))
    words = ["lower", "xyzzy", "newest", "低い", "​"]
    ((cut,),) = cut_words(reader, [words], 100, 0)
    assert len(cut.places) == len(words)
    ends = [*cut.places[1:], len(cut.tokens) - 1]
    for word, start, end in zip(words, cut.places, ends, strict=True):
        assert cut.tokens[start:end] == reader.tokeniser.encode([word])[0]
    assert max(end - start for start, end in zip(cut.places, ends, strict=True)) > 1, "some word has several pieces"


def test_long_sentences_are_read_in_stretches_and_that_is_said(trained, tmp_path):
    _, tagger = trained
    words = tuple(random.Random(0).choices(WORDS, k=400))
    right = ["O", "O", *("X" if word in WORDS[:5] else "Y" for word in words[:-2])]
    short = replace(tagger, input=WordsInput(replace(tagger.config, max_length=11), tagger.input.reader))
    assert [len(parts) > 1 for parts in short.encode([words, ("ab", "cd")])] == [True, False]
    said = short.predict([words])[0].tags
    # The model knows sentences of up to nine words. Stretches overlap, so what a word needs stands in one of them.
    assert np.mean([a == b for a, b in zip(said, right, strict=True)]) >= 0.95
    data = write(tmp_path / "train.conll", [*two_before(60), Example(words, ("X", "Y") * 200)])
    lines = []
    trained_on(
        "tag", data, tmp_path / "run", config(1, max_length=20, valid_share=0.05),
        on_report=lambda prepared, model: lines.extend(prepared.lines()),
    )  # fmt: skip
    assert any("1 sentences have more than 20 tokens (max_length): they are read in stretches" in one for one in lines)


def test_stretches_cover_everything_once():
    draw = random.Random(0)
    for _ in range(200):
        lengths = [draw.randint(1, 5) for _ in range(draw.randint(1, 60))]
        room = draw.randint(5, 30)
        found = windows(lengths, room, draw.randint(0, room // 2))
        assert all(sum(lengths[start:end]) <= room for start, end in found)
        owned = [place for start, end in owners(found) for place in range(start, end)]
        assert owned == list(range(len(lengths)))
        for (start, end), (first, behind) in zip(owners(found), found, strict=True):
            assert first <= start <= end <= behind


def test_spans_are_scored_where_labels_mark_them(tmp_path):
    sentences = [Example(("in", name, "we"), ("O", "B-LOC", "O")) for name in ("rome", "oslo", "kyiv", "bern")] * 10
    tagger = sightline.train(
        write(tmp_path / "train.bio", sentences), tmp_path / "run", task="tag", config=config(20, EMBEDDINGS)
    )
    found = tagger.evaluate(sentences)
    assert found.values == {"span_f1": 100.0, "accuracy": 100.0}
    assert [one.name for one in found.extra["table"]] == ["LOC"]
    assert "## Spans" in (tmp_path / "run" / "card.md").read_text()
    unseen = tagger.evaluate([Example(("in", "rome"), ("O", "B-PER"))])
    assert unseen.extra["unseen"] == {"B-PER": 1}
    assert unseen.values["span_f1"] == 0
    others = tagger.evaluate([Example(("in", "rome"), ("O", "NOUN"))])
    assert set(others.values) == {"accuracy", "macro_f1"}, "a label that marks no span: words are counted"
    with pytest.raises(UserError, match="metric is macro_f1; of these labels there is span_f1 and accuracy"):
        trained_on("tag", tmp_path / "train.bio", tmp_path / "no", config(metric="macro_f1"))
    assert not (tmp_path / "no").exists()


def test_it_begins_with_a_hugging_face_folder(tmp_path):
    folder = bert(tmp_path / "bert")
    data = write(tmp_path / "train.conll", two_before(20))
    before = {}
    tagger = sightline.train(
        data, tmp_path / "run", task="tag", start=folder, steps=1,
        on_report=lambda prepared, model: before.update({k: v.clone() for k, v in model.model.state_dict().items()}),
    )  # fmt: skip
    for name, tensor in load_pretrained(folder).tensors.items():
        torch.testing.assert_close(before[name], tensor, rtol=0, atol=0)
    assert tagger.config.max_length == 64
    loaded = sightline.load(tmp_path / "run")
    long = ["ab", "[SEP]", "aab"] * 60
    assert loaded.predict([long])[0].tags == tagger.predict([long])[0].tags


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.conll", "-DOCSTART-\tO\n\n# a remark\nin\tO\nRome\tB-LOC\n\n\nhi\tO\n"),
        ("b.conll", "in IN O\nRome NNP B-LOC\n\nhi UH O\n"),
        ("c.tsv", "in\tO\nRome\tB-LOC\n\nhi\tO\n\n"),
        ("d.tsv", "words\ttags\nin Rome\tO B-LOC\nhi\tO\n"),
        ("e.jsonl", '{"tokens": ["in", "Rome"], "tags": ["O", "B-LOC"]}\n{"tokens": "hi", "tags": "O"}\n'),
        ("f.csv", 'id,words,tags\n1,in Rome,O B-LOC\n2,hi,O\n'),
    ],
)  # fmt: skip
def test_every_form_is_read(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    rows, report = read_as("tag", tmp_path / name)
    assert not report.bad
    assert rows == [Example(("in", "Rome"), ("O", "B-LOC")), Example(("hi",), ("O",))]


def test_bad_sentences_are_left_out_whole_and_named(tmp_path):
    path = tmp_path / "a.conll"
    path.write_text("good\tO\nword\n\nfine\tX\n\nno\t\n", encoding="utf-8")
    rows, report = read_as("tag", path)
    assert rows == [Example(("fine",), ("X",))]
    assert [place.split(":")[1] for place in report.places] == ["2", "6"]
    assert report.left_out == {"missing label": 2}
    other = tmp_path / "b.jsonl"
    bad = '{"words": ["a", "b"], "tags": ["O"]}\n{"words": [], "tags": []}\n{"words": 3, "tags": "O"}\n'
    other.write_text(bad + '{"words": "a", "tags": "O"}\n')
    problems = [place.split(": ")[1] for place in read_as("tag", other)[1].places]
    assert problems == ["lengths differ", "no words", "bad words"]


def test_by_command(trained, tmp_path):
    folder, _ = trained
    held_out = write(tmp_path / "test.conll", two_before(30, seed=4))

    def said(*arguments, code=0):
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    assert json.loads(said("evaluate", folder / "run", "--data", held_out, "--json"))["accuracy"] >= 95
    write(tmp_path / "x.conll", [Example(("ab",), ("Z",))])
    output = said("evaluate", folder / "run", "--data", "x.conll", "--errors", "1")
    assert "labels that training did not have, on 1 of 1 words, counted as wrong: 'Z' (1)" in output
    output = said("predict", folder / "run", "--text", "ab st cd ef", "", "ab")
    assert output == "ab\tO\nst\tO\ncd\tX\nef\tY\n\n\nab\tO\n\n"
    rows = said("predict", folder / "run", "--input", held_out, "--format", "jsonl").splitlines()
    assert [tuple(json.loads(row)["words"]) for row in rows] == [one.x for one in two_before(30, seed=4)]
    assert "--prefix is no option of this run" in said(
        "predict", folder / "run", "--text", "a", "--prefix", "x", code=2
    )
    dry = said("train", "tag", "--data", held_out, "--out", "dry", "--dry-run", "--steps", "2")
    assert "words a second" in dry
    assert "sentences to train on" in dry
    assert "has no output for single words" in said(
        "train", "tag", "--data", held_out, "--out", "no", "--model", "han", code=2
    )
    wrong = said("train", "tag", "--data", held_out, "--out", "no", "--metric", "bleu", code=2)
    assert all(one in wrong for one in ("invalid choice 'bleu'", "'span_f1'", "'accuracy'", "'macro_f1'"))
    write(tmp_path / "one.conll", [Example(("a", "b"), ("O", "O"))] * 5)
    assert "all 10 words have the label 'O'" in said("train", "tag", "--data", "one.conll", "--out", "no", code=2)
    assert {path.name for path in tmp_path.iterdir()} == {"test.conll", "x.conll", "one.conll"}


def test_remarks_above_sentences_are_no_words(tmp_path):
    path = tmp_path / "remarks.conll"
    for between in ("\t", " "):
        path.write_text(f"# text = Anna lacht\nAnna{between}B-PER\nlacht{between}O\n\n# id 1 domain=en\n#{between}O\n")
        assert read_as("tag", path)[0] == [Example(("Anna", "lacht"), ("B-PER", "O")), Example(("#",), ("O",))]
