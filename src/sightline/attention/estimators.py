"""Losses for hard attention: REINFORCE with a moving-average baseline, and exact marginalisation as the oracle.

The third estimator, straight-through Gumbel, needs no loss of its own: `HardConfig(estimator="straight_through")`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.attention.normalisers import hide


@dataclass(frozen=True)
class Baseline:
    """A moving average of the reward. It belongs to the training loop (and its checkpoint), never to a mechanism."""

    value: float = 0.0
    decay: float = 0.9

    def update(self, reward: Float[Tensor, "..."]) -> "Baseline":
        """``b ← decay · b + (1 − decay) · mean reward`` (Xu et al. 2015)."""
        mean = float(reward.detach().mean())
        return Baseline(self.decay * self.value + (1 - self.decay) * mean, self.decay)


def reinforce_loss(
    log_likelihood: Float[Tensor, "*b"],
    log_prob: Float[Tensor, "..."],
    entropy: Float[Tensor, "..."],
    baseline: Baseline,
    *,
    reward_weight: float = 1.0,
    entropy_weight: float = 0.0,
) -> Float[Tensor, ""]:
    """The loss whose gradient is ``−[∇log p(y|i) + λ_r (log p(y|i) − b) ∇log s_i + λ_e ∇H(s)]``, averaged.

    ``log_likelihood`` is log p(y | sampled places) of each row; ``log_prob`` and ``entropy`` come from the `Read`, one
    for each query and, of multi-head attention, each head. With ``reward_weight`` 1 and ``entropy_weight`` 0 it is an
    unbiased estimate of the gradient of E[log p(y | i)], which bounds log p(y) from below. What people get wrong: the
    reward must not carry a gradient.
    """
    reward = log_likelihood.detach() - baseline.value
    choice = reward * _sum_choices("log_prob", log_prob, reward)
    bonus = _sum_choices("entropy", entropy, reward)
    return -(log_likelihood + reward_weight * choice + entropy_weight * bonus).mean()


def _sum_choices(name: str, values: Float[Tensor, "..."], reward: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """The sum over the choices of each row: its queries, and its heads where there are any."""
    rows = reward.dim()
    if values.shape[:rows] != reward.shape or values.dim() == rows:
        raise ValueError(
            f"{name} has shape {tuple(values.shape)}; expected {(*reward.shape, '...')}: the rows of log_likelihood, "
            f"then the queries (and heads) that chose"
        )
    return values.flatten(rows).sum(dim=-1)


def expected_log_likelihood(
    scores: Float[Tensor, "*b s"],
    log_likelihoods: Float[Tensor, "*b s"],
    allowed: Bool[Tensor, "*b s"] | None = None,
) -> Float[Tensor, "*b"]:
    """``Σ_i s_i log p(y|i)``, the bound that REINFORCE climbs, without sampling: the oracle for its gradient."""
    weights = torch.softmax(hide(scores, allowed), dim=-1)
    if allowed is not None:
        weights, log_likelihoods = weights.masked_fill(~allowed, 0.0), log_likelihoods.masked_fill(~allowed, 0.0)
    return (weights * log_likelihoods).sum(dim=-1)


def marginal_log_likelihood(
    scores: Float[Tensor, "*b s"],
    log_likelihoods: Float[Tensor, "*b s"],
    allowed: Bool[Tensor, "*b s"] | None = None,
) -> Float[Tensor, "*b"]:
    """``log Σ_i s_i p(y|i)``: exact marginalisation, the output head run on every annotation.

    Costs one output for each annotation, and where that is affordable it trains better than any estimator (Deng et
    al. 2018). A row in which nothing may be attended gives 0.
    """
    log_weights = torch.log_softmax(hide(scores, allowed), dim=-1)
    if allowed is None:
        return torch.logsumexp(log_weights + log_likelihoods, dim=-1)
    some = allowed.any(dim=-1)
    total = torch.logsumexp(hide(log_weights + log_likelihoods.masked_fill(~allowed, 0.0), allowed), dim=-1)
    return torch.where(some, total, 0.0)
