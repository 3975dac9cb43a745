"""Estimate time, memory and disk of a training: prepare the data, train a few batches, keep nothing.

The batch with the longest rows comes first, so its memory is the most that training will need.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from sightline.data.checking import RowLimits
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.machine import peak_memory
from sightline.tasks.prepare import DATA, Setting, SomePrepared, preparing
from sightline.tasks.run import Run
from sightline.tasks.task import Task
from sightline.tasks.train import TaskLesson, plan, untrained
from sightline.training.checkpoint import RESUMABLE
from sightline.training.loop import TrainingConfig
from sightline.training.steps import gradients, make_optimiser, to_device

TRIED, DECODED = 8, 64  # batches to train, validation items to predict


@dataclass(frozen=True)
class Estimate:
    """Upper bounds in seconds and bytes: training may end early."""

    training: TrainingConfig
    prepared: SomePrepared
    parameters: int
    steps_per_epoch: int
    tokens_per_second: float
    seconds_per_epoch: float
    seconds: float
    memory: int | None
    disk: int


def estimate(
    task: Task,
    source: Source,
    valid: Source | None,
    config: Any,
    limits: RowLimits | None = None,
    start: Path | None = None,
    device: str = "cpu",
) -> Estimate:
    """Prepare the data, train a few batches, and measure; nothing is kept."""
    task, variant, config, earlier = plan(task, source, config, start)
    with tempfile.TemporaryDirectory(prefix="sightline-dry-run-") as name:
        setting = Setting(task, variant, config, Path(name) / DATA, limits or task.limits(), earlier, device)
        with preparing(source, valid, setting) as (prepared, _):
            run = untrained(prepared, variant, Path(name), earlier)
        stored = sum(path.stat().st_size for path in Path(name).rglob("*") if path.is_file())
        lesson = TaskLesson(run, prepared)
        if getattr(run.model, "solved", False):
            raise UserError(f"{config.model.kind} is not trained step by step, and takes seconds: leave out --dry-run")
        tokens, rows, spent = _train_a_little(run, lesson, device)
        validation = _validation_seconds(run, lesson)
        batches = lesson.epoch(0)
    training = config.training.limited(len(batches))
    parameters = sum(parameter.numel() for parameter in run.model.parameters())
    steps = training.steps_in(len(batches))
    # By rows, not by tokens: with BPE dropout the same rows have more tokens.
    per_epoch = sum(map(len, batches)) * spent / rows + validation * steps / training.interval(len(batches))
    # Models, and two moments of each parameter of the newest ones; one more is written before the oldest is deleted.
    checkpoints = 4 * parameters * (training.averaged + 3 + 2 * (RESUMABLE + 1))
    return Estimate(
        training,
        prepared,
        parameters,
        steps,
        tokens / spent,
        per_epoch,
        _seconds(training, per_epoch, steps),
        peak_memory(),
        stored + checkpoints,
    )


def _train_a_little(run: Run, lesson: TaskLesson, device: str) -> tuple[int, int, float]:
    """Tokens and rows that were trained on, and the seconds it took."""
    model = run.model.to(device)
    optimiser = make_optimiser(model, run.config.training)
    batches = lesson.epoch(0)
    batches = [lesson.longest(batches), *batches[:TRIED]]
    tokens, rows, began = 0, 0, time.perf_counter()
    for number, handle in enumerate(batches):
        if number == 1:  # the first step includes set-up time
            tokens, rows, began = 0, 0, time.perf_counter()
        batch = to_device(lesson.batch(handle), torch.device(device))
        tokens += gradients(model, optimiser, lesson, [batch], run.config.training).tokens
        optimiser.step()
        rows += len(handle)
    return tokens, rows, time.perf_counter() - began


def _validation_seconds(run: Run, lesson: TaskLesson) -> float:
    """An untrained decoder does not stop by itself: it is stopped where the targets end."""
    some = lesson.valid[:DECODED]
    xs = [one.x for one in some]
    options = run.output.trial_options(some)
    began = time.perf_counter()
    raws = run.output.scored(run, xs, options=options)
    run.output.validate(run, raws, some)
    return (time.perf_counter() - began) * len(lesson.valid) / len(some)


def _seconds(training: TrainingConfig, per_epoch: float, steps_per_epoch: int) -> float:
    limits = []
    if training.epochs is not None:
        limits.append(training.epochs * per_epoch)
    if training.steps is not None:
        limits.append(training.steps * per_epoch / steps_per_epoch)
    if training.minutes is not None:
        limits.append(60 * training.minutes)
    return min(limits)
