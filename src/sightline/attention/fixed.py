"""The fixed score: a learned table of positions, blind to what stands there.

It is 'just a fully connected layer' over positions, and the baseline that any attention must beat: a mechanism whose
model does no better than this one has learned where words stand, not what they are.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.contract import Heads
from sightline.attention.scores import Score, ScoreConfig


class Fixed(Score):
    """``table[query position, key position]``. Positions past the table use its last row or column."""

    def __init__(self, queries: int, keys: int, heads: Heads = ()) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(*heads, queries, keys) * 0.1)

    def forward(
        self, query: Float[Tensor, "*b t q"], keys: Float[Tensor, "*#b s p"], position: int
    ) -> Float[Tensor, "*b t s"]:
        t, s = query.shape[-2], keys.shape[-2]
        *_, last_row, last_column = (size - 1 for size in self.table.shape)
        rows = torch.arange(position, position + t, device=query.device).clamp(max=last_row)
        columns = torch.arange(s, device=query.device).clamp(max=last_column)
        scores = self.table[..., rows.unsqueeze(-1), columns]
        return scores.expand(*query.shape[:-2], t, s)


@dataclass(frozen=True)
class FixedConfig(ScoreConfig):
    """How many positions the table tells apart."""

    queries: int = 256
    keys: int = 256
    kind: ClassVar[str] = "fixed"

    def __post_init__(self) -> None:
        if min(self.queries, self.keys) < 1:
            raise ValueError(f"the table is {self.queries} by {self.keys}; both must be at least 1")

    def build(self, query_size: int, key_size: int, *, heads: Heads = ()) -> Fixed:
        return Fixed(self.queries, self.keys, heads)
