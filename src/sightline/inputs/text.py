"""Texts that an encoder reads: one, or a pair. Tokens between start and end, cut where they are too long."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from sightline.data.batches import SOURCE_EXTRA
from sightline.data.checking import EMPTY_SIDE, TOO_LONG, RowLimits
from sightline.data.columns import TableRow, text_problem
from sightline.data.labelled import find_columns
from sightline.data.plain import without_blanks
from sightline.data.store import Numbers
from sightline.data.tables import kind_of
from sightline.errors import UserError
from sightline.explain.evidence import TextSubject, believe
from sightline.explain.explanation import Belief
from sightline.inputs.base import Input
from sightline.interop.tokens import PretrainedTokeniser
from sightline.models.text_to_labels import Texts
from sightline.models.text_to_text import TextToText
from sightline.outputs.label_scores import Labels
from sightline.outputs.reports import object_of
from sightline.outputs.unknown import attended_words
from sightline.records import Record, Tokens
from sightline.tasks.configs.base import WHOLE_TEXTS, TaskConfig
from sightline.tasks.loading import SavedRun
from sightline.tasks.prepare import Rows, Setting, normalised
from sightline.tasks.task import BadValueError, Part, X
from sightline.text.copying import SourceWords, Word, numbered_sources, words_of
from sightline.text.encoding import Text, TextEncoder, owners, windows
from sightline.text.tokeniser import Tokeniser, train_tokeniser
from sightline.text.words import token_axis
from sightline.vocabulary import END, MASK, MASK_SPELLING, PADDING, Specials

TOKENISER, SOURCE = "tokenizer.json", "source.json"


class ReaderInput(Input[X, Part, Texts]):
    """Items that a fitted `TextEncoder` reads; the base of texts, words and questions.

    A part is a list of tokens, or a record with the field ``tokens``.
    """

    reads_pairs = False
    item_types: ClassVar[tuple[type, ...]] = (str, list, tuple)
    reader: TextEncoder

    def __init__(self, config: TaskConfig, reader: TextEncoder | None = None) -> None:
        super().__init__(config)
        self.reader = cast("TextEncoder", reader)  # None until it is fitted
        self.cut = 0  # items that were too long to be stored whole

    def identity(self, x: X) -> str:
        return normalised(*self.texts(x))

    def fit(self, rows: Rows[X, object], setting: Setting) -> "ReaderInput[X, Part]":
        """With the reader of an earlier run, or with a vocabulary of the training texts."""
        reader = setting.start.reader if setting.start is not None else self.new_reader(rows, setting)
        return type(self)(self.config, replace(reader, pairs=self.reads_pairs, sentences=False))

    def new_reader(self, rows: Rows[X, object], setting: Setting, mask: bool = False) -> TextEncoder:
        """A reader with a vocabulary of the training texts."""
        texts = rows.texts(lambda one: self.texts(one.x))
        tokeniser = train_tokeniser(texts, setting.config.tokeniser, mask=mask)
        return TextEncoder(tokeniser, Specials(mask=MASK if mask else None))

    def stored(self, part: Part | Numbers) -> Numbers:
        return cast("Numbers", getattr(part, "tokens", part))

    def size(self, part: Part) -> int:
        return len(self.stored(part))

    def collate(self, parts: Sequence[Part | Numbers]) -> Texts:
        words, segments = self.reader.pad([self.stored(part) for part in parts])
        return Texts(torch.from_numpy(words), None if segments is None else torch.from_numpy(segments))

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        reader = self.reader
        reader.tokeniser.save(folder / TOKENISER)
        about = {
            "words": reader.words,
            "specials": asdict(reader.specials),
            "sentences": reader.sentences,
            "foreign": isinstance(reader.tokeniser, PretrainedTokeniser),
        }
        return about, [TOKENISER]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "ReaderInput[X, Part]":
        return cls(config, load_reader(saved.path, saved.about, cls.reads_pairs))

    def summary(self) -> str:
        return f"{self.reader.tokeniser.words:,} different tokens"

    def label(self, x: X) -> str:
        return "\t".join(self.texts(x))

    @property
    def two_texts(self) -> bool:
        return self.reader.pairs

    def pair(self, first: str, second: str, name: str) -> X:
        return cast("X", (first, second)) if self.two_texts else super().pair(first, second, name)


class TextInput(ReaderInput[Text, list[int]]):
    """A text, or a pair of texts as a tuple of two.

    In training a text that is longer than ``config.max_length`` loses its middle; so it does in predictions where the
    cost grows with the square of its length. ``columns`` are the given names of the columns of the training data.
    """

    def __init__(
        self, config: TaskConfig, reader: TextEncoder | None = None, columns: tuple[str, ...] | None = None
    ) -> None:
        super().__init__(config, reader)
        self.named_columns = columns

    @property
    def reads_sentences(self) -> bool:
        return self.config.model.kind == "han"

    @property
    def limit(self) -> int | None:
        """How many tokens of a text are read at prediction: all, unless the cost grows with the square of them."""
        return self.config.max_length if self.config.model.kind == "encoder" else None

    def fit(self, rows: Rows[Text, object], setting: Setting) -> "TextInput":
        """For pairs where the training data has them."""
        pairs = bool(rows.report.lengths["second_characters"].count)
        reader = replace(super().fit(rows, setting).reader, pairs=pairs, sentences=self.reads_sentences)
        return type(self)(self.config, reader, setting.source.columns)

    def read(self, cells: Mapping[str, object]) -> Text:
        text = text_of(cells, "text", "'text'")
        return text if cells.get("text2") is None else (text, text_of(cells, "text2", "'text2'"))

    def check(self, x: Text, limits: RowLimits) -> None:
        for text in self.texts(x):
            check_length(len(text), "a text", limits)

    def pack(self, x: Text) -> list[object]:
        return [x, None] if isinstance(x, str) else list(x)

    def unpack(self, row: Sequence[object]) -> tuple[Text, Sequence[object]]:
        return cast("Text", row[0] if row[1] is None else (row[0], row[1])), row[2:]

    def encode(self, xs: Sequence[Text]) -> list[list[list[int]]]:
        return [[tokens] for tokens in self.reader.read(list(map(without_blank, xs)), self.limit).rows]

    def train_parts(self, xs: Sequence[Text]) -> list[list[list[int]]]:
        longest = None if self.config.model.kind in WHOLE_TEXTS else self.config.max_length
        read = self.reader.read(list(map(without_blank, xs)), longest)
        self.cut += read.cut
        return [[tokens] for tokens in read.rows]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "TextInput":
        labels = Labels.load(saved.path)
        return cls(config, load_reader(saved.path, saved.about, labels.pairs), labels.columns)

    def notes(self) -> list[str]:
        if not self.cut:
            return []
        return [
            f"{self.cut:,} texts are longer than {self.config.max_length:,} tokens (max_length): training reads their "
            "beginning and their end"
        ]

    def texts(self, x: Text) -> tuple[str, ...]:
        return (x,) if isinstance(x, str) else x

    def too_long(self, xs: Sequence[Text]) -> int:
        return 0 if self.limit is None else self.reader.read(xs, self.limit).cut

    def fields(self, x: Text) -> dict[str, object]:
        return dict(zip(("text", "text2"), self.texts(x), strict=False))

    def item(self, given: object) -> Text:
        if not self.reader.pairs and isinstance(given, str):
            return given
        texts = () if isinstance(given, str) else tuple(cast("Sequence[object]", given))
        if not self.reader.pairs or len(texts) != 2 or not all(isinstance(one, str) for one in texts):
            what = "a pair of texts" if self.reader.pairs else "one text"
            raise UserError(f"expected {what}, as the model was trained on, found {kind_of(given)}: {given!r:.60}")
        return cast("Text", texts)

    def parse(self, line: str, number: int, is_json: bool) -> Text:
        if is_json:
            return self._fields_of(line, number)
        if not self.reader.pairs:
            return line
        return halves_of(line, number, "the model reads two texts")

    def _fields_of(self, line: str, number: int) -> Text:
        fields, count = object_of(line, number), 1 + self.reader.pairs
        names = (self.named_columns or ())[:-1]
        if not names or not set(names) <= set(fields):
            names = (find_columns(f"line {number:,}", [*fields, "label"], None) or ())[:-1]
        values = [fields[name] for name in names[:count]]
        if len(values) != count or not all(isinstance(value, str) for value in values):
            expected = "'text' and 'text2'" if self.reader.pairs else "'text'"
            raise UserError(f"line {number:,}: found the fields {', '.join(map(repr, fields))}; expected {expected}")
        return cast("Text", tuple(values) if self.reader.pairs else values[0])


def without_blank(x: Text) -> Text:
    """A text or a pair of texts; one of blanks alone is an empty one."""
    if isinstance(x, str):
        return x if x.strip() else ""
    return x[0] if x[0].strip() else "", x[1] if x[1].strip() else ""


def halves_of(line: str, number: int, expected: str) -> tuple[str, str]:
    """The two texts of a line."""
    first, tab, second = line.partition("\t")
    if not tab:
        raise UserError(f"line {number:,} has no tab; {expected} with a tab between them")
    return first, second


def text_of(cells: Mapping[str, object], name: str, what: str | None = None) -> str:
    """The text in a column, or a `BadValueError`."""
    problem = text_problem(cells.get(name), what or f"the {name}")
    if problem is not None:
        raise BadValueError(problem)
    return cast("str", cells[name])


def check_length(characters: int, what: str, limits: RowLimits) -> None:
    """Refuse a text that is longer than the limits allow."""
    most = limits.max_characters
    if characters > most:
        raise BadValueError(f"{TOO_LONG}: found {characters:,} characters in {what}, expected at most {most:,}")


def load_reader(path: Path, about: dict[str, Any], pairs: bool = False) -> TextEncoder:
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
    return TextEncoder(tokeniser, specials, pairs, about.get("sentences") is True, words)


# -- sources of translations: tokens of a vocabulary of their own, with an end behind them


class SourceText(Input[str, Sequence[int], Tensor]):
    """Texts of one vocabulary. A part is the tokens of a text, without its end; an empty text has no part."""

    keys_file = ""  # the training corpus itself tells which pairs were trained on
    item_types: ClassVar[tuple[type, ...]] = (str,)
    decodes = "one vector for the whole source"
    most_measured = 400  # tokens; hiding each of them in turn grows with the cube

    tokeniser: Tokeniser

    def __init__(self, config: TaskConfig, tokeniser: Tokeniser | None = None) -> None:
        super().__init__(config)
        self.tokeniser = cast("Tokeniser", tokeniser)  # None until it is fitted

    @property
    def copies(self) -> bool:
        """Whether unknown words have numbers, so that they can be copied."""
        return self.config.copies

    def read(self, cells: Mapping[str, object]) -> str:
        return side_of(cells, "source")

    def parse(self, line: str, number: int, is_json: bool) -> str:
        """Every line is a text as it is, an empty one too."""
        return line

    def item(self, given: object) -> str:
        return cast("str", given)

    def check(self, x: str, limits: RowLimits) -> None:
        check_length(len(x), "the source", limits)

    def encode(self, xs: Sequence[str]) -> list[list[list[int]]]:
        texts = [str(without_blank(x)) if isinstance(x, str) else x for x in xs]
        encoded = numbered_sources(self.tokeniser, texts) if self.copies else self.tokeniser.encode(texts)
        return [[tokens] if tokens else [] for tokens in encoded]

    def collate(self, parts: Sequence[Numbers]) -> Tensor:
        source = np.full((len(parts), max(map(len, parts)) + SOURCE_EXTRA), PADDING, np.int64)
        for row, tokens in enumerate(parts):
            source[row, : len(tokens)] = tokens
            source[row, len(tokens)] = END
        return torch.from_numpy(source)

    def resegmented(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The same texts in other pieces (BPE dropout)."""
        return resegmented(self.tokeniser, parts)

    def reopen(self, setting: Setting) -> None:
        self.tokeniser.dropout = setting.config.tokeniser.dropout

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        self.tokeniser.save(folder / SOURCE)
        return {"source_words": self.tokeniser.words}, [SOURCE]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "SourceText":
        return cls(config, saved.vocabulary(SOURCE, "source_words", config.tokeniser.dropout))

    def attended(
        self, model: TextToText, batch: Tensor, xs: Sequence[str], outputs: Sequence[Sequence[int]]
    ) -> list[list[Word | None]]:
        """For each token of the outputs the word of the source with the most attention; empty without words."""
        if not self.tokeniser.of_words:
            return [[] for _ in outputs]
        return attended_words(model, outputs, model.begin(batch), [self.words_of(x) for x in xs])

    def words_of(self, x: str) -> list[Word | None]:
        """What each token that is read of a text covers."""
        return words_of(self.tokeniser, x)

    def axis(self, x: str, part: Sequence[int]) -> Tokens:
        return token_axis(SourceWords(self.tokeniser, x), part)

    def subject(self, model: TextToText, part: Sequence[int], written: Sequence[int]) -> TextSubject:
        """What to measure a map of these tokens by (`sightline.explain.evidence`)."""
        return TextSubject(model, [*part, END], written)

    def believe(
        self, model: nn.Module, part: Sequence[int], written: Sequence[int], records: Sequence[Record], shift: int
    ) -> Belief:
        return believe(self.subject(cast("TextToText", model), part, written), list(records), shift=shift)

    def summary(self) -> str:
        return f"{self.tokeniser.words:,} source tokens"


