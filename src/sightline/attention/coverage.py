"""Attention that sees its coverage (Tu et al. 2016, as in See et al. 2017): what was attended to counts in the score.

``c^t = Σ_{t' < t} a^{t'}``; ``e_i = v · tanh(W s + V h_i + w c_i + b)``. What people get wrong: c is a sum over the
queries before and not their mean, so it grows; and w begins at nothing, so that attention without coverage can be
trained first, and coverage for a few steps after it.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention.additive import AdditiveConfig
from sightline.attention.checks import check_least
from sightline.attention.compose import Weighed
from sightline.attention.contract import AttentionConfig, Carry, Heads, Memory, full_sizes
from sightline.attention.normalisers import Normaliser, NormaliserConfig, SoftmaxConfig
from sightline.attention.sequential import Sequential


class Coverage(Sequential):
    """Additive attention whose hidden layer gets the sum of all weights before as well. The carry holds that sum; with
    a carry that has none, coverage does not count."""

    def __init__(
        self, hidden_size: int | None, normaliser: Normaliser, sizes: tuple[int, int, int], heads: Heads = ()
    ) -> None:
        query_size, key_size, value_size = sizes
        score = AdditiveConfig(hidden_size).build(query_size, key_size, heads=heads)
        super().__init__(score, normaliser, query_size, key_size, value_size, heads)
        self.coverage = nn.Parameter(torch.zeros(*heads, 1, hidden_size or key_size))

    def covers(self) -> bool:
        """Whether coverage counts at all: before it is trained it does not."""
        return bool(self.coverage.detach().any())

    def weigh(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry,
        allowed: Bool[Tensor, "..."] | None,
    ) -> Weighed:
        keys = memory.keys
        if carry.weights is not None:
            keys = keys + self.last_weights(carry, memory).transpose(-2, -1) * self.coverage
        scores = self.score(query, keys, carry.position)
        weights, log_prob, entropy = self.normaliser(scores, allowed)
        return Weighed(scores, weights, log_prob, entropy, allowed)

    def next_carry(self, carry: Carry, weights: Float[Tensor, "*b t s"]) -> Carry:
        if carry.weights is None:
            return super(Sequential, self).next_carry(carry, weights)
        if weights.shape[-2] == 0:
            return carry
        missing = weights.shape[-1] - carry.weights.shape[-1]
        total = nn.functional.pad(carry.weights, (0, missing)) + weights.sum(dim=-2)
        return carry._replace(position=carry.position + weights.shape[-2], weights=total)


@dataclass(frozen=True)
class CoverageConfig(AttentionConfig):
    """``hidden_size`` left out is the key's size."""

    hidden_size: int | None = None
    normaliser: NormaliserConfig = field(default_factory=SoftmaxConfig)
    kind: ClassVar[str] = "coverage"

    def __post_init__(self) -> None:
        check_least(self, 1, "hidden_size")

    def build(
        self, query_size: int, key_size: int | None = None, value_size: int | None = None, *, heads: Heads = ()
    ) -> Coverage:
        sizes = full_sizes(query_size, key_size, value_size)
        return Coverage(self.hidden_size, self.normaliser.build(), (sizes[0], sizes[1], sizes[2]), heads)
