"""Vectors to vectors: everything that a task of another package has to write."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from sightline.attention import AttentionConfig, MultiHeadConfig
from sightline.config import Config
from sightline.inputs.base import Input
from sightline.metrics import Statistics
from sightline.outputs.base import Output
from sightline.records import Axis, Slots
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.task import BadValueError, Column, Example

Vectors = list[list[float]]


class Batch(NamedTuple):
    """Padded vectors, and which of them are there."""

    vectors: Tensor  # b t d
    mask: Tensor  # b t


class Loss(NamedTuple):
    """A sum over sequences, and their number."""

    total: Tensor
    tokens: int


def read_vectors(cells: Mapping[str, Any], column: str) -> Vectors:
    """The vectors of a cell: a list of lists of numbers, or the JSON of one."""
    value = cells.get(column)
    array: np.ndarray
    try:
        array = np.array(json.loads(value) if isinstance(value, str) else value, np.float32)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise BadValueError(
            f"no vectors: found {str(value)[:40]!r} in {column}, expected lists of as many numbers each"
        )
    vectors: Any = array.tolist()
    return vectors


class VectorsInput(Input):
    """A list of vectors. What is fitted is how many numbers each has. A part is the numbers of all in a row."""

    kind = "vectors"
    noun = "sequences"
    columns = (Column("vectors", "a list of vectors"),)

    def __init__(self, config: Any, width: int = 0) -> None:
        super().__init__(config)
        self.width = width

    def read(self, cells: Mapping[str, Any]) -> Vectors:
        return read_vectors(cells, "vectors")

    def fit(self, rows: Any, setting: Any) -> "VectorsInput":
        return type(self)(self.config, len(next(iter(rows)).x[0]))

    def encode(self, xs: Sequence[Vectors]) -> list[list[Any]]:
        return [[self.part(x)] for x in xs]

    def part(self, x: Vectors) -> Any:
        array = np.array(x, np.float32)
        if array.ndim != 2 or array.shape[1] != self.width:
            return BadValueError(f"found vectors of shape {array.shape}, expected {self.width} numbers in each")
        return array.reshape(-1)

    def collate(self, parts: Sequence[np.ndarray]) -> Batch:
        rows = [torch.tensor(np.asarray(part)).reshape(-1, self.width) for part in parts]
        real = [torch.ones(len(row), dtype=torch.bool) for row in rows]
        return Batch(pad_sequence(rows, batch_first=True), pad_sequence(real, batch_first=True))

    def axis(self, x: Vectors, part: Any) -> Axis:
        return Slots(len(x))

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        return {"width": self.width}, []

    @classmethod
    def load(cls, saved: Any, config: Any) -> "VectorsInput":
        with saved.reading():
            return cls(config, int(saved.about["width"]))


class VectorsOutput(Output):
    """A vector for each vector of the input. Raw outputs are arrays, ``vectors numbers``."""

    noun = "vectors"
    unit = "squared error"
    less_is_better = ("mse",)

    def read(self, cells: Mapping[str, Any], x: Vectors) -> Vectors:
        target = read_vectors(cells, "target")
        if (len(target), len(target[0])) != (len(x), len(x[0])):
            raise BadValueError(f"lengths differ: found {len(x)} vectors and {len(target)} targets, expected as many")
        return target

    def encode(self, x: Vectors, y: Vectors, parts: Sequence[Any]) -> list[tuple[Any, Any]]:
        return [(part, np.array(y, np.float32).reshape(-1)) for part in parts]

    def collate(self, targets: Sequence[np.ndarray], batch: Batch) -> Tensor:
        width = batch.vectors.shape[-1]
        rows = [torch.tensor(np.asarray(target)).reshape(-1, width) for target in targets]
        return pad_sequence(rows, batch_first=True)

    def outputs(self, run: Any, xs: Sequence[Any], parts: Sequence[Any], batch: Batch, options: Any) -> list[Any]:
        predicted = run.model(batch).cpu().numpy()
        return [predicted[row, : len(x)] for row, x in enumerate(xs)]

    def decide(self, x: Vectors, raw: np.ndarray, options: Any = None) -> Vectors:
        return [[round(float(number), 6) for number in vector] for vector in raw]

    def statistics(
        self, run: Any, examples: Sequence[Example], predictions: Sequence[Vectors], raws: Sequence[Any]
    ) -> dict[str, Statistics]:
        counts = []
        for example, prediction in zip(examples, predictions, strict=True):
            right = np.array(example.y)
            error = np.square(right - np.array(prediction)).sum()
            counts.append([error, right.size, right.sum(), np.square(right).sum()])
        rows = np.array(counts, np.float64)
        return {
            "r2": Statistics(rows, lambda sums: 1 - sums[:, 0] / (sums[:, 3] - sums[:, 2] ** 2 / sums[:, 1])),
            "mse": Statistics(rows, lambda sums: sums[:, 0] / sums[:, 1]),
        }


@dataclass(frozen=True)
class ReaderConfig(Config):
    """A model that reads the vectors with one attention."""

    size: int = 16
    attention: AttentionConfig = field(default_factory=lambda: MultiHeadConfig(heads=2))
    family: ClassVar[str] = "vectors_model"
    kind: ClassVar[str] = "reader"


class Reader(nn.Module):
    """Every place asks, with its distance from both ends, for the vectors of all places."""

    def __init__(self, config: ReaderConfig, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(width + 4, config.size)
        self.attention = config.attention.build(config.size)
        self.output = nn.Linear(2 * config.size, width)

    def forward(self, batch: Batch) -> Tensor:
        lengths = batch.mask.sum(1, keepdim=True)
        places = torch.arange(batch.mask.shape[1], device=batch.mask.device).expand_as(batch.mask)
        ends = torch.stack([places, lengths - places, lengths.expand_as(places), lengths - 2 * places], dim=-1)
        hidden = torch.tanh(self.embed(torch.cat([batch.vectors, ends / 8], dim=-1)))
        read = self.attention(hidden, self.attention.remember(hidden, mask=batch.mask))
        return self.output(torch.cat([hidden, read.context], dim=-1))

    def loss(self, batch: Batch, target: Tensor) -> Loss:
        squared = (self(batch) - target).square().mean(-1) * batch.mask
        return Loss((squared.sum(1) / batch.mask.sum(1)).sum(), len(target))


@dataclass(frozen=True)
class VectorsConfig(TaskConfig):
    """``batch_tokens`` counts numbers."""

    model: ReaderConfig = field(default_factory=ReaderConfig)
    batch_tokens: int = 4096
    counts: ClassVar[tuple[str, ...]] = ("batch_tokens",)

    def build(self, input: Any, output: Any) -> Reader:
        return Reader(self.model, input.width)
