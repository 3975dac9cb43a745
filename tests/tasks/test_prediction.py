"""Predicting with a trained model: search options, ensembles, copied names and documents."""

import itertools
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import runs
import sightline
from predictions import CONFIG, LEXICON, WORDS, make_pairs, run, stranger, texts, texts_of, translator  # noqa: F401 - pytest finds the fixtures here
from sightline.decoding.options import SearchConfig
from sightline.errors import UserError
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.transformer import TransformerConfig
from sightline.outputs import unknown
from sightline.outputs.searched import Prediction, Searched
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.ensemble import ensemble
from sightline.tasks.run import batches_by_size
from sightline.text.copying import words_of
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.vocabulary import END, PADDING, START, UNKNOWN

pytestmark = pytest.mark.slow


def another(translator, seed, config=CONFIG.model):
    """An untrained model with the same tokenisers."""
    torch.manual_seed(seed)
    model = config.build(translator.input.tokeniser.words, translator.output.tokeniser.words).eval()
    return runs.translator(model, translator.input.tokeniser, translator.output.tokeniser, f"model {seed}")


# Names


def test_names_never_seen_are_copied_from_where_they_stand(translator):
    pairs = make_pairs(100, seed=9)
    found = texts_of(translator.predict([source for source, _ in pairs]))
    kept = texts_of(translator.predict([source for source, _ in pairs], keep_unknown=True))
    known = set(LEXICON.values())
    right = 0
    for (_, target), plain, copied in zip(pairs, kept, found, strict=True):
        hidden = " ".join(word if word in known else "<unk>" for word in target.split())
        if plain == hidden:  # the model wrote the right words, and knew where a name goes
            right += copied == target
    shaped = sum("<unk>" in text for text in kept)
    assert shaped > 40
    assert right >= 80


MODELS = {
    "rnnsearch": RNNSearchConfig(16, 16, dropout=0.0),
    "luong": LuongConfig(16, 16, 16, layers=2, dropout=0.0),
    "grammar": GrammarConfig(16, 16, 16, layers=2, dropout=0.0),
    "transformer": TransformerConfig(16, 2, 32, 2, 3, dropout=0.0, tied="none"),
}


@pytest.mark.parametrize("room", [1, 1 << 20], ids=["word by word", "at once"])
@pytest.mark.parametrize("kind", MODELS)
def test_the_most_attended_word_is_the_one_that_attention_shows(translator, monkeypatch, kind, room):
    """Against the mean of the plain records, one text at a time; in a batch, and in stretches."""
    monkeypatch.setattr(unknown, "ROOM", room)
    other = another(translator, 3, MODELS[kind])
    for parameter in other.model.parameters():
        parameter.data *= 3  # so that layers and heads look at different words
    sources = ["ka Zog lo mi Tat", "Bob ra"]
    outputs = ["cat Zog sun old red", "Bob Bob"]
    expected = []
    for source, output in zip(sources, outputs, strict=True):
        explained = other.explain(source, output)
        records = [record.matrix() for name in explained.stacks[0].names for record in explained.of(name)]
        mean = np.mean(records, axis=0)[: len(output.split()), : len(source.split())]  # without the ends
        expected.append([source.split()[place] for place in mean.argmax(axis=1)])
    tokens = other.input.tokeniser.encode(sources)
    batch = torch.tensor([[*row, END, *[PADDING] * (5 - len(row))] for row in tokens])
    words = [words_of(other.input.tokeniser, source) for source in sources]
    with torch.no_grad():
        found = unknown.attended_words(
            other.model, other.output.tokeniser.encode(outputs), other.model.begin(batch), words
        )
    assert [[word.text for word in some][: len(row)] for some, row in zip(found, expected, strict=True)] == expected


def test_the_end_and_blanks_are_never_copied(translator, monkeypatch):
    source = "ka  Zog"
    words = words_of(translator.input.tokeniser, source)
    assert [word and word.text for word in words] == ["ka", None, "Zog"]
    weights = torch.tensor([[[[0.1, 0.3, 0.2, 0.4]]]])
    monkeypatch.setattr(unknown, "look_back", lambda *given: ([SimpleNamespace(weights=weights)], None))
    ((found,),) = unknown.attended_words(translator.model, [[UNKNOWN]], None, [words])
    assert found == unknown.Word("Zog", True)


