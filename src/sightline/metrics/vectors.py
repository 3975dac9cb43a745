"""Scores of sequences of vectors against true ones of the same length."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float64

from sightline.metrics.base import Statistics, means

Vectors = Float[np.ndarray, "u e"]


def r2_statistics(
    predicted: Sequence[Vectors],
    true: Sequence[Vectors],
    mean: Float64[np.ndarray, " e"],
    deviation: Float64[np.ndarray, " e"],
) -> Statistics:
    """The share of the variance around ``mean`` that is explained, in per cent: 0 for the mean, below 0 for worse.

    All numbers of all vectors count alike, in the units of the data. What people get wrong: a mean that is taken over
    the test data gives another score than the mean of the training data, which is all that a model can know. Of
    constant data it has no meaning: its variance counts as at least a millionth of that of the training data.
    """
    rows, least = np.zeros((len(true), 2)), 1e-6 * np.square(deviation).sum()
    for row, (own, gold) in enumerate(zip(predicted, true, strict=True)):
        rows[row] = np.square(own - gold).sum(), max(np.square(gold - mean).sum(), least * len(gold))
    return Statistics(rows, _explained)


def _explained(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return 100 * (1 - sums[:, 0] / np.maximum(sums[:, 1], 1e-300))


def mse_statistics(
    predicted: Sequence[Vectors], true: Sequence[Vectors], deviation: Float64[np.ndarray, " e"]
) -> Statistics:
    """The mean squared error of standardised numbers: 1 is about what the mean of the training data gets."""
    rows = np.zeros((len(true), 2))
    for row, (own, gold) in enumerate(zip(predicted, true, strict=True)):
        rows[row] = np.square((own - gold) / deviation).mean(axis=1).sum(), len(gold)
    return Statistics(rows, means)


def length_statistics(predicted: Sequence[int], true: Sequence[int]) -> Statistics:
    """By how many per cent of the true lengths the lengths differ."""
    rows = np.array([[100 * abs(own - gold), gold] for own, gold in zip(predicted, true, strict=True)], np.float64)
    return Statistics(rows.reshape(-1, 2), means)


def bit_statistics(predicted: Sequence[Vectors], true: Sequence[Vectors]) -> tuple[Statistics, Statistics]:
    """How many bits of a sequence are wrong, and the share of sequences without a wrong bit, in per cent."""
    wrong = np.array([(own != gold).sum() for own, gold in zip(predicted, true, strict=True)], np.float64)
    ones = np.ones_like(wrong)
    return Statistics(np.stack([wrong, ones], 1), means), Statistics(np.stack([100.0 * (wrong == 0), ones], 1), means)
