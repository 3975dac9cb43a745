"""The end of training: which weights a run keeps."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from sightline.errors import UserError
from sightline.metrics.base import goodness
from sightline.training.checkpoint import Progress, checkpoints, validated, verify_checkpoint
from sightline.training.folder import MODEL, RunFolder, average, load_tensors

if TYPE_CHECKING:
    from sightline.training.loop import Lesson


class Outcome(NamedTuple):
    """How training ended: why, where, and the weights to use with their scores and where they come from."""

    reason: str
    progress: Progress
    weights: dict[str, Tensor]
    scores: dict[str, float]
    source: str
    verdict: str = ""  # how it compares with its baselines


def rank_of(scores: dict[str, float]) -> tuple[float, float]:
    """What scores are compared by. A metric may say the same of everything: BLEU does of outputs of three words."""
    (name, first), *rest = scores.items()
    first, second = goodness(name, first), -rest[0][1] if rest else 0.0
    return first if math.isfinite(first) else -math.inf, second if math.isfinite(second) else -math.inf


def finish(
    model: nn.Module,
    lesson: "Lesson",
    folder: RunFolder,
    progress: Progress,
    best: dict[str, float],
    reason: str | None,
    on_remark: Callable[[str], None],
) -> Outcome:
    """The mean of the last checkpoints, or the best one: whichever scores higher on the validation data."""
    best_state = _best_weights(folder, model, progress)
    states = [load_tensors(path / MODEL) for path in _whole(validated(checkpoints(folder.path)), on_remark)]
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


def _best_weights(folder: RunFolder, model: nn.Module, progress: Progress) -> dict[str, Tensor]:
    """Those of the best validation. A run that ended once may keep its weights in another form (LoRA: merged); then
    those of its checkpoint, or of the last one, where that is gone."""
    tensors = load_tensors(folder.path / MODEL)
    if tensors.keys() == model.state_dict().keys():
        return tensors
    there = checkpoints(folder.path)
    same = [path for path in there if path.name == f"step-{progress.best_step}"]
    return load_tensors((same or there)[-1] / MODEL)


def _whole(paths: list[Path], on_remark: Callable[[str], None]) -> list[Path]:
    """Those that are as they were written. The last one was read, or written, by this process."""
    chosen = []
    for path in paths[:-1]:
        try:
            verify_checkpoint(path)
            chosen.append(path)
        except UserError as error:
            on_remark(f"{error}; the mean of the last checkpoints is without it")
    return [*chosen, *paths[-1:]]
