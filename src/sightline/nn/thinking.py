"""How often a step is repeated before its result is used: always as often, or as often as the model decides.

Adaptive Computation Time (Graves 2016): after each repeat a probability to halt, h. A place halts at the first repeat
N at which the sum of h reaches 1 − ε. The result is the mean of all states, weighed by h, the last one by what is left,
R = 1 − Σ h. Its cost is ρ = N + R, of which only R has a gradient.

PonderNet (Banino et al. 2021): λ_n is the probability to halt at n if not before, so p_n = λ_n Π (1 − λ_j). The loss is
the expectation of the losses of all repeats, and the cost is KL(p ‖ geometric).

What people get wrong: without ε, N is never 1; R belongs to the cost; N has no gradient; the mean is that of states (of
logits), not of probabilities. A place that has halted keeps its state, for others may still attend to it.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention.checks import check_least
from sightline.config import Config

State = tuple[Float[Tensor, "*b h"], ...]  # each tensor has a number of its own
Step = Callable[[State, int], State]  # the state after repeat n, counted from 1
LARGEST_BIAS = 10  # beyond it the probability to halt has no gradient to speak of


class Thought(NamedTuple):
    """The state after all repeats; what they cost, as a part of the loss; how many there were (expected).

    ``weights`` are those of the repeats, n × places. ``states`` are the states after each repeat, in order, where the
    loss is that of each of them and not of their mean; None elsewhere.
    """

    state: State
    cost: Float[Tensor, "*b"]
    repeats: Float[Tensor, "*b"]
    weights: Float[Tensor, "n ..."]
    states: tuple[State, ...] | None = None


class Thinking(nn.Module):
    """Repeats a step, at most ``most`` times."""

    most: int

    @abstractmethod
    def forward(self, step: Step, state: State, there: Bool[Tensor, "*b"] | None = None) -> Thought:
        """Repeat. The first tensor of the state decides when to halt. Places that are not ``there`` need no repeat."""


class FixedRepeats(Thinking):
    """Always as often."""

    def __init__(self, config: "FixedRepeatsConfig") -> None:
        super().__init__()
        self.most = config.repeats

    def forward(self, step: Step, state: State, there: Bool[Tensor, "*b"] | None = None) -> Thought:
        for number in range(1, self.most + 1):
            state = step(state, number)
        places = state[0].shape[:-1]
        weights = state[0].new_zeros(self.most, *places)
        weights[-1] = 1.0
        zero = state[0].new_zeros(places)
        return Thought(state, zero, zero + self.most, weights)


class Halting(Thinking):
    """The base of what decides when to halt, by a probability that a linear map of the state gives."""

    def __init__(self, config: "HaltingConfig", size: int) -> None:
        super().__init__()
        self.most, self.epsilon = config.most, config.epsilon
        self.full_cost, self.rises = config.cost, config.rises
        self.cost = config.cost  # that of now
        self.halt = nn.Linear(size, 1)
        nn.init.xavier_uniform_(self.halt.weight)  # places differ from the start
        with torch.no_grad():
            self.halt.bias.fill_(config.bias)

    def at_step(self, step: int) -> None:
        """The cost that it has after so many steps of training."""
        self.cost = self.full_cost * min(1.0, step / self.rises) if self.rises else self.full_cost

    def probability(self, state: State) -> Float[Tensor, "*b"]:
        """To halt after this repeat."""
        return torch.sigmoid(self.halt(state[0])).squeeze(-1)


class Adaptive(Halting):
    """Adaptive Computation Time."""

    def forward(self, step: Step, state: State, there: Bool[Tensor, "*b"] | None = None) -> Thought:
        places = state[0].shape[:-1]
        total = state[0].new_zeros(places)  # of h, of places that go on
        repeats = total.clone()
        left = torch.zeros_like(total)
        going = torch.ones_like(total, dtype=torch.bool) if there is None else there
        mean = tuple(torch.zeros_like(one) for one in state)
        weights: list[Tensor] = []
        for number in range(1, self.most + 1):
            new = step(state, number)
            state = tuple(torch.where(going.unsqueeze(-1), one, old) for one, old in zip(new, state, strict=True))
            h = self.probability(state)
            reached = total + h
            ends = going & ((reached >= 1 - self.epsilon) if number < self.most else going)
            weight = torch.where(ends, 1 - total, torch.where(going, h, 0.0))
            mean = tuple(sum_ + weight.unsqueeze(-1) * one for sum_, one in zip(mean, state, strict=True))
            weights.append(weight)
            repeats = repeats + going
            left = torch.where(ends, 1 - total, left)
            total = torch.where(going, reached, total)
            going = going & ~ends
            if not going.any():
                break
        if there is not None:  # what is not there keeps the state that it came with
            mean = tuple(torch.where(there.unsqueeze(-1), one, own) for one, own in zip(mean, state, strict=True))
        return Thought(mean, self.cost * (repeats + left), repeats, torch.stack(weights))


class Pondering(Halting):
    """PonderNet. The state that goes on is the expected one."""

    def __init__(self, config: "PonderingConfig", size: int) -> None:
        super().__init__(config, size)
        self.prior = config.prior

    def forward(self, step: Step, state: State, there: Bool[Tensor, "*b"] | None = None) -> Thought:
        places = state[0].shape[:-1]
        survives = state[0].new_ones(places)  # the probability that it has not halted
        going = torch.ones_like(survives, dtype=torch.bool) if there is None else there
        weights, states = list[Tensor](), list[State]()
        for number in range(1, self.most + 1):
            new = step(state, number)
            state = tuple(torch.where(going.unsqueeze(-1), one, old) for one, old in zip(new, state, strict=True))
            halts = self.probability(state)
            weights.append(torch.where(going, halts * survives, 0.0))
            states.append(state)
            survives = torch.where(going, survives * (1 - halts), survives)
            going = going & (survives >= self.epsilon)
            if not going.any():
                break
        p = torch.stack(weights)
        p = p / p.sum(dim=0).clamp(min=torch.finfo(p.dtype).tiny)  # of the repeats that there were
        expected = tuple(
            sum((weight.unsqueeze(-1) * one for weight, one in zip(p, some, strict=True)), torch.zeros_like(some[0]))
            for some in zip(*states, strict=True)
        )
        if there is not None:
            expected = tuple(
                torch.where(there.unsqueeze(-1), one, own) for one, own in zip(expected, state, strict=True)
            )
        numbers = torch.arange(1, len(p) + 1, dtype=p.dtype, device=p.device).view(-1, *[1] * len(places))
        cost = self.cost * _divergence(p, self.prior)
        return Thought(expected, cost, (p * numbers).sum(dim=0), p, tuple(states))


def _divergence(p: Float[Tensor, "n ..."], prior: float) -> Float[Tensor, "*b"]:
    """KL(p ‖ geometric), the latter cut off where p ends and normalised."""
    numbers = torch.arange(len(p), dtype=p.dtype, device=p.device)
    log_prior = torch.log(p.new_tensor(prior)) + numbers * torch.log1p(p.new_tensor(-prior))
    reached = p > 0
    own = log_prior.view(-1, *[1] * (p.dim() - 1)).expand_as(p)
    log_total = torch.logsumexp(own.masked_fill(~reached, -torch.inf), dim=0)
    terms = torch.where(reached, p * (torch.log(p.clamp(min=torch.finfo(p.dtype).tiny)) - own), 0.0)
    return terms.sum(dim=0) + torch.where(reached.any(dim=0), log_total, 0.0)


class ThinkingConfig(Config):
    """The base of the configurations of all ways to repeat a step."""

    family: ClassVar[str] = "thinking"

    @abstractmethod
    def build(self, size: int) -> Thinking:
        """For states whose first tensor has this size."""


@dataclass(frozen=True)
class FixedRepeatsConfig(ThinkingConfig):
    """Every step is done ``repeats`` times."""

    repeats: int = 1
    kind: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        check_least(self, 1, "repeats")

    def build(self, size: int) -> FixedRepeats:
        return FixedRepeats(self)


@dataclass(frozen=True)
class HaltingConfig(ThinkingConfig):
    """``cost`` is what a repeat adds to the loss. There are never more than ``most`` repeats. ``epsilon``: what may be
    left of the probability when it halts. ``bias``: that of the probability to halt at the start; the lower it is, the
    more repeats training begins with. ``rises``: the steps of training over which the cost rises from nothing. Where it
    is there before anything is learnt, it can leave one repeat, of which nothing is learnt."""

    cost: float = 0.01
    most: int = 20
    epsilon: float = 0.01
    bias: float = 1.0
    rises: int = 0

    def __post_init__(self) -> None:
        check_least(self, 1, "most")
        check_least(self, 0, "rises")
        if not 0 <= self.cost < float("inf"):
            raise ValueError(f"cost is {self.cost}; it must be at least 0")
        if not 0 < self.epsilon < 1:
            raise ValueError(f"epsilon is {self.epsilon}; it must be above 0 and below 1")
        if not abs(self.bias) <= LARGEST_BIAS:
            raise ValueError(f"bias is {self.bias}; it must be from -{LARGEST_BIAS} to {LARGEST_BIAS}")


@dataclass(frozen=True)
class AdaptiveConfig(HaltingConfig):
    """Adaptive Computation Time; ``cost`` is τ in the paper."""

    kind: ClassVar[str] = "act"

    def build(self, size: int) -> Adaptive:
        return Adaptive(self, size)


@dataclass(frozen=True)
class PonderingConfig(HaltingConfig):
    """PonderNet; ``cost`` is β in the paper, and ``prior`` the probability of the geometric distribution, λ_p: about
    1 / ``prior`` repeats cost nothing."""

    epsilon: float = 0.05
    bias: float = 0.0
    prior: float = 0.2
    kind: ClassVar[str] = "ponder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.prior < 1:
            raise ValueError(f"prior is {self.prior}; it must be above 0 and below 1")

    def build(self, size: int) -> Pondering:
        return Pondering(self, size)
