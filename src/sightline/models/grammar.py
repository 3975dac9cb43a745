"""Grammar as a Foreign Language (Vinyals et al. 2015, arXiv 1412.7449): parse a sentence by writing its tree as tokens.

An LSTM reads the sentence backwards: h_1 … h_n. The decoder's state d_t is updated first; then ``u_i = v · tanh(W_1 h_i
+ W_2 d_t)``, ``a = softmax(u)``, ``d'_t = Σ a_i h_i``; the output is written from [d_t; d'_t], which is also fed into
the next step as it is. What people get wrong: no layer and no tanh stand between [d_t; d'_t] and either use of it,
which is what tells this decoder from Luong's. Two differences: the score has a bias, and the decoder's layers start
from tanh(W h) of the encoder's last state instead of a copy of the states of its layers.
"""

from dataclasses import dataclass, field
from typing import ClassVar

from sightline.attention import AdditiveConfig, AttentionConfig, ComposedConfig
from sightline.models.luong import LuongConfig, Writing
from sightline.nn.rnn import Reading


def _additive() -> ComposedConfig:
    return ComposedConfig(AdditiveConfig())


@dataclass(frozen=True)
class GrammarConfig(LuongConfig):
    """Luong's decoder with other choices: the fields are the same ones. The paper has three layers of 256."""

    layers: int = 3
    attention: AttentionConfig = field(default_factory=_additive)
    writes_from: Writing = "joined"
    reads: Reading = "backwards"
    kind: ClassVar[str] = "grammar"
