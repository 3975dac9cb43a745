"""One layer, repeated: against the layer by hand, one sequence at a time, and with positions that have halted."""

import pytest
import torch

from sightline import capture
from sightline.attention import Causal
from sightline.kernels import transformer_search, unpadded
from sightline.nn.annotating import sinusoids
from sightline.nn.thinking import AdaptiveConfig, FixedRepeatsConfig, PonderingConfig
from sightline.nn.transformer import LayerShape
from sightline.nn.universal import UniversalEncoder, mean_over_positions

pytestmark = pytest.mark.fast

SIZE, LENGTHS = 8, (5, 2, 1)
THINKING = {"fixed": FixedRepeatsConfig(3), "act": AdaptiveConfig(most=5), "ponder": PonderingConfig(most=5)}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)  # positions of one sequence differ in their repeats


def encoder(thinking, norm="pre", allow=None):
    one = UniversalEncoder(LayerShape(SIZE, 2, 12, 0.0, norm), thinking, allow).double()
    if not isinstance(thinking, FixedRepeatsConfig):
        with torch.no_grad():  # so that positions differ
            one.thinking.halt.weight.zero_()
            one.thinking.halt.weight[0, 0] = 4.0
            one.thinking.halt.bias.fill_(-1.0)
    return one


def batch():
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)
    return torch.randn(len(LENGTHS), max(LENGTHS), SIZE, dtype=torch.float64), mask


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_fixed_repeats_are_the_layer_by_hand(norm):
    model, (x, mask) = encoder(THINKING["fixed"], norm), batch()
    by_hand = x
    for number in (1, 2, 3):
        by_hand = by_hand + sinusoids(0, 5, SIZE, x) + sinusoids(number, 1, SIZE, x)
        by_hand = model.layer(by_hand, mask)
    thought = model(x, mask)
    torch.testing.assert_close(thought.state[0], model.norm(by_hand) * mask.unsqueeze(-1))
    assert (thought.repeats == 3).all()


@pytest.mark.parametrize("allow", [None, Causal()])
@pytest.mark.parametrize("kind", THINKING)
def test_a_batch_is_one_by_one(kind, allow):
    model, (x, mask) = encoder(THINKING[kind], allow=allow), batch()
    together = model(x, mask)
    for row, length in enumerate(LENGTHS):
        alone = model(x[row : row + 1, :length])
        for ours, theirs in ((together.state[0], alone.state[0]), (together.cost, alone.cost)):
            torch.testing.assert_close(ours[row : row + 1, :length], theirs)
        if alone.states is not None:
            (ours,), (theirs,) = together.states[0], alone.states[0]
            torch.testing.assert_close(ours[row : row + 1, :length], theirs)
    assert not together.state[0][~mask].any()


def test_positions_halt_by_themselves_and_keep_their_state():
    model, (x, mask) = encoder(THINKING["act"]), batch()
    entered = []
    model.layer.register_forward_pre_hook(lambda module, given: entered.append(given[0]))
    thought = model(x, mask)
    assert len(set(thought.repeats[mask].tolist())) > 1
    assert not thought.repeats[~mask].any()
    for number in range(2, len(entered) + 1):  # what enters a repeat is the state with its coordinates
        moved = entered[number - 1] - sinusoids(0, 5, SIZE, x) - sinusoids(number, 1, SIZE, x)
        before = entered[number - 2] - sinusoids(0, 5, SIZE, x) - sinusoids(number - 1, 1, SIZE, x)
        halted = thought.repeats < number - 1
        torch.testing.assert_close(moved[halted], before[halted])
        assert not torch.isclose(moved[~halted], before[~halted]).all(dim=-1).any()


def test_others_attend_to_what_has_halted():
    model, (x, _) = encoder(THINKING["act"]), batch()
    repeats = model(x).repeats
    row = next(row for row in range(3) if repeats[row].min() < repeats[row].max())
    with capture(model) as trace:
        model(x[row : row + 1])
    name = f"layer.attention@{int(repeats[row].max())}"
    assert trace.names[-1] == name
    assert trace[name].weights[0, :, repeats[row].argmax(), repeats[row].argmin()].min() > 0


def test_a_causal_encoder_does_not_see_what_follows():
    for thinking in THINKING.values():
        model, (x, _) = encoder(thinking, allow=Causal()), batch()
        other = x.clone()
        other[:, 3:] = torch.randn_like(other[:, 3:])
        ours, theirs = model(x), model(other)
        torch.testing.assert_close(ours.state[0][:, :3], theirs.state[0][:, :3])
        assert not torch.allclose(ours.state[0][:, 3:], theirs.state[0][:, 3:])


def test_every_repeat_has_a_map_of_its_own():
    model, (x, mask) = encoder(THINKING["fixed"]), batch()
    with capture(model) as trace:
        model(x, mask)
    assert trace.names == ["layer.attention@1", "layer.attention@2", "layer.attention@3"]
    assert [trace[name].layer for name in trace.names] == [0, 1, 2]
    assert not torch.equal(trace[trace.names[0]].weights, trace[trace.names[2]].weights)
    assert {record.name for record in trace.records(2)} == set(trace.names)


def test_no_fast_path_runs_the_layer(monkeypatch):
    model, (x, mask) = encoder(THINKING["fixed"]), batch()

    def never(*_):
        raise AssertionError("a fast path was taken")

    monkeypatch.setattr(unpadded, "encode_unpadded", never)
    monkeypatch.setattr(transformer_search, "fast", never)
    calls = []
    model.layer.register_forward_hook(lambda *_: calls.append(1))
    model.eval()(x, mask)
    assert len(calls) == 3


def test_a_mean_is_over_what_is_there():
    values, mask = torch.tensor([[1.0, 3.0, 9.0], [2.0, 7.0, 7.0]]), torch.tensor([[1, 1, 0], [1, 0, 0]]).bool()
    assert mean_over_positions(values, mask).tolist() == [2.0, 2.0]
    assert mean_over_positions(values, None).tolist() == [values[0].mean(), values[1].mean()]


def test_an_odd_size_is_refused():
    with pytest.raises(ValueError, match="size is 9; coordinate embeddings need an even one"):
        UniversalEncoder(LayerShape(9, 3, 12), FixedRepeatsConfig(2))
