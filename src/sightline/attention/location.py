"""Location-aware attention (Chorowski et al. 2015): the score also sees where the last query looked.

``f = F * α_{t−1}``; ``e = v · tanh(W s + V h + U f + b)``. Speech needs it: sounds repeat, and only the place tells
which of two equal frames comes next. What people get wrong: f is a convolution over *positions* of the last weights,
so it has one feature vector for each key, not one for the query.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention.additive import AdditiveConfig
from sightline.attention.checks import check_least
from sightline.attention.compose import Weighed
from sightline.attention.contract import AttentionConfig, Carry, Heads, Memory, full_sizes
from sightline.attention.heads import HeadLinear
from sightline.attention.normalisers import Normaliser, NormaliserConfig, SoftmaxConfig
from sightline.attention.sequential import Sequential


class LocationAware(Sequential):
    """Additive attention whose hidden layer gets the features of the last weights as well."""

    def __init__(
        self,
        config: "LocationAwareConfig",
        normaliser: Normaliser,
        sizes: tuple[int, int, int],
        heads: Heads = (),
    ) -> None:
        query_size, key_size, value_size = sizes
        score = AdditiveConfig(config.hidden_size).build(query_size, key_size, heads=heads)
        super().__init__(score, normaliser, query_size, key_size, value_size, heads)
        bound = 1 / config.width**0.5
        self.filters = nn.Parameter(torch.empty(*heads, config.filters, config.width).uniform_(-bound, bound))
        self.location = HeadLinear(config.filters, config.hidden_size or key_size, heads=heads)

    def weigh(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry,
        allowed: Bool[Tensor, "..."] | None,
    ) -> Weighed:
        last = self.last_weights(carry, memory)
        features = self.location(self.convolve(last))
        scores = self.score(query, memory.keys + features, carry.position)
        weights, log_prob, entropy = self.normaliser(scores, allowed)
        return Weighed(scores, weights, log_prob, entropy, allowed)

    def convolve(self, last: Float[Tensor, "*b 1 s"]) -> Float[Tensor, "*b s f"]:
        """``F * α``: each key's neighbourhood in the last weights, through the filters (zeros past the ends).

        As in every deep-learning library the filters are not flipped; they are learned, so it is the same function.
        """
        width = self.filters.shape[-1]
        if last.shape[-1] == 0:
            return last.new_zeros(*last.shape[:-2], 0, self.filters.shape[-2])
        around = F.pad(last.squeeze(-2), (width // 2, width // 2)).unfold(-1, width, 1)
        return around @ self.filters.transpose(-2, -1)


@dataclass(frozen=True)
class LocationAwareConfig(AttentionConfig):
    """``filters`` of ``width`` positions (odd, so that a filter has a middle)."""

    hidden_size: int | None = None
    filters: int = 10
    width: int = 31
    normaliser: NormaliserConfig = field(default_factory=SoftmaxConfig)
    kind: ClassVar[str] = "location_aware"

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % 2 == 0:
            raise ValueError(f"width is {self.width}; it must be odd")
        check_least(self, 1, "hidden_size", "filters")

    def build(
        self, query_size: int, key_size: int | None = None, value_size: int | None = None, *, heads: Heads = ()
    ) -> LocationAware:
        query_size, key_size, value_size = full_sizes(query_size, key_size, value_size)
        return LocationAware(self, self.normaliser.build(), (query_size, key_size, value_size), heads)
