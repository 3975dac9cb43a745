"""The training loop: one for every task. The model owns its loss, the task its batches and its score."""

import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from sightline.config import Config
from sightline.metrics.base import goodness
from sightline.training.checkpoint import (
    Progress,
    load_checkpoint,
    resume_from,
    save_checkpoint,
)
from sightline.training.ending import Outcome, finish, rank_of
from sightline.training.folder import MODEL, RunFolder, save_tensors
from sightline.training.ranks import Ranks, own_device
from sightline.training.steps import Ahead, Event, MetricsWindow, Stepper, make_optimiser
from sightline.training.stopping import Stopping


@runtime_checkable
class BatchLoss(Protocol):
    """A sum over tokens and their number. It may have ``parts``, such as coverage: sums by name, which are logged; and
    ``measures``, such as repeats, which are logged and are no parts of it."""

    @property
    def total(self) -> Tensor: ...
    @property
    def tokens(self) -> int: ...


@runtime_checkable
class Lesson(Protocol):
    """What a task gives to the loop, which sets its ``step``: how many updates there were before."""

    def epoch(self, number: int) -> Sequence[Any]:
        """The batches of an epoch, as handles that cost nothing: always the same for the same number."""

    def batch(self, handle: Any) -> Any:
        """The tensors of a batch."""

    def tokens(self, batch: Any) -> int:
        """How many tokens the loss of a batch sums over."""

    def loss(self, model: nn.Module, batch: Any) -> BatchLoss:
        """The loss of a batch."""

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores on the validation data; the first one decides (`sightline.metrics.base.goodness`).

        Where it is the same, the second one decides, if there is one, and less is better.
        """


DEFAULT_EPOCHS, LEAST_STEPS, MOST_EPOCHS = 30, 3000, 1000


@dataclass(frozen=True)
class TrainingConfig(Config):
    """How to train. Of the three limits the first one reached ends training; ``patience`` counts validations.

    ``cooldown`` is the last share of the way to the nearest limit over which the learning rate falls to nothing: small
    steps at the end are worth about as much as many more epochs (Hägele et al. 2024). ``validate_every`` counts steps;
    left out, it is an epoch, but no less than 100 steps and no more than 2,000. ``save_minutes`` is the longest that a
    killed process loses: so often a checkpoint for resuming is written between validations. ``layer_decay`` is the
    share of its learning rate that each layer of an encoder passes on to the one below. ``gradient_noise`` is η of the
    noise that is added to gradients (`sightline.training.steps.add_noise`), 0 for none. ``decay`` is how the rate falls
    between warm-up and cool-down: with the ``root`` of the step, or not at all (``none``). After ``coverage_after``
    steps a model that attends to a source also has a loss of attending to the same words again, times
    ``coverage_weight`` (See et al. 2017); left out, it never has.
    """

    learning_rate: float = 4e-3
    warmup: int = 1000
    weight_decay: float = 0.0
    clip: float = 1.0
    accumulate: int = 1
    epochs: int | None = None
    steps: int | None = None
    minutes: float | None = None
    patience: int = 10
    averaged: int = 5
    cooldown: float = 0.25
    validate_every: int | None = None
    save_minutes: float = 10.0
    layer_decay: float = 1.0
    gradient_noise: float = 0.0
    decay: Literal["root", "none"] = "root"
    coverage_after: int | None = None
    coverage_weight: float = 1.0
    family: ClassVar[str] = "training"

    def __post_init__(self) -> None:
        for name in ("learning_rate", "warmup", "clip", "accumulate", "patience", "averaged"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.cooldown <= 1:
            raise ValueError(f"cooldown is {self.cooldown}; it must be between 0 and 1")
        if self.coverage_after is not None and self.coverage_after < 0:
            raise ValueError(f"coverage_after is {self.coverage_after}; it must be at least 0")
        if not 0 < self.coverage_weight < math.inf:
            raise ValueError(f"coverage_weight is {self.coverage_weight}; it must be above 0")
        if not 0 <= self.gradient_noise < math.inf:
            raise ValueError(f"gradient_noise is {self.gradient_noise}; it must be at least 0")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is {self.layer_decay}; it must be above 0 and at most 1")
        if self.decay not in ("root", "none"):
            raise ValueError(f"decay is {self.decay!r}; it is root or none")
        for name in ("epochs", "steps", "minutes", "validate_every", "save_minutes"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")

    def limited(self, batches: int) -> "TrainingConfig":
        """With a limit where none was given: 30 epochs of this many batches, up to 1,000 where they are few."""
        if self.epochs is not None or self.steps is not None or self.minutes is not None:
            return self
        epochs = math.ceil(LEAST_STEPS / self.steps_in(batches))
        return replace(self, epochs=max(DEFAULT_EPOCHS, min(epochs, MOST_EPOCHS)))

    def limits(self) -> str:
        """What ends training, in words."""
        given = [f"{getattr(self, name):,g} {name}" for name in ("epochs", "steps", "minutes") if getattr(self, name)]
        return ", ".join([*given, f"{self.patience:,} validations without a better score"])

    def steps_in(self, batches: int) -> int:
        """Updates in an epoch of this many batches."""
        return math.ceil(batches / self.accumulate)

    def interval(self, batches: int) -> int:
        """Steps from one validation to the next."""
        return self.validate_every or min(max(self.steps_in(batches), 100), 2000)

    def rate(self, step: int, done: float = 0.0, batches: int | None = None) -> float:
        """Rises over the warm-up, falls with the root of the step (Vaswani et al. 2017) unless ``decay`` is none, and
        cools down at the end.

        The warm-up is at most a tenth of the way, in steps where their number is known and by the clock where only that
        is: a short training is not all warm-up.
        """
        known = [] if self.steps is None else [self.steps]
        if self.epochs is not None and batches is not None:
            known.append(self.epochs * self.steps_in(batches))
        warmup = min([self.warmup, *(max(1, steps // 10) for steps in known)])
        risen = (step + 1) / warmup if known else max((step + 1) / warmup, 10 * done)
        fallen = math.sqrt(warmup / (step + 1)) if self.decay == "root" else 1.0
        rate = self.learning_rate * min(1.0, risen, fallen)
        return rate * min(1.0, (1 - done) / self.cooldown) if self.cooldown else rate

    def share(self, progress: Progress, batches: int) -> float:
        """The share of the way to the nearest limit. An epoch has this many batches."""
        clock = 0.0 if self.minutes is None else progress.seconds / (60 * self.minutes)
        return min(1.0, max(clock, self._counted(progress, batches)))

    def done(self, progress: Progress, batches: int) -> float:
        """The same for the cool-down, below 1. The clock counts only where there is no other limit: runs with the same
        seed shall end the same.
        """
        counted = self.steps is not None or self.epochs is not None
        share = self._counted(progress, batches) if counted else self.share(progress, batches)
        return min(share, 0.999)

    def _counted(self, progress: Progress, batches: int) -> float:
        steps = 0.0 if self.steps is None else progress.step / self.steps
        epochs = 0.0 if self.epochs is None else (progress.epoch + progress.batch / batches) / self.epochs
        return max(steps, epochs)

    def over(self, progress: Progress) -> str | None:
        """Why training ends here, if it does."""
        if self.steps is not None and progress.step >= self.steps:
            return f"{self.steps:,} steps"
        if self.epochs is not None and progress.epoch >= self.epochs:
            return f"{self.epochs:,} epochs"
        if self.minutes is not None and progress.seconds >= 60 * self.minutes:
            return f"{self.minutes:g} minutes"
        if progress.since_best >= self.patience:
            return f"no better score in {self.patience} validations"
        return None


class OtherRank(Exception):  # noqa: N818 - not an error
    """This process did its part; the first one finishes the run."""


def train(
    model: nn.Module,
    lesson: Lesson,
    config: TrainingConfig,
    folder: RunFolder,
    *,
    device: str | torch.device,
    on_step: Callable[[Event], None] = lambda event: None,
    on_scores: Callable[[Progress, dict[str, float]], None] = lambda progress, scores: None,
    on_remark: Callable[[str], None] = warnings.warn,
    on_begin: Callable[[], None] = lambda: None,
) -> Outcome:
    """Train until a limit is reached; resume from the folder's last valid checkpoint.

    ``on_begin`` is called when the folder is locked and a good checkpoint was found in it, or none: from here on its
    files change.

    A model that is ``solved`` when it is built, as linear ones are, is only scored.

    Ctrl-C and SIGTERM save a checkpoint before they are passed on. Of several processes, only the first comes to an
    outcome: the others raise `OtherRank`.
    """
    device = own_device(device)
    ranks = Ranks.join(device.type)
    if getattr(model, "solved", False):
        return _solved(model.to(device), lesson, folder, ranks, on_scores, on_begin)
    config = replace(config, accumulate=config.accumulate * ranks.count)
    model.to(device)  # before the optimiser: what a checkpoint puts into it goes where the parameters are
    optimiser = make_optimiser(model, config)
    with folder.locked() if ranks.is_first else nullcontext():
        progress = _begin(folder, model, optimiser, ranks, on_remark, on_begin)
        stepper = Stepper(model, optimiser, lesson, config, device, ranks, progress)
        loop = _Loop(model, lesson, config, folder, stepper, on_step, on_scores, on_remark)
        if progress.step == 0:  # from the first validation on, the run's weights are no longer those of its start
            loop.save(interrupted=True)
        with Stopping() as stopping:
            try:
                reason = loop.run(stopping)
            except KeyboardInterrupt:
                if ranks.is_first and not stopping.forced:
                    loop.save(interrupted=True)
                raise
            finally:
                loop.ahead.close()
        if not ranks.is_first:
            raise OtherRank
        return finish(model, lesson, folder, progress, loop.best, reason, on_remark)


def _solved(
    model: nn.Module,
    lesson: Lesson,
    folder: RunFolder,
    ranks: Ranks,
    on_scores: Callable[[Progress, dict[str, float]], None],
    on_begin: Callable[[], None],
) -> Outcome:
    """The outcome of a model that has its weights when it is built: there is nothing to train, so nothing to resume."""
    if not ranks.is_first:
        raise OtherRank
    with folder.locked():
        folder.unseal()
        on_begin()
        with torch.no_grad():
            scores = lesson.validate(model.eval())
        on_scores(Progress(), scores)
        return Outcome("its weights were computed", Progress(), dict(model.state_dict()), scores, "computed at once")


def _begin(
    folder: RunFolder,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    ranks: Ranks,
    on_remark: Callable[[str], None],
    on_begin: Callable[[], None],
) -> Progress:
    """The progress so far, in every process. The first one reads it, and removes damaged checkpoints."""
    progress, checkpoint = Progress(), None
    if ranks.is_first:
        progress, checkpoint = resume_from(folder, model, optimiser, on_remark)
        folder.unseal()
        on_begin()
    name = ranks.from_first(None if checkpoint is None else checkpoint.name)
    if name is not None and not ranks.is_first:
        load_checkpoint(folder.path / "checkpoints" / name, model, optimiser)
    progress = ranks.from_first(progress)
    ranks.same_start(model, progress.step)
    return progress


class _Loop:
    """Step, validate, save; until a limit is reached."""

    def __init__(
        self,
        model: nn.Module,
        lesson: Lesson,
        config: TrainingConfig,
        folder: RunFolder,
        stepper: Stepper,
        on_step: Callable[[Event], None],
        on_scores: Callable[[Progress, dict[str, float]], None],
        on_remark: Callable[[str], None],
    ) -> None:
        self.model, self.lesson, self.config, self.folder, self.stepper = model, lesson, config, folder, stepper
        self.progress, self.ranks = stepper.progress, stepper.ranks
        self.on_step, self.on_scores, self.on_remark = on_step, on_scores, on_remark
        self.best: dict[str, float] = {}
        self.window, self.ahead, self.saved = MetricsWindow(self.progress), Ahead(lesson), time.monotonic()

    def run(self, stopping: Stopping) -> str:
        """Why training ended."""
        progress, config = self.progress, self.config
        plan, planned = self.lesson.epoch(progress.epoch), progress.epoch
        self.find_place(len(plan))
        while True:
            if progress.pending:
                self.validate(stopping)
            if (reason := self.ranks.from_first(config.over(progress))) is not None:
                return reason
            if planned != progress.epoch:
                plan, planned = self.lesson.epoch(progress.epoch), progress.epoch
                progress.planned = len(plan)
            asked = self.step(plan, stopping.asked is not None)
            if asked:
                raise stopping.error()
            if time.monotonic() - self.saved > 60 * config.save_minutes and not progress.pending:
                self.save(interrupted=True)

    def find_place(self, batches: int) -> None:
        """Report where batches or updates differ from before, and keep the share of the epoch that is done."""
        progress, together = self.progress, self.config.accumulate
        remarks = []
        if progress.batch and progress.planned not in (0, batches):
            progress.batch = progress.batch * batches // progress.planned
            remarks.append(
                f"an epoch has {batches:,} batches, and had {progress.planned:,}: training resumes as far into the "
                "epoch as it was, in another order of the data"
            )
        if progress.together not in (0, together):
            remarks.append(f"an update is of {together} batches, and was of {progress.together}")
        progress.planned, progress.together = batches, together
        if self.ranks.is_first:
            for text in remarks:
                self.on_remark(text)

    def step(self, plan: Sequence[Any], stopping: bool) -> bool:
        progress, config, batches = self.progress, self.config, len(plan)
        behind = progress.batch + config.accumulate
        handles = plan[progress.batch : behind]
        ready = self.ahead.take(self.ranks.share(handles), self.ranks.share(plan[behind : behind + config.accumulate]))
        rate = config.rate(progress.step, config.done(progress, batches), batches)
        event, asked = self.stepper.step(ready, len(handles), rate, stopping)
        if progress.batch >= batches:
            progress.epoch, progress.batch = progress.epoch + 1, 0
        self.window.add(event, rate)
        progress.pending = config.over(progress) is not None or progress.step % config.interval(batches) == 0
        progress.pending = self.ranks.from_first(progress.pending)  # clocks differ
        self.on_step(event._replace(share=config.share(progress, batches)))
        return asked

    def validate(self, stopping: Stopping) -> None:
        """The scores, and a checkpoint. The first process validates, the others wait for its scores."""
        progress, trained = self.progress, self.window.metrics(self.progress)
        self.stepper.check(trained.get("loss"))
        scores: dict[str, float] = {}
        if self.ranks.is_first:
            stopping.at_once = self.ranks.count == 1
            self.model.eval()
            with torch.no_grad():
                scores = self.lesson.validate(self.model)
            self.model.train()
            stopping.at_once = False
        scores = self.ranks.from_first(scores)
        rank, name = rank_of(scores), next(iter(scores))
        if progress.best is None or rank > (goodness(name, progress.best), progress.best_tie):
            progress.best, progress.best_tie = goodness(name, rank[0]), rank[1]  # as it is shown
            progress.best_step, progress.since_best = progress.step, 0
            self.best = scores
        else:
            progress.since_best += 1
        progress.pending = False
        self.window = MetricsWindow(progress)
        if self.ranks.is_first:
            where = {"step": progress.step, "epoch": progress.epoch, "seconds": round(progress.seconds, 1)}
            self.folder.add_metrics(**where, **scores, **trained)
            self.on_scores(progress, scores)
            if progress.since_best == 0:
                save_tensors(self.folder.path / MODEL, dict(self.model.state_dict()))
            self.save()

    def save(self, interrupted: bool = False) -> None:
        """A checkpoint: of a validation, or one for resuming only."""
        if self.ranks.is_first:
            optimiser, keep = self.stepper.optimiser, self.config.averaged
            save_checkpoint(self.folder.path, self.model, optimiser, self.progress, keep, interrupted)
        self.saved = time.monotonic()
