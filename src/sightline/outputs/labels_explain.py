"""Explain the label of a text: read it once under `capture`, and say which words and sentences were looked at."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import LabelSubject, NumberSubject, believe, rollout_records
from sightline.explain.evidence.measures import leave_one_out
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief, Choice, Explanation, Highlights, Span, Stack, Step
from sightline.models.encoder import Encoder
from sightline.models.han import HAN
from sightline.models.heads import Labeller
from sightline.models.image_to_labels import ImageToLabels
from sightline.models.text_to_labels import Texts
from sightline.nn.transformer import EncoderLayer
from sightline.outputs.encoder_maps import axis_of, top_for
from sightline.outputs.image_subject import ImageLabelSubject, of_images
from sightline.outputs.label_reports import NONE
from sightline.outputs.labels import LabelPrediction
from sightline.records import Grid, Record, Tokens, TopK
from sightline.tasks.explain import LARGEST, LIKELIEST, WHOLE, ExplainOptions
from sightline.tasks.run import Run
from sightline.text.encoding import Text
from sightline.text.words import PlacedText, place
from sightline.training.steps import to_device

# A predicted label as explanations show it, of a text or of an image: what is explained, and the other labels.


def explained_label(run: Run, prediction: LabelPrediction, asked: str | None) -> str:
    """The label that the map is about: the one asked for, the one given, or the likeliest of several."""
    probs = prediction.probabilities
    if probs is None:
        if asked is not None:
            raise UserError(f"{run.name} gives a number, so there is no label to explain; leave it out")
        return ""
    if asked is not None and asked not in probs:
        names = ", ".join(map(repr, list(probs)[:10]))
        more = f" and {len(probs) - 10:,} more" if len(probs) > 10 else ""
        raise UserError(f"{run.name} knows no label {asked!r}; it knows {names}{more}")
    return asked if asked is not None else max(probs, key=probs.__getitem__)


def shown_label(prediction: LabelPrediction) -> str:
    """A label, several or a number as text."""
    if isinstance(prediction.label, float):
        return f"{prediction.label:.6g}"
    return prediction.label if isinstance(prediction.label, str) else ", ".join(prediction.label) or NONE


def ranked(prediction: LabelPrediction) -> tuple[Choice, ...]:
    """All labels, likeliest first; a number has none."""
    probs = prediction.probabilities or {}
    return tuple(Choice(name, prob) for name, prob in sorted(probs.items(), key=lambda one: -one[1]))


def label_steps(prediction: LabelPrediction, label: str) -> tuple[Step, ...]:
    """The one step in which a label is written; a number has none."""
    if prediction.probabilities is None:
        return ()
    return (Step(label, prediction.probabilities[label], ranked(prediction)[:LIKELIEST]),)


def other_labels(prediction: LabelPrediction) -> tuple[Choice, ...]:
    """The labels that were not given, likeliest first."""
    given = (prediction.label,) if isinstance(prediction.label, str) else prediction.label
    return () if isinstance(given, float) else tuple(one for one in ranked(prediction) if one.text not in given)


# Hiding each token in turn grows with the square of their number, of self-attention with the cube.
MEASURED, MEASURED_BY_ALL = 1_000, 400
MOST_WORDS = 5_000  # spans; of longer texts those with the largest weights
SENTENCE_SHOWN = 60  # characters of a sentence along an axis
OVERALL, ROLLOUT = "overall", "rollout"
Weights = np.ndarray


@dataclass
class Looks:
    """Where a model looked: ``main`` has a weight for each token, made by the attentions with these ``names``.

    ``words`` and ``sentences`` are the two levels of a document's; ``numbers`` is the sentence of each token (−1: none)
    and ``bounds`` are the characters of each sentence as the model counts them: a very long one is several to it.
    """

    main: Weights
    names: tuple[str, ...]
    about: str
    records: list[Record]
    stacks: list[Stack]
    words: Weights | None = None
    sentences: Weights | None = None
    numbers: Weights | None = None
    bounds: tuple[tuple[int, int], ...] = ()


def explain_label(run: Run, text: Text, options: ExplainOptions) -> Explanation:
    """Everything there is to show about the label of one text; ``options.output`` is the label, if not the model's."""
    reading: Any = run.input
    (prediction,) = run.predict([text])
    placed = place(reading.reader, text, reading.limit)
    label = explained_label(run, prediction, options.output)
    texts = to_device(reading.collate([placed.tokens]), run.device)
    axis = axis_of(cast("Any", run.input).reader, placed)
    model = run.model
    assert isinstance(model, Labeller)
    row = Tokens((label or shown_label(prediction),))
    top = options.top or top_for(model, len(placed.tokens))
    with evaluating(model), torch.no_grad():
        looks = _document(model, texts, row, axis, placed) if isinstance(model.model, HAN) else None
        if looks is None:
            looks = _text(model, texts, row, axis, top)
    explanation = Explanation(
        title=run.name,
        task=run.variant.stored,
        input="\t".join(placed.texts),
        output=shown_label(prediction),
        records=tuple(looks.records),
        stacks=tuple(looks.stacks),
        steps=label_steps(prediction, label),
        alternatives=other_labels(prediction),
        notes=tuple(_notes(run, placed, texts, top)),
        highlights=_highlights(prediction, label, placed, looks),
    )
    return _measured(run, explanation, texts, looks, label, placed) if options.measure else explanation


