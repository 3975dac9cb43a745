"""What every model from text to text has in common: how it is trained and how search drives it.

A model of this kind says two things: how a source becomes the decoder's state (`begin`), and what features a state and
the next words give (`decode`). The rest, the loss over the target and the step that search takes, is here.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.config import Config
from sightline.layers.embedding import TokenEmbedding
from sightline.layers.loss import smoothed_cross_entropy
from sightline.search import Step
from sightline.vocabulary import END, PADDING, START, UNKNOWN  # noqa: F401 - others import them from here

Tying = Literal["all", "output", "none"]


class Loss(NamedTuple):
    """The sum over tokens, smoothed as in training and as it is, and how many tokens there were."""

    total: Float[Tensor, ""]
    tokens: int


def padding_mask(source: Int[Tensor, "b s"]) -> Bool[Tensor, "b s"] | None:
    """What of a batch is words; None where all of it is, as in a batch of one: that costs nothing to attend to."""
    mask = source != PADDING
    # A graphics card would have to be waited for.
    return None if source.device.type == "cpu" and bool(mask.all()) else mask


class TextToText(nn.Module):
    """The base: tokens in, tokens out."""

    def __init__(
        self, source_words: int, target_words: int, embedding_size: int, feature_size: int, tied: Tying
    ) -> None:
        super().__init__()
        if tied == "all" and source_words != target_words:
            raise ValueError(
                f"embeddings tied on both sides need one vocabulary, found {source_words} source words and "
                f"{target_words} target words; use a joint tokeniser, or tie 'output' only"
            )
        if tied != "none" and embedding_size != feature_size:
            raise ValueError(
                f"an output tied to the embedding needs features of its size, found {feature_size} features and "
                f"embeddings of {embedding_size}"
            )
        self.target_embedding = TokenEmbedding(target_words, embedding_size, PADDING)
        self.source_embedding = self.target_embedding
        if tied != "all":
            self.source_embedding = TokenEmbedding(source_words, embedding_size, PADDING)
        self.output = nn.Linear(feature_size, target_words)
        nn.init.normal_(self.output.weight, std=feature_size**-0.5)
        nn.init.zeros_(self.output.bias)
        if tied != "none":
            self.output.weight = self.target_embedding.weight

    @abstractmethod
    def begin(self, source: Int[Tensor, "b s"]) -> Any:
        """Encode the source (padded with `PADDING` behind) into the state that the decoder starts from."""

    @abstractmethod
    def decode(self, words: Int[Tensor, "b t"], state: Any) -> tuple[Float[Tensor, "b t d"], Any]:
        """Features from which the words that follow are written: for any number of words that follow the state."""

    def logits(self, source: Int[Tensor, "b s"], words: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        """Teacher-forced: what the model would write after each of the words."""
        features, _ = self.decode(words, self.begin(source))
        return self.output(features)

    def loss(self, source: Int[Tensor, "b s"], target: Int[Tensor, "b t"], smoothing: float = 0.0) -> Loss:
        """Cross-entropy of a target that begins with `START` and ends with `END`, summed over its tokens."""
        features, _ = self.decode(target[:, :-1], self.begin(source))
        wanted = target[:, 1:]
        real = wanted != PADDING  # padding is dropped before the output layer: it is the largest product of the model
        total = smoothed_cross_entropy(features[real], self.output.weight, self.output.bias, wanted[real], smoothing)
        return Loss(total, int(real.sum()))

    def looks_at_source(self, name: str) -> bool:
        """Whether the attention of this name, as `capture` gives it, looks from the target at the source."""
        return name.startswith("decoder.")

    def searching(self, source: Int[Tensor, "b s"]) -> tuple[Step, Any]:
        """What search needs: a step, and the state that it begins with. A model may have a faster step than `step`."""
        return self.step, self.begin(source)

    def step(self, tokens: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        """One step of search."""
        features, state = self.decode(tokens.unsqueeze(-1), state)
        return torch.log_softmax(self.output(features[:, -1]), dim=-1), state


@dataclass(frozen=True)
class TextToTextConfig(Config):
    """The base of the models' configurations."""

    family: ClassVar[str] = "text_to_text"

    @abstractmethod
    def build(self, source_words: int, target_words: int) -> TextToText:
        """Build the model for vocabularies of these sizes."""
