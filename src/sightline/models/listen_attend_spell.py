"""Listen, Attend and Spell (Chan et al. 2016): a pyramid of bidirectional LSTMs, and a decoder that attends to it.

``h = Listen(x)``; ``c_i = attention(s_{i−1}, h)``; ``s_i = LSTM(s_{i−1}, y_{i−1}, c_i)``; ``p = softmax(MLP(s_i,
c_i))``. The attention is location-aware by default (Chorowski et al. 2015): sounds repeat, and where it looked before
tells which of them comes next. What people get wrong: a pyramid of 8 frames leaves fewer states than letters where
people spell fast; a filter's width counts states of the encoder, not frames.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.attention import AttentionConfig, LocationAwareConfig
from sightline.attention.checks import check_least, check_share
from sightline.models.series_to_text import Annotations, SeriesToText, SeriesToTextConfig
from sightline.nn.decoder import DecoderShape, DecoderState, RecurrentAttentionDecoder
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import CellKind
from sightline.nn.series import PyramidEncoder, SeriesBatch, SeriesShape, check_reduces


class Listener(SeriesToText):
    """The encoder of both models of this file."""

    config: "ListenerConfig"

    def __init__(self, config: "ListenerConfig", shape: SeriesShape, target_words: int, embedding_size: int) -> None:
        super().__init__(config, shape, target_words, embedding_size)
        self.encoder = PyramidEncoder(config.cell, self.front.size, config.size, config.reduces, config.dropout)
        self.dropout = Dropout(config.dropout)
        self.add_ctc(self.encoder.annotation_size)

    def annotate(self, source: SeriesBatch) -> Annotations:
        encoded, mask = self.encoder(*self.front(source))
        summary = torch.cat([encoded.forward, encoded.backward], dim=-1)
        return Annotations(self.dropout(encoded.annotations), mask, summary)


class ListenAttendSpell(Listener):
    """Listen, and spell with the one recurrent attention decoder."""

    config: "ListenAttendSpellConfig"

    def __init__(self, config: "ListenAttendSpellConfig", shape: SeriesShape, target_words: int) -> None:
        super().__init__(config, shape, target_words, config.embedding_size)
        self.add_output(config.decoder_size, False)
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
        assert annotations.summary is not None
        started = torch.tanh(self.start(annotations.summary))
        hidden = started.unflatten(-1, (self.config.layers, -1)).transpose(0, 1)
        return self.decoder.begin(hidden, annotations.states, annotations.mask)

    def decode(self, words: Int[Tensor, "b t"], state: DecoderState) -> tuple[Float[Tensor, "b t d"], DecoderState]:
        features, state = self.decoder(self.dropout(self.target_embedding(words)), state)
        return self.dropout(features), state


@dataclass(frozen=True)
class ListenerConfig(SeriesToTextConfig):
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
class ListenAttendSpellConfig(ListenerConfig):
    """``attention`` is the decoder's: location-aware, or any other, such as additive, which sees the content only."""

    embedding_size: int = 64
    decoder_size: int = 256
    layers: int = 1
    attention: AttentionConfig = field(default_factory=lambda: LocationAwareConfig(hidden_size=128))
    sampling: float = 0.1
    kind: ClassVar[str] = "listen_attend_spell"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "embedding_size", "decoder_size", "layers")
        if self.ctc == 1:
            raise ValueError("ctc is 1, which leaves nothing to the decoder; use the model ctc")

    def build(self, shape: SeriesShape, target_words: int) -> ListenAttendSpell:
        return ListenAttendSpell(self, shape, target_words)


class CTC(Listener):
    """The listener with CTC alone (Graves et al. 2006): no decoder, no attention. The baseline."""

    def decode(self, words: Int[Tensor, "b t"], state: Annotations) -> tuple[Float[Tensor, "b t d"], Annotations]:
        raise TypeError("a model with CTC alone has no decoder")

    def begin_from(self, annotations: Annotations) -> Annotations:
        return annotations


@dataclass(frozen=True)
class CTCConfig(ListenerConfig):
    """The encoder of `ListenAttendSpellConfig` without its decoder."""

    ctc: float = 1.0
    kind: ClassVar[str] = "ctc"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ctc != 1:
            raise ValueError(f"ctc is {self.ctc}; of a model with CTC alone it is 1")

    def build(self, shape: SeriesShape, target_words: int) -> CTC:
        return CTC(self, shape, target_words, 1)
