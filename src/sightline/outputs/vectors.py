"""Sequences of vectors: squared errors of standardised numbers, and where a sequence ends."""

import base64
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch

from sightline.baselines.ridge import Ridge
from sightline.data.checking import RowLimits
from sightline.data.columns import TableRow
from sightline.data.disk import array_of, mapped
from sightline.data.image_tables import free_name
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.files import make_folder, whole_file
from sightline.inputs.base import Input
from sightline.inputs.files import FileItem
from sightline.inputs.series import SeriesInput, SeriesPart, SeriesWindow
from sightline.metrics import Statistics
from sightline.metrics.vectors import bit_statistics, length_statistics, mse_statistics, r2_statistics
from sightline.models.vector_writer import TargetShape, VectorsBatch, VectorWriter
from sightline.nn.series import SeriesBatch
from sightline.outputs.base import SomeOutput
from sightline.outputs.reports import COUNT, NUMBER, listed, structure
from sightline.outputs.series_output import SeriesOutput, file_name
from sightline.outputs.vectors_explain import explain_vectors
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, path_name
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import BadValueError, Column, Example, PredictOptions

MOST_NUMBERS = 4096  # in a vector
MOST_VECTORS = 100_000  # in a sequence
LOOKED_AT = 100  # rows, for a target that can be read
LONGER = 2  # times the longest sequence of the training data: none is longer than that
FLAT = 1e-6  # a deviation below this share of the mean is that of a constant
LARGEST = 1e18  # a number; squares of larger ones are none


