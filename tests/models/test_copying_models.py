"""Models that copy: one word at a time equals all at once, by every path; beams are exact; coverage is added later."""

import itertools

import pytest
import torch

from sightline import kernels
from sightline.attention import AttentionConfig, CoverageConfig
from sightline.decoding.options import SearchConfig
from sightline.decoding.search import Rules, beam_search, ensemble
from sightline.kernels import rnnsearch, transformer_search
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.text_to_text import END, PADDING, START
from sightline.models.transformer import TransformerConfig
from sightline.models.universal_transformer import UniversalTransformerConfig

WORDS = 8
SMALL = {"embedding_size": 6, "size": 6, "dropout": 0.0, "copying": True}
HEADS = AttentionConfig.from_json({"kind": "multi_head", "heads": 2, "inner": "additive"})
STACK = {"size": 8, "heads": 2, "feed_forward": 12, "encoder_layers": 1, "decoder_layers": 3, "dropout": 0.0}
MODELS = {
    "rnnsearch": RNNSearchConfig(**SMALL),
    "rnnsearch coverage": RNNSearchConfig(**SMALL, attention=CoverageConfig(5)),
    "rnnsearch multi-head": RNNSearchConfig(**SMALL, attention=HEADS),
    "luong": LuongConfig(**SMALL, encoder_size=6),
    "luong without input feeding": LuongConfig(**SMALL, encoder_size=6, input_feeding=False),
    "grammar": GrammarConfig(**SMALL, encoder_size=6),
    "transformer": TransformerConfig(**STACK, copying=True),
    "transformer first layer, post": TransformerConfig(**STACK, copying=True, copying_layer=0, norm="post"),
}


def build(name, seed=0):
    torch.manual_seed(seed)
    model = MODELS[name].build(WORDS, WORDS).double().eval()
    for parameter in model.parameters():  # away from where layers begin: gates, heads and coverage count
        torch.nn.init.normal_(parameter, std=0.4)
    return model.requires_grad_(False)


SOURCE = torch.tensor([[5, WORDS, 7, WORDS, 5, END], [6, WORDS + 1, END, PADDING, PADDING, PADDING]])
TARGET = torch.tensor([[START, WORDS, 5, 6, END], [START, 4, WORDS + 1, END, PADDING]])


@pytest.mark.parametrize("name", MODELS)
def test_probabilities_sum_to_one_and_steps_equal_all_at_once(name):
    """Through search's own step, which is a path of its own for the Transformer."""
    model = build(name)
    every = model.log_probs(SOURCE, TARGET[:, :-1])
    assert every.shape[-1] == WORDS + 2
    torch.testing.assert_close(every.exp().sum(dim=-1), torch.ones(2, 4, dtype=torch.float64), rtol=0, atol=1e-12)
    assert (every[0, :, WORDS + 1] == -torch.inf).all(), "the word of another source cannot be copied"
    step, state = model.searching(SOURCE)
    for place in range(4):
        log_probs, state = step(TARGET[:, place], state)
        torch.testing.assert_close(log_probs, every[:, place])


@pytest.mark.parametrize("name", MODELS)
def test_the_loss_is_that_of_the_probabilities(name):
    model = build(name)
    following = TARGET[:, 1:]
    every = model.log_probs(SOURCE, TARGET[:, :-1])
    expected = -every.gather(-1, following.unsqueeze(-1)).squeeze(-1)[following != PADDING].sum()
    torch.testing.assert_close(model.loss(SOURCE, TARGET).total, expected)
    looked, _ = model.look(TARGET[:, :-1], model.begin(SOURCE))
    own = model.log_probs_of(SOURCE, looked, following.where(following != PADDING, END))
    torch.testing.assert_close(-own[following != PADDING].sum(), expected)


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_equals_one_by_one(name):
    model = build(name)
    both = model.log_probs(SOURCE, TARGET[:, :-1])
    alone = model.log_probs(SOURCE[1:, :3], TARGET[1:, :3])
    torch.testing.assert_close(both[1:, :3], alone)


def every_output(model, source, longest):
    """The log-probability of each output of up to so many words."""
    words = [word for word in range(WORDS + 1) if word not in (PADDING, START, END)]
    for length in range(longest + 1):
        for some in itertools.product(words, repeat=length):
            tokens = torch.tensor([[START, *some, END]])
            every = model.log_probs(source, tokens[:, :-1])
            yield float(every[0].gather(-1, tokens[0, 1:].unsqueeze(-1)).sum()), list(some)


@pytest.mark.parametrize("name", ["rnnsearch coverage", "luong", "transformer"])
def test_a_wide_beam_is_exact_with_copies(name):
    model, source = build(name), SOURCE[:1]
    scored = [(total / (len(some) + 1) ** 0.7, total, some) for total, some in every_output(model, source, 2)]
    expected = sorted(scored, reverse=True)[:6]
    rules = Rules(START, END, 0, 2, forbidden=(PADDING,))
    (outputs,) = beam_search(*model.searching(source), 1, rules, beam=200, best=6, length_penalty=0.7)
    assert [one.tokens for one in outputs] == [some for _, _, some in expected]
    assert [one.log_prob for one in outputs] == pytest.approx([total for _, total, _ in expected], abs=1e-10)
    assert any(WORDS in one.tokens for one in outputs), "a word without a token is among them"


