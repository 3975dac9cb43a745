"""RNNsearch (Bahdanau et al. 2015), as in the paper's appendix.

BiGRU annotations; ``s_0 = tanh(W_s ←h_1)``, the backward state; ``e_ij = v · tanh(W_a s_{i−1} + U_a h_j)``; the state
moves on with word and context; ``t̃ = U_o s_{i−1} + V_o E y_{i−1} + C_o c_i``, maxout over pairs, softmax. What people
get wrong: both the query and the output use the state *before* it moves, s_{i−1}. One difference: the reset gate acts
as in torch.nn.GRU.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from sightline.attention import AdditiveConfig, AttentionConfig, ComposedConfig
from sightline.models.recurrent import RecurrentModel
from sightline.models.text_to_text import TextToTextConfig, Tying
from sightline.nn.decoder import DecoderShape
from sightline.nn.rnn import CellKind


def additive(size: int = 256) -> ComposedConfig:
    """The paper's alignment model: its hidden layer is as large as the decoder's state, not as the annotations."""
    return ComposedConfig(AdditiveConfig(hidden_size=size))


@dataclass(frozen=True)
class RNNSearchConfig(TextToTextConfig):
    embedding_size: int = 256
    size: int = 256
    layers: int = 1
    cell: CellKind = "gru"
    attention: AttentionConfig = field(default_factory=additive)
    dropout: float = 0.3
    tied: Tying = "none"
    kind: ClassVar[str] = "rnnsearch"

    def build(self, source_words: int, target_words: int) -> RecurrentModel:
        shape = DecoderShape(
            self.embedding_size,
            annotation_size=2 * self.size,
            size=self.size,
            layers=self.layers,
            cell=self.cell,
            attention=self.attention,
            looks="before",
            writes_from="maxout",
            dropout=self.dropout,
        )
        return RecurrentModel(
            shape,
            source_words,
            target_words,
            encoder_size=self.size,
            starts_from="backward",
            tied=self.tied,
            copying=self.copying,
        )
