"""The Transformer's decoder, one token at a time: what search spends its time in.

The same as the layers of `sightline.nn.transformer` applied to one token, and tested equal to them. It is faster
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
from sightline.attention.fused import SHORT
from sightline.kernels.products import Product
from sightline.nn.embedding import Positions, TokenEmbedding
from sightline.nn.packed import Packed
from sightline.nn.plain import (
    FEW,
    Block,
    Stack,
    attend,
    cross_block,
    forward_block,
    keys_and_values,
    norm_of,
    own_block,
    transform,
)
from sightline.nn.transformer import DecoderLayer
from sightline.state import Shared

ROOM = 16  # tokens that caches grow by


class StepState(NamedTuple):
    """Own keys of each layer and own values, with room behind; and what the hypotheses of a sentence share.

    ``source`` holds the keys and the values of all layers, `s h n d` each, and what is added to scores where a sentence
    is padded.
    """

    own: tuple[tuple[Float[Tensor, "b h room e"], Float[Tensor, "b h room e"]], ...]
    source: Shared
    position: int


class OneTokenDecoder:
    """A step for `sightline.decoding.search`: the last token of each hypothesis in, log-probabilities of the next one out.

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
        blocks, self.start = Stack.of(block for layer in decoders for block in _decoder_blocks(layer))
        self.layers = list(zip(blocks[0::3], blocks[1::3], blocks[2::3], strict=True))
        self.activation, self.heads = first.feed_forward.activation, first.attention.key_heads
        self.norm, self.output = norm_of(norm), Product(output.weight, output.bias)
        self.source = Product(torch.cat([_source_weight(layer) for layer in decoders], dim=1).t(), often=True)
        self.embedding, self.factor = embedding.weight, math.sqrt(embedding.embedding_dim)
        self.positions, self.unseen = Positions(self.start) if sinusoid else None, torch.empty(0, 0)

    def begin(self, encoded: Packed) -> StepState:
        """From the annotations of a batch. The keys and values of all layers come from one product."""
        layers, heads, (sentences, width) = len(self.layers), self.heads, encoded.mask.shape
        # Word, layer, head, key or value, feature: to turn all of these, choosing rows is the fastest copy there is.
        joined = self.source(encoded.words)
        each, firsts = 2 * layers * heads, [2 * heads * layer + part for part in (0, 1) for layer in range(layers)]
        rows = joined.view(joined.shape[0] * each, -1).index_select(0, encoded.by_heads(heads, each, firsts, 2))
        keys, values = rows.view(2, layers, sentences, heads, width, -1)
        empty = joined.new_empty(sentences, heads, 0, keys.shape[-1])
        shared = Shared((keys.unbind(), values.unbind(), encoded.hidden(heads, joined)))
        return StepState(((empty, empty),) * layers, shared, 0)

    def __call__(self, tokens: Int[Tensor, " b"], state: StepState) -> tuple[Float[Tensor, "b v"], StepState]:
        position = state.position
        if position >= state.own[0][0].shape[-2]:
            state = state._replace(own=tuple((_roomier(keys), _roomier(values)) for keys, values in state.own))
        source_keys, source_values, hidden = state.source.part
        x = F.embedding(tokens, self.embedding).mul_(self.factor)
        if (offset := self._offset(position, x)) is not None:
            x = x.add_(offset)
        caches = zip(self.layers, state.own, source_keys, source_values, strict=True)
        for (own, cross, after), cache, keys, values in caches:
            x = self._look_back(own, x, cache, position)
            x = self._look_at_source(cross, x, keys, values, hidden)
            x = transform(after, x, self.activation)
        if self.norm is not None:
            x = self.norm(x)
        return torch.log_softmax(self.output(x), dim=-1), state._replace(position=position + 1)

    def _look_back(self, block: Block, x: Float[Tensor, "b d"], cache: tuple[Tensor, Tensor], position: int) -> Tensor:
        """A token more in the cache, then self-attention with one query."""
        keys, values = cache
        rows, heads, room, size = keys.shape
        query, key, value = block.begin(x).view(rows, heads, 3, size).unbind(2)
        # Keys and values apart: with values between them, the keys took twice as long to read.
        keys.select(2, position).copy_(key)
        values.select(2, position).copy_(value)
        unseen = None
        if rows < FEW or room > SHORT or x.device.type != "cpu":
            keys, values = keys.narrow(2, 0, position + 1), values.narrow(2, 0, position + 1)
        elif position + 1 < room:
            # Plain products, of all the room there is: a row of scores that fills registers takes less time than a
            # shorter one. What is not written yet is zero, and hidden.
            unseen = self._unseen(position, room, x)
        return block.end(x, attend(query.unsqueeze(2), keys, values, unseen).view(rows, -1))

    def _look_at_source(
        self, block: Block, x: Float[Tensor, "b d"], keys: Tensor, values: Tensor, hidden: Tensor | None
    ) -> Tensor:
        """The hypotheses of a sentence ask together."""
        rows, (sentences, heads, _, size) = x.shape[0], keys.shape
        query = block.begin(x).view(sentences, rows // sentences, heads, size).transpose(1, 2)
        return block.end(x, attend(query, keys, values, hidden).transpose(1, 2).reshape(rows, -1))

    def _offset(self, position: int, like: Tensor) -> Tensor | None:
        """What is added to the embedding: where the token stands, and what the stack wants its input to bring along."""
        return self.start if self.positions is None else self.positions(position + 1, like)[position]

    def _unseen(self, position: int, room: int, like: Tensor) -> Float[Tensor, " room"]:
        """To be added to scores: nothing up to a token, and behind it what hides the rest."""
        unseen = self.unseen  # read once: another thread may write a smaller one
        if room > len(unseen):
            self.unseen = unseen = like.new_full((room, room), torch.finfo(like.dtype).min).triu_(1)
        return unseen[position, :room]


def _roomier(cache: Float[Tensor, "b h room e"]) -> Float[Tensor, "b h more e"]:
    return F.pad(cache, (0, 0, 0, ROOM))


def _source_weight(layer: DecoderLayer) -> Tensor:
    assert isinstance(layer.cross, MultiHead)
    return keys_and_values(layer.cross)


def _decoder_blocks(layer: DecoderLayer) -> tuple[Block, Block, Block]:
    return (
        own_block(layer.around_attention, layer.attention),
        cross_block(layer.around_cross, layer.cross),
        forward_block(layer.around_feed_forward, layer.feed_forward),
    )
