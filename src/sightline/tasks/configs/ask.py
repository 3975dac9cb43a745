"""The configuration of `ask`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sightline.models.asking import Asker, AskerConfig
from sightline.models.neural_programmer import NeuralProgrammerConfig
from sightline.tasks.configs.base import TaskConfig
from sightline.training.loop import TrainingConfig


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=15, averaged=3, weight_decay=1e-4)


@dataclass(frozen=True)
class AskConfig(TaskConfig):
    """The configuration of a run. Of a table, the first ``max_rows`` rows are trained on; predictions read all rows.
    Words that the training data has fewer than ``min_frequency`` times are unknown words (of few questions, fewer
    times). ``batch_tokens`` counts the numbers of questions and tables in a batch of at most ``batch_rows``."""

    model: AskerConfig = field(default_factory=NeuralProgrammerConfig)
    training: TrainingConfig = field(default_factory=_training)
    metric: Literal["denotation"] = "denotation"
    max_rows: int = 100
    min_frequency: int = 5
    batch_tokens: int = 200_000
    batch_rows: int = 32
    counts: ClassVar[tuple[str, ...]] = ("max_rows", "min_frequency", "batch_tokens", "batch_rows")

    def build(self, input: Any, output: Any) -> Asker:
        return self.model.build(input.vocabulary_size)
