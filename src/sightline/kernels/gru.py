"""One step of a gated recurrent unit (Cho et al. 2014), with its gradient written out.

Left to autograd, a step keeps and fills twice as many tensors: recurrent networks spend much of their time there.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from sightline.kernels import enabled


def supported(
    projected: Float[Tensor, "*b g"], recurrent: Float[Tensor, "*b g"], hidden: Float[Tensor, "*b h"]
) -> bool:
    return enabled()


def fast(
    projected: Float[Tensor, "*b g"], recurrent: Float[Tensor, "*b g"], hidden: Float[Tensor, "*b h"]
) -> Float[Tensor, "*b h"]:
    return _Step.apply(projected, recurrent, hidden)


def reference(
    projected: Float[Tensor, "*b g"], recurrent: Float[Tensor, "*b g"], hidden: Float[Tensor, "*b h"]
) -> Float[Tensor, "*b h"]:
    own = recurrent.chunk(3, dim=-1)
    enters = projected.chunk(3, dim=-1)
    reset, update = (torch.sigmoid(enters[i] + own[i]) for i in (0, 1))
    return torch.lerp(torch.tanh(enters[2] + reset * own[2]), hidden, update)


def gru_step(
    projected: Float[Tensor, "*b g"], recurrent: Float[Tensor, "*b g"], hidden: Float[Tensor, "*b h"]
) -> Float[Tensor, "*b h"]:
    """The next state (Cho et al. 2014, in the form of torch.nn.GRU: the reset gate acts on the projected state).

    ``projected`` and ``recurrent`` are what the input and the state give to the reset gate, the update gate and the
    candidate, `g = 3 h`.
    """
    kernel = fast if supported(projected, recurrent, hidden) else reference
    return kernel(projected, recurrent, hidden)


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor, recurrent: Tensor, hidden: Tensor) -> Tensor:
        size = hidden.shape[-1]
        gates = (projected[..., : 2 * size] + recurrent[..., : 2 * size]).sigmoid_()
        reset, update = gates.chunk(2, dim=-1)
        own = recurrent[..., 2 * size :]
        candidate = tanh_(torch.addcmul(projected[..., 2 * size :], reset, own))
        ctx.save_for_backward(gates, candidate, own, hidden)
        return torch.lerp(candidate, hidden, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (above,) = upstream
        gates, candidate, own, hidden = ctx.saved_tensors
        size = hidden.shape[-1]
        d_all = gates.new_empty(*gates.shape[:-1], 4 * size)
        gru_gradients(above, hidden, gates, candidate, own, d_all)
        d_recurrent = torch.cat([d_all[..., size : 3 * size], d_all[..., :size]], dim=-1)
        return d_all[..., size:], d_recurrent, above * gates[..., size:]


def gru_gradients(
    above: Float[Tensor, "*b h"],
    hidden: Float[Tensor, "*b h"],
    gates: Float[Tensor, "*b h2"],
    candidate: Float[Tensor, "*b h"],
    own: Float[Tensor, "*b h"],
    out: Float[Tensor, "*b h4"],
) -> None:
    """The gradients of what a step is made from, side by side in ``out``; the state's own is ``above · update``.

    First that of ``own``, what the state gives to the candidate before it is reset; then those of reset and update,
    which are the same for the state's and for the input's part; last that of the input's part of the candidate. So the
    first three are what the state's weights need, and the last three what the input's do, and nothing stands twice.
    ``gates`` are reset and update.
    """
    size = hidden.shape[-1]
    reset, update = gates.chunk(2, dim=-1)
    d_own, d_gates, d_candidate = out.split((size, 2 * size, size), dim=-1)
    torch.addcmul(above, above, update, value=-1, out=d_candidate)
    d_candidate.addcmul_(d_candidate * candidate, candidate, value=-1)  # tanh' = 1 − tanh²
    torch.mul(d_candidate, own, out=d_gates[..., :size])
    torch.mul(above, hidden - candidate, out=d_gates[..., size:])
    d_gates.mul_(torch.addcmul(gates, gates, gates, value=-1))  # σ' = σ − σ²
    torch.mul(d_candidate, reset, out=d_own)


def tanh_(x: Tensor) -> Tensor:
    """In place, as 2 σ(2x) − 1: on a processor PyTorch's sigmoid takes much less time than its tanh."""
    return x.mul_(2).sigmoid_().mul_(2).sub_(1)
