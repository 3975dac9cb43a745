"""What the lessons of all tasks from text to labels have in common."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from torch import Tensor, nn

from sightline.data.batches import BatchPlan, BatchRows
from sightline.models.text_to_labels import Texts
from sightline.models.text_to_text import Loss

P = TypeVar("P")
C = TypeVar("C")


class TextLesson(Generic[P, C]):
    """Batches of texts of like length, and a sample of the validation data, always the same for the same seed."""

    def __init__(self, prepared: P, config: C) -> None:
        self.prepared, self.config = prepared, config
        data: Any = prepared
        how: Any = config
        lengths, _ = data.corpus.lengths()
        self.plan = BatchPlan(lengths, None, how.batch_tokens, how.seed, rows=how.batch_rows)
        rows = np.random.default_rng(how.seed).permutation(len(data.valid))[: how.validated]
        self.valid: list[Any] = [data.valid[row] for row in sorted(rows.tolist())]

    def epoch(self, number: int) -> Sequence[BatchRows]:
        return self.plan.epoch(number)

    def loss(self, model: nn.Module, batch: tuple[Texts, Tensor]) -> Loss:
        return model.loss(*batch)  # type: ignore[operator]
