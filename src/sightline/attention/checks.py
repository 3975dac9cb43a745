"""Wrong use, answered in one sentence: the argument, its shape, the shape that was expected."""

from typing import Any, get_args

import torch
from torch import Tensor


def _axes(*names: str | int) -> str:
    return "(" + ", ".join(["*batch", *map(str, names)]) + ")"


def check_float(name: str, tensor: Any, rows: str, size: int) -> None:
    """A float tensor whose last axis has the size that the mechanism was built with."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; expected a float tensor of shape {_axes(rows, size)}")
    shape = tuple(tensor.shape)
    if not tensor.is_floating_point():
        raise TypeError(
            f"{name} has dtype {tensor.dtype} and shape {shape}; expected a float tensor of shape {_axes(rows, size)}"
        )
    if tensor.dim() < 2 or shape[-1] != size:
        raise ValueError(
            f"{name} has shape {shape}; expected {_axes(rows, size)}: this mechanism was built with "
            f"{name.removesuffix('s')}_size {size}"
        )


def check_values(values: Any, keys: Tensor, size: int) -> None:
    """One value for each key."""
    check_float("values", values, "s", size)
    if values.shape[:-1] != keys.shape[:-1]:
        expected = (*keys.shape[:-1], size)
        raise ValueError(f"values has shape {tuple(values.shape)}; expected {expected}: one value for each key")


def check_mask(mask: Any, keys: Tensor) -> None:
    """A bool mask that broadcasts to the keys."""
    expected = tuple(keys.shape[:-1])
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask is a {type(mask).__name__}; expected a torch.bool tensor of shape {expected}")
    shape = tuple(mask.shape)
    if mask.dtype != torch.bool:
        hint = "mask.bool()" if not mask.is_floating_point() else "mask == 0 for an additive mask"
        raise TypeError(
            f"mask has dtype {mask.dtype} and shape {shape}; expected torch.bool of shape {expected} where True "
            f"means 'this key exists' (try {hint})"
        )
    if not _broadcasts(shape, expected):
        raise ValueError(f"mask has shape {shape}; expected {expected}: one entry for each key")


def check_query(query: Any, size: int, keys: Tensor) -> None:
    """A query of the right size with the batch axes of the memory."""
    check_float("query", query, "t", size)
    check_batch("query", query, tuple(keys.shape[:-2]))


def check_batch(name: str, tensor: Tensor, expected: tuple[int, ...]) -> None:
    """Batch axes that the memory's broadcast to (heads that share keys have a key axis of size 1)."""
    batch = tuple(tensor.shape[:-2])
    if len(batch) != len(expected) or not _broadcasts(expected, batch):
        shape = ", ".join(map(str, (*expected, "t", tensor.shape[-1])))
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; expected ({shape}): the batch axes of the memory it attends to"
        )


def check_allowed(allowed: Tensor, query: Tensor, keys: int) -> None:
    """The combined mask must broadcast to the weights."""
    expected = (*query.shape[:-1], keys)
    if not _broadcasts(tuple(allowed.shape), tuple(expected)):
        raise ValueError(f"allow has shape {tuple(allowed.shape)}; expected {expected[-2:]} or {expected}")


def check_carry(carry: Any) -> None:
    """A carry comes from `begin` or from the last read."""
    if not (isinstance(carry, tuple) and hasattr(carry, "position")):
        raise TypeError(f"carry is a {type(carry).__name__}; expected what begin(memory) or the last read gave")


def check_extend(before: Tensor, keys: Tensor) -> None:
    """New annotations must belong to the same batch."""
    if before.shape[:-2] != keys.shape[:-2]:
        expected = (*before.shape[:-2], "s", keys.shape[-1])
        raise ValueError(
            f"keys has shape {tuple(keys.shape)}; expected ({', '.join(map(str, expected))}): the batch axes of the "
            f"memory that is extended"
        )


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(shape) > len(to):
        return False
    return all(size in (1, expected) for size, expected in zip(reversed(shape), reversed(to), strict=False))


def check_least(config: object, least: int, *names: str) -> None:
    """Of the fields of a configuration: none is below ``least``. A field that is None was left out."""
    for name in names:
        value = getattr(config, name)
        if value is not None and value < least:
            raise ValueError(f"{name} is {value}; it must be at least {least}")


def check_choice(config: object, kinds: Any, *names: str) -> None:
    """Of the fields of a configuration: each is one of ``kinds``, a Literal."""
    for name in names:
        if getattr(config, name) not in get_args(kinds):
            raise ValueError(f"{name} is {getattr(config, name)!r}; it is one of {', '.join(get_args(kinds))}")


def check_share(config: object, *names: str) -> None:
    """Of the fields of a configuration: each is at least 0 and below 1."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be at least 0 and below 1")
