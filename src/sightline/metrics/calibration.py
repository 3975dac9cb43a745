"""Is a model as often right as it is sure? Calibration, and the one number that mends most of it.

What people get wrong: accuracy says nothing of it (a model that is right 90 % of the time and always 99.9 % sure is
badly calibrated), and the temperature changes no answer, only how sure it is.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from sightline.metrics.base import Score, Statistics, mean_statistics, metric

BINS = 15  # of equal width, as in Guo et al. (2017)
COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are tried
Logits = Float[np.ndarray, "texts classes"]
Probabilities = Float[np.ndarray, "texts classes"]
Labels = Int[np.ndarray, " texts"]


@dataclass(frozen=True)
class Bin:
    """Texts of which the model was about equally sure: from ``low`` up to ``high``, and how often it was right."""

    low: float
    high: float
    count: int
    confidence: float  # mean of what the model said; 0 where there are none
    accuracy: float


def probabilities(
    logits: Logits, temperature: float = 1.0, *, several: bool = False
) -> Float64[np.ndarray, "texts classes"]:
    """Softmax of logits over a temperature; where a text may have several labels, each by itself, by the logistic."""
    if not several:
        return np.exp(_log_softmax(logits, temperature))
    return np.exp(_log_softmax(_no_and_yes(logits), temperature))[:, 1].reshape(logits.shape)


def as_two_classes(
    logits: Float[np.ndarray, "texts classes"], gold: np.ndarray
) -> tuple[Float64[np.ndarray, "decisions two"], Int[np.ndarray, " decisions"]]:
    """Several labels as one decision each, no or yes, for everything here."""
    return _no_and_yes(logits), (gold.reshape(-1) > 0).astype(np.int64)


@metric("nll|nats")
def nll(logits: Logits, gold: Labels, temperature: float = 1.0) -> Statistics:
    """The mean of -log of the right class's probability, in nats. Less is better."""
    _check(logits, gold)
    return mean_statistics((-_log_softmax(logits, temperature)[np.arange(len(gold)), gold]).tolist())


@metric("brier|all classes")
def brier(chances: Probabilities, gold: Labels) -> Statistics:
    """The mean over texts of the squared distance of all classes' probabilities from 1 or 0: from 0 to 2 at the worst.

    As Brier defined it; for two classes, twice what is counted where only one of them is looked at.
    """
    _check(chances, gold)
    distance = chances.astype(np.float64)
    distance[np.arange(len(gold)), gold] -= 1
    return mean_statistics((distance**2).sum(axis=1).tolist())


@metric(lambda chances, gold, bins=BINS: f"ece|top label|equal width|bins:{bins}")
def ece(chances: Probabilities, gold: Labels, bins: int = BINS) -> Statistics:
    """Expected calibration error, in percent: how far sureness and accuracy are apart, bin by bin, weighed by texts.

    Of the label that was given (the most probable), in bins of equal width. Counted are, in each bin, the sum of
    sureness less that of right answers; and the number of texts.
    """
    confidence, right = _top(chances, gold)
    rows = np.zeros((len(gold), bins + 1))
    rows[np.arange(len(gold)), _bin_of(confidence, bins)] = confidence - right
    rows[:, bins] = 1
    return Statistics(rows, _ece_of_sums)


def adaptive_ece(chances: Probabilities, gold: Labels, bins: int = BINS) -> Score:
    """The same with bins that hold equally many texts: where a model is nearly always sure, most bins of equal width
    are empty, and the last one hides what is in it."""
    found = adaptive_bins(chances, gold, bins)
    total = sum(one.count for one in found)
    gap = sum(one.count * abs(one.confidence - one.accuracy) for one in found)
    return Score(100 * gap / max(total, 1), f"ece|top label|equal count|bins:{bins}")


