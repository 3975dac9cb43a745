"""Calibration: whether a model is right as often as its probabilities promise, and the temperature that mends it.

What people get wrong: accuracy says nothing of calibration (a model that is right 90 % of the time and gives 99.9 %
every time is badly calibrated), and the temperature changes no prediction, only its probability.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from sightline.metrics.base import Statistics, mean_statistics, metric

BINS = 15  # of equal width, as in Guo et al. (2017)
COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are tried
Logits = Float[np.ndarray, "texts classes"]
Probabilities = Float[np.ndarray, "texts classes"]
Labels = Int[np.ndarray, " texts"]


@dataclass(frozen=True)
class Bin:
    """Texts with a confidence from ``low`` up to ``high``, and how often their prediction was right."""

    low: float
    high: float
    count: int
    confidence: float  # mean of the probability of the predicted label; 0 where there are none
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
    return mean_statistics(-_log_softmax(logits, temperature)[np.arange(len(gold)), gold])


@metric("brier|all classes")
def brier(probs: Probabilities, gold: Labels) -> Statistics:
    """The mean over texts of the squared distance of all classes' probabilities from 1 or 0: from 0 to 2 at the worst.

    As Brier defined it; for two classes, twice what is counted where only one of them is looked at.
    """
    _check(probs, gold)
    distance = probs.astype(np.float64)
    distance[np.arange(len(gold)), gold] -= 1
    return mean_statistics((distance**2).sum(axis=1))


@metric(lambda probs, gold, bins=BINS: f"ece|top label|equal width|bins:{bins}")
def ece(probs: Probabilities, gold: Labels, bins: int = BINS) -> Statistics:
    """Expected calibration error, in percent: the distance of confidence and accuracy, bin by bin, weighed by texts.

    The confidence is the probability of the most probable label; bins have equal width. Counted are, in each bin, the
    sum of confidence less that of right predictions; and the number of texts.
    """
    confidence, right = _top(probs, gold)
    rows = np.zeros((len(gold), bins + 1))
    rows[np.arange(len(gold)), _bin_of(confidence, bins)] = confidence - right
    rows[:, bins] = 1
    return Statistics(rows, _ece_of_sums)


def reliability_bins(probs: Probabilities, gold: Labels, bins: int = BINS) -> list[Bin]:
    """All bins of equal width, also those without texts: what the reliability picture shows."""
    confidence, right = _top(probs, gold)
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


def _top(probs: Probabilities, gold: Labels) -> tuple[np.ndarray, np.ndarray]:
    _check(probs, gold)
    confidence = probs.astype(np.float64).max(axis=1, initial=0.0)
    right = (probs.argmax(axis=1) == gold).astype(np.float64) if len(gold) else np.zeros(0)
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
