"""Predictions without a model, which every score is held against. What they need of the training data is plain data."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from sightline.metrics.cells import best_threshold
from sightline.metrics.texts import words_of
from sightline.text.sentences import split_sentences

MOST_WORDS, MOST_CAPTIONS, MOST_IMAGES = 50_000, 200, 50


def usual_tags(sentences: Iterable[tuple[Sequence[str], Sequence[str]]]) -> dict[str, Any]:
    """The most frequent tag of each word, and of all words."""
    of_words: dict[str, Counter[str]] = {}
    everywhere: Counter[str] = Counter()
    for words, tags in sentences:
        everywhere.update(tags)
        for word, tag in zip(words, tags, strict=True):
            if word in of_words or len(of_words) < MOST_WORDS:
                of_words.setdefault(word, Counter())[tag] += 1
    usual = {word: counts.most_common(1)[0][0] for word, counts in of_words.items()}
    return {"any": everywhere.most_common(1)[0][0], "words": usual}


def usual_text(texts: Sequence[str], seed: int) -> str:
    """The text that shares most words with the others, of a few hundred drawn ones: one answer for everything."""
    drawn = np.random.default_rng(seed).permutation(len(texts))[:MOST_CAPTIONS].tolist()
    counted = [Counter(words_of(texts[place])) for place in drawn]

    def shared(one: Counter[str]) -> float:
        return sum(2 * (one & other).total() / max(1, one.total() + other.total()) for other in counted)

    return texts[drawn[int(np.argmax([shared(one) for one in counted]))]]


def likely_sentence(question: str, text: str) -> str:
    """The sentence of a text that shares most words with a question."""
    asked = set(words_of(question))
    sentences = [sentence for sentence, _ in split_sentences(text)] or [text]
    return max(sentences, key=lambda one: len(asked & set(words_of(one)))).strip()


def cell_means(values: np.ndarray, side: int) -> np.ndarray:
    """The mean of the values of each cell, the last ones of what they hold."""
    plane = values.mean(axis=2, dtype=np.float64)
    rows, columns = (np.arange(0, size, side) for size in plane.shape)
    planes = (plane, np.ones_like(plane))
    sums, counts = (np.add.reduceat(np.add.reduceat(one, rows, axis=0), columns, axis=1) for one in planes)
    return sums / counts


def pixel_threshold(means: Sequence[np.ndarray], gold: Sequence[np.ndarray]) -> dict[str, object]:
    """From which mean on a cell is marked, for the best F1 in training; ``sign`` −1: up to which."""
    fitted = [(*best_threshold([sign * one for one in means], list(gold))[::-1], sign) for sign in (1.0, -1.0)]
    _, least, sign = max(fitted)
    return {"least": float(least), "sign": sign}
