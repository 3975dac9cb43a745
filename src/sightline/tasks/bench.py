"""Measure the speed, memory and profile of training and prediction of a run on this machine."""

import copy
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import torch

from sightline.data.checking import RowLimits
from sightline.errors import UserError
from sightline.machine import forget_peak, peak_memory
from sightline.speed import Profile, profile_of, seconds_of
from sightline.tasks.prepare import DATA, Setting, reopened
from sightline.tasks.run import Run
from sightline.tasks.train import TaskLesson
from sightline.training.steps import gradients, make_optimiser, to_device

BATCHES = 4  # of training, which repeat
ITEMS, FEW = 64, 8  # predicted together, and one by one


@dataclass(frozen=True)
class Measured:
    """One kind of work: ``rate`` per second (median, slowest and fastest of the repeats), and peak memory."""

    name: str
    unit: str
    rate: float
    slowest: float
    fastest: float
    memory: int | None
    profile: Profile | None = None  # measured last: profiling itself takes memory

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        if self.profile is not None:
            data["profile"]["over_limit"] = self.profile.over_limit
        return data


class Work(NamedTuple):
    """Something to measure: a function, its amount in a unit, and whether to profile it."""

    name: str
    unit: str
    call: Callable[[], object]
    amount: float
    profiled: bool


def works(run: Run) -> list[Work]:
    """The work to measure: training steps on the run's own batches, and predictions for its validation items."""
    if run.folder is None or not (run.folder / DATA).is_dir():
        raise UserError(f"{run.name} has no data folder: there is nothing to measure it on")
    setting = Setting(run.task, run.variant, run.config, run.folder / DATA, RowLimits())
    prepared = reopened(setting, run.input, run.output)
    lesson = TaskLesson(run, prepared)
    todo = []
    if not getattr(run.model, "solved", False):
        step, tokens = _training(run, lesson)
        todo.append(Work("training", "tokens" if run.output.searches else run.task.counted, step, tokens, True))
    xs = run.output.bench_items(run, [one.x for one in prepared.valid[:ITEMS]])
    few, unit = xs[:FEW], run.output.bench_unit or run.input.bench_unit or run.input.noun
    for name, options in run.output.benched().items():
        together = partial(cast("Callable[..., object]", run.predict), xs, **options, batch_tokens=1 << 20)
        todo.append(Work(f"{name}, {len(xs)} together", unit, together, run.input.amount(xs), True))
        todo.append(Work(f"{name}, one by one", unit, _one_by_one(run, few, options), run.input.amount(few), False))
    return todo


def measure(work: Work, seconds: float) -> Measured:
    """Repeat the work for about this many seconds; the first repeat does not count."""
    forget_peak()
    times = seconds_of(work.call, seconds)
    memory = peak_memory()
    rates = sorted(work.amount / one for one in times)
    return Measured(work.name, work.unit, statistics.median(rates), rates[0], rates[-1], memory)


def profiled(work: Work, measured: Measured) -> Measured:
    """The measurement with a profile, if the work is to be profiled."""
    return replace(measured, profile=profile_of(work.call, calls=1)) if work.profiled else measured


def _training(run: Run, lesson: TaskLesson) -> tuple[Callable[[], None], int]:
    """Training steps of a copy of the model, and their number of tokens."""
    trained = copy.deepcopy(run.model).requires_grad_(True).train()
    training = run.config.training
    optimiser = make_optimiser(trained, training)
    batches = [to_device(lesson.batch(handle), run.device) for handle in lesson.epoch(0)[:BATCHES]]
    coming = itertools.cycle(batches)

    def steps() -> None:
        # All batches, so that every repeat is the same work.
        for batch in itertools.islice(coming, len(batches)):
            gradients(trained, optimiser, lesson, [batch], training)
            optimiser.step()

    return steps, sum(lesson.tokens(batch) for batch in batches)


def _one_by_one(run: Run, items: Sequence[Any], options: dict[str, Any]) -> Callable[[], object]:
    return lambda: [run.predict([one], **options) for one in items]


def threads_tried(most: int) -> list[int]:
    """1, 2, 4 … and ``most``."""
    return sorted({most, *(2**i for i in range(most.bit_length()) if 2**i <= most)})


def rate_by_threads(work: Work, seconds: float) -> dict[int, float]:
    """The rate with fewer threads, which may be faster for small models."""
    before = torch.get_num_threads()
    rates = {}
    try:
        for threads in threads_tried(before):
            torch.set_num_threads(threads)
            rates[threads] = work.amount / statistics.median(seconds_of(work.call, seconds, least=2))
    finally:
        torch.set_num_threads(before)
    return rates
