"""The configuration of `sequence`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from sightline.models.series_to_series import SeriesToSeries, SeriesToSeriesConfig
from sightline.nn.mel import LogMelConfig
from sightline.tasks.configs.series import SeriesTaskConfig, small_mel
from sightline.training.loop import TrainingConfig

VectorMetric = Literal["r2", "mse", "length_error"]


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=3e-3, warmup=300, patience=15, averaged=5, weight_decay=0.01)


@dataclass(frozen=True)
class SequenceConfig(SeriesTaskConfig):
    """The configuration of a run. ``metric`` chooses the best checkpoint. Longer targets than ``max_vectors`` are not
    trained on."""

    model: SeriesToSeriesConfig = field(default_factory=SeriesToSeriesConfig)
    training: TrainingConfig = field(default_factory=_training)
    metric: VectorMetric = "r2"
    speeds: tuple[float, ...] = (1.0,)
    max_vectors: int = 3000
    counts: ClassVar[tuple[str, ...]] = (*SeriesTaskConfig.counts, "max_vectors")
    verb: ClassVar[str] = "convert"
    work: ClassVar[int] = 48

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in get_args(VectorMetric):
            raise ValueError(f"metric is {self.metric!r}; it is one of {', '.join(get_args(VectorMetric))}")

    def build(self, input: Any, output: Any) -> SeriesToSeries:
        model = self.model.build(input.shape, len(output.facts.mean))
        input.initialise(model)
        return model


@dataclass(frozen=True)
class SoundSequenceConfig(SequenceConfig):
    """``sound``: the features of recordings; its rate is the highest that they are read at."""

    sound: LogMelConfig = field(default_factory=small_mel)
