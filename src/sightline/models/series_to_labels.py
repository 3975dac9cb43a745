"""From a series of frames to labels: the listener's states, read by a learned query (Yang et al. 2016)."""

from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from sightline.attention.pooling import PoolingConfig
from sightline.models.listening import ListeningConfig
from sightline.models.series import SeriesModel
from sightline.models.source_to_labels import LabelsShape, SourceToLabels
from sightline.models.text_to_labels import pooled_size
from sightline.nn.series import PyramidEncoder, SeriesBatch, SeriesShape


class SeriesToLabels(SeriesModel, SourceToLabels):
    """Frames in, logits or a number out."""

    def __init__(self, config: "SeriesToLabelsConfig", frames: SeriesShape, shape: LabelsShape) -> None:
        SourceToLabels.__init__(self, shape, config.dropout)
        self.front = config.front.build(frames)
        self.encoder = PyramidEncoder(config.cell, self.front.size, config.size, config.reduces, config.dropout)
        self.pooling = config.pooling.build(self.encoder.annotation_size)
        self.add_output(pooled_size(self.pooling))

    def features(self, source: SeriesBatch) -> Float[Tensor, "b d"]:
        """One vector for each series, read with attention."""
        encoded, mask = self.encoder(*self.front(source))
        return self.pooling(self.dropout(encoded.annotations), mask=mask).context.flatten(1)


@dataclass(frozen=True)
class SeriesToLabelsConfig(ListeningConfig):
    """The listener's sizes, and how its states become one."""

    size: int = 96
    reduces: tuple[int, ...] = (2, 2)
    pooling: PoolingConfig = field(default_factory=PoolingConfig)
    family: ClassVar[str] = "series_to_labels"
    kind: ClassVar[str] = "attentive"

    def build(self, frames: SeriesShape, shape: LabelsShape) -> SeriesToLabels:
        return SeriesToLabels(self, frames, shape)
