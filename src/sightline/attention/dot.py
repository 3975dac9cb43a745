"""Scores that are dot products: dot, scaled dot, general and cosine. All of them run on the fused kernel."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.contract import Heads
from sightline.attention.heads import HeadLinear
from sightline.attention.position import RelativePosition, RelativePositionConfig
from sightline.attention.scores import DotProductScore, ScoreConfig, same_size


class Dot(DotProductScore):
    """``q · k`` (Luong et al. 2015)."""


@dataclass(frozen=True)
class DotConfig(ScoreConfig):
    kind: ClassVar[str] = "dot"

    def build(self, query_size: int, key_size: int, *, heads: Heads = ()) -> Dot:
        same_size(self.kind, query_size, key_size)
        return Dot()


class ScaledDot(DotProductScore):
    """``q · k / √d`` (Vaswani et al. 2017), with an optional relative position.

    What people get wrong: it is the square root of the size of one head's key, not of the whole embedding.
    """

    def __init__(self, size: int, relative: RelativePosition | None = None) -> None:
        super().__init__()
        self.scale = 1 / math.sqrt(size)
        self.relative = relative

    def project_keys(self, keys: Float[Tensor, "*b s k"], start: int) -> Float[Tensor, "..."]:
        return keys if self.relative is None else self.relative.turn(keys, start)

    def project_query(self, query: Float[Tensor, "*b t q"], position: int) -> Float[Tensor, "*b t p"]:
        return query if self.relative is None else self.relative.turn(query, position)

    def bias(self, position: int, queries: int, keys: int, like: Tensor) -> Float[Tensor, "..."] | None:
        return None if self.relative is None else self.relative.bias(position, queries, keys, like)


@dataclass(frozen=True)
class ScaledDotConfig(ScoreConfig):
    relative: RelativePositionConfig | None = None
    kind: ClassVar[str] = "scaled_dot"

    def build(self, query_size: int, key_size: int, *, heads: Heads = ()) -> ScaledDot:
        same_size(self.kind, query_size, key_size)
        relative = None if self.relative is None else self.relative.build(query_size, heads=heads)
        return ScaledDot(query_size, relative)


class General(DotProductScore):
    """``qᵀ W k``, the bilinear form (Luong et al. 2015). The keys are projected, once; the queries stay as they are."""

    def __init__(self, query_size: int, key_size: int, heads: Heads = ()) -> None:
        super().__init__()
        self.key = HeadLinear(key_size, query_size, heads=heads)

    def project_keys(self, keys: Float[Tensor, "*b s k"], start: int) -> Float[Tensor, "..."]:
        return self.key(keys)


@dataclass(frozen=True)
class GeneralConfig(ScoreConfig):
    kind: ClassVar[str] = "general"

    def build(self, query_size: int, key_size: int, *, heads: Heads = ()) -> General:
        return General(query_size, key_size, heads)


def unit_length(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Divided by its length; a zero vector stays zero, in half precision too, where 1e-12 would round to zero."""
    return F.normalize(x, dim=-1, eps=max(1e-12, torch.finfo(x.dtype).tiny))


class Cosine(DotProductScore):
    """``β cos(q, k)`` with a learned strength β > 0 for each head (Graves et al. 2014, content addressing)."""

    def __init__(self, strength: float, heads: Heads = ()) -> None:
        super().__init__()
        # softplus keeps the strength positive; this is its inverse.
        start = strength + math.log(-math.expm1(-strength))
        self.raw_strength = nn.Parameter(torch.full((*heads, 1, 1), start))

    def project_keys(self, keys: Float[Tensor, "*b s k"], start: int) -> Float[Tensor, "..."]:
        return unit_length(keys)

    def project_query(self, query: Float[Tensor, "*b t q"], position: int) -> Float[Tensor, "*b t p"]:
        return unit_length(query) * F.softplus(self.raw_strength)


@dataclass(frozen=True)
class CosineConfig(ScoreConfig):
    strength: float = 10.0
    kind: ClassVar[str] = "cosine"

    def __post_init__(self) -> None:
        if not 0 < self.strength < 1e6:
            raise ValueError(f"strength is {self.strength}; it must be above 0 and below a million")

    def build(self, query_size: int, key_size: int, *, heads: Heads = ()) -> Cosine:
        same_size(self.kind, query_size, key_size)
        return Cosine(self.strength, heads)