@dataclass(frozen=True)
class TargetFacts:
    """What was measured of the vectors of the training data; ``longest`` is how many the longest sequence has.
    ``bits``: all numbers are 0 or 1. ``aligned``: every sequence has as many vectors as its input has frames."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    longest: int
    bits: bool = False
    aligned: bool = False

    @property
    def shape(self) -> TargetShape:
        return TargetShape(len(self.mean), self.bits)

    @classmethod
    def read(cls, data: Any) -> "TargetFacts":
        """From config.json of a run of unknown origin; raises ValueError."""
        mean, deviation, longest = data["mean"], data["deviation"], data["longest"]
        for numbers in (mean, deviation):
            if not isinstance(numbers, list) or not 0 < len(numbers) <= MOST_NUMBERS or len(numbers) != len(mean):
                raise ValueError("targets has no mean and deviation of one length")
            if not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
                raise ValueError("targets has numbers that are not finite")
        if min(deviation) <= 0:
            raise ValueError("targets has a deviation that is not above 0")
        if type(longest) is not int or not 0 < longest <= MOST_VECTORS:
            raise ValueError(f"longest is {longest!r}")
        bits, aligned = data.get("bits", False), data.get("aligned", False)
        if type(bits) is not bool or type(aligned) is not bool:
            raise ValueError("targets has no truth values")
        return cls(tuple(mean), tuple(deviation), longest, bits, aligned)


class RawVectors(NamedTuple):
    """Vectors, after how many of them the model stops, and whether it did before the last of those it may write."""

    values: np.ndarray
    stops: int
    complete: bool = True


class VectorsPrediction(NamedTuple):
    """The vectors of an item. ``complete``: the model stopped by itself."""

    values: np.ndarray
    complete: bool


@dataclass(frozen=True)
class VectorsOptions(PredictOptions):
    """How many vectors to write, at least and at most; in between, until the model stops."""

    min_length: int = 0
    max_length: int | None = None
    lengths: tuple[int, ...] | None = field(default=None, metadata={"internal": True})  # of each item that is scored

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("min_length", "max_length"):
            value = getattr(self, name)
            if value is not None and type(value) is not int:
                raise UserError(f"{name} is {value!r}; it must be a whole number")
        if not 0 <= self.min_length <= MOST_VECTORS:
            raise UserError(f"min_length is {self.min_length}; it must be from 0 to {MOST_VECTORS:,}")
        if self.max_length is not None and not max(1, self.min_length) <= self.max_length <= MOST_VECTORS:
            least = max(1, self.min_length)
            raise UserError(f"max_length is {self.max_length}; it must be from {least:,} to {MOST_VECTORS:,}")


VectorsInput = Input[FileItem, SeriesPart, SeriesBatch]
VectorsExamples = Sequence[Example[FileItem, np.ndarray]]
VectorsEvaluation = Evaluation[FileItem, np.ndarray, RawVectors, VectorsPrediction]


def read_vectors(given: object) -> np.ndarray:
    """The vectors that a row names or holds: the path of an array, or numbers. Raises a `BadValueError`."""
    try:
        array = _array(given)
    except FileNotFoundError:
        raise BadValueError(f"missing target: there is no file {given}") from None
    except (OSError, ValueError, EOFError, TypeError) as error:
        raise BadValueError(f"bad target: it is no array (.npy): {error}") from None
    if array.ndim != 2 or array.dtype.kind not in "fiub" or not 0 < array.shape[1] <= MOST_NUMBERS:
        raise BadValueError(f"bad target: found {array.dtype} of shape {array.shape}, expected vectors × numbers")
    if not 0 < len(array) <= MOST_VECTORS:
        raise BadValueError(f"bad target: found {len(array):,} vectors, expected 1 to {MOST_VECTORS:,}")
    values = np.asarray(array, np.float32)
    if not np.isfinite(values).all() or np.abs(values).max() > LARGEST:
        raise BadValueError("bad target: found numbers that are not finite or above 1e18, expected smaller ones")
    return values


def _array(given: object) -> np.ndarray:
    if isinstance(given, str | Path):
        if not str(given).strip():
            raise BadValueError("empty: found no text in the target, expected the path of an array (.npy)")
        return mapped(Path(str(given).strip()))
    return array_of(given) if isinstance(given, bytes) else np.asarray(given)


class VectorsOutput(SeriesOutput[np.ndarray, RawVectors, VectorsPrediction, VectorsOptions | None]):
    """Sequences of vectors, each of as many numbers. Raw outputs are the vectors and where they end."""

    noun = "vectors"
    unit = "squared error a vector, and nats"
    predict_options = VectorsOptions
    sized_by_targets = True
    less_is_better = ("mse", "length_error", "bit_error")
    names: ClassVar[Mapping[str, str]] = {
        "r2": "R²",
        "mse": "MSE",
        "length_error": "length error",
        "bit_error": "wrong bits a sequence",
    }
    formats = ("npy",)
    answer = structure(
        "Vectors",
        "The vectors, one behind the other.",
        vectors=listed(listed(NUMBER)),
        count=COUNT,
        complete={"type": "boolean"},
    )
    facts: TargetFacts

    def __init__(self, config: TaskConfig, facts: TargetFacts | None = None) -> None:
        super().__init__(config)
        self.facts = cast("TargetFacts", facts)  # None until it is fitted
        self._size: int | None = None if facts is None else len(facts.mean)

    # -- reading

    def stage(self, rows: Iterable[TableRow], source: Source, columns: Sequence[Column]) -> Iterable[TableRow]:
        """The first target that can be read decides how many numbers a vector has: that of the training data, which
        comes first here, not of validation data, which is read first."""
        coming, before = iter(rows), list[TableRow]()
        while self._size is None and len(before) < LOOKED_AT and (row := next(coming, None)) is not None:
            before.append(row)
            with suppress(BadValueError):
                self._size = None if row.problem else read_vectors(row.values[1]).shape[1]
        return chain(before, coming)

    def read(self, cells: Mapping[str, object], x: FileItem) -> np.ndarray:
        values = read_vectors(cells.get("target"))
        if self._size is None:
            self._size = values.shape[1]
        if values.shape[1] != self._size:
            raise BadValueError(
                f"bad target: found vectors of {values.shape[1]:,} numbers, expected {self._size:,} as in those before"
            )
        return values

    def check(self, y: np.ndarray, limits: RowLimits) -> None:
        most = self.config.max_vectors
        if len(y) > most:
            raise BadValueError(f"too long: found {len(y):,} vectors, expected at most {most:,} (max_vectors)")

    def pack(self, y: np.ndarray) -> list[object]:
        return [y.shape[1], base64.b64encode(y.tobytes()).decode("ascii")]

    def unpack(self, row: Sequence[object]) -> np.ndarray:
        size, content = cast("tuple[int, str]", row[:2])
        return np.frombuffer(base64.b64decode(content), np.float32).reshape(-1, size)

    # -- fitted

    def fit(
        self, input: VectorsInput, rows: Rows[FileItem, np.ndarray], setting: Setting
    ) -> tuple[VectorsInput, "VectorsOutput"]:
        fitted = input.fit(cast("Any", rows), setting)
        start = setting.start
        if start is not None:
            facts: TargetFacts = start.run.output.facts
            if len(facts.mean) != self._size:
                raise UserError(
                    f"{start.path} writes vectors of {len(facts.mean):,} numbers, and those of the data have "
                    f"{self._size:,}; begin without --from"
                )
        count, longest, bits, aligned = 0, 0, True, True
        total, squares = np.zeros(self._size or 0), np.zeros(self._size or 0)
        for one in rows:
            values = one.y.astype(np.float64)
            count, longest = count + len(values), max(longest, len(values))
            bits = bits and bool(((values == 0) | (values == 1)).all())
            aligned = aligned and len(values) == fitted.size(cast("SeriesPart", fitted.encode([one.x])[0][0]))
            total, squares = total + values.sum(axis=0), squares + np.square(values).sum(axis=0)
        mean = total / count
        if start is not None:  # its model has the mean and the deviation of its own data
            if facts.bits and not bits:
                raise UserError(f"{start.path} writes bits, and the data has other numbers; begin without --from")
            return fitted, self._fitted(replace(facts, longest=max(longest, facts.longest), aligned=aligned))
        if bits:
            plain = (0.0,) * len(mean), (1.0,) * len(mean)
            return fitted, self._fitted(TargetFacts(*plain, longest, bits, aligned))
        deviation = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        deviation = np.where(deviation <= FLAT * np.abs(mean), np.maximum(np.abs(mean), 1.0), deviation)
        facts = TargetFacts(tuple(mean.tolist()), tuple(deviation.tolist()), longest, bits, aligned)
        return fitted, self._fitted(facts)

    def _fitted(self, facts: TargetFacts) -> "VectorsOutput":
        return VectorsOutput(self.config.for_targets(facts), facts)

    def initialise(self, model: torch.nn.Module, prepared: Prepared[FileItem, np.ndarray]) -> None:
        """Give a new model what was measured of the training data."""
        cast("VectorWriter", model).standardise(*(torch.tensor(one) for one in (self.facts.mean, self.facts.deviation)))

    def encode(
        self, x: FileItem, y: np.ndarray, parts: Sequence[SeriesPart]
    ) -> Iterator[tuple[SeriesPart, np.ndarray]]:
        return ((part, y.reshape(-1)) for part in parts)

    def collate(self, targets: Sequence[np.ndarray], batch: SeriesBatch) -> VectorsBatch:
        size = len(self.facts.mean)
        lengths = [len(one) // size for one in targets]
        values = np.zeros((len(targets), max(lengths), size), np.float32)
        for row, (own, count) in enumerate(zip(targets, lengths, strict=True)):
            values[row, :count] = own.reshape(-1, size)
        return VectorsBatch(torch.from_numpy(values), torch.tensor(lengths))

    def counted(self, batch: tuple[object, ...]) -> int:
        return int(cast("VectorsBatch", batch[1]).lengths.sum())

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        return {"targets": asdict(self.facts)}, []

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: VectorsInput) -> "VectorsOutput":
        with saved.reading():
            facts = TargetFacts.read(saved.about["targets"])
        return cls(config, facts)

    def summary_of_fit(self) -> str:
        what = "bits" if self.facts.bits else "numbers"
        text = f"vectors of {len(self.facts.mean):,} {what}, at most {self.facts.longest:,} in a sequence"
        if getattr(self.config.model, "answers", None) != "each":
            return text
        return f"{text}; one is written at each frame (--set model.answers=after: behind all of them)"

    # -- predicting

    def with_targets(
        self, options: VectorsOptions | None, examples: VectorsExamples, training: bool = False
    ) -> VectorsOptions:
        """Scores are of sequences of the true lengths."""
        return replace(options or VectorsOptions(), lengths=tuple(len(one.y) for one in examples))

    def options_of(self, options: VectorsOptions | None, numbers: Sequence[int], items: int) -> VectorsOptions | None:
        if options is None or options.lengths is None:
            return options
        return replace(options, lengths=tuple(options.lengths[number] for number in numbers))

    def outputs(
        self,
        run: Run,
        xs: Sequence[FileItem],
        parts: Sequence[SeriesPart],
        batch: SeriesBatch,
        options: VectorsOptions | None,
    ) -> list[RawVectors]:
        options, model = options or VectorsOptions(), cast("VectorWriter", run.model)
        longest = LONGER * self.facts.longest
        if options.lengths is not None:  # it goes on behind the true end, to see where it would stop
            least = most = [_share(part, length) for part, length in zip(parts, options.lengths, strict=True)]
        else:
            least = [max(1, _share(part, options.min_length)) for part in parts]
            most = [max(1, _share(part, options.max_length or max(longest, options.min_length))) for part in parts]
        made = model.generate(batch, max(*most, longest if options.lengths else 1), max(least))
        values, stops = made.values.float().cpu().numpy(), made.stops.tolist()
        if model.each and options.max_length is None and options.lengths is None:
            most = stops
        counts = [min(max(stop, low), high) for stop, low, high in zip(stops, least, most, strict=True)]
        return [
            RawVectors(values[row, :count].copy(), stop, stop <= count)
            for row, (count, stop) in enumerate(zip(counts, stops, strict=True))
        ]

    def merge(self, x: FileItem, parts: Sequence[SeriesPart], outputs: Sequence[RawVectors]) -> RawVectors:
        """The vectors of the parts of a long series, one behind the other."""
        values, complete = np.concatenate([one.values for one in outputs]), all(one.complete for one in outputs)
        return RawVectors(values, sum(one.stops for one in outputs), complete)

    def decide(self, x: FileItem, raw: RawVectors, options: VectorsOptions | None = None) -> VectorsPrediction:
        return self._predicted(raw.values, raw.complete)

    def _predicted(self, values: np.ndarray, complete: bool = True) -> VectorsPrediction:
        """Of bits, those that are more likely than not."""
        return VectorsPrediction((values >= 0.5).astype(np.float32) if self.facts.bits else values, complete)

    # -- scoring

    def check_comparable(self, first: SomeOutput, name: str) -> None:
        super().check_comparable(first, name)
        sizes = [len(cast("VectorsOutput", one).facts.mean) for one in (self, first)]
        if sizes[0] != sizes[1]:
            raise UserError(
                f"{name} writes vectors of {sizes[0]:,} numbers, the first run of {sizes[1]:,}: not comparable"
            )
        if self.facts.bits != cast("VectorsOutput", first).facts.bits:
            raise UserError(f"of {name} and the first run, one writes bits and one numbers: not comparable")

    def scored_as(self, first: SomeOutput) -> "VectorsOutput":
        """With the mean and the deviation of the first run, so that all have one measure."""
        return VectorsOutput(self.config, cast("VectorsOutput", first).facts)

    def statistics(
        self,
        run: Run,
        examples: VectorsExamples,
        predictions: Sequence[VectorsPrediction],
        raws: Sequence[RawVectors],
    ) -> dict[str, Statistics]:
        true = [one.y.astype(np.float64) for one in examples]
        own = [_fitted(one.values, len(gold)) for one, gold in zip(predictions, true, strict=True)]
        mean, deviation = np.array(self.facts.mean), np.array(self.facts.deviation)
        if self.facts.bits:
            made = dict(zip(("bit_error", "exact"), bit_statistics(own, true), strict=True))
        else:
            made = {"r2": r2_statistics(own, true, mean, deviation), "mse": mse_statistics(own, true, deviation)}
        if raws and not self.facts.aligned:
            made["length_error"] = length_statistics([one.stops for one in raws], [len(one) for one in true])
        return made

    def baseline_facts(self, input: VectorsInput, rows: Rows[FileItem, np.ndarray]) -> dict[str, object]:
        """The weights of ridge regression, where frames are numbers."""
        assert isinstance(input, SeriesInput)
        if len(input.shape.frame) > 1:
            return {"ridge": None}
        some = rows.limited(5_000, self.config.seed)
        ridge = Ridge.fit((_frames(input, one.x), one.y) for one in some)
        count, total = 0, np.zeros(len(self.facts.mean))
        for one in some if self.facts.bits else ():
            count, total = count + len(one.y), total + one.y.sum(axis=0)
        bits = {"mean": (total / count).tolist()} if self.facts.bits else {}
        return {"ridge": None if ridge is None else ridge.to_json(), **bits}

    def baseline_predictions(
        self, run: Run, examples: VectorsExamples, facts: Mapping[str, object]
    ) -> dict[str, list[VectorsPrediction]]:
        mean = np.array(facts.get("mean", self.facts.mean), np.float64)
        if mean.shape != (len(self.facts.mean),):
            raise ValueError(f"the mean vector has {mean.size:,} numbers")
        name = "the more frequent bits" if self.facts.bits else "the mean vector"
        made = {name: [self._predicted(np.tile(mean, (len(one.y), 1))) for one in examples]}
        if facts.get("ridge"):
            reading, stored = cast("SeriesInput", run.input), cast("Mapping[str, Any]", facts["ridge"])
            ridge = Ridge.from_json(stored, reading.shape.size, len(mean))
            made[ridge.name] = [self._predicted(ridge.predict(_frames(reading, one.x), len(one.y))) for one in examples]
        return made

    def row(self, example: Example[FileItem, np.ndarray], prediction: VectorsPrediction) -> dict[str, object]:
        return {"vectors_expected": len(example.y), **self.to_json(example.x, prediction)}

    def badness(self, evaluation: VectorsEvaluation) -> list[float]:
        return evaluation.statistics["bit_error" if self.facts.bits else "mse"].of_each()

    # -- for people

    def line(self, x: FileItem, prediction: VectorsPrediction) -> str:
        numbers = " ".join(",".join(f"{one:.6g}" for one in vector) for vector in prediction.values)
        return f"{path_name(file_name(x))}\t{numbers}"

    def to_json(self, x: FileItem, prediction: VectorsPrediction) -> dict[str, object]:
        return {
            "item": file_name(x),
            "vectors": [[float(f"{one:.6g}") for one in vector] for vector in prediction.values.tolist()],
            "count": len(prediction.values),
            "complete": prediction.complete,
        }

    def write_format(
        self, format: str, run: Run, x: FileItem, prediction: VectorsPrediction, folder: Path, names: set[str]
    ) -> None:
        """An array of vectors × numbers."""
        name = free_name(Path(run.input.label(x)), folder, (".npy",), names)
        make_folder(folder)
        with whole_file(folder / f"{name}.npy") as part, part.open("wb") as file:
            np.save(file, prediction.values.astype(np.float32), allow_pickle=False)

    def remark(self, x: FileItem, prediction: VectorsPrediction) -> str | None:
        if prediction.complete:
            return None
        return f"{path_name(file_name(x))}: the model did not stop within {len(prediction.values):,} vectors"

    def notes(self, prepared: Prepared[FileItem, np.ndarray]) -> list[str]:
        frames = self._pace(prepared)
        return [] if frames is None else [f"{frames:.1f} frames of the input for each vector"]

    def _pace(self, prepared: Prepared[FileItem, np.ndarray]) -> float | None:
        reading = cast("SeriesInput", prepared.input)
        pairs = [
            (reading.size(cast("SeriesPart", reading.encode([one.x])[0][0])), len(one.y)) for one in prepared.valid[:50]
        ]
        return sum(one for one, _ in pairs) / max(1, sum(other for _, other in pairs)) if pairs else None

    def explained(self, run: Run, x: FileItem, parts: list[SeriesPart], options: ExplainOptions) -> Explanation:
        (raw,) = run.raw([x], parts=[parts[:1]], options=VectorsOptions())
        return explain_vectors(run, x, parts, cast("RawVectors", raw).values, options)


def _share(part: SeriesPart, length: int) -> int:
    """How many of the vectors of a series belong to a part of it, where they are spread evenly."""
    if not isinstance(part, SeriesWindow) or not part.whole:
        return length
    start, end = (length * place // part.whole for place in (part.start, part.start + len(part.values)))
    return end - start


def _fitted(values: np.ndarray, count: int) -> np.ndarray:
    """The first ``count`` vectors; the last one is repeated where there are fewer."""
    return values[np.minimum(np.arange(count), len(values) - 1)].astype(np.float64)


def _frames(reading: SeriesInput, x: FileItem) -> np.ndarray:
    """The frames of an item as they are read."""
    parts = reading.encode([x])[0]
    return np.concatenate([reading.collate([cast("SeriesPart", part)]).values[0].numpy() for part in parts])
