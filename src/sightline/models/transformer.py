"""The Transformer (Vaswani et al. 2017), encoder and decoder.

What people get wrong: embeddings are multiplied by √d before the positions are added; only the decoder's self-attention
is causal; cross-attention needs the source's padding mask too; and with normalisation before the layers (pre, the
default here: it trains without a delicate warm-up) one more stands at the end of both stacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Int
from torch import Tensor, nn

from sightline.kernels.transformer_search import OneTokenDecoder, PackedEncoder
from sightline.models.stacked import StackedWriter, TransformerState
from sightline.models.text_to_text import PADDING, TextToText, TextToTextConfig, Tying, padding_mask
from sightline.nn.dropout import Dropout
from sightline.nn.transformer import Activation, DecoderLayer, EncoderLayer, LayerShape


class Transformer(StackedWriter, TextToText):
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

    def search_layers(self) -> Iterable[nn.Module]:
        return [*self.encoder, *self.decoder]

    def build_search_parts(self) -> tuple[PackedEncoder, OneTokenDecoder]:
        encoder = PackedEncoder(
            self.encoder,  # type: ignore[arg-type]
            self.encoder_norm,
            self.source_embedding,
            self._sinusoids(),
            PADDING,
        )
        return encoder, self._one_token()


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
