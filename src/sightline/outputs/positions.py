"""Positions of the input: which of its frames come out, in which order (pointer networks)."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch

from sightline.data.checking import RowLimits
from sightline.data.columns import TableRow
from sightline.data.disk import mapped
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.inputs.base import Input
from sightline.inputs.files import FileItem
from sightline.inputs.series import SeriesPart, SeriesWindow
from sightline.metrics import Statistics
from sightline.metrics.positions import exact_positions, position_accuracy
from sightline.models.pointer import ChosenPositions, PositionsBatch, PositionWriter
from sightline.models.series import JointLoss
from sightline.nn.series import SeriesBatch
from sightline.outputs.base import ranked_scores
from sightline.outputs.positions_explain import explain_positions
from sightline.outputs.reports import COUNT, NUMBER, listed, structure
from sightline.outputs.series_output import SeriesOutput, file_name
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, path_name
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import BadValueError, Column, Example, PredictOptions

MOST_POSITIONS = 100_000  # in a sequence
WIDEST = 64  # beam
LONGER = 2  # times the longest sequence of the training data: none is longer than that, where positions may repeat
SHOWN = 30  # positions of a wrong prediction that `evaluate --errors` shows
BASELINE = "positions in their order"

Positions = tuple[int, ...]


@dataclass(frozen=True)
class PositionFacts:
    """What was measured of the training data: how many positions the longest sequence has, how many most sequences
    have, and whether no sequence has a position twice (``once``)."""

    longest: int
    usual: int
    once: bool

    @classmethod
    def read(cls, data: Any) -> "PositionFacts":
        """From config.json of a run of unknown origin; raises ValueError."""
        longest, usual, once = data["longest"], data["usual"], data["once"]
        for name, value in (("longest", longest), ("usual", usual)):
            if type(value) is not int or not 0 < value <= MOST_POSITIONS:
                raise ValueError(f"{name} is {value!r}")
        if type(once) is not bool:
            raise ValueError(f"once is {once!r}")
        return cls(longest, usual, once)


class PositionsPrediction(NamedTuple):
    """The positions of an item, counted from 0, and their probability. ``complete``: the model ended by itself."""

    positions: Positions
    probability: float
    complete: bool


class FramedCell(NamedTuple):
    """A cell of positions, and how many frames the array beside it has."""

    value: object
    frames: int | None


@dataclass(frozen=True)
class PositionsOptions(PredictOptions):
    """``beam``: hypotheses to keep; 1 is greedy search. ``once``: never choose a position twice; by default as in
    training, where no target of the training data has one twice."""

    beam: int = 1
    once: bool | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.beam) is not int or not 1 <= self.beam <= WIDEST:
            raise UserError(f"beam is {self.beam!r}; it must be a whole number from 1 to {WIDEST}")
        if self.once is not None and type(self.once) is not bool:
            raise UserError(f"once is {self.once!r}; it must be true or false")


PositionsInput = Input[FileItem, SeriesPart, SeriesBatch]
PositionsExamples = Sequence[Example[FileItem, Positions]]
PositionsEvaluation = Evaluation[FileItem, Positions, ChosenPositions, PositionsPrediction]


def read_positions(given: object, frames: int | None = None) -> Positions:
    """The positions in a cell: a list of whole numbers, or a text of them. Raises a `BadValueError`."""
    if isinstance(given, str):
        parts: list[object] = [_number(one) for one in given.strip().strip("[]").replace(",", " ").split()]
    elif isinstance(given, list | tuple | np.ndarray):
        parts = list(given.tolist() if isinstance(given, np.ndarray) else given)
    else:
        parts = [] if given is None else [given]
    if not parts:
        raise BadValueError("empty: found no positions, expected whole numbers such as 3 0 2")
    if len(parts) > MOST_POSITIONS:
        raise BadValueError(f"too many positions: found {len(parts):,}, expected at most {MOST_POSITIONS:,}")
    whole = [int(one) if isinstance(one, float) and one.is_integer() else one for one in parts]
    wrong = next((one for one in whole if type(one) is not int), None)
    if wrong is not None:
        raise BadValueError(f"bad positions: found {str(wrong)[:30]!r}, expected whole numbers such as 3 0 2")
    places = cast("list[int]", whole)
    outside = next((one for one in places if one < 0 or (frames is not None and one >= frames)), None)
    if outside is not None:
        last = "0 or more" if frames is None else f"0 to {frames - 1:,}, since the array has {frames:,} frames"
        raise BadValueError(f"bad positions: found {str(outside)[:30]}, expected {last}")
    return tuple(places)


def _number(text: str) -> object:
    """A whole number, where a text is one."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else text


