"""Ways to repeat a step: against plain transcriptions of the papers' formulas, and against finite differences."""

import numpy as np
import pytest
import torch
from torch.func import functional_call

from sightline.nn.thinking import AdaptiveConfig, FixedRepeatsConfig, PonderingConfig

pytestmark = pytest.mark.fast

MOST, PLACES = 7, 60


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)


def act(h, states, epsilon):
    """Graves 2016, equations 5 to 14, of one place: the weights, the mean state, N and R."""
    total, weights = 0.0, np.zeros(len(h))
    for n in range(len(h)):
        if total + h[n] >= 1 - epsilon or n == len(h) - 1:
            weights[n] = 1 - total
            return weights, weights @ states, n + 1, 1 - total
        weights[n] = h[n]
        total += h[n]
    raise AssertionError


def ponder(chances, prior, epsilon):
    """Banino et al. 2021, equations 1 to 4, of one place: p and KL(p ‖ geometric), over the repeats there were."""
    p, survives = [], 1.0
    for chance in chances:
        p.append(chance * survives)
        survives *= 1 - chance
        if survives < epsilon:
            break
    p = np.array(p) / np.sum(p)
    geometric = prior * (1 - prior) ** np.arange(len(p))
    return p, float(np.sum(p * np.log(p / (geometric / geometric.sum()))))


def told(config):
    """A way to halt whose probability is the sigmoid of the first number of a state."""
    thinking = config.build(2).double()
    with torch.no_grad():
        thinking.halt.weight.copy_(torch.tensor([[1.0, 0.0]]))
        thinking.halt.bias.zero_()
    return thinking


def drawn(spread=4.0):
    """States after each repeat, n × places × 2; the first number of each decides."""
    states = torch.randn(MOST, PLACES, 2, dtype=torch.float64)
    states[..., 0] *= spread
    return states


@torch.no_grad()
def run(thinking, states, there=None):
    return thinking(lambda state, number: (states[number - 1],), (torch.zeros_like(states[0]),), there)


def test_act_is_that_of_the_paper():
    states = drawn()
    thought = run(told(AdaptiveConfig(cost=0.5, most=MOST)), states)
    h = torch.sigmoid(states[..., 0]).numpy()
    numbers = set()
    for place in range(PLACES):
        weights, mean, n, r = act(h[:, place], states[:, place].numpy(), 0.01)
        numbers.add(n)
        ours = np.pad(thought.weights[:, place].numpy(), (0, MOST - len(thought.weights)))
        np.testing.assert_allclose(ours, weights, atol=1e-12)
        np.testing.assert_allclose(ours.sum(), 1.0, atol=1e-12)
        np.testing.assert_allclose(thought.state[0][place].numpy(), mean, atol=1e-12)
        np.testing.assert_allclose(float(thought.cost[place]), 0.5 * (n + r), atol=1e-12)
        assert float(thought.repeats[place]) == n
    assert {1, 2, 3} <= numbers


def test_act_ends_with_the_last_repeat_there_may_be():
    states = drawn()
    states[..., 0] = -9.0
    thought = run(told(AdaptiveConfig(cost=1.0, most=MOST)), states)
    assert (thought.repeats == MOST).all()
    h = torch.sigmoid(torch.tensor(-9.0, dtype=torch.float64))
    torch.testing.assert_close(thought.cost, (MOST + 1 - (MOST - 1) * h).expand(PLACES))


def test_pondernet_is_that_of_the_paper():
    states = drawn(1.0)
    thought = run(told(PonderingConfig(cost=0.5, most=MOST, prior=0.3)), states)
    chances = torch.sigmoid(states[..., 0]).numpy()
    lengths = set()
    for place in range(PLACES):
        p, divergence = ponder(chances[:, place], 0.3, 0.05)
        lengths.add(len(p))
        ours = thought.weights[:, place].numpy()
        np.testing.assert_allclose(ours, np.pad(p, (0, len(ours) - len(p))), atol=1e-12)
        np.testing.assert_allclose(float(thought.cost[place]), 0.5 * divergence, atol=1e-12)
        np.testing.assert_allclose(float(thought.repeats[place]), p @ np.arange(1, len(p) + 1), atol=1e-12)
        mean = p @ states[: len(p), place].numpy()
        np.testing.assert_allclose(thought.state[0][place].numpy(), mean, atol=1e-12)
    assert len(lengths) > 2


def test_a_certain_pondernet_costs_what_it_differs_from_the_prior():
    states = drawn()
    states[..., 0] = 0.0  # it halts with a probability of one half
    thought = run(told(PonderingConfig(cost=1.0, most=4, prior=0.5, epsilon=1e-6)), states)
    torch.testing.assert_close(thought.cost, torch.zeros_like(thought.cost), atol=1e-12, rtol=0)


