"""Self-attention over texts of different lengths without padding, in training too.

Between attentions the tokens of a batch form one list, text after text, the short ones first. Texts of one length are
neighbours and attend in one call, which needs no mask. The order of texts in a batch makes no difference. Gain: 1.2
(`benchmarks/kernel_gains.py`).
"""

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled
from sightline.kernels.dropout import byte_mask
from sightline.kernels.softmax import softmax_gradient

if TYPE_CHECKING:
    from sightline.attention import MultiHead
    from sightline.nn.transformer import EncoderLayer


class EqualLengths(NamedTuple):
    """Neighbouring texts of one length."""

    texts: int
    length: int


class Unpadded(NamedTuple):
    """The order of a batch's tokens without its padding.

    ``places`` are those of the tokens in the flattened batch, ``rows`` the batch's rows in the order of their texts
    here, ``firsts`` where each text begins. Rows without a token are left out.
    """

    places: Int[Tensor, " n"]
    rows: Int[Tensor, " r"]
    firsts: Int[Tensor, " r"]
    runs: tuple[EqualLengths, ...]
    shape: tuple[int, int]

    @classmethod
    def of(cls, real: Bool[Tensor, "b s"]) -> "Unpadded":
        """Of a batch, given its mask."""
        lengths = real.sum(dim=1)
        rows = torch.argsort(lengths, stable=True)
        rows = rows[lengths[rows] > 0]
        width = real.shape[1]
        tokens = real[rows].flatten().nonzero().squeeze(-1)
        places = rows[tokens // max(width, 1)] * width + tokens % max(width, 1)
        ordered = lengths[rows]
        runs = tuple(EqualLengths(len(list(group)), length) for length, group in itertools.groupby(ordered.tolist()))
        return cls(places, rows, ordered.cumsum(0) - ordered, runs, (real.shape[0], width))

    def take(self, x: Tensor) -> Tensor:
        """``b s …`` → ``n …``"""
        return x.flatten(0, 1).index_select(0, self.places)

    def spread(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "b s d"]:
        """With padding again, which is zero."""
        full = x.new_zeros(self.shape[0] * self.shape[1], x.shape[1]).index_copy(0, self.places, x)
        return full.view(*self.shape, -1)

    def spread_texts(self, x: Float[Tensor, "r d"]) -> Float[Tensor, "b d"]:
        """One vector for each text, zeros for a row without tokens."""
        return x.new_zeros(self.shape[0], x.shape[1]).index_copy(0, self.rows, x)


def supported(layer: "EncoderLayer") -> bool:
    return layer.feed_forward.widen.weight.device.type == "cpu" and layer.is_softmax_of_dots() and enabled()


def fast(layer: "EncoderLayer", x: Float[Tensor, "b s d"], mask: Bool[Tensor, "b s"]) -> Float[Tensor, "b s d"]:
    """One layer. A model takes out the padding once, before the first of many (`encode_unpadded`)."""
    unpadded = Unpadded.of(mask)
    return unpadded.spread(encode_unpadded(layer, unpadded.take(x), unpadded))


def reference(layer: "EncoderLayer", x: Float[Tensor, "b s d"], mask: Bool[Tensor, "b s"]) -> Float[Tensor, "b s d"]:
    return layer(x, mask) * mask.unsqueeze(-1)


def encode_unpadded(
    layer: "EncoderLayer", x: Float[Tensor, "n d"], unpadded: Unpadded, first: bool = False
) -> Float[Tensor, "m d"]:
    """An encoder layer; with ``first`` only for the first token of each text, which reads all the others."""
    dropout = layer.attention_dropout if layer.training else 0.0
    read = attend_unpadded(layer.attention, layer.around_attention.enter(x), unpadded, dropout, first)
    x = layer.around_attention.leave(x.index_select(0, unpadded.firsts) if first else x, read)
    return layer.around_feed_forward.leave(x, layer.feed_forward(layer.around_feed_forward.enter(x)))


def attend_unpadded(
    attention: "MultiHead", x: Float[Tensor, "n d"], unpadded: Unpadded, dropout: float = 0.0, first: bool = False
) -> Float[Tensor, "m d"]:
    """The contexts of all tokens, each from its own text. With ``first``, only those of each text's first token.

    ``dropout`` is that of the weights.
    """
    score: Any = attention.inner.score
    asking = x.index_select(0, unpadded.firsts) if first else x
    sizes = [texts * length for texts, length in unpadded.runs]
    queries = attention.project_query(asking).split([run.texts for run in unpadded.runs] if first else sizes)
    keys, values = attention.project_keys(x).split(sizes), attention.project_values(x).split(sizes)
    read = []
    for run, *parts in zip(unpadded.runs, queries, keys, values, strict=True):
        query, key, value = (
            part.view(run.texts, -1, attention.key_heads, part.shape[-1] // attention.key_heads).transpose(1, 2)
            for part in parts
        )
        query, key = score.project_query(query, 0), score.project_keys(key, 0)
        bias = score.bias(0, query.shape[-2], run.length, query)
        if dropout:
            context = _DroppedAttention.apply(query * score.scale, key, value, bias, dropout)
        else:
            # Without a mask the kernel is at its fastest, also with few keys.
            context = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=score.scale)
        read.append(context.transpose(1, 2).flatten(2).flatten(0, 1))
    return attention.output(torch.cat(read) if read else asking.new_zeros(0, attention.output.in_features))


class _DroppedAttention(torch.autograd.Function):
    """softmax(q kᵀ + bias) with some of the weights left out, times v.

    PyTorch's kernel has no dropout on a processor, and its fallback takes several times as long.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, rate: float) -> Tensor:
        if bias is not None and bias.requires_grad:
            raise ValueError("attention dropout does not go with positions that are learnt in the scores")
        scores = torch.matmul(query, key.transpose(-2, -1))
        weights = torch.softmax(scores if bias is None else scores.add_(bias), dim=-1)
        mask = byte_mask(weights.shape, rate, weights.dtype)
        ctx.save_for_backward(query, key, value, weights, mask)
        return torch.matmul(weights * mask, value)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights, mask = ctx.saved_tensors
        (gradient,) = upstream
        d_value = torch.matmul((weights * mask).transpose(-2, -1), gradient)
        d_weights = torch.matmul(gradient, value.transpose(-2, -1)).mul_(mask)
        d_scores = softmax_gradient(d_weights, weights)
        return torch.matmul(d_scores, key), torch.matmul(d_scores.transpose(-2, -1), query), d_value, None, None
