"""Texts that an encoder reads: one, or a pair. Tokens between start and end, cut where they are too long."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.data.checking import TOO_LONG, Limits
from sightline.data.columns import text_problem
from sightline.data.labelled import find_columns
from sightline.errors import UserError
from sightline.inputs.base import Input
from sightline.interop.pretrained_tokens import PretrainedTokeniser
from sightline.models.text_to_labels import Texts
from sightline.outputs.label_names import Labels
from sightline.outputs.lines import object_of
from sightline.tasks.loading import Saved
from sightline.tasks.task import BadValueError
from sightline.text.texts import Text, TextReader
from sightline.text.tokenise import Tokeniser
from sightline.vocabulary import MASK, Specials

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
