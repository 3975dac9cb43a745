"""Repeated products with one large matrix, by the faster of the two libraries that PyTorch has for them.

What PyTorch multiplies with on a processor (MKL) is slow on some processors: on an AMD EPYC 500 rows of 128 numbers
times 8,000 words run at 90 to 120 GFLOP/s, and by oneDNN, which PyTorch has for its compiler, at 180. oneDNN needs the
matrix in a layout of its own, and compiles a kernel for every new number of rows, which takes longer than the product:
so rows are padded to one of a few numbers. Gain: 1.1 (`benchmarks/kernel_gains.py`).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sightline.kernels import enabled

WORTH = 1 << 19  # numbers in a matrix; for a smaller one oneDNN's overhead is larger than its gain,
MANY = 192  # unless there are this many rows, and packing is done once for many products
VANISHING = 17.5  # below −17.5, 1 + e^z is 1 to the last bit of float32
STEP = 64  # many rows are filled up to a multiple of this


class Product:
    """x Wᵀ + b, while the matrix does not change; it has no gradient.

    A matrix of fewer than `WORTH` numbers is packed only if it will be multiplied ``often``.
    """

    def __init__(
        self, weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None = None, often: bool = False
    ) -> None:
        self.weight, self.bias, self.often = weight.detach(), None if bias is None else bias.detach(), often
        self.fewest = 1 if weight.numel() >= WORTH else MANY
        self.packed = _packed(self.weight) if often or self.fewest == 1 else None

    def __reduce__(self) -> tuple[type["Product"], tuple[Tensor, Tensor | None, bool]]:
        return Product, (self.weight, self.bias, self.often)  # what is packed cannot be copied

    def __call__(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        return self._multiplied(x, "none")

    def powers(self, x: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:
        """e to the power of the product, all of whose numbers are below −`VANISHING`.

        oneDNN can fuse a sigmoid into the product. For such low numbers both are the same: σ(z) = e^z.
        """
        if self.packed is None or len(x) < self.fewest:
            return self(x).exp_()
        return self._multiplied(x, "sigmoid")

    def _multiplied(self, x: Float[Tensor, "n i"], then: str) -> Float[Tensor, "n o"]:
        if self.packed is None or len(x) < self.fewest:
            return F.linear(x.detach(), self.weight, self.bias)
        x, rows = x.detach(), len(x)
        if missing := filled_up(rows) - rows:
            x = F.pad(x, (0, 0, 0, missing))
        return _operations()[1](x, self.packed, self.bias, then, [], "")[:rows]


def supported(weight: Float[Tensor, "o i"]) -> bool:
    is_plain = weight.device.type == "cpu" and weight.dtype == torch.float32
    return is_plain and enabled() and bool(_operations())


def fast(
    x: Float[Tensor, "n i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"] | None = None
) -> Float[Tensor, "n o"]:
    """One product. A `Product` packs the matrix once for many."""
    return Product(weight, bias, often=True)(x)


reference = F.linear


def filled_up(rows: int) -> int:
    """The next number of rows for which a kernel is made: 1, 2, 4, …, 64, 128, 192, …"""
    return 1 << (rows - 1).bit_length() if rows < STEP else -(-rows // STEP) * STEP


def _packed(weight: Float[Tensor, "o i"]) -> Tensor | None:
    """In the order that oneDNN wants; None where there is no oneDNN for it."""
    if not supported(weight):
        return None
    with torch.inference_mode(False):
        return _operations()[0](weight, STEP)


@functools.cache
def _operations() -> tuple[Callable[..., Any], ...]:
    """How to pack and how to multiply; empty where this PyTorch has other operations under these names, or none.

    They are private, so a small product is compared with PyTorch's own before they are trusted.
    """
    weight, x = torch.tensor([[1.0, 2.0], [3.0, -5.0]], device="cpu"), torch.tensor([[-1.0, 0.5]], device="cpu")
    try:
        pack, multiply = torch.ops.mkldnn._reorder_linear_weight, torch.ops.mkldnn._linear_pointwise
        with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
            linear = F.linear(x, weight, x[0])
            for then, expected in (("none", linear), ("sigmoid", linear.sigmoid())):
                torch.testing.assert_close(multiply(x, pack(weight, STEP), x[0], then, [], ""), expected)
    except (AttributeError, AssertionError, RuntimeError, TypeError):
        return ()
    return pack, multiply
