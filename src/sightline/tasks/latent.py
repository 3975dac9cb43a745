"""Word vectors from counts alone: words that stand in the same texts get vectors that are near each other.

Latent semantic analysis (Deerwester et al. 1990): texts times words, each word weighed by its rarity and each text a
vector of length 1; the words' side of the largest singular values, times these. The decomposition is found through
random directions (Halko et al. 2011), some products with a sparse matrix: for 25,000 reviews it takes seconds, where a
masked model needs hours before its table of words knows as much of what texts are about.
"""

import math

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from sightline.data.ngrams import Rows
from sightline.data.store import Corpus
from sightline.tasks.linear import Matrix, rarities

LONGEST = 512  # tokens; what is longer is taken for several texts
MOST = 2**24  # tokens that are counted; of a larger corpus, every so-manieth text
MORE, ROUNDS = 16, 3  # directions beyond those asked for, and how often they are turned towards the largest


def text_rows(corpus: Corpus, longest: int = LONGEST, most: int = MOST) -> Rows:
    """Which tokens stand in each text."""
    every = math.ceil(int(corpus.lengths()[0].sum()) / most)
    starts, columns = [0], []
    for text in range(0, len(corpus), max(1, every)):
        tokens = corpus[text][0][:most]
        for start in range(0, len(tokens), longest):
            columns.append(np.unique(tokens[start : start + longest]).astype(np.int32))
            starts.append(starts[-1] + len(columns[-1]))
    return Rows(np.array(starts, dtype=np.int64), np.concatenate(columns) if columns else np.zeros(0, dtype=np.int32))


def word_vectors(rows: Rows, words: int, size: int, seed: int) -> Float32[np.ndarray, "words size"] | None:
    """A vector of length 1 for each word that stands in a text, and zeros for the others; None for too few texts."""
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
    found = (basis @ turns * values.clamp_min(0).sqrt())[:, -size:].flip(1)
    there = torch.zeros(words, 1)
    there[torch.from_numpy(rows.columns).long()] = 1
    # Without what all words have in common, which would only say that they are words.
    centred = (found - (found * there).sum(dim=0) / there.sum()) * there
    return (centred / centred.norm(dim=1, keepdim=True).clamp_min(1e-12)).numpy()


@torch.no_grad()
def begin_with(table: nn.Embedding, vectors: Float32[np.ndarray, "words size"]) -> None:
    """Put vectors into a table of words, as long as those that it has; words without one keep theirs."""
    given = torch.from_numpy(vectors).to(table.weight)
    there = given.norm(dim=1) > 0
    if table.padding_idx is not None:
        there[table.padding_idx] = False
    table.weight[there] = given[there] * _usual_length(table.weight)


def _usual_length(weight: Tensor) -> Tensor:
    return weight.norm(dim=1).median()
