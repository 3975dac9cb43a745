"""The parts of a Transformer's layers as bare tensors, for search: no modules, no checks, no dropout.

Only for layers whose attention is multi-head scaled dot-product softmax without positions of its own (`can_step`). What
is put together here is tested equal to the layers themselves.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention import Composed, MultiHead
from sightline.attention.dot import ScaledDot
from sightline.attention.fused import SHORT
from sightline.attention.normalisers import Softmax
from sightline.layers.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual

FEW = 8  # sentences


class Affine(NamedTuple):
    """x W + b, with W as the product wants it."""

    bias: Float[Tensor, " o"]
    weight: Float[Tensor, "i o"]

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        return torch.addmm(self.bias, x, self.weight)


class Norm(NamedTuple):
    """A layer normalisation without the module around it."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, *self)


class Block(NamedTuple):
    """The feed-forward part, or the ways in and out of an attention, with the normalisation beside them."""

    norm: Norm
    enter: Affine
    leave: Affine


def can_step(layers: Iterable[nn.Module]) -> bool:
    """Whether all layers are of the kind that this module is for."""
    return all(
        isinstance(layer, EncoderLayer | DecoderLayer)
        and _is_plain(layer.attention)
        and (isinstance(layer, EncoderLayer) or _is_plain(layer.cross))
        for layer in layers
    )


def _is_plain(attention: nn.Module) -> bool:
    if type(attention) is not MultiHead or type(attention.inner) is not Composed or attention.shared != 1:
        return False
    score = attention.inner.score
    plain = type(score) is ScaledDot and score.relative is None and type(attention.inner.normaliser) is Softmax
    same_sizes = attention.project_keys.weight.shape == attention.project_values.weight.shape
    return plain and same_sizes and attention.project_query.bias is not None


class Weights:
    """The weights of a model as they are at a moment, for copies of them to be kept by.

    It holds on to their memory: what is put in their place stands elsewhere.
    """

    def __init__(self, module: nn.Module) -> None:
        self.held = [weight.detach() for weight in module.parameters()]
        self.versions = [weight._version for weight in self.held]

    @classmethod
    def of(cls, module: nn.Module) -> "Weights | None":
        """None where nothing tells whether weights have changed: an optimiser's fused step leaves no trace."""
        return None if any(one.requires_grad or one.is_inference() for one in module.parameters()) else cls(module)

    def are_still(self, module: nn.Module) -> bool:
        weights = list(module.parameters())
        return len(weights) == len(self.held) and all(
            not one.requires_grad and one.data_ptr() == held.data_ptr() and one._version == version
            for one, held, version in zip(weights, self.held, self.versions, strict=True)
        )


def scale_of(attention: nn.Module) -> float:
    """What the products of queries and keys are multiplied by."""
    assert isinstance(attention, MultiHead)
    assert isinstance(attention.inner, Composed)
    assert isinstance(attention.inner.score, ScaledDot)
    return attention.inner.score.scale


def norm_of(norm: nn.Module) -> Norm | None:
    """None for a stack that has no normalisation at its end."""
    return Norm(norm.normalized_shape, norm.weight, norm.bias, norm.eps) if isinstance(norm, nn.LayerNorm) else None


def affine(*linears: nn.Module) -> Affine:
    """One or more linear layers with the same input, in one product."""
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    for linear in linears:
        assert isinstance(linear, nn.Linear)
        weights.append(linear.weight)
        biases.append(linear.bias)
    if len(linears) == 1:
        return Affine(biases[0], weights[0].t())
    return Affine(torch.cat(biases), torch.cat(weights).t())


def turned(linear: Affine) -> Affine:
    """With the weight's rows one behind the other in memory: worth its time where a product is done again and again."""
    return Affine(linear.bias, linear.weight.contiguous())


def own_block(around: Residual, attention: nn.Module) -> Block:
    """Self-attention: queries, keys and values in one product."""
    assert isinstance(attention, MultiHead)
    enter = affine(attention.project_query, attention.project_keys, attention.project_values)
    return _block(around, enter, affine(attention.output))


def cross_block(around: Residual, attention: nn.Module) -> Block:
    """Attention to the source, whose keys and values are made before."""
    assert isinstance(attention, MultiHead)
    return _block(around, affine(attention.project_query), affine(attention.output))


def forward_block(around: Residual, feed_forward: FeedForward) -> Block:
    return _block(around, affine(feed_forward.widen), affine(feed_forward.narrow))


def _block(around: Residual, enter: Affine, leave: Affine) -> Block:
    norm = norm_of(around.normalise)
    assert norm is not None
    return Block(norm, enter, leave)


def attend(query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, scale: float) -> Tensor:
    """softmax(scale · q kᵀ + hidden) v, by the faster of two ways.

    With few keys and many sentences plain products are faster than the kernel; one sentence alone wants few calls.
    """
    if len(query) < FEW or keys.shape[-2] > SHORT or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=hidden, scale=scale)
    scores = torch.matmul(query, keys.transpose(-2, -1)).mul_(scale)
    scores = scores if hidden is None else scores.add_(hidden)
    return torch.matmul(torch.softmax(scores, dim=-1), values)


def transform(block: Block, x: Float[Tensor, "n d"], activation: Callable[[Tensor], Tensor], pre: bool) -> Tensor:
    """The feed-forward part of a layer."""
    y = block.norm(x) if pre else x
    x = x + block.leave(activation(block.enter(y)))
    return x if pre else block.norm(x)
