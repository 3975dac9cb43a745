"""The decoder of Grammar as a Foreign Language: the paper's formulas, the directions of reading, and older runs."""

import numpy as np
import pytest
import torch
from torch import nn

import runs
import sightline
from invoke import run as invoke
from pairs import make_pairs
from sightline import capture
from sightline.attention import AttentionConfig
from sightline.cli.train import preset
from sightline.config import ConfigError, override
from sightline.decoding.search import Rules, beam_search, greedy
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.text_to_text import END, PADDING, START, TextToTextConfig
from sightline.nn.rnn import BidirectionalEncoder
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.ensemble import ensemble
from sightline.tasks.translate import TRANSLATE
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.training.loop import TrainingConfig

WORDS = 20
LENGTHS = (5, 2, 7, 1)


def build(seed=0, **changes):
    torch.manual_seed(seed)
    given = {"embedding_size": 7, "size": 10, "encoder_size": 6, "layers": 2, "dropout": 0.0, **changes}
    model = GrammarConfig(**given).build(WORDS, WORDS).double().eval()
    for parameter in model.parameters():
        parameter.data *= 2  # an untrained model looks everywhere alike
    return model


def batch(lengths=LENGTHS):
    torch.manual_seed(1)
    source = torch.full((len(lengths), max(lengths)), PADDING)
    for row, length in enumerate(lengths):
        source[row, :length] = torch.randint(4, WORDS, (length,))
    return source, torch.cat([torch.full((len(lengths), 1), START), torch.randint(4, WORDS, (len(lengths), 4))], dim=1)


def turned(source):
    """Each row from its last word to its first; padding stays behind."""
    rows = [row[row != PADDING].flip(0) for row in source]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PADDING)


def plain(parameter):
    return parameter.detach().numpy()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(gates, memory):
    enter, forget, candidate, leave = np.split(gates, 4)
    memory = sigmoid(forget) * memory + sigmoid(enter) * np.tanh(candidate)
    return sigmoid(leave) * np.tanh(memory), memory


def test_it_is_the_papers_formula():
    """In plain NumPy: the sentence from its end, u = v · tanh(W₁ h + W₂ d), and [d; d'] both written from and fed."""
    model = build()
    source, words = batch((5,))
    with torch.no_grad():
        logits = model.logits(source, words)[0].numpy()
        x, embedded = (model.source_embedding(source)[0].numpy(), model.target_embedding(words)[0].numpy())
    decoder, score = model.decoder, model.decoder.attention.score
    for layer in model.encoder.layers:
        hidden, memory, states = np.zeros(6), np.zeros(6), [None] * len(x)
        for place in reversed(range(len(x))):
            gates = plain(layer.weight_ih_l0) @ x[place] + plain(layer.bias_ih_l0)
            hidden, memory = lstm(gates + plain(layer.weight_hh_l0) @ hidden + plain(layer.bias_hh_l0), memory)
            states[place] = hidden
        x = np.stack(states)
    started = np.tanh(plain(model.start.weight) @ hidden + plain(model.start.bias)).reshape(2, 10)
    cells = [(one, np.zeros(10)) for one in started]
    fed = np.zeros(16)
    for word, expected in zip(embedded, logits, strict=True):
        below = word
        for number, cell in enumerate(decoder.cells):
            gates = plain(cell.input.weight) @ below + plain(cell.input.bias)
            if not number:
                gates = gates + plain(decoder.inner_input.weight) @ fed
            gates = gates + plain(cell.recurrent.weight) @ cells[number][0] + plain(cell.recurrent.bias)
            cells[number] = lstm(gates, cells[number][1])
            below = cells[number][0]
        inner = x @ plain(score.key.weight) + below @ plain(score.query.weight) + plain(score.query.bias)
        energies = np.tanh(inner) @ plain(score.vector)
        weights = np.exp(energies) / np.exp(energies).sum()
        fed = np.concatenate([below, weights @ x])
        np.testing.assert_allclose(plain(model.output.weight) @ fed + plain(model.output.bias), expected, atol=1e-10)
    assert not hasattr(decoder, "write"), "no layer stands between"


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_backwards_is_the_source_turned_by_hand(cell):
    """Of sentences of different lengths; and the maps show each word in its own column."""
    backwards, forwards = (build(cell=cell, reads=reads) for reads in ("backwards", "forwards"))
    forwards.load_state_dict(backwards.state_dict())
    source, words = batch()
    with torch.no_grad(), capture(backwards) as ours:
        logits = backwards.logits(source, words)
    with torch.no_grad(), capture(forwards) as theirs:
        expected = forwards.logits(turned(source), words)
        other = forwards.logits(source, words)
    torch.testing.assert_close(logits, expected, atol=1e-10, rtol=0)
    assert not torch.allclose(logits, other)
    for row, length in enumerate(LENGTHS):
        one, by_hand = (trace.maps[0].weights[row, 0] for trace in (ours, theirs))
        torch.testing.assert_close(one[:, :length], by_hand[:, :length].flip(1), atol=1e-6, rtol=0)
        assert (one[:, length:] == 0).all()


