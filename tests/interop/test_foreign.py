"""`capture` on models that are not ours: the same weights as their slow paths give, and nothing left behind."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _len_torch_function_stack

from foreign_models import CONFIGS, attentions, build, inputs
from sightline import capture, cut, uniform
from sightline.attention import MultiHeadConfig, Tap, open_tap
from sightline.attention.tap import active_taps
from sightline.explain.intercept import may_be_foreign

PADDED = [(name, padded) for name in CONFIGS for padded in (False, True) if not (name == "vit" and padded)]


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    assert _len_torch_function_stack() == 0
    assert active_taps() == ()


@pytest.mark.parametrize(("name", "padded"), PADDED)
@torch.no_grad()
def test_the_weights_are_those_of_the_eager_model(name, padded):
    model, eager, given = build(name), build(name, "eager"), inputs(name, padded)
    expected = eager(**given, output_attentions=True)
    with capture(model) as trace:
        found = model(**given)
    assert torch.equal(found[0], model(**given)[0]), "the fused result is what the model reads"
    assert len(trace.maps) == len(attentions(expected))
    for one, weights in zip(trace.maps, attentions(expected), strict=True):
        assert (one.weights - weights).abs().max() < 1e-5
    assert max(one.weights.amax(dim=-1).mean() for one in trace.maps) > 0.2, "the comparison says something"
    with capture(eager) as slow:
        eager(**given)
    assert slow.names == trace.names
    for one, weights in zip(slow.maps, attentions(expected), strict=True):
        assert torch.equal(one.weights, weights)


def test_names_say_where_in_the_model():
    model = build("t5")
    with torch.no_grad(), capture(model, scores=True) as trace:
        model(**inputs("t5", padded=True))
    assert trace.names[0] == "encoder.block.0.layer.0.SelfAttention"
    assert trace.names[-1] == "decoder.block.1.layer.1.EncDecAttention"
    for one in trace.maps:
        torch.testing.assert_close(torch.softmax(one.scores, dim=-1), one.weights)
    assert (trace[trace.names[-1]].scores[1, :, :, 7:] == -torch.inf).all(), "padding is hidden"


MULTI = {
    "self": {},
    "padded": {"key_padding_mask": torch.tensor([[False] * 7, [False] * 5 + [True] * 2])},
    "causal": {"attn_mask": nn.Transformer.generate_square_subsequent_mask(7), "is_causal": True},
    "bool mask": {"attn_mask": torch.ones(7, 7, dtype=torch.bool).triu(1)},
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("case", [*MULTI, "cross"])
@torch.no_grad()
def test_multihead_attention(case, batch_first, training):
    """In evaluation it would take a fused path of its own; inside the block it must not."""
    attention = nn.MultiheadAttention(16, 4, batch_first=batch_first).train(training)
    x, y = torch.randn(2, 7, 16) * 3, torch.randn(2, 7 if case != "cross" else 5, 16)
    x, y = (x, y) if batch_first else (x.transpose(0, 1), y.transpose(0, 1))
    sides = (x, y, y) if case == "cross" else (x, x, x)
    options = MULTI.get(case, {})
    result, expected = attention(*sides, **options, average_attn_weights=False)
    for need_weights in (False, True):
        with capture(attention) as trace:
            found, given = attention(*sides, **options, need_weights=need_weights, average_attn_weights=False)
        torch.testing.assert_close(found, result)
        assert trace.names == ["attention"]
        torch.testing.assert_close(trace.maps[0].weights, expected)
        if need_weights:
            torch.testing.assert_close(given, expected)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
@torch.no_grad()
def test_transformer_in_evaluation(norm_first):
    model = nn.Transformer(16, 4, 2, 2, 32, batch_first=True, norm_first=norm_first).eval()
    model.encoder.enable_nested_tensor = model.encoder.use_nested_tensor = False
    x, y, padding = torch.randn(2, 7, 16), torch.randn(2, 5, 16), MULTI["padded"]["key_padding_mask"]
    more = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(5),
        "src_key_padding_mask": padding,
        "memory_key_padding_mask": padding,
    }
    expected = model(x, y, **more)
    with capture(model) as trace:
        found = model(x, y, **more)
    torch.testing.assert_close(found, expected)
    assert trace.names[:2] == ["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"]
    assert trace.names[2:4] == ["decoder.layers.0.self_attn", "decoder.layers.0.multihead_attn"]
    # The first layer by hand: its input is known.
    layer = model.encoder.layers[0]
    inside = layer.norm1(x) if norm_first else x
    by_hand = layer.self_attn(inside, inside, inside, key_padding_mask=padding, average_attn_weights=False)[1]
    torch.testing.assert_close(trace.maps[0].weights, by_hand)
    for one in trace.maps:
        torch.testing.assert_close(one.weights.sum(-1), torch.ones(one.weights.shape[:3]))
    assert (trace["decoder.layers.1.multihead_attn"].weights[1, :, :, 5:] == 0).all()
    assert (trace["decoder.layers.1.self_attn"].weights.triu(1) == 0).all()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ["bert", "llama"])
@torch.no_grad()
def test_only_the_layers_and_heads_asked_for(name, attention, monkeypatch):
    model, given = build(name, attention), inputs(name, padded=True)
    with capture(model) as whole:
        model(**given)
    shown = []
    monkeypatch.setattr("sightline.explain.intercept.show", lambda look: shown.append(look) or look.weights)
    with capture(model, layers=[1], heads=[3, 0]) as trace:
        model(**given)
    assert [(look.weights.shape[1], look.numbers) for look in shown] == [(2, (0, 3))], "no other weights are made"
    monkeypatch.undo()
    with capture(model, layers=["*.1.*"], heads=[3, 0], scores=True) as trace:
        model(**given)
    assert trace.names == [whole.names[1]]
    assert trace.maps[0].layer == 1
    torch.testing.assert_close(trace.maps[0].weights, whole.maps[1].weights[:, [0, 3]])
    assert [record.head for record in trace.records()] == [0, 3]


@torch.no_grad()
def test_nested_captures_each_get_what_they_asked_for():
    model, given = build("bert"), inputs("bert")
    with capture(model, heads=[1]) as outer, capture(model, layers=[0], heads=[2], top=2) as inner:
        model(**given)
    with capture(model) as whole:
        model(**given)
    assert ([one.heads for one in outer.maps], [one.heads for one in inner.maps]) == ([(1,), (1,)], [(2,)])
    torch.testing.assert_close(outer.maps[1].weights, whole.maps[1].weights[:, [1]])
    torch.testing.assert_close(inner.maps[0].largest[0], whole.maps[0].weights[:, [2]].topk(2).values)


@torch.no_grad()
def test_ours_can_be_asked_for_some_too():
    model = nn.ModuleList(MultiHeadConfig(heads=4).build(8) for _ in range(2))
    x = torch.randn(2, 5, 8)
    with capture(model, layers=["1"], heads=[2]) as trace, capture(model) as whole:
        for layer in model:
            layer(x, layer.remember(x))
    assert (trace.names, whole.names) == (["1"], ["0", "1"])
    assert torch.equal(trace["1"].weights, whole["1"].weights[:, [2]])
    assert trace.records()[0].head == 2


def test_what_was_asked_for_and_is_not_there_is_named():
    model, given = build("bert"), inputs("bert")
    with (
        pytest.raises(ValueError, match=r"layers: no attention number 7 ran; there is encoder\.layer\.0"),
        capture(model, layers=[0, 7]),
    ):
        model(**given)
    with pytest.raises(ValueError, match="layers: no attention named 'decoder"), capture(model, layers=["decoder.*"]):
        model(**given)
    with (
        pytest.raises(ValueError, match=r"attention\.self' has 4 heads; there is no head 4"),
        capture(model, heads=[4]),
    ):
        model(**given)
    with (
        pytest.raises(ValueError, match=r"cut: no attention named 'nowhere' ran; there is encoder"),
        capture(model, change=cut("nowhere", 0)),
    ):
        model(**given)


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "llama"])
@torch.no_grad()
def test_the_largest_are_kept_in_blocks_of_rows(name):
    model, given = build(name), inputs(name, padded=True)
    with capture(model) as whole:
        expected = model(**given)[0]
    sizes = []

    class Watching(Tap):
        def __call__(self, look):
            sizes.append(look.weights.numel())
            return look.weights

    with capture(model, top=3) as trace, open_tap(Watching()):
        trace.largest = 200  # two rows at a time
        assert torch.equal(model(**given)[0], expected)
    assert max(sizes) <= 200
    assert len(sizes) > len(trace.maps)
    for one, full in zip(trace.maps, whole.maps, strict=True):
        torch.testing.assert_close(one.largest[0], full.weights.topk(3).values)


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_what_is_read_follows_changed_weights(name):
    """The fused and the eager model, both with one head cut, in blocks or not; and all attention made uniform."""
    model, eager, given = build(name), build(name, "eager"), inputs(name, padded=name != "vit")
    last = 7 if name not in ("vit", "t5", "marian") else None  # rows of padding read nothing sensible
    with capture(model) as trace:
        before = model(**given)[0]
    site = trace.names[1]
    for change in (cut(site, 2), uniform):
        found = []
        for one, top in ((model, None), (model, 1), (eager, None)):
            with capture(one, top=top, change=change) as trace:
                trace.largest = None if top is None else 200
                found.append(one(**given)[0])
            assert change is uniform or (trace[site].weights[:, 2] == 0).all()
        torch.testing.assert_close(found[0][:, :last], found[2][:, :last], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
        assert (found[0] - before).abs().max() > 1e-3
    assert torch.equal(model(**given)[0], before)


@torch.no_grad()
def test_uniform_multihead_attention_reads_the_mean():
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True, bias=False), torch.randn(2, 7, 8)
    padding = MULTI["padded"]["key_padding_mask"]
    values = x @ attention.in_proj_weight[16:].T
    mean = torch.stack([values[0].mean(0), values[1, :5].mean(0)]) @ attention.out_proj.weight.T
    for need_weights in (False, True):
        with capture(attention, change=uniform):
            found = attention(x, x, x, key_padding_mask=padding, need_weights=need_weights)[0]
        torch.testing.assert_close(found, mean[:, None].expand_as(x))


def test_gradients_flow_through_changed_weights_and_unchanged_ones():
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8, requires_grad=True)

    def gradient(**options):
        with capture(attention, **options):
            (found,) = torch.autograd.grad(attention(x, x, x, need_weights=False)[0].square().sum(), x)
        return found

    (expected,) = torch.autograd.grad(attention(x, x, x, need_weights=False)[0].square().sum(), x)
    torch.testing.assert_close(gradient(), expected)
    torch.testing.assert_close(gradient(change=lambda site, look: look.weights * 1.0), expected)


def test_dropout_in_training_stays_as_it_is():
    """The same random numbers give the same output as without the block; the weights are those before dropout."""
    model, given = build("bert").train(), inputs("bert")
    torch.manual_seed(5)
    expected = model(**given)[0]
    torch.manual_seed(5)
    with capture(model) as trace:
        found = model(**given)[0]
    assert torch.equal(found, expected)
    assert (trace.maps[0].weights > 0).all()
    torch.testing.assert_close(trace.maps[0].weights.sum(-1), torch.ones(2, 4, 11))


def test_rows_that_may_see_nothing_have_no_weight():
    class Fused(nn.Module):
        def forward(self, x, mask):
            return F.scaled_dot_product_attention(x, x, x, mask)

    model, x = Fused(), torch.randn(2, 3, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[1] = False
    hidden = torch.zeros(4, 4).masked_fill(~mask, -torch.inf)
    for one in (mask, hidden):
        with capture(model) as trace:
            found = model(x, one)
        assert (trace.maps[0].weights[:, :, 1] == 0).all()
        torch.testing.assert_close(trace.maps[0].weights @ x, found)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 5, 8), (2, 2, 3, 5, 8)])
def test_any_shape_and_precision_of_a_strangers_fused_attention(shape, kind):
    class Stranger(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=0.7)

    model, x = Stranger(), torch.randn(shape).to(kind)
    assert may_be_foreign(model)
    with capture(model) as trace:
        found = model(x)
    weights = trace.maps[0].weights
    assert weights.shape[1] == (shape[-3] if len(shape) > 3 else 1)
    exact = weights.reshape(*shape[:-1], shape[-2]).double() @ x.double()
    torch.testing.assert_close(exact, found.double(), rtol=0, atol=0.02 if kind == torch.bfloat16 else 1e-12)
    with capture(model, change=lambda site, look: look.weights * 1.0):
        torch.testing.assert_close(
            model(x).double(), found.double(), rtol=0, atol=0.02 if kind == torch.bfloat16 else 1e-12
        )


def test_a_capture_that_recorded_nothing_says_so(caplog):
    model = nn.Linear(2, 2)
    with capture(model) as trace:
        model(torch.zeros(1, 2))
    assert not trace.names
    assert "no attention ran that capture can record" in caplog.text
