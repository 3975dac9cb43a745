"""Explain the labels of one image: the label of each cell, and where it looked while it was labelled."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sightline.data.images import BadImage
from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Explanation, Stack
from sightline.inputs.grid import GridInput, GridItem, collate
from sightline.models.grid import Grids
from sightline.models.grid_at_once import AtOnce
from sightline.models.grid_sequential import Sequential
from sightline.nn.scan import scan
from sightline.picture import Labelling, Picture
from sightline.records import Grid, Record, TopK
from sightline.tasks.run import Run
from sightline.training.steps import to_device

WHOLE = 1 << 20  # weights; of larger maps the largest of each row are kept
LARGEST = 64
TITLE = "From each cell to all cells"
NOTHING_SEEN = "This model has no attention: a cell is labelled from its pixels, its row and its column."


@torch.no_grad()
def explain_cells(run: Run, x: GridItem, options: Any) -> Explanation:
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
    facts = run.input.facts
    (raw,) = run.raw([x], options=run.output.options({}))
    prediction = run.output.decide(x, raw)
    rows, columns = prediction.labels.shape
    axis = Grid(rows, columns)
    top = options.top or (LARGEST if len(axis) ** 2 > WHOLE else None)
    records = _looks(run.model, to_device(collate([values], facts.cell), run.device), axis, top)
    counts = np.bincount(prediction.labels.ravel(), minlength=len(facts.names)).tolist()
    shown = ", ".join(f"{count:,} {name}" for name, count in zip(facts.names, counts, strict=True))
    probs = np.take_along_axis(prediction.chances, prediction.labels[:, :, None], axis=2)[:, :, 0]
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


def _picture(values: np.ndarray, name: str, axis: Grid, cell: int) -> Picture | None:
    """The image; its last cells may reach over its edge."""
    if not cell:
        return None
    height, width = values.shape[:2]
    made = Picture.of(np.ascontiguousarray(values), name)
    box = (0.0, 0.0, axis.width * cell / width, axis.height * cell / height)
    return Picture(made.content, made.width, made.height, made.name, box)


def _looks(model: Any, grids: Grids, axis: Grid, top: int | None) -> list[Record]:
    with evaluating(model):
        annotated, _ = model.annotate(grids)
        if isinstance(model, Sequential) and model.decoder.attention is not None:
            # Search decodes without being watched; one pass over what it decided gives the map.
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
