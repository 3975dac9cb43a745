"""Explain the labels of one image: what was said of each cell, and where it looked while it was said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from sightline.data.grids import Raw
from sightline.evidence.subject import evaluating
from sightline.explanation import Explanation, Stack
from sightline.layers.scan import scan
from sightline.models.grid import GridModel, Grids
from sightline.models.grid_at_once import AtOnce
from sightline.models.grid_sequential import Sequential
from sightline.picture import Labelling, Picture
from sightline.records import Grid, Record, TopK
from sightline.tasks.grid_data import collate
from sightline.tasks.gridder import GRID, Gridder
from sightline.trace import Trace, capture

WHOLE = 1 << 20  # weights; of larger maps the largest of each row are kept
LARGEST = 64
TITLE = "From each cell to all cells"
NOTHING_SEEN = "This model has no attention: a cell is labelled from its pixels, its row and its column."


@torch.no_grad()
def explain_grid(gridder: Gridder, raw: Raw, *, top: int | None = None, threshold: float | None = None) -> Explanation:
    """Labels with their probabilities over the image; the maps have a row and a column for each cell."""
    gridder.check_whole(raw)
    (found,) = gridder.stream([raw._replace(mask=None)], threshold)
    rows, columns = found.labels.shape
    axis = Grid(rows, columns)
    top = top or (LARGEST if len(axis) ** 2 > WHOLE else None)
    grids = collate([raw.values], gridder.facts.cell)
    records = _looks(gridder.model, Grids(*(one.to(gridder.device) for one in grids)), axis, top)
    counts = np.bincount(found.labels.ravel(), minlength=len(gridder.facts.names)).tolist()
    said = ", ".join(f"{count:,} {name}" for name, count in zip(gridder.facts.names, counts, strict=True))
    chances = np.take_along_axis(found.chances, found.labels[:, :, None], axis=2)[:, :, 0]
    names = tuple(dict.fromkeys(record.name for record in records))
    return Explanation(
        title=gridder.name,
        task=GRID,
        input=Path(raw.name).name,
        output=f"cells: {said}",
        records=tuple(records),
        stacks=(Stack(TITLE, "self", names),) if names else (),
        notes=() if names else (NOTHING_SEEN,),
        image=_picture(raw, rows, columns, gridder.facts.cell),
        cells=Labelling(
            gridder.facts.names, found.labels.astype(np.int32), chances.astype(np.float32), gridder.facts.names[0]
        ),
    )


def _picture(raw: Raw, rows: int, columns: int, cell: int) -> Picture | None:
    """The image; its last cells may reach over its edge."""
    if not cell:
        return None
    height, width = raw.values.shape[:2]
    made = Picture.of(np.ascontiguousarray(raw.values), Path(raw.name).name)
    box = (0.0, 0.0, columns * cell / width, rows * cell / height)
    return Picture(made.content, made.width, made.height, made.name, box)


def _looks(model: GridModel, grids: Grids, axis: Grid, top: int | None) -> list[Record]:
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
    found = []
    for name in trace.names:
        for record in trace[name].records(columns=axis):
            found.append(replace(record, rows=axis, weights=_ordered(record.weights, steps), scores=None))
    return found


def _ordered(weights: np.ndarray | TopK, steps: np.ndarray) -> np.ndarray | TopK:
    if isinstance(weights, TopK):
        return TopK(weights.places[steps], weights.weights[steps], weights.columns)
    return weights[steps]
