"""A score, and what is counted on the way to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, ParamSpec

import numpy as np
from jaxtyping import Float64

P = ParamSpec("P")


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


@dataclass(frozen=True)
class Metric(Generic[P]):
    """What is counted in each text, and how the score that comes of it is signed. Called, it gives that score.

    ``scored`` is for metrics of which another library computes the score itself, and signs it.
    """

    name: str
    statistics: Callable[P, Statistics]
    signature: Callable[P, str]
    scored: Callable[P, Score] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Score:
        if self.scored is not None:
            return self.scored(*args, **kwargs)
        return Score(self.statistics(*args, **kwargs).score(), self.signature(*args, **kwargs))


def metric(
    signature: str | Callable[..., str] = "", *, name: str = "", scored: Callable[..., Score] | None = None
) -> Callable[[Callable[P, Statistics]], Metric[P]]:
    """Make a metric of the function that counts. A signature that depends on the texts or options is a function."""

    def made(statistics: Callable[P, Statistics]) -> Metric[P]:
        def sign(*args: P.args, **kwargs: P.kwargs) -> str:
            if scored is not None:
                return scored(*args, **kwargs).signature
            return signature if isinstance(signature, str) else signature(*args, **kwargs)

        return Metric(name or statistics.__name__, statistics, sign, scored)

    return made


def by_name(*metrics: Metric[...]) -> dict[str, Metric[...]]:
    """A table of metrics."""
    return {one.name: one for one in metrics}


def mean_statistics(values: list[float]) -> Statistics:
    """Of metrics that are a mean over texts."""
    rows = np.ones((len(values), 2))
    rows[:, 0] = values
    return Statistics(rows, _means)


def _means(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)
