"""What of a highlighted text is shown: all of it, or of a long one the passages with the most weight.

Picture and page draw the same passages. A passage is a sentence where the model weighs sentences, else a whole text,
else a stretch of it.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from sightline.explain.explanation import Highlights, Span

STRETCH = 240  # characters of a passage of a long text without sentences
Piece = tuple[str, Span | None]


@dataclass(frozen=True)
class Passage:
    """Some of a text. ``weight`` is that of a sentence; ``gap`` says that something before it is left out."""

    text: str
    start: int
    words: tuple[Span, ...]
    weight: float | None = None
    part: int = 0
    gap: bool = False

    def pieces(self) -> list[Piece]:
        """The text in order: words, and what stands between them."""
        found: list[Piece] = []
        at = 0
        for word in self.words:
            begin = word.start - self.start
            if begin > at:
                found.append((self.text[at:begin], None))
            found.append((word.text, word))
            at = word.end - self.start
        return [*found, (self.text[at:], None)] if at < len(self.text) else found

    def drawn(self) -> list[Piece]:
        """The same without blanks, what is no word of the map cut small enough to be put in lines."""
        found: list[Piece] = []
        for text, word in self.pieces():
            found += [(text, word)] if word is not None else [(one, None) for one in _small(text)]
        return found

    @property
    def share(self) -> float:
        """What it is chosen by: its own weight, or that of the word that was looked at most."""
        return max((word.weight for word in self.words), default=0.0) if self.weight is None else self.weight


@dataclass(frozen=True)
class Excerpt:
    """Passages in the order of the text, and of how many they are chosen."""

    passages: tuple[Passage, ...]
    of: int
    read: int

    @property
    def note(self) -> str | None:
        """What has to be said where something is left out."""
        if len(self.passages) == self.of:
            return None
        return (
            f"the text has {self.read:,} words: of its {self.of:,} passages the {len(self.passages):,} with the most "
            f"weight are shown"
        )


def excerpt(highlights: Highlights, most: int, most_passages: int = 200) -> Excerpt:
    """About so many words and no more passages than that; one at least."""
    passages = _sentences(highlights) if highlights.sentences else _texts(highlights, most)
    chosen: set[int] = set()
    room = most
    for number in sorted(range(len(passages)), key=lambda i: -passages[i].share):
        room -= len(passages[number].drawn())
        if chosen and (room < 0 or len(chosen) == most_passages):
            break
        chosen.add(number)
    kept = [replace(passages[i], gap=i > 0 and i - 1 not in chosen) for i in sorted(chosen)]
    return Excerpt(tuple(kept), len(passages), highlights.read)


def _sentences(highlights: Highlights) -> list[Passage]:
    own: dict[int | None, list[Span]] = {}
    for word in highlights.words:
        own.setdefault(word.sentence, []).append(word)
    return [
        Passage(one.text, one.start, tuple(own.get(number, ())), one.weight)
        for number, one in enumerate(highlights.sentences)
    ]


def _texts(highlights: Highlights, most: int) -> list[Passage]:
    """Whole texts where they are short enough; else stretches of them that begin and end with words of the map."""
    short = highlights.read <= most
    found = []
    for part, group in groupby(highlights.words, key=lambda word: word.part or 0):
        words, text = list(group), highlights.texts[part]
        if short:
            found.append(Passage(text, 0, tuple(words), part=part))
            continue
        for some in _stretches(words):
            found.append(Passage(text[some[0].start : some[-1].end], some[0].start, tuple(some), part=part))
    return found


def _stretches(words: list[Span]) -> Iterator[list[Span]]:
    some: list[Span] = []
    for word in words:
        if some and word.end - some[0].start > STRETCH:
            yield some
            some = []
        some.append(word)
    if some:
        yield some


def _small(text: str) -> Iterator[str]:
    for word in text.split():
        if any(unicodedata.east_asian_width(character) in "WF" for character in word):
            yield from word
        else:
            yield word
