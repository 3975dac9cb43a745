"""Tokens to vectors, and where they stand."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

QUIET, LOUD = 0.1, 1.0


class TokenEmbedding(nn.Embedding):
    """An embedding that starts with deviation 1/√size and is multiplied by √size on the way in (Vaswani et al. 2017).

    So the same table can serve as the output layer, whose weights want to be small, and as the input, whose vectors
    must not vanish beside the positions added to them.

    ``deviation`` is that of the vectors on the way in, before training. Models that learn from thousands of labels and
    not from millions of words begin with `QUIET`: a word seen a few times then says little instead of something random.
    """

    def __init__(self, words: int, size: int, padding: int, deviation: float = LOUD) -> None:
        super().__init__(words, size, padding_idx=padding)
        nn.init.normal_(self.weight, std=deviation / math.sqrt(size))
        with torch.no_grad():
            self.weight[padding].zero_()

    def forward(self, tokens: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
        return super().forward(tokens) * math.sqrt(self.embedding_dim)


def check_deviation(deviation: float) -> None:
    """Of a configuration: raises ValueError."""
    if not 0 < deviation <= 10:
        raise ValueError(f"deviation is {deviation}; it must be above 0 and at most 10")


def sinusoids(start: int, count: int, size: int, like: Tensor) -> Float[Tensor, "n d"]:
    """Sinusoid positions: ``sin(p / 10000^(2i/d))`` in the first half, the cosines in the second.

    What people get wrong: the paper writes sines and cosines in turn, its code puts them in two halves. A model cannot
    tell, but a checkpoint can; this is the layout of the code, and of most checkpoints.
    """
    if size % 2:
        raise ValueError(f"sinusoid positions need an even size, found {size}")
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=like.device) / size
    positions = torch.arange(start, start + count, dtype=torch.float64, device=like.device)
    angles = positions.unsqueeze(-1) * 10_000.0**-exponents
    return torch.cat([angles.sin(), angles.cos()], dim=-1).to(like.dtype)


class Positions:
    """Sinusoid positions from the first one on, made once and longer when they are needed; plus an ``offset``."""

    def __init__(self, offset: Float[Tensor, " d"] | None = None) -> None:
        self.offset, self.table = offset, torch.empty(0, 0)

    def __call__(self, count: int, like: Float[Tensor, "*b d"]) -> Float[Tensor, "n d"]:
        """At least so many."""
        table = self.table  # read once: another thread may write a shorter one
        if count > table.shape[0]:
            table = sinusoids(0, 2 * count + 64, like.shape[-1], like)
            self.table = table = table if self.offset is None else table + self.offset
        return table
