"""A score, and what is counted on the way to it."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64


@dataclass(frozen=True)
class Score:
    """A number from 0 to 100 and how it came about."""

    value: float
    signature: str = ""


@dataclass(frozen=True)
class Statistics:
    """What a metric counts in each text, and how a sum of such counts becomes a score.

    A corpus, a part of it and a resample of it are all sums of rows: none of them needs the text again.
    """

    rows: Float64[np.ndarray, "texts counts"]
    scores_of_sums: Callable[[Float64[np.ndarray, "sums counts"]], Float64[np.ndarray, " sums"]]

    def __len__(self) -> int:
        return len(self.rows)

    def score(self, chosen: list[int] | None = None) -> float:
        """The score of all texts, or of those chosen."""
        rows = self.rows if chosen is None else self.rows[chosen]
        return float(self.scores_of_sums(rows.sum(axis=0, keepdims=True))[0])

    def of_each(self) -> list[float]:
        """Every text as if it were a corpus."""
        return self.scores_of_sums(self.rows).tolist()


def mean_statistics(values: list[float]) -> Statistics:
    """Of metrics that are a mean over texts."""
    rows = np.ones((len(values), 2))
    rows[:, 0] = values
    return Statistics(rows, _means)


def _means(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)
