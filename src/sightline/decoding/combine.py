"""Several scorers as one step of a search."""

from collections.abc import Sequence
from typing import cast

from jaxtyping import Float, Int
from torch import Tensor

from sightline.decoding.search import Step
from sightline.state import State


def combined(steps: Sequence[tuple[Step[State], float]]) -> Step[tuple[State, ...]]:
    """The sum of each scorer's weight times its log-probabilities. The state is the tuple of theirs.

    A scorer of weight 0 is not asked. What one scorer forbids (−inf) is forbidden; weights are positive.
    """
    if any(weight < 0 for _, weight in steps) or not any(weight for _, weight in steps):
        raise ValueError(f"weights are {[weight for _, weight in steps]}; expected none below 0, and one above")

    def step(tokens: Int[Tensor, " n"], state: tuple[State, ...]) -> tuple[Float[Tensor, "n v"], tuple[State, ...]]:
        total: Tensor | None = None
        states = []
        for (one, weight), part in zip(steps, state, strict=True):
            if weight:
                log_probs, part = one(tokens, part)
                total = weight * log_probs if total is None else total + weight * log_probs
            states.append(part)
        return cast("Tensor", total), tuple(states)

    return step
