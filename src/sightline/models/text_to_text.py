"""Models from text to text: what `sightline.models.writer` says of all that write, and the source's words."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from sightline.config import Config
from sightline.models.writer import Loss, Writer  # noqa: F401 - others import them from here
from sightline.nn.annotating import TokenEmbedding
from sightline.vocabulary import END, PADDING, START, UNKNOWN  # noqa: F401 - others import them from here

Tying = Literal["all", "output", "none"]


def padding_mask(source: Int[Tensor, "b s"]) -> Bool[Tensor, "b s"] | None:
    """What of a batch is words; None where all of it is, as in a batch of one: that costs nothing to attend to."""
    mask = source != PADDING
    # A graphics card would have to be waited for.
    return None if source.device.type == "cpu" and bool(mask.all()) else mask


class TextToText(Writer):
    """Tokens in, tokens out. A source is padded with `PADDING` behind.

    A subclass that leaves out ``feature_size`` calls `add_output` itself.
    """

    def __init__(
        self, source_words: int, target_words: int, embedding_size: int, feature_size: int | None, tied: Tying
    ) -> None:
        if tied == "all" and source_words != target_words:
            raise ValueError(
                f"embeddings tied on both sides need one vocabulary, found {source_words} source words and "
                f"{target_words} target words; use a joint tokeniser, or tie 'output' only"
            )
        super().__init__(target_words, embedding_size)
        self.source_embedding = self.target_embedding
        if tied != "all":
            self.source_embedding = TokenEmbedding(source_words, embedding_size, PADDING)
        if feature_size is not None:
            self.add_output(feature_size, tied != "none")


@dataclass(frozen=True)
class TextToTextConfig(Config):
    """The base of the models' configurations."""

    family: ClassVar[str] = "text_to_text"

    @abstractmethod
    def build(self, source_words: int, target_words: int) -> TextToText:
        """Build the model for vocabularies of these sizes."""
