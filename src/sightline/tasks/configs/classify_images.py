"""The configuration of `classify` for images."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sightline.data.labelled import LabelKind
from sightline.models.image_to_labels import ImageToLabels, ImageToLabelsConfig
from sightline.models.source_to_labels import LabelsShape
from sightline.nn.image import ImageEncoderConfig, default_encoder
from sightline.outputs.label_scores import Labels
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.configs.classify import LabelChoices, LabelMetric
from sightline.training.loop import TrainingConfig


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=8, averaged=3, weight_decay=0.01)


@dataclass(frozen=True)
class ImageClassifyConfig(LabelChoices, TaskConfig):
    """The configuration of a run.

    ``encoder`` computes annotations of an image. ``metric`` is macro-F1 by default, for numbers Pearson's correlation.
    ``class_weights`` balanced: all labels have the same total weight in training. ``mirrored``: half of the images are
    flipped left to right when the encoder is trained, drawn in each epoch; unset it if left and right matter.
    """

    model: ImageToLabelsConfig = field(default_factory=ImageToLabelsConfig)
    encoder: ImageEncoderConfig = field(default_factory=default_encoder)
    training: TrainingConfig = field(default_factory=_training)
    labels: LabelKind = "one"
    metric: LabelMetric | None = None
    class_weights: Literal["none", "balanced"] = "none"
    smoothing: float = 0.0
    mirrored: bool = True
    batch_rows: int = 32
    validated: int = 5000
    counts: ClassVar[tuple[str, ...]] = ("batch_rows",)
    shares: ClassVar[tuple[str, ...]] = ("smoothing",)
    key_format: ClassVar[str] = "016x"  # the format of an image's content key, which decides its split
    verb: ClassVar[str] = "classify"
    work: ClassVar[int] = 8  # tokens that take as long as a label

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_labels("an image")

    def build(self, input: Any, output: Any) -> ImageToLabels:
        labels: Labels = output.labels
        shape = LabelsShape(
            labels.kind, labels.classes, self.weights_of(labels), self.smoothing, labels.mean, labels.spread
        )
        return self.model.build(input.places, shape, input.taken_encoder())
