"""Luong et al. 2015: the state moves first, then looks.

``h_t`` from the last word; ``c_t`` read with h_t as the query; ``h̃_t = tanh(W_c [c_t; h_t])``; ``softmax(W_s h̃_t)``.
With input feeding h̃_{t−1} goes into the next step beside the word. What people get wrong: the query is the new state,
not the old one, so without input feeding all queries can look at once.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from sightline.attention import AttentionConfig, ComposedConfig, GeneralConfig
from sightline.models.recurrent import RecurrentModel
from sightline.models.text_to_text import TextToTextConfig, Tying
from sightline.nn.decoder import DecoderShape
from sightline.nn.rnn import CellKind


def _general() -> ComposedConfig:
    return ComposedConfig(GeneralConfig())


@dataclass(frozen=True)
class LuongConfig(TextToTextConfig):
    """``attention`` is any mechanism: dot wants ``size`` twice the encoder's, local looks near one place."""

    embedding_size: int = 256
    size: int = 256
    encoder_size: int = 256
    layers: int = 1
    cell: CellKind = "lstm"
    attention: AttentionConfig = field(default_factory=_general)
    input_feeding: bool = True
    dropout: float = 0.3
    tied: Tying = "none"
    kind: ClassVar[str] = "luong"

    def build(self, source_words: int, target_words: int) -> RecurrentModel:
        shape = DecoderShape(
            self.embedding_size,
            annotation_size=2 * self.encoder_size,
            size=self.size,
            layers=self.layers,
            cell=self.cell,
            attention=self.attention,
            looks="after",
            feeds_input=self.input_feeding,
            dropout=self.dropout,
        )
        return RecurrentModel(
            shape, source_words, target_words, encoder_size=self.encoder_size, starts_from="both", tied=self.tied
        )