def reliability_bins(chances: Probabilities, gold: Labels, bins: int = BINS) -> list[Bin]:
    """All bins of equal width, also those without texts: what the reliability picture shows."""
    confidence, right = _top(chances, gold)
    which = _bin_of(confidence, bins)
    counts = np.bincount(which, minlength=bins)
    sure, correct = (np.bincount(which, weights=one, minlength=bins) for one in (confidence, right))
    some = np.maximum(counts, 1)
    return [
        Bin(place / bins, (place + 1) / bins, count, mean, share)
        for place, (count, mean, share) in enumerate(
            zip(counts.tolist(), (sure / some).tolist(), (correct / some).tolist(), strict=True)
        )
    ]


def adaptive_bins(chances: Probabilities, gold: Labels, bins: int = BINS) -> list[Bin]:
    """Bins of equally many texts, from the least sure; fewer than asked where there are fewer texts.

    Texts of which the model is exactly as sure stay together, so that their order in the file changes nothing.
    """
    confidence, right = _top(chances, gold)
    if not len(gold):
        return []
    _, which, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    bin_of = np.minimum((middle * bins / len(gold)).astype(np.int64), bins - 1)[which]
    return [
        Bin(
            float(confidence[here].min()),
            float(confidence[here].max()),
            int(here.sum()),
            float(confidence[here].mean()),
            float(right[here].mean()),
        )
        for place in range(bins)
        for here in [bin_of == place]
        if here.any()
    ]


def fit_temperature(logits: Logits, gold: Labels) -> float:
    """The temperature with the least `nll` on these (validation) logits, from 0.05 to 20 (Guo et al. 2017).

    In 1 / temperature the loss is convex and its slope only rises, so halving the interval finds its one minimum.
    Where every text has the right label, ever colder is ever better, and where there is no text there is nothing to
    fit: then it stays 1.
    """
    _check(logits, gold)
    wide = logits.astype(np.float64)
    of_gold = wide[np.arange(len(gold)), gold]
    if not len(gold) or (of_gold >= wide.max(axis=1)).all():
        return 1.0

    def slope(sharpness: float) -> float:
        return float(((probabilities(wide, 1 / sharpness) * wide).sum(axis=1) - of_gold).mean())

    low, high = np.log(1 / HOTTEST), np.log(1 / COLDEST)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(float(np.exp(middle))) > 0 else (middle, high)
    return float(np.clip(np.exp(-(low + high) / 2), COLDEST, HOTTEST))


def _no_and_yes(logits: np.ndarray) -> Float64[np.ndarray, "decisions two"]:
    yes = logits.astype(np.float64).reshape(-1)
    return np.stack([np.zeros_like(yes), yes], axis=1)


def _log_softmax(logits: np.ndarray, temperature: float) -> Float64[np.ndarray, "texts classes"]:
    if not temperature > 0:
        raise ValueError(f"a temperature is more than 0, not {temperature}")
    scaled = logits.astype(np.float64) / temperature
    scaled = scaled - scaled.max(axis=1, keepdims=True, initial=-np.inf)
    return scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))


def _top(chances: Probabilities, gold: Labels) -> tuple[np.ndarray, np.ndarray]:
    _check(chances, gold)
    confidence = chances.astype(np.float64).max(axis=1, initial=0.0)
    right = (chances.argmax(axis=1) == gold).astype(np.float64) if len(gold) else np.zeros(0)
    return confidence, right


def _bin_of(confidence: np.ndarray, bins: int) -> np.ndarray:
    """Bins hold their upper end, as usual, and the first one also 0."""
    return np.clip(np.ceil(confidence * bins - 1e-9).astype(np.int64) - 1, 0, bins - 1)


def _ece_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return 100 * np.abs(sums[:, :-1]).sum(axis=1) / np.maximum(sums[:, -1], 1)


def _check(values: np.ndarray, gold: np.ndarray) -> None:
    if len(values) != len(gold):
        raise ValueError(f"{len(values)} rows against {len(gold)} labels")
    if not np.isfinite(values).all():
        raise ValueError("calibration needs finite numbers")
    if len(gold) and not 0 <= gold.min() <= gold.max() < values.shape[1]:
        raise ValueError(f"labels run from {gold.min()} to {gold.max()}; the model has {values.shape[1]} classes")
