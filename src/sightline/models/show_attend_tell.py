"""Show, Attend and Tell (Xu et al. 2015): a caption, with a look at the image before every word.

``c_0, h_0 = f(mean a)``, one layer with tanh each; ``e_ti = f_att(a_i, h_{t−1})``; ``β_t = σ(f_β(h_{t−1}))``;
``ẑ_t = β_t Σ_i α_ti a_i``, or with hard attention β_t times one of the a_i; the LSTM moves on with word and ẑ_t;
``p ∝ exp(L_0(E y_{t−1} + L_h h_t + L_z ẑ_t))``. Soft attention also pays λ Σ_i (1 − Σ_t α_ti)², so that every place
gets its share; hard attention learns by REINFORCE. What people get wrong: the word is written from the *new* state h_t,
the gate is one number, and the context that is written from is the gated one.

The baseline of REINFORCE is not the paper's one number but one for each word: "a" is likely wherever one looks, and
against the mean of all words every look before it would be praised. It does not depend on the choices, so the gradient
stays unbiased. Hard attention from nothing is slow where there are many places, since a look is right by luck at first;
to begin with the weights of a soft model (they fit) is quicker.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor, nn

from sightline.attention import (
    AdditiveConfig,
    AttentionConfig,
    Baseline,
    ComposedConfig,
    HardConfig,
    Read,
    reinforce_loss,
)
from sightline.attention.checks import check_least, check_share
from sightline.attention.hard import Hard
from sightline.models.image_to_text import ImageToText, ImageToTextConfig, Places, Reading
from sightline.models.writer import Loss
from sightline.nn.decoder import DecoderShape, DecoderState, RecurrentAttentionDecoder
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import CellKind
from sightline.vocabulary import PADDING


def soft(size: int = 256) -> ComposedConfig:
    """The paper's attention model, a perceptron with one hidden layer."""
    return ComposedConfig(AdditiveConfig(hidden_size=size))


def hard(size: int = 256, soft_share: float = 0.5) -> ComposedConfig:
    """The same, looking at one place; half of the captions in training are read softly.

    The authors' code draws that once for a whole batch, here each caption is drawn for.
    """
    return ComposedConfig(AdditiveConfig(hidden_size=size), HardConfig(soft_share=soft_share))


