"""Linear models on sparse features, by L-BFGS: what the baselines of a run are fitted with.

A feature is there or it is not: a matrix is the places of its ones, and a weight for each row and each column. So a
product with it, and with it turned over, is a sum of chosen rows, for which PyTorch has `embedding_bag`: for a million
n-grams of 25,000 reviews, a step takes a tenth of a second on one core.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Int64, Shaped, UInt64
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, softplus

from sightline.data.splitting import among
from sightline.data.store import Corpus
from sightline.text.sentences import writes_without_spaces

# Words and their n-grams as numbers, the features of a linear model.
#
# An n-gram is named by a fingerprint of 44 bits, made of those of its words, and never by its text: the n-grams of a
# corpus are made by a few operations on whole arrays. Those that a model keeps are a sorted array. In the usual table
# of 2^20 or 2^22 places, many would share a weight (25,000 reviews have 5 million different ones); here hardly one in a
# million does, and a small corpus makes a small file.


Text = str | tuple[str, str]  # a pair is a text and another one
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_WORDS_AT_ONCE = 1 << 20
_BITS = 44  # of a fingerprint: 20 are left for the number of a text among those cut at once
_TEXTS_AT_ONCE = 1 << (64 - _BITS)


class _Cutting(dict[int, str]):
    """For `str.translate`: signs, and the characters of scripts without spaces, stand alone."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        # A mark belongs to its letter, and an apostrophe to its word (don't, l'eau).
        joins = unicodedata.category(character)[0] in "LNMZC" or character in "'’"
        self[code] = character if joins and not writes_without_spaces(character) else f" {character} "
        return self[code]


_CUTTING = _Cutting()


def cut_words(text: str) -> list[str]:
    """Lower-cased words, signs, and single characters in scripts without spaces: their pairs are words there."""
    return text.lower().translate(_CUTTING).split()


@dataclass(frozen=True)
class Bags:
    """Which features each text has: those of text i are ``columns[starts[i] : starts[i + 1]]``, each once, sorted."""

    starts: Int64[np.ndarray, " texts_and_one"]
    columns: Int[np.ndarray, " entries"]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Int64[np.ndarray, " texts"]:
        return np.diff(self.starts)

    def take(self, texts: Int64[np.ndarray, " chosen"]) -> "Bags":
        """The rows of some texts."""
        lengths = self.lengths[texts]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        places = np.arange(starts[-1]) + np.repeat(self.starts[texts] - starts[:-1], lengths)
        return Bags(starts, self.columns[places])


class _Fingerprints(dict[str, int]):
    """Of words; the same in every process and on every machine, as `hash` is not."""

    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = fingerprint = int.from_bytes(digest, "little")
        return fingerprint


def learn_ngrams(
    texts: Sequence[Text], longest: int, at_least: int = 2, most: int | None = None
) -> tuple[Int64[np.ndarray, " features"], Bags]:
    """The n-grams of 1 to ``longest`` words that stand in ``at_least`` texts, and which text has which of them.

    Where there are more than ``most``, those that stand in most texts are kept.
    """
    owners, prints = _collect(texts, longest)
    known, places, counts = np.unique(prints, return_inverse=True, return_counts=True)
    del prints
    kept: Bool[np.ndarray, " known"] = counts >= at_least
    if most is not None and kept.sum() > most:
        # as many of the next smaller count as there is room for: by their fingerprint, which is as good as chance
        order = np.argsort(-counts, kind="stable")[:most]
        kept = np.zeros(len(known), dtype=bool)
        kept[order] = True
    new = np.cumsum(kept) - 1
    there = kept[places]
    return known[kept], _rows(owners[there], new[places[there]], len(texts))


def find_ngrams(texts: Sequence[Text], known: Int64[np.ndarray, " features"], longest: int) -> Bags:
    """Which of the known n-grams each text has."""
    owners, prints = _collect(texts, longest, known)
    return _rows(owners, np.searchsorted(known, prints), len(texts))


def _rows(owners: np.ndarray, columns: np.ndarray, texts: int) -> Bags:
    starts = np.zeros(texts + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=texts), out=starts[1:])
    return Bags(starts, columns.astype(np.int32))


def _collect(
    texts: Sequence[Text], longest: int, known: np.ndarray | None = None
) -> tuple[Int[np.ndarray, " entries"], Int64[np.ndarray, " entries"]]:
    """Texts and n-grams, each pair of them once, in the order of texts and then of fingerprints."""
    owners, prints = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for whose, words in _words(texts):
        entries = np.concatenate(_ngrams(whose - whose[0], words, longest))
        if not len(entries):  # pairs of empty texts
            continue
        # one number for both: sorting plain numbers is several times faster than sorting by two keys
        entries.sort()
        entries = entries[np.concatenate(([True], entries[1:] != entries[:-1]))]
        print_ = (entries & np.uint64((1 << _BITS) - 1)).astype(np.int64)
        owner = (entries >> np.uint64(_BITS)).astype(np.int32) + whose[0]
        there = slice(None) if known is None else among(print_, known)
        owners.append(owner[there])
        prints.append(print_[there])
    return np.concatenate(owners), np.concatenate(prints)


def _words(texts: Sequence[Text]) -> Iterator[tuple[Int[np.ndarray, " words"], UInt64[np.ndarray, " words"]]]:
    """The fingerprints of words with the texts that they stand in, some whole texts at a time.

    The words of the second text of a pair are others than those of the first. Between the two stands a 0, which is
    no word, and in no n-gram.
    """
    fingerprints, second = _Fingerprints(), np.uint64(1)
    owners: list[np.ndarray] = []
    words: list[np.ndarray] = []
    waiting = 0
    for place, text in enumerate(texts):
        parts = [text] if isinstance(text, str) else list(text)
        for number, part in enumerate(parts):
            cut = cut_words(part)
            prints = np.fromiter(map(fingerprints.__getitem__, cut), dtype=np.uint64, count=len(cut))
            words.append(_mixed(prints + second) if number else prints)
            if number + 1 < len(parts):
                words.append(np.zeros(1, np.uint64))
        here = sum(map(len, words[-2 * len(parts) + 1 :]))
        owners.append(np.full(here, place, dtype=np.int32))
        waiting += here
        if waiting >= _WORDS_AT_ONCE or len(owners) == _TEXTS_AT_ONCE:
            if waiting:
                yield np.concatenate(owners), np.concatenate(words)
            owners, words, waiting = [], [], 0
    if waiting:
        yield np.concatenate(owners), np.concatenate(words)


def _ngrams(owners: np.ndarray, words: np.ndarray, longest: int) -> list[UInt64[np.ndarray, " entries"]]:
    """Of each length: text and fingerprint in one number. A longer n-gram is made of the one that is a word shorter."""
    real = words != 0
    whole, prints = real, words
    high, low = owners.astype(np.uint64) << np.uint64(_BITS), np.uint64(64 - _BITS)
    entries = [high[real] | (words[real] >> low)]
    for length in range(2, min(longest, len(words)) + 1):
        whole = whole[:-1] & real[length - 1 :] & (owners[: 1 - length] == owners[length - 1 :])
        prints = _mixed(prints[:-1] * _MULTIPLIER + words[length - 1 :])
        entries.append(high[: 1 - length][whole] | (prints[whole] >> low))
    return entries


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit of the outcome depends on every bit of the value (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


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
        return _bags(self._columns, weights, self._starts)

    def times(self, weights: Float[Tensor, "features outputs"]) -> Float[Tensor, "texts outputs"]:
        """The sum over its features, as a share of its length."""
        sums = self.sums(weights)
        return sums if self.lengths is None else sums / self.lengths

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
