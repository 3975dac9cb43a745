"""What every model that writes text has in common: how it is trained and how search drives it.

A model of this kind says two things: how a source, whatever it is, becomes the decoder's state (`begin`), and what
features a state and the next words give (`decode`). The rest, the loss over the target and the step that search takes,
is here.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention.observed import may_bypass
from sightline.decoding.search import Step
from sightline.kernels.loss import Mixture, of_logits, smoothed_cross_entropy
from sightline.nn.annotating import TokenEmbedding
from sightline.vocabulary import PADDING


class Loss(NamedTuple):
    """The sum over tokens, smoothed as in training and as it is, and how many tokens there were."""

    total: Float[Tensor, ""]
    tokens: int


class ThoughtLoss(NamedTuple):
    """A loss of which what repeats cost is a part, by name. ``measures`` are sums that are logged beside it and are
    no parts of it: how many repeats there were."""

    total: Float[Tensor, ""]
    tokens: int
    parts: dict[str, float]
    measures: dict[str, float]


def with_ponder(
    loss: Float[Tensor, ""], tokens: int, cost: Float[Tensor, " b"], repeats: Float[Tensor, " b"], counts: Tensor
) -> ThoughtLoss:
    """Add what the repeats of each example cost, as often as the example counts in the loss (``counts``)."""
    ponder = (cost * counts).sum()
    measures = {"repeats": float((repeats.detach() * counts).sum())}
    return ThoughtLoss(loss + ponder, tokens, {"ponder": float(ponder.detach())}, measures)


class Writer(nn.Module):
    """The base: anything in, tokens out. Subclasses call `add_output` once they have embedded what they read."""

    def __init__(self, target_words: int, embedding_size: int) -> None:
        super().__init__()
        self.target_embedding = TokenEmbedding(target_words, embedding_size, PADDING)

    def add_output(self, feature_size: int, tied: bool) -> None:
        """The output layer; tied, it is the embedding of the target's words."""
        embedding = self.target_embedding
        if tied and embedding.embedding_dim != feature_size:
            raise ValueError(
                f"an output tied to the embedding needs features of its size, found {feature_size} features and "
                f"embeddings of {embedding.embedding_dim}"
            )
        self.output = nn.Linear(feature_size, embedding.num_embeddings)
        nn.init.normal_(self.output.weight, std=feature_size**-0.5)
        nn.init.zeros_(self.output.bias)
        if tied:
            self.output.weight = embedding.weight

    @abstractmethod
    def begin(self, source: Any) -> Any:
        """Encode a batch of sources into the state that the decoder starts from."""

    @abstractmethod
    def decode(self, words: Int[Tensor, "b t"], state: Any) -> tuple[Float[Tensor, "b t d"], Any]:
        """Features from which the words that follow are written: for any number of words that follow the state."""

    def logits(self, source: Any, words: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        """Teacher-forced: what the model would write after each of the words."""
        features, _ = self.decode(words, self.begin(source))
        return self.output(features)

    def log_probs(self, source: Any, words: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        """Teacher-forced: of every word that the model can write."""
        return torch.log_softmax(self.logits(source, words), dim=-1)

    def loss(self, source: Any, target: Int[Tensor, "b t"], smoothing: float = 0.0) -> Loss:
        """Cross-entropy of a target that begins with `START` and ends with `END`, summed over its tokens."""
        features, _ = self.decode(target[:, :-1], self.begin(source))
        following = target[:, 1:]
        real = following != PADDING
        return Loss(self.cross_entropy(features, following, real, smoothing), int(real.sum()))

    def cross_entropy(
        self,
        features: Float[Tensor, "b t d"],
        following: Int[Tensor, "b t"],
        real: Bool[Tensor, "b t"],
        smoothing: float,
        mixture: Mixture | None = None,
    ) -> Float[Tensor, ""]:
        """Summed. Padding is dropped before the output layer: it is the largest product of the model."""
        features, following = features[real], following[real]
        if not may_bypass(self.output):
            return of_logits(self.output(features), following, smoothing, mixture)
        return smoothed_cross_entropy(features, self.output.weight, self.output.bias, following, smoothing, mixture)

    def attends_to_source(self, name: str) -> bool:
        """Whether the attention of this name, as `capture` gives it, looks from the target at the source."""
        return name.startswith("decoder.")

    def searching(self, source: Any) -> tuple[Step, Any]:
        """What search needs: a step, and the state that it begins with. A model may have a faster step than `step`."""
        return self.step, self.begin(source)

    def step(self, tokens: Int[Tensor, " n"], state: Any) -> tuple[Float[Tensor, "n v"], Any]:
        """One step of search."""
        features, state = self.decode(tokens.unsqueeze(-1), state)
        return torch.log_softmax(self.output(features[:, -1]), dim=-1), state