@pytest.mark.parametrize("text", ["Zog said: “Bob (or Tat) is 3.5 m tall.”", "我叫王。", "He is 王明, not 李.", "Zog"])
def test_words_copied_to_their_own_places_give_the_text(text):
    tokeniser = train_tokeniser(["nothing of it"], TokeniserConfig(method="words", vocab_size=10, min_frequency=1))
    (tokens,) = tokeniser.encode([text])
    assert set(tokens) == {UNKNOWN}
    assert unknown.written_out(tokeniser, tokens, dict(enumerate(words_of(tokeniser, text)))) == text


def test_words_copied_between_others_get_their_spaces():
    tokeniser = train_tokeniser(
        ["My name is not <unk>!"], TokeniserConfig(method="words", vocab_size=30, min_frequency=1)
    )
    (tokens,) = tokeniser.encode(["My name is X, not <unk>!"])
    assert tokens.count(UNKNOWN) == 2
    place = tokens.index(UNKNOWN)
    (chinese, *_) = words_of(tokeniser, "王")
    found = unknown.written_out(tokeniser, tokens, {place: chinese, place + 1: unknown.Word(",", False)})
    assert found == "My name is 王, not <unk>!"
    assert (
        unknown.written_out(tokeniser, tokens, {place + 1: unknown.Word(";", False)}) == "My name is <unk>; not <unk>!"
    )
    assert unknown.written_out(tokeniser, [UNKNOWN, 99, END], {0: unknown.Word("Zog", True)}) == "Zog"


def test_a_model_without_attention_keeps_unknown_words(translator):
    looking, blind = another(translator, 1), another(translator, 1, Seq2SeqConfig(16, 16, dropout=0.0))
    for one in (looking, blind):
        one.model.output.bias.data[UNKNOWN] = 50
    (found,) = looking.predict(["Zog"], max_length=2)
    assert found.text == "Zog Zog"
    (found,) = blind.predict(["Zog"], max_length=2)
    assert found.text == "<unk> <unk>"
    (found,) = ensemble([blind, looking]).predict(["Zog"], max_length=2)
    assert found.text == "Zog Zog", "the first that has attention decides"


# Search


@pytest.mark.parametrize("options", [{}, {"length_penalty": 0.0}, {"beam": 8, "no_repeat": 1}], ids=str)
def test_the_best_few_are_ranked_and_begin_with_the_best(translator, texts, options):
    found = [one.all for one in translator.predict(texts, best=4, **options)]
    firsts = translator.predict(texts, **options)
    for some, first in zip(found, firsts, strict=True):
        assert len(some) == 4
        assert (some[0].text, some[0].tokens) == (first.text, first.tokens)
        # Sentences leave at other times, and how many are left decides how sums are rounded (float32).
        assert some[0][1:3] == pytest.approx(first[1:3], abs=1e-6)
        assert [one.score for one in some] == sorted((one.score for one in some), reverse=True)
    kept = [one.all for one in translator.predict(texts, best=4, keep_unknown=True, **options)]
    assert all(len({one.text for one in some}) == 4 for some in kept)


def test_lengths_and_repeats(translator, texts):
    longest = translator.predict(texts, max_length=2, keep_unknown=True)
    assert max(len(one.text.split()) for one in longest) == 2
    lengthy = translator.predict(texts, min_length=9, no_repeat=2, keep_unknown=True)
    for one in lengthy:
        words = one.text.split()
        assert len(words) >= 9
        pairs = list(itertools.pairwise(words))
        assert len(set(pairs)) == len(pairs)


def test_prefixes_are_obeyed(translator):
    texts = ["ka lo", "mi", "Bob tu", ""]
    prefixes = ["dog", "", "Zog cat Bob", "cat"]
    for options in ({}, {"beam": 1}, {"sample": True}, {"max_length": 1}):
        found = texts_of(translator.predict(texts, prefixes=prefixes, **options))
        assert found[0].split()[0] == "dog"
        assert found[2].startswith("Zog cat Bob"), "a word that the vocabulary lacks is written as it was given"
        assert found[3] == ""
    assert translator.predict(texts, prefixes=[""] * 4) == translator.predict(texts)


