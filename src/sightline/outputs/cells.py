"""A label for every cell of an image or of a grid of features, and a class for each pixel."""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from sightline.data.checking import Report
from sightline.data.grids import GridReport, GridStore, read_gold
from sightline.data.image_tables import free_name
from sightline.data.images import BadImage
from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Explanation, Stack
from sightline.files import RECORDS, read_json, write_text
from sightline.inputs.base import Input
from sightline.inputs.grid import FACTS, FOLDERS, NOT_STORED, GridFacts, GridInput, GridItem, GridPart, collate, joined
from sightline.metrics import Statistics
from sightline.metrics.cells import DISTANCES, difference_interval
from sightline.models.grid import Gold, Grids
from sightline.models.grid_at_once import AtOnce
from sightline.models.grid_sequential import SequentialGrid
from sightline.nn.grid import scan
from sightline.outputs import cell_scores
from sightline.outputs.base import Output, ThresholdOptions
from sightline.outputs.cell_scores import CellBatches, GridPrediction, RawCells, Scored, StoredRows
from sightline.outputs.reports import COUNT, NUMBER, TEXT, class_table, listed, structure
from sightline.outputs.simple_baselines import MOST_IMAGES, cell_means, pixel_threshold
from sightline.picture import Labelling, Picture
from sightline.records import Grid, Record, TopK
from sightline.tasks.card import Wording, table_section
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, Table, path_name
from sightline.tasks.explain import LARGEST, ExplainOptions
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import BadValueError, Example
from sightline.training.folder import RunFolder
from sightline.training.steps import to_device

# -- explanations: the label of each cell, and its attention

WHOLE = 1 << 20  # weights; of larger maps the largest of each row are kept
TITLE = "From each cell to all cells"
NOTHING_SEEN = "This model has no attention: a cell is labelled from its pixels, its row and its column."


def _picture(values: np.ndarray, name: str, axis: Grid, cell: int) -> Picture | None:
    """The image; its last cells may reach over its edge."""
    if not cell:
        return None
    height, width = values.shape[:2]
    made = Picture.of(np.ascontiguousarray(values), name)
    box = (0.0, 0.0, axis.width * cell / width, axis.height * cell / height)
    return Picture(made.content, made.width, made.height, made.name, box)


@torch.no_grad()
def _maps(model: Any, grids: Grids, axis: Grid, top: int | None) -> list[Record]:
    with evaluating(model):
        annotated, _ = model.annotate(grids)
        if isinstance(model, SequentialGrid) and model.decoder.attention is not None:
            # Search decodes without capture; one pass over its labels gives the map.
            plan = scan(grids.mask, model.order, model.around, model.sweeps)
            tokens = model.decide(annotated, grids.mask, plan)
            with capture(model, top=top) as trace:
                model.logits(annotated, grids.mask, plan, tokens, tokens)
            last = plan.sweeps[0] == model.sweeps - 1
            steps = last.nonzero().squeeze(-1)[plan.cells[0][last].argsort()].cpu().numpy()
            return _records(trace, axis, steps)
        if isinstance(model, AtOnce) and model.attention is not None:
            with capture(model, top=top) as trace:
                model.label(annotated, grids.mask)
            return _records(trace, axis, np.arange(len(axis)))
    return []


def _records(trace: Trace, axis: Grid, steps: np.ndarray) -> list[Record]:
    """With the rows in the order of the cells, not of the steps that labelled them."""
    return [
        replace(record, rows=axis, weights=_ordered(record.weights, steps), scores=None)
        for name in trace.names
        for record in trace[name].records(columns=axis)
    ]


def _ordered(weights: np.ndarray | TopK, steps: np.ndarray) -> np.ndarray | TopK:
    if isinstance(weights, TopK):
        return TopK(weights.places[steps], weights.weights[steps], weights.columns)
    return weights[steps]


SPLIT = "split.json"
INVERTED = 0.8  # of the cells of training masks: where more are marked, the masks may be inverted
WRITTEN = (".mask.png", ".overlay.png", ".json")  # behind the name of each image that is predicted