@pytest.mark.parametrize("reads", ["forwards", "backwards"])
def test_an_encoder_of_one_direction_is_half_of_one_with_both(reads):
    """Of one layer, with the same weights; and gradients are those of PyTorch's own layer."""
    torch.manual_seed(0)
    both, one = BidirectionalEncoder("lstm", 5, 4).double(), BidirectionalEncoder("lstm", 5, 4, reads=reads).double()
    suffix = "_reverse" if reads == "backwards" else ""
    of_both = both.layers[0].state_dict()
    one.layers[0].load_state_dict({name: of_both[name + suffix] for name in one.layers[0].state_dict()})
    mask = torch.arange(7) < torch.tensor(LENGTHS).unsqueeze(1)
    x = torch.randn(4, 7, 5, dtype=torch.float64)
    whole, half = both(x, mask), one(x, mask)
    side = 1 if reads == "backwards" else 0
    torch.testing.assert_close(half.annotations, whole.annotations.chunk(2, dim=-1)[side])
    torch.testing.assert_close(half[1 + side], whole[1 + side])
    assert half[2 - side].shape == (4, 0)
    whole.annotations.chunk(2, dim=-1)[side].sum().backward()
    half.annotations.sum().backward()
    for name, parameter in one.layers[0].named_parameters():
        torch.testing.assert_close(parameter.grad, both.layers[0].get_parameter(name + suffix).grad)


def test_a_batch_is_its_sentences_one_by_one_and_a_beam_of_one_is_greedy():
    model = build()
    source, words = batch()
    rules = Rules(START, END, max_length=6, forbidden=(PADDING,))
    with torch.no_grad():
        logits = model.logits(source, words)
        whole = greedy(model.step, model.begin(source), len(source), rules)
        of_one = beam_search(model.step, model.begin(source), len(source), rules, beam=1)
        of_four = beam_search(model.step, model.begin(source), len(source), rules, beam=4, best=4)
    assert [one.tokens for one in whole] == [some[0].tokens for some in of_one]
    assert len({tuple(one.tokens) for one in whole}) > 1, "outputs that are all alike show nothing"
    for row, length in enumerate(LENGTHS):
        alone = source[row : row + 1, :length]
        with torch.no_grad():
            torch.testing.assert_close(model.logits(alone, words[row : row + 1])[0], logits[row], atol=1e-10, rtol=0)
            assert greedy(model.step, model.begin(alone), 1, rules)[0].tokens == whole[row].tokens
            (best,) = beam_search(model.step, model.begin(alone), 1, rules, beam=4, best=4)
        assert len(best) == 4
        assert [one.tokens for one in best] == [one.tokens for one in of_four[row]]
        # What is fed follows its hypothesis: the score of each is that of its tokens, read at once.
        for one in of_four[row]:
            following = torch.tensor([*one.tokens, END])
            with torch.no_grad():
                log_probs = torch.log_softmax(model.logits(alone, torch.tensor([[START, *one.tokens]])), dim=-1)[0]
            expected = float(log_probs.gather(1, following.unsqueeze(1)).sum())
            assert one.log_prob == pytest.approx(expected, abs=1e-8)


def test_ensembles_and_maps_of_runs():
    """Two runs predict together, and a map has the words of the source in their order."""
    tokeniser = train_tokeniser(["the old dog sleeps", "a dog and the cat"] * 9, TokeniserConfig(method="words"))
    config = GrammarConfig(8, 8, 8, layers=2, dropout=0.0)
    made = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = config.build(tokeniser.words, tokeniser.words).eval()
        made.append(runs.translator(model, tokeniser, tokeniser, f"{seed}", config=TranslateConfig(model=config)))
    texts = ["the dog sleeps", "a cat", "the old dog"]
    twice, alone = ensemble([made[0], made[0]]).predict(texts, beam=3), made[0].predict(texts, beam=3)
    assert [one.text for one in twice] == [one.text for one in alone]
    together = ensemble(made).predict(texts, beam=3)
    by_batch = [ensemble(made).predict([text], beam=3)[0].text for text in texts]
    assert [one.text for one in together] == by_batch
    explanation = made[0].explain("the old cat", "a dog")
    (record,) = explanation.of(explanation.stacks[0].names[0])
    assert [text.strip("▁ ") for text in record.columns.texts] == ["the", "old", "cat", "</s>"]
    np.testing.assert_allclose(record.matrix().sum(axis=1), 1, atol=1e-5)
    assert explanation.belief is not None