def test_an_ensemble_with_a_model_that_cannot_copy():
    """Copied words get half of the probability that the other model gives them."""
    one, other = build("transformer"), build("luong", seed=1)
    plain = LuongConfig(**{**SMALL, "copying": False}, encoder_size=6).build(WORDS, WORDS).double().eval()
    known = SOURCE.where(SOURCE < WORDS, 1)
    steps, states = zip(one.searching(SOURCE), other.searching(SOURCE), plain.searching(known), strict=True)
    log_probs, _ = ensemble(steps)(TARGET[:, 0], states)
    assert log_probs.shape == (2, WORDS + 2)
    torch.testing.assert_close(log_probs.exp().sum(dim=-1), torch.ones(2, dtype=torch.float64))
    each = [model.log_probs(SOURCE, TARGET[:, :1])[:, 0].exp() for model in (one, other)]
    torch.testing.assert_close(log_probs[:, WORDS:].exp(), (each[0] + each[1])[:, WORDS:] / 3)


@pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")
@pytest.mark.parametrize("coverage", [0.0, 1.0])
def test_the_written_out_loop_gives_the_gradients_of_copies(coverage, monkeypatch):
    """With weights that nothing but copying reads, and with the loss of coverage on top."""
    torch.manual_seed(0)
    model = RNNSearchConfig(**SMALL).build(WORDS, WORDS).double()
    taken, loop = [], rnnsearch.fast

    def learnt():
        model.zero_grad()
        loss = model.loss(SOURCE, TARGET, 0.1, coverage)
        loss.total.backward()
        return [loss.total.detach(), *(one.grad.clone() for one in model.parameters() if one.grad is not None)]

    monkeypatch.setattr(rnnsearch, "fast", lambda *args: taken.append(1) or loop(*args))
    made = learnt()
    assert len(taken) == 1
    monkeypatch.setattr(rnnsearch, "supported", lambda *args: False)
    for one, other in zip(made, learnt(), strict=True):
        torch.testing.assert_close(one, other)
    assert len(taken) == 1


def test_coverage_is_learnt_when_its_loss_begins():
    """Before, the score does not see it, and the fast loop is taken; its weights have no gradient."""
    torch.manual_seed(0)
    model = RNNSearchConfig(**SMALL, attention=CoverageConfig(5)).build(WORDS, WORDS)
    vector = model.decoder.attention.coverage
    assert not model.decoder.attention.covers()
    model.loss(SOURCE, TARGET).total.backward()
    assert vector.grad is None or not vector.grad.any() or not kernels.enabled()
    loss = model.loss(SOURCE, TARGET, 0.0, 2.0)
    loss.total.backward()
    assert vector.grad.any()
    assert loss.parts["coverage"] > 0
    with torch.no_grad():
        plain = float(model.loss(SOURCE, TARGET).total)
        assert float(loss.total) == pytest.approx(plain + loss.parts["coverage"], rel=1e-5)
        torch.nn.init.normal_(vector)
        assert model.decoder.attention.covers()
        assert float(model.loss(SOURCE, TARGET).total) != pytest.approx(plain, rel=1e-6)


@pytest.mark.parametrize("name", ["rnnsearch", "transformer"])
def test_the_penalty_of_search_is_what_was_attended_to_again(name):
    model = build(name)
    every = model.log_probs(SOURCE, TARGET[:, :-1])
    looked, _ = model.look(TARGET[:, :-1], model.begin(SOURCE))
    weights = model.copying.one_weight(looked.weights)
    again = torch.minimum(weights, weights.cumsum(dim=1) - weights).sum(dim=-1)
    step, state = model.searching(SOURCE, 0.5)
    for place in range(4):
        log_probs, state = step(TARGET[:, place], state)
        torch.testing.assert_close(log_probs, every[:, place] - 0.5 * again[:, place, None])


def test_search_takes_the_fast_step_and_reorders_copies(monkeypatch):
    model = build("transformer")
    taken, fast = [], transformer_search.fast
    monkeypatch.setattr(transformer_search, "fast", lambda *args: taken.append(1) or fast(*args))
    search = SearchConfig(beam=3, best=3, max_length=4)
    found = [search.find(*model.searching(SOURCE), [6, 3], [[], []], torch.Generator())]
    monkeypatch.setattr(transformer_search, "supported", lambda *args: False)
    found.append(search.find(*model.searching(SOURCE), [6, 3], [[], []], torch.Generator()))
    assert len(taken) == (1 if kernels.enabled() else 0)
    fast_one, plain = ([[(one.tokens, round(one.log_prob, 9)) for one in beam] for beam in beams] for beams in found)
    assert fast_one == plain


@pytest.mark.parametrize("config", [Seq2SeqConfig, UniversalTransformerConfig])
def test_models_without_weights_to_copy_by_refuse(config):
    with pytest.raises(ValueError, match="copying needs"):
        config(copying=True).build(WORDS, WORDS)


def test_the_layer_to_copy_from_is_one_of_the_decoder():
    with pytest.raises(ValueError, match="copying_layer is 4; the decoder has 4 layers"):
        TransformerConfig(copying=True, copying_layer=4)
