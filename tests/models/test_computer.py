"""The Differentiable Neural Computer, held to a transcription of its formulas through whole episodes."""

import numpy as np
import pytest
import torch

from episodes import Control, check_batches, check_nothing_kept, cosines, episode, sigmoid, softmax, softplus
from sightline import kernels
from sightline.errors import MachineError
from sightline.explain.capture import capture, cut
from sightline.kernels import links as kernel
from sightline.machine import peak_memory, whole_memory
from sightline.models.computer import Links, NeuralComputerConfig, allocation, linked, used
from sightline.models.vector_writer import TargetShape
from sightline.nn.series import SeriesShape

KINDS = {
    "lstm": {},
    "feed-forward": {"controller": "feed_forward"},
    "several heads": {"read_heads": 3},
}


def computer(seed=1, **fields):
    torch.manual_seed(seed)
    config = NeuralComputerConfig(**{"answers": "after", "slots": 5, "width": 4, "size": 6} | fields)
    model = config.build(SeriesShape((3,)), TargetShape(2, True)).double()
    with torch.no_grad():  # gates and modes that are far from even
        for head in (model.read.head, model.write.head):
            head.weight *= 4
            head.bias *= 4
    return model


def by_formulas(model, inputs):
    """Features of one row, by Graves et al. 2016, the equations of their methods: plain loops."""
    control = Control(model)
    weights, config = control.weights, model.config
    slots, width, heads = config.slots, config.width, config.read_heads
    memory = np.full((slots, width), 1e-6)
    usage, precedence, link = np.zeros(slots), np.zeros(slots), np.zeros((slots, slots))
    written, read = np.zeros(slots), np.zeros((heads, slots))
    reads, features = weights["first_reads"], []
    for x in inputs:
        hidden = control(x, reads)

        def asked(kind, hidden=hidden):
            maps, biases = weights[f"{kind}.head.weight"], weights[f"{kind}.head.bias"][:, 0]
            return [hidden @ own + bias for own, bias in zip(maps, biases, strict=True)]

        def content(raw, memory):
            return softmax((1 + softplus(raw[width])) * cosines(raw[:width], memory))

        reading, (writing,) = asked("read"), asked("write")
        kept = np.ones(slots)
        for head in range(heads):
            kept = kept * (1 - sigmoid(reading[head][-1]) * read[head])
        usage = (usage + written - usage * written) * kept
        order, free, before = np.argsort(np.round(usage * 4096), kind="stable"), np.zeros(slots), 1.0
        for place in order:
            free[place] = (1 - usage[place]) * before
            before *= usage[place]
        gate, allocates = sigmoid(writing[-2]), sigmoid(writing[-1])
        written = gate * (allocates * free + (1 - allocates) * content(writing, memory))
        erase, add = np.split(weights["content.weight"] @ hidden + weights["content.bias"], 2)
        memory = memory * (1 - np.outer(written, sigmoid(erase))) + np.outer(written, add)
        new = np.zeros((slots, slots))
        for i in range(slots):
            for j in range(slots):
                if i != j:
                    new[i, j] = (1 - written[i] - written[j]) * link[i, j] + written[i] * precedence[j]
        link = new
        precedence = (1 - written.sum()) * precedence + written
        last, read = read, np.zeros((heads, slots))
        for head in range(heads):
            by_content, back, forward = softmax(reading[head][width + 1 : width + 4])
            read[head] = by_content * content(reading[head], memory)
            read[head] += back * (link.T @ last[head]) + forward * (link @ last[head])
        reads = (read @ memory).reshape(-1)
        features.append(np.concatenate([hidden, reads]))
    return np.array(features)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_episode_is_that_of_the_formulas(kind):
    model = computer(**KINDS[kind])
    source, target = episode()
    schedule = model.schedule(source, target.lengths)
    features = model.features(schedule.inputs).detach().numpy()
    for row in range(3):
        expected = by_formulas(model, schedule.inputs[row].numpy())
        np.testing.assert_allclose(features[row], expected, rtol=1e-9, atol=1e-12)


