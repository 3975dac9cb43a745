"""A score, and what is counted on the way to it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, ParamSpec

import numpy as np
from jaxtyping import Float64

P = ParamSpec("P")


@dataclass(frozen=True)
class MetricScore:
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


# Metrics of errors; of all others, more is better. What ranks scores (the best checkpoint, a baseline, the point that
# is marked on a curve) asks `goodness`.
LESS_IS_BETTER = frozenset(
    {"wer", "cer", "sentence_error", "rmse", "mae", "mse", "length_error", "bit_error", "wrong_positions"}
    | {"repeated_2", "repeated_3", "unsupported"}
)


def goodness(name: str, value: float) -> float:
    """A score of the metric of this name as a number of which more is better."""
    return -value if name in LESS_IS_BETTER else value


@dataclass(frozen=True)
class Metric(Generic[P]):
    """What is counted in each text, and how the score that comes of it is signed. Called, it gives that score.

    ``scored`` is for metrics of which another library computes the score itself, and signs it.
    """

    name: str
    statistics: Callable[P, Statistics]
    signature: Callable[P, str]
    scored: Callable[P, MetricScore] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> MetricScore:
        if self.scored is not None:
            return self.scored(*args, **kwargs)
        return MetricScore(self.statistics(*args, **kwargs).score(), self.signature(*args, **kwargs))


def metric(
    signature: str | Callable[..., str] = "", *, name: str = "", scored: Callable[..., MetricScore] | None = None
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


def mean_statistics(values: Sequence[float] | np.ndarray) -> Statistics:
    """Of metrics that are a mean over texts."""
    rows = np.ones((len(values), 2))
    rows[:, 0] = values
    return Statistics(rows, means)


def means(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


def by_threshold(probs: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where a threshold can be set: the probabilities from the highest, each once; at each, how many are as high, and
    how many of those are right."""
    order = np.argsort(-probs, axis=None, kind="stable")
    values, hits = probs.ravel()[order], np.cumsum(right.ravel()[order])
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of equal ones
    return values[last], last + 1, hits[last]


# Paired bootstrap (Koehn 2004): is one system better than another, or is the difference due to these sentences?


_AT_ONCE = 1 << 22  # drawn sentences held at a time: what bounds the memory


@dataclass(frozen=True)
class Resampled:
    """A system's score, the interval that holds 95 % of its resampled scores, and how it stands to the first system.

    ``p`` is Koehn's, and one-sided: the share of resamples in which whichever of the two is better on the whole is not
    better. It says how sure the sign of the difference is on other sentences of this kind, and nothing of other seeds.
    """

    value: float
    interval: tuple[float, float]
    difference: float | None = None
    p: float | None = None


def paired_bootstrap(systems: Sequence[Statistics], samples: int = 1000, seed: int = 0) -> list[Resampled]:
    """Each system on the same resamples of the same sentences; all but the first against the first."""
    texts = len(systems[0])
    if not texts or any(len(system) != texts for system in systems):
        raise ValueError("the systems must have the same texts, and at least one")
    rows = np.concatenate([system.rows for system in systems], axis=1)
    ends = np.cumsum([system.rows.shape[1] for system in systems])[:-1]
    scores: list[list[np.ndarray]] = [[] for _ in systems]
    for counts in resamples(texts, samples, seed):
        for parts, system, sums in zip(scores, systems, np.split(counts @ rows, ends, axis=1), strict=True):
            parts.append(system.scores_of_sums(sums))
    resampled = [np.concatenate(parts) for parts in scores]
    first = systems[0].score()
    intervals = [Resampled(first, interval_of(resampled[0]))]
    for system, of_system in zip(systems[1:], resampled[1:], strict=True):
        value = system.score()
        reversed_in = (np.sign(value - first) * (of_system - resampled[0]) <= 0).sum()
        # One is added to both: no number of resamples shows that a p is 0.
        p = float((reversed_in + 1) / (len(of_system) + 1))
        intervals.append(Resampled(value, interval_of(of_system), value - first, p))
    return intervals


def resamples(texts: int, samples: int, seed: int) -> Iterator[Float64[np.ndarray, "samples texts"]]:
    """How often each text is in each resample."""
    draw = np.random.default_rng(seed)
    at_once = max(1, _AT_ONCE // texts)
    for start in range(0, samples, at_once):
        size = min(at_once, samples - start)
        drawn = draw.integers(texts, size=(size, texts)) + texts * np.arange(size)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * texts).reshape(size, texts).astype(np.float64)


def interval_of(scores: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(scores, [2.5, 97.5]).tolist()
    return low, high
