"""Dropout that is not serial: masks from random bytes.

On a processor `torch.nn.functional.dropout` draws one Bernoulli number after the other, which takes a noticeable part
of a training step of a small model. A generator of random bytes fills the mask at memory speed; the rate is rounded to
256ths. Gain: 12 (`benchmarks/kernel_gains.py`).
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled


def supported(y: Float[Tensor, "*b"], rate: float) -> bool:
    return y.device.type == "cpu" and enabled()


def reference(x: Float[Tensor, "*#b"], y: Float[Tensor, "*b"], rate: float) -> Float[Tensor, "*b"]:
    """The same in distribution: other masks come from the same seed."""
    return x + F.dropout(y, rate)


class _AddDropped(torch.autograd.Function):
    """x + dropout(y), in one pass over memory instead of three. The mask is kept as one byte for each number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, rate: float) -> Tensor:
        kept, ctx.factor = _draw(y.shape, rate)
        ctx.save_for_backward(kept)
        return torch.addcmul(x, y, kept.to(y.dtype), value=ctx.factor)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (above,) = upstream
        (kept,) = ctx.saved_tensors
        d_x, d_y = (above if ctx.needs_input_grad[0] else None), None
        if ctx.needs_input_grad[1]:
            d_y = torch.addcmul(above.new_zeros(()), above, kept.to(above.dtype), value=ctx.factor)
        return d_x, d_y, None


fast = _AddDropped.apply


def byte_mask(shape: torch.Size, rate: float, dtype: torch.dtype) -> Tensor:
    """0 for what is dropped, 256 / (256 − dropped 256ths) for what stays, so that the mean stays 1."""
    kept, factor = _draw(shape, rate)
    return kept.to(dtype).mul_(factor)


def _draw(shape: torch.Size, rate: float) -> tuple[UInt8[Tensor, "..."], float]:
    """1 where kept, 0 where dropped, and the factor for what is kept."""
    # The seed comes from torch, so torch.manual_seed, and a saved random state, decide the masks too.
    seed = int(torch.randint(2**62, (), dtype=torch.int64))
    threshold = min(round(rate * 256), 255)  # a rate just below one still keeps something
    if threshold == 0:
        return torch.ones(shape, dtype=torch.uint8), 1.0
    size = shape.numel()
    raw = np.random.SFC64(seed).random_raw(-(-size // 8))
    noise = torch.from_numpy(raw.view(np.uint8)[:size]).reshape(shape)
    # Arithmetic on bytes takes a tenth of the time of a comparison.
    return noise.clamp_(threshold - 1, threshold).sub_(threshold - 1), 256 / (256 - threshold)
