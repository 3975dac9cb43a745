"""Words of a text as its writer sees them, and which of them the pieces of a tokeniser cover.

Words stand between blanks, as `str.split` has it, so that their numbers are those that any other program counts.
Scripts without spaces (Chinese, Japanese, Thai ...) say nowhere where a word ends: there, each character counts as one,
unless the text has been cut with spaces already.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sightline.records import Tokens
from sightline.text.copying import SourceWords
from sightline.text.encoding import Text, TextEncoder, _fitted
from sightline.text.sentences import split_sentences, writes_without_spaces
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import END, SPELLINGS

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
    spans: list[Span] = []
    for start, end in chunks:
        continues = False
        for place in range(start, end):
            joins = text[place].isalnum() and not writes_without_spaces(text[place])
            if joins and continues:
                spans[-1] = (spans[-1][0], place + 1)
            else:
                spans.append((place, place + 1))
            continues = joins
    return spans


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
    covered: list[tuple[int, int, float]] = []
    first, count = 0, len(words)
    for piece, (start, end) in enumerate(pieces):
        while first < count and words[first][1] <= start:
            first += 1
        word, some = first, []
        while word < count and words[word][0] < end:
            some.append((word, min(end, words[word][1]) - max(start, words[word][0])))
            word += 1
        letters = sum(shared for _, shared in some)
        covered += [(piece, word, shared / letters) for word, shared in some]
    return covered


# Tokens as the axis of a map, and which of them are one word.

SPACE = "▁"  # as a tokeniser's labels write it


def token_axis(tokeniser: Tokeniser | SourceWords, tokens: Sequence[int], spelled: bool = False) -> Tokens:
    """Tokens as the labels of an axis, with the end behind them; ``spelled``: characters are put together as words."""
    texts = [*tokeniser.spell(tokens), SPELLINGS[END]]
    special = tuple(place for place, token in enumerate([*tokens, END]) if token < len(SPELLINGS))
    return Tokens(tuple(texts), word_numbers(texts, special, spelled), special)


def word_numbers(texts: Sequence[str], special: Sequence[int], spelled: bool = False) -> tuple[int, ...] | None:
    """Which word each piece belongs to: a new one begins at a space, between letters and signs, and at a special token.

    Scripts without spaces keep their pieces, and so do vocabularies of characters: there is nothing to put together
    (None), unless they are ``spelled`` words, which begin at spaces.
    """
    plain = [text for place, text in enumerate(texts) if place not in special]
    characters = all(len(text) == 1 for text in plain)
    if characters and not spelled:
        return None
    numbers: list[int] = []
    before = ""
    for place, text in enumerate(texts):
        letters = text.lstrip(SPACE)
        alone = place in special or place - 1 in special
        continues = (
            bool(before)
            and not alone
            and not text.startswith(SPACE)
            and (characters or _is_sign(before[-1]) == _is_sign(letters[0]))
            and not writes_without_spaces(before[-1] + letters[0])
        )
        numbers.append(numbers[-1] + (not continues) if numbers else 0)
        before = letters or before
    return tuple(numbers)


def _is_sign(character: str) -> bool:
    # "<0xE2>" is a byte of a character that has no piece of its own: part of a word.
    return not character.isalnum() and character not in "<>"


# Where the tokens of a text stand in it, and which of them are one word.
#
# A classifier's text is cut into sentences (`han`), loses its middle where it is too long, has ends and a beginning
# that stand in no text, and may be one of two. What was attended to is shown in the user's own text, so every token has
# to be followed back to its characters.


@dataclass(frozen=True)
class Place:
    """The characters of one token. ``part`` is the text of a pair, ``sentence`` its number, where there are any."""

    part: int
    start: int
    end: int
    sentence: int = -1


@dataclass(frozen=True)
class TextOffsets:
    """A text as a model reads it. ``places`` has one for each token, None for those that stand in no text.

    ``words`` are the numbers of the tokens that make up each word. ``sentences`` are from character to character;
    ``unread`` is how many tokens were left out because the text is too long.
    """

    texts: tuple[str, ...]
    tokens: list[int]
    places: list[Place | None]
    words: list[list[int]]
    sentences: list[tuple[int, int]]
    unread: int

    def place_of(self, word: list[int]) -> Place:
        """The characters of a whole word."""
        first, last = self.places[word[0]], self.places[word[-1]]
        assert first is not None
        assert last is not None
        return Place(first.part, first.start, last.end, first.sentence)

    def axis(self, ends: list[str]) -> Tokens:
        """Tokens as the text has them; ``ends`` spells those that are in no text. What continues a word has ##."""
        labels = list(ends)
        numbers = [0] * len(labels)
        owner = {token: number for number, word in enumerate(self.words) for token in word}
        number, before, reached = -1, -1, 0
        for at, place in enumerate(self.places):
            continues = place is not None and owner[at] == before
            number += not continues
            numbers[at], before = number, -1 if place is None else owner[at]
            if place is not None:
                # The bytes of one character all cover it: the first of them shows it.
                reached = max(place.start, reached if continues else 0)
                own = self.texts[place.part][reached : place.end]
                labels[at] = f"##{own}" if continues and own else own
                reached = max(place.end, reached)
        special = tuple(at for at, place in enumerate(self.places) if place is None)
        return Tokens(tuple(labels), tuple(numbers), special)


