"""The Neural Turing Machine, held to a transcription of its formulas through whole episodes."""

import numpy as np
import pytest
import torch

from episodes import Control, check_batches, check_nothing_kept, cosines, episode, sigmoid, softmax, softplus
from sightline.explain.capture import capture
from sightline.kernels import turing as kernel
from sightline.models.turing import TuringMachineConfig
from sightline.models.vector_writer import TargetShape
from sightline.nn.series import SeriesShape

KINDS = {
    "lstm": {},
    "feed-forward": {"controller": "feed_forward"},
    "several heads": {"read_heads": 2, "write_heads": 3},
    "learned memory": {"first_memory": "learned"},
}


def machine(seed=1, **fields):
    torch.manual_seed(seed)
    config = TuringMachineConfig(answers="after", slots=7, width=4, size=6, **fields)
    return config.build(SeriesShape((3,)), TargetShape(2, True)).double()


def addressed(raw, memory, last, width):
    """Graves et al. 2014, equations 5 to 9, for one head: plain loops."""
    key, strength, gate = raw[:width], softplus(raw[width]), sigmoid(raw[width + 1])
    shift, sharp = softmax(raw[width + 2 : width + 5]), 1 + softplus(raw[-1])
    mixed = gate * softmax(strength * cosines(key, memory)) + (1 - gate) * last
    slots = len(memory)
    turned = [sum(mixed[(i - j) % slots] * shift[j + 1] for j in (-1, 0, 1)) for i in range(slots)]
    powers = np.array(turned) ** sharp
    return powers / powers.sum()


def by_formulas(model, inputs):
    """Features of one row, as the paper has it: erase, add, then read."""
    control = Control(model)
    weights, config = control.weights, model.config
    width, heads = config.width, {"read": config.read_heads, "write": config.write_heads}
    memory = weights.get("first_memory", np.full((config.slots, width), 1e-6)).copy()
    last = {kind: [np.eye(config.slots)[0] for _ in range(count)] for kind, count in heads.items()}
    reads, features = weights["first_reads"], []
    for x in inputs:
        hidden = control(x, reads)
        content = (weights["content.weight"] @ hidden + weights["content.bias"]).reshape(2, heads["write"], width)

        def address(kind, memory, hidden=hidden):
            weight, bias = weights[f"{kind}.head.weight"], weights[f"{kind}.head.bias"][:, 0]
            raws = [hidden @ weight[head] + bias[head] for head in range(heads[kind])]
            return [addressed(raw, memory, one, width) for raw, one in zip(raws, last[kind], strict=True)]

        last["write"] = address("write", memory)
        for head, own in enumerate(last["write"]):
            memory = memory * (1 - np.outer(own, sigmoid(content[0, head])))
        for head, own in enumerate(last["write"]):
            memory = memory + np.outer(own, np.tanh(content[1, head]))
        last["read"] = address("read", memory)
        reads = np.concatenate([own @ memory for own in last["read"]])
        features.append(np.concatenate([hidden, reads]))
    return np.array(features)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [kernel.reference, kernel.fast], ids=["reference", "kernel"])
def test_a_whole_episode_is_that_of_the_formulas(kind, steps):
    model = machine(**KINDS[kind])
    source, target = episode()
    schedule = model.schedule(source, target.lengths)
    features = steps(model, schedule.inputs).detach().numpy()
    for row in range(3):
        expected = by_formulas(model, schedule.inputs[row].numpy())
        np.testing.assert_allclose(features[row], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_has_the_gradients_of_the_reference(kind, monkeypatch):
    def gradients():
        model = machine(**KINDS[kind])
        loss = model.loss(*episode()).total
        return [loss, *torch.autograd.grad(loss, list(model.parameters()))]

    fast = gradients()
    monkeypatch.setattr(kernel, "supported", lambda *_: False)
    for one, other in zip(fast, gradients(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("steps", [kernel.reference, kernel.fast], ids=["reference", "kernel"])
def test_gradients_are_those_of_finite_differences(steps):
    model = machine(write_heads=2)
    inputs = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    weights = tuple(model.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: steps(model, x), (inputs, *weights), atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_different_lengths_equals_one_by_one(kind):
    check_batches(machine(**KINDS[kind]))


def test_nothing_is_kept_between_calls():
    check_nothing_kept(machine())


@torch.no_grad()
def test_capture_sees_every_step_of_both_kinds_of_heads():
    model, (source, target) = machine(read_heads=2), episode(rows=1)
    plain = model.loss(source, target).total
    with capture(model) as trace:
        assert float(model.loss(source, target).total) == pytest.approx(float(plain), rel=1e-9)
    assert {name: trace[name].weights.shape for name in trace.names} == {"write": (1, 1, 8, 7), "read": (1, 2, 8, 7)}
    np.testing.assert_allclose(trace["read"].weights.sum(-1), 1, rtol=1e-6)


@pytest.mark.unchecked_shapes  # wrong values are given on purpose
def test_wrong_settings_are_one_sentence():
    for fields, said in (
        ({"slots": 0}, "slots is 0"),
        ({"controller": "gru"}, "controller is 'gru'; it is one of lstm, feed_forward"),
        ({"first_memory": "zero"}, "first_memory is 'zero'"),
        ({"answers": "never"}, "answers is 'never'"),
    ):
        with pytest.raises(ValueError, match=said):
            TuringMachineConfig(**fields)
