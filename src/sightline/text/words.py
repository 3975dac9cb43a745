"""Words of a text as its writer sees them, and which of them the pieces of a tokeniser cover.

Words stand between blanks, as `str.split` has it, so that their numbers are those that any other program counts.
Scripts without spaces (Chinese, Japanese, Thai ...) say nowhere where a word ends: there, each character counts as one,
unless the text has been cut with spaces already.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from sightline.text.sentences import writes_without_spaces

Cutting = Literal["spaces", "characters"]
Span = tuple[int, int]
_BETWEEN_BLANKS = re.compile(r"\S+")
_CUT_ALREADY = 8  # characters without a space, on average: written words are shorter, clauses longer


def word_spans(text: str, cutting: Cutting = "spaces") -> list[Span]:
    """Where the words of a text begin and end.

    ``characters``: each character of a script without spaces is a word, and so is each sign; other letters and digits
    that touch are one.
    """
    chunks = [match.span() for match in _BETWEEN_BLANKS.finditer(text)]
    if cutting == "spaces":
        return chunks
    found: list[Span] = []
    for start, end in chunks:
        goes_on = False
        for place in range(start, end):
            joins = text[place].isalnum() and not writes_without_spaces(text[place])
            if joins and goes_on:
                found[-1] = (found[-1][0], place + 1)
            else:
                found.append((place, place + 1))
            goes_on = joins
    return found


def cutting_of(texts: Iterable[str]) -> Cutting:
    """How the words of these texts are told apart: at characters where most are of a script without spaces and hardly
    a blank stands between them."""
    unspaced = others = blanks = 0
    for text in texts:
        for character in text:
            if character.isspace():
                blanks += 1
            elif writes_without_spaces(character):
                unspaced += 1
            else:
                others += character.isalnum()
    return "characters" if unspaced > others and blanks * _CUT_ALREADY < unspaced else "spaces"


def covered_words(pieces: Sequence[Span], words: Sequence[Span]) -> list[tuple[int, int, float]]:
    """Which piece covers which word, with the share of the piece's letters that stand in that word.

    The shares of a piece add up to 1, or there are none: a blank belongs to no word. Pieces come in the order of the
    text; several may cover the same character (its bytes).
    """
    found: list[tuple[int, int, float]] = []
    first, count = 0, len(words)
    for piece, (start, end) in enumerate(pieces):
        while first < count and words[first][1] <= start:
            first += 1
        word, some = first, []
        while word < count and words[word][0] < end:
            some.append((word, min(end, words[word][1]) - max(start, words[word][0])))
            word += 1
        letters = sum(shared for _, shared in some)
        found += [(piece, word, shared / letters) for word, shared in some]
    return found
