"""`capture`: exact, thread-safe, linear in memory with top-k, and a door for interventions."""

import json
import threading

import numpy as np
import pytest
import torch
from torch import nn

from catalogue import mechanisms
from sightline import Cells, Frames, Grid, Record, Slots, Tokens, capture, cut, uniform
from sightline.attention import AttentionConfig, Causal, Look, MultiHeadConfig, PoolingConfig, show
from sightline.attention.tap import active_taps
from sightline.explain.capture import BLOCK
from sightline.records import TopK

pytestmark = pytest.mark.fast


class TwoLayers(nn.Module):
    """Self-attention twice."""

    def __init__(self, heads=2, size=8):
        super().__init__()
        self.layers = nn.ModuleList(MultiHeadConfig(heads=heads).build(size) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x, layer.remember(x), allow=Causal()).context
        return x


def test_names_layers_and_shapes():
    model, x = TwoLayers(), torch.randn(3, 5, 8)
    with capture(model) as trace:
        inside = model(x)
    torch.testing.assert_close(inside, model(x))
    assert trace.names == ["layers.0", "layers.1"]
    assert [found.layer for found in trace.maps] == [0, 1]
    weights = trace["layers.1"].weights
    assert weights.shape == (3, 2, 5, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 5))
    assert (weights.triu(1) == 0).all()
    with pytest.raises(KeyError, match=r"no attention named 'layers.7' was captured; there is layers.0, layers.1"):
        trace["layers.7"]


def test_nothing_is_left_behind():
    model, x = TwoLayers(), torch.randn(3, 5, 8)
    with pytest.raises(ZeroDivisionError), capture(model):
        raise ZeroDivisionError
    assert active_taps() == ()
    with capture(model) as trace:
        pass
    model(x)
    assert trace.maps == []


def test_other_models_are_not_seen():
    model, other, x = TwoLayers(), TwoLayers(), torch.randn(3, 5, 8)
    with capture(model) as outer, capture(other) as inner:
        model(x)
        other(x)
        other(x)
    assert len(outer.maps) == 2
    assert len(inner.maps) == 4


def test_scores_become_the_weights():
    model, x = TwoLayers(), torch.randn(2, 5, 8)
    with capture(model, scores=True) as trace:
        model(x)
    for found in trace.maps:
        torch.testing.assert_close(torch.softmax(found.scores, dim=-1), found.weights)
        assert found.scores[0, 0, 0, 1] == -torch.inf


def test_top_k_keeps_the_largest_in_blocks():
    model, x = TwoLayers(), torch.randn(2, 40, 8)
    with capture(model) as whole:
        expected = model(x)
    with capture(model, top=3) as trace:
        trace.largest = 1000  # a few rows at a time
        found = model(x)
    torch.testing.assert_close(found, expected)
    for name in trace.names:
        values, places = trace[name].largest
        full = whole[name].weights
        best = full.topk(3, dim=-1)
        torch.testing.assert_close(values, best.values)
        assert (places[..., 0, 1:] == -1).all(), "the first row of a causal map has one key"
        torch.testing.assert_close(full[..., 3:, :].gather(-1, places[..., 3:, :].long()), values[..., 3:, :])
        kept = torch.zeros_like(full).scatter(-1, best.indices, best.values)
        torch.testing.assert_close(trace[name].weights, kept)


def test_top_k_memory_stays_far_below_the_whole_map():
    """2,048 × 2,048 weights of 4 heads are 64 MB; the largest tensor that top-k shows is `BLOCK` elements."""
    largest = []

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = MultiHeadConfig(heads=4).build(16)

        def forward(self, x):
            return self.attention(x, self.attention.remember(x)).context

    model = Watching()

    def watch(site, look):
        largest.append(look.weights.numel())
        return look.weights

    with torch.no_grad(), capture(model, top=4, change=watch) as trace:
        model(torch.randn(1, 2048, 16))
    assert max(largest) <= BLOCK
    assert len(largest) > 1
    assert trace.maps[0].largest[0].shape == (1, 4, 2048, 4)


@pytest.mark.slow
def test_two_threads_do_not_see_each_other():
    """Each captures its own pass over the same model, at the same time, many times."""
    model = TwoLayers()
    inputs = [torch.randn(1, n, 8) for n in (4, 9)]
    expected = []
    for x in inputs:
        with capture(model) as trace:
            model(x)
        expected.append(trace["layers.1"].weights)
    failures = []
    barrier = threading.Barrier(3)

    def work(x, wanted):
        barrier.wait()
        for _ in range(50):
            with capture(model) as trace:
                model(x)
            if len(trace.maps) != 2 or not torch.equal(trace["layers.1"].weights, wanted):
                failures.append(len(trace.maps))

    def bystander():
        barrier.wait()
        for _ in range(50):
            if active_taps():
                failures.append("a thread that captures nothing has taps")
            model(inputs[0])

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, expected, strict=True)]
    threads.append(threading.Thread(target=bystander))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_uniform_attention_reads_the_mean():
    attention = AttentionConfig.from_json("additive").build(6)
    x, mask = torch.randn(2, 5, 6), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]).bool()
    with capture(attention, change=uniform) as trace:
        read = attention(x[:, :2], attention.remember(x, mask=mask))
    torch.testing.assert_close(read.context[0, 0], x[0, :3].mean(0))
    torch.testing.assert_close(read.context[1, 1], x[1].mean(0))
    assert trace.maps[0].weights[0, 0, 0].tolist() == pytest.approx([1 / 3] * 3 + [0, 0])


