"""Local attention (Luong et al. 2015): look only near one place.

``monotonic`` (local-m): the place is the query's own position. ``predicted`` (local-p): the place is
``p = S · σ(v · tanh(W q))``, S the stretch of keys that the query may see, and a Gaussian of deviation D/2 around it
multiplies the weights.
What people get wrong: the Gaussian comes after the softmax and the weights are not normalised again, which is what
gives p its gradient.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.attention.checks import check_least
from sightline.attention.compose import Composed, Weighed
from sightline.attention.contract import AttentionConfig, Carry, Heads, Memory, full_sizes
from sightline.attention.dot import GeneralConfig
from sightline.attention.heads import HeadLinear, head_parameter
from sightline.attention.normalisers import Normaliser, NormaliserConfig, SoftmaxConfig
from sightline.attention.scores import Score, ScoreConfig

Place = Literal["monotonic", "predicted"]


class Local(Composed):
    """Any score and normaliser, within ``half_width`` positions of the place."""

    def __init__(
        self,
        config: "LocalConfig",
        score: Score,
        normaliser: Normaliser,
        sizes: tuple[int, int, int],
        heads: Heads = (),
    ) -> None:
        query_size, key_size, value_size = sizes
        super().__init__(score, normaliser, query_size, key_size, value_size, heads)
        self.place, self.half_width = config.place, config.half_width
        if config.place == "predicted":
            self.hidden = HeadLinear(query_size, query_size, heads=heads)
            self.vector = head_parameter(query_size, heads=heads)

    def weigh(
        self,
        query: Float[Tensor, "*b t q"],
        memory: Memory,
        carry: Carry,
        allowed: Bool[Tensor, "..."] | None,
    ) -> Weighed:
        scores = self.score(query, memory.keys, carry.position)
        columns = torch.arange(scores.shape[-1], device=query.device)
        distance = columns - self.places(query, carry.position, scores, allowed).unsqueeze(-1)
        near = distance.detach().abs() <= self.half_width
        allowed = near if allowed is None else near & allowed
        weights, log_prob, entropy = self.normaliser(scores, allowed)
        if self.place == "predicted":
            deviation = self.half_width / 2
            weights = weights * torch.exp(-(distance**2) / (2 * deviation**2)).to(weights.dtype)
        return Weighed(scores, weights, log_prob, entropy, allowed)

    def places(self, query: Float[Tensor, "*b t q"], position: int, scores: Tensor, allowed: Tensor | None) -> Tensor:
        """p_t, the middle of each query's window."""
        t, s = scores.shape[-2:]
        if self.place == "monotonic":
            return torch.arange(position, position + t, device=query.device)
        share = torch.sigmoid((torch.tanh(self.hidden(query)) @ self.vector.unsqueeze(-1)).squeeze(-1))
        share = share.to(torch.promote_types(share.dtype, torch.float32))  # half precision counts to 2048 or 256 only
        if allowed is None or s == 0:
            return share * s
        # Where the first keys are hidden, the place is counted from the first that is not: the window must hit some.
        seen = allowed.expand(scores.shape).to(torch.int8)
        first, behind = seen.argmax(dim=-1), seen.flip(-1).argmax(dim=-1)
        return first + share * (s - behind - first)


@dataclass(frozen=True)
class LocalConfig(AttentionConfig):
    """``place`` is Luong's local-m (monotonic) or local-p (predicted); ``half_width`` his D."""

    place: Place = "predicted"
    half_width: int = 10
    score: ScoreConfig = field(default_factory=GeneralConfig)
    normaliser: NormaliserConfig = field(default_factory=SoftmaxConfig)
    kind: ClassVar[str] = "local"

    def __post_init__(self) -> None:
        if self.place not in get_args(Place):
            raise ValueError(f"place is {self.place!r}; it must be one of {', '.join(get_args(Place))}")
        check_least(self, 1, "half_width")

    def build(
        self, query_size: int, key_size: int | None = None, value_size: int | None = None, *, heads: Heads = ()
    ) -> Local:
        query_size, key_size, value_size = full_sizes(query_size, key_size, value_size)
        score = self.score.build(query_size, key_size, heads=heads)
        return Local(self, score, self.normaliser.build(), (query_size, key_size, value_size), heads)
