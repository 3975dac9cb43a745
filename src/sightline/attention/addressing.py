"""Memory addressing of the Neural Turing Machine (Graves et al. 2014): content, interpolate, shift, sharpen.

A head turns its query into a key k, a strength β, a gate g, a distribution over shifts and a sharpness γ:
``c = softmax(β cos(k, M))``; ``w ← g c + (1 − g) w_{t−1}``; ``w ← w ⊛ shift`` (around the ring of slots);
``w ← w^γ / Σ w^γ``. Reading is the weighted sum, as everywhere; `write` erases and then adds.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.attention.checks import check_least
from sightline.attention.compose import Weighed
from sightline.attention.contract import AttentionConfig, Carry, Heads, Memory, existing, full_sizes
from sightline.attention.dot import unit_length
from sightline.attention.heads import HeadLinear
from sightline.attention.normalisers import Normaliser, NormaliserConfig, SoftmaxConfig
from sightline.attention.scores import Score
from sightline.attention.sequential import Sequential, row_visible


class Content(Score):
    """``β cos(k, M_i)`` with β given by the query, not learned: the query is (k, β). β is at least ``least``."""

    def __init__(self, least: float = 0.0) -> None:
        super().__init__()
        self.least = least

    def forward(
        self, query: Float[Tensor, "*b t q"], keys: Float[Tensor, "*#b s p"], position: int
    ) -> Float[Tensor, "*b t s"]:
        key, strength = query[..., :-1], self.least + F.softplus(query[..., -1:])
        return strength * (unit_length(key) @ unit_length(keys).transpose(-2, -1))


class Addressing(Sequential):
    """A read or write head. Which of the two it is lies in what is done with its weights."""

    def __init__(
        self, config: "AddressingConfig", normaliser: Normaliser, sizes: tuple[int, int, int], heads: Heads = ()
    ) -> None:
        query_size, key_size, value_size = sizes
        super().__init__(Content(), normaliser, query_size, key_size, value_size, heads)
        self.furthest = config.furthest_shift
        shifts = 2 * config.furthest_shift + 1
        self.parts = (key_size + 1, 1, shifts, 1)
        self.head = HeadLinear(query_size, sum(self.parts), heads=heads, bias=True)

    def begin(self, memory: Memory) -> Carry:
        """The first existing slot: a place to shift from. (Spread out evenly, a shift would change nothing.)"""
        start = super().begin(memory)
        zeros = start.weights
        assert zeros is not None
        exists = existing(memory).expand(zeros.shape)
        first = exists & (exists.cumsum(dim=-1) == 1)
        return start._replace(weights=first.to(zeros.dtype))

    def weigh(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry,
        allowed: Bool[Tensor, "..."] | None,
    ) -> Weighed:
        content_query, gate, shift, sharpness = self.head(query).split(self.parts, dim=-1)
        scores = self.score(content_query, memory.keys, carry.position)
        content, log_prob, entropy = self.normaliser(scores, allowed)
        gate = torch.sigmoid(gate)
        last, seen = self.last_weights(carry, memory), None
        if allowed is not None:
            seen = row_visible(allowed, scores)
            last = last.masked_fill(~seen, 0.0)
        mixed = gate * content + (1 - gate) * last
        shifted = shift_around(mixed, torch.softmax(shift, dim=-1), seen)
        weights = sharpen(shifted, 1 + F.softplus(sharpness))
        return Weighed(scores, weights, log_prob, entropy, allowed)

    def write(
        self,
        memory: Memory,
        weights: Float[Tensor, "*b w s"],
        erase: Float[Tensor, "*b w v"],
        add: Float[Tensor, "*b w v"],
    ) -> Memory:
        """``M ← M ∘ Π(1 − w eᵀ) + Σ w aᵀ`` over the write heads ``w``: all erase, then all add. ``erase`` in [0, 1]."""
        if memory.keys.shape != memory.values.shape:
            raise ValueError(
                f"memory has keys of shape {tuple(memory.keys.shape)} and values of shape "
                f"{tuple(memory.values.shape)}; a memory that is written has one content for both"
            )
        written = erase_and_add(memory.values, weights, erase, add)
        return Memory(written, written, memory.mask)


def erase_and_add(
    slots: Float[Tensor, "*b s v"],
    weights: Float[Tensor, "*b w s"],
    erase: Float[Tensor, "*b w v"],
    add: Float[Tensor, "*b w v"],
) -> Float[Tensor, "*b s v"]:
    """``M ∘ Π(1 − w eᵀ) + Σ w aᵀ`` over the write heads ``w``."""
    keep = torch.prod(1 - weights.unsqueeze(-1) * erase.unsqueeze(-2), dim=-3)
    return slots * keep + weights.transpose(-2, -1) @ add


def ring(seen: Bool[Tensor, "*b s"], offset: int) -> Int[Tensor, "*b s"]:
    """For each slot, the slot ``offset`` places before it on the ring of the slots that are seen."""
    rank = (seen.cumsum(dim=-1) - 1).clamp(min=0)
    count = seen.sum(dim=-1, keepdim=True).clamp(min=1)
    slot_of_rank = torch.argsort((~seen).to(torch.int8), dim=-1, stable=True)
    return slot_of_rank.gather(-1, (rank - offset) % count)


def shift_around(
    weights: Float[Tensor, "*b t s"], shift: Float[Tensor, "*b t n"], seen: Bool[Tensor, "*b t s"] | None
) -> Float[Tensor, "*b t s"]:
    """``w̃(i) = Σ_j w(j) shift(i − j)`` around the ring; ``shift`` runs from −furthest to +furthest. ``seen`` are the
    slots on the ring: all of them where it is None."""
    furthest = shift.shape[-1] // 2
    if seen is None:
        if furthest >= weights.shape[-1] or not furthest:
            seen = torch.ones_like(weights, dtype=torch.bool)
        else:
            around = torch.cat([weights[..., -furthest:], weights, weights[..., :furthest]], dim=-1)
            return (around.unfold(-1, shift.shape[-1], 1) @ shift.flip(-1).unsqueeze(-1)).squeeze(-1)
    parts = [weights.gather(-1, ring(seen, offset)) for offset in range(-furthest, furthest + 1)]
    return (torch.stack(parts, dim=-1) * shift.unsqueeze(-2)).sum(dim=-1).masked_fill(~seen, 0.0)


def sharpen(weights: Float[Tensor, "*b t s"], sharpness: Float[Tensor, "*b t 1"]) -> Float[Tensor, "*b t s"]:
    """``w^γ / Σ w^γ``. Divided by the largest first: small weights to a high power would all round to zero."""
    if weights.shape[-1] == 0:
        return weights
    largest = weights.detach().amax(dim=-1, keepdim=True)
    powers = (weights / torch.where(largest > 0, largest, 1.0)) ** sharpness
    total = powers.sum(dim=-1, keepdim=True)
    return powers / torch.where(total > 0, total, 1.0)  # nothing to attend: zeros stay zeros


@dataclass(frozen=True)
class AddressingConfig(AttentionConfig):
    """``furthest_shift`` 1 allows shifts of −1, 0 and +1, as in the paper."""

    furthest_shift: int = 1
    normaliser: NormaliserConfig = field(default_factory=SoftmaxConfig)
    kind: ClassVar[str] = "addressing"

    def __post_init__(self) -> None:
        check_least(self, 0, "furthest_shift")

    def build(
        self, query_size: int, key_size: int | None = None, value_size: int | None = None, *, heads: Heads = ()
    ) -> Addressing:
        query_size, key_size, value_size = full_sizes(query_size, key_size, value_size)
        return Addressing(self, self.normaliser.build(), (query_size, key_size, value_size), heads)
