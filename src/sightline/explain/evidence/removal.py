"""What it costs to hide columns: each alone, those that were looked at most, others at random.

Costs are in nats: by how much the log-probability of the written row falls. A cost of c makes it exp(c) times less
likely; below zero, it becomes likelier.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from sightline.errors import UserError
from sightline.explain.evidence.subject import Subject

DRAWS = 8
MOST_ROWS = 64


def chosen_rows(rows: int, most: int = MOST_ROWS) -> list[int]:
    """All rows, or where there are more than ``most``, that many, evenly chosen from the first to the last."""
    if rows <= most:
        return list(range(rows))
    return np.linspace(0, rows - 1, most).round().astype(int).tolist()


def default_k(hideable: int) -> int:
    """A tenth of what can be hidden, and at least one."""
    return max(1, hideable // 10)


def leave_one_out(subject: Subject, rows: Sequence[int]) -> Float[np.ndarray, "t s"]:
    """The cost, for each of the rows, of hiding each column alone; NaN for columns that are never hidden."""
    places = np.flatnonzero(subject.hideable)
    hidden = np.zeros((len(places), subject.columns), dtype=bool)
    hidden[np.arange(len(places)), places] = True
    costs = np.full((len(rows), subject.columns), np.nan)
    if len(places):
        found = _log_probs(subject, ~hidden)[:, rows]
        costs[:, places] = (whole(subject, rows) - found).T
    return costs


def whole(subject: Subject, rows: Sequence[int]) -> Float[np.ndarray, " t"]:
    """The log-probability of each of the rows when nothing is hidden."""
    return _log_probs(subject, np.ones((1, subject.columns), dtype=bool))[0, rows]


@dataclass(frozen=True)
class Removal:
    """Cost of a row, on average, of hiding its ``k`` most looked-at columns, and of k of the others at random."""

    k: int
    looked_at: float
    others: float

    @property
    def ratio(self) -> float:
        """How many times as much; not a number to trust where ``others`` is near zero or below."""
        return self.looked_at / self.others if self.others else float("inf")


def removal(
    subject: Subject,
    weights: Float[np.ndarray, "t s"],
    rows: Sequence[int],
    *,
    k: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    alone: Float[np.ndarray, "t s"] | None = None,
) -> Removal | None:
    """Hide what each row looked at most, and as many others (Serrano and Smith 2019 compare with others too).

    ``weights`` has one row for each of ``rows``. For k = 1 the costs of hiding each column ``alone`` are all there is
    to know (made here unless given) and nothing is drawn; else ``draws`` sets of others for each row, from ``seed``.
    None where there are not k others to hide.
    """
    places = np.flatnonzero(subject.hideable)
    k = default_k(len(places)) if k is None else k
    if k < 1:
        raise UserError(f"k is {k}; at least one column must be hidden")
    if len(places) < 2 * k:
        return None
    random = np.random.default_rng(seed)
    # Shuffled first, so that of equal weights (zeros, with sparse attention) none is preferred for its place.
    shuffled = random.permutation(places)
    order = shuffled[np.argsort(-weights[:, shuffled], axis=1, kind="stable")]
    top, rest = order[:, :k], order[:, k:]
    if k == 1:
        alone = leave_one_out(subject, rows) if alone is None else alone
        looked_at, others = (np.take_along_axis(alone, some, axis=1).mean() for some in (top, rest))
        return Removal(k, float(looked_at), float(others))
    before = whole(subject, rows)
    looked_at = before - _own_log_probs(subject, top, rows)
    costs = [before - _own_log_probs(subject, random.permuted(rest, axis=1)[:, :k], rows) for _ in range(draws)]
    return Removal(k, float(looked_at.mean()), float(np.mean(costs)))


def _own_log_probs(subject: Subject, hidden: np.ndarray, rows: Sequence[int]) -> Float[np.ndarray, " t"]:
    """The log-probability of each row in its own variant of the input."""
    keep = np.ones((len(rows), subject.columns), dtype=bool)
    np.put_along_axis(keep, hidden, False, axis=1)
    return _log_probs(subject, keep)[np.arange(len(rows)), rows]


def _log_probs(subject: Subject, keep: Bool[np.ndarray, "n s"]) -> Float[np.ndarray, "n t"]:
    return subject.log_probs(torch.from_numpy(keep)).double().cpu().numpy()