def _text(model: Labeller, texts: Texts, row: Tokens, axis: Tokens, top: int | None) -> Looks:
    """A text that is pooled at once, or that an encoder reads."""
    inner = model.model
    encoder = inner if isinstance(inner, Encoder) else None
    pooled = encoder is None or encoder.pool is not None
    last = "model.pooling" if encoder is None else "model.pool"
    if encoder is not None and not pooled:
        last = f"model.layers.{len(encoder.layers) - 1}.attention"
    first = encoder is not None and encoder.config.pooling == "first"
    # Pooling has one row: with as many as there are tokens it is kept whole, and what is inside works in blocks.
    most = len(axis) if pooled and top is not None else top
    with capture(model, top=most, layers=None if top is None else [last]) as trace:
        model.scores(texts)
    kept = [name for name in trace.names if name not in ("model.pooling", "model.pool")]
    records = [one for name in kept for one in trace[name].records(rows=axis, columns=axis)]
    stacks = [Stack("Inside the text", "self", tuple(kept))] if kept else []
    if pooled:
        main, about = _pooled(trace, last), "what reads the text"
    else:
        matrix = np.mean([one.matrix() for one in records if one.name == last], axis=0).astype(np.float64)
        main = matrix[0] if first else matrix.mean(axis=0)
        heads = len(trace[last].heads)
        rows = "from the first token" if first else "mean of all tokens"
        about = f"last layer, mean of {heads} heads, {rows}"
    title = "From the label to the text" if pooled else f"From the label to the text ({about})"
    own = [Record("label", 0, 0, row, axis, main[None].astype(np.float32))]
    looks = Looks(main, (last,), about, [*own, *records], [Stack(title, "pool", ("label",)), *stacks])
    if encoder is not None and top is None and kept:
        _add_rollout(looks, records, row, axis, pooled, first)
    return looks


def _pooled(trace: Trace, name: str) -> Weights:
    """The mean of all queries and heads. The texts of a pair may be read one after the other: half the weight each."""
    maps = [found.weights[0].double().mean(dim=(0, 1)).cpu().numpy() for found in trace.maps if found.name == name]
    return np.mean(maps, axis=0)


def _add_rollout(looks: Looks, records: Sequence[Record], row: Tokens, axis: Tokens, pooled: bool, first: bool) -> None:
    """The same through all layers, back to the words; one more map to look at."""
    rolled = rollout_records(records)
    matrix = rolled[-1].matrix().astype(np.float64)
    through = looks.main @ matrix if pooled else matrix[0] if first else matrix.mean(axis=0)
    looks.records += [Record(ROLLOUT, 0, 0, row, axis, through[None].astype(np.float32)), *rolled]
    looks.stacks += [
        Stack("From the label to the text, through all layers", "pool", (ROLLOUT,)),
        Stack("Inside the text, through all layers", "self", tuple(one.name for one in rolled)),
    ]


def _document(model: Labeller, texts: Texts, row: Tokens, axis: Tokens, placed: PlacedText) -> Looks:
    """A document: words in their sentences, sentences in the document, and both together."""
    assert isinstance(model.model, HAN)
    found = model.model.weights(texts)
    words, sentences = (one[0].double().cpu().numpy() for one in found[:2])
    numbers = found[2][0].cpu().numpy()
    real = np.array([place is not None for place in placed.places])
    numbers = np.where(real, numbers, -1)
    count = int(numbers.max(initial=-1)) + 1
    sentences = sentences[:count]
    main = np.where(real, words, 0.0)
    if count:
        main = main * sentences[numbers]
    bounds = _bounds(placed, numbers, count)
    labels = Tokens(tuple(_short(placed.texts[0][start:end]) for start, end in bounds))
    within = _within(words, numbers, count)
    records = [Record(OVERALL, 0, 0, row, axis, main[None].astype(np.float32))]
    stacks = [Stack("Words of the document (× sentence)", "pool", (OVERALL,))]
    if count:
        records += [
            Record("model.words", 1, 0, labels, axis, within),
            Record("model.sentences", 2, 0, row, labels, sentences[None].astype(np.float32)),
        ]
        stacks += [
            Stack("Words of each sentence", "pool", ("model.words",)),
            Stack("Sentences of the document", "pool", ("model.sentences",)),
        ]
    names = ("model.words", "model.sentences")
    return Looks(main, names, "word × sentence", records, stacks, words, sentences, numbers, bounds)


