"""Training batches of a task, and what the training loop is given: the same for every input and output."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from sightline.data.batches import BatchPlan, BatchRows
from sightline.tasks.prepare import Prepared
from sightline.tasks.run import Run


class RowBatches:
    """Rows of a corpus of like length together, at most ``batch_tokens`` in all, and ``batch_rows`` if it is set."""

    def __init__(self, prepared: Prepared, config: Any) -> None:
        self.input, self.output, self.corpus = prepared.input, prepared.output, prepared.corpus
        source, target = self.corpus.lengths()
        both = self.output.sized_targets
        rows = getattr(config, "batch_rows", None)
        self.plan = BatchPlan(source, target if both else None, config.batch_tokens, config.seed, rows=rows)

    def epoch(self, number: int) -> Sequence[BatchRows]:
        return self.plan.epoch(number)

    def batch(self, handle: BatchRows) -> tuple[Any, Any]:
        parts, targets = zip(*(self.corpus[row] for row in handle.tolist()), strict=True)
        batch = self.input.collate(parts)
        return batch, self.output.collate(targets, batch)


def validated_rows(rows: int, most: int, seed: int) -> list[int]:
    """The validation rows that are scored in training: always the same for the same seed, in order."""
    return sorted(np.random.default_rng(seed).permutation(rows)[:most].tolist())


class TaskLesson:
    """Batches, loss and score for the training loop (`sightline.training.loop.Lesson`)."""

    def __init__(self, run: Run, prepared: Prepared) -> None:
        config = run.config
        self.run, self.batches = run, run.output.batches(prepared, config)
        self.valid = run.output.validated(prepared.valid, config)
        self.step = 0
        self._parts: list[list[Any]] | None = None

    def epoch(self, number: int) -> Sequence[Any]:
        return self.batches.epoch(number)

    def batch(self, handle: Any) -> Any:
        return self.batches.batch(handle)

    def tokens(self, batch: Any) -> int:
        return self.run.output.counted(batch)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return self.run.output.loss(model, batch, self.step)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides first, and the loss or what stands for it second."""
        run = self.run.with_model(model)
        return run.output.validate(run, self.raws(run), self.valid)

    @torch.no_grad()
    def raws(self, run: Run) -> list[Any]:
        """Raw outputs of the validation examples, which are encoded once."""
        xs = [one.x for one in self.valid]
        if self._parts is None and len(xs) <= run.input.at_once:
            self._parts = run.encode(xs)
        options = run.output.with_targets(run.output.validation_options(), self.valid, training=True)
        return run.output.scored(run, xs, self._parts, options)
