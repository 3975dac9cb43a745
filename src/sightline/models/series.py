"""What every model that reads series of frames has in common."""

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.config import Config
from sightline.nn.series import EigenFront, ImageFront, SeriesFront, SeriesFrontConfig, reduced


class JointLoss(NamedTuple):
    """A sum over tokens or frames of several losses, how many there were, and each loss by itself. ``measures`` are
    sums that are logged beside it and are no parts of it."""

    total: Float[Tensor, ""]
    tokens: int
    parts: dict[str, float]
    measures: dict[str, float] = {}  # noqa: RUF012 - never written to


class Annotations(NamedTuple):
    """What the decoder attends to, which of it is there, and what a decoder may start from."""

    states: Float[Tensor, "b s a"]
    mask: Bool[Tensor, "b s"]
    summary: Float[Tensor, "b h"] | None = None

    @property
    def lengths(self) -> Int[Tensor, " b"]:
        return self.mask.sum(dim=-1)


class SeriesModel(nn.Module):
    """A model that reads frames through a front end."""

    front: SeriesFront | ImageFront

    def centre(self, mean: Tensor, scale: Tensor) -> None:
        """Set the mean and the reciprocal deviation of the training data's features."""
        if isinstance(self.front, SeriesFront):
            self.front.normalise.mean.copy_(mean)
            self.front.normalise.scale.copy_(scale)

    def project(self, mean: Tensor, axes: Tensor) -> None:
        """Set the principal components of the training data's pixels, for a front end that has them."""
        if isinstance(self.front, EigenFront):
            self.front.project(mean, axes)


@dataclass(frozen=True)
class SeriesConfig(Config):
    """The base of the configurations of all models that read series."""

    front: SeriesFrontConfig = field(default_factory=SeriesFrontConfig)

    def __post_init__(self) -> None:
        """Raises ValueError."""

    @property
    @abstractmethod
    def shortens(self) -> tuple[int, ...]:
        """By how much each part of the encoder makes a series shorter."""

    @property
    def reduction(self) -> int:
        """Frames of an annotation."""
        return math.prod(self.shortens)

    def steps(self, frames: int) -> int:
        """How many annotations so many frames have."""
        return reduced(frames, self.shortens)
