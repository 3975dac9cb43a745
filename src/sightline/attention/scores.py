"""The first step, score: how well does a query go with each key?"""

from abc import abstractmethod
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.contract import Heads
from sightline.config import Config


class Score(nn.Module):
    """A score. Ten lines make a new one: `project_keys` does once what does not need the query, `forward` the rest."""

    def project_keys(self, keys: Float[Tensor, "*b s k"], start: int) -> Float[Tensor, "..."]:
        """What can be done once for all queries. ``start`` is the position of the first of these keys."""
        return keys

    @abstractmethod
    def forward(
        self, query: Float[Tensor, "*b t q"], keys: Float[Tensor, "*#b s p"], position: int
    ) -> Float[Tensor, "*b t s"]:
        """Score projected keys. ``position`` is the position of the first of these queries."""


class DotProductScore(Score):
    """A score of the form ``scale · f(query) · g(key) + bias(positions)``: what fused softmax kernels can run."""

    scale: float = 1.0

    def project_query(self, query: Float[Tensor, "*b t q"], position: int) -> Float[Tensor, "*b t p"]:
        return query

    def bias(self, position: int, queries: int, keys: int, like: Tensor) -> Float[Tensor, "..."] | None:
        """What positions alone add to the scores: anything that broadcasts to `*heads t s`."""
        return None

    def forward(
        self, query: Float[Tensor, "*b t q"], keys: Float[Tensor, "*#b s p"], position: int
    ) -> Float[Tensor, "*b t s"]:
        projected = self.project_query(query, position)
        scores = (projected * self.scale) @ keys.transpose(-2, -1)
        bias = self.bias(position, query.shape[-2], keys.shape[-2], scores)
        return scores if bias is None else scores + bias


class ScoreConfig(Config):
    """The base of every score's configuration."""

    family: ClassVar[str] = "score"

    @abstractmethod
    def build(self, query_size: int, key_size: int, *, heads: Heads = ()) -> Score:
        """Build the score, with its own parameters for each head."""


def same_size(score: str, query_size: int, key_size: int) -> None:
    """Some scores compare query and key directly."""
    if query_size != key_size:
        raise ValueError(
            f"the {score} score needs query and key of one size, found query_size {query_size} and key_size "
            f"{key_size}; use 'general' or 'additive', or wrap it in multi_head, which projects both"
        )
