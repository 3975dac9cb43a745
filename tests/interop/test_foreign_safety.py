"""`capture` on models that are not ours: other threads see nothing, nothing is left, and one's own module joins in."""

import threading
import time
from contextvars import copy_context
from types import FunctionType

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import _len_torch_function_stack

import sightline
from foreign_models import build, inputs
from sightline import capture, uniform
from sightline.attention import MultiHeadConfig
from sightline.attention.tap import active_taps
from sightline.explain import intercept
from sightline.explain.intercept import may_be_foreign


@pytest.fixture(autouse=True)
def _nothing_left():
    yield
    assert _len_torch_function_stack() == 0
    assert active_taps() == ()


def test_other_threads_see_nothing():
    """One thread captures, others use the same model at the same time: their results and fast paths stay theirs."""
    model, given = build("bert"), inputs("bert")
    layer, x = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), torch.randn(2, 5, 16)
    with torch.no_grad():
        expected, fast = model(**given)[0], layer(x)
    with capture(model) as alone, torch.no_grad():
        model(**given)
    failures, barrier = [], threading.Barrier(3)

    def watching():
        barrier.wait()
        for _ in range(20):
            with torch.no_grad(), capture(model, change=uniform) as trace, capture(layer):
                model(**given)
                layer(x)
            if len(trace.maps) != len(alone.maps):
                failures.append("a map too many")

    def bystander():
        barrier.wait()
        for _ in range(40):
            with torch.no_grad():
                if _len_torch_function_stack() or not torch.equal(model(**given)[0], expected):
                    failures.append("changed for another thread")
                if not torch.equal(layer(x), fast):
                    failures.append("the fast path of another thread")

    threads = [threading.Thread(target=watching), *(threading.Thread(target=bystander) for _ in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_nothing_is_changed_and_nothing_is_left():
    """Also after an error in the middle of a layer."""
    model, given = build("gpt2"), inputs("gpt2")

    def everything():
        hooks = [
            len(found)
            for module in model.modules()
            for found in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        ]
        attributes = [sorted(vars(module)) for module in model.modules()]
        return hooks, attributes, model.config._attn_implementation, model.config.to_dict()

    before = everything()
    fused = F.scaled_dot_product_attention, F.multi_head_attention_forward, F.softmax

    def fail(site, look):
        assert everything() == before, "inside the block too"
        if site.layer == 1:
            raise ZeroDivisionError
        return look.weights

    with pytest.raises(ZeroDivisionError), torch.no_grad(), capture(model, change=fail):
        model(**given)
    assert everything() == before
    assert fused == (F.scaled_dot_product_attention, F.multi_head_attention_forward, F.softmax)
    assert _len_torch_function_stack() == 0
    with capture(model) as trace:
        pass
    model(**given)
    assert trace.maps == []


def test_captures_that_end_out_of_turn():
    """As tasks of `asyncio` do that take turns in one thread."""
    model, given = build("bert"), inputs("bert")
    tasks, captures = [copy_context() for _ in range(2)], [capture(model) for _ in range(2)]
    traces = [task.run(one.__enter__) for task, one in zip(tasks, captures, strict=True)]
    with torch.no_grad():
        model(**given)  # of no task
        tasks[0].run(captures[0].__exit__, None, None, None)
        tasks[1].run(model, **given)
    tasks[1].run(captures[1].__exit__, None, None, None)
    assert [len(trace.maps) for trace in traces] == [0, 2]


def test_other_models_are_not_seen():
    model, other, given = build("bert"), build("bert"), inputs("bert")
    with torch.no_grad(), capture(model) as trace, capture(other) as second:
        other(**given)
    assert (trace.maps, len(second.maps)) == ([], 2)
    assert not may_be_foreign(MultiHeadConfig(heads=2).build(8))


class Own(nn.Module):
    """Somebody's own attention, which joins in with one call."""

    def forward(self, x, scores_too=True):
        scores = (x @ x.transpose(-2, -1)).masked_fill(torch.ones(x.shape[-2], x.shape[-2]).triu(1).bool(), -1e9)
        allowed = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        weights = torch.softmax(scores, dim=-1)
        return sightline.show_attention(self, weights, scores if scores_too else None, allowed=allowed) @ x


@pytest.mark.parametrize("shape", [(4, 8), (2, 4, 8), (2, 3, 4, 8)])
@pytest.mark.parametrize("scores_too", [True, False])
def test_a_module_of_ones_own_joins_with_one_call(shape, scores_too):
    model, x = nn.ModuleDict({"own": Own()}), torch.randn(shape)
    expected = model["own"](x)
    with capture(model, scores=True) as trace:
        for _ in range(2):
            torch.testing.assert_close(model["own"](x, scores_too), expected)
    assert (trace.names, len(trace.maps)) == (["own"], 2)
    assert trace.maps[0].weights.shape[1] == (3 if len(shape) == 4 else 1)
    torch.testing.assert_close(torch.softmax(trace.maps[0].scores, dim=-1), trace.maps[0].weights)
    with capture(model, change=uniform):
        found = model["own"](x)
    torch.testing.assert_close(found, x.cumsum(-2) / torch.arange(1, 5)[:, None])


def test_outside_the_block_nothing_is_slower():
    """The calls are PyTorch's own again; time is measured in benchmarks/foreign.py, here only that it is not twice."""
    model, given = build("bert"), inputs("bert")

    def fastest():
        times = []
        for _ in range(30):
            begun = time.perf_counter()
            model(**given)
            times.append(time.perf_counter() - begun)
        return min(times)

    with torch.no_grad():
        before = fastest()
        with capture(model):
            model(**given)
        assert fastest() < 2 * before


def test_training_with_checkpointing_is_not_disturbed():
    """Checkpointing runs a layer twice and counts what its graph keeps: what is only looked at keeps nothing there."""
    model = build("bert").train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    torch.manual_seed(0)
    model(**inputs("bert"))[0].sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    torch.manual_seed(0)
    with capture(model) as trace:
        model(**inputs("bert"))[0].sum().backward()
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert trace.maps
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_change_has_its_gradient():
    model = build("bert").train()
    with capture(model, change=lambda site, look: look.weights * 1.0):
        model(**inputs("bert"))[0].sum().backward()
    query = next(module for name, module in model.named_modules() if name.endswith("query"))
    assert query.weight.grad.abs().sum() > 0


def test_a_capture_closed_in_another_thread_does_not_blind_it():
    model, given = build("bert"), inputs("bert")
    left = capture(model)
    entering = threading.Thread(target=left.__enter__)
    entering.start()
    entering.join()
    with pytest.raises(ValueError, match="different Context"):
        left.__exit__(None, None, None)
    with capture(model) as trace, torch.no_grad():
        model(**given)
    assert trace.maps


def test_autocast_leaves_the_weights_fine():
    model, given = build("bert"), inputs("bert")
    with capture(model) as trace, torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        model(**given)
    for found in trace.maps:
        assert found.weights.dtype == torch.float32
        assert (found.weights.sum(dim=-1) - 1).abs().max() < 1e-5


@pytest.mark.parametrize("keys", [0, 3])
def test_odd_calls_go_through(keys):
    class Odd(nn.Module):
        def forward(self, query, memory):
            return F.scaled_dot_product_attention(query, memory, memory, enable_gqa=True)

    model, query, memory = Odd(), torch.randn(4, 5, 8), torch.randn(2, keys, 8)
    expected = model(query, memory)
    with capture(model):
        torch.testing.assert_close(model(query, memory), expected, equal_nan=True)


def test_a_renamed_guard_of_pytorch_is_not_intercepted_and_said_once(monkeypatch):
    """Another version may ask `has_torch_function` by another name: a copy of its code would call itself endlessly."""
    forward = F.multi_head_attention_forward
    names = tuple("renamed" if name == "has_torch_function" else name for name in forward.__code__.co_names)
    renamed = FunctionType(
        forward.__code__.replace(co_names=names), {**vars(F), "renamed": torch.overrides.has_torch_function}
    )
    assert intercept.unguarded(forward) is not None
    assert intercept.unguarded(renamed) is None
    monkeypatch.setattr(intercept, "_multi_head", intercept.unguarded(renamed))
    intercept._warn_unseen.cache_clear()
    model, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(1, 3, 8)
    expected = model(x, x, x)[0]
    with capture(model) as trace:
        with pytest.warns(UserWarning, match="MultiheadAttention is not captured"):
            output = model(x, x, x)[0]
        model(x, x, x)  # a second warning would be an error
    torch.testing.assert_close(output, expected)
    assert not trace.names
    intercept._warn_unseen.cache_clear()
