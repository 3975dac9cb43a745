"""Words that can be copied: numbers behind a vocabulary for words of a source that it does not have (See et al. 2017).

Behind a vocabulary of V tokens, the number V + i is the word at place i of the source, where it stands first. So the
numbers of a source and its target are those of one row alone, and nothing has to be kept for a whole data set. Both
sides need one vocabulary. What people get wrong: a word that stands twice has one number, or its probability is split.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sightline.text.sentences import writes_without_spaces
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import UNKNOWN


class Word(NamedTuple):
    """A word of a text, and whether it has a space before it inside a sentence."""

    text: str
    spaced: bool


def words_of(tokeniser: Tokeniser, text: str) -> list[Word | None]:
    """What each token covers, as the text writes it; None for blanks, which are no words."""
    words: list[Word | None] = []
    for _, (start, end) in tokeniser.pieces(text):
        covered = text[start:end]
        word = covered.removeprefix(" ")
        first = start == 0 and tokeniser.of_words and not writes_without_spaces(covered)
        words.append(Word(word, first or covered != word) if word.strip() else None)
    return words


def _known_by(tokeniser: Tokeniser, word: Word) -> str:
    """What words are compared by: not the space before them, nor capitals in a vocabulary of small letters."""
    return word.text.lower() if tokeniser.lowers else word.text


class SourceWords:
    """A vocabulary, and behind it the words of one source. It names tokens as `Tokeniser` does."""

    def __init__(self, tokeniser: Tokeniser, source: str) -> None:
        self.tokeniser = tokeniser
        self._source = source
        self._words: list[Word | None] | None = None

    @property
    def words(self) -> list[Word | None]:
        """The words of the source, cut when they are first needed."""
        if self._words is None:
            self._words = words_of(self.tokeniser, self._source)
        return self._words

    def word(self, token: int) -> Word | None:
        """The word of the source that a number behind the vocabulary stands for."""
        place = token - self.tokeniser.words
        return self.words[place] if 0 <= place < len(self.words) else None

    def spell(self, tokens: Iterable[int]) -> list[str]:
        """Each token as a picture would label it."""
        spelled, size = [], self.tokeniser.words
        for token in tokens:
            word = self.word(token) if token >= size else None
            spelled.append(f"▁{word.text}" if word and word.spaced else word.text if word else self._known(token))
        return spelled

    def _known(self, token: int) -> str:
        return self.tokeniser.spell([token])[0]

    def numbered(self, tokens: Sequence[int], text: str | None = None) -> list[int]:
        """The tokens of the source, or of another ``text``, with numbers of their own for unknown words of the source.

        A word of another text that the source does not have stays unknown.
        """
        if UNKNOWN not in tokens:
            return list(tokens)
        first: dict[str, int] = {}
        for place, word in enumerate(self.words):
            if word is not None:
                first.setdefault(_known_by(self.tokeniser, word), self.tokeniser.words + place)
        own = self.words if text is None else words_of(self.tokeniser, text)
        return [
            first.get(_known_by(self.tokeniser, word), UNKNOWN) if token == UNKNOWN and word is not None else token
            for token, word in zip(tokens, own, strict=True)
        ]


def numbered_sources(tokeniser: Tokeniser, sources: Sequence[str]) -> list[list[int]]:
    """Tokens of sources whose unknown words can be copied."""
    encoded = tokeniser.encode(list(sources))
    return [SourceWords(tokeniser, x).numbered(tokens) for x, tokens in zip(sources, encoded, strict=True)]


def numbered_targets(tokeniser: Tokeniser, sources: Sequence[str], targets: Sequence[str]) -> list[list[int]]:
    """Tokens of targets, each of which may have unknown words of its source."""
    encoded = tokeniser.encode(list(targets))
    return [
        SourceWords(tokeniser, x).numbered(tokens, y) for x, y, tokens in zip(sources, targets, encoded, strict=True)
    ]
