"""Texts that a translating model reads: tokens of a vocabulary of their own, with an end behind them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.data.batches import SOURCE_EXTRA
from sightline.data.checking import EMPTY_SIDE, Limits
from sightline.explain.evidence import TextSubject, believe
from sightline.explain.explanation import Belief
from sightline.inputs.base import Input
from sightline.inputs.text import check_length, text_of
from sightline.models.text_to_text import TextToText
from sightline.outputs.unknown import Word, attended_words, words_of
from sightline.records import Record, Tokens
from sightline.tasks.loading import Saved
from sightline.tasks.prepare import Setting
from sightline.tasks.task import BadValueError
from sightline.text.token_axis import token_axis
from sightline.text.tokenise import Tokeniser
from sightline.vocabulary import END, PADDING

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
