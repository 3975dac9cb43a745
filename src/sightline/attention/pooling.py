"""Pooling attention: a learned query reads a sequence into one vector, or a few.

With the additive score it is the word and sentence attention of the hierarchical attention network (Yang et al. 2016),
``u_t = tanh(W h_t + b)``, ``α = softmax(u_t · u_w)``, ``s = Σ α_t h_t``: the score's vector v is u_w and what the
learned query adds before the tanh is b. What people get wrong: words and sentences have a u_w of their own each.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention.additive import AdditiveConfig
from sightline.attention.checks import check_least
from sightline.attention.compose import ComposedConfig
from sightline.attention.contract import Attention, AttentionConfig, Read
from sightline.attention.heads import head_parameter
from sightline.config import Config


class Pooling(nn.Module):
    """Annotations `*b s k` → a `Read` whose context is `*b n v`, one row for each learned query."""

    def __init__(self, inner: Attention, queries: int) -> None:
        super().__init__()
        self.inner = inner
        self.query = head_parameter(queries, inner.query_size)

    def forward(
        self,
        keys: Float[Tensor, "*b s k"],
        values: Float[Tensor, "*b s v"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = False,
    ) -> Read:
        memory = self.inner.remember(keys, values, mask)
        query = self.query.expand(*keys.shape[:-2], *self.query.shape)
        return self.inner(query, memory, need_weights=need_weights)


def _additive() -> ComposedConfig:
    return ComposedConfig(AdditiveConfig())


@dataclass(frozen=True)
class PoolingConfig(Config):
    """How many learned queries, and the mechanism that they attend with."""

    queries: int = 1
    inner: AttentionConfig = field(default_factory=_additive)
    family: ClassVar[str] = "pooling"
    kind: ClassVar[str] = "pooling"

    def __post_init__(self) -> None:
        check_least(self, 1, "queries")

    def build(self, key_size: int, value_size: int | None = None) -> Pooling:
        return Pooling(self.inner.build(key_size, key_size, value_size), self.queries)
