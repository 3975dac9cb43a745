"""What trainings of several tasks share: a model by its seed, a sample to validate on, the loop."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from sightline.errors import UserError
from sightline.training.folder import RunFolder
from sightline.training.loop import Lesson, Outcome, TrainingConfig, train


@contextmanager
def building(seed: int, *, going_on: bool = False) -> Iterator[None]:
    """Inside, a model is built: always the same for the same seed. What cannot be built is said in one sentence.

    ``going_on``: it gets the weights of an earlier run, so where it cannot, it is not that run's model.
    """
    torch.manual_seed(seed)
    try:
        yield
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        if going_on:
            raise UserError(f"the model is not that of the run to go on from: {reason}") from None
        raise UserError(f"there is no model with this configuration: {reason}") from None


def validated_rows(rows: int, most: int, seed: int) -> list[int]:
    """The rows of the validation data that are scored in training: always the same for the same seed, in order."""
    return sorted(np.random.default_rng(seed).permutation(rows)[:most].tolist())


def train_by_seed(
    model: nn.Module,
    lesson: Lesson,
    config: TrainingConfig,
    seed: int,
    folder: RunFolder,
    device: str,
    listeners: dict[str, Any],
) -> Outcome:
    """Train the model, and leave it with the weights that training came to, ready for use.

    The seed is set anew: whatever was drawn before, training draws the same.
    """
    torch.manual_seed(seed)
    limited = config.limited(len(lesson.epoch(0)))
    outcome = train(model, lesson, limited, folder, device=device, **listeners)
    model.load_state_dict(outcome.weights)
    model.eval()
    return outcome


def timed_validation(lesson: Lesson, model: nn.Module) -> Callable[[], float]:
    """What tells how many seconds a validation takes, for a `Trial`."""

    def validating() -> float:
        began = time.perf_counter()
        lesson.validate(model)
        return time.perf_counter() - began

    return validating
