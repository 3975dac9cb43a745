"""RNNsearch's loop with its gradient written out: the same as the decoder that knows every mechanism."""

import pytest
import torch

from sightline import kernels
from sightline.attention import AdditiveConfig, ComposedConfig, Memory, SparsemaxConfig
from sightline.explain.capture import capture
from sightline.kernels import rnnsearch
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.text_to_text import PADDING
from sightline.nn.decoder import DecoderShape, RecurrentAttentionDecoder

pytestmark = pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")

WORDS = 20
SMALL = {"embedding_size": 6, "size": 4, "attention": ComposedConfig(AdditiveConfig(hidden_size=5))}


@pytest.fixture
def loops(monkeypatch):
    """How often the written-out loop was taken."""
    taken, align = [], rnnsearch.fast
    monkeypatch.setattr(rnnsearch, "fast", lambda *args: taken.append(1) or align(*args))
    return taken


def a_batch(lengths=(7, 3, 1, 7)):
    torch.manual_seed(1)
    source = torch.randint(4, WORDS, (len(lengths), 7))
    source[torch.arange(7) >= torch.tensor(lengths)[:, None]] = PADDING
    return source, torch.randint(4, WORDS, (len(lengths), 6))


def learnt(model, source, target):
    model.zero_grad()
    loss = model.loss(source, target, 0.1)
    loss.total.backward()
    return [loss.total.detach(), *(one.grad.clone() for one in model.parameters())]


@pytest.mark.parametrize("lengths", [(7, 3, 1, 7), (7, 7)], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_loop_and_its_gradients_are_the_decoder_s(lengths, dropout, loops, monkeypatch):
    torch.manual_seed(0)
    model = RNNSearchConfig(**SMALL, dropout=dropout).build(WORDS, WORDS).double()
    batch = a_batch(lengths)
    torch.manual_seed(2)
    found = learnt(model, *batch)
    assert len(loops) == 1
    monkeypatch.setattr(rnnsearch, "supported", lambda *args: False)
    torch.manual_seed(2)
    for one, other in zip(found, learnt(model, *batch), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    assert len(loops) == 1


def test_the_state_behind_it_is_one_to_go_on_from(loops):
    torch.manual_seed(0)
    model = RNNSearchConfig(**SMALL, dropout=0.0).build(WORDS, WORDS).double()
    source, target = a_batch()
    whole, _ = model.decode(target, model.begin(source))
    first, state = model.decode(target[:, :2], model.begin(source))
    second, state = model.decode(target[:, 2:], state)
    assert len(loops) == 3
    assert state.carry.position == target.shape[1]
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    with torch.no_grad():
        torch.testing.assert_close(model.decode(target, model.begin(source))[0], whole)
    assert len(loops) == 3


def test_what_it_is_not_for_goes_the_usual_way(loops):
    source, target = a_batch()
    sparse = ComposedConfig(AdditiveConfig(hidden_size=5), SparsemaxConfig())
    for others in ({"attention": sparse}, {"cell": "lstm"}, {"layers": 2}):
        RNNSearchConfig(**{**SMALL, **others}).build(WORDS, WORDS).loss(source, target).total.backward()
    model = RNNSearchConfig(**SMALL).build(WORDS, WORDS)
    calls = []
    hook = model.decoder.attention.register_forward_hook(lambda *args: calls.append(1))
    model.loss(source, target).total.backward()
    hook.remove()
    assert len(calls) == target.shape[1] - 1
    one = model.begin(source[:1])
    words = model.target_embedding(target)
    three = one._replace(cells=((one.cells[0][0].expand(len(target), -1),),))
    assert model.decoder(words, three)[0].shape[:2] == target.shape
    model.to(torch.bfloat16).loss(source, target).total.backward()
    model.float()
    with capture(model) as trace:
        model.loss(source, target).total.backward()
    assert trace
    state = model.begin(source)
    nothing = state.memory.mask.clone()
    nothing[1] = False
    features, _ = model.decode(target, state._replace(memory=Memory(*state.memory[:2], nothing)))
    assert features.isfinite().all()
    assert not loops


@pytest.mark.parametrize("others", [{"gates_context": True}, {"feeds_input": True}, {}], ids=str)
def test_decoders_that_do_more_than_it_knows_do_it_all(others, loops):
    """A gate, input feeding, and a loss that wants what was read."""
    torch.manual_seed(0)
    shape = DecoderShape(6, 8, 4, attention=SMALL["attention"], looks="before", writes_from="tanh", **others)
    decoder = RecurrentAttentionDecoder(shape).double()
    words = torch.randn(2, 3, 6, dtype=torch.float64)
    state = decoder.begin(torch.randn(1, 2, 4).double(), torch.randn(2, 5, 8).double(), None)
    reads = None if others else []
    found, _ = decoder(words, state, reads)
    assert not loops
    assert others or len(reads) == words.shape[1]
    with torch.no_grad():
        torch.testing.assert_close(found, decoder(words, state)[0])


def test_memory_in_another_order(loops):
    torch.manual_seed(0)
    model = RNNSearchConfig(**SMALL, dropout=0.0).build(WORDS, WORDS).double()
    source, target = a_batch()
    state = model.begin(source)
    turned = state.memory._replace(keys=state.memory.keys.transpose(1, 2).contiguous().transpose(1, 2))
    expected, _ = model.decode(target, state)
    torch.testing.assert_close(model.decode(target, state._replace(memory=turned))[0], expected)
    assert len(loops) == 2
