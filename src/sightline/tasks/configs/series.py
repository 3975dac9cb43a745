"""What the configurations of all tasks that read series of frames have in common."""

from dataclasses import dataclass
from typing import ClassVar

from sightline.nn.mel import LogMelConfig
from sightline.tasks.configs.base import TaskConfig


def small_mel() -> LogMelConfig:
    """Forty bands, which are enough for little data."""
    return LogMelConfig(size=40)


@dataclass(frozen=True)
class SeriesTaskConfig(TaskConfig):
    """The configuration of a run.

    ``speeds``: in each epoch a series is read at one of these, drawn at random; 1 is its own. ``batch_tokens`` bounds
    the frames of a training batch, padding counted. ``max_frames``: longer series are not trained on. ``frame_seconds``
    is how long a frame is, where the data does not tell (of sound it is known).
    """

    speeds: tuple[float, ...] = (0.9, 1.0, 1.1)
    frame_seconds: float = 0.01
    max_frames: int = 6000
    batch_tokens: int = 8000
    batch_rows: int = 64
    validated: int = 500
    counts: ClassVar[tuple[str, ...]] = ("batch_tokens", "batch_rows", "max_frames")
    key_format: ClassVar[str] = "016x"  # the format of a file's content key, which decides its split

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not 0.25 <= one <= 4 for one in self.speeds):
            raise ValueError(f"speeds is {list(self.speeds)}; each must be from 0.25 to 4")
        if not 0 < self.frame_seconds < 1e4:
            raise ValueError(f"frame_seconds is {self.frame_seconds}; it must be above 0")
