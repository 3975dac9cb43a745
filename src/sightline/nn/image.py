"""Images to annotations: each place of a feature map becomes a vector, row by row.

An encoder takes pixels as they are in a file (uint8) and scales them itself, so that training, prediction and somebody
else's program cannot differ in it. A frozen one does not learn: what it says of an image is computed once.
"""

import itertools
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from sightline.attention.checks import check_least
from sightline.config import Config, config_class
from sightline.data.images import MOST_SIDE, Fit

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class BatchNorm(nn.BatchNorm2d):
    """Normalises over the batch; a batch of one single place, which has no spread, with what was learnt so far."""

    def forward(self, x: Float[Tensor, "b d y x"]) -> Float[Tensor, "b d y x"]:
        if self.training and x.numel() <= x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class ImageEncoder(nn.Module):
    """The base of encoders: pixels in, annotations out. The places are taken to lie evenly over the image."""

    annotation_size: int

    def __init__(self, annotation_size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        """``mean`` and ``std`` are what pixels from 0 to 1 are scaled with."""
        super().__init__()
        self.annotation_size = annotation_size
        self.register_buffer("mean", 255 * torch.tensor(mean), persistent=False)
        self.register_buffer("scale", 1 / (255 * torch.tensor(std)), persistent=False)
        self.mean: Tensor
        self.scale: Tensor

    @abstractmethod
    def grid(self, height: int, width: int) -> tuple[int, int]:
        """How many rows and columns of places an image of this size has."""

    @abstractmethod
    def feature_map(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d y x"]:
        """The feature map of scaled pixels."""

    def forward(self, pixels: UInt8[Tensor, "b h w 3"]) -> Float[Tensor, "b s d"]:
        """The annotations, places row by row."""
        # Channels stay last in memory, where convolutions on a processor are quickest.
        x = ((pixels - self.mean) * self.scale).permute(0, 3, 1, 2)
        return self.feature_map(x).flatten(2).transpose(1, 2)

    def quick(self) -> "ImageEncoder":
        """An encoder that gives the same, as quickly as it can, and does not learn; this one stays as it is."""
        return self.eval()


class ImageEncoderConfig(Config):
    """The base of their configurations. ``size`` is the side, in pixels, of the square that images are fitted to."""

    family: ClassVar[str] = "image_encoder"
    size: int
    fit: Fit

    @property
    def frozen(self) -> bool:
        """Whether the encoder stays as it is while a model on top of it learns."""
        return False

    @abstractmethod
    def build(self, *, pretrained: bool = False) -> ImageEncoder:
        """Build the encoder: with weights that were learnt before where a run starts, without where it is loaded."""


@dataclass(frozen=True)
class CNNConfig(ImageEncoderConfig):
    """A small convolutional network that learns with the model on top of it.

    Each of ``channels`` is a stage that halves height and width, with ``blocks`` residual blocks of two convolutions.
    """

    size: int = 64
    fit: Fit = "stretch"
    channels: tuple[int, ...] = (32, 64, 128)
    blocks: int = 1
    kind: ClassVar[str] = "cnn"

    def __post_init__(self) -> None:
        if not self.channels or min(self.channels) < 1:
            raise ValueError(f"channels is {list(self.channels)}; give one or more, each at least 1")
        check_least(self, 0, "blocks")
        check_size(self.size, 2 ** len(self.channels))

    def build(self, *, pretrained: bool = False) -> "CNN":
        return CNN(self)


class CNN(ImageEncoder):
    """Stages of convolutions (He et al. 2016, made small).

    It normalises over groups of channels and not over the batch (Wu & He 2018): what it says of an image does not
    depend on the images beside it, and small batches do no harm.
    """

    def __init__(self, config: CNNConfig) -> None:
        super().__init__(config.channels[-1], (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
        sizes = (3, *config.channels)
        self.stages = nn.ModuleList(
            nn.Sequential(
                # An even kernel: the places of a map that is halved with an odd one lie half a pixel off each time.
                nn.Conv2d(before, after, 4, stride=2, padding=1, bias=False),
                _group_norm(after),
                nn.ReLU(),
                *(_Block(after) for _ in range(config.blocks)),
            )
            for before, after in itertools.pairwise(sizes)
        )

    def grid(self, height: int, width: int) -> tuple[int, int]:
        by = 2 ** len(self.stages)
        return height // by, width // by

    def feature_map(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d y x"]:
        for stage in self.stages:
            x = stage(x)
        return x


class _Block(nn.Module):
    """Two convolutions beside the way straight through."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = _group_norm(channels), _group_norm(channels)
        nn.init.zeros_(self.second_norm.weight)  # a block begins as nothing, so that a deep stack learns from the start

    def forward(self, x: Float[Tensor, "b d y x"]) -> Float[Tensor, "b d y x"]:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(x + self.second_norm(self.second(y)))


def _group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(math.gcd(channels, 8), channels)


def check_size(size: int, least: int) -> None:
    """A side that an encoder can take."""
    if not least <= size <= MOST_SIDE:
        raise ValueError(f"size is {size}; it must be at least {least} and at most {MOST_SIDE}")


def default_encoder() -> ImageEncoderConfig:
    """The pretrained encoder where its weights are installed, and otherwise the one that learns."""
    pretrained: Any = config_class("image_encoder", "efficientnet_lite0")
    return pretrained() if pretrained.installed() else CNNConfig()
