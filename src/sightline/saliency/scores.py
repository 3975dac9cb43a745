"""How well a map says where people looked.

The definitions are those of Bylinskii, Judd, Oliva, Torralba and Durand, "What do different evaluation metrics tell us
about saliency models?", IEEE Transactions on Pattern Analysis and Machine Intelligence 41(3), 2019. ``fixations`` are
rows of x and y in pixels of the map; a pixel looked at twice counts once, and places outside the map do not count.
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
    """The area under the ROC curve: pixels that were looked at against all others (Judd and others, 2009).

    The curve has a point for each value of the map that a fixation has, and straight lines between. Half where the map
    is flat, and NaN where nothing was looked at, or everything.
    """
    looked = pixels_of(fixations, saliency.shape)
    values = saliency.reshape(-1).astype(np.float64)
    if not 0 < len(looked) < len(values):
        return math.nan
    hits = np.sort(values[looked])
    misses = np.sort(np.delete(values, looked))
    steps = np.unique(hits)[::-1]
    right = (len(hits) - np.searchsorted(hits, steps)) / len(hits)
    wrong = (len(misses) - np.searchsorted(misses, steps)) / len(misses)
    return float(np.trapezoid(np.concatenate([[0], right, [1]]), np.concatenate([[0], wrong, [1]])))


def auc_shuffled(saliency: Map, fixations: Places, elsewhere: Places) -> float:
    """The chance that a fixation has a higher value than one made in another image; equal values count half.

    Zhang and others (2008): as people look to the middle of every image, ``elsewhere``, the fixations of other images
    laid over this one, takes away what the middle alone would earn. All of them are used, where others draw some at
    random: it is the mean of all such draws.
    """
    here, there = _values(saliency, fixations), np.sort(_values(saliency, elsewhere, once=False))
    if not len(here) or not len(there):
        return math.nan
    below = np.searchsorted(there, here, side="left") + np.searchsorted(there, here, side="right")
    return float(below.mean() / (2 * len(there)))


def nss(saliency: Map, fixations: Places) -> float:
    """Normalised scan-path saliency: the mean of the map where people looked, in standard deviations of the map.

    0 is chance, and what a flat map gets.
    """
    wide = saliency.astype(np.float64)
    spread = wide.std()
    looked = _values(wide, fixations)
    if not len(looked):
        return math.nan
    return float((looked.mean() - wide.mean()) / spread) if spread > 0 else 0.0


def similarity(saliency: Map, density: Map) -> float:
    """How much of two distributions lies in the same place: 1 where they are equal, 0 where they never meet."""
    return float(np.minimum(_shares(_from_zero(saliency)), _shares(_from_zero(density))).sum())


def kl_divergence(saliency: Map, density: Map) -> float:
    """How much of where people looked the map leaves unsaid, in nats: 0 where they are equal, and less is better."""
    said, seen = _shares(saliency), _shares(density)
    return float((seen * np.log(NO_DIVISION_BY_ZERO + seen / (said + NO_DIVISION_BY_ZERO))).sum())


def fixation_density(fixations: Places, height: int, width: int, spread: float) -> Float[np.ndarray, "h w"]:
    """Where people looked as a smooth map: fixations, each time they were made, under a Gaussian of so many pixels.

    The usual spread is one degree of the eye's view, which is how finely it sees and how well it is measured.
    """
    counts = np.bincount(_inside(fixations, (height, width)), minlength=height * width).reshape(1, 1, height, width)
    return blur(torch.from_numpy(counts.astype(np.float64)), spread, border="constant")[0, 0].numpy()


def pixels_of(fixations: Places, shape: tuple[int, ...]) -> np.ndarray:
    """The pixels that were looked at, each once, as places in the map row by row."""
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
