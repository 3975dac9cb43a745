"""The decoder's one-token path gives what its layers give, and everything that it is not made for takes the other."""

import copy

import pytest
import torch

from runs import translator as run_of
from sightline import kernels
from sightline.explain.capture import capture
from sightline.kernels import transformer_search as incremental
from sightline.models.transformer import TransformerConfig
from sightline.state import Shared, reorder, select
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser

pytestmark = pytest.mark.skipif(not kernels.enabled(), reason="kernels are switched off")

SHAPES = {
    "pre": TransformerConfig(16, 2, 32, 2, 3, tied="none"),
    "post": TransformerConfig(16, 4, 24, 1, 2, norm="post", activation="gelu"),
    "one head, silu": TransformerConfig(8, 1, 8, 1, 1, activation="silu"),
}
WORDS = 30


def build(config, dtype=torch.float64):
    torch.manual_seed(1)
    model = config.build(WORDS, WORDS).to(dtype).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("name", SHAPES)
@torch.no_grad()
def test_steps_equal_those_of_the_layers(name, monkeypatch):
    """Over beams that grow, are reordered, and lose sentences; with padded sources, and past the room of the caches."""
    monkeypatch.setattr(incremental, "ROOM", 3)
    model = build(SHAPES[name])
    source = torch.tensor([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0], [11, 12, 13, 3, 0]])
    step, state = model.searching(source)
    assert isinstance(step, incremental.OneTokenDecoder)
    plain = model.begin(source)
    tokens = torch.tensor([2, 2, 2])
    orders = [([0, 0, 1, 1, 2, 2], None), ([1, 0, 3, 3, 4, 5], None), ([5, 4, 0, 1], [2, 0]), ([1, 1, 2, 3], None)]
    for number in range(8):
        found, state = step(tokens, state)
        expected, plain = model.step(tokens, plain)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        if number < len(orders):
            rows, kept = orders[number]
            rows = torch.tensor(rows)
            state = reorder(state, rows, None if kept is None else torch.tensor(kept))
            plain = select(plain, rows)
        tokens = torch.randint(4, WORDS, (len(rows),), generator=torch.Generator().manual_seed(number))


@pytest.mark.parametrize("name", SHAPES)
@torch.no_grad()
def test_steps_of_many_sentences_equal_those_of_the_layers(name):
    """So many that plain products are taken, and sources so short that they are filled up."""
    model = build(SHAPES[name], torch.float32)
    draw = torch.Generator().manual_seed(3)
    source = torch.randint(4, WORDS, (11, 6), generator=draw)
    source[::2, 4:] = 0
    step, state = model.searching(source)
    plain = model.begin(source)
    for _ in range(incremental.ROOM + 3):
        tokens = torch.randint(4, WORDS, (11,), generator=draw)
        (found, state), (expected, plain) = step(tokens, state), model.step(tokens, plain)
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-4)


def test_a_state_is_reordered_where_it_belongs():
    state = (torch.arange(4), Shared((torch.arange(2) * 10,)), 7, None)
    own, shared, position, nothing = reorder(state, torch.tensor([3, 0]), torch.tensor([1]))
    assert (own.tolist(), shared.part[0].tolist(), position, nothing) == ([3, 0], [10], 7, None)
    assert reorder(state, torch.tensor([0, 0, 1, 1]), None)[1] is state[1]
    assert select(state, torch.tensor([1, 1]))[1].part[0].tolist() == [10, 10]


def test_other_models_take_the_layers():
    rotary = build(TransformerConfig(16, 2, 32, 1, 1, positions="rotary"))
    source = torch.tensor([[5, 3]])
    assert rotary.searching(source)[0] == rotary.step
    model = build(SHAPES["pre"])
    with capture(model):
        assert model.searching(source)[0] == model.step
    assert model.train().searching(source)[0] == model.step


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4}, {"beam": 3, "best": 3}, {"sample": True, "best": 3}])
def test_search_finds_the_same_on_both_paths(options, monkeypatch):
    texts = ["one two three four", "two", "", "three one four one two", "four four"]
    tokeniser = train_tokeniser(texts * 3, TokeniserConfig(method="words", vocab_size=WORDS))
    torch.manual_seed(2)
    model = TransformerConfig(16, 2, 32, 2, 2).build(tokeniser.words, tokeniser.words).eval()
    translator = run_of(model, tokeniser, tokeniser)
    fast = translator.predict(texts, max_length=9, **options)
    monkeypatch.setattr(incremental, "supported", lambda *args: False)
    assert len(fast[0].all) == options.get("best", 1)
    for one, other in zip(fast, translator.predict(texts, max_length=9, **options), strict=True):
        assert [some.tokens for some in one.all] == [some.tokens for some in other.all]
        assert [some.log_prob for some in one.all] == pytest.approx([some.log_prob for some in other.all], abs=1e-4)


