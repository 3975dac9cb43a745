"""Word vectors from counts alone: words that stand in the same texts get vectors that are near each other.

Latent semantic analysis (Deerwester et al. 1990): texts times words, each word weighed by its rarity and each text a
vector of length 1; the words' side of the largest singular values, times these. The decomposition is found through
random directions (Halko et al. 2011), some products with a sparse matrix: for 25,000 reviews it takes seconds.
"""

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from sightline.baselines.linear import Matrix, rarities
from sightline.baselines.ngrams import Rows
from sightline.data.store import Corpus

LONGEST = 512  # tokens; what is longer is taken for several texts
MOST, MOST_TEXTS = 2**24, 2**17  # tokens and texts that are counted; of a larger corpus, as many, drawn by the seed
MORE, ROUNDS = 16, 3  # directions beyond those asked for, and how often they are turned towards the largest
NOISE = 1e-3  # shorter than this share of the longest vector, a direction is rounding
OWN = 0.1  # the share of random vectors that stays, so that words of the same texts can part


def text_rows(corpus: Corpus, seed: int, longest: int = LONGEST, most: int = MOST, texts: int = MOST_TEXTS) -> Rows:
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
    found = np.concatenate(columns[:texts]) if columns else np.zeros(0, dtype=np.int32)
    return Rows(np.array(starts[: texts + 1], dtype=np.int64), found)


def word_vectors(rows: Rows, words: int, size: int, seed: int) -> Float32[np.ndarray, "words size"] | None:
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
    found = _one_way_round((basis @ turns * values.clamp_min(0).sqrt())[:, -size:].flip(1))
    there = torch.zeros(words, 1)
    there[torch.from_numpy(rows.columns).long()] = 1
    # Without what all words have in common, which would only say that they are words.
    centred = (found - (found * there).sum(dim=0) / there.sum()) * there
    lengths = centred.norm(dim=1, keepdim=True)
    told = lengths > NOISE * found.norm(dim=1).max()
    return torch.where(told, centred / lengths.clamp_min(1e-12), 0.0).numpy()


def _one_way_round(found: Float[Tensor, "words size"]) -> Float[Tensor, "words size"]:
    """Each direction may point either way; as it comes depends on the number of threads."""
    largest = found.gather(0, found.abs().argmax(dim=0, keepdim=True))
    return torch.where(largest < 0, -found, found)


@torch.no_grad()
def begin_with(table: nn.Embedding, vectors: Float32[np.ndarray, "words size"]) -> None:
    """Put vectors into a table of words, as long as those that it has; words without one keep theirs."""
    given = torch.from_numpy(vectors).to(table.weight)
    there = given.norm(dim=1) > 0
    if table.padding_idx is not None:
        there[table.padding_idx] = False
    length = table.weight.norm(dim=1).median()
    table.weight[there] = given[there] * length + table.weight[there] * OWN
