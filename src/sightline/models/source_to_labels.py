"""What models from images, sound and other sources to labels have in common: features become labels or a number."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.models.heads import NOTHING
from sightline.models.writer import Loss
from sightline.nn.dropout import Dropout

LabelKinds = Literal["one", "several", "number"]


@dataclass(frozen=True)
class LabelsShape:
    """What is written: one of ``classes``, several of them, or a number, in units of ``spread`` around ``mean``.

    ``weights`` say how much each class counts in training, ``smoothing`` how much of the truth is given to the others.
    """

    labels: LabelKinds
    classes: int
    weights: tuple[float, ...] | None = None
    smoothing: float = 0.0
    mean: float = 0.0
    spread: float = 1.0


class SourceToLabels(nn.Module):
    """One vector for each item (`features`), then logits or a number. Subclasses call `add_output` at their end."""

    weights: Tensor | None

    def __init__(self, shape: LabelsShape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.dropout = Dropout(dropout)

    def add_output(self, size: int) -> None:
        """The output layer over features of this size."""
        self.output = nn.Linear(size, self.shape.classes)
        nn.init.normal_(self.output.weight, std=size**-0.5)
        nn.init.zeros_(self.output.bias)
        weights = None if self.shape.weights is None else torch.tensor(self.shape.weights)
        self.register_buffer("weights", weights, persistent=False)  # of use in training only

    @abstractmethod
    def features(self, source: Any) -> Float[Tensor, "b d"]:
        """One vector for each item, read with attention."""

    def attends_to_source(self, name: str) -> bool:
        """Whether the attention of this name, as `capture` gives it, looks from the label at the source."""
        return name.startswith("pooling")

    def scores(self, source: Any) -> Float[Tensor, "..."]:
        """Logits `b c`, or of a number `b`, in the user's units."""
        logits = self.output(self.dropout(self.features(source)))
        if self.shape.labels != "number":
            return logits
        # Units may be large and differ little, such as years or prices: float32 would round them.
        return logits.squeeze(-1).cpu().double() * self.shape.spread + self.shape.mean

    def loss(self, source: Any, gold: Tensor) -> Loss:
        """The sum over items that have a label, and how many they are. Gold is as the heads of texts take it."""
        logits = self.output(self.dropout(self.features(source)))
        if self.shape.labels == "number":
            target = ((gold.double() - self.shape.mean) / self.shape.spread).to(logits)
            return Loss(F.mse_loss(logits.squeeze(-1), target, reduction="sum"), len(gold))
        if self.shape.labels == "several":
            total = F.binary_cross_entropy_with_logits(
                logits, gold.to(logits.dtype), reduction="sum", pos_weight=self.weights
            )
            return Loss(total, len(gold))
        total = F.cross_entropy(
            logits,
            gold,
            weight=self.weights,
            ignore_index=NOTHING,
            reduction="sum",
            label_smoothing=self.shape.smoothing,
        )
        return Loss(total, int((gold != NOTHING).sum()))