class Mask(NamedTuple):
    """A mask by its path, with the lowest and the highest value in it where it was read; a store has it otherwise."""

    path: str = ""
    lowest: int = 0
    highest: int = 0


@dataclass(frozen=True)
class CellsOptions(ThresholdOptions):
    """``threshold``: of two classes, the probability from which a cell is marked, where it is not the run's own.

    ``pixel_probs``: predictions keep the probability of each pixel, which takes much memory.
    """

    pixel_probs: bool = True


CellsInput = Input[GridItem, GridPart, Grids]
CellsExamples = Sequence[Example[GridItem, Mask]]
CellsEvaluation = Evaluation[GridItem, Mask, RawCells, GridPrediction]


class CellsOutput(Output[GridItem, Mask, GridPart, Grids, RawCells, GridPrediction, CellsOptions | None]):
    """Labels of cells. Raw outputs are probabilities (`RawCells`)."""

    noun = "cells"
    unit = "nats a cell"
    least_split = 2
    predict_options = CellsOptions
    calibrated_files = (FACTS,)
    writes_files = True
    pictures = (".png", ".jpg", ".jpeg", ".webp")
    measures = False
    explains_without = frozenset({"output"})
    answer = structure(
        "Celled",
        "The cells of an image, row by row: the number of each one's class, and its probabilities; of two classes the "
        "probability is that of the second, of several there is one for each.",
        cell={**COUNT, "description": "Pixels along a side of a cell."},
        classes=listed(TEXT),
        labels=listed(listed(COUNT)),
        probabilities=listed(listed({"type": ["number", "array", "null"], "items": NUMBER})),
    )
    compared = ("f1",)
    facts: GridFacts

    def __init__(self, config: TaskConfig, facts: GridFacts | None = None) -> None:
        super().__init__(config)
        self.facts = cast("GridFacts", facts)  # None until it is fitted

    def read(self, cells: Mapping[str, object], x: GridItem) -> Mask:
        path = str(cells.get("mask"))
        if x.row != NOT_STORED:
            return Mask(path)
        try:
            mask = read_gold(path, (x.height, x.width), Path(x.name).name)
        except BadImage as error:
            raise BadValueError(f"bad image: {error}") from None
        return Mask(path, int(mask.min()), int(mask.max()))

    def report(self) -> GridReport:
        return GridReport()

    def pack(self, y: Mask) -> list[object]:
        return [list(y)]

    def unpack(self, row: Sequence[object]) -> Mask:
        return Mask(*cast("list[Any]", row[0]))

    # -- fitted and stored

    def fit(self, input: CellsInput, rows: Rows[GridItem, Mask], setting: Setting) -> tuple[CellsInput, "CellsOutput"]:
        assert isinstance(input, GridInput)
        store, config = input.stores[0], setting.config
        cell, names, start = config.cell if store.pixels else 0, store.classes.names, setting.start
        if start is not None and start.run.output.facts.names != names:
            raise UserError(
                f"{start.path} has the classes {', '.join(start.run.output.facts.names)}, and the data has "
                f"{', '.join(names)}; begin without --from"
            )
        counts = np.zeros(len(names), dtype=np.int64)
        for example in rows:
            labels = cell_scores.gold_cells(store[example.x.row].classes, cell, config.share, len(names))
            counts += np.bincount(labels[(labels >= 0) & (labels < len(names))], minlength=len(names))
        fixed = (names, store.classes.values, tuple(counts.tolist()), cell, store.channels, float(config.share))
        facts = GridFacts(*fixed, columns=setting.source.columns)
        return GridInput(config, facts, input.stores, new=True), CellsOutput(config, facts)

    def cannot_split(self, error: UserError, report: Report) -> UserError:
        if report.pairs - report.duplicates >= self.least_split:
            return error
        return UserError(
            f"there are {report.pairs:,} images to train on and 0 to validate on; expected at least one of each: give "
            "more images, or --valid"
        )

    def write(self, input: CellsInput, rows: Rows[GridItem, Mask], setting: Setting) -> StoredRows:
        """The images are stored already; which of them are trained on is written with `write_valid`."""
        assert isinstance(input, GridInput)
        return StoredRows(input.stores[0], np.array([example.x.row for example in rows], dtype=np.int64))

    def write_valid(self, input: CellsInput, examples: CellsExamples, setting: Setting) -> None:
        assert isinstance(input, GridInput)
        valid, apart = [example.x.row for example in examples], len(input.stores) > 1
        kept = set() if apart else set(valid)
        train = [index for index in range(len(input.stores[0])) if index not in kept]
        write_text(setting.data / SPLIT, json.dumps({"train": train, "valid": valid, "apart": apart}))

    def open(self, input: CellsInput, setting: Setting) -> StoredRows:
        assert isinstance(input, GridInput)
        split, classes = _split(setting.data), self.facts.classes
        folders = FOLDERS if split["apart"] else FOLDERS[:1]
        input.stores = [GridStore.open(setting.data / name, classes) for name in folders]
        return StoredRows(input.stores[0], np.array(split["train"], dtype=np.int64))

    def open_valid(self, input: CellsInput, setting: Setting) -> list[Example[GridItem, Mask]]:
        assert isinstance(input, GridInput)
        split = _split(setting.data)
        return [Example(input.stored_item(int(split["apart"]), index), Mask()) for index in split["valid"]]

    def batches(self, prepared: Prepared[GridItem, Mask], config: TaskConfig) -> CellBatches:
        return CellBatches(prepared, config)

    def collate(self, targets: Sequence[np.ndarray], batch: Grids) -> Gold:
        return cell_scores.collate_gold(targets, batch, self.facts.cell, self.facts.share, len(self.facts.names))

    def counted(self, batch: tuple[object, ...]) -> int:
        """Cells that have a label."""
        return int((cast("Gold", batch[1]).cells >= 0).sum())

    # -- predicting

    def options(self, given: Mapping[str, object]) -> CellsOptions | None:
        if given.get("threshold") is not None and len(self.facts.names) > 2:
            raise UserError("threshold is for two classes; of several the likeliest is taken")
        return super().options(given)

    def budget(self, input: CellsInput, options: CellsOptions | None) -> int:
        return min(super().budget(input, options), self.config.most_cells)

    def outputs(
        self, run: Run, xs: Sequence[GridItem], parts: Sequence[GridPart], batch: Grids, options: CellsOptions | None
    ) -> list[RawCells]:
        began = time.perf_counter()
        cells, pixels = run.model.answer(batch)  # type: ignore[operator]
        if pixels is not None:
            pixels = pixels[:, 1].exp() if pixels.shape[1] == 2 else pixels.argmax(dim=1).to(torch.uint8)
            if not (options is None or options.pixel_probs) and pixels.is_floating_point():
                pixels = (pixels >= self.facts.pixel_threshold).to(torch.uint8)
        probs = cells.double().exp().float().cpu().numpy()
        refined = None if pixels is None else pixels.cpu().numpy()
        seconds = (time.perf_counter() - began) / len(parts)
        side, made = self.facts.side, []
        for row, part in enumerate(parts):
            height, width = part.values.shape[:2]
            own = probs[row, : -(-height // side), : -(-width // side)].copy()
            pixel_probs = None if refined is None else refined[row, :height, :width].copy()
            made.append(RawCells(own, pixel_probs, (height, width), 1, seconds))
        return made

    def merge(self, x: GridItem, parts: Sequence[GridPart], outputs: Sequence[RawCells]) -> RawCells:
        answers = ((part.place, one[:2]) for part, one in zip(parts, outputs, strict=True))
        size = parts[0].size
        probs, refined = outputs[0][:2] if len(parts) == 1 else joined(size, self.facts.side, answers)
        return RawCells(probs, refined, size, len(parts), sum(one.seconds for one in outputs))

    def decide(self, x: GridItem, raw: RawCells, options: CellsOptions | None = None) -> GridPrediction:
        labels = cell_scores.label_cells(self.facts, raw.probs, None if options is None else options.threshold)
        pixels = cell_scores.paint(self.facts, labels, raw.refined, raw.size)
        marked = raw.refined if raw.refined is not None and raw.refined.dtype != np.uint8 else None
        return GridPrediction(x.name, labels, raw.probs, pixels, marked, raw.parts)

    # -- scoring

    def gold(self, run: Run, examples: CellsExamples) -> Iterator[np.ndarray]:
        """The class of every pixel or place, image by image."""
        assert isinstance(run.input, GridInput)
        for x, y in examples:
            if x.row == NOT_STORED:
                yield self.facts.classes.of(read_gold(y.path, (x.height, x.width), x.name))
            else:
                yield run.input.stores[x.store][x.row].classes

    def with_thresholds(self, run: Run, raws: Sequence[RawCells], examples: CellsExamples) -> "CellsOutput":
        """The same with the thresholds that are best on these images."""
        threshold, pixel_threshold = cell_scores.fit_thresholds(self.facts, raws, list(self.gold(run, examples)))
        return CellsOutput(self.config, replace(self.facts, threshold=threshold, pixel_threshold=pixel_threshold))

    def calibrate(self, run: Run, raws: Sequence[RawCells], prepared: Prepared[GridItem, Mask]) -> "CellsOutput":
        return self.with_thresholds(run, raws, prepared.valid)

    def _scored(self, run: Run, raws: Sequence[RawCells], examples: CellsExamples) -> Scored:
        """Everything that is counted, at the thresholds as they are."""
        predictions = [self.decide(one.x, raw) for one, raw in zip(examples, raws, strict=True)]
        return Scored(self.facts, predictions, self.gold(run, examples))

    def validate(self, run: Run, raws: Sequence[RawCells], examples: CellsExamples) -> dict[str, float]:
        """The metric that decides, the loss, and the other metrics, at the thresholds that are best."""
        scored = self.with_thresholds(run, raws, examples)._scored(run, raws, examples)
        values = scored.values_of_all()
        shown = {name: values[name] for name in ("f1", "average_precision", "accuracy")}
        shown |= {"pixel_f1": values["pixel_f1_2"]} if "pixel_f1_2" in values else {}
        first = self.config.decisive
        if first not in shown:
            raise UserError(f"metric is {first}; of features there is {', '.join(shown)}")
        ordered = {first: shown[first], "valid_loss": scored.loss()} | shown
        return {name: round(value, 4) if math.isfinite(value) else 0.0 for name, value in ordered.items()}

    def scoring_options(self, given: dict[str, object]) -> tuple[object, dict[str, object]]:
        return None, {"pixel_probs": False, **given}

    def statistics(
        self, run: Run, examples: CellsExamples, predictions: Sequence[GridPrediction], raws: Sequence[RawCells]
    ) -> dict[str, Statistics]:
        return Scored(self.facts, predictions, self.gold(run, examples))

    def finished(self, evaluation: CellsEvaluation, scoring: object) -> CellsEvaluation:
        masks, scored = [one.y for one in evaluation.examples if one.x.row == NOT_STORED], evaluation.statistics
        assert isinstance(scored, Scored)
        doubt = None
        if masks:
            doubt = self.facts.classes.doubt(min(one.lowest for one in masks), max(one.highest for one in masks))
        evaluation.extra.update(
            cells=scored.cells,
            table=scored.table(),
            doubt=doubt,
            seconds_per_image=sum(raw.seconds for raw in evaluation.raws) / len(evaluation.raws),
            each={name: one.of_each() for name, one in scored.items()},
        )
        return replace(evaluation, values=scored.values_of_all())

    def scores_json(self, evaluation: CellsEvaluation) -> dict[str, object]:
        values = {name: round(one, 4) if math.isfinite(one) else None for name, one in evaluation.values.items()}
        threshold = {"threshold": self._threshold(evaluation)} if len(self.facts.names) == 2 else {}
        return {"cells": evaluation.extra["cells"], **values, **threshold}

    def without_json(self, evaluation: CellsEvaluation) -> dict[str, object]:
        return {name: round(value, 4) for name, value in (evaluation.without or {}).items()}

    def _threshold(self, evaluation: CellsEvaluation) -> float:
        given = cast("CellsOptions", evaluation.options).threshold
        return self.facts.threshold if given is None else given

    def summary(self, evaluation: CellsEvaluation) -> dict[str, object]:
        extra: Any = evaluation.extra
        doubt = {} if extra["doubt"] is None else {"doubt": extra["doubt"]}
        seconds = round(extra["seconds_per_image"], 4)
        return {"per_class": [vars(one) for one in extra["table"]], "seconds_per_image": seconds, **doubt}

    def warnings(self, evaluation: CellsEvaluation) -> list[str]:
        doubt = evaluation.extra["doubt"]
        return [] if doubt is None else [f"{doubt}; expected masks with the same values"]

    def metric_name(self, metric: str) -> str:
        pixel, _, distance = metric.rpartition("_")
        if metric.startswith("pixel_") and distance.isdigit():
            return f"{pixel.replace('_', ' ')} within {distance} px"
        return super().metric_name(metric)

    def score_table(self, evaluation: CellsEvaluation) -> Table:
        without = evaluation.without or {}
        names = ("score", "all", *(["not in the training data"] if without else []))
        rows = []
        for name, value in evaluation.values.items():
            others = [f"{without[name]:.2f}" if name in without else ""] if without else []
            rows.append((self.metric_name(name), f"{value:.2f}", *others))
        return Table(names, tuple(rows))

    def tables(self, evaluation: CellsEvaluation) -> list[Table | str]:
        extra: Any = evaluation.extra
        images = len(evaluation.examples)
        speed = f"{extra['seconds_per_image'] * 1000:.0f} ms an image"
        lines: list[Table | str] = [f"{images:,} image{'' if images == 1 else 's'}, {extra['cells']:,} cells; {speed}"]
        if parted := sum(one.parts > 1 for one in evaluation.predictions):
            lines.append(f"{parted:,} of them too large to be labelled whole: in parts that overlap")
        if len(self.facts.names) == 2:
            given = cast("CellsOptions", evaluation.options).threshold
            best = ", which was best on validation data" if given is None else ""
            lines.append(f"a cell is marked from a probability of {self._threshold(evaluation):.3f} on{best}")
        return [*lines, class_table(extra["table"], "class", "there")]

    def comparison_fields(
        self, metric: str, examples: CellsExamples, systems: Mapping[str, Statistics], draw: tuple[int, int]
    ) -> dict[str, object]:
        """What holds 95 % of the differences to the first run."""
        (_, first), *others = systems.items()
        return {"difference_interval": {name: list(difference_interval(one, first, *draw)) for name, one in others}}

    def scored_row(self, evaluation: CellsEvaluation, number: int) -> dict[str, object]:
        return {**self.error_row(evaluation, number), **evaluation.predictions[number].to_json(self.facts)}

    def error_row(self, evaluation: CellsEvaluation, number: int) -> dict[str, object]:
        """The scores of the photo, without its cells."""
        each = cast("dict[str, list[float]]", evaluation.extra["each"])
        scores = {name: round(values[number], 4) for name, values in each.items()}
        return {"image": evaluation.predictions[number].name, **scores}

    def badness(self, evaluation: CellsEvaluation) -> list[float]:
        each = cast("dict[str, list[float]]", evaluation.extra["each"])
        return [101 - value for value in each["f1"]]  # the worst photos, however good they are

    def shown_error(self, row: Mapping[str, object]) -> str:
        return f"{row['image']}: F1 {row['f1']:.1f}, precision {row['precision']:.1f}, recall {row['recall']:.1f}"

    # -- baselines

    def baseline_facts(self, input: CellsInput, rows: Rows[GridItem, Mask]) -> dict[str, object]:
        """Of two classes of pixels, the threshold on the mean of a cell that is best in training."""
        assert isinstance(input, GridInput)
        if len(self.facts.names) != 2 or not self.facts.cell:
            return {}
        stored = [input.stores[0][example.x.row] for example in islice(rows, MOST_IMAGES)]
        means = [cell_means(one.values, self.facts.cell) for one in stored]
        return pixel_threshold(means, [self._gold_cells(one.classes) for one in stored])

    def _gold_cells(self, classes: np.ndarray) -> np.ndarray:
        return cell_scores.gold_cells(classes, self.facts.cell, self.facts.share, len(self.facts.names))

    def baseline_predictions(
        self, run: Run, examples: CellsExamples, facts: Mapping[str, object]
    ) -> dict[str, list[GridPrediction]]:
        assert isinstance(run.input, GridInput)
        names, predictions = self.facts.names, dict[str, list[GridPrediction]]()
        constant = ("none marked", "all marked") if len(names) == 2 else [f"all {name}" for name in names]
        for example in examples:
            values = run.input.values(example.x)
            means = cell_means(values, self.facts.side)
            labels = {name: np.full(means.shape, number) for number, name in enumerate(constant)}
            if "least" in facts:
                marked = cast("int", facts["sign"]) * means >= cast("float", facts["least"])
                labels["a threshold on the pixels"] = marked.astype(np.int64)
            for name, one in labels.items():
                predictions.setdefault(name, []).append(self._labelled(one, values.shape[:2]))
        return predictions

    def _labelled(self, labels: np.ndarray, size: tuple[int, ...]) -> GridPrediction:
        probs = np.eye(len(self.facts.names), dtype=np.float32)[labels]
        return GridPrediction("", labels, probs, cell_scores.paint(self.facts, labels, None, size))

    # -- saving

    def columns(self) -> tuple[str, ...] | None:
        return self.facts.columns

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        RunFolder(folder).write_json(FACTS, asdict(self.facts))
        return {}, [FACTS]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: CellsInput) -> "CellsOutput":
        return cls(config, cast("GridInput", input).facts)

    # -- for people

    def notes(self, prepared: Prepared[GridItem, Mask]) -> list[str]:
        facts = self.facts
        total, counts = max(1, sum(facts.counts)), zip(facts.names, facts.counts, strict=True)
        shares = ", ".join(f"{name} {count:,} ({count / total:.1%})" for name, count in counts)
        lines = [f"cells to train on: {shares}"]
        if len(facts.names) == 2 and facts.counts[1] > INVERTED * total:
            lines.append(f"most cells are {facts.names[1]!r}: if the masks are inverted, mark with the higher value")
        return lines

    def summary_of_fit(self) -> str:
        return f"{sum(self.facts.counts):,} cells, {len(self.facts.names)} classes"

    def card(self, run: Run, prepared: Prepared[GridItem, Mask], raws: Sequence[RawCells], folder: Path) -> Wording:
        facts, scored = self.facts, self._scored(run, raws, prepared.valid)
        sections = table_section("Classes", "class", "cells", scored.table())
        if facts.cell:
            within = ", ".join(f"{scored[f'pixel_f1_{one}'].score():.1f} within {one} px" for one in DISTANCES)
            pixels = "whole cells" if raws[0].refined is None else "refined inside the cells that are not ground"
            sections += ["## Pixels", "", f"F1 of pixels ({pixels}): {within}.", ""]
        if len(facts.names) == 2:
            sections += [
                f"A cell is marked from a probability of {facts.threshold:.3f} on, a pixel inside it from "
                f"{facts.pixel_threshold:.2f} on: what was best on the validation data.",
                "",
            ]
        cells = f"cells of {facts.cell} × {facts.cell} pixels" if facts.cell else "cells of features"
        return Wording(
            f"that labels {cells}",
            "images",
            "On validation data, at the thresholds that are best there.",
            limits=(
                "It gives every cell one of its classes, also in images of another kind than those it learnt from.",
                "A cell is as fine as its labels are; pixels inside it are a refinement, not a measurement.",
            ),
            sections=tuple(sections),
        )

    def explain(self, run: Run, x: GridItem, options: ExplainOptions) -> Explanation:
        """Labels with their probabilities over the image; the maps have a row and a column for each cell."""
        assert isinstance(run.input, GridInput)
        if options.output is not None:
            raise UserError(f"{run.name} labels all cells at once: there is no output to explain instead")
        try:
            values = run.input.values(x)
        except BadImage as error:
            raise UserError(f"{x.name}: {error}") from None
        run.input.check_whole(x, values)
        x = x._replace(held=values)
        facts = self.facts
        (raw,) = run.raw([x], options=self.options({}))
        prediction = self.decide(x, cast("RawCells", raw))
        rows, columns = prediction.labels.shape
        axis = Grid(rows, columns)
        top = options.top or (LARGEST if len(axis) ** 2 > WHOLE else None)
        records = _maps(run.model, to_device(collate([values], facts.cell), run.device), axis, top)
        counts = np.bincount(prediction.labels.ravel(), minlength=len(facts.names)).tolist()
        shown = ", ".join(f"{count:,} {name}" for name, count in zip(facts.names, counts, strict=True))
        probs = np.take_along_axis(prediction.probs, prediction.labels[:, :, None], axis=2)[:, :, 0]
        names = tuple(dict.fromkeys(record.name for record in records))
        labels = prediction.labels.astype(np.int32)
        return Explanation(
            title=run.name,
            task=run.task.name,
            input=Path(x.name).name,
            output=f"cells: {shown}",
            records=tuple(records),
            stacks=(Stack(TITLE, "self", names),) if names else (),
            notes=() if names else (NOTHING_SEEN,),
            image=_picture(values, Path(x.name).name, axis, facts.cell),
            cells=Labelling(facts.names, labels, probs.astype(np.float32), facts.names[0]),
        )

    def line(self, x: GridItem, prediction: GridPrediction) -> str:
        names = enumerate(self.facts.names)
        shown = "\t".join(f"{name} {int((prediction.labels == label).sum())}" for label, name in names)
        return f"{path_name(prediction.name)}\t{shown}"

    def remark(self, x: GridItem, prediction: GridPrediction) -> str | None:
        """Cells of one part are labelled without the other parts."""
        return f"{x.name} was labelled in {prediction.parts:,} parts that overlap" if prediction.parts > 1 else None

    def to_json(self, x: GridItem, prediction: GridPrediction) -> dict[str, object]:
        return prediction.to_json(self.facts)

    def label_names(self) -> list[str]:
        return list(self.facts.names)

    def served(self, x: GridItem, prediction: GridPrediction) -> dict[str, object]:
        """Without the name of the image, which the server is not told."""
        data = prediction.to_json(self.facts)
        return {name: data[name] for name in ("cell", "classes", "labels", "probabilities")}

    def write_files(self, run: Run, x: GridItem, prediction: GridPrediction, folder: Path, names: set[str]) -> None:
        """A mask with the values that those of the training data had, a picture, and everything as JSON."""
        from sightline.view.cells import save_json, save_mask

        name = free_name(Path(x.name), folder, WRITTEN, names)
        mask, overlay, data = (folder / f"{name}{ending}" for ending in WRITTEN)
        save_mask(prediction.labels if prediction.pixels is None else prediction.pixels, self.facts.values, mask)
        self.save_picture(run, x, prediction, overlay)
        save_json(prediction.to_json(self.facts), data)

    def save_picture(self, run: Run, x: GridItem, prediction: GridPrediction, path: Path) -> None:
        from sightline.view.cells import picture, save_picture

        assert isinstance(run.input, GridInput)
        refined = prediction.pixels if getattr(run.model, "pixel_head", None) is not None else None
        shown = picture(run.input.values(x), prediction.labels, self.facts.cell, pixels=refined)
        save_picture(shown, path)


def _split(data: Path) -> dict[str, Any]:
    """Which images of the stores are trained on and validated on."""
    path = data / SPLIT
    try:
        split = read_json(path, RECORDS)
        np.array(split["train"], dtype=np.int64), np.array(split["valid"], dtype=np.int64), bool(split["apart"])
        return split
    except FileNotFoundError:
        raise UserError(f"{path} is missing: without its data the run cannot be resumed") from None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
