"""Ridge regression from the frames of a series to a sequence of vectors, each from frames around its place.

The place of vector u of U is frame ``(u + ½) T / U`` of T: what is simplest where both run at the same pace. It knows
the true length of the sequence. What is computed once from the training data is plain numbers.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float, Float64

BESIDE = 5  # frames to each side, at most
FRAMES = 200_000  # vectors that it learns from, at most
WIDEST = 4096  # numbers that a vector is computed from: frames of many numbers have fewer beside them
LARGEST = 1 << 20  # weights; more are not fitted
STRENGTHS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)  # in units of the variance of all vectors that it learns from


def around(frames: Float[np.ndarray, "t d"], count: int, beside: int = BESIDE) -> Float64[np.ndarray, "u n"]:
    """For each of ``count`` vectors the frames around its place, side by side; the ends are repeated."""
    places = np.floor((np.arange(count) + 0.5) * len(frames) / max(1, count)).astype(np.int64)
    chosen = np.clip(places[:, None] + np.arange(-beside, beside + 1), 0, len(frames) - 1)
    return frames[chosen].reshape(count, -1).astype(np.float64)


class Ridge:
    """``weights``: one row for each number of the frames around a place, and the last for the constant."""

    def __init__(self, weights: Float64[np.ndarray, "n e"], beside: int = BESIDE) -> None:
        self.weights, self.beside = weights, beside

    @property
    def name(self) -> str:
        return f"ridge regression on {self.beside} frames to each side"

    @classmethod
    def fit(cls, pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> "Ridge | None":
        """From frames and vectors of training items, of which every tenth chooses the strength. None: too large.

        What people get wrong: a penalty on numbers of different scale is a penalty on the small ones; here all have
        the same deviation.
        """
        kept: list[tuple[np.ndarray, np.ndarray]] = []
        total: np.ndarray | None = None
        targets: np.ndarray | None = None
        beside = width = vectors = 0
        for number, (frames, gold) in enumerate(pairs):
            if not number:
                beside = min(BESIDE, (WIDEST // max(1, frames.shape[1]) - 1) // 2)
                width = (2 * beside + 1) * frames.shape[1]
                if beside < 0 or width * gold.shape[1] > LARGEST:
                    return None
            x, y = around(frames, len(gold), beside), gold.astype(np.float64)
            x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
            if number % 10 == 9:
                kept.append((x, y))
            else:
                total = x.T @ x if total is None else total + x.T @ x
                targets = x.T @ y if targets is None else targets + x.T @ y
            vectors += len(gold)
            if vectors >= FRAMES:
                break
        if total is None or targets is None:
            return None
        count = total[-1, -1]
        mean = total[-1, :-1] / count
        deviation = np.sqrt(np.maximum(np.diag(total)[:-1] / count - mean**2, 0.0))
        deviation = np.where(deviation <= 1e-6 * np.abs(mean) + 1e-12, np.inf, deviation)  # a constant says nothing
        level = targets[-1] / count
        inner = (total[:-1, :-1] - count * np.outer(mean, mean)) / np.outer(deviation, deviation)
        outer = (targets[:-1] - count * np.outer(mean, level)) / deviation[:, None]
        best: tuple[float, np.ndarray] | None = None
        for strength in STRENGTHS:
            slopes = np.linalg.solve(inner + strength * count * np.eye(width), outer) / deviation[:, None]
            weights = np.concatenate([slopes, (level - mean @ slopes)[None]])
            error = sum(float(np.square(x @ weights - y).sum()) for x, y in kept)
            if best is None or error < best[0]:
                best = error, weights
        assert best is not None
        return cls(best[1], beside)

    def predict(self, frames: np.ndarray, count: int) -> Float64[np.ndarray, "u e"]:
        return around(frames, count, self.beside) @ self.weights[:-1] + self.weights[-1]

    def to_json(self) -> dict[str, object]:
        return {"beside": self.beside, "weights": self.weights.astype(np.float32).tolist()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any], inputs: int, outputs: int) -> "Ridge":
        """What `to_json` made, for frames and vectors of so many numbers; raises ValueError."""
        weights, beside = np.asarray(data["weights"], np.float64), data["beside"]
        if type(beside) is not int or not 0 <= beside <= BESIDE:
            raise ValueError(f"beside is {beside!r}")
        if weights.shape != ((2 * beside + 1) * inputs + 1, outputs) or not np.isfinite(weights).all():
            raise ValueError(f"the weights of ridge regression have the shape {weights.shape}, or are not finite")
        return cls(weights, beside)
