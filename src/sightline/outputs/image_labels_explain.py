"""Explain the label of an image: where the model looked, and what it costs to hide each place."""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import believe
from sightline.explain.evidence.removal import leave_one_out
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Explanation, Stack
from sightline.models.image_to_labels import ImageToLabels
from sightline.nn.transformer import EncoderLayer
from sightline.outputs.image_subject import ImageLabelSubject, of_images
from sightline.outputs.label_choices import explained_label, label_steps, other_labels, shown_label
from sightline.outputs.labels import LabelPrediction
from sightline.records import Grid, Record, Tokens
from sightline.tasks.explain import LARGEST, WHOLE, ExplainOptions
from sightline.tasks.run import Run

LOOKED, HIDING = "label", "hiding"
TITLE, INSIDE = "From the label to the image", "Inside the image"
COST = "What hiding each place costs the label"


def explain_image_label(run: Run, image: Any, options: ExplainOptions) -> Explanation:
    """Everything there is to show about the label of one image; ``options.output`` is the label, if not the model's."""
    (parts,) = run.encode([image])
    source = run.input.collate(parts).clone().to(run.device)  # gradients may go through a clone
    (raw,) = run.raw([image], parts=[parts])
    prediction = run.output.decide(image, raw)
    label = explained_label(run, prediction, options.output)
    explanation = replace(_looks(run, source, prediction, label, options), **run.input.shown(image))
    return _measured_places(run, explanation, source, label) if options.measure else explanation


@torch.no_grad()
def _looks(run: Run, source: Tensor, prediction: LabelPrediction, label: str, options: ExplainOptions) -> Explanation:
    model: Any = run.model
    grid, row = Grid(model.places.height, model.places.width), Tokens((label or shown_label(prediction),))
    top = options.top or _top(model, len(grid))
    with evaluating(model), capture(model, top=top) as trace:
        model.scores(source)
    records, stacks = _records(model, trace, row, grid)
    if not records and not options.measure:
        raise UserError(
            f"{run.name} has no attention: it reads the mean of all places. What hiding each of them costs can be "
            "measured"
        )
    notes = []
    if run.config.labels == "several":
        notes.append("all labels are given from one reading of the image, so the map is the same for each of them")
    if top is not None:
        notes.append(f"of each row inside the image only the {top} largest weights were kept")
    return Explanation(
        title=run.name,
        task=run.variant.stored,
        input="",
        output=shown_label(prediction),
        records=tuple(records),
        stacks=tuple(stacks),
        steps=label_steps(prediction, label),
        alternatives=other_labels(prediction),
        notes=tuple(notes),
    )


def _records(model: ImageToLabels, trace: Trace, row: Tokens, grid: Grid) -> tuple[list[Record], list[Stack]]:
    records: list[Record] = []
    stacks: list[Stack] = []
    inside = [name for name in trace.names if not model.looks_at_source(name)]
    for name in trace.names:
        if model.looks_at_source(name):  # the mean of all queries and heads
            weights = np.mean([one.matrix() for one in trace[name].records(columns=grid)], axis=(0, 1))
            records.append(Record(LOOKED, 0, 0, row, grid, weights[None].astype(np.float32)))
            stacks.append(Stack(TITLE, "pool", (LOOKED,)))
    for name in inside:
        records += [replace(one, scores=None) for one in trace[name].records(rows=grid, columns=grid)]
    if inside:
        stacks.append(Stack(INSIDE, "self", tuple(inside)))
    return records, stacks


def _top(model: ImageToLabels, places: int) -> int | None:
    """How many weights of each row to keep of what attends inside the image; None for all of them."""
    layers = [layer for layer in model.between_places if isinstance(layer, EncoderLayer)]
    heads = sum(prod(layer.attention.heads) for layer in layers)
    return None if heads * places**2 <= WHOLE else LARGEST


def _measured_places(run: Run, found: Explanation, source: Tensor, label: str) -> Explanation:
    model, output = run.model, run.output
    assert isinstance(model, ImageToLabels)
    labels, temperature = output.labels, output.temperature  # type: ignore[attr-defined]
    number = labels.index(label) if label else 0
    subject = ImageLabelSubject(model, source, number, kind=labels.kind, temperature=temperature)
    costs = leave_one_out(subject, [0])[0]
    grid = Grid(model.places.height, model.places.width)
    shares = np.clip(costs, 0, None)
    shares = shares / shares.sum() if shares.sum() else shares
    row = next((one.rows for one in found.records if one.name == LOOKED), Tokens((label or found.output,)))
    record = Record(HIDING, 0, 0, row, grid, shares[None].astype(np.float32))
    stacks = [*found.stacks]
    stacks.insert(1 if found.of(LOOKED) else 0, Stack(COST, "pool", (HIDING,)))
    what = "how far the number changes" if labels.kind == "number" else f"how likely the model finds {label!r}"
    note = f"what was measured is {what} when a place is made to look as places do on average"
    belief = None
    if found.of(LOOKED):
        belief = believe(subject, found.of(LOOKED), about="what reads the image", names=("pooling",), special=())
        belief = of_images(belief)
    return replace(
        found,
        records=(*found.records, record),
        stacks=tuple(stacks),
        belief=belief,
        notes=(*found.notes, note),
    )
