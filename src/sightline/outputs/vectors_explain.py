"""What is shown of a model that wrote vectors: attention over frames, slots of a memory, or how often it repeated."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from sightline.explain.capture import capture
from sightline.explain.evidence import believe
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
from sightline.records import Slots
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run
from sightline.training.steps import to_device


def explain_vectors(
    run: Run, x: FileItem, parts: Sequence[SeriesPart], values: np.ndarray, options: ExplainOptions
) -> Explanation:
    """The maps of a model that wrote these vectors from the first part of an item."""
    batch = cast("SeriesBatch", to_device(run.input.collate([parts[0]]), run.device))
    notes = [first_part_note(len(parts))] if len(parts) > 1 else []
    if isinstance(run.model, Stepping):
        most = run.input.most_measured or 0
        records, stacks, belief = explain_machine(run.model, batch, len(values), options, most, notes)
    else:
        records, stacks, belief = _attending(run, x, parts[0], batch, values, options, notes)
    return Explanation(
        title=run.name,
        task=run.task.name,
        output=f"{len(values):,} vectors of {values.shape[1]:,} numbers",
        records=tuple(records),
        stacks=tuple(stacks),
        notes=tuple(notes),
        belief=belief,
        **run.input.shown(x),
    )


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
    columns = run.input.axis(x, part) or Slots(run.input.size(part))
    longest = max(len(values), len(columns))
    top = options.top or top_for(model, longest)
    given = torch.from_numpy(values).unsqueeze(0).to(run.device)
    with torch.no_grad(), evaluating(model), capture(model, top=top) as trace:  # it wrote without capture
        model.again(model.annotate(batch), given)
    names = tuple(trace.names)
    records = [one for name in names for one in trace[name].records(rows=Slots(len(values)), columns=columns)]
    notes += [] if top is None else [kept_note(top)]
    belief, most = None, run.input.most_measured or 0
    if options.measure and longest > most:
        notes.append(too_many_note(longest, most))
    elif options.measure:
        subject = SeriesVectorsSubject(model, batch, given, run.config.model.reduction)
        belief = of_images(believe(subject, [one for one in records if one.name == names[-1]], shift=0, special=()))
    return records, [Stack(f"From the vectors to the {run.input.source_name}", "cross", names)], belief
