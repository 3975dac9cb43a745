"""Linear models on sparse features, by L-BFGS: what the baselines of a run are fitted with.

A feature is there or it is not: a matrix is the places of its ones, and a weight for each row and each column. So a
product with it, and with it turned over, is a sum of chosen rows, for which PyTorch has `embedding_bag`: for a million
n-grams of 25,000 reviews, a step takes a tenth of a second on one core.
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Shaped
from torch import Tensor, nn
from torch.nn.functional import softplus

from sightline.data.ngrams import Bags
from sightline.data.store import Corpus
from sightline.models.nb_svm import bag_sums

Loss = Literal["softmax", "logistic", "squares"]
_STEPS, _REMEMBERED = 100, 6
_FLAT = 1e-3  # of the first slope: where the search ends


class Matrix:
    """Texts times features. With the ``rarity`` of features, these weigh so much, and texts are vectors of length 1."""

    def __init__(self, rows: Bags, features: int, rarity: Float32[np.ndarray, " features"] | None = None) -> None:
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
        return bag_sums(self._columns, weights, self._starts)

    def times(self, weights: Float[Tensor, "features outputs"]) -> Float[Tensor, "texts outputs"]:
        """The sum over its features, as a share of its length."""
        sums = self.sums(weights)
        return sums if self.lengths is None else sums / self.lengths

    def turned_times(self, errors: Float[Tensor, "texts outputs"]) -> Float[Tensor, "features outputs"]:
        """For each feature, the sum over the texts that have it."""
        if self._turned is None:
            self._turned = self._turn()
        return bag_sums(self._turned[0], errors if self.lengths is None else errors / self.lengths, self._turned[1])

    def _turn(self) -> tuple[Tensor, Tensor]:
        order = np.argsort(self._rows.columns, kind="stable")
        texts = np.repeat(np.arange(self.texts, dtype=np.int32), self._rows.lengths)[order]
        starts = np.zeros(self.features + 1, dtype=np.int64)
        np.cumsum(np.bincount(self._rows.columns, minlength=self.features), out=starts[1:])
        return torch.from_numpy(texts), torch.from_numpy(starts)


def rarities(rows: Bags, features: int) -> Float32[np.ndarray, " features"]:
    """log((1 + texts) / (1 + texts with the feature)) + 1: the usual inverse document frequency, and never 0."""
    counts = np.bincount(rows.columns, minlength=features)
    return (np.log((1 + len(rows)) / (1 + counts)) + 1).astype(np.float32)


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
    scale, targets = torch.from_numpy(scales), torch.from_numpy(target)
    targets = targets.long() if loss == "softmax" else targets.float()
    share = 1 / (strength * max(matrix.texts, 1))  # the mean over texts: steps then have the same size for any number
    fitted = torch.zeros(matrix.features + 1, outputs)  # the last row is the bias, which may be of any size

    def slope() -> Tensor:
        weights = fitted[:-1]
        total, errors = _loss(loss, matrix.times(scale * weights) + fitted[-1], targets)
        errors /= max(matrix.texts, 1)
        fitted.grad = torch.cat([scale * matrix.turned_times(errors) + share * weights, errors.sum(0, keepdim=True)])
        return (total / max(matrix.texts, 1) + share / 2 * weights.double().square().sum()).float()

    slope()
    assert fitted.grad is not None
    flat = max(_FLAT * float(fitted.grad.abs().max()), 1e-9)
    search = torch.optim.LBFGS(
        [fitted],
        max_iter=_STEPS,
        history_size=_REMEMBERED,
        tolerance_grad=flat,
        tolerance_change=1e-9,
        line_search_fn="strong_wolfe",
    )
    search.step(slope)
    return fitted[:-1].numpy(), fitted[-1].numpy()


def _loss(loss: Loss, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The sum over texts, and how it changes with each output."""
    if loss == "softmax":
        logs = outputs.log_softmax(dim=1)
        of_targets = logs.gather(1, targets[:, None])
        errors = logs.exp().scatter_add_(1, targets[:, None], torch.full_like(of_targets, -1.0))
        return -of_targets.double().sum(), errors
    if loss == "logistic":
        margins = targets * outputs
        return softplus(-margins).double().sum(), -targets * torch.sigmoid(-margins)
    errors = outputs - targets
    return errors.double().square().sum() / 2, errors


