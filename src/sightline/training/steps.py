"""One update of a model: its batches, its gradients, its step. The loop is in `sightline.training.loop`."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from sightline.errors import UserError
from sightline.training.checkpoint import Progress
from sightline.training.groups import parameter_groups
from sightline.training.ranks import Ranks

if TYPE_CHECKING:
    from sightline.training.loop import Lesson, TrainingConfig

ALONE = Ranks()
DIVERGED = 30  # times the first loss, or 30 nats


class Event(NamedTuple):
    """What a progress display gets after every step. ``share`` is how much of the way to the nearest limit is done;
    ``parts`` are those of the loss, where it names them, and ``measures`` other numbers that it names."""

    progress: Progress
    loss: float
    tokens_per_second: float
    share: float
    parts: dict[str, float] = {}  # noqa: RUF012 - never written to
    measures: dict[str, float] = {}  # noqa: RUF012


NOISE_DECAY = 0.55  # of the variance of gradient noise


def to_device(batch: Any, device: torch.device) -> Any:
    """The same tuples, lists and dictionaries with their tensors, and what has a ``to`` of its own, on the device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=device.type == "cuda")
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: to_device(one, device) for name, one in batch.items()}
    if isinstance(batch, tuple | list):
        moved = [to_device(one, device) for one in batch]
        return type(batch)(*moved) if hasattr(batch, "_fields") else type(batch)(moved)
    return batch


def make_optimiser(model: nn.Module, config: "TrainingConfig") -> torch.optim.Optimizer:
    """AdamW with the betas of the Transformer; biases, norms and vectors do not decay."""
    groups = parameter_groups(model, config.weight_decay, config.layer_decay)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=True)


class Gradients(NamedTuple):
    """What an update is made from: the sum of the losses and of the tokens of all processes, and who wants to stop.

    ``parts`` are those of this process's losses, where they name them; ``measures`` are no parts (repeats).
    """

    total: float
    tokens: int
    stopping: bool
    parts: dict[str, float] = {}  # noqa: RUF012 - never written to
    measures: dict[str, float] = {}  # noqa: RUF012


