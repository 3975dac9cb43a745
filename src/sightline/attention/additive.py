"""The additive score, also called perceptron or concat attention: ``v · tanh(W_q q + W_k k + b)``.

This is the basic attention of a context c over y_1 … y_n (m_i = tanh(W_cm c + W_ym y_i), s = softmax(w_m · m_i)) and
the score of Bahdanau et al. 2015. What people get wrong: m_i is a vector and needs w_m before the softmax; concat
attention, v · tanh(W [q; k]), is the same function with W cut in two; and the keys are projected once, not each step.
"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from sightline.attention.checks import check_least
from sightline.attention.contract import Heads
from sightline.attention.heads import HeadLinear, head_parameter
from sightline.attention.scores import Score, ScoreConfig
from sightline.kernels.additive import additive_scores


class Additive(Score):
    """The formula above, with its own W_q, W_k, b and v for each head."""

    def __init__(self, query_size: int, key_size: int, hidden_size: int, heads: Heads = ()) -> None:
        super().__init__()
        self.query = HeadLinear(query_size, hidden_size, heads=heads, bias=True)
        self.key = HeadLinear(key_size, hidden_size, heads=heads)
        self.vector = head_parameter(hidden_size, heads=heads)

    def project_keys(self, keys: Float[Tensor, "*b s k"], start: int) -> Float[Tensor, "..."]:
        return self.key(keys)

    def forward(
        self, query: Float[Tensor, "*b t q"], keys: Float[Tensor, "*#b s p"], position: int
    ) -> Float[Tensor, "*b t s"]:
        return additive_scores(self.query(query), keys, self.vector)


@dataclass(frozen=True)
class AdditiveConfig(ScoreConfig):
    """``hidden_size`` left out is the key's size."""

    hidden_size: int | None = None
    kind: ClassVar[str] = "additive"

    def __post_init__(self) -> None:
        check_least(self, 1, "hidden_size")

    def build(self, query_size: int, key_size: int, *, heads: Heads = ()) -> Additive:
        return Additive(query_size, key_size, self.hidden_size or key_size, heads)


ConcatConfig = AdditiveConfig  # the name that Luong et al. (2015) use