def test_gradients_are_those_of_finite_differences():
    """Through all that goes from step to step: usage, links, weights, what was read. The memory is filled after some
    steps, so that all of it is far from its start."""
    model = computer(read_heads=2, slots=3, width=2, size=3)
    inputs = torch.randn(1, 7, 4, dtype=torch.float64, requires_grad=True)
    weights = tuple(model.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: model.features(x), (inputs, *weights), atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_different_lengths_equals_one_by_one(kind):
    check_batches(computer(**KINDS[kind]))


def test_nothing_is_kept_between_calls():
    check_nothing_kept(computer())


def test_it_writes_to_free_slots_and_goes_through_them_in_the_order_of_writing():
    links = Links(torch.zeros(1, 4), torch.zeros(1, 4), torch.zeros(1, 4, 4))
    nothing, keeps, frees = torch.zeros(1, 1, 4), torch.full((1, 1, 1), -50.0), torch.full((1, 1, 1), 50.0)
    written, order, slot = torch.zeros(1, 4), list[int](), torch.eye(4)
    for _ in range(3):
        usage = used(links.usage, written, nothing, keeps)
        written = allocation(usage)
        order.append(int(written.argmax()))
        assert float(written.max()) > 0.99
        links = linked(links, usage, written)
    assert order == [0, 1, 2]
    forward = links.after[0] @ slot[0]
    assert forward.argmax() == 1
    assert (links.after[0] @ forward).argmax() == 2
    assert (links.after[0].T @ slot[2]).argmax() == 1
    usage = used(links.usage, written, slot[None, 1:2], frees)  # read and freed: it is the first of two free slots
    assert allocation(usage).argmax() == 1


@torch.no_grad()
def test_capture_sees_every_step_and_changes_weights():
    model, (source, target) = computer(read_heads=2), episode(rows=1)
    plain = model.loss(source, target).total
    with capture(model, scores=True) as trace:
        assert float(model.loss(source, target).total) == pytest.approx(float(plain), rel=1e-9)
    assert {name: trace[name].weights.shape for name in trace.names} == {"write": (1, 1, 8, 5), "read": (1, 2, 8, 5)}
    assert float(trace["read"].weights.sum(-1).max()) <= 1 + 1e-9
    assert float(trace["read"].scores.std()) > 0.1
    with capture(model, change=cut("read", head=1)) as cutting:
        assert float(model.loss(source, target).total) != pytest.approx(float(plain), rel=1e-6)
    assert not cutting["read"].weights[:, 1].any()


@pytest.mark.unchecked_shapes  # wrong values are given on purpose
def test_wrong_settings_are_one_sentence():
    for fields, message in (
        ({"slots": 2049}, "slots is 2,049; it must be at most 2,048"),
        ({"controller": "gru"}, "controller is 'gru'; it is one of lstm, feed_forward"),
        ({"read_heads": 0}, "read_heads is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            NeuralComputerConfig(**fields)


@pytest.mark.skipif(not kernel.supported(), reason="kernels are switched off")
def test_the_kernel_keeps_the_links_once():
    after, last, written = torch.rand(3, 40, 40), torch.rand(3, 40), torch.rand(3, 40)
    kept = {}
    for name in ("fast", "reference"):
        sizes = list[int]()
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()), lambda x: x):
            getattr(kernel, name)(*(one.clone().requires_grad_() for one in (after, last, written)))
        kept[name] = sum(sizes) / after.numel()
    assert kept["fast"] < 1.1
    assert kept["reference"] > 1.9


def test_it_trains_in_bfloat16(monkeypatch):
    """With and without the kernel, to the precision of these numbers."""
    model, gradients = computer(read_heads=2).float(), []
    for on in (True, False):
        monkeypatch.setattr(kernels, "_on", on)
        with torch.autocast("cpu", torch.bfloat16):
            features = model.features(torch.linspace(-1, 1, 32).view(2, 4, 4))
        (gradient,) = torch.autograd.grad(features.float().square().sum(), model.content.weight)
        gradients.append(gradient)
    torch.testing.assert_close(*gradients, rtol=0.1, atol=0.02)


def test_links_that_do_not_fit_into_memory_are_refused(monkeypatch):
    model, (source, target) = computer(), episode()
    rows, steps = model.schedule(source, target.lengths).inputs.shape[:2]
    needed = 2 * rows * steps * 5**2 * 8
    monkeypatch.setattr("sightline.models.computer.whole_memory", lambda: needed)
    model.loss(source, target)
    monkeypatch.setattr("sightline.models.computer.whole_memory", lambda: needed - 1)
    with pytest.raises(
        MachineError, match=r"between 5 slots take up to .* lower model.slots, batch_rows or batch_tokens"
    ):
        model.loss(source, target)
    with torch.no_grad():  # nothing is kept
        model.loss(source, target)
    monkeypatch.setattr("sightline.models.computer.whole_memory", lambda: None)
    model.loss(source, target)


def test_the_whole_memory_is_that_of_the_container(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr("sightline.machine.CONTAINER_LIMIT", limit)
    whole, peak = whole_memory(), peak_memory()
    assert whole is None or peak is None or whole > peak
    for content, expected in (("max\n", whole), ("1048576\n", 1048576)):
        limit.write_text(content)
        assert whole_memory() == expected


@torch.no_grad()
def test_an_item_writes_to_the_same_slots_alone_and_among_copies():
    """Slots that were never chosen differ by rounding alone, which is another one in a batch."""
    model = computer(slots=32, width=8, size=24).float()
    inputs = torch.randn(6, 12, 4)
    batches = {"alone": [inputs[row : row + 1] for row in range(6)], "together": [inputs]}
    batches["copies"] = [inputs[row : row + 1].repeat(7, 1, 1) for row in range(6)]
    written = {}
    for name, some in batches.items():
        states = [model.begin(len(one)) for one in some]
        steps = []
        for number in range(12):
            states = [model.step(one[:, number], state)[1] for one, state in zip(some, states, strict=True)]
            steps.append(torch.cat([state.writing.weights[:, 0] for state in states]))
        written[name] = torch.stack(steps, dim=1)
    assert (written["alone"].max(dim=-1).values > 0.1).any()
    torch.testing.assert_close(written["together"], written["alone"], rtol=0, atol=1e-4)
    torch.testing.assert_close(written["copies"], written["alone"].repeat_interleave(7, dim=0), rtol=0, atol=1e-4)