def test_samples(translator, texts):
    options = {"sample": True, "temperature": 2.0}
    drawn = translator.predict(texts, seed=1, **options)
    assert translator.predict(texts, seed=1, **options) == drawn
    assert translator.predict(texts, seed=2, **options) != drawn
    assert texts_of(translator.predict(texts, sample=True, top=1)) == texts_of(translator.predict(texts, beam=1))
    assert texts_of(translator.predict(texts, sample=True, mass=1e-6)) == texts_of(translator.predict(texts, beam=1))
    several = [one.all for one in translator.predict(texts, best=6, **options)]
    assert all([one.score for one in some] == sorted((one.score for one in some), reverse=True) for some in several)
    assert any(len({one.text for one in some}) > 1 for some in several), "each draws for itself"


def test_order_batches_and_empty_texts(translator, texts):
    given = ["", *texts, "", texts[0]]
    whole = translator.predict(given)
    assert (whole[0], whole[-2]) == (Prediction("", 0.0, 0.0), Prediction("", 0.0, 0.0))
    assert texts_of(translator.predict(given, batch_tokens=1)) == texts_of(whole), "one at a time"
    assert texts_of(translator.predict(given[::-1])) == texts_of(whole)[::-1]
    assert translator.predict([]) == []
    assert not translator.model.training


def test_batches_keep_to_their_size(translator):
    draw = random.Random(0)
    lengths = [draw.choice([1, 3, 900]) for _ in range(200)]
    options = translator.output.options({"beam": 5, "batch_tokens": 4096})
    costs = [translator.output.cost(length, options) for length in lengths]
    batches = list(batches_by_size(costs, translator.output.budget(translator.input, options)))
    assert sorted(itertools.chain(*batches)) == list(range(200))
    for rows in batches:
        assert len(rows) == 1 or 5 * len(rows) * max(lengths[i] for i in rows) <= 4096


@pytest.mark.parametrize("kind", ["rnnsearch", "transformer"])
def test_a_source_longer_than_any_ever_seen(translator, kind):
    other = another(translator, 0, MODELS[kind])
    found = other.predict(["ka", "lo Zog " * 1500, "mi"], max_length=3)
    assert len(found) == 3
    assert found[0].text == other.predict(["ka"], max_length=3)[0].text


