"""States of decoding: any nest of tuples of tensors with the batch axis first. One function reorders them all."""

from typing import Any

from jaxtyping import Int
from torch import Tensor


def select(state: Any, rows: Int[Tensor, " n"]) -> Any:
    """Reorder, repeat or drop rows of the batch in a memory, a carry or any nest of tuples of them (beams).

    Works on whatever follows the contract because states are plain tuples of tensors with the batch axis first.
    """
    if isinstance(state, Tensor):
        return state.index_select(0, rows)
    if isinstance(state, tuple):
        parts = [select(part, rows) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    if state is None or isinstance(state, int):
        return state
    raise TypeError(f"select: a state is made of tuples, tensors, integers and None, not of {type(state).__name__}")
