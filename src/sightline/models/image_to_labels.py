"""From an image to labels: places become annotations, they may look at each other, and a learned query reads them.

``α = softmax(u · tanh(W a_i + b))``, ``v = Σ α_i a_i``: the pooling of Yang et al. 2016 with places for words. With
``layers``, self-attention between the places comes first (Vaswani et al. 2017), and where each place is is added to it.
What people get wrong: after self-attention a place also holds what stands elsewhere, so that a map of the pooling alone
says less about the image; it is shown together with what the places looked at.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Num
from torch import Tensor, nn

from sightline.attention.checks import check_least, check_share
from sightline.attention.pooling import PoolingConfig
from sightline.config import Config
from sightline.models.image_to_text import Places, grid_sinusoids
from sightline.models.source_to_labels import LabelsShape, SourceToLabels
from sightline.models.text_to_labels import pooled_size
from sightline.nn.image import ImageEncoder
from sightline.nn.transformer import EncoderLayer, LayerShape


class ImageToLabels(SourceToLabels):
    """Places in (or pixels, where it has an encoder that learns), logits or a number out."""

    def __init__(
        self, config: "ImageToLabelsConfig", places: Places, shape: LabelsShape, encoder: ImageEncoder | None
    ) -> None:
        super().__init__(shape, config.dropout)
        places.check_encoder(encoder)
        self.places, self.encoder = places, encoder
        # What places look like on average, in the training data: what a hidden place is made to look like.
        self.register_buffer("blank", torch.zeros(places.size))
        self.blank: Tensor
        self.normalise = nn.LayerNorm(places.size)
        self.project = nn.Linear(places.size, config.size)
        layer = LayerShape(config.size, config.heads, 2 * config.size, config.dropout)
        self.between_places = nn.ModuleList(EncoderLayer(layer) for _ in range(config.layers))
        self.places_norm = nn.LayerNorm(config.size) if config.layers else nn.Identity()
        self.pooling = None if config.pooling is None else config.pooling.build(config.size)
        self.add_output(config.size if self.pooling is None else pooled_size(self.pooling))

    def annotate(self, source: Num[Tensor, "b ..."]) -> Float[Tensor, "b s d"]:
        """One vector for each place: of pixels `b h w 3` where there is an encoder, else of its features `b s d`."""
        features = self.see(source)
        self.places.check(features)
        x = self.dropout(F.relu(self.project(self.normalise(features.to(self.output.weight.dtype)))))
        if not self.between_places:
            return x
        x = x + grid_sinusoids(self.places.height, self.places.width, x.shape[-1], x)
        for layer in self.between_places:
            x = layer(x, None)
        return self.places_norm(x)

    def see(self, source: Num[Tensor, "b ..."]) -> Float[Tensor, "b s d"]:
        """The features of the places, as the encoder gives them."""
        return source if self.encoder is None else self.encoder(source)

    def features(self, source: Num[Tensor, "b ..."]) -> Float[Tensor, "b d"]:
        """One vector for each image, read with attention; without a pooling, the mean of all places."""
        annotations = self.annotate(source)
        if self.pooling is None:
            return annotations.mean(dim=1)
        return self.pooling(annotations).context.flatten(1)


@dataclass(frozen=True)
class ImageToLabelsConfig(Config):
    """``size`` is that of an annotation after the encoder's features are projected.

    ``layers`` of self-attention let the places look at each other; ``pooling`` is how they are read (null: their mean,
    which is the baseline that attention has to beat).
    """

    size: int = 256
    layers: int = 0
    heads: int = 4
    pooling: PoolingConfig | None = field(default_factory=PoolingConfig)
    dropout: float = 0.3
    family: ClassVar[str] = "image_to_labels"
    kind: ClassVar[str] = "attentive"

    def __post_init__(self) -> None:
        check_least(self, 1, "size", "heads")
        check_least(self, 0, "layers")
        if self.layers and (self.size % self.heads or self.size % 4):
            raise ValueError(
                f"size is {self.size}; with self-attention it must divide by 4 and by heads ({self.heads})"
            )
        check_share(self, "dropout")

    def build(self, places: Places, shape: LabelsShape, encoder: ImageEncoder | None = None) -> ImageToLabels:
        """Build the model; ``encoder`` is one that learns with it."""
        return ImageToLabels(self, places, shape, encoder)
