"""Every model from text to text: one by one equals all at once, padding changes nothing, a toy is soon learned."""

import numpy as np
import pytest
import torch

from sightline import capture
from sightline.attention import AttentionConfig, ComposedConfig, FixedConfig, LocalConfig
from sightline.config import kinds
from sightline.decoding.search import Rules, beam_search, greedy
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.text_to_text import END, PADDING, START, TextToTextConfig
from sightline.models.transformer import TransformerConfig
from sightline.nn.decoder import RecurrentAttentionDecoder

SMALL = {"embedding_size": 12, "size": 12, "dropout": 0.0}
MODELS = {
    "seq2seq": Seq2SeqConfig(**SMALL),
    "seq2seq lstm, two layers": Seq2SeqConfig(**SMALL, cell="lstm", layers=2),
    "luong": LuongConfig(**SMALL, encoder_size=6),
    "luong without input feeding": LuongConfig(**SMALL, encoder_size=6, input_feeding=False),
    "luong dot": LuongConfig(**SMALL, encoder_size=6, attention=AttentionConfig.from_json("dot"), cell="gru"),
    "luong concat, two layers": LuongConfig(
        **SMALL, encoder_size=5, attention=AttentionConfig.from_json("concat"), layers=2
    ),
    "luong local": LuongConfig(**SMALL, attention=LocalConfig("predicted", half_width=2)),
    "luong local monotonic": LuongConfig(
        **SMALL, attention=LocalConfig("monotonic", half_width=2), input_feeding=False
    ),
    "luong fixed": LuongConfig(**SMALL, attention=ComposedConfig(FixedConfig())),
    "luong joined": LuongConfig(**SMALL, encoder_size=6, writes_from="joined"),
    "luong joined, without input feeding, forwards": LuongConfig(
        **SMALL, encoder_size=6, writes_from="joined", input_feeding=False, reads="forwards", cell="gru"
    ),
    "grammar": GrammarConfig(**SMALL, encoder_size=6),
    "rnnsearch": RNNSearchConfig(**SMALL),
    "rnnsearch lstm, two layers": RNNSearchConfig(**SMALL, cell="lstm", layers=2, tied="output"),
    "rnnsearch location-aware": RNNSearchConfig(**SMALL, attention=AttentionConfig.from_json("location_aware")),
    "rnnsearch multi-head": RNNSearchConfig(
        **SMALL, attention=AttentionConfig.from_json({"kind": "multi_head", "heads": 2, "inner": "additive"})
    ),
    "transformer": TransformerConfig(
        size=12, heads=2, feed_forward=24, encoder_layers=2, decoder_layers=2, dropout=0.0
    ),
    "transformer post, rotary": TransformerConfig(
        12, 2, 24, 1, 2, 0.0, norm="post", positions="rotary", activation="gelu", tied="none"
    ),
}
WORDS = 20


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param].build(WORDS, WORDS).double().eval()


def pairs(lengths=((5, 4), (2, 6), (7, 1))):
    """Random sources and targets, padded behind."""
    source = torch.zeros(len(lengths), max(s for s, _ in lengths), dtype=torch.long)
    target = torch.zeros(len(lengths), max(t for _, t in lengths) + 2, dtype=torch.long)
    for i, (s, t) in enumerate(lengths):
        source[i, :s] = torch.randint(4, WORDS, (s,))
        target[i, : t + 2] = torch.tensor([START, *torch.randint(4, WORDS, (t,)).tolist(), END])
    return source, target


def test_one_word_at_a_time_equals_all_at_once(model):
    source, target = pairs()
    whole = torch.log_softmax(model.logits(source, target), dim=-1)
    state = model.begin(source)
    for i in range(target.shape[1]):
        log_probs, state = model.step(target[:, i], state)
        torch.testing.assert_close(log_probs, whole[:, i], atol=1e-10, rtol=0)


def test_padding_and_company_change_nothing(model):
    source, target = pairs()
    whole = model.logits(source, target)
    for i, (s, t) in enumerate(((5, 4), (2, 6), (7, 1))):
        alone = model.logits(source[i : i + 1, :s], target[i : i + 1, : t + 2])
        torch.testing.assert_close(whole[i, : t + 2], alone[0], atol=1e-10, rtol=0)


