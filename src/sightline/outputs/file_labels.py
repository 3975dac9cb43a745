"""Labels of files (images, sound): explained by attention and by hiding parts of them."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import believe
from sightline.explain.evidence.hiding import HidingSubject
from sightline.explain.evidence.measures import leave_one_out
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief, Explanation, Stack
from sightline.inputs.files import FileItem
from sightline.inputs.image import of_images
from sightline.models.source_to_labels import SourceToLabels
from sightline.outputs.encoder_maps import top_for
from sightline.outputs.label_scores import LabelPrediction
from sightline.outputs.labels import LabelsOutput, Logits
from sightline.outputs.labels_explain import LabelExplained
from sightline.outputs.sequence_explain import first_part_note
from sightline.records import Axis, Record, Tokens
from sightline.state import select
from sightline.tasks.evaluate import path_name
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run
from sightline.tasks.task import Batch, Part
from sightline.training.steps import to_device

LOOKED, HIDING = "label", "hiding"


def _own(batch: Batch) -> Batch:
    """A copy: gradients may go through it."""
    return select(batch, torch.zeros(1, dtype=torch.long))


class LabelMeasure:
    """What is measured of a label while parts of an item are hidden. Of a number, a cost is how far it moves, up or
    down alike."""

    def __init__(self, label: int, kind: str, temperature: float, number: float) -> None:
        self.label, self.kind, self.temperature, self.number = label, kind, temperature, number

    def __call__(self, scores: Tensor, whole: bool) -> Float[Tensor, " n"]:
        if self.kind == "number":  # a gradient cannot be taken of a distance that is 0
            return scores if whole else -(scores - self.number).abs()
        logits = scores.double() / self.temperature
        if self.kind == "several":
            return F.logsigmoid(logits[:, self.label])
        return torch.log_softmax(logits, dim=-1)[:, self.label]


class FileLabelsOutput(LabelsOutput[FileItem, Part, Batch]):
    """Labels of files. ``part_name`` is what of an item is hidden."""

    part_name: ClassVar[str] = "place"

    @abstractmethod
    def subject(self, run: Run, source: Batch, measure: LabelMeasure) -> HidingSubject:
        """What the evidence of a map is measured with."""

    def explain(self, run: Run, x: FileItem, options: ExplainOptions) -> Explanation:
        """Everything there is to show about the label of an item; ``options.output`` is another label to explain."""
        model, what = run.model, self.item
        assert isinstance(model, SourceToLabels)
        (parts,) = run.encode([x])
        source = to_device(_own(run.input.collate(parts[:1])), run.device)
        (raw,) = run.raw([x], parts=[parts])
        explained = LabelExplained.of(run, self.decide(x, cast("Logits", raw)), options.output)
        axis = cast("Axis", run.input.axis(x, parts[0]))
        top = options.top or top_for(model, len(axis))
        with torch.no_grad(), evaluating(model), capture(model, top=top) as trace:
            model.scores(source)
        records, stacks = self._records(model, trace, explained.row, axis)
        if not records and not options.measure:
            raise UserError(
                f"{run.name} has no attention: it reads the mean of all {self.part_name}s. What hiding each of them "
                "costs can be measured"
            )
        notes, belief = list[str](), None
        if len(parts) > 1:
            notes.append(f"{first_part_note(len(parts))}; the label is of all parts")
        if run.config.labels == "several":
            notes.append(
                f"all labels are given from one reading of the {what}, so the map is the same for each of them"
            )
        if top is not None:
            notes.append(f"of each row inside the {what} only the {top} largest weights were kept")
        if options.measure:
            looked = [one for one in records if one.name == LOOKED]
            costs, belief, note = self._measured(explained, cast("Batch", source), looked)
            records.append(Record(HIDING, 0, 0, explained.row, axis, costs[None].astype(np.float32)))
            cost = Stack(f"What hiding each {self.part_name} costs the label", "pool", (HIDING,), unit="share")
            stacks.insert(1 if looked else 0, cost)
            notes.append(note)
        explanation = explained.explanation("", records, stacks, notes=tuple(notes), belief=belief)
        return replace(explanation, **run.input.shown(x))

    def _records(
        self, model: SourceToLabels, trace: Trace, row: Tokens, axis: Axis
    ) -> tuple[list[Record], list[Stack]]:
        records: list[Record] = []
        stacks: list[Stack] = []
        inside = [name for name in trace.names if not model.attends_to_source(name)]
        for name in trace.names:
            if model.attends_to_source(name):  # the mean of all queries and heads
                weights = np.mean([one.matrix() for one in trace[name].records(columns=axis)], axis=(0, 1))
                records.append(Record(LOOKED, 0, 0, row, axis, weights[None].astype(np.float32)))
                stacks.append(Stack(f"From the label to the {self.item}", "pool", (LOOKED,)))
        for name in inside:
            records += [replace(one, scores=None) for one in trace[name].records(rows=axis, columns=axis)]
        if inside:
            stacks.append(Stack(f"Inside the {self.item}", "self", tuple(inside)))
        return records, stacks

    def _measured(
        self, explained: LabelExplained, source: Batch, looked: Sequence[Record]
    ) -> tuple[np.ndarray, Belief | None, str]:
        """The share of each part in the cost of hiding, whether to believe the map, and a note on what was measured."""
        run, label, labels, part = explained.run, explained.label, self.labels, self.part_name
        model = cast("SourceToLabels", run.model)
        number = 0.0
        if labels.kind == "number":
            with evaluating(model), torch.no_grad():
                number = float(model.scores(source)[0])
        measure = LabelMeasure(labels.index(label) if label else 0, labels.kind, self.temperature, number)
        subject = self.subject(run, source, measure)
        shares = np.clip(leave_one_out(subject, [0])[0], 0, None)
        shares = shares / shares.sum() if shares.sum() else shares
        what = "how far the number changes" if labels.kind == "number" else f"how likely the model finds {label!r}"
        note = f"what was measured is {what} when a {part} is made to look as {part}s do on average"
        if not looked:
            return shares, None, note
        belief = believe(subject, list(looked), about=f"what reads the {self.item}", names=("pooling",), special=())
        return shares, of_images(belief), note

    def line(self, x: FileItem, prediction: LabelPrediction) -> str:
        return f"{path_name(self.input.label(x))}\t{super().line(x, prediction)}"
