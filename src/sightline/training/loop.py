"""The training loop: one for every task. The model owns its loss, the task its batches and its score."""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from sightline.config import Config
from sightline.errors import UserError
from sightline.training.checkpoint import Progress, checkpoints, load_checkpoint, save_checkpoint, validated
from sightline.training.folder import MODEL, RunFolder, average, load_tensors, save_tensors
from sightline.training.groups import parameter_groups


@runtime_checkable
class BatchLoss(Protocol):
    """A sum over tokens and their number."""

    @property
    def total(self) -> Tensor: ...
    @property
    def tokens(self) -> int: ...


@runtime_checkable
class Lesson(Protocol):
    """What a task gives to the loop."""

    def epoch(self, number: int) -> Sequence[Any]:
        """The batches of an epoch, as handles that cost nothing: always the same for the same number."""

    def batch(self, handle: Any) -> Any:
        """The tensors of a batch."""

    def tokens(self, batch: Any) -> int:
        """How many tokens the loss of a batch sums over."""

    def loss(self, model: nn.Module, batch: Any) -> BatchLoss:
        """The loss of a batch."""

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Scores on the validation data; the first one decides, and more is better.

        Where it is the same, the second one decides, if there is one, and less is better.
        """


DEFAULT_EPOCHS, LEAST_STEPS = 30, 3000


@dataclass(frozen=True)
class TrainingConfig(Config):
    """How to train. Of the three limits the first one reached ends training; ``patience`` counts validations.

    ``cooldown`` is the last share of the way to the nearest limit over which the learning rate falls to nothing: small
    steps at the end are worth about as much as many more epochs (Hägele et al. 2024). ``validate_every`` counts steps;
    left out, it is an epoch, but no less than 100 steps and no more than 2,000. ``layer_decay`` is the share of its
    learning rate that each layer of an encoder passes on to the one below.
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
    layer_decay: float = 1.0
    family: ClassVar[str] = "training"

    def __post_init__(self) -> None:
        for name in ("learning_rate", "warmup", "clip", "accumulate", "patience", "averaged"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")
        if not 0 <= self.cooldown <= 1:
            raise ValueError(f"cooldown is {self.cooldown}; it must be between 0 and 1")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is {self.layer_decay}; it must be above 0 and at most 1")
        for name in ("epochs", "steps", "minutes", "validate_every"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")

    def limited(self, batches: int) -> "TrainingConfig":
        """With a limit where none was given: 30 epochs of this many batches, more where they are few."""
        if self.epochs is not None or self.steps is not None or self.minutes is not None:
            return self
        return replace(self, epochs=max(DEFAULT_EPOCHS, math.ceil(LEAST_STEPS / self.steps_in(batches))))

    def steps_in(self, batches: int) -> int:
        """Updates in an epoch of this many batches."""
        return math.ceil(batches / self.accumulate)

    def interval(self, batches: int) -> int:
        """Steps from one validation to the next."""
        return self.validate_every or min(max(self.steps_in(batches), 100), 2000)

    def rate(self, step: int, done: float = 0.0, batches: int | None = None) -> float:
        """Rises over the warm-up, falls with the root of the step (Vaswani et al. 2017), and cools down at the end.

        The warm-up is at most a tenth of the way, in steps where their number is known and by the clock where only that
        is: a short training is not all warm-up.
        """
        known = [] if self.steps is None else [self.steps]
        if self.epochs is not None and batches is not None:
            known.append(self.epochs * self.steps_in(batches))
        warmup = min([self.warmup, *(max(1, steps // 10) for steps in known)])
        risen = (step + 1) / warmup if known else max((step + 1) / warmup, 10 * done)
        rate = self.learning_rate * min(1.0, risen, math.sqrt(warmup / (step + 1)))
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


class Event(NamedTuple):
    """What a progress display gets after every step. ``share`` is how much of the way to the nearest limit is done."""

    progress: Progress
    loss: float
    tokens_per_second: float
    share: float


class Outcome(NamedTuple):
    """How training ended: why, where, and the weights to use with their scores and where they come from."""

    reason: str
    progress: Progress
    weights: dict[str, Tensor]
    scores: dict[str, float]
    source: str


def make_optimiser(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW with the betas of the Transformer; biases, norms and vectors do not decay."""
    groups = parameter_groups(model, config.weight_decay, config.layer_decay)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=True)


def train(
    model: nn.Module,
    lesson: Lesson,
    config: TrainingConfig,
    folder: RunFolder,
    *,
    fabric: Fabric,
    on_step: Callable[[Event], None] = lambda event: None,
    on_scores: Callable[[Progress, dict[str, float]], None] = lambda progress, scores: None,
) -> Outcome:
    """Train until a limit is reached; go on where the folder's last checkpoint stands.

    An interrupt saves a checkpoint before it is passed on.
    """
    model.to(fabric.device)  # before the optimiser: what a checkpoint puts into it goes where the parameters are
    optimiser = make_optimiser(model, config)
    progress, saved = Progress(), checkpoints(folder.path)
    if saved:
        progress = load_checkpoint(saved[-1], model, optimiser)
    elif (folder.path / MODEL).exists():  # it ended before its first checkpoint: what it began with stands there
        model.load_state_dict(load_tensors(folder.path / MODEL))
    trained, optimiser_ = fabric.setup(model, optimiser)
    started = time.perf_counter() - progress.seconds
    best: dict[str, float] = {}
    reason, window = config.over(progress), Window(progress)
    plan, planned = lesson.epoch(progress.epoch), progress.epoch
    ahead = Ahead(lesson)
    try:
        while reason is None:
            if planned != progress.epoch:
                plan, planned = lesson.epoch(progress.epoch), progress.epoch
            batches = len(plan)
            behind = progress.batch + config.accumulate
            ready = ahead.take(plan[progress.batch : behind], plan[behind : behind + config.accumulate])
            rate = config.rate(progress.step, config.done(progress, batches), batches)
            event = _step(trained, optimiser_, lesson, ready, config, rate, progress, fabric, started)
            if progress.batch >= batches:
                progress.epoch, progress.batch = progress.epoch + 1, 0
            window.add(event, rate)
            on_step(event._replace(share=config.share(progress, batches)))
            reason = config.over(progress)
            if reason is not None or progress.step % config.interval(batches) == 0:
                scores = _validate(model, lesson, progress, folder, window)
                window = Window(progress)
                on_scores(progress, scores)
                if progress.since_best == 0:
                    best = scores
                    save_tensors(folder.path / MODEL, dict(model.state_dict()))
                save_checkpoint(folder.path, model, optimiser, progress, keep=config.averaged)
                reason = reason or config.over(progress)
    except KeyboardInterrupt:
        save_checkpoint(folder.path, model, optimiser, progress, keep=config.averaged, interrupted=True)
        raise
    finally:
        ahead.close()
    return _finish(model, lesson, folder, progress, best, reason)


def gradients(
    model: Any, optimiser: Any, lesson: Lesson, batches: Sequence[Any], config: TrainingConfig, fabric: Fabric
) -> tuple[float, int]:
    """The clipped gradients of one or more batches; also the sum of their losses, and of their tokens.

    The loss is the mean over all of the tokens, not over batches.
    """
    tokens = max(1, sum(lesson.tokens(batch) for batch in batches))  # none: nothing in them has a label
    optimiser.zero_grad(set_to_none=True)
    total = 0.0
    for batch in batches:
        loss = lesson.loss(model, batch)
        fabric.backward(loss.total / tokens)
        total += float(loss.total.detach())
    if math.isfinite(total):
        fabric.clip_gradients(model, optimiser, max_norm=config.clip, error_if_nonfinite=False)
    return total, tokens


class Ahead:
    """Batches made in another thread while the step before is computed. Which ones they are does not depend on it."""

    def __init__(self, lesson: Lesson) -> None:
        self._lesson = lesson
        self._thread = ThreadPoolExecutor(1)
        self._coming: tuple[list[Any], list[Future[Any]]] = ([], [])

    def take(self, handles: Sequence[Any], following: Sequence[Any]) -> list[Any]:
        """The batches of these handles; those of the handles that follow are begun."""
        expected, coming = self._coming
        waited = len(expected) == len(handles) and all(a is b for a, b in zip(expected, handles, strict=True))
        found = [one.result() for one in coming] if waited else [self._lesson.batch(handle) for handle in handles]
        self._coming = (list(following), [self._thread.submit(self._lesson.batch, one) for one in following])
        return found

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


def _step(
    model: Any,
    optimiser: Any,
    lesson: Lesson,
    ready: Sequence[Any],
    config: TrainingConfig,
    rate: float,
    progress: Progress,
    fabric: Fabric,
    started: float,
) -> Event:
    """One update from one or more batches."""
    begun = time.perf_counter()
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("scale", 1.0)
    batches = [fabric.to_device(batch) for batch in ready]
    total, tokens = gradients(model, optimiser, lesson, batches, config, fabric)
    if not math.isfinite(total):
        raise UserError(
            f"the loss is no longer a number at step {progress.step + 1:,}: training has diverged; "
            f"choose a smaller learning rate than {config.learning_rate:g} (training.learning_rate)"
        )
    optimiser.step()
    progress.step += 1
    progress.batch += len(ready)
    progress.tokens += tokens
    now = time.perf_counter()
    progress.seconds = now - started
    return Event(progress, total / tokens, tokens / (now - begun), 0.0)


class Window:
    """What training did since the last validation."""

    def __init__(self, progress: Progress) -> None:
        self.tokens_before, self.began = progress.tokens, time.perf_counter()
        self.loss, self.rate, self.steps = 0.0, 0.0, 0

    def add(self, event: Event, rate: float) -> None:
        self.loss, self.rate, self.steps = self.loss + event.loss, rate, self.steps + 1

    def metrics(self, progress: Progress) -> dict[str, float]:
        if not self.steps:
            return {}
        seconds = time.perf_counter() - self.began
        return {
            "loss": round(self.loss / self.steps, 4),
            "learning_rate": float(f"{self.rate:.4g}"),
            "tokens_per_second": round((progress.tokens - self.tokens_before) / max(seconds, 1e-9)),
        }


def _validate(
    model: nn.Module, lesson: Lesson, progress: Progress, folder: RunFolder, window: Window
) -> dict[str, float]:
    trained = window.metrics(progress)
    model.eval()
    with torch.no_grad():
        scores = lesson.validate(model)
    model.train()
    rank = rank_of(scores)
    if progress.best is None or rank > (progress.best, progress.best_tie):
        progress.best, progress.best_tie = rank
        progress.best_step, progress.since_best = progress.step, 0
    else:
        progress.since_best += 1
    folder.add_metrics(
        step=progress.step, epoch=progress.epoch, seconds=round(progress.seconds, 1), **scores, **trained
    )
    return scores


def rank_of(scores: dict[str, float]) -> tuple[float, float]:
    """What scores are compared by. A metric may say the same of everything: BLEU does of outputs of three words."""
    first, *rest = (value if math.isfinite(value) else -math.inf for value in scores.values())
    return first, -rest[0] if rest else 0.0


def _finish(
    model: nn.Module, lesson: Lesson, folder: RunFolder, progress: Progress, best: dict[str, float], reason: str | None
) -> Outcome:
    """The mean of the last checkpoints, or the best one: whichever scores higher on the validation data."""
    best_state = load_tensors(folder.path / MODEL)
    states = [load_tensors(path / MODEL) for path in validated(checkpoints(folder.path))]
    model.eval()
    with torch.no_grad():
        if not best:
            model.load_state_dict(best_state)
            best = lesson.validate(model)
        mean = average(states)
        model.load_state_dict(mean)
        scores = lesson.validate(model)
    if rank_of(scores) >= rank_of(best):
        return Outcome(reason or "", progress, mean, scores, f"mean of the last {len(states)} checkpoints")
    model.load_state_dict(best_state)
    return Outcome(reason or "", progress, best_state, best, f"best checkpoint, step {progress.best_step}")
