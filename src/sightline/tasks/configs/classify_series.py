"""The configuration of `classify` for recordings and arrays of features."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sightline.data.labelled import LabelKind
from sightline.models.series_to_labels import SeriesToLabels, SeriesToLabelsConfig
from sightline.models.source_to_labels import LabelsShape
from sightline.nn.mel import LogMelConfig
from sightline.outputs.label_scores import Labels
from sightline.tasks.configs.classify import LabelChoices, LabelMetric
from sightline.tasks.configs.series import SeriesTaskConfig, small_mel
from sightline.training.loop import TrainingConfig


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=15, averaged=5, weight_decay=0.01)


@dataclass(frozen=True)
class SeriesClassifyConfig(LabelChoices, SeriesTaskConfig):
    """The configuration of a run."""

    model: SeriesToLabelsConfig = field(default_factory=SeriesToLabelsConfig)
    training: TrainingConfig = field(default_factory=_training)
    labels: LabelKind = "one"
    metric: LabelMetric | None = None
    class_weights: Literal["none", "balanced"] = "none"
    smoothing: float = 0.0
    batch_tokens: int = 6000
    batch_rows: int = 32
    validated: int = 5000
    shares: ClassVar[tuple[str, ...]] = ("smoothing",)
    verb: ClassVar[str] = "classify"
    work: ClassVar[int] = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_labels("a recording")

    def build(self, input: Any, output: Any) -> SeriesToLabels:
        labels: Labels = output.labels
        shape = LabelsShape(
            labels.kind, labels.classes, self.weights_of(labels), self.smoothing, labels.mean, labels.spread
        )
        model = self.model.build(input.shape, shape)
        input.initialise(model)
        return model


@dataclass(frozen=True)
class SoundClassifyConfig(SeriesClassifyConfig):
    """``sound``: the features of recordings; its rate is the highest that they are read at."""

    sound: LogMelConfig = field(default_factory=small_mel)
