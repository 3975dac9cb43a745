"""Checkpoints for going on: model, optimiser, random state and position, as safetensors and JSON, each folder whole."""

import json
import os
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.errors import UserError
from sightline.training.folder import load_tensors, save_tensors

STATE = "state.json"


@dataclass
class Progress:
    """Where training stands. Batches are counted within the epoch."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    since_best: int = 0


def save_checkpoint(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, progress: Progress, keep: int
) -> Path:
    """Write ``checkpoints/step-N`` under a temporary name, rename it when whole, drop the oldest beyond ``keep``."""
    path = folder / "checkpoints" / f"step-{progress.step}"
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_tensors(part / "model.safetensors", dict(model.state_dict()))
        tensors, numbers = _flatten(optimiser)
        save_tensors(part / "optimiser.safetensors", {**tensors, "torch_random": torch.get_rng_state()})
        text = json.dumps({"progress": asdict(progress), "optimiser": numbers}, indent=2)
        (part / STATE).write_text(text, encoding="utf-8")
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    for old in checkpoints(folder)[:-keep]:
        shutil.rmtree(old)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first."""
    found = [path for path in (folder / "checkpoints").glob("step-*") if (path / STATE).exists()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def load_checkpoint(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
    """Put model, optimiser and random state back as they were."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        progress = Progress(**{field.name: state["progress"][field.name] for field in fields(Progress)})
        numbers = state["optimiser"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path / STATE} is damaged: {error}") from None
    model.load_state_dict(load_tensors(path / "model.safetensors"))
    tensors = load_tensors(path / "optimiser.safetensors")
    torch.set_rng_state(tensors.pop("torch_random"))
    _unflatten(optimiser, tensors, numbers)
    return progress


def _flatten(optimiser: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's state as named tensors and plain numbers."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, values in optimiser.state_dict()["state"].items():
        for name, value in values.items():
            (tensors if isinstance(value, Tensor) else numbers)[f"{index}.{name}"] = value
    return tensors, numbers


def _unflatten(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for key, value in (*tensors.items(), *numbers.items()):
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