def _within(words: Weights, numbers: Weights, count: int) -> TopK:
    """A row for each sentence, of its largest weights: memory grows with the words alone."""
    sizes = np.bincount(numbers[numbers >= 0], minlength=count)
    width = int(min(sizes.max(initial=1), LARGEST))
    places, weights = np.full((count, width), -1, np.int32), np.zeros((count, width), np.float32)
    at = np.flatnonzero(numbers >= 0)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    for number in range(count):
        own = at[starts[number] : starts[number + 1]]
        best = own[np.argsort(-words[own], kind="stable")[:width]]
        places[number, : len(best)], weights[number, : len(best)] = best, words[best]
    return TopK(places, weights, len(numbers))


def _bounds(placed: PlacedText, numbers: Weights, count: int) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int] | None] = [None] * count
    for number, here in zip(numbers.tolist(), placed.places, strict=True):
        if here is not None and number >= 0:
            before = found[number]
            found[number] = (here.start, here.end) if before is None else (before[0], here.end)
    return tuple(one or (0, 0) for one in found)


def _short(text: str) -> str:
    return text if len(text) <= SENTENCE_SHOWN else f"{text[: SENTENCE_SHOWN - 1]}…"


def _highlights(prediction: LabelPrediction, label: str, placed: PlacedText, looks: Looks) -> Highlights:
    spans = []
    pair = len(placed.texts) > 1
    for word in placed.words:
        here = placed.place_of(word)
        if here.start == here.end:
            continue
        weight = float(looks.main[word].sum())
        more: dict[str, Any] = {"part": here.part} if pair else {}
        if looks.words is not None and looks.numbers is not None:
            more = {"in_sentence": float(looks.words[word].sum()), "sentence": int(looks.numbers[word[0]])}
        spans.append(Span(here.start, here.end, placed.texts[here.part][here.start : here.end], weight, **more))
    read = len(spans)
    if read > MOST_WORDS:
        least = sorted((one.weight for one in spans), reverse=True)[MOST_WORDS - 1]
        spans = [one for one in spans if one.weight >= least][:MOST_WORDS]
    sentences = []
    if looks.sentences is not None:
        for (start, end), weight in zip(looks.bounds, looks.sentences.tolist(), strict=True):
            sentences.append(Span(start, end, placed.texts[0][start:end], weight))
    probability = None if prediction.probabilities is None else prediction.probabilities[label]
    shown = label or shown_label(prediction)
    return Highlights(shown, probability, ranked(prediction), placed.texts, tuple(spans), tuple(sentences), read)


def _measured(run: Run, found: Explanation, texts: Texts, looks: Looks, label: str, placed: PlacedText) -> Explanation:
    output: Any = run.output
    model, labels = run.model, output.labels
    assert isinstance(model, Labeller)
    tokens = len(placed.tokens)
    most = MEASURED_BY_ALL if isinstance(model.model, Encoder) else MEASURED
    if tokens > most:
        note = f"{tokens:,} tokens are too many to measure what to make of the map, which is done up to {most:,}"
        return replace(found, notes=(*found.notes, note))
    if found.highlights is None or not found.highlights.words:
        return replace(found, notes=(*found.notes, "there is no word in the text, so there is nothing to measure"))
    column = "word" if all(len(word) == 1 for word in placed.words) else "token"
    subject: LabelSubject
    if labels.kind == "number":
        subject = NumberSubject(model, texts, looks.names, column)
        note = "what was measured is how far the number changes when something is hidden or cut"
    else:
        subject = LabelSubject(
            model,
            texts,
            labels.index(label),
            looks.names,
            temperature=output.temperature,
            several=labels.kind == "several",
            column_name=column,
        )
        note = f"what was measured is how likely the model finds the label {label!r}"
    return replace(found, belief=_belief(subject, looks), notes=(*found.notes, note))


def _belief(subject: LabelSubject, looks: Looks) -> Belief:
    return believe(subject, looks.main[None].astype(np.float64), about=looks.about, names=looks.names)


def _notes(run: Run, placed: PlacedText, texts: Texts, top: int | None) -> list[str]:
    found, reading, output = list[str](), cast("Any", run.input), cast("Any", run.output)
    inner = cast("Any", run.model).model
    if placed.unread:
        found.append(
            f"the model reads {reading.limit:,} tokens of a text: {placed.unread:,} in the middle were left out"
        )
    if len(placed.words) > MOST_WORDS:
        found.append(f"of {len(placed.words):,} words the {MOST_WORDS:,} with the largest weights are marked")
    if top is not None and not isinstance(inner, HAN):
        found.append(f"of each row inside the text only the {top} largest weights were kept")
    if texts.parts is not None and not isinstance(inner, Encoder):
        found.append("the two texts are read one after the other: each has half of the weight")
    if output.labels.kind == "several":
        found.append("all labels are given from one reading of the text, so the map is the same for each of them")
    return found


# Explain the label of an image: where the model looked, and what it costs to hide each place.


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
