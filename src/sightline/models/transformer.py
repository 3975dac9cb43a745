"""The Transformer (Vaswani et al. 2017), encoder and decoder.

What people get wrong: embeddings are multiplied by √d before the positions are added; only the decoder's self-attention
is causal; cross-attention needs the source's padding mask too; and with normalisation before the layers (pre, the
default here: it trains without a delicate warm-up) one more stands at the end of both stacks.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from jaxtyping import Int
from torch import Tensor, nn

from sightline.attention import Read
from sightline.decoding.search import Step
from sightline.kernels.transformer_search import CopyingLayer, OneTokenDecoder, PackedEncoder
from sightline.models.stacked import StackedWriter, TransformerState
from sightline.models.text_to_text import PADDING, TextToText, TextToTextConfig, Tying, padding_mask
from sightline.nn.copying import Looked
from sightline.nn.dropout import Dropout
from sightline.nn.transformer import Activation, DecoderLayer, EncoderLayer, LayerShape


class Transformer(StackedWriter, TextToText):
    """Embed, encode, attend, write."""

    looks = True

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
        if config.copying:
            self.add_copying(config.size, config.heads)
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

    def copying_layer(self) -> CopyingLayer | None:
        if self.copying is None:
            return None
        return CopyingLayer(
            self._copies_from(), self.copying.gate, self.copying.head_shares(), self.output.out_features
        )

    def searching(self, source: Int[Tensor, "b s"], coverage: float = 0.0) -> tuple[Step, Any]:
        if coverage or (self.copying is not None and not self.searches_fast(source)):
            return TextToText.searching(self, source, coverage)
        return super().searching(source)

    def look(
        self, words: Int[Tensor, "b t"], state: TransformerState, covering: bool = False
    ) -> tuple[Looked, TransformerState]:
        """What is written from has seen the context and the word: the gate sees nothing else."""
        reads: list[Read] = []
        features, state = self.decode_layers(words, state, {self._copies_from(): reads})
        (read,) = reads
        assert read.weights is not None
        return Looked(features, read.weights, features), state

    def _copies_from(self) -> int:
        return self.config.copying_layer % len(self.decoder)


@dataclass(frozen=True)
class TransformerConfig(TextToTextConfig):
    """The defaults are the preset tiny: 4 + 4 layers of 128.

    With ``copying``, words are copied from what the attention to the source of the decoder's ``copying_layer`` gives,
    counted from 0, or from −1 for the last.
    """

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
    copying_layer: int = -1
    kind: ClassVar[str] = "transformer"

    def __post_init__(self) -> None:
        if self.copying and not -self.decoder_layers <= self.copying_layer < self.decoder_layers:
            raise ValueError(
                f"copying_layer is {self.copying_layer}; the decoder has {self.decoder_layers} layers: it is at least "
                f"0 and below that, or −1 for the last"
            )

    def build(self, source_words: int, target_words: int) -> Transformer:
        return Transformer(self, source_words, target_words)