def test_the_loss_is_the_sum_over_real_tokens(model):
    source, target = pairs()
    found = model.loss(source, target)
    logits = model.logits(source, target[:, :-1])
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PADDING, reduction="sum"
    )
    torch.testing.assert_close(found.total, expected)
    assert found.tokens == 4 + 6 + 1 + 3


def test_search_drives_every_model(model):
    """A batch in any order gives what single sentences give; nothing is written after the end."""
    source, _ = pairs(((5, 1), (2, 1), (7, 1), (1, 1)))
    rules = Rules(START, END, max_length=8, forbidden=(PADDING,))
    with torch.no_grad():
        whole = beam_search(model.step, model.begin(source), 4, rules, beam=3)
        likeliest = greedy(model.step, model.begin(source), 4, rules)
        for i, length in enumerate((5, 2, 7, 1)):
            (alone,) = beam_search(model.step, model.begin(source[i : i + 1, :length]), 1, rules, beam=3)
            assert whole[i][0].tokens == alone[0].tokens
            (one,) = greedy(model.step, model.begin(source[i : i + 1, :length]), 1, rules)
            assert likeliest[i].tokens == one.tokens


def test_configs_survive_json():
    known = {"grammar", "seq2seq", "luong", "rnnsearch", "transformer", "universal_transformer"}
    assert set(kinds("text_to_text")) == known
    for config in MODELS.values():
        assert TextToTextConfig.loads(config.dumps()) == config


def test_one_recurrent_decoder_serves_all_recurrent_models():
    for name in ("seq2seq", "luong", "grammar", "rnnsearch"):
        assert type(MODELS[name].build(WORDS, WORDS).decoder) is RecurrentAttentionDecoder


def test_attention_models_can_be_captured():
    source, target = pairs()
    for name, expected in {
        "rnnsearch": 1,
        "luong": 1,
        "grammar": 1,
        "luong without input feeding": 1,
        "transformer": 6,
    }.items():
        model = MODELS[name].build(WORDS, WORDS).eval()
        with torch.no_grad(), capture(model) as trace:
            model.logits(source, target)
        assert len(trace.maps) == expected, name
        found = trace.maps[-1]
        assert found.weights.shape[0] == 3
        assert found.weights.shape[2:] == (8, 7)
        assert (found.weights[1, :, :, 2:] == 0).all(), "padding is not looked at"


