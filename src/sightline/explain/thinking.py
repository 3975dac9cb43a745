"""How often models that decide it repeat their steps (`sightline.nn.thinking`): seen while they run, or fixed."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.tap import suffix_of
from sightline.explain.explanation import Stack
from sightline.nn.thinking import FixedRepeatsConfig, Halting, Thought
from sightline.records import Axis, Record, Slots, Tokens

REPEATS = "repeats"
NAMED = 3  # positions in a note


class Repeated(NamedTuple):
    """The weight of each repeat at each position, and how many repeats a position had."""

    weights: Float[Tensor, "n ..."]
    repeats: Float[Tensor, "*b"]


class SeenRepeats:
    """The repeats of every position, call by call, in this thread."""

    def __init__(self) -> None:
        self._sum, self._count = 0.0, 0
        self.last: Repeated | None = None  # of the last call

    def see(self, module: Halting, given: tuple[Any, ...], named: Mapping[str, Any], thought: Thought) -> None:
        there = named.get("there", given[2] if len(given) > 2 else None)
        self.last = Repeated(thought.weights.detach(), thought.repeats.detach())
        self._sum += float(self.last.repeats.sum())  # 0 where there is nothing
        self._count += self.last.repeats.numel() if there is None else int(there.sum())

    @property
    def mean(self) -> float | None:
        """Of all positions that were there; None where nothing decided how often to repeat."""
        return self._sum / self._count if self._count else None


@contextmanager
def watch_repeats(model: nn.Module) -> Iterator[SeenRepeats]:
    """Count the repeats of every part of the model that decides how often to repeat, inside the block."""
    seen = SeenRepeats()
    with _hooked(model, seen.see):
        yield seen


@contextmanager
def fixed_repeats(model: nn.Module, repeats: int) -> Iterator[None]:
    """Inside the block, every part of the model that decides how often to repeat does so ``repeats`` times.

    The result is the state after the last repeat. Nothing of the model is changed; other threads see no difference.
    """
    fixed = FixedRepeatsConfig(repeats).build(1)

    def instead(module: Halting, given: tuple[Any, ...], named: Mapping[str, Any], thought: Thought) -> Thought:
        made: Thought = fixed(*given, **named)
        return made

    with _hooked(model, instead):
        yield


@contextmanager
def _hooked(
    model: nn.Module, hook: Callable[[Halting, tuple[Any, ...], Mapping[str, Any], Thought], Thought | None]
) -> Iterator[None]:
    """Call ``hook`` after every part that decides how often to repeat, in this thread; what it gives is the result."""
    thread = threading.get_ident()

    def own(module: Halting, given: tuple[Any, ...], named: Mapping[str, Any], thought: Thought) -> Thought | None:
        return hook(module, given, named, thought) if threading.get_ident() == thread else None

    halting = [module for module in model.modules() if isinstance(module, Halting)]
    hooks = [module.register_forward_hook(own, with_kwargs=True) for module in halting]
    try:
        yield
    finally:
        for one in hooks:
            one.remove()


def repeats_map(
    repeated: Repeated | None, axis: Axis, names: Iterable[str] = ()
) -> tuple[list[Record], list[Stack], list[str]]:
    """The weight of each repeat at each position of one example: a record, its stack and a note.

    Rows are positions, columns repeats. ``names`` are those of the attention that is shown beside it. Nothing where the
    number of repeats is fixed (``repeated`` is None).
    """
    if repeated is None or repeated.repeats.numel() < len(axis):
        return [], [], []
    weights = repeated.weights.flatten(1)[:, : len(axis)].t().float().cpu().numpy()
    repeats = repeated.repeats.flatten()[: len(axis)].float().cpu().numpy()
    record = Record(REPEATS, 0, 0, axis, Slots(weights.shape[1], "repeat"), np.ascontiguousarray(weights))
    stack = Stack("The weight of each repeat", "self", (REPEATS,))
    longest = np.argsort(-repeats, kind="stable")[:NAMED]
    texts = [axis.texts[place] if isinstance(axis, Tokens) else f"position {place + 1}" for place in longest.tolist()]
    often = ", ".join(f"{text!r} {repeats[place]:.3g}" for text, place in zip(texts, longest.tolist(), strict=True))
    differ = f", most often {often}" if repeats.max() > repeats.min() else ", each as often"
    note = f"the model decides how often to repeat: {repeats.mean():.2f} times on average{differ}"
    if any(map(suffix_of, names)):
        note += "; a position that has halted still has rows in the maps of later repeats, which it does not use"
    return [record], [stack], [note]
