"""Sentences as words: each word is tokenised by itself, so that its pieces are known."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from sightline.data.checking import RowLimits
from sightline.data.columns import text_problem
from sightline.data.tables import kind_of
from sightline.data.tagged import CONLL_ENDINGS, UNSPACED_ADVICE, WORD_NAMES
from sightline.errors import UserError
from sightline.inputs.base import InputLines
from sightline.inputs.text import ReaderInput, check_length
from sightline.interop.tokens import PretrainedTokeniser
from sightline.outputs.reports import fields_of
from sightline.tasks.prepare import normalised
from sightline.tasks.task import BadValueError
from sightline.text.encoding import TextEncoder, windows
from sightline.text.words import cutting_of

LOG = logging.getLogger(__name__)
LONGEST_WORD = 8  # characters of a script without spaces: more are a clause
OVERLAP = 64  # tokens that two stretches of a long sentence share
Words = tuple[str, ...]


class Cut(NamedTuple):
    """Part of a sentence as a model reads it: its tokens with start and end, and where the first piece of each word is.

    ``first`` and ``behind`` are its words.
    """

    tokens: list[int]
    places: list[int]
    first: int
    behind: int


class WordsInput(ReaderInput[Words, Cut]):
    """Sentences of words. Those of more than ``config.max_length`` tokens are read in stretches."""

    kind = "words"
    noun = "sentences"
    told = False  # that a sentence has no spaces between its words

    def read(self, cells: Mapping[str, object]) -> Words:
        words = words_of(cells.get("words"), "words")
        if not words:
            raise BadValueError("no words: found an empty sentence, expected words")
        for word in words:
            if (problem := text_problem(word, "the words")) is not None:
                raise BadValueError(problem)
        return words

    def check(self, x: Words, limits: RowLimits) -> None:
        check_length(sum(map(len, x)), "a sentence", limits)

    def identity(self, x: Words) -> str:
        return normalised(" ".join(x))

    def unpack(self, row: Sequence[object]) -> tuple[Words, Sequence[object]]:
        return tuple(cast("list[str]", row[0])), row[1:]

    def encode(self, xs: Sequence[Words]) -> list[list[Cut]]:
        return cut_words(self.reader, xs, self.config.max_length, OVERLAP)

    def train_parts(self, xs: Sequence[Words]) -> list[list[Cut]]:
        parts = cut_words(self.reader, xs, self.config.max_length, 0)
        self.cut += sum(len(some) > 1 for some in parts)
        return parts

    def notes(self) -> list[str]:
        lines = []
        if self.cut:
            lines.append(
                f"{self.cut:,} sentences have more than {self.config.max_length:,} tokens (max_length): they are read "
                "in stretches"
            )
        return lines

    def texts(self, x: Words) -> Words:
        return x

    def label(self, x: Words) -> str:
        return " ".join(x)

    def item(self, given: object) -> Words:
        words = given.split() if isinstance(given, str) else given
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) and word for word in words):
            raise UserError(f"expected a sentence, as a text or a list of words, found {given!r:.60}")
        return self._told(words)

    def _told(self, words: Sequence[str]) -> Words:
        """The words; that a sentence is taken for one is said once."""
        if not self.told and self.is_unspaced(words):
            self.told = True
            LOG.warning("a sentence is written without spaces and is read as one word: %s", UNSPACED_ADVICE)
        return tuple(words)

    def is_unspaced(self, words: Sequence[str]) -> bool:
        """Whether words are sentences of Chinese, Thai and the like, whose words nothing separates."""
        text = " ".join(words)
        return not text.isascii() and max(map(len, words)) > LONGEST_WORD and cutting_of([text]) == "characters"

    joins_lines = True

    def joined(self, lines: InputLines) -> Iterator[tuple[list[Words], int]]:
        """A sentence a line; in CoNLL files a word a line, and an empty line behind each sentence."""
        ending = "" if lines.path is None else Path(lines.path).suffix.lower()
        number, waiting = 0, list[str]()
        for block, size in lines.blocks():
            some = list[Words]()
            for line in block:
                number += 1
                if ending not in CONLL_ENDINGS or ending == ".txt":
                    some.append(self.parse(line, number, lines.is_json))
                elif line.strip():
                    waiting.append(line.split("\t" if "\t" in line else None)[0].strip())
                elif waiting:
                    some.append(tuple(waiting))
                    waiting = []
            yield some, size
        if waiting:
            yield [tuple(waiting)], 0

    def parse(self, line: str, number: int, is_json: bool) -> Words:
        words: Any = line
        if is_json:
            (words,) = fields_of(line, number, (WORD_NAMES,))
        if isinstance(words, str):
            words = words.split()
        if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
            raise UserError(f"line {number:,}: expected words, as a list or a text with blanks between them")
        return self._told(words)


def words_of(value: object, what: str) -> tuple[str, ...]:
    """Words or labels of a cell: a list, or text with blanks between them."""
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(one, str | int) for one in words):
        raise BadValueError(f"bad {what}: found {kind_of(value)}, expected a list, or text with blanks between")
    return tuple(str(one).strip() for one in words)


def cut_words(reader: TextEncoder, sentences: Sequence[Sequence[str]], longest: int, overlap: int) -> list[list[Cut]]:
    """Sentences of words as stretches of at most ``longest`` tokens."""
    tokeniser, specials, space = reader.tokeniser, reader.specials, _space(reader)
    room = longest - 2
    pieces = iter(tokeniser.encode([space + word for words in sentences for word in words]))
    parts = []
    for words in sentences:
        # A word without any piece still has a label.
        own = [next(pieces)[:room] or [specials.unknown] for _ in words]
        cuts = []
        for first, behind in windows([len(one) for one in own], room, min(overlap, room // 2)):
            tokens, places = [specials.start], list[int]()
            for one in own[first:behind]:
                places.append(len(tokens))
                tokens += one
            cuts.append(Cut([*tokens, specials.end], places, first, behind))
        parts.append(cuts)
    return parts


def _space(reader: TextEncoder) -> str:
    """What to put before a word: in byte-level vocabularies its first piece has the space before it."""
    return " " if isinstance(reader.tokeniser, PretrainedTokeniser) and reader.tokeniser.of_bytes else ""


def piece_places(reader: TextEncoder, word: str) -> list[tuple[int, int]]:
    """The characters of a word that each of its pieces covers."""
    space, tokeniser = _space(reader), cast("Any", reader.tokeniser)
    places = [place for _, place in tokeniser.pieces(space + word)]
    return [(max(0, start - len(space)), max(0, end - len(space))) for start, end in places]
