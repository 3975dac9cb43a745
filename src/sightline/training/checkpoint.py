"""Checkpoints for resuming: model, optimiser, random state and position, as safetensors and JSON, each folder whole.

A checkpoint is written under another name and renamed when it is on the disk, and it keeps the checksums of its files:
whatever happens to the process or the disk, the last good one is found.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.errors import MachineError, UserError
from sightline.files import read_json
from sightline.training.folder import MODEL, RunFolder, checksum, load_tensors, save_tensors, verify_files

STATE, OPTIMISER = "state.json", "optimiser.safetensors"
RESUMABLE = 2  # of the checkpoints that are kept for their mean; a damaged one leaves another


@dataclass
class Progress:
    """Where training stands. Batches are counted within the epoch; ``pending``: this step is still to be validated.

    ``planned`` batches make the epoch, and ``together`` an update: where they differ when training resumes, its
    place in the epoch is another, too. ``first_loss`` is that of the first step.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_tie: float = 0.0
    best_step: int = 0
    since_best: int = 0
    pending: bool = False
    planned: int = 0
    together: int = 0
    first_loss: float = 0.0


def save_checkpoint(
    folder: Path,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    progress: Progress,
    keep: int,
    interrupted: bool = False,
) -> Path:
    """Write ``checkpoints/step-N``, and drop the oldest beyond ``keep``.

    One that no validation wrote is for resuming only: it is deleted at the next validation, so that a
    run that was interrupted ends like one that was not.
    """
    path = folder / "checkpoints" / f"step-{progress.step}"
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        save_tensors(part / MODEL, dict(model.state_dict()))
        tensors, numbers = _flatten(optimiser)
        save_tensors(part / OPTIMISER, {**tensors, **_random_states()})
        files = {name: checksum(part / name) for name in (MODEL, OPTIMISER)}
        about = {"progress": asdict(progress), "optimiser": numbers, "interrupted": interrupted, "files": files}
        with (part / STATE).open("w", encoding="utf-8") as file:
            file.write(json.dumps({**about, "digest": _digest(about)}, indent=2))
            file.flush()
            os.fsync(file.fileno())
        if path.exists():  # of the same step, before its validation; until the new one is there, it must not be lost
            path.rename(_aside(path))
        part.rename(path)
        _to_disk(path.parent)
        shutil.rmtree(_aside(path), ignore_errors=True)
    except OSError as error:
        raise MachineError(
            f"cannot write {path}: {error.strerror or error}; the checkpoints before are whole"
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    _drop_old(folder, path, keep, interrupted)
    return path


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.aside")


def put_back(folder: Path) -> None:
    """What a killed process had put aside and not replaced."""
    for aside in (folder / "checkpoints").glob(".step-*.aside"):
        path = aside.with_name(aside.name[1:].removesuffix(".aside"))
        shutil.rmtree(aside, ignore_errors=True) if path.exists() else aside.rename(path)


def _drop_old(folder: Path, newest: Path, keep: int, interrupted: bool) -> None:
    """Of those that validations wrote the last ones stay, of the others the newest until the next validation."""
    there = checkpoints(folder)
    kept = [path for path in there if not _only_for_going_on(path)][-keep:]
    for old in there:
        if old not in kept and not (interrupted and old == newest):
            shutil.rmtree(old, ignore_errors=True)
    drop_optimisers(kept[:-RESUMABLE])


def drop_optimisers(paths: list[Path]) -> None:
    """Of checkpoints whose weights only the mean of the last ones needs; an optimiser is twice as large as they are."""
    for path in paths:
        (path / OPTIMISER).unlink(missing_ok=True)


def _to_disk(folder: Path) -> None:
    """The names in a folder, as `fsync` does it for what a file holds; where the system has no such thing, nothing."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def validated(paths: list[Path]) -> list[Path]:
    """Those that a validation wrote; all, if none was."""
    return [path for path in paths if not _only_for_going_on(path)] or paths


def _only_for_going_on(path: Path) -> bool:
    try:
        return bool(_read_state(path).get("interrupted"))
    except UserError:  # damaged: training is beyond it, or would have said so
        return True


def _read_state(path: Path) -> dict[str, Any]:
    try:
        state = read_json(path / STATE)
    except (OSError, ValueError, RecursionError) as error:
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
    paths = [path for path in (folder / "checkpoints").glob("step-*") if (path / STATE).exists()]
    return sorted((path for path in paths if _step_of(path) is not None), key=lambda path: _step_of(path) or 0)


def _step_of(path: Path) -> int | None:
    number = path.name.removeprefix("step-")
    return int(number) if number.isdecimal() and len(number) < 19 else None


def resume_from(
    folder: RunFolder, model: nn.Module, optimiser: torch.optim.Optimizer, on_remark: Callable[[str], None]
) -> tuple[Progress, Path | None]:
    """Where the last good checkpoint stands, with everything put back as it was there; at the start, if there is none.

    Damaged checkpoints are named and left behind: training comes to their place again.
    """
    put_back(folder.path)
    there = checkpoints(folder.path)
    for path in reversed(there):
        try:
            verify_checkpoint(path)
            progress = load_checkpoint(path, model, optimiser)
        except UserError as error:
            if path == there[0]:
                raise UserError(f"{error}; it is the last checkpoint, and there is none before it") from None
            on_remark(f"{error}; resuming from the checkpoint before it")
            continue
        for damaged in there[there.index(path) + 1 :]:
            shutil.rmtree(damaged)
        folder.rewind_metrics(progress.step, progress.pending)
        return progress, path
    if (folder.path / MODEL).exists():  # it ended before its first checkpoint: what it began with stands there
        model.load_state_dict(load_tensors(folder.path / MODEL))
    folder.rewind_metrics(0, pending=True)
    return Progress(), None


def verify_checkpoint(path: Path) -> None:
    """Every file of a checkpoint is what was written. Those of earlier versions keep no checksums."""
    state = _read_state(path)
    if "files" not in state and "digest" not in state:
        return
    files = state.get("files")
    if state.pop("digest", None) != _digest(state) or not isinstance(files, dict) or set(files) != {MODEL, OPTIMISER}:
        raise UserError(f"{path / STATE} is damaged: it is not what was written")
    dropped = () if (path / OPTIMISER).exists() else (OPTIMISER,)
    verify_files(path, files, STATE, dropped, linked=True)  # their names are fixed; a large disk may be elsewhere


def _digest(state: dict[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(state, sort_keys=True).encode(), digest_size=16).hexdigest()


def read_progress(path: Path) -> Progress:
    """Where training stood."""
    written = _read_state(path).get("progress")
    if not isinstance(written, dict):
        raise UserError(f"{path / STATE} is damaged: it does not say where training stood")
    known: dict[str, Any] = {}
    for field in fields(Progress):
        value = written.get(field.name, field.default)
        if not (isinstance(value, int | float) or (value is None and field.name == "best")):
            raise UserError(f"{path / STATE} is damaged: {field.name} is {str(value)[:50]!r}")
        known[field.name] = value
    return Progress(**known)


def load_checkpoint(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
    """Put model, optimiser and random state back as they were."""
    progress, numbers = read_progress(path), _read_state(path).get("optimiser", {})
    tensors = load_tensors(path / OPTIMISER)
    try:
        model.load_state_dict(load_tensors(path / MODEL))
        torch.set_rng_state(tensors.pop("torch_random"))
        card = tensors.pop("cuda_random", None)
        if card is not None and torch.cuda.is_available():
            torch.cuda.set_rng_state(card)
        _unflatten(optimiser, tensors, numbers)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} is damaged: {reason}") from None
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
