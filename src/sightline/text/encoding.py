"""Texts as a model reads them: tokens between start and end, pairs of texts, documents of sentences.

A text that is too long for training loses its middle: how a review begins and how it ends say more of it than what is
between, and a quarter of the room is enough for the beginning (Sun et al. 2019, "How to Fine-Tune BERT for Text
Classification"). Documents of sentences are never cut: their model's cost grows with their length alone.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from sightline.errors import UserError
from sightline.text.sentences import split_sentences
from sightline.vocabulary import OURS, Specials

Text = str | tuple[str, str]  # a pair is a text and another one
BEGINNING = 0.25  # of the room of a text that is cut, for its beginning


@runtime_checkable
class CutsText(Protocol):
    """What of a tokeniser is needed here."""

    @property
    def words(self) -> int: ...
    def encode(self, texts: list[str]) -> list[list[int]]: ...
    def save(self, path: Path) -> Path: ...


class EncodedTexts(NamedTuple):
    """Texts as token ids, and how many of them lost their middle."""

    rows: list[list[int]]
    cut: int


@dataclass(frozen=True)
class TextEncoder:
    """Texts to token ids. ``pairs``: two texts each. ``sentences``: a text is a document, its sentences have ends.

    ``rows`` is how many rows a model's table of words has, where that is more than the vocabulary needs.
    """

    tokeniser: CutsText
    specials: Specials = OURS
    pairs: bool = False
    sentences: bool = False
    rows: int | None = None

    @property
    def words(self) -> int:
        """How many words a model has vectors for."""
        return self.rows or self.tokeniser.words

    def __post_init__(self) -> None:
        if self.pairs and self.sentences:
            raise UserError("a model of documents (han) reads one text; found two: use attentive or encoder")

    def read(self, texts: Sequence[Text], longest: int | None = None) -> EncodedTexts:
        """With ``longest``, no more tokens than that, start and end among them."""
        if isinstance(texts, str):
            raise UserError("texts is one text; expected a list of texts")
        for number, text in enumerate(texts, start=1):
            if isinstance(text, str) == self.pairs:
                given, expected = ("one text", "a pair of texts") if self.pairs else ("a pair of texts", "one text")
                raise UserError(f"text {number:,}: found {given}; expected {expected}, as the model was trained on")
        if self.sentences or not texts:
            return EncodedTexts(self._documents([str(text) for text in texts]), 0)
        first = self.tokeniser.encode([text if isinstance(text, str) else text[0] for text in texts])
        second = self.tokeniser.encode([text[1] for text in texts]) if self.pairs else [None] * len(texts)
        rows, cut = [], 0
        for tokens, other in zip(first, second, strict=True):
            before = len(tokens) + len(other or ())
            if longest is not None:
                tokens, other = _fitted(tokens, other, longest)
            cut += len(tokens) + len(other or ()) < before
            behind = [] if other is None else [*other, self.specials.end]
            rows.append([self.specials.start, *tokens, self.specials.end, *behind])
        return EncodedTexts(rows, cut)

    def _documents(self, texts: Sequence[str]) -> list[list[int]]:
        sentences: list[str] = []
        owners: list[int] = []
        for place, text in enumerate(texts):
            own = [sentence for sentence, _ in split_sentences(text) if sentence.strip()]
            sentences += own
            owners += [place] * len(own)
        rows: list[list[int]] = [[] for _ in texts]
        for place, tokens in zip(owners, self.tokeniser.encode(sentences), strict=True):
            rows[place] += [*tokens, self.specials.end]
        return [row or [self.specials.end] for row in rows]

    def pad(self, rows: Sequence[Sequence[int] | np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows as one array, padded behind, and which text of a pair each token is of, where there are pairs."""
        words = padded(rows, self.specials.padding)
        if not self.pairs:
            return words, None
        ends = words == self.specials.end
        behind = ((np.cumsum(ends, axis=1) - ends) > 0) & (words != self.specials.padding)
        return words, behind.astype(np.int64)


def padded(rows: Sequence[Sequence[int] | np.ndarray], padding: int) -> np.ndarray:
    """Rows of token ids as one array, padded behind."""
    words = np.full((len(rows), max(map(len, rows))), padding, np.int64)
    for place, row in enumerate(rows):
        words[place, : len(row)] = row
    return words


def _fitted(tokens: list[int], other: list[int] | None, longest: int) -> tuple[list[int], list[int] | None]:
    """Without their middles, so that both fit. The longer text of a pair gives way first."""
    if other is None:
        return _without_middle(tokens, longest - 2), None
    room = max(longest - 3, 2)
    if len(tokens) + len(other) <= room:
        return tokens, other
    shorter = min(len(tokens), len(other), room // 2)
    if len(tokens) <= len(other):
        return _without_middle(tokens, shorter), _without_middle(other, room - shorter)
    return _without_middle(tokens, room - shorter), _without_middle(other, shorter)


def _without_middle(tokens: list[int], room: int) -> list[int]:
    if len(tokens) <= room:
        return tokens
    room = max(room, 1)
    beginning = round(room * BEGINNING)
    return tokens[:beginning] + tokens[len(tokens) - (room - beginning) :]


# Texts that are longer than a model reads: stretches of them that overlap.


def windows(lengths: Sequence[int], room: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Stretches of units (words, tokens) of these lengths, each of at most ``room`` in all: first and behind the last.

    Each but the first begins about ``overlap`` before the one before it ended, so that nothing is only ever seen at
    the edge. A unit that is alone longer than the room is a stretch of its own.
    """
    stretches: list[tuple[int, int]] = []
    start, count = 0, len(lengths)
    while True:
        end, total = start, 0
        while end < count and (end == start or total + lengths[end] <= room):
            total += lengths[end]
            end += 1
        stretches.append((start, end))
        if end >= count:
            return stretches
        back, again = end, 0
        while back > start + 1 and again + lengths[back - 1] <= overlap:
            back -= 1
            again += lengths[back]
        start = back


def owners(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Which units each stretch answers for: of those that two have, each takes the half that is nearer its middle."""
    starts = [0, *((start + end + 1) // 2 for (_, end), (start, _) in itertools.pairwise(stretches))]
    return list(zip(starts, [*starts[1:], stretches[-1][1]], strict=True))
