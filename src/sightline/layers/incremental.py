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

from sightline.attention import Composed, MultiHead
from sightline.attention.dot import ScaledDot
from sightline.attention.normalisers import Softmax
from sightline.layers.embedding import TokenEmbedding, sinusoids
from sightline.layers.transformer import DecoderLayer, DecoderLayerState
from sightline.state import Shared

ROOM = 16  # tokens that caches grow by


class SourceState(NamedTuple):
    """The source as one layer's attention looks at it: keys and values of a sentence."""

    keys: Float[Tensor, "s h d n"]
    values: Float[Tensor, "s h n d"]


class StepState(NamedTuple):
    """Own keys and values of each layer, with room behind; and what the hypotheses of a sentence share.

    ``source`` holds the layers' `SourceState` and what is added to scores where a sentence is padded.
    """

    keys: tuple[Float[Tensor, "b h room d"], ...]
    values: tuple[Float[Tensor, "b h room d"], ...]
    source: Shared
    position: int


class _Norm(NamedTuple):
    """A layer normalisation without the module around it."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self)


class _Layer(NamedTuple):
    """The parameters of a layer, as they are used."""

    norms: tuple["_Norm", "_Norm", "_Norm"]
    own: tuple[Tensor, Tensor]  # queries, keys and values in one product
    own_output: tuple[Tensor, Tensor]
    query: tuple[Tensor, Tensor]
    source_output: tuple[Tensor, Tensor]
    widen: tuple[Tensor, Tensor]
    narrow: tuple[Tensor, Tensor]


def can_step(layers: Iterable[nn.Module]) -> bool:
    """Whether all attention is multi-head scaled dot-product softmax without positions of its own, in plain layers."""
    return all(
        isinstance(layer, DecoderLayer) and _is_plain(layer.attention) and _is_plain(layer.cross) for layer in layers
    )


def _is_plain(attention: nn.Module) -> bool:
    if type(attention) is not MultiHead or type(attention.inner) is not Composed or attention.shared != 1:
        return False
    score = attention.inner.score
    plain = type(score) is ScaledDot and score.relative is None and type(attention.inner.normaliser) is Softmax
    same_sizes = attention.project_keys.weight.shape == attention.project_values.weight.shape
    return plain and same_sizes and attention.project_query.bias is not None


class OneTokenDecoder:
    """A step for `sightline.search`: the last token of each hypothesis in, log-probabilities of the next one out.

    It holds joined copies of weights, as they were when it was made: it is for one search.
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
        self.layers = [_packed(layer) for layer in decoders]
        self.activation, self.pre = decoders[0].feed_forward.activation, decoders[0].around_attention.pre
        assert isinstance(decoders[0].attention, MultiHead)
        self.heads = decoders[0].attention.key_heads
        self.norm = _norm_of(norm) if isinstance(norm, nn.LayerNorm) else None
        self.embedding, self.scale = embedding.weight, math.sqrt(embedding.embedding_dim)
        self.output, self.sinusoid = _parts(output), sinusoid
        self.places = torch.empty(0)

    def begin(self, states: Iterable[DecoderLayerState]) -> StepState:
        """From what the layers' own `begin` made of the source."""
        memories = [state.source for state in states]
        keys, values = memories[0].keys, memories[0].values
        source = tuple(
            SourceState(memory.keys.transpose(-2, -1).contiguous(), memory.values.contiguous()) for memory in memories
        )
        hidden, mask = None, memories[0].mask
        if mask is not None and not mask.all():
            hidden = torch.zeros_like(mask, dtype=keys.dtype).masked_fill_(~mask, torch.finfo(keys.dtype).min)
            hidden = hidden.unsqueeze(-2)
        empty = [x.new_empty(*x.shape[:2], 0, x.shape[-1]) for x in (keys, values)]
        own = [tuple(part for _ in memories) for part in empty]
        return StepState(own[0], own[1], Shared((source, hidden)), 0)

    def __call__(self, tokens: Int[Tensor, " b"], state: StepState) -> tuple[Float[Tensor, "b v"], StepState]:
        position = state.position
        if position >= state.keys[0].shape[-2]:
            state = state._replace(
                keys=tuple(F.pad(part, (0, 0, 0, ROOM)) for part in state.keys),
                values=tuple(F.pad(part, (0, 0, 0, ROOM)) for part in state.values),
            )
        source, hidden = state.source.part
        x = F.embedding(tokens, self.embedding) * self.scale
        if self.sinusoid:
            x = x + self._place(position, x)
        for layer, keys, values, memory in zip(self.layers, state.keys, state.values, source, strict=True):
            x = self._layer(layer, x, keys, values, memory, hidden, position)
        if self.norm is not None:
            x = self.norm(x)
        return torch.log_softmax(F.linear(x, *self.output), dim=-1), state._replace(position=position + 1)

    def _layer(
        self,
        layer: _Layer,
        x: Float[Tensor, "b d"],
        keys: Tensor,
        values: Tensor,
        memory: SourceState,
        hidden: Tensor | None,
        position: int,
    ) -> Float[Tensor, "b d"]:
        """A token more in the caches, then the three parts of a layer."""
        rows, heads, pre = len(x), self.heads, self.pre
        first, second, third = layer.norms
        y = first(x) if pre else x
        query, key, value = F.linear(y, *layer.own).view(rows, 3, heads, -1).unbind(1)
        keys[:, :, position], values[:, :, position] = key, value
        # One query a head: (rows · heads) small products.
        room, size, length = keys.shape[-2], keys.shape[-1], position + 1
        own_keys = keys.view(-1, room, size)[:, :length]
        scores = torch.bmm(query.reshape(-1, 1, size), own_keys.transpose(1, 2))
        read = torch.bmm(torch.softmax(scores, dim=-1), values.view(-1, room, size)[:, :length]).view(rows, -1)
        x = x + F.linear(read, *layer.own_output)
        x = x if pre else first(x)
        y = second(x) if pre else x
        # The hypotheses of a sentence ask together.
        sentences = memory.keys.shape[0]
        query = F.linear(y, *layer.query).view(sentences, rows // sentences, heads, -1).transpose(1, 2)
        scores = query @ memory.keys
        if hidden is not None:
            scores += hidden
        read = (torch.softmax(scores, dim=-1) @ memory.values).transpose(1, 2).reshape(rows, -1)
        x = x + F.linear(read, *layer.source_output)
        x = x if pre else second(x)
        y = third(x) if pre else x
        x = x + F.linear(self.activation(F.linear(y, *layer.widen)), *layer.narrow)
        return x if pre else third(x)

    def _place(self, position: int, like: Tensor) -> Tensor:
        if position >= len(self.places):
            self.places = sinusoids(0, 2 * position + 64, like.shape[-1], like)
        return self.places[position]


def _packed(layer: DecoderLayer) -> _Layer:
    own, cross = layer.attention, layer.cross
    assert isinstance(own, MultiHead)
    assert isinstance(cross, MultiHead)
    scales = [_scale(attention) for attention in (own, cross)]
    weights = [own.project_query.weight * scales[0], own.project_keys.weight, own.project_values.weight]
    biases = [own.project_query.bias * scales[0], own.project_keys.bias, own.project_values.bias]
    norms = (layer.around_attention, layer.around_cross, layer.around_feed_forward)
    return _Layer(
        norms=(_norm_of(norms[0].normalise), _norm_of(norms[1].normalise), _norm_of(norms[2].normalise)),
        own=(torch.cat(weights), torch.cat(biases)),
        own_output=_parts(own.output),
        query=(cross.project_query.weight * scales[1], cross.project_query.bias * scales[1]),
        source_output=_parts(cross.output),
        widen=_parts(layer.feed_forward.widen),
        narrow=_parts(layer.feed_forward.narrow),
    )


def _norm_of(norm: nn.LayerNorm) -> _Norm:
    return _Norm(norm.normalized_shape, norm.weight, norm.bias, norm.eps)


def _scale(attention: MultiHead) -> float:
    assert isinstance(attention.inner, Composed)
    assert isinstance(attention.inner.score, ScaledDot)
    return attention.inner.score.scale


def _parts(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    return linear.weight, linear.bias
