"""Explaining an output: the maps are those of the pass that is shown, and the numbers beside them add up."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import runs
import sightline
from frozen_run import FROZEN
from sightline.errors import UserError
from sightline.inputs.text import SourceText
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.transformer import TransformerConfig
from sightline.outputs import encoder_maps, sequence_explain
from sightline.tasks.configs.translate import TranslateConfig
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.text.words import word_numbers
from sightline.vocabulary import END, START

MODELS = {
    "rnnsearch": RNNSearchConfig(16, 16, dropout=0.1),
    "luong": LuongConfig(16, 16, 16, layers=2, dropout=0.1),
    "grammar": GrammarConfig(16, 16, 16, layers=2, dropout=0.1),
    "transformer": TransformerConfig(16, 2, 32, 2, 3, dropout=0.1, tied="none"),
}
TEXTS = ["the old dog sleeps", "a dog and the cat", "cats sleep, dogs dream"] * 20


def make(config, **tokenising):
    torch.manual_seed(0)
    tokeniser = train_tokeniser(TEXTS, TokeniserConfig(vocab_size=400, **tokenising))
    model = config.build(tokeniser.words, tokeniser.words).eval()
    for parameter in model.parameters():
        parameter.data *= 2  # an untrained model looks everywhere alike
    return runs.translator(model, tokeniser, tokeniser, "made", config=TranslateConfig(model=config))


@pytest.mark.parametrize("kind", MODELS)
def test_rows_and_columns_are_what_was_written_and_read(kind):
    translator = make(MODELS[kind])
    found = translator.explain("the dog sleeps", "a cat", measure=False)
    cross = [record for name in found.stacks[0].names for record in found.of(name)]
    assert found.stacks[0].kind == "cross"
    assert len(cross) == (6 if kind == "transformer" else 1)
    for record in cross:
        assert "".join(record.columns.texts).replace("▁", " ").strip() == "the dog sleeps</s>"
        assert "".join(record.rows.texts).replace("▁", " ").strip() == "a cat</s>"
        assert record.columns.special == (len(record.columns) - 1,)
        np.testing.assert_allclose(record.matrix().sum(axis=1), 1, atol=1e-5)
        shown = torch.softmax(torch.tensor(record.scores), dim=-1).numpy()
        np.testing.assert_allclose(shown, record.matrix(), atol=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_steps_are_the_probabilities_of_the_plain_pass(kind):
    translator = make(MODELS[kind])
    source, target = (translator.input.tokeniser.encode([text])[0] for text in ("the dog sleeps", "a cat"))
    with torch.no_grad():
        logits = translator.model.logits(torch.tensor([[*source, END]]), torch.tensor([[START, *target]]))
    expected = torch.softmax(logits[0], dim=-1)
    found = translator.explain("the dog sleeps", "a cat", measure=False).steps
    assert len(found) == len(target) + 1
    for row, (step, token) in enumerate(zip(found, [*target, END], strict=True)):
        assert step.probability == pytest.approx(float(expected[row, token]), abs=1e-5)
        best = expected[row].topk(5)
        assert [one.probability for one in step.likeliest] == pytest.approx(best.values.tolist(), abs=1e-5)
        assert [one.text for one in step.likeliest] == translator.output.tokeniser.spell(best.indices.tolist())


@pytest.mark.parametrize("kind", MODELS)
def test_weights_times_values_are_contexts(kind):
    found = make(MODELS[kind]).explain("the dog sleeps", "a cat", measure=False)
    shown = {(one.name, one.head): one for one in found.calculations}
    cross = [record for name in found.stacks[0].names for record in found.of(name)]
    assert set(shown) == {(record.name, record.head) for record in cross}
    for record in cross:
        one = shown[record.name, record.head]
        assert len(one.queries) == len(record.rows)
        assert one.values.shape[1] == min(one.size, sequence_explain.KEPT)
        np.testing.assert_allclose(record.matrix() @ one.values, one.contexts, atol=1e-4)


def test_self_attention_comes_with_its_own_axes():
    found = make(MODELS["transformer"]).explain("the dog sleeps", "a cat", measure=False)
    by_kind = {stack.kind: stack for stack in found.stacks}
    assert list(by_kind) == ["cross", "self", "causal"]
    inside_source, inside_output = (found.of(by_kind[kind].names[0])[0] for kind in ("self", "causal"))
    assert inside_source.rows == inside_source.columns == found.of(by_kind["cross"].names[0])[0].columns
    assert inside_output.rows == inside_output.columns
    assert np.triu(inside_output.matrix(), 1).max() == 0


@pytest.mark.parametrize("path", FROZEN, ids=lambda path: path.name)
def test_its_own_output_is_what_predict_gives(path):
    translator = sightline.load(path)
    best = translator.predict(["abcd"], best=3, beam=5)[0].all
    found = translator.explain("abcd", alternatives=2)
    assert found.output == best[0].text
    assert [one.text for one in found.alternatives] == [one.text for one in best[1:]]
    logs = sum(np.log(step.probability) for step in found.steps)
    assert logs == pytest.approx(best[0].log_prob, abs=1e-3)


def test_long_inputs_keep_the_largest_weights(monkeypatch):
    translator = make(MODELS["transformer"])
    whole = translator.explain("the dog sleeps", "a cat", measure=False)
    monkeypatch.setattr(encoder_maps, "WHOLE", 10)
    monkeypatch.setattr(encoder_maps, "LARGEST", 2)
    short = translator.explain("the dog sleeps", "a cat", measure=False)
    assert short.notes[0].startswith("of each row only the 2 largest weights were kept")
    assert "self" in {stack.kind for stack in short.stacks}
    by_place = {(record.name, record.head): record for record in whole.records}
    for kept in short.records:
        full = by_place[kept.name, kept.head]
        largest = np.sort(full.matrix(), axis=1)[:, ::-1][:, :2]
        np.testing.assert_allclose(np.sort(kept.matrix(), axis=1)[:, ::-1][:, :2], largest, atol=1e-6)


def test_a_model_without_attention_says_so():
    with pytest.raises(UserError, match="made has no attention"):
        make(Seq2SeqConfig(16, 16)).explain("the dog", "a cat")


def test_an_empty_text_has_its_end():
    found = make(MODELS["rnnsearch"]).explain("", "", measure=False)
    assert found.records[0].columns.texts == ("</s>",)
    assert found.records[0].matrix() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("texts", "special", "numbers"),
    [
        (["▁the", "▁do", "gs", ",", "▁d", "ream", "</s>"], (6,), (0, 1, 1, 2, 3, 3, 4)),
        (["▁so", "-", "called", "</s>"], (3,), (0, 1, 2, 3)),
        (["▁10", "0", "%", "</s>"], (3,), (0, 0, 1, 2)),
        (["▁x", "<0xE2>", "<0x82>", "y", "</s>"], (4,), (0, 0, 0, 0, 1)),
        (["▁我", "喜欢", "狗", "</s>"], (3,), (0, 1, 2, 3)),
        (["a", "b", "▁", "c", "</s>"], (4,), None),
        (["<unk>", "ab", "<unk>", "</s>"], (0, 2, 3), (0, 1, 2, 3)),
        (["▁", "▁word", "s", "</s>"], (3,), (0, 1, 1, 2)),
    ],
)
def test_pieces_become_words(texts, special, numbers):
    assert word_numbers(texts, special) == numbers


def test_belief_is_about_the_map_that_is_shown():
    translator = make(MODELS["transformer"])
    found = translator.explain("the dog sleeps", "a cat")
    assert found.belief.about.startswith("decoder.2.cross, mean of 2 heads")
    keys = [finding.key for finding in found.belief.findings]
    assert len(set(keys)) == len(keys) == 7
    assert {(one.name, one.head) for one in found.belief.heads} == {
        (record.name, record.head) for record in found.records if "rollout" not in record.name
    }


def test_rollout_is_one_more_stack():
    found = make(MODELS["transformer"]).explain("the dog sleeps", "a cat", measure=False)
    rolled = [record for name in found.stacks[-1].names for record in found.of(name)]
    first = np.mean([record.matrix() for record in found.of("encoder.0.attention")], axis=0)
    mixed = 0.5 * first + 0.5 * np.eye(len(first))
    np.testing.assert_allclose(rolled[0].matrix(), mixed, atol=1e-6)
    np.testing.assert_allclose(rolled[-1].matrix().sum(axis=1), 1, atol=1e-5)


def test_a_shift_is_measured_and_kept_with_the_run(tmp_path):
    translator = make(MODELS["rnnsearch"])
    assert sequence_explain.measured_shift(translator, ["the dog sleeps", "a cat"]) in (-1, 0, 1)
    assert sequence_explain.measured_shift(translator, []) == 0
    translator.output.shift = -1
    loaded = sightline.load(runs.saved(translator, tmp_path / "run"))
    assert loaded.explain("a cat", "a cat", measure=False).shift == -1
    assert loaded.explain("a cat", "a cat", measure=False, shift=0).shift == 0


def test_what_is_too_long_is_shown_without_being_measured(monkeypatch):
    monkeypatch.setattr(SourceText, "most_measured", 2)
    found = make(MODELS["rnnsearch"]).explain("the dog sleeps", "a cat")
    assert found.belief is None
    assert "too many to measure" in found.notes[-1]


def test_threads_do_not_mix_up_what_they_see():
    translator = make(MODELS["transformer"])
    texts = ["the dog sleeps", "a cat", "cats dream and dogs sleep", "old"] * 3
    alone = [translator.explain(text, "a cat", measure=False) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda text: translator.explain(text, "a cat", measure=False), texts))
    for one, other in zip(alone, together, strict=True):
        for a, b in zip(one.calculations, other.calculations, strict=True):
            np.testing.assert_array_equal(a.contexts, b.contexts)
