"""Parameters for any number of heads: how one mechanism gets its own parameters for each head without a loop."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.contract import Heads


class HeadLinear(nn.Module):
    """A linear map whose weight has the head axes in front, ``*heads in out``: one map for each head.

    Without heads it is an ordinary linear map. It starts as `torch.nn.Linear` does.
    """

    def __init__(self, in_size: int, out_size: int, *, heads: Heads = (), bias: bool = False) -> None:
        super().__init__()
        bound = 1 / math.sqrt(in_size)
        self.weight = nn.Parameter(torch.empty(*heads, in_size, out_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(*heads, 1, out_size).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Float[Tensor, "*#b n i"]) -> Float[Tensor, "..."]:
        y = x @ self.weight
        return y if self.bias is None else y + self.bias


def head_parameter(*shape: int, heads: Heads = ()) -> nn.Parameter:
    """A vector or table for each head, started as the weight of a linear map that reads its last axis."""
    bound = 1 / math.sqrt(shape[-1])
    return nn.Parameter(torch.empty(*heads, *shape).uniform_(-bound, bound))
