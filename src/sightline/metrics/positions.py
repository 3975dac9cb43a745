"""Scores of sequences of positions against true ones."""

from collections.abc import Sequence

import numpy as np

from sightline.metrics.base import Statistics, mean_statistics, means


def exact_positions(predicted: Sequence[Sequence[int]], true: Sequence[Sequence[int]]) -> Statistics:
    """The share of sequences of which every position is right, in per cent."""
    return mean_statistics([100.0 * (list(own) == list(gold)) for own, gold in zip(predicted, true, strict=True)])


def position_accuracy(predicted: Sequence[Sequence[int]], true: Sequence[Sequence[int]]) -> Statistics:
    """The share of positions that are right, in per cent, over the longer of both sequences."""
    rows = np.zeros((len(true), 2))
    for row, (own, gold) in enumerate(zip(predicted, true, strict=True)):
        rows[row] = 100 * sum(a == b for a, b in zip(own, gold, strict=False)), max(len(own), len(gold))
    return Statistics(rows, means)
