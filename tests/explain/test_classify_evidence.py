"""What a classifier looked at: the right words, at the right characters, with numbers that say what to make of it."""

import json
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from invoke import run
from labelling import ATTENTIVE, CHINESE, DECIDE, ENCODER, HAN, NAMES, TEXT, made, sentence, trained, words_of
from runs import saved
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.explain.evidence import LabelSubject, NumberSubject, leave_one_out
from sightline.explain.explanation import Explanation
from sightline.models.text_to_labels import Texts
from sightline.text.words import place
from sightline.view.highlight import excerpt

PAIRED = replace(ATTENTIVE, pairs=True)


def texts_of(classifier, text):
    return classifier.input.collate([place(classifier.input.reader, text, classifier.input.limit).tokens])


def costs_and_gradients(classifier, text, label):
    """What hiding each token costs the label, and |gradient × input|; nothing for ends and beginning."""
    subject = LabelSubject(
        classifier.model, texts_of(classifier, text), classifier.output.labels.index(label), (), temperature=1.5
    )
    costs = np.nan_to_num(leave_one_out(subject, [0])[0])
    return costs, subject.gradient_times_input([0])[0].abs().numpy() * subject.hideable


def test_the_word_that_decides_is_the_one_that_is_shown():
    # Without a recurrent layer: that would carry what the word says to its neighbours, and attention could look there.
    classifier = trained(replace(ATTENTIVE, annotations="embedding"))
    draw = random.Random(5)
    removals = []
    for word, label in DECIDE.items():
        text = sentence(draw, word)
        found = classifier.explain(text)
        assert (found.output, found.highlights.label) == (label, label)
        before = found.highlights.probability
        assert before > 0.9
        costs, gradients = costs_and_gradients(classifier, text, label)
        names = found.records[0].columns.texts
        assert names[(found.records[0].matrix()[0] * gradients).argmax()] == word
        assert max(found.highlights.words, key=lambda one: one.weight).text == word
        removal = next(one for one in found.belief.findings if one.key == "removal")
        assert removal.value == pytest.approx(costs[names.index(word)], rel=1e-4)  # one of eleven is hidden
        assert f"changes from {before:.1%} to {before * math.exp(-removal.value):.1%}" in removal.sentence
        removals.append((removal.value, abs(removal.reference), names[costs.argmax()] == word))
    # Without the word the model may as well keep one of the two labels: the other one must go.
    cost, others, decides = max(removals)
    assert decides
    assert cost > 0.5 > others + 0.2


@pytest.mark.parametrize("config", [HAN, ENCODER], ids=["han", "encoder"])
def test_models_that_carry_words_along_still_need_the_one_that_decides(config):
    classifier = trained(config)
    draw = random.Random(5)
    told = []
    for word, label in DECIDE.items():
        text = sentence(draw, word)
        found = classifier.explain(text, measure=False)
        assert found.output == label
        costs, _ = costs_and_gradients(classifier, text, label)
        told.append((costs.max(), found.records[0].columns.texts[costs.argmax()] == word))
    assert max(told)[1]
    assert max(told)[0] > 0.5


CASES = [
    (ATTENTIVE, "one", TEXT),
    (HAN, "one", TEXT),
    (HAN, "several", CHINESE),
    (ENCODER, "one", TEXT),
    (replace(ENCODER, pooling="first", parts=2), "several", (TEXT, "the year. the film")),
    (PAIRED, "number", ("The film begins slowly", "slowly comes the film")),
]


def subject_of(classifier, texts):
    if classifier.output.labels.kind == "number":
        return NumberSubject(classifier.model, texts, ())
    several = classifier.output.labels.kind == "several"
    return LabelSubject(classifier.model, texts, 1, (), temperature=1.5, several=several)


def chance(classifier, texts):
    """The log-probability of label 1, from the scores; or the number."""
    with torch.no_grad():
        scores = classifier.model.scores(texts).double()
    if classifier.output.labels.kind == "number":
        return float(scores)
    if classifier.output.labels.kind == "several":
        return -math.log1p(math.exp(-float(scores[0, 1]) / 1.5))
    return float(torch.log_softmax(scores[0] / 1.5, dim=0)[1])


