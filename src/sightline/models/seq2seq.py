"""Sequence to sequence through one context vector (Sutskever et al. 2014; Cho et al. 2014): the baseline.

The encoder's final states start the decoder and are all that it ever sees of the source. Long sentences do not fit into
one vector, which is why attention was invented; every attention model should be held against this one.
"""

from dataclasses import dataclass
from typing import ClassVar

from sightline.models.recurrent import RecurrentModel
from sightline.models.text_to_text import TextToTextConfig, Tying
from sightline.nn.decoder import DecoderShape
from sightline.nn.rnn import CellKind


@dataclass(frozen=True)
class Seq2SeqConfig(TextToTextConfig):
    embedding_size: int = 256
    size: int = 256
    layers: int = 1
    cell: CellKind = "gru"
    dropout: float = 0.3
    tied: Tying = "none"
    kind: ClassVar[str] = "seq2seq"

    def build(self, source_words: int, target_words: int) -> RecurrentModel:
        shape = DecoderShape(
            self.embedding_size,
            annotation_size=2 * self.size,
            size=self.size,
            layers=self.layers,
            cell=self.cell,
            dropout=self.dropout,
        )
        return RecurrentModel(
            shape,
            source_words,
            target_words,
            encoder_size=self.size,
            starts_from="both",
            tied=self.tied,
            copying=self.copying,
        )
