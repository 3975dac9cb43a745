"""Texts that an encoder reads: one, or a pair. Tokens between start and end, cut where they are too long."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline.data.batches import SOURCE_EXTRA
from sightline.data.checking import EMPTY_SIDE, TOO_LONG, Limits
from sightline.data.columns import Cells, text_problem
from sightline.data.labelled import find_columns
from sightline.data.plain import without_blanks
from sightline.errors import UserError
from sightline.explain.evidence import TextSubject, believe
from sightline.explain.explanation import Belief
from sightline.inputs.base import Input
from sightline.interop.tokens import PretrainedTokeniser
from sightline.models.text_to_labels import Texts
from sightline.models.text_to_text import TextToText
from sightline.outputs.label_scores import Labels
from sightline.outputs.reports import object_of
from sightline.outputs.unknown import Word, attended_words, words_of
from sightline.records import Record, Tokens
from sightline.tasks.loading import Saved
from sightline.tasks.prepare import Setting
from sightline.tasks.task import BadValueError
from sightline.text.encoding import Text, TextReader, owners, windows
from sightline.text.tokeniser import Tokeniser
from sightline.text.words import token_axis
from sightline.vocabulary import END, MASK, MASK_SPELLING, PADDING, Specials

TOKENISER = "tokenizer.json"


class ReaderInput(Input):
    """An input that is read with a `TextReader`, which is fitted; the base of texts, words and questions."""

    reads_pairs = False

    def __init__(self, config: Any, reader: TextReader | None = None) -> None:
        super().__init__(config)
        self._reader = reader
        self.cut = 0  # items that were too long to be stored whole

    @property
    def reader(self) -> TextReader:
        assert self._reader is not None, "the input is not fitted"
        return self._reader

    def fitted(self, reader: TextReader) -> "ReaderInput":
        """The same with a reader: a new one, or that of an earlier run."""
        return type(self)(self.config, replace(reader, pairs=self.reads_pairs, sentences=self.reads_sentences))

    @property
    def reads_sentences(self) -> bool:
        return False

    def stored(self, part: Any) -> Any:
        return part

    def size(self, part: Any) -> int:
        return len(self.stored(part))

    def collate(self, parts: Sequence[Any]) -> Texts:
        return to_texts(*self.reader.pad([self.stored(part) for part in parts]))

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        self.reader.tokeniser.save(folder / TOKENISER)
        return about_reader(self.reader), [TOKENISER]

    @classmethod
    def load(cls, saved: Saved, config: Any) -> "ReaderInput":
        return cls(config, load_reader(saved.path, saved.about, cls.reads_pairs))

    def summary(self) -> str:
        return f"{self.reader.tokeniser.words:,} different tokens"


class TextInput(ReaderInput):
    """A text, or a pair of texts as a tuple of two.

    In training a text that is longer than ``config.longest`` loses its middle; so it does in predictions where the cost
    grows with the square of its length. ``columns`` are the names that the training data's columns were given.
    """

    label_explanation = "sightline.outputs.labels_explain:explain_label"
    label_baselines = "sightline.outputs.label_baselines:TextBaselines"

    def __init__(self, config: Any, reader: TextReader | None = None, columns: tuple[str, ...] | None = None) -> None:
        super().__init__(config, reader)
        self.named_columns = columns

    @property
    def reads_sentences(self) -> bool:
        return self.config.model.kind == "han"

    @property
    def limit(self) -> int | None:
        """How many tokens of a text are read at prediction: all, unless the cost grows with the square of them."""
        return self.config.longest if self.config.model.kind == "encoder" else None

    def fitted_to(self, reader: TextReader, pairs: bool, columns: tuple[str, ...] | None) -> "TextInput":
        """The same with a reader, for single texts or for pairs."""
        return type(self)(self.config, replace(reader, pairs=pairs, sentences=self.reads_sentences), columns)

    def read(self, cells: Mapping[str, Any]) -> Text:
        text = text_of(cells, "text", "'text'")
        return text if cells.get("text2") is None else (text, text_of(cells, "text2", "'text2'"))

    def check(self, x: Text, limits: Limits) -> None:
        for text in self.texts(x):
            check_length(text, "a text", limits)

    def identity(self, x: Text) -> str:
        from sightline.tasks.prepare import normalised

        return normalised(*self.texts(x))

    def pack(self, x: Text) -> list[Any]:
        return [x, None] if isinstance(x, str) else list(x)

    def unpack(self, row: Sequence[Any]) -> tuple[Text, Sequence[Any]]:
        return row[0] if row[1] is None else (row[0], row[1]), row[2:]

    def encode(self, xs: Sequence[Text]) -> list[list[Any]]:
        return [[tokens] for tokens in self.reader.read(xs, self.limit).rows]

    def train_parts(self, xs: Sequence[Text]) -> list[list[Any]]:
        read = self.reader.read(xs, None if self.reads_sentences else self.config.longest)
        self.cut += read.cut
        return [[tokens] for tokens in read.rows]

    @classmethod
    def load(cls, saved: Saved, config: Any) -> "TextInput":
        labels = Labels.load(saved.path)
        return cls(config, load_reader(saved.path, saved.about, labels.pairs), labels.columns)

    def notes(self) -> list[str]:
        if not self.cut:
            return []
        return [
            f"{self.cut:,} texts are longer than {self.config.longest:,} tokens (longest): training reads their "
            "beginning and their end"
        ]

    @property
    def two_texts(self) -> bool:
        return self.reader.pairs

    def texts(self, x: Text) -> tuple[str, ...]:
        return (x,) if isinstance(x, str) else x

    def too_long(self, xs: Sequence[Text]) -> int:
        return 0 if self.limit is None else self.reader.read(xs, self.limit).cut

    def label(self, x: Text) -> str:
        return "\t".join(self.texts(x))

    def fields(self, x: Text) -> dict[str, Any]:
        return dict(zip(("text", "text2"), self.texts(x), strict=False))

    def pair(self, first: str, second: str, name: str) -> Text:
        return (first, second) if self.reader.pairs else super().pair(first, second, name)

    def item(self, given: Any) -> Text:
        return given if isinstance(given, str) else tuple(given)

    def parse(self, line: str, number: int, is_json: bool) -> Text:
        if is_json:
            return self._fields_of(line, number)
        if not self.reader.pairs:
            return line
        first, tab, second = line.partition("\t")
        if not tab:
            raise UserError(f"line {number:,} has no tab; the model reads two texts with a tab between them")
        return first, second

    def _fields_of(self, line: str, number: int) -> Text:
        there, count = object_of(line, number), 1 + self.reader.pairs
        names = (self.named_columns or ())[:-1]
        if not names or not set(names) <= set(there):
            names = (find_columns(f"line {number:,}", [*there, "label"], None) or ())[:-1]
        values = [there[name] for name in names[:count]]
        if len(values) != count or not all(isinstance(value, str) for value in values):
            expected = "'text' and 'text2'" if self.reader.pairs else "'text'"
            raise UserError(f"line {number:,}: found the fields {', '.join(map(repr, there))}; expected {expected}")
        return tuple(values) if self.reader.pairs else values[0]


def text_of(cells: Mapping[str, Any], name: str, what: str | None = None) -> str:
    """The text in a column, or a `BadValueError`."""
    problem = text_problem(cells.get(name), what or f"the {name}")
    if problem is not None:
        raise BadValueError(problem)
    return cells[name]


def check_length(text: str, what: str, limits: Limits) -> None:
    """Refuse a text that is longer than the limits allow."""
    most = limits.max_characters
    if len(text) > most:
        raise BadValueError(f"{TOO_LONG}: found {len(text):,} characters in {what}, expected at most {most:,}")


def to_texts(words: np.ndarray, parts: np.ndarray | None, device: torch.device | str = "cpu") -> Texts:
    """Padded arrays as a batch."""

    def moved(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    return Texts(moved(words), None if parts is None else moved(parts))


def about_reader(reader: TextReader) -> dict[str, Any]:
    """What config.json says of how texts are read."""
    return {
        "words": reader.words,
        "specials": asdict(reader.specials),
        "sentences": reader.sentences,
        "foreign": isinstance(reader.tokeniser, PretrainedTokeniser),
    }


def load_reader(path: Path, about: dict[str, Any], pairs: bool = False) -> TextReader:
    """How a run reads texts: with our own tokeniser, or with that of the Hugging Face folder it began with."""
    foreign, words = about.get("foreign") is True, about.get("words")
    tokeniser = (PretrainedTokeniser if foreign else Tokeniser).load(path / TOKENISER)
    try:
        specials = Specials(**about.get("specials", {}))
        if not all(value is None or type(value) is int for value in asdict(specials).values()):
            raise ValueError("the ids of special tokens are no numbers")
        ours = Specials(mask=MASK if not foreign and tokeniser.has_mask else None)  # type: ignore[union-attr]
        if specials != (tokeniser.specials if foreign else ours):  # type: ignore[union-attr]
            raise ValueError(f"the special tokens are not those of {TOKENISER}")
        if type(words) is not int or words < tokeniser.words or (words > tokeniser.words and not foreign):
            raise ValueError(f"{TOKENISER} has {tokeniser.words:,} tokens, the model has {words!r}")
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return TextReader(tokeniser, specials, pairs, about.get("sentences") is True, words)


# Texts that a translating model reads: tokens of a vocabulary of their own, with an end behind them.


SOURCE = "source.json"


class SourceText(Input):
    """Texts of one vocabulary. A part is the tokens of a text, without its end; an empty text has no part."""

    keys_file = ""  # whether a pair was trained on is told from the training corpus itself
    decodes = "one vector for the whole source"
    most_measured = 400  # tokens; hiding each of them in turn grows with the cube

    def __init__(self, config: Any, tokeniser: Tokeniser | None = None) -> None:
        super().__init__(config)
        self._tokeniser = tokeniser

    @property
    def tokeniser(self) -> Tokeniser:
        assert self._tokeniser is not None, "the input is not fitted"
        return self._tokeniser

    def fitted(self, tokeniser: Tokeniser) -> "SourceText":
        """The same with a vocabulary: a new one, or that of an earlier run."""
        return type(self)(self.config, tokeniser)

    def read(self, cells: Mapping[str, Any]) -> str:
        return side_of(cells, "source")

    def parse(self, line: str, number: int, is_json: bool) -> str:
        """Every line is a text as it is, an empty one too."""
        return line

    def check(self, x: str, limits: Limits) -> None:
        check_length(x, "the source", limits)

    def encode(self, xs: Sequence[str]) -> list[list[list[int]]]:
        return [[tokens] if tokens else [] for tokens in self.tokeniser.encode(list(xs))]

    def collate(self, parts: Sequence[Any]) -> Tensor:
        source = np.full((len(parts), max(map(len, parts)) + SOURCE_EXTRA), PADDING, np.int64)
        for row, tokens in enumerate(parts):
            source[row, : len(tokens)] = tokens
            source[row, len(tokens)] = END
        return torch.from_numpy(source)

    def cut_anew(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The same texts in other pieces (BPE dropout)."""
        return cut_anew(self.tokeniser, parts)

    def reopen(self, setting: Setting) -> None:
        self.tokeniser.dropout = setting.config.tokeniser.dropout

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        self.tokeniser.save(folder / SOURCE)
        return {"source_words": self.tokeniser.words}, [SOURCE]

    @classmethod
    def load(cls, saved: Saved, config: Any) -> "SourceText":
        return cls(config, saved.vocabulary(SOURCE, "source_words", config.tokeniser.dropout))

    def attended(
        self, model: TextToText, batch: Tensor, xs: Sequence[str], outputs: Sequence[Sequence[int]]
    ) -> list[list[Word | None]]:
        """For each token of the outputs the word of the source that it looked at; nothing where there are no words."""
        if not self.tokeniser.of_words:
            return [[] for _ in outputs]
        return attended_words(model, outputs, model.begin(batch), [words_of(self.tokeniser, x) for x in xs])

    def axis(self, x: str, part: Sequence[int]) -> Tokens:
        return token_axis(self.tokeniser, part)

    def subject(self, model: TextToText, part: Sequence[int], written: Sequence[int]) -> TextSubject:
        """What to measure a map of these tokens by (`sightline.explain.evidence`)."""
        return TextSubject(model, [*part, END], written)

    def believe(
        self, model: Any, part: Sequence[int], written: Sequence[int], records: Sequence[Record], shift: int
    ) -> Belief:
        return believe(self.subject(model, part, written), list(records), shift=shift)

    def summary(self) -> str:
        return f"{self.tokeniser.words:,} source tokens"


