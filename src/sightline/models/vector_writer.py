"""What every model that writes sequences of vectors has in common: its targets, its loss, and where a sequence ends.

Numbers are standardised, and their loss is the squared error. Bits (numbers that are all 0 or 1) have the cross-entropy
of each. What people get wrong: a threshold of a stop probability that is uncertain by a step or two is never reached; a
sequence stops where the product of (1 − p) falls below a half.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.models.series import JointLoss, SeriesConfig
from sightline.nn.series import SeriesBatch, SeriesShape


class VectorsBatch(NamedTuple):
    """Vectors of several items, zeros behind the end of each, and how many each has."""

    values: Float[Tensor, "b u e"]
    lengths: Int[Tensor, " b"]


class Generated(NamedTuple):
    """The vectors of a batch, and after how many of them the model would stop (more than there are: not yet)."""

    values: Float[Tensor, "b u e"]
    stops: Int[Tensor, " b"]


class TargetShape(NamedTuple):
    """How many numbers a vector has, and whether all of them are bits."""

    size: int
    bits: bool = False


class VectorWriter(nn.Module):
    """A model that writes vectors. ``stops``: it learns where they end. ``each``: it writes one for each frame."""

    target_mean: Tensor
    target_deviation: Tensor
    bits: bool
    stops: bool
    each: bool = False

    def add_vectors(self, features: int, target: TargetShape, stops: bool = True) -> None:
        """The maps from features to vectors, and to the probability to stop behind each."""
        self.register_buffer("target_mean", torch.zeros(target.size))
        self.register_buffer("target_deviation", torch.ones(target.size))
        self.bits, self.stops = target.bits, stops
        self.output = nn.Linear(features, target.size)
        if stops:
            self.stop = nn.Linear(features, 1)

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Set the mean and the deviation of the training data's vectors; bits have 0 and 1."""
        self.target_mean.copy_(mean)
        self.target_deviation.copy_(deviation)

    def standardised(self, values: Float[Tensor, "b u e"]) -> Float[Tensor, "b u e"]:
        return (values - self.target_mean) / self.target_deviation

    def values_of(self, written: Float[Tensor, "b u e"]) -> Float[Tensor, "b u e"]:
        """What the map to vectors gave as numbers of the data: of bits, their probabilities."""
        return torch.sigmoid(written) if self.bits else written * self.target_deviation + self.target_mean

    def errors(self, features: Float[Tensor, "... h"], true: Float[Tensor, "... e"]) -> Float[Tensor, "..."]:
        """The loss of each vector; ``true`` are standardised."""
        written = self.output(features)
        if self.bits:
            return F.binary_cross_entropy_with_logits(written, true.expand_as(written), reduction="none").sum(dim=-1)
        return (written - true).square().mean(dim=-1)

    def stop_errors(self, features: Float[Tensor, "*b u h"], lengths: Int[Tensor, " b"]) -> Float[Tensor, "*b u"]:
        """The loss of stopping behind the last vector, and only there."""
        logits = self.stop(features).squeeze(-1)
        last = torch.arange(logits.shape[-1], device=lengths.device) == lengths.unsqueeze(-1) - 1
        return F.binary_cross_entropy_with_logits(logits, last.to(logits.dtype).expand_as(logits), reduction="none")

    def vector_loss(
        self, features: Float[Tensor, "b u h"], target: VectorsBatch, true: Tensor, mask: Bool[Tensor, "b u"]
    ) -> JointLoss:
        """The sum over all vectors that are there."""
        own = self.errors(features, true)[mask].sum()
        parts = {"bits" if self.bits else "squared_error": float(own.detach())}
        total = own
        if self.stops:
            stopped = self.stop_errors(features, target.lengths)[mask].sum()
            total, parts["stop"] = own + stopped, float(stopped.detach())
        return JointLoss(total, int(mask.sum()), parts)

    @abstractmethod
    def loss(self, source: SeriesBatch, target: VectorsBatch) -> JointLoss:
        """The loss of a batch."""

    @abstractmethod
    def generate(self, source: SeriesBatch, most: int, least: int = 0) -> Generated:
        """Vectors until all have stopped, at least ``least`` and at most ``most``."""


class VectorWriterConfig(SeriesConfig):
    """The base of the configurations of all models that write vectors."""

    family: ClassVar[str] = "series_to_series"

    @abstractmethod
    def build(self, shape: SeriesShape, target: TargetShape) -> VectorWriter:
        """The model for frames of this shape."""
