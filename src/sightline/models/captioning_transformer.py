"""A Transformer's decoder (Vaswani et al. 2017) over the places of an image.

The places are projected to the model's size and told where they are by sinusoids over rows and columns: attention
itself knows no order. ``encoder_layers`` lets the places look at each other first; without them (the default) what a
word looked at is what was seen there, which is what the overlay shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from sightline.attention.checks import check_least
from sightline.kernels.transformer_search import OneTokenDecoder, Packed
from sightline.models.image_to_text import ImageToText, ImageToTextConfig, Places, Reading
from sightline.models.stacked import StackedWriter, TransformerState
from sightline.nn.dropout import Dropout
from sightline.nn.transformer import Activation, DecoderLayer, EncoderLayer, LayerShape


class CaptioningTransformer(StackedWriter, ImageToText):
    """Places in, words out, layer by layer."""

    def __init__(
        self, config: "CaptioningTransformerConfig", places: Places, target_words: int, encoder: nn.Module | None = None
    ) -> None:
        reading = Reading(config.normalised, config.size, True, config.dropout)
        super().__init__(places, target_words, config.size, config.size, config.tied, reading, encoder)
        self.config = config
        shape = LayerShape(
            config.size, config.heads, config.feed_forward, config.dropout, config.norm, config.activation
        )
        self.between_places = nn.ModuleList(EncoderLayer(shape) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(shape) for _ in range(config.decoder_layers))
        pre = config.norm == "pre"
        self.places_norm = nn.LayerNorm(config.size) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.size) if pre else nn.Identity()
        self.dropout = Dropout(config.dropout)
        for parameter in (*self.between_places.parameters(), *self.decoder.parameters()):
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def begin(self, source: Num[Tensor, "b ..."]) -> TransformerState:
        x = self._encode(source)
        return TransformerState(tuple(layer.begin(x, None) for layer in self.decoder), 0)  # type: ignore[operator]

    def build_search_parts(self) -> tuple[Callable[[Tensor], Packed], OneTokenDecoder]:
        return self._pack, self._one_token()

    def _pack(self, source: Num[Tensor, "b ..."]) -> Packed:
        x = self._encode(source)
        everywhere = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        return Packed(x.flatten(0, 1), None, None, everywhere)

    def _encode(self, source: Num[Tensor, "b ..."]) -> Float[Tensor, "b s d"]:
        x = self.annotate(source)
        for layer in self.between_places:
            x = layer(x, None)
        return self.places_norm(x)


@dataclass(frozen=True)
class CaptioningTransformerConfig(ImageToTextConfig):
    """Sizes for some ten thousand captions; ``normalised`` is of the encoder's features."""

    size: int = 256
    heads: int = 4
    feed_forward: int = 512
    encoder_layers: int = 0
    decoder_layers: int = 3
    dropout: float = 0.3
    norm: Literal["pre", "post"] = "pre"
    activation: Activation = "relu"
    normalised: bool | None = None
    tied: bool = True
    kind: ClassVar[str] = "transformer"
    positions: ClassVar[str] = "sinusoid"  # of words

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "heads", "feed_forward", "decoder_layers")
        check_least(self, 0, "encoder_layers")
        if self.size % 4:
            raise ValueError(f"size is {self.size}; 4 must divide it: a place is told by its row and its column")

    def build(self, places: Places, target_words: int, encoder: nn.Module | None = None) -> CaptioningTransformer:
        return CaptioningTransformer(self, places, target_words, encoder)
