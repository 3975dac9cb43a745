"""Scores of a saliency map by human fixations.

The definitions are those of Bylinskii, Judd, Oliva, Torralba and Durand, "What do different evaluation metrics tell us
about saliency models?", IEEE Transactions on Pattern Analysis and Machine Intelligence 41(3), 2019. ``fixations`` are
rows of x and y in pixels of the map; a pixel fixated twice counts once, and places outside the map do not count.
"""

import math

import numpy as np
import torch
from jaxtyping import Float

from sightline.saliency.pyramids import blur

Map = Float[np.ndarray, "h w"]
Places = Float[np.ndarray, "_ 2"]
NO_DIVISION_BY_ZERO = 2.0**-52  # as in the published definition of KL: what an impossible place costs depends on it


def auc_judd(saliency: Map, fixations: Places) -> float:
    """The area under the ROC curve: fixated pixels against all others (Judd and others, 2009).

    The curve has a point for each value of the map at a fixation, and straight lines between. It is 0.5 if the map is
    flat, and NaN if no pixel was fixated, or all were.
    """
    fixated = pixels_of(fixations, saliency.shape)
    values = saliency.reshape(-1).astype(np.float64)
    if not 0 < len(fixated) < len(values):
        return math.nan
    hits = np.sort(values[fixated])
    misses = np.sort(np.delete(values, fixated))
    steps = np.unique(hits)[::-1]
    right = (len(hits) - np.searchsorted(hits, steps)) / len(hits)
    wrong = (len(misses) - np.searchsorted(misses, steps)) / len(misses)
    return float(np.trapezoid(np.concatenate([[0], right, [1]]), np.concatenate([[0], wrong, [1]])))


def auc_shuffled(saliency: Map, fixations: Places, elsewhere: Places) -> float:
    """The probability that a fixation has a higher value than one of another image; equal values count half.

    Zhang and others (2008): people look at the middle of every image. Comparing with ``elsewhere``, the fixations of
    other images, removes the advantage of a map that only marks the middle. All of them are used, where others draw
    some at random: this is the mean of all such draws.
    """
    here, there = _values(saliency, fixations), np.sort(_values(saliency, elsewhere, once=False))
    if not len(here) or not len(there):
        return math.nan
    below = np.searchsorted(there, here, side="left") + np.searchsorted(there, here, side="right")
    return float(below.mean() / (2 * len(there)))


def nss(saliency: Map, fixations: Places) -> float:
    """Normalised scan-path saliency: the mean of the map at fixations, in standard deviations of the map.

    0 is chance, and the score of a flat map.
    """
    wide = saliency.astype(np.float64)
    spread = wide.std()
    values = _values(wide, fixations)
    if not len(values):
        return math.nan
    return float((values.mean() - wide.mean()) / spread) if spread > 0 else 0.0


def similarity(saliency: Map, density: Map) -> float:
    """The overlap of two distributions: 1 if they are equal, 0 if they are disjoint."""
    return float(np.minimum(_shares(_from_zero(saliency)), _shares(_from_zero(density))).sum())


def kl_divergence(saliency: Map, density: Map) -> float:
    """The divergence of the map from the density of fixations, in nats: 0 if they are equal; less is better."""
    predicted, actual = _shares(saliency), _shares(density)
    return float((actual * np.log(NO_DIVISION_BY_ZERO + actual / (predicted + NO_DIVISION_BY_ZERO))).sum())


def fixation_density(fixations: Places, height: int, width: int, spread: float) -> Float[np.ndarray, "h w"]:
    """Fixations as a smooth map: all of them, also repeated ones, under a Gaussian of ``spread`` pixels.

    The usual spread is one degree of view: the resolution of the eye, and the accuracy of eye trackers.
    """
    counts = np.bincount(_inside(fixations, (height, width)), minlength=height * width).reshape(1, 1, height, width)
    return blur(torch.from_numpy(counts.astype(np.float64)), spread, border="constant")[0, 0].numpy()


def pixels_of(fixations: Places, shape: tuple[int, ...]) -> np.ndarray:
    """The fixated pixels, each once, as indices into the flattened map."""
    return np.unique(_inside(fixations, shape))


def _inside(fixations: Places, shape: tuple[int, ...]) -> np.ndarray:
    height, width = shape
    places = np.floor(np.asarray(fixations, dtype=np.float64).reshape(-1, 2))
    x, y = places[np.isfinite(places).all(axis=1)].T
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    return (y[inside] * width + x[inside]).astype(np.int64)


def _values(saliency: Map, fixations: Places, once: bool = True) -> Float[np.ndarray, " n"]:
    places = pixels_of(fixations, saliency.shape) if once else _inside(fixations, saliency.shape)
    return saliency.reshape(-1)[places].astype(np.float64)


def _from_zero(values: Map) -> Map:
    low, high = float(values.min()), float(values.max())
    return (values.astype(np.float64) - low) / (high - low) if high > low else np.ones(values.shape)


def _shares(values: Map) -> Map:
    wide = values.astype(np.float64)
    total = wide.sum()
    return wide / total if total > 0 else np.full(wide.shape, 1 / wide.size)
