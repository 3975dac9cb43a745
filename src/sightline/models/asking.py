"""A question about a table as numbers, and what a model that answers it gives: the contract of the models of `ask`.

A model never sees the text of a cell. Of each cell it knows four things: the rank of its number or date within its
column, how that compares with the numbers of the question, which cells of the column are equal to it, and whether it
matches words of the question. All of these are whole numbers, so nothing is lost by rounding: 12,467,001 and 12,467,002
are two ranks apart from each other, however many digits they share.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sightline.config import Config

OPERATIONS = (
    "count",
    "previous",
    "next",
    "first",
    "last",
    "most_frequent",
    "greater",
    "less",
    "at_least",
    "at_most",
    "max",
    "min",
    "match",
    "reset",
    "print",
)
NUMBERS = 2  # numbers of a question that comparisons may use
NOT_COMPARABLE = 2  # a sign, where the cell or the question has no number


class TableArrays(NamedTuple):
    """A question and its table as numbers. R rows, C columns, Q words, L words of the longest column name.

    ``words`` are those of the question; ``number_at`` the word that each number of the question begins at, or −1.
    ``names`` are the words of the column names, 0 behind their end. ``ranks``: 1 is the least number of a column, 0 is
    none. ``signs`` compare cells with each number of the question: −1 less, 0 equal, 1 greater, `NOT_COMPARABLE`.
    ``entries`` number the different cells of a column from 0. ``matches``: cells that match words of the question.
    ``named``: columns whose name stands in the question.
    """

    words: np.ndarray  # Q
    number_at: np.ndarray  # NUMBERS
    names: np.ndarray  # C × L
    ranks: np.ndarray  # R × C
    signs: np.ndarray  # NUMBERS × R × C
    entries: np.ndarray  # R × C
    matches: np.ndarray  # R × C
    named: np.ndarray  # C

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Rows, columns, words of the question, words of a name."""
        return (*self.ranks.shape, len(self.words), self.names.shape[1])

    def flat(self) -> np.ndarray:
        """All of it as one row of numbers, which `unflattened` reads."""
        return np.concatenate([np.array(self.shape), *(one.ravel() for one in self)]).astype(np.int32)


def _fields(rows: int, columns: int, words: int, names: int) -> dict[str, tuple[int, ...]]:
    cells = (rows, columns)
    return {
        "words": (words,),
        "number_at": (NUMBERS,),
        "names": (columns, names),
        "ranks": cells,
        "signs": (NUMBERS, *cells),
        "entries": cells,
        "matches": cells,
        "named": (columns,),
    }


def unflattened(numbers: np.ndarray) -> TableArrays:
    """What `TableArrays.flat` wrote."""
    shapes = _fields(*map(int, numbers[:4]))
    arrays, start = {}, 4
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        arrays[name] = np.asarray(numbers[start : start + size], dtype=np.int64).reshape(shape)
        start += size
    if start != len(numbers):
        raise ValueError(f"a question has {len(numbers)} numbers; expected {start}")
    return TableArrays(**arrays)


@dataclass(frozen=True)
class TableBatch:
    """Several of them as tensors, padded. Words and columns of names are 0 where there are none."""

    words: Int[Tensor, "b q"]
    number_at: Int[Tensor, "b n"]
    names: Int[Tensor, "b c l"]
    ranks: Int[Tensor, "b r c"]
    signs: Int[Tensor, "b n r c"]
    entries: Int[Tensor, "b r c"]
    matches: Bool[Tensor, "b r c"]
    named: Bool[Tensor, "b c"]
    rows_there: Bool[Tensor, "b r"]
    columns_there: Bool[Tensor, "b c"]

    def __len__(self) -> int:
        return len(self.words)

    def to(self, device: torch.device) -> "TableBatch":
        return TableBatch(**{name: getattr(self, name).to(device) for name in self.__dataclass_fields__})


