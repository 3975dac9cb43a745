"""The Transformer's decoder, one token at a time: what search spends its time in.

The same as the layers of `sightline.layers.transformer` applied to one token, and tested equal to them. It is faster
because everything that does not change from token to token is made once (joined projections, the keys as the products
want them), because caches are written in place, and because the source is kept once for all hypotheses of a sentence,
which look at it together.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention import MultiHead
from sightline.layers.embedding import TokenEmbedding, sinusoids
from sightline.layers.packed import Packed
from sightline.layers.plain import (
    Block,
    affine,
    attend,
    cross_block,
    forward_block,
    norm_of,
    own_block,
    scale_of,
    transform,
    turned,
)
from sightline.layers.transformer import DecoderLayer
from sightline.state import Shared

ROOM = 16  # tokens that caches grow by


class StepState(NamedTuple):
    """Own keys and values of each layer, with room behind; and what the hypotheses of a sentence share.

    ``source`` holds the keys and the values of all layers, `s h n d` each, and what is added to scores where a sentence
    is padded.
    """

    keys: tuple[Float[Tensor, "b h room d"], ...]
    values: tuple[Float[Tensor, "b h room d"], ...]
    source: Shared
    position: int


class _Layer(NamedTuple):
    """The parameters of a layer, as they are used."""

    own: Block
    cross: Block
    after: Block


class OneTokenDecoder:
    """A step for `sightline.search`: the last token of each hypothesis in, log-probabilities of the next one out.

    It holds joined copies of weights, as they were when it was made.
    """

    def __init__(
        self,
        layers: Iterable[nn.Module],
        norm: nn.Module,
        embedding: TokenEmbedding,
        output: nn.Linear,
        sinusoid: bool,
    ) -> None:
        decoders = [layer for layer in layers if isinstance(layer, DecoderLayer)]
        first = decoders[0]
        assert isinstance(first.attention, MultiHead)
        self.decoders, self.layers = decoders, [_plain(layer) for layer in decoders]
        self.activation, self.pre = first.feed_forward.activation, first.around_attention.pre
        self.heads, self.scale = first.attention.key_heads, scale_of(first.attention)
        self.norm, self.output = norm_of(norm), turned(affine(output))
        self.source = affine(*(part for layer in decoders for part in _source_projections(layer)))
        self.embedding, self.factor = embedding.weight, math.sqrt(embedding.embedding_dim)
        self.sinusoid, self.positions = sinusoid, torch.empty(0)

    def begin(self, encoded: Packed) -> StepState:
        """From the annotations of a batch. The keys and values of all layers come from one product."""
        parts, (sentences, width) = 2 * len(self.decoders), encoded.mask.shape
        # Word, layer, keys or values, head, feature: to turn all of these, choosing rows is the fastest copy there is.
        joined = self.source(encoded.words)
        rows = joined.view(len(joined) * parts * self.heads, -1)
        both = rows.index_select(0, encoded.by_heads(parts, self.heads)).view(parts, sentences, self.heads, width, -1)
        hidden = encoded.hidden(encoded.words)
        hidden = None if hidden is None else hidden[:, None, None]
        empty = joined.new_empty(sentences, self.heads, 0, both.shape[-1])
        own = tuple(empty for _ in self.decoders)
        return StepState(own, own, Shared((both[0::2].unbind(), both[1::2].unbind(), hidden)), 0)

    def __call__(self, tokens: Int[Tensor, " b"], state: StepState) -> tuple[Float[Tensor, "b v"], StepState]:
        position = state.position
        if position >= state.keys[0].shape[-2]:
            state = state._replace(
                keys=tuple(F.pad(part, (0, 0, 0, ROOM)) for part in state.keys),
                values=tuple(F.pad(part, (0, 0, 0, ROOM)) for part in state.values),
            )
        source_keys, source_values, hidden = state.source.part
        x = F.embedding(tokens, self.embedding).mul_(self.factor)
        if self.sinusoid:
            x = x.add_(self._position(position, x))
        caches = zip(self.layers, state.keys, state.values, source_keys, source_values, strict=True)
        for layer, own_keys, own_values, keys, values in caches:
            x = self._look_back(layer.own, x, own_keys, own_values, position)
            x = self._look_at_source(layer.cross, x, keys, values, hidden)
            x = transform(layer.after, x, self.activation, self.pre)
        if self.norm is not None:
            x = self.norm(x)
        return torch.log_softmax(self.output(x), dim=-1), state._replace(position=position + 1)

    def _look_back(self, block: Block, x: Float[Tensor, "b d"], keys: Tensor, values: Tensor, position: int) -> Tensor:
        """A token more in the caches, then self-attention with one query."""
        rows, heads, _, size = keys.shape
        joined = block.enter(block.norm(x) if self.pre else x).view(rows, 3, heads, 1, size)
        query, key, value = joined.unbind(1)
        keys, values = keys.narrow(2, 0, position + 1), values.narrow(2, 0, position + 1)
        keys.narrow(2, position, 1).copy_(key)
        values.narrow(2, position, 1).copy_(value)
        read = F.scaled_dot_product_attention(query, keys, values, scale=self.scale)
        x = x + block.leave(read.view(rows, -1))
        return x if self.pre else block.norm(x)

    def _look_at_source(
        self, block: Block, x: Float[Tensor, "b d"], keys: Tensor, values: Tensor, hidden: Tensor | None
    ) -> Tensor:
        """The hypotheses of a sentence ask together."""
        rows, (sentences, heads, _, size) = len(x), keys.shape
        asked = block.enter(block.norm(x) if self.pre else x)
        query = asked.view(sentences, rows // sentences, heads, size).transpose(1, 2)
        read = attend(query, keys, values, hidden, self.scale)
        x = x + block.leave(read.transpose(1, 2).reshape(rows, -1))
        return x if self.pre else block.norm(x)

    def _position(self, position: int, like: Tensor) -> Tensor:
        if position >= len(self.positions):
            self.positions = sinusoids(0, 2 * position + 64, like.shape[-1], like)
        return self.positions[position]


def _source_projections(layer: DecoderLayer) -> tuple[nn.Module, nn.Module]:
    assert isinstance(layer.cross, MultiHead)
    return layer.cross.project_keys, layer.cross.project_values


def _plain(layer: DecoderLayer) -> _Layer:
    blocks = (
        own_block(layer.around_attention, layer.attention),
        cross_block(layer.around_cross, layer.cross),
        forward_block(layer.around_feed_forward, layer.feed_forward),
    )
    return _Layer(*(Block(block.norm, turned(block.enter), turned(block.leave)) for block in blocks))