LEARNERS = {
    "luong": LuongConfig(24, 32, 24, dropout=0.0),
    "grammar": GrammarConfig(24, 32, 24, layers=1, dropout=0.0),
    "rnnsearch": RNNSearchConfig(24, 32, dropout=0.0),
    "seq2seq": Seq2SeqConfig(24, 48, dropout=0.0),
    "transformer": TransformerConfig(32, 4, 64, 2, 2, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_a_toy_is_learned_in_seconds(name):
    """Twelve pairs, the target the source reversed: every model must be able to know them by heart."""
    model = LEARNERS[name].build(WORDS, WORDS)
    source = torch.randint(4, WORDS, (12, 5))
    ends = torch.tensor([[START]]).expand(12, 1), torch.tensor([[END]]).expand(12, 1)
    target = torch.cat([ends[0], source.flip(1), ends[1]], dim=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(150):
        loss = model.loss(source, target)
        optimiser.zero_grad()
        (loss.total / loss.tokens).backward()
        optimiser.step()
    model.eval()
    found = greedy(model.step, model.begin(source), 12, Rules(START, END, max_length=10))
    assert [one.tokens for one in found] == source.flip(1).tolist()


def numpy_of(parameter):
    return parameter.detach().numpy()


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru(layer, inputs, hidden, size):
    """torch.nn.GRU's equations, one row."""
    recurrent = numpy_of(layer.recurrent.weight) @ hidden + numpy_of(layer.recurrent.bias)
    reset, update = sigmoid((inputs + recurrent)[:size]), sigmoid((inputs + recurrent)[size : 2 * size])
    candidate = np.tanh(inputs[2 * size :] + reset * recurrent[2 * size :])
    return (1 - update) * candidate + update * hidden


def test_rnnsearch_is_the_paper_s_formula():
    """s₀ from the backward state, scores with s_{i−1}, maxout of s_{i−1}, the word and the context: in plain NumPy."""
    size = 12
    model = RNNSearchConfig(size, size, dropout=0.0).build(WORDS, WORDS).double().eval()
    source, target = pairs(((5, 3),))
    words = target[:, :-1]
    with torch.no_grad():
        found = model.logits(source, words)[0].numpy()
        encoded = model.encoder(model.source_embedding(source), source != PADDING)
        embedded = model.target_embedding(words)[0].numpy()
    annotations, decoder, score = encoded.annotations[0].numpy(), model.decoder, model.decoder.attention.score
    state = np.tanh(numpy_of(model.start.weight) @ encoded.backward[0].numpy() + numpy_of(model.start.bias))
    np.testing.assert_allclose(annotations[0, size:], encoded.backward[0].numpy(), atol=1e-12)
    for i, word in enumerate(embedded):
        energies = np.array(
            [
                numpy_of(score.vector)
                @ np.tanh(
                    state @ numpy_of(score.query.weight)
                    + numpy_of(score.query.bias)[0]
                    + h @ numpy_of(score.key.weight)
                )
                for h in annotations
            ]
        )
        weights = np.exp(energies) / np.exp(energies).sum()
        context = weights @ annotations
        joined = np.concatenate([state, word, context])
        pairs_of_units = numpy_of(decoder.write.weight) @ joined + numpy_of(decoder.write.bias)
        feature = pairs_of_units.reshape(-1, 2).max(axis=1)
        logits = numpy_of(model.output.weight) @ feature + numpy_of(model.output.bias)
        np.testing.assert_allclose(found[i], logits, atol=1e-10)
        cell = decoder.cells[0]
        inputs = numpy_of(cell.input.weight) @ word + numpy_of(cell.input.bias)
        inputs = inputs + numpy_of(decoder.inner_input.weight) @ context
        state = gru(cell, inputs, state, size)


def test_luong_is_the_paper_s_formula():
    """h_t first, then c_t from h_t, h̃ = tanh(W [h; c]), and h̃ fed into the next step: in plain NumPy."""
    size = 12
    model = LuongConfig(size, size, 6, cell="gru", dropout=0.0).build(WORDS, WORDS).double().eval()
    source, target = pairs(((5, 3),))
    words = target[:, :-1]
    with torch.no_grad():
        found = model.logits(source, words)[0].numpy()
        encoded = model.encoder(model.source_embedding(source), source != PADDING)
        embedded = model.target_embedding(words)[0].numpy()
    annotations, decoder = encoded.annotations[0].numpy(), model.decoder
    both = np.concatenate([encoded.forward[0].numpy(), encoded.backward[0].numpy()])
    state = np.tanh(numpy_of(model.start.weight) @ both + numpy_of(model.start.bias))
    attentional = np.zeros(size)
    keys = annotations @ numpy_of(decoder.attention.score.key.weight)
    for i, word in enumerate(embedded):
        cell = decoder.cells[0]
        inputs = numpy_of(cell.input.weight) @ word + numpy_of(cell.input.bias)
        state = gru(cell, inputs + numpy_of(decoder.inner_input.weight) @ attentional, state, size)
        scores = keys @ state
        weights = np.exp(scores) / np.exp(scores).sum()
        joined = np.concatenate([state, weights @ annotations])
        attentional = np.tanh(numpy_of(decoder.write.weight) @ joined + numpy_of(decoder.write.bias))
        logits = numpy_of(model.output.weight) @ attentional + numpy_of(model.output.bias)
        np.testing.assert_allclose(found[i], logits, atol=1e-10)


def test_wrong_sizes_are_named():
    with pytest.raises(
        ValueError, match="embeddings tied on both sides need one vocabulary, found 20 source words and 30"
    ):
        TransformerConfig(12, 2, 24, tied="all").build(20, 30)
    with pytest.raises(ValueError, match="an output tied to the embedding needs features of its size"):
        RNNSearchConfig(8, 12, tied="output").build(20, 20)
