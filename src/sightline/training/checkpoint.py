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
    best_tie: float = 0.0
    best_step: int = 0
    since_best: int = 0


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    keep: int,
    interrupted: bool = False,
) -> Path:
    """Write ``checkpoints/step-N`` under a temporary name, rename it when whole, drop the oldest beyond ``keep``.

    One that an interrupt wrote is for going on only: it goes when training has come to its next validation, so that a
    run that was interrupted ends like one that was not.
    """
    path = folder / "checkpoints" / f"step-{progress.step}"
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        save_tensors(part / "model.safetensors", dict(model.state_dict()))
        tensors, numbers = _flatten(optimiser)
        save_tensors(part / "optimiser.safetensors", {**tensors, **_random_states()})
        about = {"progress": asdict(progress), "optimiser": numbers, "interrupted": interrupted}
        text = json.dumps(about, indent=2)
        (part / STATE).write_text(text, encoding="utf-8")
        shutil.rmtree(path, ignore_errors=True)
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    if not interrupted:
        kept = validated(checkpoints(folder))[-keep:]
        for old in checkpoints(folder):
            if old not in kept:
                shutil.rmtree(old)
    return path


def validated(paths: list[Path]) -> list[Path]:
    """Those that a validation wrote; all, if none was."""
    return [path for path in paths if not _read_state(path).get("interrupted")] or paths


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path / STATE} is damaged: {error}") from None
    if not isinstance(state, dict):
        raise UserError(f"{path / STATE} is damaged: it holds no fields")
    return state


def _random_states() -> dict[str, Tensor]:
    """Of the processor, and of a graphics card, which draws its own dropout."""
    states = {"torch_random": torch.get_rng_state()}
    return states | ({"cuda_random": torch.cuda.get_rng_state()} if torch.cuda.is_available() else {})


def checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first."""
    found = [path for path in (folder / "checkpoints").glob("step-*") if (path / STATE).exists()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def load_checkpoint(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
    """Put model, optimiser and random state back as they were."""
    state = _read_state(path)
    try:
        known = {field.name for field in fields(Progress)}
        progress = Progress(**{name: value for name, value in state["progress"].items() if name in known})
        numbers = state["optimiser"]
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path / STATE} is damaged: {error}") from None
    model.load_state_dict(load_tensors(path / "model.safetensors"))
    tensors = load_tensors(path / "optimiser.safetensors")
    torch.set_rng_state(tensors.pop("torch_random"))
    card = tensors.pop("cuda_random", None)
    if card is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(card)
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
