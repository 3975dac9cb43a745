"""A Transformer (Vaswani et al. 2017) over series of frames, behind a convolutional front end.

Two convolutions of stride 2 over time and features (Dong et al. 2018) make one state of four frames; layers of
self-attention and the decoder of the translators follow. What people get wrong: a state is there as soon as one of its
frames is; positions are those of states, not of frames.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.attention.checks import check_least, check_share
from sightline.decoding.search import Step
from sightline.models.series import Annotations
from sightline.models.series_to_text import SeriesToText, SeriesToTextConfig
from sightline.models.stacked import StackedWriter, TransformerState
from sightline.nn.annotating import sinusoids
from sightline.nn.dropout import Dropout
from sightline.nn.series import SeriesBatch, SeriesShape, reduced
from sightline.nn.transformer import Activation, DecoderLayer, EncoderLayer, LayerShape


class Subsampling(nn.Module):
    """Two convolutions of stride 2 over frames and features: one vector for four frames."""

    def __init__(self, input_size: int, size: int, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, 2, 1)
        self.second = nn.Conv2d(channels, channels, 3, 2, 1)
        self.project = nn.Linear(channels * reduced(input_size, (2, 2)), size)

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"]) -> tuple[Tensor, Tensor]:
        x = x.masked_fill(~mask.unsqueeze(-1), 0.0).unsqueeze(1)
        for convolution in (self.first, self.second):
            mask = mask[:, ::2]
            x = F.relu(convolution(x)).masked_fill(~mask[:, None, :, None], 0.0)
        return self.project(x.transpose(1, 2).flatten(2)), mask


class SeriesTransformer(StackedWriter, SeriesToText):
    """Subsample, encode, attend, write."""

    config: "SeriesTransformerConfig"

    def __init__(self, config: "SeriesTransformerConfig", shape: SeriesShape, target_words: int) -> None:
        super().__init__(config, shape, target_words, config.size)
        self.add_output(config.size, config.tied)
        layer = LayerShape(config.size, config.heads, config.feed_forward, config.dropout, "pre", config.activation)
        self.subsampling = Subsampling(self.front.size, config.size, config.channels)
        self.encoder = nn.ModuleList(EncoderLayer(layer) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(layer) for _ in range(config.decoder_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(config.size), nn.LayerNorm(config.size)
        self.dropout = Dropout(config.dropout)
        self.add_ctc(config.size)
        for parameter in (*self.encoder.parameters(), *self.decoder.parameters()):
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def annotate(self, source: SeriesBatch) -> Annotations:
        x, mask = self.subsampling(*self.front(source))
        x = self.dropout(x + sinusoids(0, x.shape[1], x.shape[2], x))
        for layer in self.encoder:
            x = layer(x, mask)
        return Annotations(self.encoder_norm(x), mask)

    def begin_from(self, annotations: Annotations) -> TransformerState:
        states, mask, _ = annotations
        return TransformerState(tuple(layer.begin(states, mask) for layer in self.decoder), 0)  # type: ignore[operator]

    def searching(self, source: SeriesBatch) -> tuple[Step, Any]:  # type: ignore[override]
        return SeriesToText.searching(self, source)

    def build_search_parts(self) -> Any:
        raise TypeError("a Transformer over frames is searched step by step")


@dataclass(frozen=True)
class SeriesTransformerConfig(SeriesToTextConfig):
    """``channels`` are those of the two convolutions."""

    size: int = 144
    heads: int = 4
    feed_forward: int = 576
    encoder_layers: int = 6
    decoder_layers: int = 3
    channels: int = 32
    dropout: float = 0.1
    activation: Activation = "relu"
    tied: bool = True
    kind: ClassVar[str] = "transformer"
    positions: ClassVar[Literal["sinusoid"]] = "sinusoid"  # of words

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "size", "heads", "feed_forward", "encoder_layers", "decoder_layers", "channels")
        check_share(self, "dropout")
        if self.size % self.heads or self.size % 2:
            raise ValueError(f"size is {self.size}; it must be even, and heads ({self.heads}) must divide it")
        if self.ctc == 1:
            raise ValueError("ctc is 1, which leaves nothing to the decoder; use the model ctc")

    @property
    def shortens(self) -> tuple[int, ...]:
        return (2, 2)

    def build(self, shape: SeriesShape, target_words: int) -> SeriesTransformer:
        return SeriesTransformer(self, shape, target_words)
