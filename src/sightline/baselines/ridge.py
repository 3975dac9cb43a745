"""Ridge regression from the frames of a series to a sequence of vectors, each from frames around its place.

The place of vector u of U is frame ``(u + ½) T / U`` of T: what is simplest where both run at the same pace. It knows
the true length of the sequence. What is computed once from the training data is plain numbers.
"""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Float64

BESIDE = 5  # frames to each side
FRAMES = 200_000  # vectors that it learns from, at most
LARGEST = 1 << 20  # weights; more are not fitted
STRENGTHS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0)


def around(frames: Float[np.ndarray, "t d"], count: int, beside: int = BESIDE) -> Float64[np.ndarray, "u n"]:
    """For each of ``count`` vectors the frames around its place, side by side; the ends are repeated."""
    places = np.floor((np.arange(count) + 0.5) * len(frames) / max(1, count)).astype(np.int64)
    chosen = np.clip(places[:, None] + np.arange(-beside, beside + 1), 0, len(frames) - 1)
    return frames[chosen].reshape(count, -1).astype(np.float64)


class Ridge:
    """``weights``: one row for each number of the input, and the last for the constant."""

    def __init__(self, weights: Float64[np.ndarray, "n e"]) -> None:
        self.weights = weights

    @classmethod
    def fit(cls, pairs: Iterable[tuple[np.ndarray, np.ndarray]]) -> "Ridge | None":
        """From frames and vectors of training items; the last tenth of them chooses the strength. None: too large."""
        kept: list[tuple[np.ndarray, np.ndarray]] = []
        total = None
        vectors = 0
        for number, (frames, gold) in enumerate(pairs):
            x = np.concatenate([around(frames, len(gold)), np.ones((len(gold), 1))], axis=1)
            y = gold.astype(np.float64)
            if x.shape[1] * y.shape[1] > LARGEST:
                return None
            if number % 10 == 9:
                kept.append((x, y))
            else:
                sums = x.T @ x, x.T @ y
                total = sums if total is None else (total[0] + sums[0], total[1] + sums[1])
            vectors += len(gold)
            if vectors >= FRAMES:
                break
        if total is None:
            return None
        scale = np.trace(total[0]) / len(total[0])
        best = None
        for strength in STRENGTHS:
            penalty = np.eye(len(total[0])) * strength * 1e-4 * scale
            penalty[-1, -1] = 1e-9 * scale  # the constant is free
            weights = np.linalg.solve(total[0] + penalty, total[1])
            error = sum(float(np.square(x @ weights - y).sum()) for x, y in kept)
            if best is None or error < best[0]:
                best = error, weights
        assert best is not None
        return cls(best[1])

    def predict(self, frames: np.ndarray, count: int) -> Float64[np.ndarray, "u e"]:
        x = around(frames, count)
        return x @ self.weights[:-1] + self.weights[-1]
