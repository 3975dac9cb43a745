"""Score → normalise → read: the mechanism that most mechanisms are. Any score goes with any normaliser."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention import checks
from sightline.attention.allow import Allow, as_allow, visible_keys
from sightline.attention.contract import (
    Attention,
    AttentionConfig,
    Carry,
    Heads,
    Memory,
    Read,
    concatenate,
    full_sizes,
)
from sightline.attention.dot import ScaledDotConfig
from sightline.attention.fused import fused_context
from sightline.attention.hard import Hard
from sightline.attention.normalisers import Normaliser, NormaliserConfig, Softmax, SoftmaxConfig
from sightline.attention.observed import may_bypass
from sightline.attention.scores import DotProductScore, Score, ScoreConfig
from sightline.attention.tap import Look, active_taps, new_passage, rows_at_once, show
from sightline.kernels import is_traced

LARGE = 1e15  # far from where float32 ends, also after a product or two


class Weighed(NamedTuple):
    """Scores and what became of them, for a block of queries, and what could be seen (None: everything)."""

    scores: Float[Tensor, "*b t s"]
    weights: Float[Tensor, "*b t s"]
    log_prob: Float[Tensor, "*b t"] | None
    entropy: Float[Tensor, "*b t"] | None
    allowed: Bool[Tensor, "..."] | None


class Composed(Attention):
    """Holds a score and a normaliser, and reads the weighted sum of the values.

    ``weights_dropout``, where a model sets it, leaves out some of the weights in training.
    """

    def __init__(
        self, score: Score, normaliser: Normaliser, query_size: int, key_size: int, value_size: int, heads: Heads = ()
    ) -> None:
        super().__init__()
        self.score, self.normaliser = score, normaliser
        self.weights_dropout: nn.Module | None = None
        self.query_size, self.key_size, self.value_size = query_size, key_size, value_size
        self.context_size, self.heads = value_size, heads
        if isinstance(normaliser, Hard) and normaliser.soft_share and type(self).weigh is not Composed.weigh:
            raise ValueError(
                f"soft_share is {normaliser.soft_share}; {type(self).__name__} weighs in a way of its own and cannot "
                f"read some rows softly: leave it at 0"
            )

    def begin(self, memory: Memory) -> Carry:
        """The carry of the first query: here it is drawn which rows hard attention reads softly while it learns."""
        if not isinstance(self.normaliser, Hard):
            return Carry()
        batch = memory.values.shape[: memory.values.dim() - 2 - len(self.heads)]
        return Carry(soft=self.normaliser.draw_soft(batch, memory.values.device))

    def extend(
        self,
        memory: Memory | None,
        keys: Float[Tensor, "*b s k"],
        values: Float[Tensor, "*b s v"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        checks.check_float("keys", keys, "s", self.key_size)
        checks.check_values(keys if values is None else values, keys, self.value_size)
        values = keys if values is None else values
        start = 0 if memory is None else memory.keys.shape[-2]
        if mask is not None:
            checks.check_mask(mask, keys)
            mask = _with_batch_axes(mask, keys, len(self.heads))
            # What a missing key holds must change nothing, not even by 0 · NaN: it is emptied here, once.
            if not (self.can_fuse() and _are_numbers(keys) and (values is keys or _are_numbers(values))):
                missing = ~mask.unsqueeze(-1)
                same, keys = values is keys, keys.masked_fill(missing, 0.0)
                values = keys if same else values.masked_fill(missing, 0.0)
        projected = self.score.project_keys(keys, start)
        if memory is not None:
            checks.check_extend(memory.values, values)
        return concatenate(memory, Memory(projected, values, mask))

    def forward(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry | None = None,
        *,
        allow: Allow | Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> Read:
        checks.check_query(query, self.query_size, memory.values)
        carry = self.begin(memory) if carry is None else carry
        checks.check_carry(carry)
        rule = None if allow is None else as_allow(allow)
        if not need_weights and self.can_fuse() and may_bypass(self):
            assert isinstance(self.score, DotProductScore)
            context = fused_context(self.score, query, memory, carry.position, rule)
            return Read(context, carry._replace(position=carry.position + query.shape[-2]))
        if active_taps() and not carry.passage:
            carry = carry._replace(passage=new_passage())
        return self.attend(query, memory, carry, rule, need_weights)

    def can_fuse(self) -> bool:
        """Softmax over a dot product has a kernel of its own, unless a subclass weighs in a way of its own."""
        plain = type(self).weigh is Composed.weigh and type(self).attend_block is Composed.attend_block
        plain = plain and not (self.training and self.weights_dropout is not None)
        return plain and isinstance(self.score, DotProductScore) and isinstance(self.normaliser, Softmax)

    def attend(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry,
        allow: Allow | None,
        need_weights: bool,
    ) -> Read:
        """The plain path, in as many blocks of queries as the open taps ask for."""
        t = query.shape[-2]
        rows = self.rows_in_a_block(query, memory)
        if rows >= t:
            return self.attend_block(query, memory, carry, allow, need_weights)
        blocks = []
        # One tensor for what is read, made first: small results left between large temporaries would break up the
        # heap, and memory would grow with every block after all.
        context = query.new_empty(*query.shape[:-1], self.context_size)
        for start in range(0, t, rows):
            block = query[..., start : start + rows, :]
            length = block.shape[-2]
            rule = None if allow is None else allow.narrow(start, length)
            read = self.attend_block(block, memory, carry, rule, need_weights, start, t - start - length)
            context[..., start : start + length, :] = read.context
            carry = read.carry
            blocks.append(read[2:])
        return Read(context, carry, *_join(blocks))

    def rows_in_a_block(self, query: Float[Tensor, "*b t q"], memory: Memory) -> int:
        """How many queries to take at once."""
        return rows_at_once(query.shape[-2], math.prod(query.shape[:-2]) * memory.keys.shape[-2])

    def attend_block(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry,
        allow: Allow | None,
        need_weights: bool,
        shown: int = 0,
        to_come: int = 0,
    ) -> Read:
        """Score, normalise, show to the taps, read."""
        t, s = query.shape[-2], memory.keys.shape[-2]
        allowed = visible_keys(allow, memory.mask, carry.position, t, s, query.device)
        if allowed is not None:
            checks.check_allowed(allowed, query, s)
        scores, weights, log_prob, entropy, allowed = self.weigh(query, memory, carry, allowed)
        head_axes = len(self.heads)
        weights = show(Look(self, carry.position, scores, weights, allowed, head_axes, shown, to_come, carry.passage))
        read_with = weights if self.weights_dropout is None else self.weights_dropout(weights)
        context = read_with @ memory.values
        return Read(context, self.next_carry(carry, weights), weights if need_weights else None, log_prob, entropy)

    def weigh(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry,
        allowed: Bool[Tensor, "..."] | None,
    ) -> Weighed:
        """Scores and weights of a block of queries: what a mechanism with ideas of its own overrides."""
        scores = self.score(query, memory.keys, carry.position)
        if carry.soft is None or not isinstance(self.normaliser, Hard):
            weights, log_prob, entropy = self.normaliser(scores, allowed)
        else:
            rows = carry.soft.reshape(*carry.soft.shape, *[1] * len(self.heads), 1)
            weights, log_prob, entropy = self.normaliser.partly_soft(scores, allowed, rows)
        return Weighed(scores, weights, log_prob, entropy, allowed)

    def next_carry(self, carry: Carry, weights: Float[Tensor, "*b t s"]) -> Carry:
        return carry._replace(position=carry.position + weights.shape[-2])


def _join(blocks: Sequence[tuple[Tensor | None, ...]]) -> list[Tensor | None]:
    """Weights, log-probabilities and entropies of blocks of queries, each as one tensor, or None."""
    joined: list[Tensor | None] = []
    for axis, parts in zip((-2, -1, -1), zip(*blocks, strict=True), strict=True):
        present = [part for part in parts if part is not None]
        joined.append(torch.cat(present, dim=axis) if present else None)
    return joined


def _are_numbers(x: Tensor) -> bool:
    """Whether nothing is NaN, infinite or near it: zero times it is zero, and times anything else still a number.

    A graphics card would have to be waited for.
    """
    if is_traced() or x.device.type != "cpu" or x.dtype not in (torch.float32, torch.float64):
        return False
    return bool(torch.linalg.vector_norm(x.detach()) < LARGE)


def _with_batch_axes(mask: Tensor, keys: Tensor, head_axes: int) -> Tensor:
    """The mask with every batch axis whole (beams select along it); head axes may stay of size 1."""
    batch = keys.shape[: keys.dim() - 2 - head_axes]
    mask = mask.reshape(*[1] * (keys.dim() - 1 - mask.dim()), *mask.shape)
    return mask.expand(*batch, *mask.shape[len(batch) : -1], keys.shape[-2])


@dataclass(frozen=True)
class ComposedConfig(AttentionConfig):
    """A score and a normaliser: ``ComposedConfig(AdditiveConfig(), SparsemaxConfig())``."""

    score: ScoreConfig = field(default_factory=ScaledDotConfig)
    normaliser: NormaliserConfig = field(default_factory=SoftmaxConfig)
    kind: ClassVar[str] = "composed"

    def build(
        self, query_size: int, key_size: int | None = None, value_size: int | None = None, *, heads: Heads = ()
    ) -> Composed:
        query_size, key_size, value_size = full_sizes(query_size, key_size, value_size)
        score = self.score.build(query_size, key_size, heads=heads)
        return Composed(score, self.normaliser.build(), query_size, key_size, value_size, heads)
