"""Luong et al. 2015: the state moves first, then looks.

``h_t`` from the last word; ``c_t`` read with h_t as the query; ``h̃_t = tanh(W_c [c_t; h_t])``; ``softmax(W_s h̃_t)``.
With input feeding h̃_{t−1} goes into the next step beside the word. What people get wrong: the query is the new state,
not the old one, so without input feeding all queries can look at once.

``writes_from: joined`` leaves the tanh and its W_c out: [h_t; c_t] is what is written from and what is fed.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from sightline.attention import AttentionConfig, ComposedConfig, GeneralConfig
from sightline.models.recurrent import RecurrentModel
from sightline.models.text_to_text import TextToTextConfig, Tying
from sightline.nn.decoder import DecoderShape
from sightline.nn.rnn import CellKind, Reading

Writing = Literal["tanh", "joined"]


def _general() -> ComposedConfig:
    return ComposedConfig(GeneralConfig())


@dataclass(frozen=True)
class LuongConfig(TextToTextConfig):
    """``attention`` is any mechanism: dot wants ``size`` twice the encoder's, local looks near one place.

    ``reads``: the directions in which the encoder reads the source. An encoder of both directions has no first word, so
    for it there is nothing to reverse.
    """

    embedding_size: int = 256
    size: int = 256
    encoder_size: int = 256
    layers: int = 1
    cell: CellKind = "lstm"
    attention: AttentionConfig = field(default_factory=_general)
    input_feeding: bool = True
    dropout: float = 0.3
    tied: Tying = "none"
    writes_from: Writing = "tanh"
    reads: Reading = "both"
    kind: ClassVar[str] = "luong"

    def __post_init__(self) -> None:
        for name, choices in (("writes_from", get_args(Writing)), ("reads", get_args(Reading))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(choices)}")

    def build(self, source_words: int, target_words: int) -> RecurrentModel:
        shape = DecoderShape(
            self.embedding_size,
            annotation_size=(2 if self.reads == "both" else 1) * self.encoder_size,
            size=self.size,
            layers=self.layers,
            cell=self.cell,
            attention=self.attention,
            looks="after",
            feeds_input=self.input_feeding,
            writes_from=self.writes_from,
            dropout=self.dropout,
        )
        return RecurrentModel(
            shape,
            source_words,
            target_words,
            encoder_size=self.encoder_size,
            starts_from="both",
            tied=self.tied,
            reads=self.reads,
            copying=self.copying,
        )
