"""What is said of labels of cells: as lines, as JSON, as tables of an evaluation, beside other runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sightline.inputs.grid import NOT_STORED, GridFacts, GridItem
from sightline.metrics import Statistics
from sightline.metrics.cells import difference_interval
from sightline.outputs.answer_schema import COUNT, NUMBER, TEXT, listed, structure
from sightline.outputs.base import Output
from sightline.outputs.cells_scores import GridPrediction, Scored
from sightline.tasks.evaluate import Evaluation, Table, path_name
from sightline.tasks.task import Example


class CellReports(Output):
    """The base of `sightline.outputs.cells.CellsOutput`: everything that is for people."""

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

    def __init__(self, config: Any, facts: GridFacts | None = None) -> None:
        super().__init__(config)
        self._facts = facts

    @property
    def facts(self) -> GridFacts:
        assert self._facts is not None, "the output is not fitted"
        return self._facts

    def finished(self, evaluation: Evaluation, scoring: Any) -> Evaluation:
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

    def scores_json(self, evaluation: Evaluation) -> dict[str, Any]:
        values = {name: round(one, 4) if math.isfinite(one) else None for name, one in evaluation.values.items()}
        threshold = {"threshold": self._threshold(evaluation)} if len(self.facts.names) == 2 else {}
        return {"cells": evaluation.extra["cells"], **values, **threshold}

    def without_json(self, evaluation: Evaluation) -> dict[str, Any]:
        return {name: round(value, 4) for name, value in (evaluation.without or {}).items()}

    def _threshold(self, evaluation: Evaluation) -> float:
        given = evaluation.options.threshold
        return self.facts.threshold if given is None else given

    def summary(self, evaluation: Evaluation) -> dict[str, Any]:
        extra = evaluation.extra
        doubt = {} if extra["doubt"] is None else {"doubt": extra["doubt"]}
        seconds = round(extra["seconds_per_image"], 4)
        return {"per_class": [vars(one) for one in extra["table"]], "seconds_per_image": seconds, **doubt}

    def warnings(self, evaluation: Evaluation) -> list[str]:
        doubt = evaluation.extra["doubt"]
        return [] if doubt is None else [f"{doubt}; expected masks with the same values"]

    def metric_name(self, metric: str) -> str:
        pixel, _, distance = metric.rpartition("_")
        if metric.startswith("pixel_") and distance.isdigit():
            return f"{pixel.replace('_', ' ')} within {distance} px"
        return super().metric_name(metric)

    def score_table(self, evaluation: Evaluation) -> Table:
        without = evaluation.without or {}
        names = ("score", "all", *(["not in the training data"] if without else []))
        rows = []
        for name, value in evaluation.values.items():
            others = [f"{without[name]:.2f}" if name in without else ""] if without else []
            rows.append((self.metric_name(name), f"{value:.2f}", *others))
        return Table(names, tuple(rows))

    def tables(self, evaluation: Evaluation) -> list[Table | str]:
        from sightline.outputs.tables import class_table

        extra, images = evaluation.extra, len(evaluation.examples)
        speed = f"{extra['seconds_per_image'] * 1000:.0f} ms an image"
        lines: list[Table | str] = [f"{images:,} image{'' if images == 1 else 's'}, {extra['cells']:,} cells; {speed}"]
        if parted := sum(one.parts > 1 for one in evaluation.predictions):
            lines.append(f"{parted:,} of them too large to be labelled whole: in parts that overlap")
        if len(self.facts.names) == 2:
            best = ", which was best on validation data" if evaluation.options.threshold is None else ""
            lines.append(f"a cell is marked from a probability of {self._threshold(evaluation):.3f} on{best}")
        return [*lines, class_table(extra["table"], "class", "there")]

    def compared_extra(
        self, metric: str, examples: Sequence[Example], systems: Mapping[str, Statistics], draw: tuple[int, int]
    ) -> dict[str, Any]:
        """What holds 95 % of the differences to the first run."""
        (_, first), *others = systems.items()
        return {"difference_interval": {name: list(difference_interval(one, first, *draw)) for name, one in others}}

    def row(self, example: Example, prediction: GridPrediction) -> dict[str, Any]:
        return prediction.to_json(self.facts)

    def scored_row(self, evaluation: Evaluation, number: int) -> dict[str, Any]:
        return {**self.error_row(evaluation, number), **evaluation.predictions[number].to_json(self.facts)}

    def error_row(self, evaluation: Evaluation, number: int) -> dict[str, Any]:
        """The scores of the photo, without its cells."""
        scores = {name: round(values[number], 4) for name, values in evaluation.extra["each"].items()}
        return {"image": evaluation.predictions[number].name, **scores}

    def badness(self, evaluation: Evaluation) -> list[float]:
        return [101 - value for value in evaluation.extra["each"]["f1"]]  # the worst photos, however good they are

    def shown_error(self, row: Mapping[str, Any]) -> str:
        return f"{row['image']}: F1 {row['f1']:.1f}, precision {row['precision']:.1f}, recall {row['recall']:.1f}"

    def line(self, x: GridItem, prediction: GridPrediction) -> str:
        counts = [int((prediction.labels == label).sum()) for label in range(len(self.facts.names))]
        shown = "\t".join(f"{name} {count}" for name, count in zip(self.facts.names, counts, strict=True))
        return f"{path_name(prediction.name)}\t{shown}"

    def remark(self, x: GridItem, prediction: GridPrediction) -> str | None:
        """Of several parts, no cell knows of what lies beyond its own."""
        return f"{x.name} was labelled in {prediction.parts:,} parts that overlap" if prediction.parts > 1 else None

    def to_json(self, x: GridItem, prediction: GridPrediction) -> dict[str, Any]:
        return prediction.to_json(self.facts)

    def label_names(self) -> list[str]:
        return list(self.facts.names)

    def served(self, x: GridItem, prediction: GridPrediction) -> dict[str, Any]:
        """What the image is called, nobody has told the server."""
        data = prediction.to_json(self.facts)
        return {name: data[name] for name in ("cell", "classes", "labels", "probabilities")}
