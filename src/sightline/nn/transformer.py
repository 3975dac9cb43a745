"""The layers of the Transformer (Vaswani et al. 2017), whole sequences at once or one token at a time."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention import (
    Allow,
    Carry,
    Causal,
    ComposedConfig,
    Memory,
    MultiHead,
    MultiHeadConfig,
    Read,
    RotaryConfig,
    ScaledDotConfig,
)
from sightline.nn.dropout import Dropout

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]  # gelu is exact; gelu_tanh is the approximation of GPT-2


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": functools.partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


@dataclass(frozen=True)
class LayerShape:
    """What encoder and decoder layers have in common.

    ``attention_dropout`` leaves out weights of attention in encoder layers. ``epsilon`` is that of the normalisations.
    """

    size: int
    heads: int
    feed_forward: int
    dropout: float = 0.1
    norm: Literal["pre", "post"] = "pre"
    activation: Activation = "relu"
    rotary: bool = False
    attention_dropout: float = 0.0
    epsilon: float = 1e-5

    def attention(self, positions: bool) -> MultiHead:
        """Multi-head attention; only self-attention has positions to compare."""
        relative = RotaryConfig() if self.rotary and positions else None
        inner = ComposedConfig(ScaledDotConfig(relative))
        return MultiHeadConfig(heads=self.heads, inner=inner).build(self.size)


class FeedForward(nn.Module):
    """Two linear maps with an activation between them."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.widen = nn.Linear(shape.size, shape.feed_forward)
        self.narrow = nn.Linear(shape.feed_forward, shape.size)
        self.activation = ACTIVATIONS[shape.activation]

    def is_plain(self) -> bool:
        return all(type(layer).forward is nn.Linear.forward for layer in (self.widen, self.narrow))

    def forward(self, x: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t d"]:
        return self.narrow(self.activation(self.widen(x)))


class Residual(nn.Module):
    """x + dropout(f(x)), normalised before f (pre) or after the sum (post, the paper's own)."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.normalise = nn.LayerNorm(shape.size, eps=shape.epsilon)
        self.dropout = Dropout(shape.dropout)
        self.pre = shape.norm == "pre"

    def is_plain(self) -> bool:
        return type(self.normalise) is nn.LayerNorm

    def enter(self, x: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t d"]:
        return self.normalise(x) if self.pre else x

    def leave(self, x: Float[Tensor, "*b t d"], y: Float[Tensor, "*b t d"]) -> Float[Tensor, "*b t d"]:
        total = self.dropout.add(x, y)
        return total if self.pre else self.normalise(total)


def _are_plain(layer: nn.Module) -> bool:
    """Whether all parts of a layer are those that it was built with, or their like."""
    return all(isinstance(part, MultiHead | FeedForward | Residual) and part.is_plain() for part in layer.children())


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.attention = shape.attention(positions=True)
        self.feed_forward = FeedForward(shape)
        self.around_attention, self.around_feed_forward = Residual(shape), Residual(shape)
        self.attention_dropout = shape.attention_dropout
        if shape.attention_dropout:
            self.attention.inner.weights_dropout = Dropout(shape.attention_dropout)

    def is_plain(self) -> bool:
        """Whether `sightline.kernels.transformer_search` computes this layer."""
        return type(self) is EncoderLayer and _are_plain(self)

    def is_softmax_of_dots(self) -> bool:
        """Whether `sightline.kernels.unpadded` computes this layer."""
        attention = self.attention
        return type(self) is EncoderLayer and isinstance(attention, MultiHead) and attention.is_softmax_of_dots()

    def forward(
        self,
        x: Float[Tensor, "b s d"],
        mask: Bool[Tensor, "b s"] | None,
        allow: Allow | Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "b s d"]:
        """``allow`` says which positions a position may attend to, such as `Causal()`; all of them without it."""
        y = self.around_attention.enter(x)
        read = self.attention(y, self.attention.remember(y, mask=mask), allow=allow)
        x = self.around_attention.leave(x, read.context)
        return self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))


class DecoderLayerState(NamedTuple):
    """What a layer keeps while decoding: its own past, and the source as its cross-attention sees it."""

    past: Memory | None
    source: Memory
    carry: Carry


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, then a feed-forward network."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.attention = shape.attention(positions=True)
        self.cross = shape.attention(positions=False)
        self.feed_forward = FeedForward(shape)
        self.around_attention, self.around_cross = Residual(shape), Residual(shape)
        self.around_feed_forward = Residual(shape)

    def is_plain(self) -> bool:
        """Whether `sightline.kernels.transformer_search` computes this layer."""
        return type(self) is DecoderLayer and _are_plain(self)

    def begin(self, source: Float[Tensor, "b s d"], mask: Bool[Tensor, "b s"] | None) -> DecoderLayerState:
        return DecoderLayerState(None, self.cross.remember(source, mask=mask), Carry())

    def forward(
        self, x: Float[Tensor, "b t d"], state: DecoderLayerState, reads: list[Read] | None = None
    ) -> tuple[Float[Tensor, "b t d"], DecoderLayerState]:
        """Any number of tokens that follow what the state has seen: all of them in training, one in search.

        ``reads`` takes in what was read of the source, with its weights.
        """
        y = self.around_attention.enter(x)
        past = self.attention.extend(state.past, y)
        read = self.attention(y, past, state.carry, allow=Causal())
        x = self.around_attention.leave(x, read.context)
        y = self.around_cross.enter(x)
        looked = self.cross(y, state.source, Carry(state.carry.position), need_weights=reads is not None)
        if reads is not None:
            reads.append(looked)
        x = self.around_cross.leave(x, looked.context)
        x = self.around_feed_forward.leave(x, self.feed_forward(self.around_feed_forward.enter(x)))
        return x, DecoderLayerState(past, state.source, read.carry)