def with_vector(classifier, subject, texts, at, vector):
    """The chance when another vector stands in a place: it is given to a word that the text does not have."""
    spare = next(i for i in range(4, subject.embedding.num_embeddings) if i not in subject.tokens)
    words = texts.words.clone()
    words[0, at] = spare
    scale = math.sqrt(subject.embedding.embedding_dim)
    kept = subject.embedding.weight.data[spare].clone()
    subject.embedding.weight.data[spare] = vector / scale
    found = chance(classifier, Texts(words, texts.parts))
    subject.embedding.weight.data[spare] = kept
    return found


@pytest.mark.parametrize(("config", "kind", "text"), CASES)
def test_hiding_and_gradients_are_those_of_the_word_they_are_said_of(config, kind, text):
    classifier = made(config, kind=kind, pairs=isinstance(text, tuple), tokeniser=words_of([TEXT, CHINESE, "spare"]))
    classifier.model.double()  # so that small steps can be told from rounding
    texts = texts_of(classifier, text)
    subject = subject_of(classifier, texts)
    places = np.flatnonzero(subject.hideable)
    keep = torch.ones(len(places), subject.columns, dtype=torch.bool)
    keep[range(len(places)), places] = False
    found = subject.log_probs(keep)[:, 0].double()
    expected = [with_vector(classifier, subject, texts, at, subject.mean) for at in places]
    if kind == "number":
        expected = [-abs(one - chance(classifier, texts)) for one in expected]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    gradients = subject.gradient_times_input([0])[0].double().numpy()
    assert not gradients[texts.words[0].numpy() == 3].any() or config is not HAN
    step = 1e-4
    with torch.no_grad():
        vectors = subject.embedding(texts.words[0])
    slopes = [
        (
            with_vector(classifier, subject, texts, at, vectors[at] * (1 + step))
            - with_vector(classifier, subject, texts, at, vectors[at] * (1 - step))
        )
        / (2 * step)
        for at in places
    ]
    np.testing.assert_allclose(gradients[places], slopes, atol=1e-6, rtol=1e-4)


def test_weights_of_a_text_are_those_of_its_pooling():
    classifier = made()
    found = classifier.explain(TEXT, measure=False)
    texts = texts_of(classifier, TEXT)
    model = classifier.model.model
    with torch.no_grad():
        read = model.pooling(model.annotate(texts), mask=model.real(texts), need_weights=True)
    weights = read.weights[0, 0].numpy()
    np.testing.assert_allclose(found.records[0].matrix()[0], weights, rtol=1e-5)
    np.testing.assert_allclose([one.weight for one in found.highlights.words], weights[1:-1], rtol=1e-5)
    assert [one.text for one in found.highlights.words][:4] == ["The", "film", "begins", "slowly"]
    assert found.belief is None


