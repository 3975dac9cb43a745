"""What is made of a text's features or annotations: a label, several, a number, a tag for each word, or a span.

Every head has the same two methods: `loss` sums over examples (words, for tags) and counts them, `scores` gives what
the model thinks, before any temperature.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.models.text_to_labels import TextModel, Texts, ThinkingTextModel
from sightline.models.writer import Loss, ThoughtLoss, with_ponder
from sightline.nn.dropout import Dropout

Objective = Literal["one_label", "several_labels", "number", "tag_each", "span"]
Reduction = Literal["sum", "none"]
NOTHING = -1  # a label that is not there, or not known: no loss


class Labeller(nn.Module):
    """A text model and an output layer, with dropout between them (the model's own rate unless given)."""

    objective: ClassVar[Objective]
    of_words: ClassVar[bool] = False  # an output for each word, not one for the text

    def __init__(self, model: TextModel, input_size: int, outputs: int, dropout: float | None = None) -> None:
        super().__init__()
        self.model = model
        self.dropout = Dropout(model.dropout_rate if dropout is None else dropout)
        self.output = nn.Linear(input_size, outputs)
        nn.init.normal_(self.output.weight, std=input_size**-0.5)
        nn.init.zeros_(self.output.bias)

    def scores(self, texts: Texts) -> Float[Tensor, "..."]:
        """What the model thinks of each text: logits, or a number."""
        read = self.model.annotate(texts) if self.of_words else self.model.features(texts)
        return self.logits(read, texts)

    def logits(self, read: Float[Tensor, "*n d"], texts: Texts) -> Float[Tensor, "..."]:
        """The outputs for annotations (``of_words``) or features."""
        return self.output(self.dropout(read))

    @abstractmethod
    def losses(self, logits: Tensor, gold: Tensor, reduction: Reduction) -> Float[Tensor, "..."]:
        """The loss of these logits: its sum, or that of each text (of each word, of a head of words)."""

    def known(self, gold: Tensor) -> int:
        """How much has a label."""
        return len(gold)

    def loss(self, texts: Texts, gold: Tensor) -> Loss | ThoughtLoss:
        """The sum over what has a label, and how much that is.

        In training, what the repeats of a model cost is a part of it, the mean over the tokens of a text. Where the
        model has features after each repeat (PonderNet), it is the mean of their losses: a text halts at a repeat with
        the mean probability of its tokens.
        """
        if not (self.training and isinstance(self.model, ThinkingTextModel) and self.model.thinks):
            read = self.model.annotate(texts) if self.of_words else self.model.features(texts)
            return Loss(self.losses(self.logits(read, texts), gold, "sum"), self.known(gold))
        thought, known = self.model.read(texts), self.known(gold)
        if self.of_words or thought.each is None or thought.weights is None:
            read = thought.annotations if self.of_words else thought.features
            total = self.losses(self.logits(read, texts), gold, "sum")
        else:
            each = [self.losses(self.logits(one, texts), gold, "none") for one in thought.each]
            total = (torch.stack(each) * thought.weights).sum()
        # Where words are counted, each text has the same share of them: the cost is that of a token.
        counts = thought.cost.new_full((), known / max(len(thought.cost), 1))
        return with_ponder(total, known, thought.cost, thought.repeats, counts)


class Classes(Labeller):
    """A head with classes. ``weights`` say how much an example of each counts, in training only."""

    def __init__(
        self,
        model: TextModel,
        classes: int,
        weights: Sequence[float] | None = None,
        smoothing: float = 0.0,
        dropout: float | None = None,
    ) -> None:
        super().__init__(model, model.size if self.of_words else model.feature_size, classes, dropout)
        self.smoothing = smoothing
        # Of use in training only, so not among what a run keeps.
        self.register_buffer("weights", _class_weights(weights, classes), persistent=False)

    def losses(self, logits: Float[Tensor, "*n c"], gold: Int[Tensor, "*n"], reduction: Reduction) -> Tensor:
        flat, weights = logits.flatten(0, -2), self.get_buffer("weights")
        return _cross_entropy(flat, gold.flatten(), weights, self.smoothing, reduction)

    def known(self, gold: Int[Tensor, "*n"]) -> int:
        return int((gold != NOTHING).sum())


class OneLabel(Classes):
    """Cross-entropy; `NOTHING` counts not at all."""

    objective = "one_label"


class SeveralLabels(Classes):
    """Each label there or not by itself; gold is 1 where it is. ``weights`` say how much its being there counts."""

    objective = "several_labels"

    def losses(self, logits: Float[Tensor, "b c"], gold: Float[Tensor, "b c"], reduction: Reduction) -> Tensor:
        total = F.binary_cross_entropy_with_logits(
            logits, gold.to(logits.dtype), reduction=reduction, pos_weight=self.get_buffer("weights")
        )
        return total if reduction == "sum" else total.sum(dim=-1)

    def known(self, gold: Float[Tensor, "b c"]) -> int:
        return len(gold)


class Number(Labeller):
    """Squared error, in units of the training data's ``spread`` around its ``mean``; scores are in the user's units."""

    objective = "number"

    def __init__(self, model: TextModel, mean: float, spread: float, dropout: float | None = None) -> None:
        super().__init__(model, model.feature_size, 1, dropout)
        if not (math.isfinite(mean) and math.isfinite(spread) and spread > 0):
            raise ValueError(f"mean is {mean} and spread {spread}; both must be finite, and the spread above 0")
        self.mean, self.spread = mean, spread

    def scores(self, texts: Texts) -> Float[Tensor, " b"]:
        # Units may be large and differ little, such as years or prices: float32 would round them.
        return super().scores(texts).cpu().double() * self.spread + self.mean

    def logits(self, read: Float[Tensor, "b d"], texts: Texts) -> Float[Tensor, " b"]:
        return super().logits(read, texts).squeeze(-1)

    def losses(self, logits: Float[Tensor, " b"], gold: Float[Tensor, " b"], reduction: Reduction) -> Tensor:
        target = ((gold.double() - self.mean) / self.spread).to(logits)
        return F.mse_loss(logits, target, reduction=reduction)


class TagEach(Classes):
    """A label for each word; gold is `NOTHING` where none stands, as on padding and the later pieces of a word."""

    objective = "tag_each"
    of_words = True


class SpanHead(Labeller):
    """Where an answer starts and ends: two pointers over the words of the second text. Gold `NOTHING`: no loss.

    With ``none`` the pointers may also stand on the first token of all: the second text does not hold the answer.
    """

    objective = "span"
    of_words = True

    def __init__(self, model: TextModel, dropout: float | None = None, none: bool = False) -> None:
        super().__init__(model, model.size, 2, dropout)
        self.none = none

    def scores(self, texts: Texts) -> Float[Tensor, "b 2 s"]:
        """Start and end; the lowest number there is wherever no answer can stand."""
        return super().scores(texts)

    def logits(self, read: Float[Tensor, "b s d"], texts: Texts) -> Float[Tensor, "b 2 s"]:
        if texts.parts is None:
            raise ValueError("a span is looked for in the second text of a pair; these texts have no parts")
        logits = super().logits(read, texts).transpose(1, 2)
        possible = self.model.real(texts) & (texts.parts == 1) & (texts.words != self.model.specials.end)
        if self.none:
            possible[:, 0] = True
        return logits.masked_fill(~possible.unsqueeze(1), torch.finfo(logits.dtype).min)

    def losses(self, logits: Float[Tensor, "b 2 s"], gold: Int[Tensor, "b 2"], reduction: Reduction) -> Tensor:
        known = (gold != NOTHING).all(dim=-1)
        target = gold.masked_fill(~known.unsqueeze(-1), NOTHING)
        return _cross_entropy(logits.flatten(0, 1), target.flatten(), None, 0.0, reduction)

    def known(self, gold: Int[Tensor, "b 2"]) -> int:
        return int((gold != NOTHING).all(dim=-1).sum())

    @staticmethod
    def best(scores: Float[Tensor, "b 2 s"], longest: int = 30) -> Int[Tensor, "b 2"]:
        """The likeliest start and end together: the end not before the start, at most ``longest`` words in all."""
        start, end = torch.log_softmax(scores, dim=-1).unbind(1)
        length = start.shape[-1]
        # One row for each number of words, so that time and memory grow with longest × length.
        sums = [
            F.pad(start[:, : length - more] + end[:, more:], (0, more), value=-torch.inf)
            for more in range(min(longest, length))
        ]
        places = torch.stack(sums, dim=1).flatten(1).argmax(dim=-1)
        first = places % length
        return torch.stack([first, first + places // length], dim=-1)


def build_labeller(
    objective: Objective,
    model: TextModel,
    classes: int = 0,
    *,
    weights: Sequence[float] | None = None,
    smoothing: float = 0.0,
    mean: float = 0.0,
    spread: float = 1.0,
    dropout: float | None = None,
) -> Labeller:
    """The head of an objective; what it has no use for is ignored."""
    if objective in ("one_label", "several_labels", "tag_each") and classes < 1:
        raise ValueError(f"classes is {classes}; {objective} needs at least 1")
    if objective == "one_label":
        return OneLabel(model, classes, weights, smoothing, dropout)
    if objective == "several_labels":
        return SeveralLabels(model, classes, weights, dropout=dropout)
    if objective == "number":
        return Number(model, mean, spread, dropout)
    if objective == "tag_each":
        return TagEach(model, classes, weights, smoothing, dropout)
    if objective == "span":
        return SpanHead(model, dropout)
    raise ValueError(f"there is no objective {objective!r}; there is one_label, several_labels, number, tag_each, span")


def _class_weights(weights: Sequence[float] | None, classes: int) -> Tensor | None:
    if weights is None:
        return None
    if len(weights) != classes or not all(math.isfinite(one) and one >= 0 for one in weights):
        raise ValueError(f"weights are {list(weights)}; expected {classes} numbers, none of them below 0")
    return torch.tensor(weights, dtype=torch.get_default_dtype())


def _cross_entropy(
    logits: Tensor, gold: Tensor, weights: Tensor | None, smoothing: float, reduction: Reduction
) -> Float[Tensor, "..."]:
    return F.cross_entropy(
        logits, gold, weight=weights, ignore_index=NOTHING, reduction=reduction, label_smoothing=smoothing
    )