def collate_tables(items: Sequence[TableArrays]) -> TableBatch:
    """Tables of different sizes side by side; what is not there matches nothing and compares with nothing."""
    rows, columns, words, names = (max(max(one.shape[i] for one in items), 1) for i in range(4))
    padding = {"number_at": -1, "signs": NOT_COMPARABLE, "entries": -1}
    tensors = {}
    for name, shape in _fields(rows, columns, words, names).items():
        padded = np.full((len(items), *shape), padding.get(name, 0), dtype=np.int64)
        for row, item in zip(padded, items, strict=True):
            array = getattr(item, name)
            row[tuple(slice(0, size) for size in array.shape)] = array
        tensors[name] = torch.from_numpy(padded)
    there_r = torch.tensor([[row < one.shape[0] for row in range(rows)] for one in items])
    there_c = torch.tensor([[column < one.shape[1] for column in range(columns)] for one in items])
    tensors["matches"], tensors["named"] = tensors["matches"].bool(), tensors["named"].bool()
    return TableBatch(**tensors, rows_there=there_r, columns_there=there_c)


@dataclass(frozen=True)
class AnswerArrays:
    """The answer to learn from: the number of rows that it may be, or −1; how many items it has; for each cell of the
    table, which item it holds, counted from 1, or 0. An answer that neither has is none that these models can give."""

    count: int
    items: int
    cells: np.ndarray  # R × C

    def flat(self) -> np.ndarray:
        return np.concatenate([[self.count, self.items, *self.cells.shape], self.cells.ravel()]).astype(np.int32)

    @property
    def reachable(self) -> bool:
        """Whether a count, or cells that hold every item, can be the answer."""
        held = set(np.unique(self.cells)) - {0}
        return self.count >= 0 or (self.items > 0 and len(held) == self.items)


def unflattened_answer(numbers: np.ndarray) -> AnswerArrays:
    """What `AnswerArrays.flat` wrote."""
    count, items, rows, columns = map(int, numbers[:4])
    return AnswerArrays(count, items, np.asarray(numbers[4:], dtype=np.int64).reshape(rows, columns))


@dataclass(frozen=True)
class AnswerTargets:
    """Several answers as tensors."""

    counts: Int[Tensor, " b"]
    items: Int[Tensor, " b"]
    cells: Int[Tensor, "b r c"]

    def __len__(self) -> int:
        return len(self.counts)

    def to(self, device: torch.device) -> "AnswerTargets":
        return AnswerTargets(self.counts.to(device), self.items.to(device), self.cells.to(device))


def collate_answers(answers: Sequence[AnswerArrays], batch: TableBatch) -> AnswerTargets:
    """Answers to the questions of a batch."""
    cells = torch.zeros(batch.ranks.shape, dtype=torch.long)
    for row, one in zip(cells, answers, strict=True):
        row[: one.cells.shape[0], : one.cells.shape[1]] = torch.from_numpy(one.cells)
    counts, items = (torch.tensor([getattr(one, name) for one in answers]) for name in ("count", "items"))
    return AnswerTargets(counts, items, cells)


class Pass(NamedTuple):
    """One step of a program: the operation and the column that were chosen, among all with their probabilities; the
    weights of the question's words; which number of the question was used, or −1; the rows selected behind it."""

    operation: int
    column: int
    operation_probs: np.ndarray  # operations
    column_probs: np.ndarray  # C
    question_weights: np.ndarray  # Q
    number: int
    rows: np.ndarray  # R, 0 or 1


@dataclass(frozen=True)
class Program:
    """What a model did with a table, and what came out: a count of rows, or cells (row, column) in order.

    ``log_prob`` is that of all choices together."""

    passes: tuple[Pass, ...]
    count: int | None
    cells: tuple[tuple[int, int], ...]
    log_prob: float


class AnswerLoss(NamedTuple):
    """A sum over questions, and how many there are."""

    total: Tensor
    tokens: int


class Asker(nn.Module):
    """A model that answers questions about tables."""

    @abstractmethod
    def loss(self, batch: TableBatch, targets: AnswerTargets) -> AnswerLoss:
        """The loss of a batch: a sum over its questions."""

    @abstractmethod
    def programs(
        self, batch: TableBatch, skipped: int | None = None, replaced: Mapping[int, int] | None = None
    ) -> list[Program]:
        """The likeliest program of each question. ``skipped`` is a pass that does nothing; ``replaced`` gives passes,
        counted from 0, another operation than the model's own choice."""


class AskerConfig(Config):
    """The base of the configurations of all models of `ask`."""

    family: ClassVar[str] = "asker"

    @abstractmethod
    def build(self, vocabulary: int) -> Asker:
        """For a vocabulary of this many words; word 0 is padding."""