class ShowAttendTell(ImageToText):
    """The decoder of the recurrent translators, started from the mean of an image's places."""

    baseline: Tensor

    def __init__(
        self, config: "ShowAttendTellConfig", places: Places, target_words: int, encoder: nn.Module | None = None
    ) -> None:
        reading = Reading(config.normalised, config.annotation_size, config.positions, config.dropout)
        size = config.embedding_size  # that of the deep output
        super().__init__(places, target_words, size, size, config.tied, reading, encoder)
        self.config = config
        shape = DecoderShape(
            size,
            annotation_size=reading.size_of(places),
            size=config.size,
            layers=config.layers,
            cell=config.cell,
            attention=config.attention,
            looks="before",
            writes_from="deep",
            dropout=config.dropout,
            gates_context=config.attention is not None and config.gate,
        )
        self.decoder = RecurrentAttentionDecoder(shape)
        states = 2 if config.cell == "lstm" else 1
        self.start = nn.Linear(reading.size_of(places), states * config.layers * config.size)
        self.dropout = Dropout(config.dropout)
        self.samples = any(isinstance(part, Hard) and part.estimator == "reinforce" for part in self.decoder.modules())
        # Of each word's log-likelihood, 0 until it occurs. SavedRun with the weights, so that a resumed run keeps it.
        self.register_buffer("baseline", torch.zeros(target_words))

    def begin(self, source: Num[Tensor, "b ..."]) -> DecoderState:
        annotations = self.annotate(source)
        started = torch.tanh(self.start(annotations.mean(dim=1))).unflatten(
            -1, (-1, self.config.layers, self.config.size)
        )
        hidden, *memory = started.permute(1, 2, 0, 3)  # one state for each layer; of an LSTM also a memory
        return self.decoder.begin(hidden, annotations, None, memory[0] if memory else None)

    def decode(self, words: Int[Tensor, "b t"], state: DecoderState) -> tuple[Float[Tensor, "b t d"], DecoderState]:
        return self._decode(words, state, None)

    def _decode(
        self, words: Int[Tensor, "b t"], state: DecoderState, reads: list[Read] | None
    ) -> tuple[Float[Tensor, "b t d"], DecoderState]:
        features, state = self.decoder(self.dropout(self.target_embedding(words)), state, reads)
        return self.dropout(features), state

    def loss(self, source: Num[Tensor, "b ..."], target: Int[Tensor, "b t"], smoothing: float = 0.0) -> Loss:
        """Cross-entropy; in training also what the attention is to learn from, for each caption."""
        pays = self.decoder.attention is not None and (self.samples or self.config.penalty > 0)
        if not self.training or not pays:
            return super().loss(source, target, smoothing)
        reads: list[Read] = []
        state = self.begin(source)
        features, _ = self._decode(target[:, :-1], state, reads)
        following = target[:, 1:]
        real = following != PADDING
        if self.samples:
            soft = None if state.carry is None else state.carry.soft
            total = self._sampled_loss(features, following, real, smoothing, reads, soft)
        else:
            weights = torch.cat([read.weights for read in reads if read.weights is not None], dim=-2)
            total = self.cross_entropy(features, following, real, smoothing)
            total = total + self.config.penalty * unevenness(weights, real)
        return Loss(total, int(real.sum()))

    def _sampled_loss(
        self,
        features: Float[Tensor, "b t d"],
        following: Int[Tensor, "b t"],
        real: Bool[Tensor, "b t"],
        smoothing: float,
        reads: list[Read],
        soft: Bool[Tensor, " b"] | None,
    ) -> Float[Tensor, ""]:
        """Summed as cross-entropy is. What a choice is credited with never has a gradient, nor is it smoothed."""
        words = following[real]
        log_probs = torch.log_softmax(self.output(features[real]), dim=-1)
        likely = log_probs.gather(-1, words.unsqueeze(-1)).squeeze(-1)
        chosen, entropy = (
            torch.cat([part for part in parts if part is not None], dim=-1)
            for parts in ((read.log_prob for read in reads), (read.entropy for read in reads))
        )
        if chosen.dim() == 3:  # heads: each of them chose
            chosen, entropy = chosen.sum(dim=1), entropy.sum(dim=1)
        likelihood, expected = likely, self._expected(words).to(likely.dtype)
        if self.config.credit == "word":
            chosen, entropy = chosen[real].unsqueeze(-1), entropy[real].unsqueeze(-1)
        else:
            likelihood, expected = (
                likely.new_zeros(real.shape).masked_scatter(real, x).sum(-1) for x in (likely, expected)
            )
            chosen, entropy = chosen.masked_fill(~real, 0.0), entropy.masked_fill(~real, 0.0)
        sampled = reinforce_loss(
            likelihood - expected,
            chosen,
            entropy,
            Baseline(),
            reward_weight=self.config.reward_weight,
            entropy_weight=self.config.entropy_weight,
        )
        hard = real if soft is None else real & ~soft.unsqueeze(-1)
        self._follow(words[hard[real]], likely.detach()[hard[real]])
        total = sampled * len(likelihood) - expected.sum()
        if smoothing:
            total = total + smoothing * (likely - log_probs.mean(dim=-1)).sum()
        return total

    def _expected(self, words: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
        """The baseline of each word; one that was not met yet is expected to be as likely as the others."""
        met = self.baseline != 0
        others = self.baseline.sum() / met.sum().clamp(min=1)
        return torch.where(met, self.baseline, others)[words]

    @torch.no_grad()
    def _follow(self, words: Int[Tensor, " n"], likely: Float[Tensor, " n"]) -> None:
        """Move the baseline of each word that was written behind hard looks; the first mean is taken whole."""
        before, nothing = self.baseline, torch.zeros_like(self.baseline)
        counts = nothing.index_add(0, words, torch.ones_like(likely, dtype=before.dtype))
        mean = nothing.index_add(0, words, likely.to(before.dtype)) / counts.clamp(min=1)
        moved = torch.where(before == 0, mean, self.config.decay * before + (1 - self.config.decay) * mean)
        before.copy_(torch.where(counts > 0, moved, before))


def unevenness(weights: Float[Tensor, "b *h t s"], real: Bool[Tensor, "b t"]) -> Float[Tensor, ""]:
    """``Σ_i (1 − Σ_t α_ti)²``, summed over captions (and heads): the doubly stochastic penalty."""
    steps = real.reshape(len(real), *[1] * (weights.dim() - 3), -1, 1)
    return (1 - weights.masked_fill(~steps, 0.0).sum(dim=-2)).square().sum()


@dataclass(frozen=True)
class ShowAttendTellConfig(ImageToTextConfig):
    """``attention`` left out: the mean of the places starts the decoder and is all that it sees: the baseline.

    ``normalised``, ``annotation_size``, ``positions``: how an encoder's features become annotations. ``penalty`` is λ
    of soft attention. For hard attention (`hard()`), ``credit`` says what a choice is credited with: the word that was
    written next (less noise; the choice's effect on later words is left out) or the whole caption (the paper's
    formula); ``decay`` is the baseline's. ``reward_weight`` and ``entropy_weight`` are λ_r and λ_e, with the values of
    the authors' code: much of the first is mostly noise, and their ratio decides how sharp a look can become, for what
    is best is a look at place i with a probability that goes with p(word | i) to the power λ_r / λ_e.
    """

    embedding_size: int = 256
    size: int = 512
    layers: int = 1
    cell: CellKind = "lstm"
    attention: AttentionConfig | None = field(default_factory=soft)
    gate: bool = True
    penalty: float = 1.0
    normalised: bool | None = None
    annotation_size: int | None = None
    positions: bool = False
    dropout: float = 0.5
    tied: bool = False
    credit: Literal["word", "caption"] = "word"
    reward_weight: float = 0.1
    entropy_weight: float = 0.002
    decay: float = 0.9
    kind: ClassVar[str] = "show_attend_tell"

    def __post_init__(self) -> None:
        check_least(self, 1, "embedding_size", "size", "layers", "annotation_size")
        check_least(self, 0, "penalty", "reward_weight", "entropy_weight")
        check_share(self, "decay")

    def build(self, places: Places, target_words: int, encoder: nn.Module | None = None) -> ShowAttendTell:
        return ShowAttendTell(self, places, target_words, encoder)
