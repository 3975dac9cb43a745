"""How often models that decide it repeat their steps (`sightline.nn.thinking`): seen while they run."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from sightline.explain.explanation import Stack
from sightline.nn.thinking import Halting, Thought
from sightline.records import Axis, Record, Tokens

REPEATS = "repeats"
NAMED = 3  # tokens in a note


class SeenRepeats:
    """The repeats of every position, call by call, in this thread."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._sum, self._count, self.most = 0.0, 0, 0
        self.last: Float[Tensor, ...] | None = None  # of the last call

    def see(self, module: Halting, given: tuple[Any, ...], named: Mapping[str, Any], thought: Thought) -> None:
        if threading.get_ident() != self._thread:  # other threads may use the model
            return
        there = named.get("there", given[2] if len(given) > 2 else None)
        self.last, self.most = thought.repeats.detach(), module.most
        self._sum += float(self.last.sum())  # 0 where there is nothing
        self._count += self.last.numel() if there is None else int(there.sum())

    @property
    def mean(self) -> float | None:
        """Of all positions that were there; None where nothing decided how often to repeat."""
        return self._sum / self._count if self._count else None


@contextmanager
def watch_repeats(model: nn.Module) -> Iterator[SeenRepeats]:
    """Count the repeats of every part of the model that decides how often to repeat, inside the block."""
    seen = SeenRepeats()
    halting = [module for module in model.modules() if isinstance(module, Halting)]
    hooks = [module.register_forward_hook(seen.see, with_kwargs=True) for module in halting]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def repeats_map(seen: SeenRepeats, axis: Axis) -> tuple[list[Record], list[Stack], list[str]]:
    """How often each position of one example was repeated: a record, its stack and a note; nothing where it is fixed.

    The record has one row. Its weights are shares of the most repeats there may be.
    """
    if seen.last is None or seen.last.numel() < len(axis):
        return [], [], []
    repeats = seen.last.flatten()[: len(axis)].float().cpu().numpy()
    record = Record(REPEATS, 0, 0, Tokens((REPEATS,)), axis, (repeats / seen.most)[None].astype(np.float32))
    stack = Stack(f"How often each position was repeated (1 is {seen.most} times)", "pool", (REPEATS,))
    longest = np.argsort(-repeats, kind="stable")[:NAMED]
    names = [axis.texts[place] if isinstance(axis, Tokens) else f"position {place + 1}" for place in longest.tolist()]
    often = ", ".join(f"{name!r} {repeats[place]:.3g}" for name, place in zip(names, longest.tolist(), strict=True))
    note = (
        f"the model decides how often to repeat: {repeats.mean():.2f} times on average, most often {often}; a position "
        "that has halted still has rows in the maps of later repeats, which it does not use"
    )
    return [record], [stack], [note]