def test_a_document_has_two_levels():
    classifier = made(HAN)
    found = classifier.explain(TEXT, measure=False)
    words, sentences, _ = classifier.model.model.weights(texts_of(classifier, TEXT))
    marks = found.highlights
    np.testing.assert_allclose([one.weight for one in marks.sentences], sentences[0], rtol=1e-5)
    assert [one.text for one in marks.sentences] == [
        "The film begins slowly.",
        "Then comes the finest scene of the year!",
        "Wonderful, unforgettable.",
    ]
    for number in range(3):
        own = [one for one in marks.words if one.sentence == number]
        assert sum(one.in_sentence for one in own) == pytest.approx(1, abs=1e-5)
        for one in own:
            assert one.weight == pytest.approx(one.in_sentence * marks.sentences[number].weight, rel=1e-4)
            assert marks.sentences[number].start <= one.start < one.end <= marks.sentences[number].end
    assert sum(one.weight for one in marks.words) == pytest.approx(1, abs=1e-5)
    assert marks.words[0].in_sentence == pytest.approx(float(words[0, 0]), rel=1e-5)
    rows = found.of("model.words")[0].matrix()
    assert rows.shape[0] == 3
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_an_encoder_without_pooling_attention_shows_its_last_layer(pooling):
    classifier = made(replace(ENCODER, pooling=pooling))
    found = classifier.explain(TEXT, measure=False)
    with capture(classifier.model) as trace, torch.no_grad():
        classifier.model.scores(texts_of(classifier, TEXT))
    last = trace["model.layers.1.attention"].weights[0].mean(dim=0).numpy()
    expected = last[0] if pooling == "first" else last.mean(axis=0)
    np.testing.assert_allclose(found.records[0].matrix()[0], expected, rtol=1e-5)
    layers = [trace[f"model.layers.{i}.attention"].weights[0].mean(dim=0).double().numpy() for i in (0, 1)]
    mixed = [0.5 * one + 0.5 * np.eye(len(one)) for one in layers]
    rolled = mixed[1] @ mixed[0]
    through = rolled[0] if pooling == "first" else rolled.mean(axis=0)
    np.testing.assert_allclose(found.of("rollout")[0].matrix()[0], through, rtol=1e-4)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("words", TEXT),
        ("words", CHINESE),
        ("words", "Quite unknown…  words\n\nand  blanks "),
        ("bpe", TEXT),
        ("bpe", CHINESE),
        ("bpe", " 👩‍👧 strange €uro signs, unforgettable"),
        ("unigram", TEXT),
    ],
)
@pytest.mark.parametrize("config", [ATTENTIVE, HAN])
def test_spans_are_characters_of_the_text(method, text, config):
    classifier = made(config, tokeniser=words_of([TEXT, CHINESE], method, 420 if method != "words" else 300))
    found = classifier.explain(text, measure=False).highlights
    assert all(text[one.start : one.end] == one.text and one.text.strip() for one in found.words)
    ends = [0, *(one.end for one in found.words)]
    assert all(one.start >= end for one, end in zip(found.words, ends, strict=False))  # in order, none twice
    left = "".join(text[a:b] for a, b in zip(ends, [*(one.start for one in found.words), len(text)], strict=True))
    assert not left.strip()
    if "unforgettable" in text:
        assert "unforgettable" in [one.text for one in found.words]
    if text == CHINESE and method == "words":
        assert [one.text for one in found.words] == list(CHINESE)


def test_a_text_without_its_middle():
    classifier = made(ENCODER, max_length=10)
    found = classifier.explain(TEXT, measure=False)
    assert [one.text for one in found.highlights.words] == [
        "The",
        "film",
        "year",
        "!",
        "Wonderful",
        ",",
        "unforgettable",
        ".",
    ]
    assert "10 in the middle were left out" in found.notes[0]


def test_pairs_say_which_text():
    classifier = made(PAIRED, pairs=True)
    found = classifier.explain((TEXT, "the film"), measure=False)
    marks = found.highlights
    assert [(one.text, one.part) for one in marks.words[-3:]] == [(".", 0), ("the", 1), ("film", 1)]
    sides = [sum(one.weight for one in marks.words if one.part == part) for part in (0, 1)]
    assert 0.3 < sides[0] < 0.5 > sides[1] > 0.05  # half each, less what is on start and ends
    assert found.input == f"{TEXT}\tthe film"
    with pytest.raises(UserError, match="expected a pair"):
        classifier.explain(TEXT)


def test_several_labels_and_numbers():
    several = made(kind="several")
    chances = several.predict([TEXT])[0].probabilities
    found = several.explain(TEXT, measure=False)
    assert found.highlights.label == max(chances, key=chances.get)
    asked = several.explain(TEXT, "fair")
    assert (asked.highlights.label, asked.highlights.probability) == ("fair", chances["fair"])
    assert f"the label's probability changes from {chances['fair']:.1%}" in asked.belief.findings[-1].sentence
    with pytest.raises(UserError, match="has no label 'odd'; it has 'bad', 'fair', 'good'"):
        several.explain(TEXT, "odd")
    number = made(kind="number")
    told = number.explain(TEXT)
    assert (told.output, told.highlights.probability) == (f"{number.predict([TEXT])[0].label:.6g}", None)
    assert "changes by" in told.belief.findings[-1].sentence
    with pytest.raises(UserError, match="gives a number"):
        number.explain(TEXT, "good")


@pytest.mark.parametrize("config", [ATTENTIVE, HAN])
def test_an_empty_text_is_explained(config, tmp_path):
    found = made(config).explain("  ")
    assert found.highlights.words == ()
    assert "no word" in found.notes[-1]
    found.save(tmp_path / "page.html")
    with pytest.raises(UserError, match="no words"):
        found.save(tmp_path / "map.svg")


