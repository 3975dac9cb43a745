"""The parts of a Transformer's layers as bare tensors, for search: no modules, no checks, no dropout.

Only for layers whose attention is multi-head scaled dot-product softmax without positions of its own (`can_step`). What
is put together here is tested equal to the layers themselves, and takes fewer operations, because weights are rewritten
once: queries come scaled; the bias of keys, which adds the same to all scores of a query, is left out; the bias of
values, which every context has whole, is part of what comes out of the attention.
"""

import operator
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention import Composed, MultiHead
from sightline.attention.dot import ScaledDot
from sightline.attention.fused import SHORT
from sightline.attention.normalisers import Softmax
from sightline.kernels.products import Product
from sightline.kernels.softmax import softmax
from sightline.nn.transformer import DecoderLayer, EncoderLayer, FeedForward, Residual

IN_PLACE: dict[Callable[..., Tensor], Callable[[Tensor], Tensor]] = {F.relu: torch.relu_}
FEW = 8  # sentences


class Affine(NamedTuple):
    """x W + b, with W as the product wants it."""

    bias: Float[Tensor, " o"]
    weight: Float[Tensor, "i o"]

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        return torch.mm(x, self.weight).add_(self.bias)  # faster than addmm, which first makes a matrix of the bias


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
    enter: Affine | Product
    leave: Affine
    pre: bool

    def for_many(self) -> "Block":
        """The same for many rows at a time."""
        assert isinstance(self.enter, Affine)
        return self._replace(enter=Product(self.enter.weight.t(), self.enter.bias, often=True))

    def begin(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n e"]:
        return self.enter(self.norm(x) if self.pre else x)

    def end(self, x: Float[Tensor, "n d"], y: Float[Tensor, "n e"]) -> Float[Tensor, "n d"]:
        """What the part found is added to x, in its place."""
        x = x.addmm_(y, self.leave.weight)
        return x.add_(self.leave.bias) if self.pre else self.norm(x)


class Stack(NamedTuple):
    """The parts of all layers, and what must be added to their input.

    Where layers are normalised after their sums, a part's last bias is not added by the part: x brings it along. It is
    in the bias of the normalisation before, and is taken off again where the part looks at x.
    """

    blocks: tuple[Block, ...]
    start: Float[Tensor, " d"] | None

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> "Stack":
        found = list(blocks)
        if not found or found[0].pre:
            return cls(tuple(found), None)
        carried = [block.leave.bias for block in found]
        for i, (norm, enter, leave, pre) in enumerate(found):
            assert isinstance(enter, Affine)
            enter = enter._replace(bias=enter.bias - carried[i] @ enter.weight)
            if i + 1 < len(found):
                norm = norm._replace(bias=norm.bias + carried[i + 1])
            found[i] = Block(norm, enter, leave, pre)
        return cls(tuple(found), carried[0])


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
        homes = [home for part in module.modules() for home in (part._modules, part._parameters) if home]
        self.homes = [(home, list(home.values())) for home in homes]  # the parts themselves: an id is used again
        self.weights = list(module.parameters())
        self.memory = [one.detach() for one in self.weights]
        self.marks = list(map(_mark, self.weights))

    @classmethod
    def of(cls, module: nn.Module) -> "Weights | None":
        """None where nothing tells whether weights have changed: an optimiser's fused step leaves no trace."""
        return None if any(one.requires_grad or one.is_inference() for one in module.parameters()) else cls(module)

    def are_still(self) -> bool:
        """Looks where the parts were found: to go through the model again takes as long as a step of search."""
        return all(_are_those(home.values(), parts) for home, parts in self.homes) and all(
            _mark(one) == mark for one, mark in zip(self.weights, self.marks, strict=True)
        )


def _are_those(found: Collection[object], parts: Collection[object]) -> bool:
    return len(found) == len(parts) and all(map(operator.is_, found, parts))


def _mark(weight: Tensor) -> tuple[bool, int, int]:
    return weight.requires_grad, weight.data_ptr(), weight._version


def scale_of(attention: nn.Module) -> float:
    """What the products of queries and keys are multiplied by."""
    assert isinstance(attention, MultiHead)
    assert isinstance(attention.inner, Composed)
    assert isinstance(attention.inner.score, ScaledDot)
    return attention.inner.score.scale


def norm_of(norm: nn.Module) -> Norm | None:
    """None for a stack that has no normalisation at its end."""
    return Norm(norm.normalized_shape, norm.weight, norm.bias, norm.eps) if isinstance(norm, nn.LayerNorm) else None


def affine(linear: nn.Module, scale: float = 1.0) -> Affine:
    """Rows of the weight one behind the other in memory: worth its time where a product is done again and again."""
    assert isinstance(linear, nn.Linear)
    return Affine(linear.bias * scale, (linear.weight * scale).t().contiguous())


def own_block(around: Residual, attention: nn.Module) -> Block:
    """Self-attention: for each head a query, a key and a value, in one product."""
    assert isinstance(attention, MultiHead)
    query, heads, scale = attention.project_query, attention.key_heads, scale_of(attention)
    weights = (query.weight * scale, attention.project_keys.weight, attention.project_values.weight)
    bias = query.bias * scale
    enter = Affine(by_heads(heads, bias, 0 * bias, 0 * bias), by_heads(heads, *weights).t().contiguous())
    return _block(around, enter, _out_of(attention))


def cross_block(around: Residual, attention: nn.Module) -> Block:
    """Attention to the source, whose keys and values are made before."""
    assert isinstance(attention, MultiHead)
    return _block(around, affine(attention.project_query, scale_of(attention)), _out_of(attention))


def forward_block(around: Residual, feed_forward: FeedForward) -> Block:
    return _block(around, affine(feed_forward.widen), affine(feed_forward.narrow))


def keys_and_values(attention: MultiHead) -> Float[Tensor, "i o"]:
    """What makes `heads · 2 · size` numbers of an input: for each head a key and a value."""
    weights = (attention.project_keys.weight, attention.project_values.weight)
    return by_heads(attention.key_heads, *weights).t().contiguous()


def by_heads(heads: int, *parts: Float[Tensor, "o ..."]) -> Float[Tensor, "p ..."]:
    """Rows of several projections in another order: all that a head has stands together."""
    return torch.stack([part.unflatten(0, (heads, -1)) for part in parts], dim=1).flatten(0, 2)


def _out_of(attention: MultiHead) -> Affine:
    leave = affine(attention.output)
    return leave._replace(bias=leave.bias + attention.project_values.bias @ leave.weight)


def _block(around: Residual, enter: Affine, leave: Affine) -> Block:
    norm = norm_of(around.normalise)
    assert norm is not None
    return Block(norm, enter, leave, around.pre)


def attend(
    query: Float[Tensor, "b h t d"],
    keys: Float[Tensor, "b h s d"],
    values: Float[Tensor, "b h s d"],
    hidden: Float[Tensor, "..."] | None,
) -> Float[Tensor, "b h t d"]:
    """softmax(q kᵀ + hidden) v, by the faster of two ways; what hides keys is `s` or `b h 1 s`.

    With few keys and many sentences plain products are faster than the kernel; one sentence alone wants few calls.
    """
    if len(query) < FEW or keys.shape[-2] > SHORT or query.device.type != "cpu":
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=hidden, scale=1.0)
    together, keys_count, size = query.shape[0] * query.shape[1], keys.shape[-2], keys.shape[-1]
    folded = query.reshape(together, query.shape[-2], size)
    scores = torch.bmm(folded, keys.view(together, keys_count, size).transpose(1, 2))
    if hidden is not None:
        scores.add_(hidden if hidden.dim() == 1 else hidden.view(together, 1, keys_count))
    return torch.bmm(softmax(scores), values.view(together, keys_count, -1)).view(query.shape)


def transform(block: Block, x: Float[Tensor, "n d"], activation: Callable[[Tensor], Tensor]) -> Tensor:
    """The feed-forward part of a layer."""
    return block.end(x, IN_PLACE.get(activation, activation)(block.begin(x)))
