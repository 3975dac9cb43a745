"""Linear models on sparse features, by L-BFGS: what the floors of a run are fitted with.

A feature is there or it is not: a matrix is the places of its ones, and a weight for each row and each column. So a
product with it, and with it turned over, is a sum of chosen rows, for which PyTorch has `embedding_bag`: for a million
n-grams of 25,000 reviews, a step takes a tenth of a second on one core.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Shaped
from torch import Tensor
from torch.nn.functional import embedding_bag, softplus

from sightline.baselines.ngrams import Rows

Loss = Literal["softmax", "logistic", "squares"]
_STEPS, _REMEMBERED = 100, 6
_FLAT = 1e-3  # of the first slope: where the search ends


class Matrix:
    """Texts times features. With the ``rarity`` of features, these weigh so much, and texts are vectors of length 1."""

    def __init__(self, rows: Rows, features: int, rarity: Float32[np.ndarray, " features"] | None = None) -> None:
        self.texts, self.features = len(rows), features
        self._rows = rows
        self._turned: tuple[Tensor, Tensor] | None = None
        self._columns, self._starts = torch.from_numpy(rows.columns), torch.from_numpy(rows.starts)
        self.lengths: Float[Tensor, "texts 1"] | None = None
        if rarity is not None:
            squares = self.sums(torch.from_numpy(rarity**2)[:, None])
            self.lengths = squares.clamp_min(1e-12).sqrt()

    def sums(self, weights: Float[Tensor, "features outputs"]) -> Float[Tensor, "texts outputs"]:
        """For each text, the sum over its features."""
        return _bags(self._columns, weights, self._starts)

    def times(self, weights: Float[Tensor, "features outputs"]) -> Float[Tensor, "texts outputs"]:
        """The sum over its features, as a share of its length."""
        found = self.sums(weights)
        return found if self.lengths is None else found / self.lengths

    def turned_times(self, errors: Float[Tensor, "texts outputs"]) -> Float[Tensor, "features outputs"]:
        """For each feature, the sum over the texts that have it."""
        if self._turned is None:
            self._turned = self._turn()
        return _bags(self._turned[0], errors if self.lengths is None else errors / self.lengths, self._turned[1])

    def _turn(self) -> tuple[Tensor, Tensor]:
        order = np.argsort(self._rows.columns, kind="stable")
        texts = np.repeat(np.arange(self.texts, dtype=np.int32), self._rows.lengths)[order]
        starts = np.zeros(self.features + 1, dtype=np.int64)
        np.cumsum(np.bincount(self._rows.columns, minlength=self.features), out=starts[1:])
        return torch.from_numpy(texts), torch.from_numpy(starts)


def _bags(places: Tensor, values: Tensor, starts: Tensor) -> Tensor:
    if not len(places) or not len(values):  # of which embedding_bag makes no sums
        return values.new_zeros(len(starts) - 1, values.shape[1])
    return embedding_bag(places, values, starts.to(places.dtype), mode="sum", include_last_offset=True)


def rarities(rows: Rows, features: int) -> Float32[np.ndarray, " features"]:
    """log((1 + texts) / (1 + texts with the feature)) + 1: the usual inverse document frequency, and never 0."""
    found = np.bincount(rows.columns, minlength=features)
    return (np.log((1 + len(rows)) / (1 + found)) + 1).astype(np.float32)


def ratios(matrix: Matrix, members: Bool[np.ndarray, "texts outputs"]) -> Float32[np.ndarray, "features outputs"]:
    """Wang and Manning's r: the log of how much likelier a feature is in the texts of a class than in all others."""
    ones = torch.from_numpy(members.astype(np.float32))
    inside, outside = matrix.turned_times(ones) + 1, matrix.turned_times(1 - ones) + 1
    return (torch.log(inside / inside.sum(dim=0)) - torch.log(outside / outside.sum(dim=0))).numpy()


def fit_linear(
    matrix: Matrix,
    scales: Float32[np.ndarray, "features outputs_or_one"],
    target: Shaped[np.ndarray, "texts ..."],
    outputs: int,
    loss: Loss,
    strength: float,
) -> tuple[Float32[np.ndarray, "features outputs"], Float32[np.ndarray, " outputs"]]:
    """Weights w and bias b that make strength · Σ loss(b + Σ scale · w) + |w|² / 2 smallest.

    ``target`` is a class (softmax), 1 or -1 for each output (logistic), or numbers (squares).
    """
    scale, wanted = torch.from_numpy(scales), torch.from_numpy(target)
    wanted = wanted.long() if loss == "softmax" else wanted.float()
    share = 1 / (strength * max(matrix.texts, 1))  # the mean over texts: steps then have the same size for any number
    found = torch.zeros(matrix.features + 1, outputs)  # the last row is the bias, which may be of any size

    def slope() -> Tensor:
        weights = found[:-1]
        total, errors = _loss(loss, matrix.times(scale * weights) + found[-1], wanted)
        errors /= max(matrix.texts, 1)
        found.grad = torch.cat([scale * matrix.turned_times(errors) + share * weights, errors.sum(0, keepdim=True)])
        return (total / max(matrix.texts, 1) + share / 2 * weights.double().square().sum()).float()

    slope()
    assert found.grad is not None
    flat = max(_FLAT * float(found.grad.abs().max()), 1e-9)
    search = torch.optim.LBFGS(
        [found],
        max_iter=_STEPS,
        history_size=_REMEMBERED,
        tolerance_grad=flat,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )
    search.step(slope)
    return found[:-1].numpy(), found[-1].numpy()


def _loss(loss: Loss, outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over texts, and how it changes with each output."""
    if loss == "softmax":
        logs = outputs.log_softmax(dim=1)
        of_wanted = logs.gather(1, wanted[:, None])
        errors = logs.exp().scatter_add_(1, wanted[:, None], torch.full_like(of_wanted, -1.0))
        return -of_wanted.double().sum(), errors
    if loss == "logistic":
        margins = wanted * outputs
        return softplus(-margins).double().sum(), -wanted * torch.sigmoid(-margins)
    errors = outputs - wanted
    return errors.double().square().sum() / 2, errors
