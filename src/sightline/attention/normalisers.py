"""The second step, normalise: scores become weights.

Every normaliser gives hidden keys exactly zero, and a row in which nothing may be attended all zeros, never NaN.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import entmax
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.config import Config
from sightline.kernels.softmax import softmax


class Weights(NamedTuple):
    """What a normaliser gives. Only a normaliser that samples gives the last two."""

    weights: Float[Tensor, "*b t s"]
    log_prob: Float[Tensor, "*b t"] | None = None
    entropy: Float[Tensor, "*b t"] | None = None


class Normaliser(nn.Module):
    """Scores `*b t s` and what may be seen (None: everything) to weights."""

    @abstractmethod
    def forward(self, scores: Float[Tensor, "*b t s"], allowed: Bool[Tensor, "..."] | None) -> Weights: ...


class NormaliserConfig(Config):
    """The base of every normaliser's configuration."""

    family: ClassVar[str] = "normaliser"

    @abstractmethod
    def build(self) -> Normaliser: ...


def hide(scores: Float[Tensor, "*b s"], allowed: Bool[Tensor, "..."] | None) -> Float[Tensor, "*b s"]:
    """Hidden scores so low that they vanish in a softmax, yet finite, so that a row without any key gives no NaN."""
    return scores if allowed is None else scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)


def only(weights: Float[Tensor, "*b s"], allowed: Bool[Tensor, "..."] | None) -> Float[Tensor, "*b s"]:
    """Exactly zero where hidden: rows in which everything is hidden come out of a softmax uniform."""
    return weights if allowed is None else weights.masked_fill(~allowed, 0.0)


class Softmax(Normaliser):
    """exp(s_i) / Σ exp(s_j)."""

    def forward(self, scores: Float[Tensor, "*b t s"], allowed: Bool[Tensor, "..."] | None) -> Weights:
        return Weights(only(softmax(hide(scores, allowed)), allowed))


@dataclass(frozen=True)
class SoftmaxConfig(NormaliserConfig):
    kind: ClassVar[str] = "softmax"

    def build(self) -> Softmax:
        return Softmax()


class _Sparse(Normaliser):
    """Sparsemax and entmax: scores more than `reach` below the best get exactly zero, whatever they are.

    So lower ones, and hidden ones, are raised to just past that reach: the weights stay the same and the sums of
    squares inside the algorithm cannot overflow.
    """

    reach: float
    function: Callable[..., Tensor]

    def forward(self, scores: Float[Tensor, "*b t s"], allowed: Bool[Tensor, "..."] | None) -> Weights:
        if scores.shape[-1] == 0:
            return Weights(scores)
        best = hide(scores, allowed).amax(dim=-1, keepdim=True).detach()
        below = hide(scores - best, allowed).clamp(min=-2 * self.reach)
        # The algorithm stops with an index error on NaN. Let it through as NaN instead: that is how training that
        # diverges shows itself everywhere else.
        weights = self.function(below.nan_to_num(nan=0.0), dim=-1) + (best - best)
        return Weights(only(weights, allowed))


class Sparsemax(_Sparse):
    """The Euclidean projection onto the simplex (Martins & Astudillo 2016)."""

    reach = 1.0
    function = staticmethod(entmax.sparsemax)


@dataclass(frozen=True)
class SparsemaxConfig(NormaliserConfig):
    kind: ClassVar[str] = "sparsemax"

    def build(self) -> Sparsemax:
        return Sparsemax()


class Entmax15(_Sparse):
    """1.5-entmax, half way between softmax and sparsemax (Peters et al. 2019)."""

    reach = 2.0
    function = staticmethod(entmax.entmax15)


@dataclass(frozen=True)
class Entmax15Config(NormaliserConfig):
    kind: ClassVar[str] = "entmax15"

    def build(self) -> Entmax15:
        return Entmax15()
