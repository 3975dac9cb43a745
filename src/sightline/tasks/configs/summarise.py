"""The configuration of `summarise`."""

from dataclasses import dataclass

from sightline.metrics import TextMetric
from sightline.tasks.configs.translate import TranslateConfig


@dataclass(frozen=True)
class SummariseConfig(TranslateConfig):
    """The configuration of a run. Of a source, the first ``max_source`` tokens are read; None: all of them."""

    metric: TextMetric = "rougeL"
    max_source: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_source is not None and not 1 <= self.max_source < 2**31:
            raise ValueError(f"max_source is {self.max_source}; it must be at least 1 and below 2^31")