@pytest.mark.parametrize("config", [AdaptiveConfig(cost=0.3, most=4), PonderingConfig(cost=0.3, most=4, prior=0.4)])
def test_gradients_are_those_of_finite_differences(config):
    thinking = config.build(3).double()
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    matrix = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.full((1,), -0.7, dtype=torch.float64, requires_grad=True)
    there = torch.tensor([True, True, False, True, True])

    def outputs(x, matrix, weight, bias):
        def step(state, number):
            return (torch.tanh(state[0] @ matrix + number / 10),)

        named = {"halt.weight": weight, "halt.bias": bias}
        thought = functional_call(thinking, named, (step, (x,), there))
        return thought.state[0], thought.cost

    assert outputs(x, matrix, weight, bias)[1].unique().numel() > 2
    assert torch.autograd.gradcheck(outputs, (x, matrix, weight, bias))


@pytest.mark.parametrize("config", [AdaptiveConfig(most=MOST), PonderingConfig(most=MOST)])
def test_what_is_not_there_is_left_alone(config):
    states, there = drawn(), torch.rand(PLACES) < 0.5
    first = torch.randn(PLACES, 2, dtype=torch.float64)
    thinking = told(config)
    thought = thinking(lambda state, number: (states[number - 1],), (first,), there)
    torch.testing.assert_close(thought.state[0][~there], first[~there])
    assert not thought.cost[~there].any()
    assert not thought.repeats[~there].any()
    whole = run(thinking, states)
    torch.testing.assert_close(thought.state[0][there], whole.state[0][there])
    torch.testing.assert_close(thought.cost[there], whole.cost[there])


def test_what_is_not_there_has_finite_gradients():
    for config in (AdaptiveConfig(most=3), PonderingConfig(most=3)):
        thinking = config.build(2)
        x = torch.randn(4, 2, requires_grad=True)
        thought = thinking(lambda state, number: (state[0] * 1.5,), (x,), torch.tensor([True, False, True, False]))
        (thought.state[0].sum() + thought.cost.sum()).backward()
        assert torch.isfinite(x.grad).all()
        assert torch.isfinite(thinking.halt.weight.grad).all()


def test_what_has_halted_keeps_its_state():
    states, seen = drawn(), []

    def step(state, number):
        seen.append(state[0].clone())
        return (states[number - 1],)

    first = torch.zeros_like(states[0])
    thought = told(AdaptiveConfig(most=MOST))(step, (first,), None)
    for place, number in enumerate(thought.repeats.int().tolist()):
        for later in seen[number:]:
            assert torch.equal(later[place], states[number - 1, place])


def test_a_lower_bias_begins_with_more_repeats():
    x = torch.randn(PLACES, 8)
    halting = [AdaptiveConfig(bias=bias).build(8) for bias in (6.0, 1.0, -2.0)]
    repeats = [float(one(lambda state, n: state, (x,)).repeats.mean()) for one in halting]
    assert repeats == sorted(repeats)
    assert repeats[0] < 1.5 < 4 < repeats[2]
    assert AdaptiveConfig().build(8).halt.bias.item() == 1.0
    assert PonderingConfig().build(8).halt.bias.item() == 0.0


def test_the_cost_rises_with_training_and_is_whole_elsewhere():
    torch.manual_seed(0)
    halting, x = AdaptiveConfig(cost=0.1, rises=100).build(8), torch.randn(PLACES, 8)
    whole = halting(lambda state, n: state, (x,)).cost
    for step, share in ((0, 0.0), (25, 0.25), (100, 1.0), (1000, 1.0)):
        halting.at_step(step)
        assert torch.allclose(halting(lambda state, n: state, (x,)).cost, share * whole)
    always = AdaptiveConfig(cost=0.1).build(8)
    always.at_step(0)
    assert always.cost == 0.1


def test_fixed_repeats_cost_nothing():
    states = drawn()
    thought = run(FixedRepeatsConfig(3).build(2), states)
    assert torch.equal(thought.state[0], states[2])
    assert not thought.cost.any()
    assert (thought.repeats == 3).all()
    assert torch.equal(thought.weights.sum(dim=0), torch.ones(PLACES, dtype=torch.float64))


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        (FixedRepeatsConfig, {"repeats": 0}, "repeats is 0; it must be at least 1"),
        (AdaptiveConfig, {"most": 0}, "most is 0; it must be at least 1"),
        (AdaptiveConfig, {"cost": -1.0}, "cost is -1.0; it must be at least 0"),
        (AdaptiveConfig, {"epsilon": 1.0}, "epsilon is 1.0; it must be above 0 and below 1"),
        (AdaptiveConfig, {"rises": -1}, "rises is -1; it must be at least 0"),
        (PonderingConfig, {"bias": 11.0}, "bias is 11.0; it must be from -10 to 10"),
        (PonderingConfig, {"prior": 0.0}, "prior is 0.0; it must be above 0 and below 1"),
    ],
)
def test_what_cannot_be_is_refused(kind, fields, expected):
    with pytest.raises(ValueError, match=expected):
        kind(**fields)
