"""What every model from images to text has in common: places of an image become annotations, once.

The places come from an image encoder. One that does not learn runs beforehand, and the model is given its features;
one that learns is a part of the model, which is then given pixels.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from sightline.config import Config
from sightline.models.writer import Writer
from sightline.nn.annotating import sinusoids
from sightline.nn.dropout import Dropout


class Places(NamedTuple):
    """The annotations of every image: how many features each has, and how many rows and columns there are."""

    size: int
    height: int
    width: int

    @property
    def count(self) -> int:  # type: ignore[override] # a tuple's own `count` is not needed
        return self.height * self.width

    def check(self, features: Tensor) -> None:
        """Raises ValueError unless these are `b count size`."""
        if features.dim() != 3 or features.shape[1:] != (self.count, self.size):
            raise ValueError(
                f"the places have shape {tuple(features.shape)}; expected {self.count} of {self.size} features for "
                f"each image, {self.height} rows by {self.width} columns"
            )

    def check_encoder(self, encoder: nn.Module | None) -> None:
        """Raises ValueError unless the encoder, where there is one, gives so many features for a place."""
        size = getattr(encoder, "annotation_size", self.size)
        if size != self.size:
            raise ValueError(f"the image encoder gives {size} features for a place; the model expects {self.size}")


@dataclass(frozen=True)
class Reading:
    """How features of an encoder become annotations.

    ``normalised``: encoders differ in scale, so each place's features are normalised first; left out, those of an
    encoder that does not learn are. ``size`` is what they are projected to; left out, they stay as they are.
    ``positions`` adds where a place is, as sinusoids.
    """

    normalised: bool | None = None
    size: int | None = None
    positions: bool = False
    dropout: float = 0.0

    def size_of(self, places: Places) -> int:
        return self.size or places.size


class ImageToText(Writer):
    """Pixels or places in, tokens out."""

    def __init__(
        self,
        places: Places,
        target_words: int,
        embedding_size: int,
        feature_size: int,
        tied: bool,
        reading: Reading,
        encoder: nn.Module | None = None,
    ) -> None:
        super().__init__(target_words, embedding_size)
        self.add_output(feature_size, tied)
        self.places, self.reading, self.encoder = places, reading, encoder
        places.check_encoder(encoder)
        normalised = encoder is None if reading.normalised is None else reading.normalised
        self.normalise = nn.LayerNorm(places.size) if normalised else nn.Identity()
        self.project = nn.Identity() if reading.size is None else nn.Linear(places.size, reading.size)
        self.read_dropout = Dropout(reading.dropout)

    def annotate(self, source: Num[Tensor, "b ..."]) -> Float[Tensor, "b s a"]:
        """The annotations, from pixels `b h w 3` where the model has an encoder, else from places `b s d`."""
        features = source if self.encoder is None else self.encoder(source)
        self.places.check(features)
        x = self.project(self.normalise(features.to(self.output.weight.dtype)))
        if self.reading.positions:
            x = x + grid_sinusoids(self.places.height, self.places.width, x.shape[-1], x)
        return self.read_dropout(x)


def grid_sinusoids(height: int, width: int, size: int, like: Tensor) -> Float[Tensor, "s d"]:
    """Where each place of a grid is, row by row: half of the features tell the row, the other half the column."""
    if size % 4:
        raise ValueError(f"positions in a grid need a size that 4 divides, found {size}")
    rows, columns = sinusoids(0, height, size // 2, like), sinusoids(0, width, size // 2, like)
    both = [rows.unsqueeze(1).expand(-1, width, -1), columns.unsqueeze(0).expand(height, -1, -1)]
    return torch.cat(both, dim=-1).flatten(0, 1)


@dataclass(frozen=True)
class ImageToTextConfig(Config):
    """The base of the models' configurations."""

    family: ClassVar[str] = "image_to_text"

    @abstractmethod
    def build(self, places: Places, target_words: int, encoder: nn.Module | None = None) -> ImageToText:
        """Build the model; ``encoder`` is one that learns with it."""
