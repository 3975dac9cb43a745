"""States of decoding: any nest of tuples of tensors with the batch axis first. One function reorders them all."""

from typing import Any, NamedTuple, TypeVar

from jaxtyping import Int
from torch import Tensor

State = TypeVar("State")


class Shared(NamedTuple):
    """A part of a state that all hypotheses of one sentence have in common, such as its annotations: kept once."""

    part: Any


def select(state: State, rows: Int[Tensor, " n"]) -> State:
    """Reorder, repeat or drop rows of the batch in a memory, a carry or any nest of tuples of them (beams).

    Works on whatever follows the contract because states are plain tuples of tensors with the batch axis first.
    """
    if isinstance(state, Tensor):
        return state.index_select(0, rows)  # type: ignore[return-value]
    if isinstance(state, tuple):
        parts = [select(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)  # type: ignore[return-value]
    if state is None or isinstance(state, int):
        return state
    raise TypeError(f"select: a state is made of tuples, tensors, integers and None, not of {type(state).__name__}")


def reorder(state: State, rows: Int[Tensor, " n"], sentences: Int[Tensor, " s"] | None) -> State:
    """As `select`, for beams: ``rows`` are the hypotheses that go on, ``sentences`` those that stay (None: all).

    What the hypotheses of a sentence share is touched only when a sentence leaves.
    """
    if isinstance(state, Shared):
        return state if sentences is None else select(state, sentences)
    if isinstance(state, tuple):
        parts = [reorder(part, rows, sentences) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)  # type: ignore[return-value]
    return select(state, rows)