class PositionsOutput(SeriesOutput[Positions, ChosenPositions, PositionsPrediction, PositionsOptions | None]):
    """Positions of the input. Raw outputs are the positions that were chosen, with their log-probability."""

    noun = "positions"
    unit = "nats a position"
    predict_options = PositionsOptions
    less_is_better = ("wrong_positions",)
    names: ClassVar[Mapping[str, str]] = {"exact": "all positions right", "position_accuracy": "positions right"}
    answer = structure(
        "Positions",
        "Frames of the input, counted from 0, in the order in which they come out.",
        positions=listed(COUNT),
        count=COUNT,
        probability=NUMBER,
        complete={"type": "boolean"},
    )
    facts: PositionFacts

    def __init__(self, config: TaskConfig, facts: PositionFacts | None = None) -> None:
        super().__init__(config)
        self.facts = cast("PositionFacts", facts)  # None until it is fitted

    # -- reading

    def stage(self, rows: Iterable[TableRow], source: Source, columns: Sequence[Column]) -> Iterator[TableRow]:
        """Each cell of positions with the number of frames that they may be of."""
        for row in rows:
            if row.problem is not None or len(row.values) < 2:
                yield row
            else:
                array, cell = row.values[:2]
                yield row._replace(values=(array, FramedCell(cell, _frames(array)), *row.values[2:]))

    def read(self, cells: Mapping[str, object], x: FileItem) -> Positions:
        cell = cells.get("positions")
        return read_positions(*cell) if isinstance(cell, FramedCell) else read_positions(cell)

    def check(self, y: Positions, limits: RowLimits) -> None:
        most = self.config.max_positions
        if len(y) > most:
            raise BadValueError(f"too many positions: found {len(y):,}, expected at most {most:,} (max_positions)")

    def pack(self, y: Positions) -> list[object]:
        return [list(y)]

    def unpack(self, row: Sequence[object]) -> Positions:
        return tuple(cast("list[int]", row[0]))

    # -- fitted

    def fit(
        self, input: PositionsInput, rows: Rows[FileItem, Positions], setting: Setting
    ) -> tuple[PositionsInput, "PositionsOutput"]:
        fitted = input.fit(cast("Any", rows), setting)
        counts, once = Counter[int](), True
        for one in rows:
            counts[len(one.y)] += 1
            once = once and len({*one.y}) == len(one.y)
        most = max(counts.values())
        facts = PositionFacts(max(counts), min(one for one, count in counts.items() if count == most), once)
        return fitted, PositionsOutput(self.config, facts)

    def encode(
        self, x: FileItem, y: Positions, parts: Sequence[SeriesPart]
    ) -> Iterator[tuple[SeriesPart, Sequence[int]]]:
        return ((part, y) for part in parts)

    def collate(self, targets: Sequence[np.ndarray], batch: SeriesBatch) -> PositionsBatch:
        lengths = [len(one) for one in targets]
        places = np.zeros((len(targets), max(lengths)), np.int64)
        for row, own in enumerate(targets):
            places[row, : len(own)] = own
        return PositionsBatch(torch.from_numpy(places), torch.tensor(lengths))

    def loss(self, model: torch.nn.Module, batch: tuple[object, ...], step: int) -> JointLoss:
        source, target = cast("tuple[SeriesBatch, PositionsBatch]", batch)
        return cast("PositionWriter", model).loss(source, target, once=self.facts.once)

    def counted(self, batch: tuple[object, ...]) -> int:
        """Each position, and each end."""
        lengths = cast("PositionsBatch", batch[1]).lengths
        return int(lengths.sum()) + len(lengths)

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        return {"positions": asdict(self.facts)}, []

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: PositionsInput) -> "PositionsOutput":
        with saved.reading():
            facts = PositionFacts.read(saved.about["positions"])
        return cls(config, facts)

    def summary_of_fit(self) -> str:
        return f"at most {self.facts.longest:,} positions in a sequence{', none twice' if self.facts.once else ''}"

    def notes(self, prepared: Prepared[FileItem, Positions]) -> list[str]:
        if not self.facts.once:
            return []
        return ["no target has a position twice: predictions have none twice either (once)"]

    # -- predicting

    def once(self, options: PositionsOptions | None) -> bool:
        """Whether no position is chosen twice."""
        return self.facts.once if options is None or options.once is None else options.once

    def outputs(
        self,
        run: Run,
        xs: Sequence[FileItem],
        parts: Sequence[SeriesPart],
        batch: SeriesBatch,
        options: PositionsOptions | None,
    ) -> list[ChosenPositions]:
        model, once = cast("PositionWriter", run.model), self.once(options)
        most = int(batch.lengths.max()) if once else LONGER * self.facts.longest
        return model.generate(batch, most, once=once, beam=1 if options is None else options.beam)

    def cost(self, size: int, options: PositionsOptions | None) -> int:
        return size * (1 if options is None else options.beam)

    def merge(self, x: FileItem, parts: Sequence[SeriesPart], outputs: Sequence[ChosenPositions]) -> ChosenPositions:
        """The positions of the parts of a long series, one behind the other."""
        starts = [part.start if isinstance(part, SeriesWindow) else 0 for part in parts]
        places = tuple(start + place for start, one in zip(starts, outputs, strict=True) for place in one.places)
        return ChosenPositions(places, sum(one.log_prob for one in outputs), all(one.complete for one in outputs))

    def decide(self, x: FileItem, raw: ChosenPositions, options: PositionsOptions | None = None) -> PositionsPrediction:
        return PositionsPrediction(raw.places, math.exp(min(0.0, raw.log_prob)), raw.complete)

    # -- scoring

    def statistics(
        self,
        run: Run,
        examples: PositionsExamples,
        predictions: Sequence[PositionsPrediction],
        raws: Sequence[ChosenPositions],
    ) -> dict[str, Statistics]:
        own, true = [one.positions for one in predictions], [one.y for one in examples]
        return {"exact": exact_positions(own, true), "position_accuracy": position_accuracy(own, true)}

    def validate(self, run: Run, raws: Sequence[ChosenPositions], examples: PositionsExamples) -> dict[str, float]:
        """Where the metric is the same, fewer wrong positions are better."""
        predictions = [self.decide(one.x, raw) for one, raw in zip(examples, raws, strict=True)]
        values = self.scores_of(self.statistics(run, examples, predictions, raws), None)
        return ranked_scores(self.config.metric, {"wrong_positions": 100 - values["position_accuracy"]}, values)

    def baseline_facts(self, input: PositionsInput, rows: Rows[FileItem, Positions]) -> dict[str, object]:
        return {"positions": self.facts.usual}

    def baseline_predictions(
        self, run: Run, examples: PositionsExamples, facts: Mapping[str, object]
    ) -> dict[str, list[PositionsPrediction]]:
        """0 1 2 …, as many as most sequences of the training data have."""
        usual = int(cast("int", facts.get("positions", self.facts.usual)))
        sizes = [sum(run.input.size(part) for part in parts) for parts in run.encode([one.x for one in examples])]
        return {BASELINE: [PositionsPrediction(tuple(range(min(usual, size))), 1.0, True) for size in sizes]}

    def row(self, example: Example[FileItem, Positions], prediction: PositionsPrediction) -> dict[str, object]:
        return {"target": list(example.y), **self.to_json(example.x, prediction)}

    def error_row(self, evaluation: PositionsEvaluation, number: int) -> dict[str, object]:
        own = {"target": evaluation.examples[number].y, "prediction": evaluation.predictions[number].positions}
        shown = {name: _text(some[:SHOWN]) + (" …" if len(some) > SHOWN else "") for name, some in own.items()}
        return {**super().error_row(evaluation, number), **shown}

    def badness(self, evaluation: PositionsEvaluation) -> list[float]:
        return [100 - one for one in evaluation.statistics["position_accuracy"].of_each()]

    # -- for people

    def line(self, x: FileItem, prediction: PositionsPrediction) -> str:
        return f"{path_name(file_name(x))}\t{_text(prediction.positions)}"

    def to_json(self, x: FileItem, prediction: PositionsPrediction) -> dict[str, object]:
        return {
            "item": file_name(x),
            "positions": list(prediction.positions),
            "count": len(prediction.positions),
            "probability": float(f"{prediction.probability:.6g}"),
            "complete": prediction.complete,
        }

    def remark(self, x: FileItem, prediction: PositionsPrediction) -> str | None:
        if prediction.complete:
            return None
        return f"{path_name(file_name(x))}: the model did not end within {len(prediction.positions):,} positions"

    def explained(self, run: Run, x: FileItem, parts: list[SeriesPart], options: ExplainOptions) -> Explanation:
        (raw,) = run.raw([x], parts=[parts[:1]], options=PositionsOptions())
        return explain_positions(run, x, parts, cast("ChosenPositions", raw), self.once(None), options)


def _text(places: Sequence[int]) -> str:
    return " ".join(map(str, places))


def _frames(array: object) -> int | None:
    """How many frames an array has, or the file that is named; None where that cannot be told."""
    if isinstance(array, list | np.ndarray):
        return len(array)
    try:
        return len(mapped(Path(array))) if isinstance(array, str | Path) else None
    except (OSError, ValueError, EOFError, TypeError):  # the input says what is wrong with it
        return None
