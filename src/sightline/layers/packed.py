"""The Transformer's encoder for search: padding is never computed with.

The same as the encoder layers of `sightline.layers.transformer`, and tested equal to them. Sentences of a batch have
different lengths; between attentions their words stand in one list without gaps, so that a long sentence costs the
others nothing.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention import MultiHead
from sightline.layers.embedding import TokenEmbedding, sinusoids
from sightline.layers.plain import affine, attend, cross_block, forward_block, norm_of, scale_of, transform
from sightline.layers.transformer import EncoderLayer


class Packed(NamedTuple):
    """The words of a batch without its padding.

    ``places`` says where they stand in it, ``numbers`` which word stands at each of its places, padding having any one
    of them (both None: there is no padding).
    """

    words: Float[Tensor, "n d"]
    places: Int[Tensor, " n"] | None
    numbers: Int[Tensor, " m"] | None
    mask: Bool[Tensor, "b s"]

    def by_heads(self, parts: int, heads: int) -> Int[Tensor, " m"]:
        """Which row of `n parts heads` stands at each place of `parts b heads s`; in gaps, any (nobody looks there)."""
        device, (rows, width) = self.mask.device, self.mask.shape
        numbers = torch.arange(rows * width, device=device) if self.numbers is None else self.numbers
        part = torch.arange(parts, device=device)[:, None, None, None] * heads
        head = torch.arange(heads, device=device)[:, None]
        return (numbers.view(rows, 1, width) * (parts * heads) + part + head).flatten()

    def by_words(self, heads: int) -> Int[Tensor, " m"]:
        """The way back: which row of `b heads s` stands at each place of `n heads`."""
        rows, width = self.mask.shape
        places = torch.arange(rows * width, device=self.mask.device) if self.places is None else self.places
        head = torch.arange(heads, device=places.device) * width
        return ((places // width * (heads * width) + places % width).unsqueeze(-1) + head).flatten()

    def hidden(self, like: Tensor) -> Float[Tensor, "b s"] | None:
        """What to add to scores so that padding is not looked at."""
        if self.places is None:
            return None
        return torch.zeros_like(self.mask, dtype=like.dtype).masked_fill_(~self.mask, torch.finfo(like.dtype).min)


@torch.no_grad()
def encode_packed(
    source: Int[Tensor, "b s"],
    padding: int,
    embedding: TokenEmbedding,
    layers: Iterable[nn.Module],
    norm: nn.Module,
    sinusoid: bool,
) -> Packed:
    """Annotations of the source's words."""
    mask = source != padding
    tokens, places, numbers = source.flatten(), None, None
    if not mask.all():
        places = mask.flatten().nonzero().squeeze(-1)
        numbers = (mask.flatten().cumsum(0) - 1).clamp(min=0)
        tokens = tokens.index_select(0, places)
    x = F.embedding(tokens, embedding.weight) * math.sqrt(embedding.embedding_dim)
    packed = Packed(x, places, numbers, mask)
    if sinusoid:
        positions = sinusoids(0, source.shape[1], x.shape[1], x)
        x = x + (positions.repeat(len(source), 1) if places is None else positions[places % source.shape[1]])
    hidden = packed.hidden(x)
    hidden = None if hidden is None else hidden[:, None, None]
    moves: dict[int, Moves] = {}  # layers of one number of heads share them
    for layer in layers:
        assert isinstance(layer, EncoderLayer)
        assert isinstance(layer.attention, MultiHead)
        heads = layer.attention.key_heads
        if heads not in moves:
            moves[heads] = Moves(
                packed.by_heads(1, heads), packed.by_words(heads), (*mask.shape[:1], heads, mask.shape[1])
            )
        x = _layer(layer, layer.attention, x, moves[heads], hidden)
    last = norm_of(norm)
    return packed._replace(words=x if last is None else last(x))


class Moves(NamedTuple):
    """Between words and heads, each in one copy: `n heads · d` to `b heads s d`, and back."""

    there: Int[Tensor, " m"]
    back: Int[Tensor, " k"]
    shape: tuple[int, int, int]

    def to_heads(self, x: Float[Tensor, "n e"]) -> Float[Tensor, "b h s d"]:
        return x.view(-1, x.shape[1] // self.shape[1]).index_select(0, self.there).view(*self.shape, -1)

    def to_words(self, x: Float[Tensor, "b h s d"]) -> Float[Tensor, "n e"]:
        return x.reshape(-1, x.shape[-1]).index_select(0, self.back).view(-1, self.shape[1] * x.shape[-1])


def _layer(
    layer: EncoderLayer, attention: MultiHead, x: Float[Tensor, "n d"], moves: Moves, hidden: Tensor | None
) -> Tensor:
    block, pre = cross_block(layer.around_attention, attention), layer.around_attention.pre
    y = block.norm(x) if pre else x
    # Each product is done once: joining the weights first would take longer than it saves.
    parts = block.enter(y), affine(attention.project_keys)(y), affine(attention.project_values)(y)
    query, keys, values = map(moves.to_heads, parts)
    x = x + block.leave(moves.to_words(attend(query, keys, values, hidden, scale_of(attention))))
    x = x if pre else block.norm(x)
    after = forward_block(layer.around_feed_forward, layer.feed_forward)
    return transform(after, x, layer.feed_forward.activation, pre)