# Word vectors from counts alone: words that stand in the same texts get vectors that are near each other.
#
# Latent semantic analysis (Deerwester et al. 1990): texts times words, each word weighed by its rarity and each text a
# vector of length 1; the words' side of the largest singular values, times these. The decomposition is found through
# random directions (Halko et al. 2011), some products with a sparse matrix: for 25,000 reviews it takes seconds.


LONGEST = 512  # tokens; what is longer is taken for several texts
MOST, MOST_TEXTS = 2**24, 2**17  # tokens and texts that are counted; of a larger corpus, as many, drawn by the seed
MORE, ROUNDS = 16, 3  # directions beyond those asked for, and how often they are turned towards the largest
NOISE = 1e-3  # shorter than this share of the longest vector, a direction is rounding
OWN = 0.1  # the share of random vectors that stays, so that words of the same texts can part


def text_rows(corpus: Corpus, seed: int, longest: int = LONGEST, most: int = MOST, texts: int = MOST_TEXTS) -> Bags:
    """Which tokens stand in each text."""
    starts, columns, counted = [0], list[np.ndarray](), 0
    for text in np.random.default_rng(seed).permutation(len(corpus)):
        tokens = corpus[int(text)][0][: most - counted]
        counted += len(tokens)
        for start in range(0, len(tokens), longest):
            columns.append(np.unique(tokens[start : start + longest]).astype(np.int32))
            starts.append(starts[-1] + len(columns[-1]))
        if counted >= most or len(columns) >= texts:
            break
    every = np.concatenate(columns[:texts]) if columns else np.zeros(0, dtype=np.int32)
    return Bags(np.array(starts[: texts + 1], dtype=np.int64), every)


def word_vectors(rows: Bags, words: int, size: int, seed: int) -> Float32[np.ndarray, "words size"] | None:
    """A vector of length 1 for each word that stands in some texts and not in others, and zeros for the rest.

    None where there are too few texts or words to have so many directions.
    """
    if min(len(rows), words) < size + MORE:
        return None
    rarity = rarities(rows, words)
    matrix, weights = Matrix(rows, words, rarity), torch.from_numpy(rarity)[:, None]
    basis = torch.randn(words, size + MORE, generator=torch.Generator().manual_seed(seed))
    for _ in range(ROUNDS):
        basis = torch.linalg.qr(weights * matrix.turned_times(matrix.times(weights * basis))).Q
    projected = matrix.times(weights * basis)
    # The eigenvalues of this small matrix are the squares of the singular values; the largest stand last.
    values, turns = torch.linalg.eigh(projected.T @ projected)
    vectors = _one_way_round((basis @ turns * values.clamp_min(0).sqrt())[:, -size:].flip(1))
    there = torch.zeros(words, 1)
    there[torch.from_numpy(rows.columns).long()] = 1
    # Without what all words have in common, which would only say that they are words.
    centred = (vectors - (vectors * there).sum(dim=0) / there.sum()) * there
    lengths = centred.norm(dim=1, keepdim=True)
    told = lengths > NOISE * vectors.norm(dim=1).max()
    return torch.where(told, centred / lengths.clamp_min(1e-12), 0.0).numpy()


def _one_way_round(vectors: Float[Tensor, "words size"]) -> Float[Tensor, "words size"]:
    """Each direction may point either way; as it comes depends on the number of threads."""
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return torch.where(largest < 0, -vectors, vectors)


@torch.no_grad()
def begin_with(table: nn.Embedding, vectors: Float32[np.ndarray, "words size"]) -> None:
    """Put vectors into a table of words, as long as those that it has; words without one keep theirs."""
    given = torch.from_numpy(vectors).to(table.weight)
    there = given.norm(dim=1) > 0
    if table.padding_idx is not None:
        there[table.padding_idx] = False
    length = table.weight.norm(dim=1).median()
    table.weight[there] = given[there] * length + table.weight[there] * OWN