def place(reader: TextEncoder, text: Text, longest: int | None = None) -> TextOffsets:
    """Follow every token that `TextEncoder.read` gives back to the text."""
    (tokens,) = reader.read([text], longest).rows
    texts = (text,) if isinstance(text, str) else text
    places: list[Place | None] = []
    sentences: list[tuple[int, int]] = []
    unread = 0
    if reader.sentences:
        start = 0
        for sentence, blank in split_sentences(texts[0]):
            if sentence.strip():
                places += [*token_places(reader, sentence, 0, start, len(sentences)), None]
                sentences.append((start, start + len(sentence)))
            start += len(sentence) + len(blank)
        places = places or [None]
    else:
        of_texts = [token_places(reader, one, part, 0, -1) for part, one in enumerate(texts)]
        kept: list[list[int]] = [list(range(len(one))) for one in of_texts]
        if longest is not None:
            first, second = _fitted(kept[0], kept[1] if len(kept) > 1 else None, longest)
            kept = [first] if second is None else [first, second]
        unread = sum(map(len, of_texts)) - sum(map(len, kept))
        places = [None]
        for one, chosen in zip(of_texts, kept, strict=True):
            places += [*(one[i] for i in chosen), None]
    if len(places) != len(tokens):
        raise AssertionError(f"{len(tokens)} tokens are read, {len(places)} were followed back to the text")
    return TextOffsets(tuple(texts), tokens, places, words_of_places(texts, places), sentences, unread)


def token_places(reader: TextEncoder, text: str, part: int, offset: int, sentence: int) -> list[Place | None]:
    """Without the blanks that some vocabularies count to a word."""
    places: list[Place | None] = []
    tokeniser: Any = reader.tokeniser
    for _, (start, end) in tokeniser.pieces(text):
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        places.append(Place(part, offset + start, offset + end, sentence))
    return places


def words_of_places(texts: tuple[str, ...], places: list[Place | None]) -> list[list[int]]:
    """A word continues from one token to the next if no blank is between them, and both end in letters or digits there.

    Scripts without spaces keep their tokens as they are. The bytes of one character are never parted.
    """
    words: list[list[int]] = []
    last: Place | None = None
    for at, here in enumerate(places):
        if here is not None:
            if last is not None and _continues(texts[here.part], last, here):
                words[-1].append(at)
            else:
                words.append([at])
        last = here
    return words


def _continues(text: str, last: Place, here: Place) -> bool:
    if (last.part, last.sentence) != (here.part, here.sentence):
        return False
    if here.start < last.end or last.start == last.end:  # bytes of one character; a blank by itself, before its word
        return here.start <= last.end
    if here.start > last.end or here.start == here.end:
        return False
    return _within_word(text, here.start)


def _within_word(text: str, at: int) -> bool:
    """Whether the characters before and at this place are of one word."""
    if not 0 < at < len(text):
        return False
    joined = text[at - 1].isalnum() and text[at].isalnum()
    return joined and not writes_without_spaces(text[at - 1]) and not writes_without_spaces(text[at])


def to_whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """The characters of all words that these touch. Scripts without spaces stay as they are."""
    while _within_word(text, start):
        start -= 1
    while _within_word(text, end):
        end += 1
    return start, end
