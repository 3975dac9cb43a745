"""The configuration of `transcribe`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from sightline.metrics.error_rates import ErrorRate
from sightline.models.listen_attend_spell import ListenAttendSpellConfig
from sightline.models.series_to_text import SeriesToText, SeriesToTextConfig
from sightline.nn.mel import LogMelConfig
from sightline.nn.series import SeriesFrontConfig
from sightline.tasks.configs.series import SeriesTaskConfig, small_mel
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig


def _characters() -> TokeniserConfig:
    return TokeniserConfig(method="characters", vocab_size=8000, min_frequency=1)


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=3e-3, warmup=300, patience=20, averaged=5, weight_decay=0.01)


@dataclass(frozen=True)
class TranscribeConfig(SeriesTaskConfig):
    """The configuration of a run. ``metric`` chooses the best checkpoint."""

    model: SeriesToTextConfig = field(default_factory=ListenAttendSpellConfig)
    tokeniser: TokeniserConfig = field(default_factory=_characters)
    training: TrainingConfig = field(default_factory=_training)
    metric: ErrorRate = "wer"
    smoothing: float = 0.1
    shares: ClassVar[tuple[str, ...]] = ("smoothing",)
    renamed: ClassVar[Mapping[str, str]] = {}
    verb: ClassVar[str] = "transcribe"
    work: ClassVar[int] = 24

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in get_args(ErrorRate):
            raise ValueError(f"metric is {self.metric!r}; it is one of {', '.join(get_args(ErrorRate))}")

    def build(self, input: Any, output: Any) -> SeriesToText:
        model = self.model.build(input.shape, output.tokeniser.words)
        input.initialise(model)
        return model


@dataclass(frozen=True)
class SoundTranscribeConfig(TranscribeConfig):
    """``sound``: the features of recordings; its rate is the highest that they are read at."""

    sound: LogMelConfig = field(default_factory=small_mel)


def _listener() -> ListenAttendSpellConfig:
    return ListenAttendSpellConfig(front=SeriesFrontConfig(components=64, deltas=1), reduces=(2, 1))


@dataclass(frozen=True)
class ClipTranscribeConfig(TranscribeConfig):
    """Frames are fitted to ``height`` and ``width`` (null: as they are). ``stacked`` is how many rows a frame has in an
    image that has all frames below each other. Videos are read at one frame in ``frame_seconds``."""

    model: SeriesToTextConfig = field(default_factory=_listener)
    frame_seconds: float = 0.04
    height: int | None = None
    width: int | None = None
    stacked: int | None = None
    batch_tokens: int = 1500
    max_frames: int = 1500
