"""Does the order of the weights agree with the order of what the columns are worth by another measure?

Kendall's τ-b, as in Jain and Wallace 2019: of all pairs of columns, how many more stand in the same order than in the
opposite one, with ties taken out of the count. What people get wrong: most weights of a row are nearly zero and their
order is chance, so a map can name the right column in every row and still not come near 1.
"""

import numpy as np
from jaxtyping import Float

Weights = Float[np.ndarray, "t s"]


def kendall(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """τ-b of two measures of the same things; NaN where one of them tells nothing apart."""
    one, other = (np.sign(np.subtract.outer(v, v)) for v in (x, y))
    apart = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / apart if apart else float("nan")


def agreement(weights: Weights, worth: Weights) -> Float[np.ndarray, " t"]:
    """τ-b of each row, over the columns whose worth is known (not NaN); NaN for a row that says nothing."""
    taus = []
    for row, values in zip(weights, worth, strict=True):
        known = ~(np.isnan(row) | np.isnan(values))
        taus.append(kendall(row[known], values[known]))
    return np.array(taus, dtype=np.float64)


def mean_of_known(values: Float[np.ndarray, " t"]) -> float | None:
    """The mean without NaN; None where there is nothing else."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None
