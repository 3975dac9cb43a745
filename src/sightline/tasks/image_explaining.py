"""Explain the label of an image: where the model looked, and what it costs to hide each place."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sightline.data.images import BadImage, fit_image, read_image
from sightline.errors import UserError
from sightline.evidence import believe
from sightline.evidence.removal import leave_one_out
from sightline.evidence.subject import evaluating
from sightline.explanation import Belief, Choice, Explanation, Stack, Step
from sightline.layers.transformer import EncoderLayer
from sightline.models.image_to_labels import ImageToLabels
from sightline.picture import Picture
from sightline.records import Grid, Record, Tokens
from sightline.tasks.classifier import LabelPrediction
from sightline.tasks.explaining import LARGEST, LIKELIEST, WHOLE, Wanted
from sightline.tasks.image_classifier import TASK, ImageClassifier
from sightline.tasks.image_sources import Source, named
from sightline.trace import Trace, capture

LOOKED, HIDING = "label", "hiding"
TITLE, INSIDE = "From the label to the image", "Inside the image"
COST = "What hiding each place costs the label"
VARIANTS = 4096  # places of variants that are in work together
NONE = "none of the labels"
OF_TEXTS = ("special", "first")  # findings that say nothing of images


def explain_image(classifier: ImageClassifier, image: Source, wanted: Wanted | None = None) -> Explanation:
    """Everything there is to show about the label of one image; ``wanted.output`` is the label, if not the model's."""
    wanted = wanted or Wanted()
    name = Path(image).name if isinstance(image, Path | str) else ""
    try:
        pixels = (
            image if isinstance(image, np.ndarray) else read_image(image if isinstance(image, bytes) else Path(image))
        )
    except BadImage as error:
        raise UserError(f"{named(image, 0)} cannot be used: {error}") from None
    (found,) = classifier.predict([pixels])
    label = _explained(classifier, found, wanted.output)
    how = classifier.how
    source = _source(classifier, pixels)
    picture = Picture.of(np.ascontiguousarray(pixels), name, fit=how.fit, shape=(how.size, how.size))
    explanation = _looks(classifier, source, found, label, wanted)
    explanation = replace(explanation, input=name or "an image", image=picture)
    return _measured(classifier, explanation, source, label) if wanted.measure else explanation


def _source(classifier: ImageClassifier, pixels: np.ndarray) -> Tensor:
    how = classifier.how
    fitted = fit_image(np.ascontiguousarray(pixels), how.size, how.size, how.fit)
    return classifier.source_of(fitted[None]).clone()  # a tensor that gradients may go through


def _explained(classifier: ImageClassifier, found: LabelPrediction, wanted: str | None) -> str:
    """The label that the map is about: the one asked for, the one given, or the likeliest of several."""
    if found.probabilities is None:
        if wanted is not None:
            raise UserError(f"{classifier.name} gives a number, so there is no label to explain; leave it out")
        return ""
    if wanted is not None and wanted not in found.probabilities:
        names = ", ".join(map(repr, classifier.labels.names[:10]))
        more = f" and {classifier.labels.classes - 10:,} more" if classifier.labels.classes > 10 else ""
        raise UserError(f"{classifier.name} knows no label {wanted!r}; it knows {names}{more}")
    return wanted if wanted is not None else max(found.probabilities, key=found.probabilities.__getitem__)


def said(found: LabelPrediction) -> str:
    """A label, several or a number as text."""
    if isinstance(found.label, float):
        return f"{found.label:.6g}"
    return found.label if isinstance(found.label, str) else ", ".join(found.label) or NONE


