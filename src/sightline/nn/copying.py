"""Copying from what is attended to: pointer-generator networks (See et al. 2017), with coverage.

``P(w) = p · P_vocab(w) + (1 − p) · Σ_{i: w_i = w} a_i`` with ``p = σ(w · [context; features; word] + b)``: the weights
of attention are a distribution over the words of the source. Behind the V words of the vocabulary stand those that only
the source has (`sightline.text.copying`).

Coverage: ``c^t = Σ_{t' < t} a^{t'}`` is what has been attended to, and ``Σ_i min(a_i, c_i)`` the loss of attending to
it again. What people get wrong: it is added after training, as covering from the start keeps a model from learning to
attend; a word that stands twice in the source gets the sum of its weights; and logarithms of the two parts are added
where they are summed, not one after the other: a word that the vocabulary has can be copied as well.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention import Attention
from sightline.kernels.copying import Sources, mixed

LEAST = 1e-30  # a weight below it counts as none


class Looked(NamedTuple):
    """What was decoded: features, the weights of attention over the source, and what the gate of copying sees."""

    features: Float[Tensor, "b t d"]
    weights: Float[Tensor, "b t s"] | Float[Tensor, "b h t s"]
    gate_input: Float[Tensor, "b t g"]


class CopyState(NamedTuple):
    """What goes from one word to the next: the decoder's state, the source, and the coverage where it is counted."""

    decoder: object
    sources: Sources
    covered: Float[Tensor, "b s"] | None


class Copying(nn.Module):
    """The gate p, and where attention has several heads, how much each of them counts."""

    def __init__(self, gate_size: int, heads: int = 1) -> None:
        super().__init__()
        self.gate = nn.Linear(gate_size, 1)
        self.heads = nn.Parameter(torch.zeros(heads)) if heads > 1 else None

    def one_weight(self, weights: Float[Tensor, "..."]) -> Float[Tensor, "b t s"]:
        """The weights of one distribution out of those of all heads."""
        if self.heads is None:
            return one_of_heads(weights)
        return torch.einsum("bhts,h->bts", weights, self.head_shares())

    def head_shares(self) -> Float[Tensor, " h"]:
        """How much each head counts; together 1."""
        return self.gate.weight.new_ones(1) if self.heads is None else torch.softmax(self.heads, dim=0)

    def mixed(self, log_probs: Float[Tensor, "b t v"], looked: Looked, sources: Sources) -> Float[Tensor, "b t w"]:
        """Log-probabilities of the words of the vocabulary and of those behind it."""
        gate = self.gate(looked.gate_input).squeeze(-1)
        return mixed(log_probs, gate, self.one_weight(looked.weights), sources.for_steps())

    def shares(
        self, looked: Looked, following: Int[Tensor, "b t"], sources: Int[Tensor, "b s"]
    ) -> tuple[Float[Tensor, "b t"], Float[Tensor, "b t"]]:
        """log p, and log of (1 − p) times the weights of the words that follow."""
        gate = self.gate(looked.gate_input).squeeze(-1)
        weights = self.one_weight(looked.weights)
        weight = torch.where(sources.unsqueeze(1) == following.unsqueeze(-1), weights, 0.0).sum(dim=-1)
        return F.logsigmoid(gate), F.logsigmoid(-gate) + weight.clamp(min=LEAST).log()


def heads_of(attention: Attention) -> int:
    """How many distributions over the source one query gives."""
    inner = getattr(attention, "inner", attention)
    return math.prod(inner.heads)


def one_of_heads(weights: Float[Tensor, "..."]) -> Float[Tensor, "b t s"]:
    """The mean of the heads."""
    return weights.mean(dim=1) if weights.dim() == 4 else weights


def attended_again(weights: Float[Tensor, "b t s"], real: Bool[Tensor, "b t"]) -> Float[Tensor, ""]:
    """The coverage loss, summed over the words that are written."""
    before = weights.cumsum(dim=1) - weights
    return torch.minimum(weights, before).sum(dim=-1)[real].sum()
