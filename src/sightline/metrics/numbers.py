"""Scores of numbers: how far off they are, and whether they rise together."""

import numpy as np
from jaxtyping import Float, Float64

from sightline.metrics.base import Statistics, metric

Numbers = Float[np.ndarray, " texts"]


@metric("pearson")
def pearson(said: Numbers, gold: Numbers) -> Statistics:
    """Correlation times 100, as tables of text similarity have it: 100 on a rising line, 0 unrelated, -100 falling.

    0 where one side is the same number everywhere: it says nothing of the other.
    """
    x, y = _centred(said), _centred(gold)
    _same_count(x, y)
    return Statistics(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1), _pearson_of_sums)


@metric("spearman|ties:mean")
def spearman(said: Numbers, gold: Numbers) -> Statistics:
    """The correlation of ranks, times 100; equal numbers share the mean of their ranks.

    Ranks are those among all texts; a resample keeps them, which moves its score very little.
    """
    return pearson.statistics(mean_ranks(said), mean_ranks(gold))


@metric("rmse")
def rmse(said: Numbers, gold: Numbers) -> Statistics:
    """The root of the mean squared error, in the unit of the numbers. Less is better."""
    error = _errors(said, gold)
    return Statistics(np.stack([error * error, np.ones_like(error)], axis=1), _root_mean)


@metric("mae")
def mae(said: Numbers, gold: Numbers) -> Statistics:
    """The mean of the sizes of the errors, in the unit of the numbers. Less is better."""
    error = np.abs(_errors(said, gold))
    return Statistics(np.stack([error, np.ones_like(error)], axis=1), _mean)


def mean_ranks(values: Numbers) -> Float64[np.ndarray, " texts"]:
    """Ranks from 1; equal values get the mean of the ranks that they take up together."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which]


def _centred(values: Numbers) -> Float64[np.ndarray, " texts"]:
    """Correlation is the same wherever numbers start; sums of squares of numbers around 0 lose the fewest digits.

    Their size is taken away as well: squares of very large numbers would have no place.
    """
    wide = values.astype(np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("scores need finite numbers")
    if not len(wide):
        return wide
    largest = np.abs(wide).max()
    wide = wide / largest if largest > 0 else wide
    wide = wide - wide.mean()
    spread = np.abs(wide).max()
    # what rounding leaves of equal numbers is no spread
    return wide / spread if spread > 1e-14 else np.zeros_like(wide)


def _errors(said: Numbers, gold: Numbers) -> Float64[np.ndarray, " texts"]:
    _same_count(said, gold)
    return said.astype(np.float64) - gold.astype(np.float64)


def _same_count(said: np.ndarray, gold: np.ndarray) -> None:
    if said.shape != gold.shape:
        raise ValueError(f"{len(said)} numbers against {len(gold)} of gold")


def _pearson_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    count, x, y, xx, yy, xy = sums.T
    spread_x, spread_y = count * xx - x * x, count * yy - y * y
    # below this, a spread is what rounding left of none
    told = (spread_x > 1e-12 * count * xx) & (spread_y > 1e-12 * count * yy)
    product = np.where(told, spread_x * spread_y, 1.0)
    return np.where(told, 100 * np.clip((count * xy - x * y) / np.sqrt(product), -1, 1), 0.0)


def _root_mean(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return np.sqrt(_mean(sums))


def _mean(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)