@pytest.mark.parametrize("key_heads", [4, 2])
def test_a_head_that_is_cut_reads_zeros(key_heads):
    attention = MultiHeadConfig(heads=4, key_heads=key_heads, bias=False).build(8)
    x = torch.randn(2, 5, 8)
    with capture(attention, change=cut("attention", 2)) as trace:
        found = attention(x, attention.remember(x)).context
    assert (trace.maps[0].weights[:, 2] == 0).all()
    assert (trace.maps[0].weights[:, 1] != 0).all()
    with torch.no_grad():
        attention.output.weight[:, 4:6] = 0  # what head 2 says is not heard
    torch.testing.assert_close(found, attention(x, attention.remember(x)).context)
    missing = cut("attention", 9)
    with capture(attention, change=missing), pytest.raises(ValueError, match="has 4 heads; there is no head 9"):
        attention(x, attention.remember(x))


def test_a_change_of_the_wrong_shape_is_named():
    attention = AttentionConfig.from_json("dot").build(4)
    x = torch.randn(1, 3, 4)
    message = r"change returned weights of shape \(1, 1, 3\) for 'attention'; expected \(1, 3, 3\)"
    with capture(attention, change=lambda site, look: look.weights[:, :1]), pytest.raises(ValueError, match=message):
        attention(x, attention.remember(x))


@pytest.mark.parametrize("name", ["additive/softmax", "location_aware/softmax", "addressing/softmax"])
def test_decoding_step_by_step_gives_one_map(name):
    """Looks that go on where the last one ended are one map, also when the memory grows; a new pass is a new one."""
    attention = mechanisms()[name].build(6).eval()
    x = torch.randn(2, 4, 6)
    whole = attention(x, attention.remember(x), allow=Causal(), need_weights=True).weights
    with capture(attention) as trace:
        for _ in range(2):
            memory, carry = None, None
            for i in range(4):
                memory = attention.extend(memory, x[:, i : i + 1])
                carry = attention(x[:, i : i + 1], memory, carry, allow=Causal()).carry
    assert len(trace.maps) == 2
    for found in trace.maps:
        torch.testing.assert_close(found.weights[:, 0], whole)


def test_pooling_goes_by_its_own_name():
    model = nn.ModuleDict({"words": PoolingConfig().build(4), "sentences": PoolingConfig().build(4)})
    with capture(model) as trace:
        model["sentences"](model["words"](torch.randn(3, 5, 4)).context.transpose(0, 1))
    assert trace.names == ["words", "sentences"]


def test_a_stranger_joins_with_one_call():
    """Any module that calls `show` before it reads is captured and can be changed."""

    class Stranger(nn.Module):
        def forward(self, x):
            scores = x @ x.transpose(-2, -1)
            weights = show(Look(self, 0, scores, torch.softmax(scores, dim=-1), None))
            return weights @ x

    model, x = nn.Sequential(Stranger()), torch.randn(2, 3, 4)
    with capture(model, change=uniform) as trace:
        found = model(x)
    assert trace.names == ["0"]
    torch.testing.assert_close(found, x.mean(dim=1, keepdim=True).expand_as(x))


AXES = [Tokens(("a", "$b", "猫", "<i>")), Grid(2, 2), Frames(4, 0.01), Slots(4), Cells(("x", "y"), 2)]


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: type(axis).__name__)
@pytest.mark.parametrize("top", [None, 2])
def test_records_are_plain_and_survive_json(axis, top):
    attention = MultiHeadConfig(heads=2).build(8)
    x = torch.randn(3, 6, 8)
    with capture(attention, top=top, scores=top is None) as trace:
        attention(x, attention.remember(x), allow=Causal())
    records = trace.records(example=1, rows=axis, columns=axis)
    assert [record.head for record in records] == [0, 1]
    for record in records:
        again = Record.from_json(json.loads(json.dumps(record.to_json())))
        assert (again.rows, again.columns, again.name, again.head) == (axis, axis, "attention", record.head)
        np.testing.assert_array_equal(again.matrix(), record.matrix())
        np.testing.assert_allclose(
            record.matrix(), trace.maps[0].weights[1, record.head, :4, :4].detach().numpy(), atol=1e-7
        )
        assert isinstance(record.weights, TopK) == (top is not None)
        if record.scores is not None:
            np.testing.assert_array_equal(again.scores, record.scores)


def test_axes_that_do_not_fit_are_named():
    attention = AttentionConfig.from_json("dot").build(4)
    x = torch.randn(1, 3, 4)
    with capture(attention) as trace:
        attention(x, attention.remember(x))
    with pytest.raises(ValueError, match="attention has 3 rows and 3 columns, and the axes 9, 3"):
        trace.records(rows=Slots(9))
    with pytest.raises(ValueError, match=r"weights has shape \(2, 2\); the axes have 1 rows, 2 columns"):
        Record("x", 0, 0, Slots(1), Slots(2), np.zeros((2, 2)))


def test_bfloat16_maps_become_numpy():
    attention = MultiHeadConfig(heads=2).build(8).bfloat16()
    x = torch.randn(1, 3, 8).bfloat16()
    with capture(attention) as trace:
        attention(x, attention.remember(x))
    assert trace.records()[0].matrix().dtype == np.float32
