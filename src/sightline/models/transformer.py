"""The Transformer (Vaswani et al. 2017), encoder and decoder.

What people get wrong: embeddings are multiplied by √d before the positions are added; only the decoder's self-attention
is causal; cross-attention needs the source's padding mask too; and with normalisation before the layers (pre, the
default here: it trains without a delicate warm-up) one more stands at the end of both stacks.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention.tap import active_taps
from sightline.layers.dropout import Dropout
from sightline.layers.embedding import sinusoids
from sightline.layers.incremental import OneTokenDecoder
from sightline.layers.packed import encode_packed
from sightline.layers.plain import Weights, can_step
from sightline.layers.transformer import Activation, DecoderLayer, DecoderLayerState, EncoderLayer, LayerShape
from sightline.models.text_to_text import PADDING, TextToText, TextToTextConfig, Tying, padding_mask
from sightline.search import Step


class TransformerState(NamedTuple):
    """The decoder's layers, and how many words came before."""

    layers: tuple[DecoderLayerState, ...]
    position: int


class Transformer(TextToText):
    """Embed, encode, attend, write."""

    def __init__(self, config: "TransformerConfig", source_words: int, target_words: int) -> None:
        super().__init__(source_words, target_words, config.size, config.size, config.tied)
        self.config = config
        shape = LayerShape(
            config.size,
            config.heads,
            config.feed_forward,
            config.dropout,
            config.norm,
            config.activation,
            config.positions == "rotary",
        )
        self.encoder = nn.ModuleList(EncoderLayer(shape) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(config.decoder_layers))
        pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.size) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.size) if pre else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self._prepared: tuple[Weights, OneTokenDecoder] | None = None
        for parameter in (*self.encoder.parameters(), *self.decoder.parameters()):
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def begin(self, source: Int[Tensor, "b s"]) -> TransformerState:
        mask = padding_mask(source)
        x = self._place(self.source_embedding(source), 0)
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        return TransformerState(tuple(layer.begin(x, mask) for layer in self.decoder), 0)  # type: ignore[operator]

    def decode(
        self, words: Int[Tensor, "b t"], state: TransformerState
    ) -> tuple[Float[Tensor, "b t d"], TransformerState]:
        x = self._place(self.target_embedding(words), state.position)
        states = []
        for layer, layer_state in zip(self.decoder, state.layers, strict=True):
            x, after = layer(x, layer_state)
            states.append(after)
        return self.decoder_norm(x), TransformerState(tuple(states), state.position + words.shape[1])

    def searching(self, source: Int[Tensor, "b s"]) -> tuple[Step, Any]:
        if self.training or active_taps() or not can_step([*self.encoder, *self.decoder]):
            return self.step, self.begin(source)
        sinusoid = self.config.positions == "sinusoid"
        encoded = encode_packed(source, PADDING, self.source_embedding, self.encoder, self.encoder_norm, sinusoid)
        step = self._decoder_step(sinusoid)
        return step, step.begin(encoded)

    def _decoder_step(self, sinusoid: bool) -> OneTokenDecoder:
        """Made once for weights that do not learn any more, such as those of a run that was loaded."""
        if self._prepared is not None and self._prepared[0].are_still(self):
            return self._prepared[1]
        step = OneTokenDecoder(self.decoder, self.decoder_norm, self.target_embedding, self.output, sinusoid)
        weights = Weights.of(self)
        self._prepared = None if weights is None else (weights, step)
        return step

    def looks_at_source(self, name: str) -> bool:
        return name.startswith("decoder.") and name.endswith(".cross")

    def _place(self, x: Float[Tensor, "b t d"], start: int) -> Float[Tensor, "b t d"]:
        if self.config.positions == "sinusoid":
            x = x + sinusoids(start, x.shape[1], x.shape[2], x)
        return self.dropout(x)


@dataclass(frozen=True)
class TransformerConfig(TextToTextConfig):
    """The defaults are the preset tiny: 4 + 4 layers of 128."""

    size: int = 128
    heads: int = 4
    feed_forward: int = 256
    encoder_layers: int = 4
    decoder_layers: int = 4
    dropout: float = 0.3
    norm: Literal["pre", "post"] = "pre"
    positions: Literal["sinusoid", "rotary"] = "sinusoid"
    activation: Activation = "relu"
    tied: Tying = "all"
    kind: ClassVar[str] = "transformer"

    def build(self, source_words: int, target_words: int) -> Transformer:
        return Transformer(self, source_words, target_words)
