"""The configuration of `caption`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, get_args

from sightline.metrics.captions import CaptionMetric
from sightline.models.image_to_text import ImageToText, ImageToTextConfig
from sightline.models.show_attend_tell import ShowAttendTellConfig
from sightline.nn.image import ImageEncoderConfig, default_encoder
from sightline.tasks.configs.base import TaskConfig
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig


def _words() -> TokeniserConfig:
    # Words in lower case; characters in scripts without spaces. Words that occur once or twice are unknown.
    return TokeniserConfig(method="words", vocab_size=10_000, lower=True, min_frequency=3)


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=1000, patience=8, averaged=5)


@dataclass(frozen=True)
class CaptionConfig(TaskConfig):
    """The configuration of a run.

    ``encoder`` computes annotations of an image. ``max_length``: longer captions are neither trained on nor written.
    ``metric`` chooses the best checkpoint, by greedy captions of at most ``validated`` validation images.
    """

    model: ImageToTextConfig = field(default_factory=ShowAttendTellConfig)
    encoder: ImageEncoderConfig = field(default_factory=default_encoder)
    tokeniser: TokeniserConfig = field(default_factory=_words)
    training: TrainingConfig = field(default_factory=_training)
    metric: CaptionMetric = "bleu4"
    smoothing: float = 0.1
    max_length: int = 50
    batch_rows: int = 64
    batch_tokens: int = 2048
    valid_share: float = 0.05
    validated: int = 1000
    counts: ClassVar[tuple[str, ...]] = ("batch_rows", "batch_tokens", "max_length")
    shares: ClassVar[tuple[str, ...]] = ("smoothing",)
    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length"}
    key_format: ClassVar[str] = ""  # the format of an image's content key, which decides its split
    verb: ClassVar[str] = "caption"
    work: ClassVar[int] = 24  # tokens of a caption, about

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in get_args(CaptionMetric):
            raise ValueError(f"metric is {self.metric!r}; it is one of {', '.join(get_args(CaptionMetric))}")

    def build(self, input: Any, output: Any) -> ImageToText:
        return self.model.build(input.places, output.tokeniser.words, input.taken_encoder())