def side_of(cells: Mapping[str, Any], name: str) -> str:
    """One side of a pair: a text with something in it."""
    text = text_of(cells, name)
    if not text.strip():
        raise BadValueError(f"{EMPTY_SIDE}: found no text in the {name}, expected a sentence")
    return text


def cut_anew(tokeniser: Tokeniser, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Tokenising is exact, so a text comes back from its tokens, and can be cut into other pieces."""
    texts = tokeniser.decode([row.tolist() for row in rows])
    return [np.array(row) for row in tokeniser.encode(texts, dropout=True)]


# Plain text: to learn from it without labels, and to say what stands behind `<mask>`.


Plain = str | tuple[int, ...]  # a text, or its tokens where a run has kept no more of it


class Masked(NamedTuple):
    """Part of a text with masks as a model reads it, with start and end.

    ``first`` is the number of its first token in the text, ``masks`` are the places of the masks that it answers for.
    """

    tokens: list[int]
    first: int
    masks: list[int]


class PlainInput(ReaderInput):
    """Texts. Only those with a mask have something to predict; around each, ``config.longest`` tokens are read."""

    def stage(self, tables: Sequence[Iterable[Cells]], setting: Any) -> Sequence[Iterable[Cells]]:
        return [without_blanks(rows) for rows in tables]

    def read(self, cells: Mapping[str, Any]) -> str:
        text = text_of(cells, "text").strip()
        if not text:
            raise BadValueError("no text: found blanks alone, expected words")
        return text

    def check(self, x: str, limits: Limits) -> None:
        check_length(x, "a text", limits)

    def identity(self, x: Plain) -> str:
        from sightline.tasks.prepare import normalised

        return normalised(self.text(x))

    def text(self, x: Plain) -> str:
        """An item as text."""
        tokeniser: Any = self.reader.tokeniser if not isinstance(x, str) else None
        return x if isinstance(x, str) else tokeniser.decode([list(x)])[0]

    def train_parts(self, xs: Sequence[Plain]) -> list[list[list[int]]]:
        """The tokens alone: texts are one stream, which is cut into blocks."""
        return [[tokens] for tokens in self.tokens(xs)]

    def tokens(self, xs: Sequence[Plain]) -> list[list[int]]:
        """The tokens of each text; masks are not among them."""
        coming = iter(self.reader.tokeniser.encode([x for x in xs if isinstance(x, str)]))
        return [next(coming) if isinstance(x, str) else list(x) for x in xs]

    def with_masks(self, text: str) -> list[int]:
        """The tokens of a text, a mask for each `<mask>`."""
        mask = self.reader.specials.mask
        found: list[int] = []
        between = [one.strip() for one in text.split(MASK_SPELLING)]
        for number, tokens in enumerate(self.reader.tokeniser.encode(between)):
            found += [mask, *tokens] if number else tokens  # type: ignore[list-item]
        return found

    def encode(self, xs: Sequence[Plain]) -> list[list[Masked]]:
        return [self.parts(self.with_masks(x)) if isinstance(x, str) and MASK_SPELLING in x else [] for x in xs]

    def parts(self, tokens: Sequence[int]) -> list[Masked]:
        """Tokens with masks among them, in stretches where they are many, without those that answer for none."""
        specials, room = self.reader.specials, self.config.longest - 2
        stretches = windows([1] * len(tokens), room, room // 2)
        found = []
        for (first, behind), (start, end) in zip(stretches, owners(stretches), strict=True):
            masks = [1 + at - first for at in range(start, end) if tokens[at] == specials.mask]
            if masks:
                found.append(Masked([specials.start, *tokens[first:behind], specials.end], first, masks))
        return found

    def stored(self, part: Any) -> Any:
        return part.tokens if isinstance(part, Masked) else part

    def label(self, x: Plain) -> str:
        return self.text(x)

    def texts(self, x: Plain) -> tuple[str, ...]:
        return (self.text(x),)

    def parse(self, line: str, number: int, is_json: bool) -> str:
        """A line as it stands, which may be empty."""
        return super().parse(line, number, True) if is_json else line