@torch.no_grad()
def _looks(
    classifier: ImageClassifier, source: Tensor, found: LabelPrediction, label: str, wanted: Wanted
) -> Explanation:
    model = classifier.model
    grid, row = Grid(model.places.height, model.places.width), Tokens((label or said(found),))
    top = wanted.top or _top(model, len(grid))
    with evaluating(model), capture(model, top=top) as trace:
        model.scores(source)
    records, stacks = _records(model, trace, row, grid)
    if not records and not wanted.measure:
        raise UserError(
            f"{classifier.name} has no attention: it reads the mean of all places. What hiding each of them costs can "
            "be measured"
        )
    ranked = tuple(
        Choice(name, share) for name, share in sorted((found.probabilities or {}).items(), key=lambda one: -one[1])
    )
    given = (found.label,) if isinstance(found.label, str) else found.label
    steps = (Step(label, (found.probabilities or {})[label], ranked[:LIKELIEST]),) if ranked else ()
    notes = []
    if classifier.labels.kind == "several":
        notes.append("all labels are given from one reading of the image, so the map is the same for each of them")
    if top is not None:
        notes.append(f"of each row inside the image only the {top} largest weights were kept")
    return Explanation(
        title=classifier.name,
        task=TASK,
        input="",
        output=said(found),
        records=tuple(records),
        stacks=tuple(stacks),
        steps=steps,
        alternatives=tuple(one for one in ranked if not isinstance(given, float) and one.text not in given),
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


def _measured(classifier: ImageClassifier, found: Explanation, source: Tensor, label: str) -> Explanation:
    model, labels = classifier.model, classifier.labels
    subject = ImageLabelSubject(
        model,
        source,
        labels.index(label) if label else 0,
        kind=labels.kind,
        temperature=classifier.temperature,
    )
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
        belief = _of_images(belief)
    return replace(
        found,
        records=(*found.records, record),
        stacks=tuple(stacks),
        belief=belief,
        notes=(*found.notes, note),
    )


def _of_images(belief: Belief) -> Belief:
    """Without what is measured of texts: an image has no special places, and its first is a corner."""
    return replace(belief, findings=tuple(one for one in belief.findings if one.key not in OF_TEXTS))


class ImageLabelSubject:
    """A model from images to labels, one image, and a label by its number, for `sightline.evidence`.

    A place is hidden by putting there what places of the training data look like on average, before the model
    normalises it; the mean of the image itself would show a little of what is hidden. What people get wrong: the
    features of a place also hold some of what stands beside it, so hiding a place hides less than covering that part of
    the image. Of a number, a cost is how far it moves, up or down alike.
    """

    row_name, column_name = "label", "place"

    def __init__(
        self, model: ImageToLabels, source: Tensor, label: int, *, kind: str = "one", temperature: float = 1.0
    ) -> None:
        self.model, self.source, self.label, self.kind, self.temperature = model, source, label, kind, temperature
        self.device = next(model.parameters()).device
        self.hideable = np.ones(self.columns, dtype=bool)
        with evaluating(model), torch.no_grad():
            self.number = float(model.scores(source.to(self.device))[0]) if kind == "number" else 0.0

    @property
    def rows(self) -> int:
        return 1

    @property
    def columns(self) -> int:
        return self.model.places.height * self.model.places.width

    def looks_at_columns(self, name: str) -> bool:
        return self.model.looks_at_source(name)

    @torch.no_grad()
    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        some = max(1, VARIANTS // self.columns)
        with evaluating(self.model):
            return torch.cat([self._read(len(part), part.to(self.device))[0] for part in keep.split(some)])

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        with evaluating(self.model), torch.enable_grad():
            found, seen = self._read(len(rows), None)
            (gradient,) = torch.autograd.grad(found.sum(), seen)
            return (gradient * seen.detach()).sum(dim=-1)

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        source = self.source.to(self.device).expand(copies, *[-1] * (self.source.dim() - 1))
        with self._seen(keep) as seen:
            scores = self.model.scores(source)
        return self._measured(scores, keep).unsqueeze(1), seen[0]

    def _measured(self, scores: Tensor, keep: Tensor | None) -> Float[Tensor, " n"]:
        if self.kind == "number":  # a gradient cannot be taken of a distance that is 0
            return scores if keep is None else -(scores - self.number).abs()
        logits = scores.double() / self.temperature
        if self.kind == "several":
            return F.logsigmoid(logits[:, self.label])
        return torch.log_softmax(logits, dim=-1)[:, self.label]

    @contextmanager
    def _seen(self, keep: Bool[Tensor, "n s"] | None) -> Iterator[list[Tensor]]:
        """Inside, the average stands in the place of what is not kept; the list gets what the model normalised."""
        seen: list[Tensor] = []

        def hide(module: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor]:
            (places,) = given
            if keep is None:
                places = places.detach().requires_grad_()
            else:
                places = torch.where(keep.unsqueeze(-1), places, self.model.blank.to(places.dtype))
            seen.append(places)
            return (places,)

        handle = self.model.normalise.register_forward_pre_hook(hide)
        try:
            yield seen
        finally:
            handle.remove()
