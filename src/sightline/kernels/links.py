"""The links of a Differentiable Neural Computer after a write (Graves et al. 2016), kept once for the backward pass.

``L_ij ← (1 − w_i − w_j) L_ij + w_i p_j``, without a diagonal. They are slots × slots numbers for every row and step, by
far the largest part of a step. The backward pass needs the links before the write, and nothing else of that size:
PyTorch's own keeps twice as much, as `tests/models/test_computer.py` counts. Gain in time: 1.0
(`benchmarks/kernel_gains.py`).
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled


def reference(after: Float[Tensor, "b s s"], last: Float[Tensor, "b s"], written: Float[Tensor, "b s"]) -> Tensor:
    rows, columns = written.unsqueeze(2), written.unsqueeze(1)
    made = (1 - rows - columns) * after + rows * last.unsqueeze(1)
    return made * (1 - torch.eye(made.shape[-1], dtype=made.dtype, device=made.device))


def linked(
    after: Float[Tensor, "b s s"], last: Float[Tensor, "b s"], written: Float[Tensor, "b s"]
) -> Float[Tensor, "b s s"]:
    """The links after a write, from those before it and from what was written ``last``; they keep their precision."""
    return (fast if supported() else reference)(after, last.to(after.dtype), written.to(after.dtype))


class _Linked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, after: Tensor, last: Tensor, written: Tensor) -> Tensor:
        ctx.save_for_backward(after, last, written)
        rows, columns = written.unsqueeze(2), written.unsqueeze(1)
        made = torch.addcmul(after, rows, after, value=-1)
        made.addcmul_(columns, after, value=-1).addcmul_(rows, last.unsqueeze(1))
        made.diagonal(dim1=1, dim2=2).zero_()
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        after, last, written = ctx.saved_tensors
        grad = upstream[0].clone()
        grad.diagonal(dim1=1, dim2=2).zero_()
        to_last = torch.bmm(written.unsqueeze(1), grad).squeeze(1)
        through = grad * after
        to_written = torch.bmm(grad, last.unsqueeze(2)).squeeze(2) - through.sum(dim=2) - through.sum(dim=1)
        kept = torch.addcmul(grad, written.unsqueeze(2), grad, value=-1)
        return kept.addcmul_(written.unsqueeze(1), grad, value=-1), to_last, to_written


fast, supported = _Linked.apply, enabled
