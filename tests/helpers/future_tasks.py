"""Tasks to come, as far as the contract goes: declarations, and the signatures of their inputs and outputs.

Nothing here computes. That mypy takes it and that the methods are those of the contract shows that it can say them.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from sightline.data.columns import TableRow
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.inputs.base import Input
from sightline.metrics import Statistics
from sightline.outputs.base import Output
from sightline.outputs.searched import SequenceOptions
from sightline.outputs.sequence import SequenceOutput
from sightline.records import Axis, Frames, Slots
from sightline.records import Cells as TableCells
from sightline.tasks.run import Run
from sightline.tasks.task import Column, Example, Option, PredictOptions, Sizes, Task, Variant


class Loss(NamedTuple):
    """A sum over tokens, made of parts with names."""

    total: Tensor
    tokens: int
    parts: dict[str, Tensor]


def variant(name: str, input: str, output: str) -> Variant:
    """A variant whose classes stand here."""
    models: dict[str, Sizes] = {name: {"tiny": {}}}
    return Variant(f"future_tasks:{input}", f"future_tasks:{output}", "future_tasks:Nothing", models, name)


# -- transcribe: sound to text, with CTC beside attention, and when each word was said


class SoundInput(Input):
    """Recordings. Files are looked into once, in `stage`; long ones are read in parts that overlap."""

    kind = "sound"
    noun = "recordings"
    reads_files = True
    columns = (Column("sound", "the path of a recording"),)

    def stage(self, tables: Sequence[Iterable[TableRow]], setting: Any) -> Sequence[Iterable[TableRow]]:
        raise NotImplementedError

    def read(self, cells: Mapping[str, Any]) -> str:
        raise NotImplementedError

    def encode(self, xs: Sequence[str]) -> list[list[np.ndarray]]:
        """Stretches of frames; a recording of an hour is many."""
        raise NotImplementedError

    def stored(self, part: np.ndarray) -> np.ndarray:
        """Frames as float32 numbers, one after another."""
        raise NotImplementedError

    def collate(self, parts: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def paths(self, files: Sequence[Path], listed: str | None) -> list[Path]:
        raise NotImplementedError

    def axis(self, x: str, part: np.ndarray) -> Axis:
        return Frames(len(part), 0.01)


class Said(NamedTuple):
    """A word, and from when to when it was said, in seconds."""

    word: str
    start: float
    end: float


class TranscriptOptions(SequenceOptions):
    """How to search, and how much CTC counts."""

    ctc: float = 0.3


class TranscriptOutput(SequenceOutput):
    """Text with times. Parts of a long recording are joined where they overlap."""

    predict_options = TranscriptOptions

    def loss(self, model: nn.Module, batch: tuple[Any, ...], step: int) -> Loss:
        """Attention and CTC; CTC counts for less the further training is."""
        raise NotImplementedError

    def merge(self, x: Any, parts: Sequence[Any], outputs: Sequence[Any]) -> Any:
        raise NotImplementedError

    def to_json(self, x: Any, prediction: Any) -> dict[str, Any]:
        """With the times of words."""
        raise NotImplementedError


TRANSCRIBE = Task(
    name="transcribe",
    help="what is said in a recording, and when",
    data="a table with the columns sound and text, or a folder of recordings with .txt files",
    columns=(Column("sound", "the path of a recording"), Column("text", "what is said")),
    variants=(variant("transcribe", input="SoundInput", output="TranscriptOutput"),),
    metrics=("wer", "cer"),
    rows="recordings",
    counted="tokens",
)


# -- forecast: vectors to vectors, the next ones for those there were


class SeriesInput(Input):
    """Numbers at moments; fitted are their means and deviations."""

    kind = "vectors"
    noun = "series"

    def read(self, cells: Mapping[str, Any]) -> tuple[tuple[float, ...], ...]:
        raise NotImplementedError

    def fit(self, rows: Any, setting: Any) -> "SeriesInput":
        raise NotImplementedError

    def encode(self, xs: Sequence[Any]) -> list[list[np.ndarray]]:
        raise NotImplementedError

    def collate(self, parts: Sequence[np.ndarray]) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class ForecastOptions(PredictOptions):
    """How far to look ahead."""

    ahead: int = 1


class SeriesOutput(Output):
    """Vectors; its spread is fitted on validation data."""

    predict_options = ForecastOptions
    less_is_better = ("rmse",)

    def read(self, cells: Mapping[str, Any], x: Any) -> tuple[tuple[float, ...], ...]:
        raise NotImplementedError

    def encode(self, x: Any, y: Any, parts: Sequence[Any]) -> Iterable[tuple[Any, np.ndarray]]:
        raise NotImplementedError

    def collate(self, targets: Sequence[np.ndarray], batch: Any) -> Tensor:
        raise NotImplementedError

    def outputs(self, run: Run, xs: Sequence[Any], parts: Sequence[Any], batch: Any, options: Any) -> list[np.ndarray]:
        raise NotImplementedError

    def decide(self, x: Any, raw: np.ndarray, options: ForecastOptions | None = None) -> list[list[float]]:
        raise NotImplementedError

    def calibrate(self, run: Run, raws: Sequence[np.ndarray], prepared: Any) -> "SeriesOutput":
        raise NotImplementedError

    def statistics(
        self, run: Run, examples: Sequence[Example], predictions: Sequence[Any], raws: Sequence[Any]
    ) -> dict[str, Statistics]:
        raise NotImplementedError


FORECAST = Task(
    name="forecast",
    help="the next numbers of a series",
    data="the columns before and after, lists of vectors",
    columns=(Column("before", "what there was"), Column("after", "what came", optional=True)),
    variants=(variant("forecast", input="SeriesInput", output="SeriesOutput"),),
    metrics=("r2",),
    rows="series",
    counted="vectors",
    options=(Option("ahead", "how many vectors to predict", sets="ahead", metavar="N"),),
)


# -- copy: a memory machine, on data that a seed makes


def made_cells(source: Source, columns: Sequence[Column]) -> Iterator[TableRow]:
    """Rows of ``made:copy``: bits, and the same again. The same name and seed make the same rows."""
    if source.data != "made:copy":
        raise UserError(f"there is no made data {source.data!r}; there is 'made:copy'")
    draw = random.Random(int(str(source.options.get("made_seed", 0))))
    for number in range(int(str(source.options.get("made_rows", 1000)))):
        bits = [[float(draw.random() < 0.5) for _ in range(8)] for _ in range(draw.randint(1, 20))]
        yield TableRow((bits, bits), "made:copy", number + 1)


class CopyOutput(SeriesOutput):
    """Bits; a map's columns are the slots of the memory that the model wrote to."""

    def explain(self, run: Run, x: Any, options: Any) -> Explanation:
        raise NotImplementedError

    def slots(self) -> Axis:
        return Slots(128)


