"""What a training will take, found by trying: the data is prepared and a few batches are trained, and nothing stays.

The longest batch comes first, so the memory it needs is the most that training will need.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.machine import peak_memory
from sightline.tasks.preparing import prepare
from sightline.tasks.table import Trial, task_named
from sightline.tasks.translate import (
    TranslateConfig,
    TranslateLesson,
    build_model,
    preparation,
    read_translate_start,
)
from sightline.tasks.translator import Translator
from sightline.training.loop import TrainingConfig
from sightline.training.ranks import own_device
from sightline.training.steps import gradients, make_optimiser, to_device

TRIED, DECODED = 8, 64  # batches to train, sentences to decode


@dataclass(frozen=True)
class Estimate:
    """Seconds and bytes, at most: training may end early."""

    training: TrainingConfig
    prepared: Any
    parameters: int
    steps_per_epoch: int
    tokens_per_second: float
    seconds_per_epoch: float
    seconds: float
    memory: int | None
    disk: int


def estimate(
    files: Any,
    valid: Any,
    config: Any,
    limits: Limits | None,
    start: Path | None = None,
    device: str = "cpu",
    task: str = "translate",
) -> Estimate:
    """Prepare, train a little, measure, and leave nothing behind."""
    with tempfile.TemporaryDirectory(prefix="sightline-dry-run-") as name:
        folder = Path(name)
        trial = task_named(task).trial(files, valid, config, limits, start, folder)
        prepared, lesson, model, validating, in_epoch = trial
        stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        place = own_device(device)
        model.to(place)
        plan = list(lesson.epoch(0))
        plan = sorted(plan, key=len)[:1] + plan[:TRIED]  # few rows: the batch with the longest
        optimiser = make_optimiser(model, config.training)
        tokens, rows, began = 0, 0, time.perf_counter()
        for number, handle in enumerate(plan):
            if number == 1:  # the first step also sets things up
                tokens, rows, began = 0, 0, time.perf_counter()
            batch = to_device(lesson.batch(handle), place)
            count = gradients(model, optimiser, lesson, [batch], config.training).tokens
            optimiser.step()
            tokens, rows = tokens + count, rows + len(handle)
        spent = time.perf_counter() - began
        validation = validating()
    batches = len(lesson.epoch(0))
    training = config.training.limited(batches)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    steps = training.steps_in(batches)
    # By rows, not by tokens: with BPE dropout the same rows are more tokens.
    per_epoch = (in_epoch or len(prepared.corpus)) * spent / rows + validation * steps / training.interval(batches)
    # A checkpoint is the model and two moments of each parameter; one more is on its way while the oldest still stands.
    checkpoints = 4 * parameters * (3 * (training.averaged + 1) + 2)
    seconds = _seconds(training, per_epoch, steps)
    return Estimate(
        training, prepared, parameters, steps, tokens / spent, per_epoch, seconds, peak_memory(), stored + checkpoints
    )


def translate_trial(
    files: PairFiles,
    valid: PairFiles | None,
    config: TranslateConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What training a translator would begin with."""
    earlier = read_translate_start(start)
    prepared = prepare(files, valid, preparation(config, limits or Limits(), earlier), folder)
    lesson = TranslateLesson(prepared, config)
    model = build_model(config, prepared, earlier)

    def validating() -> float:
        return _validation_seconds(lesson, Translator(model, prepared.source, prepared.target))

    return Trial(prepared, lesson, model, validating)


def _validation_seconds(lesson: TranslateLesson, translator: Translator) -> float:
    """An untrained model does not know when to end: it is stopped where the references are."""
    some = lesson.valid[:DECODED]
    longest = max(len(tokens) for tokens in translator.target.encode([target for _, target in some]))
    began = time.perf_counter()
    translator.predict([source for source, _ in some], beam=1, max_length=longest)
    translator.perplexity(some)
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