def side_of(cells: Mapping[str, object], name: str) -> str:
    """One side of a pair: a text with something in it."""
    text = text_of(cells, name)
    if not text.strip():
        raise BadValueError(f"{EMPTY_SIDE}: found no text in the {name}, expected a sentence")
    return text


def resegmented(tokeniser: Tokeniser, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The same texts in other pieces: tokenising is exact, so decoding gives the text back."""
    texts = tokeniser.decode([row.tolist() for row in rows])
    return [np.array(row) for row in tokeniser.encode(texts, dropout=True)]


# -- plain text: pre-training without labels, and words for `<mask>`


Plain = str | tuple[int, ...]  # a text, or its tokens where a run has kept no more of it


class Masked(NamedTuple):
    """Part of a text with masks as a model reads it, with start and end.

    ``first`` is the number of its first token in the text, ``masks`` are the places of the masks to predict here.
    """

    tokens: list[int]
    first: int
    masks: list[int]


PlainPart = list[int] | Masked


class PlainInput(ReaderInput[Plain, PlainPart]):
    """Texts. Only those with a mask have something to predict; around each, ``config.max_length`` tokens are read."""

    item_types: ClassVar[tuple[type, ...]] = (str,)

    def stage(self, tables: Sequence[Iterable[TableRow]], setting: Setting) -> Sequence[Iterable[TableRow]]:
        return [without_blanks(rows) for rows in tables]

    def read(self, cells: Mapping[str, object]) -> str:
        text = text_of(cells, "text").strip()
        if not text:
            raise BadValueError("no text: found blanks alone, expected words")
        return text

    def check(self, x: Plain, limits: RowLimits) -> None:
        check_length(len(x), "a text", limits)

    def fit(self, rows: Rows[Plain, object], setting: Setting) -> "ReaderInput[Plain, PlainPart]":
        start = setting.start
        if start is not None and start.reader.specials.mask is None:
            raise UserError(f"{start.path} has no token for hidden words (<mask>): pre-training needs one")
        return super().fit(rows, setting)

    def new_reader(self, rows: Rows[Plain, object], setting: Setting, mask: bool = True) -> TextEncoder:
        return super().new_reader(rows, setting, mask)

    def texts(self, x: Plain) -> tuple[str, ...]:
        if isinstance(x, str):
            return (x,)
        tokeniser: Any = self.reader.tokeniser
        return (tokeniser.decode([list(x)])[0],)

    def train_parts(self, xs: Sequence[Plain]) -> list[list[list[int]]]:
        """The tokens alone: the texts form one stream, which is cut into blocks."""
        return [[tokens] for tokens in self.tokens(xs)]

    def tokens(self, xs: Sequence[Plain]) -> list[list[int]]:
        """The tokens of each text; masks are not among them."""
        coming = iter(self.reader.tokeniser.encode([x for x in xs if isinstance(x, str)]))
        return [next(coming) if isinstance(x, str) else list(x) for x in xs]

    def with_masks(self, text: str) -> list[int]:
        """The tokens of a text, a mask for each `<mask>`."""
        mask: Any = self.reader.specials.mask
        first, *others = self.reader.tokeniser.encode([one.strip() for one in text.split(MASK_SPELLING)])
        return first + [token for tokens in others for token in (mask, *tokens)]

    def encode(self, xs: Sequence[Plain]) -> list[list[Masked]]:
        return [self.parts(self.with_masks(x)) if isinstance(x, str) and MASK_SPELLING in x else [] for x in xs]

    def parts(self, tokens: Sequence[int]) -> list[Masked]:
        """Tokens with masks among them, in stretches where they are many, without those that predict no mask."""
        specials, room = self.reader.specials, self.config.max_length - 2
        stretches = windows([1] * len(tokens), room, room // 2)
        parts = []
        for (first, behind), (start, end) in zip(stretches, owners(stretches), strict=True):
            masks = [1 + at - first for at in range(start, end) if tokens[at] == specials.mask]
            if masks:
                parts.append(Masked([specials.start, *tokens[first:behind], specials.end], first, masks))
        return parts

    def item(self, given: object) -> str:
        return cast("str", given)

    def parse(self, line: str, number: int, is_json: bool) -> str:
        """A line as it is, which may be empty."""
        return cast("str", super().parse(line, number, True)) if is_json else line
