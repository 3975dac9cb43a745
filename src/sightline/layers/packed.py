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

    def spread(self, x: Float[Tensor, "n e"]) -> Float[Tensor, "b s e"]:
        """With gaps again, filled with whatever is hidden from attention anyway."""
        x = x if self.numbers is None else x.index_select(0, self.numbers)
        return x.view(*self.mask.shape, -1)

    def gather(self, x: Float[Tensor, "b s *e"]) -> Float[Tensor, "n e"]:
        """Without the gaps."""
        x = x.reshape(self.mask.numel(), -1)
        return x if self.places is None else x.index_select(0, self.places)

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
        x = x + packed.gather(positions.expand(len(source), -1, -1))
    hidden = packed.hidden(x)
    hidden = None if hidden is None else hidden[:, None, None]
    for layer in layers:
        assert isinstance(layer, EncoderLayer)
        x = _layer(layer, x, packed, hidden)
    last = norm_of(norm)
    return packed._replace(words=x if last is None else last(x))


def _layer(layer: EncoderLayer, x: Float[Tensor, "n d"], packed: Packed, hidden: Tensor | None) -> Tensor:
    assert isinstance(layer.attention, MultiHead)
    block, pre = cross_block(layer.around_attention, layer.attention), layer.around_attention.pre
    y = block.norm(x) if pre else x
    # Each product is done once: joining the weights first would take longer than it saves.
    parts = block.enter(y), affine(layer.attention.project_keys)(y), affine(layer.attention.project_values)(y)
    query, keys, values = (
        packed.spread(part).unflatten(-1, (layer.attention.key_heads, -1)).transpose(1, 2) for part in parts
    )
    read = attend(query, keys, values, hidden, scale_of(layer.attention))
    x = x + block.leave(packed.gather(read.transpose(1, 2)))
    x = x if pre else block.norm(x)
    after = forward_block(layer.around_feed_forward, layer.feed_forward)
    return transform(after, x, layer.feed_forward.activation, pre)