@pytest.mark.unchecked_shapes
def test_a_stopped_training_resumes_bit_for_bit(tmp_path):
    """With dropout, by the fields of `luong` that a command sets."""
    changes = ["model.writes_from=joined", "model.reads=backwards", "model.attention=additive", "model.layers=2"]
    small = TranslateConfig(
        model=LuongConfig(8, 8, 8, dropout=0.2),
        tokeniser=TokeniserConfig(method="characters", vocab_size=40),
        training=TrainingConfig(steps=4, validate_every=2),
        batch_tokens=200,
    )
    config = override(small, changes)
    rows = [{"source": source, "target": target} for source, target in make_pairs(60)]

    def stop(event):
        if event.progress.step == 3:
            raise KeyboardInterrupt

    whole = sightline.train(rows, tmp_path / "whole", config=config)
    with pytest.raises(KeyboardInterrupt):
        sightline.train(rows, tmp_path / "stopped", config=config, on_step=stop)
    assert invoke("resume", tmp_path / "stopped", "--device", "cpu", cwd=tmp_path).returncode == 0
    resumed = sightline.load(tmp_path / "stopped")
    assert resumed.model.encoder.reads == "backwards"
    for name, parameter in whole.model.state_dict().items():
        assert torch.equal(parameter, resumed.model.state_dict()[name]), name
    assert resumed.predict(["abc"]) == whole.predict(["abc"])


def test_configurations_from_before_are_what_they_were():
    """Without the new fields: Luong's own formula, an encoder of both directions, and the same parameters."""
    before = LuongConfig(8, 8, 6).to_json()
    assert (before.pop("writes_from"), before.pop("reads")) == ("tanh", "both")
    config = TextToTextConfig.from_json(before)
    assert config == LuongConfig(8, 8, 6)
    names = {name: tuple(one.shape) for name, one in config.build(WORDS, WORDS).state_dict().items()}
    assert names["decoder.write.weight"] == (8, 8 + 12)
    assert names["decoder.inner_input.weight"] == (4 * 8, 8)
    assert names["output.weight"] == (WORDS, 8)
    assert "encoder.layers.0.weight_ih_l0_reverse" in names


def test_grammar_is_luong_with_other_choices():
    """By command: `--model luong --set …` gives the same model as `--model grammar`."""
    variant = TRANSLATE.variants[0]
    grammar, luong = (preset(variant, name, "tiny") for name in ("grammar", "luong"))
    chosen = override(luong, ["model.writes_from=joined", "model.reads=backwards", "model.attention=additive"])
    assert {**chosen.model.to_json(), "kind": ""} == {**grammar.model.to_json(), "kind": ""}
    paper = preset(variant, "grammar", "small").model
    assert (paper.layers, paper.size, paper.encoder_size, paper.cell) == (3, 256, 256, "lstm")


def test_attention_with_a_size_of_its_own():
    """What is read need not be as large as an annotation."""
    several = AttentionConfig.from_json({"kind": "multi_head", "heads": 2, "output_size": 3, "inner": "additive"})
    model = build(attention=several)
    assert model.output.in_features == model.decoder.feature_size == 10 + 3
    source, words = batch()
    assert model.logits(source, words).shape == (4, 5, WORDS)


@pytest.mark.unchecked_shapes  # checked signatures refuse these before the configuration does
def test_choices_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"^writes_from is 'maxout'; it must be one of tanh, joined$"):
        LuongConfig(writes_from="maxout")
    with pytest.raises(ValueError, match=r"^reads is 'upwards'; it must be one of both, forwards, backwards$"):
        GrammarConfig(reads="upwards")
    with pytest.raises(ConfigError, match=r"reads: expected one of 'both', 'forwards', 'backwards', found True"):
        override(TranslateConfig(model=LuongConfig()), ["model.reads=true"])
    with pytest.raises(ValueError, match="found 16 features and embeddings of 7"):
        build(tied="output")