COPY = Task(
    name="copy",
    help="remember a sequence, and give it back",
    data="made:copy",
    columns=(Column("bits", "vectors of bits"), Column("copy", "the same")),
    reader="future_tasks:made_cells",
    variants=(variant("copy", input="SeriesInput", output="CopyOutput"),),
    metrics=("bits",),
    rows="sequences",
    counted="bits",
    options=(
        Option("made-rows", "how many sequences to make", metavar="N"),
        Option("made-seed", "what they are drawn with", metavar="N"),
    ),
)


# -- table: a question about a table, answered by a program that is searched for


class Asked(NamedTuple):
    """A question, the names of the columns, and the rows."""

    question: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class TableInput(Input):
    """A table with a question: two columns of the data are one item."""

    kind = "table"
    noun = "questions"
    known_by = "tables"

    def read(self, cells: Mapping[str, Any]) -> Asked:
        raise NotImplementedError

    def identity(self, x: Asked) -> str:
        """Questions about one table stay on one side of a split."""
        return str((x.columns, x.rows))

    def pack(self, x: Asked) -> list[Any]:
        return [x.question, x.columns, x.rows]

    def unpack(self, row: Sequence[Any]) -> tuple[Asked, Sequence[Any]]:
        return Asked(row[0], tuple(row[1]), tuple(map(tuple, row[2]))), row[3:]

    def encode(self, xs: Sequence[Asked]) -> list[list[Any]]:
        raise NotImplementedError

    def collate(self, parts: Sequence[Any]) -> Any:
        raise NotImplementedError

    def axis(self, x: Asked, part: Any) -> Axis:
        return TableCells(x.columns, len(x.rows))


class AnswerOutput(Output):
    """An answer, found by a program; which programs give the right answer depends on the table."""

    def read(self, cells: Mapping[str, Any], x: Asked) -> str:
        raise NotImplementedError

    def encode(self, x: Asked, y: str, parts: Sequence[Any]) -> Iterable[tuple[Any, Sequence[int]]]:
        """The programs that answer rightly, several rows where there are several."""
        raise NotImplementedError

    def collate(self, targets: Sequence[np.ndarray], batch: Any) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: tuple[Any, ...], step: int) -> Loss:
        raise NotImplementedError

    def outputs(self, run: Run, xs: Sequence[Asked], parts: Sequence[Any], batch: Any, options: Any) -> list[Any]:
        raise NotImplementedError

    def decide(self, x: Asked, raw: Any, options: Any = None) -> tuple[str, str]:
        """The answer, and the program that found it."""
        raise NotImplementedError

    def statistics(
        self, run: Run, examples: Sequence[Example], predictions: Sequence[Any], raws: Sequence[Any]
    ) -> dict[str, Statistics]:
        raise NotImplementedError


TABLE = Task(
    name="table",
    help="the answer to a question about a table",
    data="the columns table, question and answer",
    columns=(
        Column("table", "a table: its file, or its rows"),
        Column("question", "what is asked"),
        Column("answer", "the right answer"),
    ),
    variants=(variant("table", input="TableInput", output="AnswerOutput"),),
    metrics=("exact",),
    rows="questions",
    counted="questions",
)


# -- summaries that copy words of the source


class CopyingOutput(SequenceOutput):
    """Tokens of the vocabulary, or places of the source: targets see the items they are learnt with."""

    def encode(self, x: Any, y: Any, parts: Sequence[Any]) -> Iterator[tuple[Any, list[int]]]:
        raise NotImplementedError

    def collate(self, targets: Sequence[np.ndarray], batch: Any) -> Any:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: tuple[Any, ...], step: int) -> Loss:
        """Cross-entropy, and coverage from some step on."""
        raise NotImplementedError

    def statistics(
        self, run: Run, examples: Sequence[Example], predictions: Sequence[Any], raws: Sequence[Any]
    ) -> dict[str, Statistics]:
        """With how much was copied, for which the source is needed."""
        raise NotImplementedError


ABRIDGE = Task(
    name="abridge",
    help="a short text for a long one, with words of the long one",
    data="the columns source and target",
    columns=(Column("source", "the text"), Column("target", "its summary")),
    variants=(variant("abridge", input="TableInput", output="CopyingOutput"),),
    metrics=("rougeL", "copied"),
    rows="texts",
    counted="tokens",
)

TASKS = (TRANSCRIBE, FORECAST, COPY, TABLE, ABRIDGE)
