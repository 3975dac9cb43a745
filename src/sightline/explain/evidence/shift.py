"""Some decoders look at a word one row before or after they write it. Which row a map's row belongs to is measured."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from sightline.explain.evidence.agreement import agreement
from sightline.explain.evidence.removal import leave_one_out
from sightline.explain.evidence.subject import Subject

SHIFTS = (-1, 0, 1)
CLEARLY = 0.1  # of τ: less than that is no reason to show something else than what was computed
FEWEST_ROWS = 6  # fewer agree by chance


def moved(weights: Float[np.ndarray, "t s"], shift: int) -> Float[np.ndarray, "t s"]:
    """The rows moved down by ``shift`` (up, below zero); a row that nothing moved to is NaN."""
    found = np.full(weights.shape, np.nan)
    rows = np.arange(len(weights))
    to = rows + shift
    inside = (to >= 0) & (to < len(weights))
    found[to[inside]] = weights[rows[inside]]
    return found


def choose_shift(
    subjects: Sequence[Subject], weights_of: Callable[[Subject], Float[np.ndarray, "t s"]], most_rows: int = 64
) -> int:
    """How far the rows of a run's maps should be moved down: −1, 0 or 1.

    The shift whose maps agree best with leave-one-out, row by row over a few inputs. Away from 0 only where it is
    clearly better: by `CLEARLY` on average, and by three standard errors of the rows' differences. The first and
    the last row of an input have no map in some shift and do not count; of a long input the first ``most_rows`` do.
    """
    taus: list[np.ndarray] = []
    for subject in subjects:
        rows = list(range(1, min(subject.rows - 1, most_rows + 1)))
        if not rows:
            continue
        costs, weights = leave_one_out(subject, rows), weights_of(subject)
        taus.append(np.stack([agreement(moved(weights, shift)[rows], costs) for shift in SHIFTS]))
    if not taus:
        return 0
    together = np.concatenate(taus, axis=1)
    together = together[:, ~np.isnan(together).any(axis=0)]
    if together.shape[1] < FEWEST_ROWS:
        return 0
    best = int(together.mean(axis=1).argmax())
    gains = together[best] - together[SHIFTS.index(0)]
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return SHIFTS[best] if gains.mean() >= max(CLEARLY, 3 * error) else 0
