"""A pyramid of recurrent layers over frames, and a recurrent decoder that attends to it, for every model with both.

The listener and the decoder of Listen, Attend and Spell (Chan et al. 2016), whatever is written from them.
"""

from dataclasses import dataclass, field

import torch
from torch import nn

from sightline.attention import AttentionConfig, LocationAwareConfig
from sightline.attention.checks import check_least, check_share
from sightline.models.series import Annotations, SeriesConfig, SeriesModel
from sightline.nn.decoder import DecoderShape, DecoderState, RecurrentAttentionDecoder
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import CellKind
from sightline.nn.series import PyramidEncoder, SeriesBatch, check_reduces


class Listening(SeriesModel):
    """A model that listens."""

    def add_listener(self, config: "ListeningConfig") -> None:
        """The encoder behind the front end."""
        self.encoder = PyramidEncoder(config.cell, self.front.size, config.size, config.reduces, config.dropout)
        self.dropout = Dropout(config.dropout)

    def annotate(self, source: SeriesBatch) -> Annotations:
        """Encode the frames."""
        encoded, mask = self.encoder(*self.front(source))
        summary = torch.cat([encoded.forward, encoded.backward], dim=-1)
        return Annotations(self.dropout(encoded.annotations), mask, summary)


class Attending(Listening):
    """A model that listens, and attends to what it heard."""

    def add_decoder(self, config: "AttendingConfig") -> None:
        """The decoder, and what it starts from."""
        self.decoder = RecurrentAttentionDecoder(
            DecoderShape(
                config.embedding_size,
                annotation_size=self.encoder.annotation_size,
                size=config.decoder_size,
                layers=config.layers,
                cell=config.cell,
                attention=config.attention,
                looks="before",
                writes_from="tanh",
                dropout=config.dropout,
            )
        )
        self.start = nn.Linear(self.encoder.annotation_size, config.layers * config.decoder_size)

    def begin_from(self, annotations: Annotations) -> DecoderState:
        """The state that the decoder starts from."""
        assert annotations.summary is not None
        started = torch.tanh(self.start(annotations.summary))
        hidden = started.unflatten(-1, (self.decoder.shape.layers, -1)).transpose(0, 1)
        return self.decoder.begin(hidden, annotations.states, annotations.mask)


@dataclass(frozen=True)
class ListeningConfig(SeriesConfig):
    """``size`` is that of each direction. Layer i reads ``reduces[i]`` neighbouring states of the one below as one; the
    paper has (1, 2, 2, 2)."""

    size: int = 192
    reduces: tuple[int, ...] = (2, 2, 1)
    cell: CellKind = "lstm"
    dropout: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "size")
        check_share(self, "dropout")
        check_reduces(self.reduces)

    @property
    def shortens(self) -> tuple[int, ...]:
        return self.reduces


@dataclass(frozen=True)
class AttendingConfig(ListeningConfig):
    """The decoder's sizes, and its attention."""

    embedding_size: int = 64
    decoder_size: int = 256
    layers: int = 1
    attention: AttentionConfig = field(default_factory=lambda: LocationAwareConfig(hidden_size=128))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "embedding_size", "decoder_size", "layers")