WRONG = {
    "beam": ({"beam": 0}, "beam is 0; it must be at least 1"),
    "best": ({"best": 9}, "best is 9 and beam 5"),
    "lengths": ({"min_length": 5, "max_length": 4}, "min_length is 5 and max_length 4"),
    "negative": ({"min_length": -1}, "min_length is -1"),
    "no length": ({"max_length": 0}, "max_length is 0"),
    "no_repeat": ({"no_repeat": -1}, "no_repeat is -1"),
    "penalty": ({"length_penalty": float("nan")}, "length_penalty is nan"),
    "not sampling": ({"temperature": 0.5}, "ask for that with sample"),
    "temperature": ({"sample": True, "temperature": 0.0}, "temperature is 0"),
    "no temperature": ({"sample": True, "temperature": float("inf")}, "temperature is inf"),
    "seed": ({"seed": -1}, "seed is -1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_options(case):
    options, message = WRONG[case]
    with pytest.raises(UserError, match=message):
        SearchConfig(**options)


def test_wrong_texts(translator):
    assert translator.predict("ka lo") == translator.predict(["ka lo"])[0]
    for wrong in (3, ["ka", "lo"], None):
        with pytest.raises(UserError, match="expected one text, such as"):
            translator.predict([wrong])
        with pytest.raises(UserError, match="expected one text, such as"):
            translator.explain(wrong)
    with pytest.raises(UserError, match="prefixes has 1 entries; expected 2"):
        translator.predict(["ka", "lo"], prefixes=["a"])
    with pytest.raises(UserError, match="batch_tokens is 0"):
        translator.predict(["ka"], batch_tokens=0)
    with pytest.raises(UserError, match="no output has at least 200 tokens"):
        translator.predict(["ka"], min_length=200, no_repeat=1)
    with pytest.raises(UserError, match=r"beams is no option of this run; there is .*beam"):
        translator.predict(["ka"], beams=3)


# Ensembles


def test_a_model_twice_is_the_model(translator, texts):
    twice, once = ensemble([translator, translator]).predict(texts), translator.predict(texts)
    assert texts_of(twice) == texts_of(once)
    assert [one.log_prob for one in twice] == pytest.approx([one.log_prob for one in once], abs=1e-5)


def test_two_models_average_their_probabilities(translator, texts):
    """Greedily, by hand: one text and one step at a time."""
    other = another(translator, 5)
    other.model.output.weight.data *= 50  # as sure of itself as the trained one
    found = ensemble([translator, other]).predict(texts[:8], beam=1, max_length=6, keep_unknown=True)
    changed = 0
    for text, one in zip(texts[:8], found, strict=True):
        source = torch.tensor([[*translator.input.tokeniser.encode([text])[0], END]])
        written = [START]
        total = 0.0
        while written[-1] != END:
            with torch.no_grad():
                words = torch.tensor([written])
                logits = [model.logits(source, words)[0, -1].double() for model in (translator.model, other.model)]
            mean = sum(torch.softmax(some, dim=-1) for some in logits) / 2
            mean[[PADDING, START]] = 0
            written.append(END if len(written) > 6 else int(mean.argmax()))
            total += float(mean[written[-1]].log())
        assert one.text == translator.output.tokeniser.decode([written])[0]
        assert one.log_prob == pytest.approx(total, abs=1e-4)
        changed += one.text != translator.predict([text], beam=1, max_length=6, keep_unknown=True)[0].text
    assert changed, "the second model has a say"


def test_an_ensemble_reads_with_each_models_tokeniser(translator):
    """The other one's source vocabulary has the same words under other numbers."""
    shuffled = train_tokeniser(["tu so ra pe nu mi lo ka " * 3, "tu so ra tu"], WORDS)
    assert shuffled.encode(["ka"]) != translator.input.tokeniser.encode(["ka"])
    model = CONFIG.model.build(shuffled.words, translator.output.tokeniser.words).eval()
    weights = dict(translator.model.state_dict())
    table = torch.zeros_like(model.source_embedding.weight)
    for word in LEXICON:
        ((new,), (old,)) = shuffled.encode([word])[0], translator.input.tokeniser.encode([word])[0]
        table[new] = weights["source_embedding.weight"][old]
    table[:4] = weights["source_embedding.weight"][:4]
    model.load_state_dict({**weights, "source_embedding.weight": table})
    both = ensemble([translator, runs.translator(model, shuffled, translator.output.tokeniser)])
    texts = [source for source, _ in make_pairs(20, seed=3)]
    assert texts_of(both.predict(texts)) == texts_of(translator.predict(texts))


def test_models_with_different_vocabularies_are_refused(run, stranger):
    with pytest.raises(UserError) as raised:
        ensemble([sightline.load(run), sightline.load(stranger)])
    assert str(run) in str(raised.value)
    assert str(stranger) in str(raised.value)
    assert "same tokeniser" in str(raised.value)
    with pytest.raises(UserError, match="at least one model"):
        ensemble([])


# Documents


def by_dictionary(known, text):
    """A document whose sentences are looked up; those that are not known are repeated."""
    output = TranslationOutput(CONFIG)
    options = output.options({"split": True})
    divided = output.divided([text], options)
    (joined,) = divided.join([Searched([Prediction(known.get(one, one), -1.0, -0.5)]) for one in divided.items])
    return output.decide(text, joined, options)


@pytest.mark.parametrize(
    "text", ["", "  ", "One.", " One. Two!  Three?\n\n\tFour. \r\n", "我是王。你是谁？\n好。", "a\n"]
)
def test_documents_come_back_with_all_that_stands_between_sentences(text):
    assert by_dictionary({}, text).text == text


def test_documents_get_spaces_where_there_were_none():
    known = {"我是王。": "I am Wang.", "你是谁？": "Who are you?", "好。": "Good."}
    found = by_dictionary(known, "我是王。你是谁？\n好。")
    assert found == Prediction("I am Wang. Who are you?\nGood.", -3.0, -1.5)
    back = {"我是王。": "私は王だ。", "你是谁？": "誰？"}
    assert by_dictionary(back, "我是王。你是谁？").text == "私は王だ。誰？"


def test_documents_are_translated_sentence_by_sentence(translator):
    lines = ["ka lo", "", "Zog mi", "tu"]
    (found,) = translator.predict(["\n".join(lines)], split=True, beam=2)
    assert found.text.split("\n") == texts_of(translator.predict(lines, beam=2))
