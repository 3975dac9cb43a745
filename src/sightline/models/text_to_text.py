"""Models from text to text: what `sightline.models.writer` says of all that write, and the source's words.

A model with ``copying`` also writes words of its source (`sightline.nn.copying`): those that it has no token for have
numbers behind the vocabulary. `look` gives what this takes: features, and the weights of the attention that copies.
"""

import functools
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.config import Config
from sightline.decoding.search import Step
from sightline.kernels.copying import Sources
from sightline.kernels.loss import Mixture
from sightline.models.writer import Loss, ThoughtLoss, Writer
from sightline.nn.annotating import TokenEmbedding
from sightline.nn.copying import Copying, CopyState, Looked, attended_again, one_of_heads
from sightline.state import State
from sightline.vocabulary import END, PADDING, START, UNKNOWN  # noqa: F401 - others import them from here

Tying = Literal["all", "output", "none"]


def padding_mask(source: Int[Tensor, "b s"]) -> Bool[Tensor, "b s"] | None:
    """What of a batch is words; None where all of it is, as in a batch of one: that costs nothing to attend to."""
    mask = source != PADDING
    # A graphics card would have to be waited for.
    return None if source.device.type == "cpu" and bool(mask.all()) else mask


class TextToText(Writer):
    """Tokens in, tokens out. A source is padded with `PADDING` behind.

    A subclass that leaves out ``feature_size`` calls `add_output` itself; one that can copy defines `look`, and calls
    `add_copying`.
    """

    copying: Copying | None
    looks = False  # whether `look` is there

    def __init__(
        self, source_words: int, target_words: int, embedding_size: int, feature_size: int | None, tied: Tying
    ) -> None:
        if tied == "all" and source_words != target_words:
            raise ValueError(
                f"embeddings tied on both sides need one vocabulary, found {source_words} source words and "
                f"{target_words} target words; use a joint tokeniser, or tie 'output' only"
            )
        super().__init__(target_words, embedding_size)
        self.copying = None
        self.source_embedding = self.target_embedding
        if tied != "all":
            self.source_embedding = TokenEmbedding(source_words, embedding_size, PADDING)
        if feature_size is not None:
            self.add_output(feature_size, tied != "none")

    def add_copying(self, gate_size: int, heads: int = 1) -> None:
        """The gate of copying, which sees so many numbers. What can only be copied is read as the unknown word."""
        self.copying = Copying(gate_size, heads)
        self.source_embedding.unknown_beyond = self.target_embedding.unknown_beyond = True

    def look(self, words: Int[Tensor, "b t"], state: State, covering: bool = False) -> tuple[Looked, State]:
        """As `decode`, with the weights of attention; ``covering``: a loss will be made of their coverage."""
        raise TypeError(f"{type(self).__name__} has no attention to the source")

    def log_probs(self, source: Int[Tensor, "b s"], words: Int[Tensor, "b t"]) -> Float[Tensor, "b t w"]:
        """Of the words of the vocabulary, and with copying of those behind it."""
        if self.copying is None:
            return super().log_probs(source, words)
        looked, _ = self.look(words, self.begin(source))
        return self.mixed(looked, source)

    def mixed(self, looked: Looked, source: Int[Tensor, "b s"]) -> Float[Tensor, "b t w"]:
        """The log-probabilities of words that are written or copied."""
        assert self.copying is not None
        log_probs = torch.log_softmax(self.output(looked.features), dim=-1)
        return self.copying.mixed(log_probs, looked, Sources.of(source, self.output.out_features))

    def log_probs_of(self, source: Int[Tensor, "b s"], looked: Looked, following: Int[Tensor, "b t"]) -> Tensor:
        """Log-probabilities of given words; less memory than those of all."""
        target, mixture = self._mixture(source, looked, following)
        log_probs = torch.log_softmax(self.output(looked.features), dim=-1)
        own = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        return own if mixture is None else mixture.log_prob(own)[0]

    def loss(  # type: ignore[override]
        self, source: Int[Tensor, "b s"], target: Int[Tensor, "b t"], smoothing: float = 0.0, coverage: float = 0.0
    ) -> Loss | ThoughtLoss:
        """Cross-entropy summed over the words of the target; and where ``coverage`` weighs it, the coverage loss."""
        if self.copying is None and not coverage:
            return super().loss(source, target, smoothing)
        looked, _ = self.look(target[:, :-1], self.begin(source), covering=bool(coverage))
        following = target[:, 1:]
        real = following != PADDING
        words, mixture = self._mixture(source, looked, following)
        if mixture is not None:
            mixture = Mixture(*(part[real] for part in mixture))
        total, tokens = self.cross_entropy(looked.features, words, real, smoothing, mixture), int(real.sum())
        if not coverage:
            return Loss(total, tokens)
        again = coverage * attended_again(self._one_weight(looked), real)
        return ThoughtLoss(total + again, tokens, {"coverage": float(again.detach())}, {})

    def _mixture(
        self, source: Int[Tensor, "b s"], looked: Looked, following: Int[Tensor, "b t"]
    ) -> tuple[Int[Tensor, "b t"], Mixture | None]:
        """The words that the vocabulary has, and what copying adds to their probabilities."""
        if self.copying is None:
            return following, None
        known = following < self.output.out_features
        return following.where(known, UNKNOWN), Mixture(*self.copying.shares(looked, following, source), known)

    def _one_weight(self, looked: Looked) -> Float[Tensor, "b t s"]:
        return one_of_heads(looked.weights) if self.copying is None else self.copying.one_weight(looked.weights)

    def searching(self, source: Int[Tensor, "b s"], coverage: float = 0.0) -> tuple[Step, object]:
        """``coverage`` weighs what is subtracted from log-probabilities for attending to the same words again."""
        if self.copying is None and not coverage:
            return super().searching(source)
        sources = Sources.of(source, self.output.out_features)
        covered = torch.zeros(source.shape, dtype=self.output.weight.dtype, device=source.device) if coverage else None
        return functools.partial(self.copying_step, coverage=coverage), CopyState(self.begin(source), sources, covered)

    def copying_step(
        self, tokens: Int[Tensor, " n"], state: CopyState, coverage: float = 0.0
    ) -> tuple[Float[Tensor, "n w"], CopyState]:
        """One step of search for a model that copies, or whose coverage counts."""
        looked, after = self.look(tokens.unsqueeze(-1), state.decoder)
        log_probs = torch.log_softmax(self.output(looked.features), dim=-1)
        if self.copying is not None:
            log_probs = self.copying.mixed(log_probs, looked, state.sources)
        log_probs, covered = log_probs.squeeze(1), state.covered
        if covered is not None:
            weights = self._one_weight(looked)[:, 0]
            log_probs = log_probs - coverage * torch.minimum(weights, covered).sum(dim=-1, keepdim=True)
            covered = covered + weights
        return log_probs, CopyState(after, state.sources, covered)


@dataclass(frozen=True)
class TextToTextConfig(Config):
    """The base of the models' configurations. ``copying``: words of the source can be copied."""

    copying: bool = field(default=False, kw_only=True)
    family: ClassVar[str] = "text_to_text"

    @abstractmethod
    def build(self, source_words: int, target_words: int) -> TextToText:
        """Build the model for vocabularies of these sizes."""