@pytest.mark.slow
@pytest.mark.parametrize(("config", "sentences"), [(ATTENTIVE, 300), (HAN, 2_100)])
def test_a_long_document(config, sentences, tmp_path):
    draw = random.Random(0)
    known = TEXT.replace(".", " .").replace("!", " !").replace(",", "").split()
    text = " ".join(" ".join(draw.choices(known[:10], k=24)) + "." for _ in range(sentences))
    classifier = made(config)
    found = classifier.explain(text)
    marks = found.highlights
    assert len(text.split()) == 24 * sentences <= marks.read
    assert len(marks.words) == 5_000
    assert "too many to measure" in found.notes[-1]
    record = found.records[0]
    weights = np.sort(np.delete(record.matrix()[0], record.columns.special))[-5_000:]
    np.testing.assert_allclose(sorted(one.weight for one in marks.words), weights, rtol=1e-4)
    some = excerpt(marks, 700, 50)
    assert sum(len(one.drawn()) for one in some.passages) <= 700
    best = max(marks.sentences or marks.words, key=lambda one: one.weight)
    assert any(best.text == one.text or best in one.words for one in some.passages)
    picture = found.save(tmp_path / "map.svg").read_text()
    assert f"the text has {marks.read:,} words" in picture
    assert found.save(tmp_path / "page.html").stat().st_size < 3_000_000


def test_as_plain_data_and_back():
    for classifier, text in [(made(HAN), CHINESE), (made(PAIRED, pairs=True), (TEXT, "a film"))]:
        found = classifier.explain(text)
        data = json.loads(json.dumps(found.to_json()))
        assert Explanation.from_json(data).to_json() == found.to_json()
        first = data["highlights"]["words"][0]
        assert {"start", "end", "text", "weight"} <= set(first)
        assert set(data["highlights"]["probabilities"]) == set(NAMES)
        assert [one["key"] for one in data["belief"]["findings"]][-3:] == ["gradient", "removal", "uniform"]


def test_the_command(tmp_path):
    classifier = made(HAN)
    saved(classifier, tmp_path / "han")
    done = run("view", "han", "--text", TEXT, "--out", "map.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = classifier.explain(TEXT)
    chance = expected.highlights.probability
    assert f"→  {expected.output} ({chance:.1%})" in done.stdout
    assert expected.belief.findings[0].sentence in done.stdout
    data = json.loads((tmp_path / "map.json").read_text())
    assert data["highlights"]["words"][3]["text"] == "slowly"
    assert data["highlights"]["sentences"][0]["text"] == "The film begins slowly."
    done = run("view", "han", "--text", CHINESE, "--quick", "--out", "map.svg", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    picture = (tmp_path / "map.svg").read_text()
    assert "word, in its sentence: 0" in picture
    assert f"{classifier.predict([CHINESE])[0].probability:.1%}" in picture
    for character in "房间早餐":
        assert f">{character}<" in picture
    for options, sentence_of in [
        (["--text2", "b"], "reads one text"),
        (["--shift", "1"], "--shift is for runs that write"),
        (["--output", "odd"], "has no label 'odd'"),
    ]:
        done = run("view", "han", "--text", "a", *options, "--out", "x.json", cwd=tmp_path)
        assert (done.returncode, sentence_of in done.stderr) == (2, True), done.stderr
    done = run("view", "han", "--text", TEXT, "--out", "x.gif", cwd=tmp_path)
    assert (done.returncode, "a label is one step" in done.stderr) == (2, True), done.stderr


def test_the_command_with_pairs(tmp_path):
    saved(made(PAIRED, pairs=True), tmp_path / "pairs")
    for given in (["--text", TEXT, "--text2", "the film"], ["--text", f"{TEXT}\tthe film"]):
        done = run("view", "pairs", *given, "--quick", "--out", "map.json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads((tmp_path / "map.json").read_text())["highlights"]["texts"] == [TEXT, "the film"]
    done = run("view", "pairs", "--text", "a", "--out", "x.json", cwd=tmp_path)
    assert (done.returncode, "give the second with --text2" in done.stderr) == (2, True), done.stderr
    done = run("view", "pairs", "--text", "a", "b", "--text2", "c", "--out", "x.html", cwd=tmp_path)
    assert (done.returncode, "one --text2 for each --text" in done.stderr) == (2, True), done.stderr
