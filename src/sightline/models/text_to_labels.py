"""What every model that reads text and writes labels has in common.

A model of this kind says two things: one vector for each token (`annotate`), and one for the whole text, pooled with
attention (`features`). What is made of them, a label, several, a number, a tag for each word or a span, is a head's
business (`sightline.models.heads`).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention.pooling import Pooling
from sightline.config import Config
from sightline.vocabulary import OURS, Specials


class Texts(NamedTuple):
    """A batch of texts, padded behind.

    A text is ``START a… END``, a pair ``START a… END b… END``; for `han` a document is ``sentence… END sentence… END``.
    ``parts`` is 0 up to the first END and 1 after it, or None where there are no pairs.
    """

    words: Int[Tensor, "b s"]
    parts: Int[Tensor, "b s"] | None = None


class TextModel(nn.Module):
    """The base: tokens in, features out. ``size`` is that of an annotation, ``feature_size`` that of a whole text."""

    size: int
    dropout_rate: float = 0.1  # also before a head's output layer, unless the head is told otherwise

    def __init__(self, size: int, specials: Specials = OURS) -> None:
        super().__init__()
        self.size, self.specials = size, specials

    @property
    def feature_size(self) -> int:
        return self.size

    def real(self, texts: Texts) -> Bool[Tensor, "b s"]:
        """Which places of a batch hold a token."""
        return texts.words != self.specials.padding

    @abstractmethod
    def annotate(self, texts: Texts) -> Float[Tensor, "b s d"]:
        """One vector for each token."""

    @abstractmethod
    def features(self, texts: Texts) -> Float[Tensor, "b d"]:
        """One vector for each text, read with attention."""


class ReadText(NamedTuple):
    """What a model that decides how long to think makes of texts.

    ``annotations`` and ``features`` are those that predictions are made from. ``each`` are the features after each
    repeat, and ``weights`` their probabilities, where the loss is the mean of the losses of all of them. ``cost`` and
    ``repeats`` are means over the tokens of a text.
    """

    annotations: Float[Tensor, "b s d"]
    features: Float[Tensor, "b d"]
    cost: Float[Tensor, " b"]
    repeats: Float[Tensor, " b"]
    each: tuple[Float[Tensor, "b d"], ...] | None = None
    weights: Float[Tensor, "n b"] | None = None


class ThinkingTextModel(TextModel):
    """The base of text models whose repeats cost something."""

    thinks: bool  # whether it decides how often to repeat; where not, nothing is added to the loss

    @abstractmethod
    def read(self, texts: Texts) -> ReadText:
        """Annotations, features, and what they cost."""

    def annotate(self, texts: Texts) -> Float[Tensor, "b s d"]:
        return self.read(texts).annotations

    def features(self, texts: Texts) -> Float[Tensor, "b d"]:
        return self.read(texts).features


def pooled_size(pooling: Pooling) -> int:
    """The size of what a pooling reads, its queries side by side."""
    return pooling.query.shape[0] * pooling.inner.context_size


@dataclass(frozen=True)
class TextModelConfig(Config):
    """The base of the models' configurations."""

    family: ClassVar[str] = "text_model"

    @abstractmethod
    def build(self, words: int, specials: Specials = OURS) -> TextModel:
        """Build the model for a vocabulary of this size."""
