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
from sightline.data.texts import TextReader
from sightline.data.tokenise import Tokeniser
from sightline.errors import UserError
from sightline.interop.pretrained_tokens import PretrainedTokeniser
from sightline.models.text_to_labels import Texts
from sightline.tasks.loading import Saved
from sightline.tasks.task import BadValueError, Input
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

    def stored(self, part: Any) -> Sequence[int]:
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
