"""Predictions without a model, which every score is held against. What they need of the training data is plain data."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from sightline.metrics.cells import best_threshold
from sightline.metrics.texts import stands_alone, words_of
from sightline.text.sentences import split_sentences

MOST_WORDS, MOST_CAPTIONS, MOST_IMAGES = 50_000, 200, 50
_LONE_STOP, _WORD = re.compile(r"(?<=\s[.!?])\s+"), re.compile(r"\S+")


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


def first_sentence(text: str) -> str:
    """The first sentence that has a word; a full stop that stands alone ends one too, as in text cut into tokens."""
    for sentence, _ in split_sentences(text):
        for part in _LONE_STOP.split(sentence):
            if words_of(part):
                return part.strip()
    return text.strip()


def first_words(text: str, count: int) -> str:
    """The beginning of a text with so many words between blanks; of a script without spaces, so many characters."""
    end = 0
    for _, word in zip(range(count), _words_or_characters(text), strict=False):
        end = word
    return text[:end].strip()


def _words_or_characters(text: str) -> Iterator[int]:
    """Where each word ends."""
    for word in _WORD.finditer(text):
        yield from (place + 1 for place in range(*word.span()) if stands_alone(text[place]))
        if not stands_alone(text[word.end() - 1]):
            yield word.end()


def best_count(sources: Sequence[str], targets: Sequence[str], score: Callable[[list[str]], float]) -> int:
    """With how many first words of the sources a score is best; tried up to twice the longest targets."""
    lengths = [sum(1 for _ in _words_or_characters(one)) for one in targets]
    tried, most = [1], 2 * max(lengths, default=1)
    while tried[-1] < most:
        tried.append(max(tried[-1] + 1, round(1.1 * tried[-1])))
    return max(tried, key=lambda count: score([first_words(one, count) for one in sources]))


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
