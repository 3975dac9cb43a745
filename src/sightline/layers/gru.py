"""One step of a gated recurrent unit, with its gradient written out.

Left to autograd, a step keeps and fills twice as many tensors: recurrent networks spend much of their time there.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def gru_step(
    projected: Float[Tensor, "*b g"], recurrent: Float[Tensor, "*b g"], hidden: Float[Tensor, "*b h"]
) -> Float[Tensor, "*b h"]:
    """The next state (Cho et al. 2014, in the form of torch.nn.GRU: the reset gate acts on the projected state).

    ``projected`` and ``recurrent`` are what the input and the state give to the reset gate, the update gate and the
    candidate, `g = 3 h`.
    """
    return _Step.apply(projected, recurrent, hidden)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, recurrent: Tensor, hidden: Tensor) -> Tensor:
        size = hidden.shape[-1]
        gates = (projected[..., : 2 * size] + recurrent[..., : 2 * size]).sigmoid_()
        reset, update = gates.chunk(2, dim=-1)
        own = recurrent[..., 2 * size :]
        candidate = torch.addcmul(projected[..., 2 * size :], reset, own)
        candidate.mul_(2).sigmoid_().mul_(2).sub_(1)  # tanh: on a processor PyTorch's sigmoid takes much less time
        ctx.save_for_backward(gates, candidate, own, hidden)
        return torch.lerp(candidate, hidden, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (above,) = upstream
        gates, candidate, own, hidden = ctx.saved_tensors
        size = hidden.shape[-1]
        reset, update = gates.chunk(2, dim=-1)
        d_hidden = above * update
        d_candidate = above - d_hidden
        below = torch.addcmul(d_candidate, d_candidate * candidate, candidate, value=-1)  # tanh' = 1 − tanh²
        d_projected = gates.new_empty(*gates.shape[:-1], 3 * size)
        torch.mul(below, own, out=d_projected[..., :size])
        torch.mul(above, hidden - candidate, out=d_projected[..., size : 2 * size])
        d_projected[..., : 2 * size].mul_(torch.addcmul(gates, gates, gates, value=-1))  # σ' = σ − σ²
        d_projected[..., 2 * size :] = below
        d_recurrent = d_projected.clone()
        torch.mul(below, reset, out=d_recurrent[..., 2 * size :])
        return d_projected, d_recurrent, d_hidden
