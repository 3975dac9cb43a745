"""The contract of attention: read this file first.

Every mechanism in the field is the same sentence: *a query scores annotations, the scores become weights, the
weighted sum is read*. The contract says it once, so that a decoder, a search, a viewer or a test can hold any
mechanism without knowing which one it is::

    memory = attention.remember(keys, values, mask)         # project the annotations once
    carry = attention.begin(memory)                         # what goes from one query to the next
    read = attention(query, memory, carry, allow=Causal())  # as many queries at once as you like
    read.context, read.carry                                # what was read; what the next query needs

Shapes: query ``*b t q``, keys ``*b s k``, values ``*b s v``, context ``*b t v``, weights ``*b t s``. Heads are one
more leading axis. Masks are bool and ``True`` means *may attend*, everywhere. `sightline.testing.check_attention`
holds every mechanism to the laws of this contract.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention.allow import Allow
from sightline.config import Config, kinds

Heads = tuple[int, ...]


class Memory(NamedTuple):
    """What can be attended to: the annotations, with their keys already projected. Batch axes come first."""

    keys: Float[Tensor, "*bk s p"]
    values: Float[Tensor, "*bv s v"]
    mask: Bool[Tensor, "*bm s"] | None = None


class Carry(NamedTuple):
    """What goes from one query to the next: how many queries came before, and the last one's weights if needed.

    ``passage`` is a number that an open `capture` gives to a chain of calls, so that it can tell two chains apart that
    use one mechanism in turn; 0 outside `capture`. ``soft`` says which rows hard attention reads softly, from the
    first query to the last; None where it looks hard at all of them.
    """

    position: int = 0
    weights: Float[Tensor, "*b s"] | None = None
    passage: int = 0
    soft: Bool[Tensor, "*b"] | None = None


class Read(NamedTuple):
    """What one call of attention gives back. The last three are None unless asked for or sampled."""

    context: Float[Tensor, "*b t v"]
    carry: Carry
    weights: Float[Tensor, "*b t s"] | None = None
    log_prob: Float[Tensor, "*b t"] | None = None
    entropy: Float[Tensor, "*b t"] | None = None


class Attention(nn.Module):
    """A mechanism. Subclass `Composed` for score → normalise → read; subclass this for anything else.

    Nothing is kept on ``self`` between calls: memories can be interleaved, reordered by beams, shared by threads.
    """

    query_size: int
    key_size: int
    value_size: int
    context_size: int
    heads: Heads = ()

    def remember(
        self,
        keys: Float[Tensor, "*b s k"],
        values: Float[Tensor, "*b s v"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        """Project the annotations once. ``mask`` says which of them exist; ``values`` are the keys unless given."""
        return self.extend(None, keys, values, mask)

    @abstractmethod
    def extend(
        self,
        memory: Memory | None,
        keys: Float[Tensor, "*b s k"],
        values: Float[Tensor, "*b s v"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> Memory:
        """Append annotations: the cache of incremental decoding. Nothing before counts as an empty memory."""

    def begin(self, memory: Memory) -> Carry:
        """The carry of the first query."""
        return Carry()

    @abstractmethod
    def forward(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry | None = None,
        *,
        allow: Allow | Bool[Tensor, "..."] | None = None,
        need_weights: bool = False,
    ) -> Read:
        """Attend. ``allow`` says which query may see which key; ``need_weights`` is for losses, not for viewing."""


class AttentionConfig(Config):
    """The base of every mechanism's configuration: a frozen dataclass that builds its owner."""

    family: ClassVar[str] = "attention"

    @classmethod
    def read_name(cls, name: str) -> dict[str, object]:
        """A score's name alone stands for that score with softmax."""
        if name in kinds("score") and name not in kinds("attention"):
            return {"kind": "composed", "score": name}
        return {"kind": name}

    @abstractmethod
    def build(
        self, query_size: int, key_size: int | None = None, value_size: int | None = None, *, heads: Heads = ()
    ) -> Attention:
        """Build the mechanism. Sizes left out are those of the argument before; ``heads`` are extra leading axes."""


def concatenate(before: Memory | None, after: Memory) -> Memory:
    """One memory behind the other, along the keys."""
    if before is None:
        return after
    mask = None
    if before.mask is not None or after.mask is not None:
        mask = torch.cat([_mask_like(before, after), _mask_like(after, before)], dim=-1)
    keys = torch.cat([before.keys, after.keys], dim=-2)
    return Memory(keys, torch.cat([before.values, after.values], dim=-2), mask)


def _mask_like(memory: Memory, other: Memory) -> Bool[Tensor, "..."]:
    """The memory's mask; where it was left out, ones with the axes of the other's."""
    if memory.mask is not None:
        return memory.mask
    assert other.mask is not None
    return other.mask.new_ones(*other.mask.shape[:-1], memory.values.shape[-2])


def existing(memory: Memory) -> Bool[Tensor, "*b s"]:
    """The memory's mask, made of ones where it was left out."""
    if memory.mask is not None:
        return memory.mask
    return torch.ones(memory.values.shape[:-1], dtype=torch.bool, device=memory.values.device)


def full_sizes(query_size: int, key_size: int | None, value_size: int | None) -> Sequence[int]:
    """Sizes left out are those of the argument before."""
    key_size = query_size if key_size is None else key_size
    value_size = key_size if value_size is None else value_size
    for name, size in (("query_size", query_size), ("key_size", key_size), ("value_size", value_size)):
        if size < 1:
            raise ValueError(f"{name} is {size}; a size must be at least 1")
    return query_size, key_size, value_size
