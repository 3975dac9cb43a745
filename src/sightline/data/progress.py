"""The progress of long work, for a listener. Without one it costs next to nothing."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Listener = Callable[[str, int, int | None], None]  # what is done, how many rows of it, and of how many if that is known
EVERY = 0.2  # seconds

Item = TypeVar("Item")
_watching: ContextVar[Listener | None] = ContextVar("watching", default=None)


@contextmanager
def watched(listener: Listener) -> Iterator[None]:
    """Within the block the listener is told, a few times a second and at the end of each kind of work."""
    token = _watching.set(listener)
    try:
        yield
    finally:
        _watching.reset(token)


def counted(
    items: Iterable[Item], stage: str, total: int | None = None, rows: Callable[[Item], int] | None = None
) -> Iterator[Item]:
    """The items as they come; the listener is told how many rows there were, one for each item or as ``rows`` says."""
    listener = _watching.get()
    if listener is None:
        yield from items
        return
    done, last = 0, time.monotonic()
    for item in items:
        yield item
        done += 1 if rows is None else rows(item)
        # The clock is not looked at for every one of millions of rows.
        if (rows is not None or not done % 512) and (now := time.monotonic()) - last > EVERY:
            last = now
            listener(stage, done, total)
    listener(stage, done, total)