def gradients(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    lesson: "Lesson",
    batches: Sequence[Any],
    config: "TrainingConfig",
    ranks: Ranks = ALONE,
    stopping: bool = False,
) -> Gradients:
    """The clipped gradients of the batches of an update. The loss is the mean over all of the tokens, not over batches.

    ``stopping`` is whether this process was asked to stop: all must know before any of them does.
    """
    counted, asked = ranks.sum(float(sum(lesson.tokens(batch) for batch in batches)), float(stopping))
    tokens = max(1, int(counted))  # none: nothing in them has a label
    optimiser.zero_grad(set_to_none=True)
    total, parts, measures = 0.0, dict[str, float](), dict[str, float]()
    for batch in batches:
        loss = lesson.loss(model, batch)
        (loss.total / tokens).backward()
        total += float(loss.total.detach())
        _add(parts, getattr(loss, "parts", {}))
        _add(measures, getattr(loss, "measures", {}))
    (total,) = ranks.sum(total)
    if math.isfinite(total):
        ranks.sum_gradients(model.parameters())
        # In the optimiser's order: the norm is a sum, and a sum in another order rounds otherwise.
        learning = [parameter for group in optimiser.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(learning, config.clip, error_if_nonfinite=False)
        if config.gradient_noise:
            add_noise(learning, config.gradient_noise, getattr(lesson, "step", 0))
    return Gradients(total, tokens, bool(asked), parts, measures)


def add_noise(parameters: Iterable[nn.Parameter], scale: float, step: int) -> None:
    """Gaussian noise of the variance η / (1 + t)^0.55 on clipped gradients (Neelakantan et al. 2015).

    It is drawn by the step alone: a resumed training draws the same, and so do several processes.
    """
    deviation = math.sqrt(scale / (1 + step) ** NOISE_DECAY)
    draws = torch.Generator().manual_seed(step)
    for parameter in parameters:
        if parameter.grad is not None:
            noise = torch.randn(parameter.shape, generator=draws) * deviation
            parameter.grad.add_(noise.to(parameter.grad))


def _add(sums: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        sums[name] = sums.get(name, 0.0) + float(value)


class Ahead:
    """Batches made in another thread while the step before is computed. Which ones they are does not depend on it."""

    def __init__(self, lesson: "Lesson") -> None:
        self._lesson = lesson
        self._thread = ThreadPoolExecutor(1)
        self._coming: tuple[list[Any], list[Future[Any]]] = ([], [])

    def take(self, handles: Sequence[Any], following: Sequence[Any]) -> list[Any]:
        """The batches of these handles; those of the handles that follow are begun."""
        expected, coming = self._coming
        waited = len(expected) == len(handles) and all(a is b for a, b in zip(expected, handles, strict=True))
        batches = [one.result() for one in coming] if waited else [self._lesson.batch(handle) for handle in handles]
        self._coming = (list(following), [self._thread.submit(self._lesson.batch, one) for one in following])
        return batches

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


class Stepper:
    """Makes updates, and counts them."""

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        lesson: "Lesson",
        config: "TrainingConfig",
        device: torch.device,
        ranks: Ranks,
        progress: Progress,
    ) -> None:
        self.model, self.optimiser, self.lesson, self.config = model, optimiser, lesson, config
        self.device, self.ranks, self.progress = device, ranks, progress
        self.started = time.perf_counter() - progress.seconds

    def diverged(self, what: str) -> UserError:
        """The error where training does not learn but runs away."""
        rate = self.config.learning_rate
        return UserError(f"{what}: training has diverged; choose a smaller --learning-rate than {rate:g}")

    def check(self, loss: float | None) -> None:
        """Refuse to go on where the mean loss since the last validation is far above the first one, or where a weight
        is no number: no checkpoint of such a model is worth keeping."""
        first = self.progress.first_loss
        if loss is not None and first and loss > DIVERGED * max(first, 1.0):
            raise self.diverged(f"the loss is {loss:.3g} at step {self.progress.step:,}, and was {first:.3g} at first")
        if not all(torch.isfinite(parameter).all() for parameter in self.model.parameters()):
            raise self.diverged(f"weights are no longer numbers at step {self.progress.step:,}")

    def step(self, ready: Sequence[Any], used: int, rate: float, stopping: bool) -> tuple[Event, bool]:
        """One update from this process's batches, out of ``used`` of all; and whether any process wants to stop."""
        begun, progress = time.perf_counter(), self.progress
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        batches = [to_device(batch, self.device) for batch in ready]
        self.lesson.step = progress.step  # type: ignore[attr-defined]
        summed = gradients(self.model, self.optimiser, self.lesson, batches, self.config, self.ranks, stopping)
        total, tokens, asked, parts, measures = summed
        if not math.isfinite(total):
            raise self.diverged(f"the loss is no longer a number at step {progress.step + 1:,}")
        progress.first_loss = progress.first_loss or total / tokens
        self.optimiser.step()
        progress.step += 1
        progress.batch += used
        progress.tokens += tokens
        now = time.perf_counter()
        progress.seconds = now - self.started
        means = [{name: one / tokens for name, one in some.items()} for some in (parts, measures)]
        return Event(progress, total / tokens, tokens / (now - begun), 0.0, *means), asked


class MetricsWindow:
    """What training did since the last validation."""

    def __init__(self, progress: Progress) -> None:
        self.tokens_before, self.began = progress.tokens, time.perf_counter()
        self.loss, self.rate, self.steps = 0.0, 0.0, 0
        self.parts, self.measures = dict[str, float](), dict[str, float]()

    def add(self, event: Event, rate: float) -> None:
        self.loss, self.rate, self.steps = self.loss + event.loss, rate, self.steps + 1
        _add(self.parts, event.parts)
        _add(self.measures, event.measures)

    def metrics(self, progress: Progress) -> dict[str, float]:
        if not self.steps:
            return {}
        seconds = time.perf_counter() - self.began
        return {
            "loss": round(self.loss / self.steps, 4),
            **{f"loss_{name}": round(part / self.steps, 4) for name, part in self.parts.items()},
            **{name: round(one / self.steps, 4) for name, one in self.measures.items()},
            "learning_rate": float(f"{self.rate:.4g}"),
            "tokens_per_second": round((progress.tokens - self.tokens_before) / max(seconds, 1e-9)),
        }
