"""Hard attention: look at one annotation. Sampled in training, the likeliest one in prediction (Xu et al. 2015).

Sampling has no gradient of its own. Two estimators are offered: `reinforce`, where the `Read` brings log-probability
and entropy for the loss in `sightline.attention.estimators`, and `straight_through`, where a Gumbel-softmax stands in
for the sample on the way back (biased, lower variance).

Some rows of a batch may be read softly while it learns (``soft_share``). What people get wrong: whether a row is soft
is drawn once, when it begins, and its carry says so to every look. Drawn at every look, nearly every long row would be
a mixture, and in prediction all looks are hard.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.attention.normalisers import Normaliser, NormaliserConfig, Weights, hide, only

Estimator = Literal["reinforce", "straight_through"]


class Hard(Normaliser):
    """One-hot weights, with the log-probability of the choice and the entropy of the distribution it came from."""

    def __init__(self, estimator: Estimator, temperature: float, soft_share: float) -> None:
        super().__init__()
        self.estimator, self.temperature, self.soft_share = estimator, temperature, soft_share

    def forward(self, scores: Float[Tensor, "*b t s"], allowed: Bool[Tensor, "..."] | None) -> Weights:
        if scores.shape[-1] == 0:
            nothing = scores.sum(dim=-1)
            return Weights(scores, nothing, nothing)
        log_probs = torch.log_softmax(hide(scores, allowed), dim=-1)
        probs = only(log_probs.exp(), allowed)
        # 0 · log 0 is 0: hidden keys have log-probabilities far below any float's exponent.
        entropy = -(probs * log_probs.masked_fill(probs == 0, 0.0)).sum(dim=-1)
        if not self.training:
            weights = one_hot(log_probs)
        else:
            noisy = (log_probs + gumbel_noise(log_probs)) / self.temperature
            weights = one_hot(noisy)
            if self.estimator == "straight_through":
                soft = torch.softmax(hide(noisy, allowed), dim=-1)
                weights = weights + (soft - soft.detach())  # in this order the sum is exactly one-hot
        weights = only(weights, allowed)
        chosen = weights.detach() != 0
        log_prob = log_probs.masked_fill(~chosen, 0.0).sum(dim=-1)
        return Weights(weights, log_prob, entropy)

    def draw_soft(self, batch: Sequence[int], device: torch.device) -> Bool[Tensor, "..."] | None:
        """Which rows of a batch are read softly, in all their looks; None where none is."""
        if not self.training or not self.soft_share:
            return None
        return torch.rand(tuple(batch), device=device) < self.soft_share

    def partly_soft(
        self, scores: Float[Tensor, "*b t s"], allowed: Bool[Tensor, "..."] | None, soft: Bool[Tensor, "..."]
    ) -> Weights:
        """Softmax in the rows that are ``soft`` (`*b 1`). Nothing was sampled there: there is no choice to credit."""
        sampled = self(scores, allowed)
        assert sampled.log_prob is not None
        probs = only(torch.softmax(hide(scores, allowed), dim=-1), allowed)
        weights = torch.where(soft.unsqueeze(-1), probs, sampled.weights)
        return Weights(weights, sampled.log_prob.masked_fill(soft, 0.0), sampled.entropy)


def gumbel_noise(like: Float[Tensor, "*b s"]) -> Float[Tensor, "*b s"]:
    """Gumbel(0, 1) noise: adding it to log-probabilities and taking the argmax is sampling."""
    tiny = torch.finfo(like.dtype).tiny  # an exponential draw can round to zero, whose logarithm is not finite
    return -torch.empty_like(like).exponential_().clamp_(min=tiny).log_()


def one_hot(scores: Float[Tensor, "*b s"]) -> Float[Tensor, "*b s"]:
    """One where a row is largest (the first of equals), zero elsewhere, without a gradient."""
    best = scores.detach().argmax(dim=-1, keepdim=True)
    return torch.zeros_like(scores).scatter_(-1, best, 1.0)


@dataclass(frozen=True)
class HardConfig(NormaliserConfig):
    """``temperature`` is the Gumbel-softmax's; ``soft_share`` the share of rows that are read softly in training.

    Xu et al.'s own code uses one half to calm the gradient, and draws once for a whole batch; here each row has a draw
    of its own, which all its looks share.
    """

    estimator: Estimator = "reinforce"
    temperature: float = 1.0
    soft_share: float = 0.0
    kind: ClassVar[str] = "hard"

    def __post_init__(self) -> None:
        if self.estimator not in get_args(Estimator):
            raise ValueError(f"estimator is {self.estimator!r}; it must be one of {', '.join(get_args(Estimator))}")
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}; it must be above 0")
        if not 0 <= self.soft_share <= 1:
            raise ValueError(f"soft_share is {self.soft_share}; it must lie between 0 and 1")

    def build(self) -> Hard:
        return Hard(self.estimator, self.temperature, self.soft_share)
