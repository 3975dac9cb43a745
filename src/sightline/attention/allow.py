"""Which query may see which key: causal, window, block and free masks, and their combinations.

An `Allow` knows positions, not tensors, so the same object serves a whole sequence at once and one query at a time
from a cache, where the position of the query comes from the carry. ``Causal() & Window(8)`` combines two.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

Visible = Bool[Tensor, "..."] | None


class Allow:
    """The base. `visible` gives a bool mask (True = may attend), or None when every query may see every key."""

    def visible(self, position: int, queries: int, keys: int, device: torch.device) -> Visible:
        raise TypeError(f"{type(self).__name__} must define visible(position, queries, keys, device)")

    def narrow(self, start: int, length: int) -> "Allow":
        """The same rule for the queries from ``start`` on, for a caller that works in blocks of queries."""
        return self

    def add_head_axes(self, batch_axes: int, heads: tuple[int, ...]) -> "Allow":
        """The same rule where head axes of these sizes stand between the batch axes and the queries."""
        return self

    def __and__(self, other: "Allow | Tensor") -> "Allow":
        return Both(self, as_allow(other))

    def __rand__(self, other: Tensor) -> "Allow":
        return Both(as_allow(other), self)


def _positions(position: int, queries: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    rows = torch.arange(position, position + queries, device=device).unsqueeze(-1)
    return rows, torch.arange(keys, device=device)


@dataclass(frozen=True)
class Causal(Allow):
    """A query sees its own position and those before it."""

    def visible(self, position: int, queries: int, keys: int, device: torch.device) -> Visible:
        if position + 1 >= keys:  # decoding from a cache: everything there is lies in the past
            return None
        rows, columns = _positions(position, queries, keys, device)
        return columns <= rows


@dataclass(frozen=True)
class Window(Allow):
    """A query sees the keys at most ``n`` positions away, on either side."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError(f"Window: n is {self.n}; it must be 0 or more")

    def visible(self, position: int, queries: int, keys: int, device: torch.device) -> Visible:
        rows, columns = _positions(position, queries, keys, device)
        return (columns - rows).abs() <= self.n


@dataclass(frozen=True)
class Block(Allow):
    """The sequence is cut into blocks of ``n`` positions; a query sees the keys of its own block."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"Block: n is {self.n}; it must be 1 or more")

    def visible(self, position: int, queries: int, keys: int, device: torch.device) -> Visible:
        rows, columns = _positions(position, queries, keys, device)
        return rows // self.n == columns // self.n


@dataclass(frozen=True, eq=False)
class Free(Allow):
    """Any bool mask ``t s`` or ``*b t s`` for exactly the queries and keys of the call."""

    mask: Bool[Tensor, "..."]

    def __post_init__(self) -> None:
        if self.mask.dtype != torch.bool:
            raise TypeError(
                f"allow has dtype {self.mask.dtype} and shape {tuple(self.mask.shape)}; expected a torch.bool tensor "
                f"of shape (t, s) or (*batch, t, s) where True means 'may attend'"
            )

    def visible(self, position: int, queries: int, keys: int, device: torch.device) -> Visible:
        shape = tuple(self.mask.shape)
        if len(shape) < 2 or shape[-2] not in (1, queries) or shape[-1] not in (1, keys):
            raise ValueError(
                f"allow has shape {shape}; expected ({queries}, {keys}) or (*batch, {queries}, {keys}): one row a "
                f"query of this call, one column a key of the memory"
            )
        return self.mask.to(device)

    def narrow(self, start: int, length: int) -> Allow:
        if self.mask.dim() < 2 or self.mask.shape[-2] == 1:
            return self
        return Free(self.mask.narrow(-2, start, length))

    def add_head_axes(self, batch_axes: int, heads: tuple[int, ...]) -> Allow:
        shape, count = tuple(self.mask.shape), math.prod(heads)
        if self.mask.dim() == 2:
            return self
        if self.mask.dim() == batch_axes + 2:
            return Free(self.mask.reshape(*shape[:-2], *[1] * len(heads), *shape[-2:]))
        if self.mask.dim() == batch_axes + 3 and shape[-3] in (1, count):  # a mask for each head
            axes = heads if shape[-3] == count else (1,) * len(heads)
            return Free(self.mask.reshape(*shape[:-3], *axes, *shape[-2:]))
        raise ValueError(
            f"allow has shape {shape}; expected (t, s), {batch_axes} batch axes and (t, s), or {batch_axes} batch axes "
            f"and ({count}, t, s) for a mask of each head's own"
        )


@dataclass(frozen=True, eq=False)
class Both(Allow):
    """What the left and the right side both allow."""

    left: Allow
    right: Allow

    def visible(self, position: int, queries: int, keys: int, device: torch.device) -> Visible:
        left = self.left.visible(position, queries, keys, device)
        right = self.right.visible(position, queries, keys, device)
        if left is None or right is None:
            return right if left is None else left
        return left & right

    def narrow(self, start: int, length: int) -> Allow:
        return Both(self.left.narrow(start, length), self.right.narrow(start, length))

    def add_head_axes(self, batch_axes: int, heads: tuple[int, ...]) -> Allow:
        return Both(self.left.add_head_axes(batch_axes, heads), self.right.add_head_axes(batch_axes, heads))


def as_allow(allow: Allow | Tensor) -> Allow:
    """A bool tensor as a rule; a rule as it is; anything else is an error that says what was expected."""
    if isinstance(allow, Allow):
        return allow
    if isinstance(allow, Tensor):
        return Free(allow)
    raise TypeError(
        f"allow is a {type(allow).__name__}; expected Causal(), Window(n), Block(n), a combination of them with &, "
        f"or a torch.bool tensor of shape (t, s)"
    )


def visible_keys(
    allow: Allow | None,
    mask: Bool[Tensor, "*b s"] | None,
    position: int,
    queries: int,
    keys: int,
    device: torch.device,
) -> Bool[Tensor, "..."] | None:
    """The padding mask of a memory and the rule of a call, as one mask `*b t s`; None when nothing is hidden."""
    rule = None if allow is None else allow.visible(position, queries, keys, device)
    if mask is None:
        return rule
    padding = mask.unsqueeze(-2)
    return padding if rule is None else padding & rule
