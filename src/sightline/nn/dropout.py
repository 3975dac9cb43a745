"""Dropout as a module, on the fast kernel where that may run."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.observed import may_bypass
from sightline.kernels import dropout


class Dropout(nn.Module):
    """Zeroes a share of the elements in training and scales the rest. Follows torch's seed."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout is {rate}; it must be at least 0 and below 1")
        self.rate = rate

    def forward(self, x: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        if not self.training or not self.rate:
            return x
        if dropout.supported(x, self.rate):
            return dropout.fast(x.new_zeros(()), x, self.rate)
        return F.dropout(x, self.rate)

    def add(self, x: Float[Tensor, "*b"], y: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
        """x + dropout(y), on a processor in one pass over memory; a watched module is called."""
        if self.training and self.rate and dropout.supported(y, self.rate) and may_bypass(self):
            return dropout.fast(x, y, self.rate)
        return x + self(y)
