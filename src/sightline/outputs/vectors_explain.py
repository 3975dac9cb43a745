"""What is shown of a model that wrote vectors: attention over frames, slots of a memory, or how often it repeated."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from sightline.explain.capture import capture
from sightline.explain.evidence import believe
from sightline.explain.evidence.hiding import HidingSubject
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Explanation, Stack
from sightline.inputs.files import FileItem
from sightline.inputs.image import of_images
from sightline.inputs.series import SeriesPart
from sightline.inputs.series_subject import SeriesVectorsSubject
from sightline.models.series_to_series import SeriesToSeries
from sightline.models.stepping import Stepping
from sightline.nn.series import SeriesBatch
from sightline.outputs.encoder_maps import kept_note, too_many_note, top_for
from sightline.outputs.machine_explain import Maps, explain_machine
from sightline.outputs.sequence_explain import first_part_note
from sightline.records import Axis, Slots
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run
from sightline.training.steps import to_device


def explain_vectors(
    run: Run, x: FileItem, parts: Sequence[SeriesPart], values: np.ndarray, options: ExplainOptions
) -> Explanation:
    """The maps of a model that wrote these vectors from the first part of an item."""
    batch, notes = first_batch(run, parts)
    if isinstance(run.model, Stepping):
        maps = explain_machine(run.model, batch, len(values), options, run.input.most_measured or 0, notes)
    else:
        maps = _attending(run, x, parts[0], batch, values, options, notes)
    vectors, numbers = (
        f"{count:,} {name}{'' if count == 1 else 's'}"
        for count, name in zip(values.shape, ("vector", "number"), strict=True)
    )
    return explanation_of(run, x, f"{vectors} of {numbers}", maps, notes)


def first_batch(run: Run, parts: Sequence[SeriesPart]) -> tuple[SeriesBatch, list[str]]:
    """The first part of an item as a batch, and a note where there are more."""
    batch = cast("SeriesBatch", to_device(run.input.collate([parts[0]]), run.device))
    return batch, [first_part_note(len(parts))] if len(parts) > 1 else []


def explanation_of(run: Run, x: FileItem, output: str, maps: Maps, notes: Sequence[str]) -> Explanation:
    """The maps of an item, and what came out."""
    records, stacks, belief = maps
    return Explanation(
        title=run.name,
        task=run.task.name,
        output=output,
        records=tuple(records),
        stacks=tuple(stacks),
        notes=tuple(notes),
        belief=belief,
        **run.input.shown(x),
    )


@dataclass(frozen=True)
class AttentionView:
    """What is needed to show the attention of an output: ``again`` computes it once more, ``subject`` is the model
    with parts of the input hidden. ``heads``: each of its heads is ablated, which means nothing where the weights
    themselves are the output."""

    rows: Axis
    columns: Axis
    again: Callable[[], object]
    subject: Callable[[], HidingSubject]
    title: str
    heads: bool = True


def attention_maps(run: Run, view: AttentionView, options: ExplainOptions, notes: list[str]) -> Maps:
    """The attention of each part of an output over the frames."""
    longest = max(len(view.rows), len(view.columns))
    top = options.top or top_for(run.model, longest)
    with torch.no_grad(), evaluating(run.model), capture(run.model, top=top) as trace:  # it wrote without capture
        view.again()
    names = tuple(trace.names)
    records = [one for name in names for one in trace[name].records(rows=view.rows, columns=view.columns)]
    notes += [] if top is None else [kept_note(top)]
    belief, most = None, run.input.most_measured or 0
    if options.measure and longest > most:
        notes.append(too_many_note(longest, most))
    elif options.measure:
        measured = [one for one in records if one.name == names[-1]]
        belief = of_images(believe(view.subject(), measured, heads=view.heads, shift=0, special=()))
    return records, [Stack(view.title, "cross", names)], belief


def _attending(
    run: Run,
    x: FileItem,
    part: SeriesPart,
    batch: SeriesBatch,
    values: np.ndarray,
    options: ExplainOptions,
    notes: list[str],
) -> Maps:
    """The attention of each vector over the frames."""
    model = cast("SeriesToSeries", run.model)
    given = torch.from_numpy(values).unsqueeze(0).to(run.device)
    view = AttentionView(
        rows=Slots(len(values)),
        columns=run.input.axis(x, part) or Slots(run.input.size(part)),
        again=lambda: model.again(model.annotate(batch), given),
        subject=lambda: SeriesVectorsSubject(model, batch, given, run.config.model.reduction),
        title=f"From the vectors to the {run.input.source_name}",
    )
    return attention_maps(run, view, options, notes)
