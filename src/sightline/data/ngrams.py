"""Words and their n-grams as numbers, the features of a linear model.

An n-gram is named by a fingerprint of 44 bits, made of those of its words, and never by its text: the n-grams of a
corpus are made by a few operations on whole arrays. Those that a model keeps are a sorted array. In the usual table of
2^20 or 2^22 places, many would share a weight (25,000 reviews have 5 million different ones); here hardly one in a
million does, and a small corpus makes a small file.
"""

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Int64, UInt64

from sightline.data.splitting import among
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


Words = UInt64[np.ndarray, " words"]  # the fingerprints of a text's words; 0 is no word, and in no n-gram


def word_fingerprints(words: Sequence[str]) -> Words:
    """A number for each word."""
    prints = _Fingerprints()
    return np.fromiter(map(prints.__getitem__, words), dtype=np.uint64, count=len(words))


def of_second(words: Words) -> Words:
    """The same words in the second text of a pair, where they are others than in the first."""
    return np.where(words == 0, words, _mixed(words + np.uint64(1)))


def fingerprints(texts: Iterable[Text]) -> Iterator[Words]:
    """The words of each text, or of both texts of a pair with a 0 between them."""
    prints = _Fingerprints()
    for text in texts:
        parts = []
        for part in [text] if isinstance(text, str) else text:
            cut = cut_words(part)
            parts.append(np.fromiter(map(prints.__getitem__, cut), dtype=np.uint64, count=len(cut)))
        yield parts[0] if len(parts) == 1 else np.concatenate([parts[0], np.zeros(1, np.uint64), of_second(parts[1])])


def learn_ngrams(
    texts: Iterable[Words], longest: int, at_least: int = 2, most: int | None = None
) -> tuple[Int64[np.ndarray, " features"], Bags]:
    """The n-grams of 1 to ``longest`` words that stand in ``at_least`` texts, and which text has which of them.

    Where there are more than ``most``, those that stand in most texts are kept.
    """
    owners, prints, count = _collect(texts, longest)
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
    return known[kept], _rows(owners[there], new[places[there]], count)


def find_ngrams(texts: Iterable[Words], known: Int64[np.ndarray, " features"], longest: int) -> Bags:
    """Which of the known n-grams each text has."""
    owners, prints, count = _collect(texts, longest, known)
    return _rows(owners, np.searchsorted(known, prints), count)


class Occurrences(NamedTuple):
    """Where known n-grams stand in a text: the place of the first word, the number of words, and the feature."""

    first: Int64[np.ndarray, " places"]
    length: Int64[np.ndarray, " places"]
    column: Int64[np.ndarray, " places"]


def ngram_places(words: Words, known: Int64[np.ndarray, " features"], longest: int) -> Occurrences:
    """Every place of a known n-gram in one text."""
    first, lengths, columns = ([np.zeros(0, np.int64)] for _ in range(3))
    for length, (places, prints) in enumerate(_ngrams(np.zeros(len(words), np.int32), words, longest), 1):
        there = among(prints, known)
        first.append(places[there])
        lengths.append(np.full(int(there.sum()), length))
        columns.append(np.searchsorted(known, prints[there]))
    return Occurrences(np.concatenate(first), np.concatenate(lengths), np.concatenate(columns))


def _rows(owners: np.ndarray, columns: np.ndarray, texts: int) -> Bags:
    starts = np.zeros(texts + 1, dtype=np.int64)
    np.cumsum(np.bincount(owners, minlength=texts), out=starts[1:])
    return Bags(starts, columns.astype(np.int32))


def _collect(
    texts: Iterable[Words], longest: int, known: np.ndarray | None = None
) -> tuple[Int[np.ndarray, " entries"], Int64[np.ndarray, " entries"], int]:
    """Texts and n-grams, each pair of them once, in the order of texts and then of fingerprints; how many texts."""
    owners, prints, count = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], 0
    for whose, words, so_far in _blocks(texts):
        count = so_far
        if not len(words):
            continue
        high = (whose - whose[0]).astype(np.uint64) << np.uint64(_BITS)
        entries = np.concatenate([high[at] | print_.view(np.uint64) for at, print_ in _ngrams(whose, words, longest)])
        if not len(entries):  # pairs of empty texts
            continue
        # one number for both: sorting plain numbers is several times faster than sorting by two keys
        entries.sort()
        entries = entries[np.concatenate(([True], entries[1:] != entries[:-1]))]
        own = (entries & np.uint64((1 << _BITS) - 1)).astype(np.int64)
        owner = (entries >> np.uint64(_BITS)).astype(np.int32) + whose[0]
        there = slice(None) if known is None else among(own, known)
        owners.append(owner[there])
        prints.append(own[there])
    return np.concatenate(owners), np.concatenate(prints), count


def _blocks(texts: Iterable[Words]) -> Iterator[tuple[Int[np.ndarray, " words"], Words, int]]:
    """Words with the texts that they stand in, some whole texts at a time, and how many texts there were so far."""
    owners, words = [np.zeros(0, np.int32)], [np.zeros(0, np.uint64)]
    count, waiting = 0, 0
    for count, own in enumerate(texts, 1):
        owners.append(np.full(len(own), count - 1, dtype=np.int32))
        words.append(own)
        waiting += len(own)
        if waiting >= _WORDS_AT_ONCE or len(owners) == _TEXTS_AT_ONCE:
            yield np.concatenate(owners), np.concatenate(words), count
            owners, words, waiting = owners[:1], words[:1], 0
    yield np.concatenate(owners), np.concatenate(words), count


def _ngrams(
    owners: np.ndarray, words: Words, longest: int
) -> Iterator[tuple[Int64[np.ndarray, " places"], Int64[np.ndarray, " places"]]]:
    """Of each length: the places of first words, and fingerprints. A longer n-gram is made of the next shorter one."""
    real = words != 0
    whole, prints, low = real, words, np.uint64(64 - _BITS)
    for length in range(1, min(longest, len(words)) + 1):
        if length > 1:
            whole = whole[:-1] & real[length - 1 :] & (owners[: 1 - length] == owners[length - 1 :])
            prints = _mixed(prints[:-1] * _MULTIPLIER + words[length - 1 :])
        places = np.flatnonzero(whole)
        yield places, (prints[places] >> low).view(np.int64)


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit of the outcome depends on every bit of the value (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
