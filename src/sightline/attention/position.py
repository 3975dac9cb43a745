"""Relative positions for the scaled dot product: rotary, ALiBi and T5 buckets.

All three make a score depend on how far a key is from the query and not on where both stand, so a model can be used
at lengths and from caches it never saw whole.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention.contract import Heads
from sightline.config import Config


class RelativePosition(nn.Module):
    """Either turns queries and keys by their positions, or adds a bias to their scores, or both."""

    def turn(self, x: Float[Tensor, "*b n d"], start: int) -> Float[Tensor, "*b n d"]:
        return x

    def bias(self, position: int, queries: int, keys: int, like: Tensor) -> Float[Tensor, "*h t s"] | None:
        return None


class RelativePositionConfig(Config):
    """The base of every relative position's configuration."""

    family: ClassVar[str] = "relative_position"

    @abstractmethod
    def build(self, size: int, *, heads: Heads = ()) -> RelativePosition:
        """Build it for keys of one size."""


class Rotary(RelativePosition):
    """Rotary embedding (Su et al. 2021): pairs of features turn by an angle proportional to the position.

    What people get wrong: there are two layouts of the pairs. This is the one of the paper, (x₀, x₁), (x₂, x₃), …;
    many checkpoints use the halves (x₀, x_{d/2}), … instead.
    """

    def __init__(self, size: int, base: float) -> None:
        super().__init__()
        if size % 2:
            raise ValueError(f"rotary turns pairs of features: the key size must be even, found {size}")
        self.size = size
        self.base = base

    def turn(self, x: Float[Tensor, "*b n d"], start: int) -> Float[Tensor, "*b n d"]:
        # Angles in float64: at position 100,000 a float32 product of position and frequency is off by 0.01 radian.
        exponents = torch.arange(0, self.size, 2, dtype=torch.float64, device=x.device) / self.size
        positions = torch.arange(start, start + x.shape[-2], dtype=torch.float64, device=x.device)
        angles = positions.unsqueeze(-1) * self.base**-exponents
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


@dataclass(frozen=True)
class RotaryConfig(RelativePositionConfig):
    base: float = 10_000.0
    kind: ClassVar[str] = "rotary"

    def __post_init__(self) -> None:
        if not 1 < self.base < math.inf:
            raise ValueError(f"base is {self.base}; it must be above 1")

    def build(self, size: int, *, heads: Heads = ()) -> Rotary:
        return Rotary(size, self.base)


def _distances(position: int, queries: int, keys: int, device: torch.device) -> Int[Tensor, "t s"]:
    """Key position minus query position."""
    rows = torch.arange(position, position + queries, device=device).unsqueeze(-1)
    return torch.arange(keys, device=device) - rows


class Alibi(RelativePosition):
    """ALiBi (Press et al. 2022): ``−m·|i − j|`` with a fixed slope m for each head, steeper for the first heads.

    The paper is causal, where |i − j| is i − j; with keys on both sides the distance counts alike on both.
    """

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.heads = heads
        self.slopes = _alibi_slopes(
            math.prod(heads)
        )  # numbers, not a buffer: a model in half precision keeps them exact

    def bias(self, position: int, queries: int, keys: int, like: Tensor) -> Float[Tensor, "*h t s"]:
        distances = _distances(position, queries, keys, like.device).abs()
        exact = torch.promote_types(like.dtype, torch.float32)  # in bfloat16, 256 and 257 are the same distance
        slopes = torch.tensor(self.slopes, dtype=exact, device=like.device).reshape(*self.heads, 1, 1)
        return (-slopes * distances).to(like.dtype)


def _alibi_slopes(heads: int) -> list[float]:
    """The paper's geometric series 2^(−8/n), 2^(−16/n), …; for other head counts, filled from twice the next power."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    return slopes + [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]


@dataclass(frozen=True)
class AlibiConfig(RelativePositionConfig):
    kind: ClassVar[str] = "alibi"

    def build(self, size: int, *, heads: Heads = ()) -> Alibi:
        return Alibi(heads)


class T5Buckets(RelativePosition):
    """T5's learned bias (Raffel et al. 2020) for buckets of distances: exact when near, logarithmic when far.

    With ``bidirectional`` off, keys after the query share bucket 0, as in T5's decoder. What people get wrong: T5's own
    scores are not divided by √d; here they are, as for every scaled dot product.
    """

    def __init__(self, buckets: int, furthest: int, bidirectional: bool, heads: Heads) -> None:
        super().__init__()
        self.buckets, self.furthest, self.bidirectional = buckets, furthest, bidirectional
        self.table = nn.Parameter(torch.randn(*heads, buckets) * 0.1)

    def bucket(self, distance: Int[Tensor, "t s"]) -> Int[Tensor, "t s"]:
        buckets = self.buckets
        if self.bidirectional:
            buckets //= 2
            start = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            start = torch.zeros_like(distance)
            distance = -distance.clamp(max=0)
        exact = buckets // 2
        scale = (buckets - exact) / math.log(self.furthest / exact)
        far = exact + (torch.log(distance.clamp(min=1).float() / exact) * scale).long()
        return start + torch.where(distance < exact, distance, far.clamp(max=buckets - 1))

    def bias(self, position: int, queries: int, keys: int, like: Tensor) -> Float[Tensor, "*h t s"]:
        buckets = self.bucket(_distances(position, queries, keys, like.device))
        return self.table[..., buckets]


@dataclass(frozen=True)
class T5BucketsConfig(RelativePositionConfig):
    buckets: int = 32
    furthest: int = 128
    bidirectional: bool = True
    kind: ClassVar[str] = "t5"

    def __post_init__(self) -> None:
        least = 4 if self.bidirectional else 2
        if self.buckets < least or self.buckets % 2:
            raise ValueError(f"buckets is {self.buckets}; it must be even and at least {least}")
        if self.furthest <= self.buckets:
            raise ValueError(f"furthest is {self.furthest}; it must be above buckets, {self.buckets}")

    def build(self, size: int, *, heads: Heads = ()) -> T5Buckets:
        return T5Buckets(self.buckets, self.furthest, self.bidirectional, heads)
