"""Words and their n-grams as numbers: what a linear model reads.

An n-gram is named by a fingerprint of 44 bits, made of those of its words, and never by its text: the n-grams of a
corpus are made by a few operations on whole arrays. Those that a model keeps are a sorted array. In the usual table of
2^20 or 2^22 places, many would share a weight (25,000 reviews have 5 million different ones); here hardly one in a
million does, and a small corpus makes a small file.
"""

import hashlib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int64, UInt64

from sightline.text.sentences import writes_without_spaces

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
class Rows:
    """Which features each text has: those of text i are ``columns[starts[i] : starts[i + 1]]``, each once, sorted."""

    starts: Int64[np.ndarray, " texts_and_one"]
    columns: Int[np.ndarray, " entries"]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def lengths(self) -> Int64[np.ndarray, " texts"]:
        return np.diff(self.starts)

    def take(self, texts: Int64[np.ndarray, " chosen"]) -> "Rows":
        """The rows of some texts."""
        lengths = self.lengths[texts]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        places = np.arange(starts[-1]) + np.repeat(self.starts[texts] - starts[:-1], lengths)
        return Rows(starts, self.columns[places])


class _Fingerprints(dict[str, int]):
    """Of words; the same in every process and on every machine, as `hash` is not."""

    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = found = int.from_bytes(digest, "little")
        return found


def learn_ngrams(
    texts: Sequence[Text], longest: int, at_least: int = 2, most: int | None = None
) -> tuple[Int64[np.ndarray, " features"], Rows]:
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


def find_ngrams(texts: Sequence[Text], known: Int64[np.ndarray, " features"], longest: int) -> Rows:
    """Which of the known n-grams each text has."""
    owners, prints = _collect(texts, longest, known)
    return _rows(owners, np.searchsorted(known, prints), len(texts))


def _rows(owners: np.ndarray, columns: np.ndarray, texts: int) -> Rows:
    starts = np.zeros(texts + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=texts), out=starts[1:])
    return Rows(starts, columns.astype(np.int32))


def _collect(
    texts: Sequence[Text], longest: int, known: np.ndarray | None = None
) -> tuple[Int[np.ndarray, " entries"], Int64[np.ndarray, " entries"]]:
    """Texts and n-grams, each pair of them once, in the order of texts and then of fingerprints."""
    owners, prints = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
    for whose, words in _words(texts):
        found = np.concatenate(_ngrams(whose - whose[0], words, longest))
        if not len(found):  # pairs of empty texts
            continue
        # one number for both: sorting plain numbers is several times faster than sorting by two keys
        found.sort()
        found = found[np.concatenate(([True], found[1:] != found[:-1]))]
        print_ = (found & np.uint64((1 << _BITS) - 1)).astype(np.int64)
        owner = (found >> np.uint64(_BITS)).astype(np.int32) + whose[0]
        there = slice(None) if known is None else _among(print_, known)
        owners.append(owner[there])
        prints.append(print_[there])
    return np.concatenate(owners), np.concatenate(prints)


def _among(prints: np.ndarray, known: np.ndarray) -> np.ndarray:
    if not len(known):
        return np.zeros(len(prints), dtype=bool)
    places = np.searchsorted(known, prints)
    return known[np.minimum(places, len(known) - 1)] == prints


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
            found = np.fromiter(map(fingerprints.__getitem__, cut), dtype=np.uint64, count=len(cut))
            words.append(_mixed(found + second) if number else found)
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
    found = [high[real] | (words[real] >> low)]
    for length in range(2, min(longest, len(words)) + 1):
        whole = whole[:-1] & real[length - 1 :] & (owners[: 1 - length] == owners[length - 1 :])
        prints = _mixed(prints[:-1] * _MULTIPLIER + words[length - 1 :])
        found.append(high[: 1 - length][whole] | (prints[whole] >> low))
    return found


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit of the outcome depends on every bit of the value (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
