"""Listen, Attend and Spell (Chan et al. 2016): a pyramid of bidirectional LSTMs, and a decoder that attends to it.

``h = Listen(x)``; ``c_i = attention(s_{i−1}, h)``; ``s_i = LSTM(s_{i−1}, y_{i−1}, c_i)``; ``p = softmax(MLP(s_i,
c_i))``. The attention is location-aware by default (Chorowski et al. 2015): sounds repeat, and where it looked before
tells which of them comes next. What people get wrong: a pyramid of 8 frames leaves fewer states than letters where
people spell fast; a filter's width counts states of the encoder, not frames.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from sightline.models.listening import Attending, AttendingConfig, Listening, ListeningConfig
from sightline.models.series import Annotations
from sightline.models.series_to_text import SeriesToText, SeriesToTextConfig
from sightline.nn.decoder import DecoderState
from sightline.nn.series import SeriesShape


class Listener(Listening, SeriesToText):
    """The encoder of both models of this file."""

    config: "ListenerConfig"

    def __init__(self, config: "ListenerConfig", shape: SeriesShape, target_words: int, embedding_size: int) -> None:
        super().__init__(config, shape, target_words, embedding_size)
        self.add_listener(config)
        self.add_ctc(self.encoder.annotation_size)


class ListenAttendSpell(Attending, Listener):
    """Listen, and spell with the one recurrent attention decoder."""

    config: "ListenAttendSpellConfig"

    def __init__(self, config: "ListenAttendSpellConfig", shape: SeriesShape, target_words: int) -> None:
        super().__init__(config, shape, target_words, config.embedding_size)
        self.add_output(config.decoder_size, False)
        self.add_decoder(config)

    def decode(self, words: Int[Tensor, "b t"], state: DecoderState) -> tuple[Float[Tensor, "b t d"], DecoderState]:
        features, state = self.decoder(self.dropout(self.target_embedding(words)), state)
        return self.dropout(features), state


@dataclass(frozen=True)
class ListenerConfig(ListeningConfig, SeriesToTextConfig):
    """The configuration of the encoder."""


@dataclass(frozen=True)
class ListenAttendSpellConfig(AttendingConfig, ListenerConfig):
    """``attention`` is the decoder's: location-aware, or any other, such as additive, which sees the content only."""

    sampling: float = 0.1
    kind: ClassVar[str] = "listen_attend_spell"

    def __post_init__(self) -> None:
        super().__post_init__()
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
