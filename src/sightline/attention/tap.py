"""The door through which attention is seen and changed.

Outside `open_tap` nothing here runs and the fused kernels make no weights. Inside, a mechanism takes its plain path
and hands every tap what it is about to read with. The taps live in a `ContextVar`: another thread, or another
`asyncio` task, does not see them.
"""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn


class Look(NamedTuple):
    """One call of a mechanism, or one block of its queries, just before it reads.

    ``heads`` counts the head axes. A mechanism that shows a call in several looks says how many rows it showed before
    (``shown``) and how many are still to come (``to_come``), so that a tap can set aside room for all of them at once.
    ``passage`` is the carry's: calls that pass on one carry have the same number. ``numbers`` says which heads these
    are, where not all of them are shown.
    """

    mechanism: nn.Module
    position: int
    scores: Float[Tensor, "*b t s"]
    weights: Float[Tensor, "*b t s"]
    allowed: Bool[Tensor, "..."] | None
    heads: int = 0
    shown: int = 0
    to_come: int = 0
    passage: int = 0
    numbers: tuple[int, ...] | None = None


class Tap:
    """Sees every look and gives back the weights to read with: the same ones, or others (an intervention)."""

    # The largest tensor of weights this tap wants to see at once, in elements. A mechanism that can work in blocks
    # of queries keeps below it, so that memory stays linear in the length of the input.
    largest: int | None = None
    changes = True  # whether it may give back other weights than it was shown

    def sees(self, mechanism: nn.Module) -> bool:
        """Whether it is about the model that this mechanism is a part of."""
        return True

    def heads(self, mechanism: nn.Module, count: int) -> Sequence[int]:
        """Which of its ``count`` heads this tap wants to see: all, some, or none. More may be shown to it."""
        return range(count)

    def __call__(self, look: Look) -> Float[Tensor, "*b t s"]:
        return look.weights


_taps: ContextVar[tuple[Tap, ...]] = ContextVar("sightline_taps", default=())


def active_taps() -> tuple[Tap, ...]:
    """The taps open in this thread or task, outermost first."""
    return _taps.get()


@contextmanager
def open_tap(tap: Tap) -> Iterator[None]:
    """Let ``tap`` see every mechanism that runs inside the block, in this thread only."""
    token = _taps.set((*_taps.get(), tap))
    try:
        yield
    finally:
        _taps.reset(token)


_repeat: ContextVar[int | None] = ContextVar("sightline_repeat", default=None)


@contextmanager
def repeat_number(number: int) -> Iterator[None]:
    """Say which repeat of a shared layer runs inside the block, so that `capture` keeps the repeats apart."""
    if not _taps.get():
        yield
        return
    token = _repeat.set(number)
    try:
        yield
    finally:
        _repeat.reset(token)


def repeat_suffix() -> str:
    """What the name of an attention ends with inside a repeat, such as ``@2``; empty elsewhere."""
    number = _repeat.get()
    return "" if number is None else f"@{number}"


def suffix_of(name: str) -> str:
    """What `repeat_suffix` was when an attention got this name."""
    _, at, number = name.rpartition("@")
    return at + number if at else ""


def show(look: Look) -> Float[Tensor, "*b t s"]:
    """Pass a look through the open taps. The one call that makes any attention module visible to `capture`."""
    for tap in _taps.get():
        look = look._replace(weights=tap(look))
    return look.weights


def show_attention(
    module: nn.Module,
    weights: Float[Tensor, "*b t s"],
    scores: Float[Tensor, "*b t s"] | None = None,
    *,
    allowed: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*b t s"]:
    """Make an attention module of your own visible to `capture`. Call it with the weights, and read with the result::

        weights = show_attention(self, torch.softmax(scores, dim=-1), scores)
        return weights @ values

    The axes are batch, head, row, column; without heads batch, row, column; or just row, column. ``scores`` are those
    before the softmax, ``allowed`` says which column each row may see (`uniform` spreads over those). Where nothing is
    captured the same weights come back at once; inside `capture(model, change=...)` they may be others.
    """
    if not _taps.get():
        return weights
    scores = weights.log() if scores is None else scores
    return show(Look(module, 0, scores, weights, allowed, heads=1 if weights.dim() > 3 else 0, passage=new_passage()))


def requested_heads(mechanism: nn.Module, count: int) -> list[int]:
    """The heads of a mechanism that some open tap wants to see, in order."""
    return sorted({head for tap in _taps.get() if tap.sees(mechanism) for head in tap.heads(mechanism, count)})


_passages = itertools.count(1)


def new_passage() -> int:
    """A number that no other chain of calls has."""
    return next(_passages)


def rows_at_once(queries: int, elements_per_row: int) -> int:
    """How many queries to handle at once, so that no open tap is shown more than it asked for."""
    limits = [tap.largest for tap in _taps.get() if tap.largest is not None]
    if not limits:
        return max(queries, 1)
    return max(1, min(queries, min(limits) // max(elements_per_row, 1)))
