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

from sightline.models.text_to_labels import TextModel, Texts
from sightline.models.text_to_text import Loss
from sightline.nn.dropout import Dropout

Objective = Literal["one_label", "several_labels", "number", "tag_each", "span"]
NOTHING = -1  # a label that is not there, or not known: no loss


class Labeller(nn.Module):
    """A text model and an output layer, with dropout between them (the model's own rate unless given)."""

    objective: ClassVar[Objective]

    def __init__(self, model: TextModel, input_size: int, outputs: int, dropout: float | None = None) -> None:
        super().__init__()
        self.model = model
        self.dropout = Dropout(model.dropout_rate if dropout is None else dropout)
        self.output = nn.Linear(input_size, outputs)
        nn.init.normal_(self.output.weight, std=input_size**-0.5)
        nn.init.zeros_(self.output.bias)

    @abstractmethod
    def scores(self, texts: Texts) -> Float[Tensor, "..."]:
        """What the model thinks of each text: logits, or a number."""

    @abstractmethod
    def loss(self, texts: Texts, gold: Tensor) -> Loss:
        """The sum over what has a label, and how much that is."""

    def _of_text(self, texts: Texts) -> Float[Tensor, "b o"]:
        return self.output(self.dropout(self.model.features(texts)))

    def _of_words(self, texts: Texts) -> Float[Tensor, "b s o"]:
        return self.output(self.dropout(self.model.annotate(texts)))


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
        super().__init__(model, model.size if self.objective == "tag_each" else model.feature_size, classes, dropout)
        self.smoothing = smoothing
        # Of use in training only, so not among what a run keeps.
        self.register_buffer("weights", _class_weights(weights, classes), persistent=False)

    def scores(self, texts: Texts) -> Float[Tensor, "*n c"]:
        return self._of_text(texts)

    def loss(self, texts: Texts, gold: Int[Tensor, "*n"]) -> Loss:
        logits = self.scores(texts).flatten(0, -2)
        total = _cross_entropy(logits, gold.flatten(), self.get_buffer("weights"), self.smoothing)
        return Loss(total, int((gold != NOTHING).sum()))


class OneLabel(Classes):
    """Cross-entropy; `NOTHING` counts not at all."""

    objective = "one_label"


class SeveralLabels(Classes):
    """Each label there or not by itself; gold is 1 where it is. ``weights`` say how much its being there counts."""

    objective = "several_labels"

    def loss(self, texts: Texts, gold: Float[Tensor, "b c"]) -> Loss:
        logits = self.scores(texts)
        total = F.binary_cross_entropy_with_logits(
            logits, gold.to(logits.dtype), reduction="sum", pos_weight=self.get_buffer("weights")
        )
        return Loss(total, len(gold))


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
        return self._of_text(texts).squeeze(-1).cpu().double() * self.spread + self.mean

    def loss(self, texts: Texts, gold: Float[Tensor, " b"]) -> Loss:
        numbers = self._of_text(texts).squeeze(-1)
        target = ((gold.double() - self.mean) / self.spread).to(numbers)
        return Loss(F.mse_loss(numbers, target, reduction="sum"), len(gold))


class TagEach(Classes):
    """A label for each word; gold is `NOTHING` where none stands, as on padding and the later pieces of a word."""

    objective = "tag_each"

    def scores(self, texts: Texts) -> Float[Tensor, "b s c"]:
        return self._of_words(texts)


class SpanHead(Labeller):
    """Where an answer starts and ends: two pointers over the words of the second text. Gold `NOTHING`: no loss.

    With ``none`` the pointers may also stand on the first token of all: the second text does not hold the answer.
    """

    objective = "span"

    def __init__(self, model: TextModel, dropout: float | None = None, none: bool = False) -> None:
        super().__init__(model, model.size, 2, dropout)
        self.none = none

    def scores(self, texts: Texts) -> Float[Tensor, "b 2 s"]:
        """Start and end; the lowest number there is wherever no answer can stand."""
        if texts.parts is None:
            raise ValueError("a span is looked for in the second text of a pair; these texts have no parts")
        logits = self._of_words(texts).transpose(1, 2)
        possible = self.model.real(texts) & (texts.parts == 1) & (texts.words != self.model.specials.end)
        if self.none:
            possible[:, 0] = True
        return logits.masked_fill(~possible.unsqueeze(1), torch.finfo(logits.dtype).min)

    def loss(self, texts: Texts, gold: Int[Tensor, "b 2"]) -> Loss:
        known = (gold != NOTHING).all(dim=-1)
        target = gold.masked_fill(~known.unsqueeze(-1), NOTHING)
        logits = self.scores(texts).flatten(0, 1)
        return Loss(_cross_entropy(logits, target.flatten(), None, 0.0), int(known.sum()))

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


def _cross_entropy(logits: Tensor, gold: Tensor, weights: Tensor | None, smoothing: float) -> Float[Tensor, ""]:
    return F.cross_entropy(
        logits, gold, weight=weights, ignore_index=NOTHING, reduction="sum", label_smoothing=smoothing
    )