def test_search_sees_weights_that_an_optimiser_changed():
    """A fused optimiser changes parameters without a trace that a cache could look at."""
    model = build(SHAPES["pre"], torch.float32)
    source = torch.tensor([[5, 6, 3]])
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(3):
        with torch.no_grad():
            step, state = model.eval().searching(source)
            found, _ = step(torch.tensor([2]), state)
            expected, _ = model.step(torch.tensor([2]), model.begin(source))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
        model.train().loss(source, torch.tensor([[2, 7, 8, 3]])).total.backward()
        optimiser.step()


def assert_search_knows_its_weights(model):
    source, first = torch.tensor([[5, 6, 7, 3]]), torch.tensor([2])
    with torch.no_grad():
        step, state = model.searching(source)
        torch.testing.assert_close(step(first, state)[0], model.step(first, model.begin(source))[0])


def test_search_sees_parts_that_were_put_in_the_place_of_others():
    torch.manual_seed(0)
    model = TransformerConfig(16, 2, 32, 1, 1, dropout=0.0).build(20, 20).eval().requires_grad_(False)
    assert_search_knows_its_weights(model)
    for _ in range(5):
        parts = model.decoder[0].feed_forward
        parts.widen = None  # its place in memory may be the next one's
        parts.widen = torch.nn.Linear(16, 32)
        assert_search_knows_its_weights(model)
        model.requires_grad_(False)
        assert_search_knows_its_weights(model)


def test_search_sees_what_was_learnt_between_two_searches():
    torch.manual_seed(0)
    model = TransformerConfig(16, 2, 32, 1, 1, dropout=0.0).build(20, 20).eval().requires_grad_(False)
    assert_search_knows_its_weights(model)
    optimiser = torch.optim.AdamW(model.train().requires_grad_(True).parameters(), lr=0.1, fused=True)
    model.loss(torch.tensor([[5, 6, 3]]), torch.tensor([[2, 7, 8, 3]])).total.backward()
    optimiser.step()
    assert_search_knows_its_weights(model.eval().requires_grad_(False))


def test_what_search_keeps_of_weights_follows_them():
    torch.manual_seed(0)
    model = TransformerConfig(16, 2, 32, 1, 1, dropout=0.0).build(20, 20).eval().requires_grad_(False)
    source = torch.tensor([[5, 6, 7, 3]])
    first, state = model.searching(source)
    again, _ = model.searching(source)
    assert again is first, "made once while nothing changes"
    with torch.no_grad():
        before, _ = first(torch.tensor([2]), state)
        model.output.weight.mul_(2)
    model.requires_grad_(False)
    changed, state = model.searching(source)
    after, _ = changed(torch.tensor([2]), state)
    assert changed is not first
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, model.step(torch.tensor([2]), model.begin(source))[0])
    model.requires_grad_(True)
    assert model.searching(source)[0] is not model.searching(source)[0], "weights that learn change without a trace"
    kept = model.requires_grad_(False).searching(source)[0]
    for change in (
        lambda: model.load_state_dict(model.state_dict()),
        lambda: model.double().float(),
        lambda: model.train().eval(),
    ):
        change()
        kept, before = model.searching(source)[0], kept
        assert kept is not before
    copied = copy.deepcopy(model.requires_grad_(False))
    copied.searching(source)
    copied.output.weight.data = torch.zeros_like(copied.output.weight)
    copied.requires_grad_(False)
    step, state = copied.searching(source)
    torch.testing.assert_close(
        step(torch.tensor([2]), state)[0], copied.step(torch.tensor([2]), copied.begin(source))[0]
    )
