"""Several processes that train one model: each takes its share of every update, and all make the same step.

Started by `torchrun` or anything else that sets RANK and WORLD_SIZE. Gradients are summed over the processes and not
averaged over them, and the loss is a mean over the tokens of all: two processes with one batch each do what one does
with two.
"""

import functools
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from sightline.errors import MachineError, UserError

RESTARTS = "TORCHELASTIC_RESTART_COUNT"  # `torchrun` sets it
PATIENCE = timedelta(hours=12)  # the others wait while the first process prepares data, validates and writes


LOST = ("gloo", "NCCL", "peer", "store")  # in errors of the connection
P = ParamSpec("P")
T = TypeVar("T")


def _with_others(method: Callable[P, T]) -> Callable[P, T]:
    """Say in a sentence that a process was lost: the others notice when they next wait for it."""

    @functools.wraps(method)
    def call(*given: P.args, **named: P.kwargs) -> T:
        try:
            return method(*given, **named)
        except RuntimeError as error:
            if not any(words in str(error) for words in LOST):
                raise
            raise MachineError(
                "another process of this training ended or cannot be reached; see what it printed, and continue with "
                "sightline resume"
            ) from error

    return call


class Ranks:
    """The processes of a training; one alone unless a launcher says otherwise."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self.rank, self.count = rank, count

    @classmethod
    def join(cls, device: str = "cpu") -> "Ranks":
        """Meet the other processes, if a launcher started any."""
        count = _number("WORLD_SIZE", 1)
        if count == 1:
            return cls()
        if not dist.is_initialized():
            backend = "nccl" if device == "cuda" else "gloo"
            if device == "cuda":
                torch.cuda.set_device(_number("LOCAL_RANK", 0))
            dist.init_process_group(backend, timeout=PATIENCE)
        return cls(dist.get_rank(), dist.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    def is_restart(self) -> bool:
        """Whether a launcher restarted the processes after one of them was lost. Every machine counts for itself:
        the processes of the others may not know."""
        return self.sum(float(_number(RESTARTS, 0)))[0] > 0

    @staticmethod
    def is_launched() -> bool:
        """Whether a launcher started other processes with this one."""
        return _number("WORLD_SIZE", 1) > 1

    def share(self, batches: Sequence[Any]) -> Sequence[Any]:
        """This process's part of the batches of an update: every batch has one process."""
        return batches[self.rank :: self.count] if self.count > 1 else batches

    @_with_others
    def sum(self, *numbers: float) -> list[float]:
        """Each number, summed over the processes."""
        if self.count == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64, device=_device())
        dist.all_reduce(total)
        return total.tolist()

    @_with_others
    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Of all processes, in every process. One without a batch left has none of its own, which counts as zeros."""
        if self.count == 1:
            return
        learning = [parameter for parameter in parameters if parameter.requires_grad]
        used = torch.tensor([parameter.grad is not None for parameter in learning], dtype=torch.int32, device=_device())
        dist.all_reduce(used)
        by_type: dict[torch.dtype, list[nn.Parameter]] = {}
        for parameter, anywhere in zip(learning, used.tolist(), strict=True):
            if anywhere:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                by_type.setdefault(parameter.dtype, []).append(parameter)
        for some in by_type.values():
            _sum_together([parameter.grad for parameter in some if parameter.grad is not None])

    @_with_others
    def from_first(self, value: Any) -> Any:
        """What the first process has, in every process: plain data."""
        if self.count == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0)
        return held[0]

    @_with_others
    def to_first(self, value: Any) -> list[Any]:
        """What every process has, in the order of the processes; elsewhere than in the first one, nothing."""
        if self.count == 1:
            return [value]
        values: list[Any] | None = [None] * self.count if self.is_first else None
        dist.gather_object(value, values, dst=0)
        return values or []

    @_with_others
    def same_start(self, model: nn.Module, step: int) -> None:
        """The first process's parameters in all of them, and other draws (of dropout) in each.

        With the step in the seed, training that resumes does not draw again what it drew at its start.
        """
        if self.count == 1:
            return
        with torch.no_grad():
            for tensor in model.state_dict().values():
                dist.broadcast(tensor, src=0)
        seed = self.from_first(torch.initial_seed())
        if not self.is_first:
            torch.manual_seed((seed + 1_000_003 * self.rank + 7_919 * step) % 2**63)

    @_with_others
    def wait(self) -> None:
        """Until all processes are here."""
        if self.count > 1:
            dist.barrier()


def launch_id() -> str | None:
    """The same for a launcher and its restarts, another for the next launcher, None without one that restarts.

    `torchrun` has an id where it is given one or picks one, and "none" otherwise: then it is known by its process.
    """
    if RESTARTS not in os.environ:
        return None
    given = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if given != "none":
        return given
    parent = os.getppid()
    about = Path(f"/proc/{parent}/stat")
    began = about.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19] if about.exists() else ""
    return f"{platform.node()} {parent} {began}"


def own_device(device: str | torch.device) -> torch.device:
    """One device for this process: of several cards that of its number on the machine."""
    device = torch.device(device)
    if device.type == "cuda":
        device = torch.device("cuda", _number("LOCAL_RANK", 0) if device.index is None else device.index)
        torch.cuda.set_device(device)
    return device


def _sum_together(gradients: Sequence[Tensor]) -> None:
    """In one message: many small ones take as long as one large one each."""
    joined = torch.cat([gradient.reshape(-1) for gradient in gradients])
    dist.all_reduce(joined)
    for gradient, part in zip(gradients, joined.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise UserError(f"the environment's {name} is {text!r}; a launcher sets it to a number")
    return int(text)
