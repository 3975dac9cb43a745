"""Explain the label of a text: read it once under `capture`, and show the attention to words and sentences; of a linear
model, what each word contributes."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, cast

import numpy as np
import torch

from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import LabelSubject, NumberSubject, believe, rollout_records
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief, Choice, Explanation, Highlights, OutputStep, Span, Stack
from sightline.explain.thinking import repeats_map, watch_repeats
from sightline.inputs.text import TextInput
from sightline.models.encoder import PooledEncoder
from sightline.models.han import HAN
from sightline.models.heads import Labeller
from sightline.models.nb_svm import NBSVM
from sightline.models.text_to_labels import Texts
from sightline.outputs.encoder_maps import axis_of, too_many_note, top_for
from sightline.outputs.label_scores import NONE, LabelPrediction
from sightline.outputs.nb_svm import ContributionSubject
from sightline.records import Record, Tokens, TopK
from sightline.tasks.explain import LARGEST, LIKELIEST, ExplainOptions
from sightline.tasks.run import Run
from sightline.text.encoding import Text
from sightline.text.words import TextOffsets, place
from sightline.training.steps import to_device

# Hiding each token in turn grows with the square of their number, of self-attention with the cube.
MEASURED, MEASURED_BY_ALL = 1_000, 400
MOST_WORDS = 5_000  # spans; of longer texts those with the largest weights
SENTENCE_SHOWN = 60  # characters of a sentence along an axis
OVERALL, ROLLOUT, CONTRIBUTIONS = "overall", "rollout", "contributions"
Weights = np.ndarray


@dataclass(frozen=True)
class LabelExplained:
    """The prediction for a text or an image, and the label of it that is explained; a number has no label."""

    run: Run
    prediction: LabelPrediction
    label: str

    @classmethod
    def of(cls, run: Run, prediction: LabelPrediction, given: str | None) -> "LabelExplained":
        """For the given label, or for the likeliest."""
        probs = prediction.probabilities
        if probs is None:
            if given is not None:
                raise UserError(f"{run.name} gives a number, so there is no label to explain; leave it out")
            return cls(run, prediction, "")
        if given is not None and given not in probs:
            names = ", ".join(map(repr, list(probs)[:10]))
            more = f" and {len(probs) - 10:,} more" if len(probs) > 10 else ""
            raise UserError(f"{run.name} has no label {given!r}; it has {names}{more}")
        return cls(run, prediction, given if given is not None else max(probs, key=probs.__getitem__))

    @property
    def predicted(self) -> str:
        """The predicted label, several or a number as text."""
        label = self.prediction.label
        if isinstance(label, float):
            return f"{label:.6g}"
        return label if isinstance(label, str) else ", ".join(label) or NONE

    @property
    def row(self) -> Tokens:
        """The one row of a map."""
        return Tokens((self.label or self.predicted,))

    @property
    def ranked(self) -> tuple[Choice, ...]:
        """All labels, likeliest first; a number has none."""
        probs = self.prediction.probabilities or {}
        return tuple(Choice(name, prob) for name, prob in sorted(probs.items(), key=lambda one: -one[1]))

    @property
    def probability(self) -> float | None:
        probs = self.prediction.probabilities
        return None if probs is None else probs[self.label]

    def explanation(self, input: str, records: Sequence[Record], stacks: Sequence[Stack], **more: Any) -> Explanation:
        """With the one step in which the label is predicted, and the other labels as alternatives."""
        label = self.prediction.label
        given = (label,) if isinstance(label, str | float) else label
        steps = () if self.probability is None else (OutputStep(self.label, self.probability, self.ranked[:LIKELIEST]),)
        return Explanation(
            title=self.run.name,
            task=self.run.variant.stored,
            input=input,
            output=self.predicted,
            records=tuple(records),
            stacks=tuple(stacks),
            steps=steps,
            alternatives=tuple(one for one in self.ranked if one.text not in given),
            **more,
        )


@dataclass
class LabelMaps:
    """The attention of a label: ``main`` has a weight for each token, made by the attentions with these ``names``.

    Without names, ``main`` has contributions, which may be negative. ``words`` and ``sentences`` are the two levels of
    a document's; ``numbers`` is the sentence of each token (−1: none) and ``bounds`` are the characters of each
    sentence as the model counts them: a very long one is several to it.
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
    notes: tuple[str, ...] = ()


def explain_label(run: Run, text: Text, options: ExplainOptions) -> Explanation:
    """Everything there is to show about the label of one text; ``options.output`` is the label, if not the model's."""
    if not isinstance(run.input, TextInput):
        raise UserError(f"the attention of labels over {run.input.noun} cannot be shown")
    (prediction,) = run.predict([text])
    placed = place(run.input.reader, text, run.input.limit)
    explained = LabelExplained.of(run, cast("LabelPrediction", prediction), options.output)
    texts = to_device(run.input.collate([placed.tokens]), run.device)
    axis, row, model = axis_of(run.input.reader, placed), explained.row, run.model
    assert isinstance(model, Labeller | NBSVM)
    top = options.top or top_for(model, len(placed.tokens))
    with evaluating(model), torch.no_grad():
        if isinstance(model, NBSVM):
            maps = _contributed(explained, model, texts, row, axis)
        elif isinstance(model.model, HAN):
            maps = _document(model.model, texts, row, axis, placed)
        else:
            maps = _text(model, texts, row, axis, top)
    notes, belief = [*maps.notes, *_notes(run, placed, texts, top)], None
    highlights = _highlights(explained, placed, maps)
    if options.measure:
        belief, note = _measured(explained, texts, maps, placed)
        notes.append(note)
    return explained.explanation(
        "\t".join(placed.texts), maps.records, maps.stacks, notes=tuple(notes), highlights=highlights, belief=belief
    )


def _contributed(explained: LabelExplained, model: NBSVM, texts: Texts, row: Tokens, axis: Tokens) -> LabelMaps:
    """What the words of a text add to the score of the label, exactly; the map has those that speak for it."""
    index = cast("Any", explained.run.output).labels.index(explained.label)
    main, bias = model.contributions(texts)[:, index], float(model.bias[index])
    record = Record(CONTRIBUTIONS, 0, 0, row, axis, np.maximum(main, 0.0)[None].astype(np.float32))
    note = (
        "a word's contribution is its share of the weights of the n-grams that it stands in: all contributions "
        f"({main.sum():.3f}) and the bias ({bias:.3f}) sum to the score of {explained.label!r} "
        f"({main.sum() + bias:.3f}), before the temperature"
    )
    stack = Stack("Contributions for the label", "pool", (CONTRIBUTIONS,))
    return LabelMaps(main, (), "contributions for the label", [record], [stack], notes=(note,))


def _text(model: Labeller, texts: Texts, row: Tokens, axis: Tokens, top: int | None) -> LabelMaps:
    """A text that is pooled at once, or that an encoder reads."""
    inner = model.model
    encoder = inner if isinstance(inner, PooledEncoder) else None
    pooled = encoder is None or encoder.pool is not None
    last = "model.pooling" if encoder is None else "model.pool"
    if encoder is not None and not pooled:
        last = f"model.{encoder.last_attention}"
    first = encoder is not None and encoder.config.pooling == "first"
    # Pooling has one row: with as many as there are tokens it is kept whole, and what is inside works in blocks.
    most = len(axis) if pooled and top is not None else top
    selected = None if top is None else [last]
    with watch_repeats(model) as repeats, capture(model, top=most, layers=selected) as trace:
        model.scores(texts)
    if encoder is not None and not pooled:
        last = next(name for name in reversed(trace.names) if fnmatchcase(name, last))  # of the last repeat
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
    counted, shown, notes = repeats_map(repeats.last, axis, trace.names)
    maps = LabelMaps(main, (last,), about, [*own, *records, *counted], [Stack(title, "pool", ("label",)), *stacks])
    if encoder is not None and top is None and kept:
        _add_rollout(maps, records, row, axis, pooled, first)
    maps.stacks += shown
    maps.notes = tuple(notes)
    return maps


def _pooled(trace: Trace, name: str) -> Weights:
    """The mean of all queries and heads. The texts of a pair may be read one after the other: half the weight each."""
    weights = [one.weights[0].double().mean(dim=(0, 1)).cpu().numpy() for one in trace.maps if one.name == name]
    return np.mean(weights, axis=0)


def _add_rollout(
    maps: LabelMaps, records: Sequence[Record], row: Tokens, axis: Tokens, pooled: bool, first: bool
) -> None:
    """Add the same through all layers, back to the words."""
    rolled = rollout_records(records)
    matrix = rolled[-1].matrix().astype(np.float64)
    through = maps.main @ matrix if pooled else matrix[0] if first else matrix.mean(axis=0)
    maps.records += [Record(ROLLOUT, 0, 0, row, axis, through[None].astype(np.float32)), *rolled]
    maps.stacks += [
        Stack("From the label to the text, through all layers", "pool", (ROLLOUT,)),
        Stack("Inside the text, through all layers", "self", tuple(one.name for one in rolled)),
    ]


def _document(model: HAN, texts: Texts, row: Tokens, axis: Tokens, placed: TextOffsets) -> LabelMaps:
    """A document: words in their sentences, sentences in the document, and both together."""
    words, sentences, numbers = (one[0].cpu().numpy() for one in model.weights(texts))
    words, sentences = words.astype(np.float64), sentences.astype(np.float64)
    real = np.array([place is not None for place in placed.places])
    numbers = np.where(real, numbers, -1)
    count = int(numbers.max(initial=-1)) + 1
    sentences = sentences[:count]
    main = np.where(real, words, 0.0)
    if count:
        main = main * sentences[numbers]
    bounds = _bounds(placed, numbers, count)
    records = [Record(OVERALL, 0, 0, row, axis, main[None].astype(np.float32))]
    stacks = [Stack("Words of the document (× sentence)", "pool", (OVERALL,))]
    names = ("model.words", "model.sentences")
    if count:
        labels = Tokens(tuple(_short(placed.texts[0][start:end]) for start, end in bounds))
        records += [
            Record(names[0], 1, 0, labels, axis, _within(words, numbers, count)),
            Record(names[1], 2, 0, row, labels, sentences[None].astype(np.float32)),
        ]
        stacks += [Stack("Words of each sentence", "pool", names[:1])]
        stacks += [Stack("Sentences of the document", "pool", names[1:])]
    return LabelMaps(main, names, "word × sentence", records, stacks, words, sentences, numbers, bounds)


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


def _bounds(placed: TextOffsets, numbers: Weights, count: int) -> tuple[tuple[int, int], ...]:
    bounds: list[tuple[int, int] | None] = [None] * count
    for number, here in zip(numbers.tolist(), placed.places, strict=True):
        if here is not None and number >= 0:
            before = bounds[number]
            bounds[number] = (here.start, here.end) if before is None else (before[0], here.end)
    return tuple(one or (0, 0) for one in bounds)


def _short(text: str) -> str:
    return text if len(text) <= SENTENCE_SHOWN else f"{text[: SENTENCE_SHOWN - 1]}…"


def _highlights(explained: LabelExplained, placed: TextOffsets, maps: LabelMaps) -> Highlights:
    spans = []
    pair = len(placed.texts) > 1
    for word in placed.words:
        here = placed.place_of(word)
        if here.start == here.end:
            continue
        more: dict[str, Any] = {"part": here.part} if pair else {}
        if maps.words is not None and maps.numbers is not None:
            more = {"in_sentence": float(maps.words[word].sum()), "sentence": int(maps.numbers[word[0]])}
        text = placed.texts[here.part][here.start : here.end]
        spans.append(Span(here.start, here.end, text, float(maps.main[word].sum()), **more))
    read = len(spans)
    if read > MOST_WORDS:
        least = sorted((abs(one.weight) for one in spans), reverse=True)[MOST_WORDS - 1]
        spans = [one for one in spans if abs(one.weight) >= least][:MOST_WORDS]
    weights = () if maps.sentences is None else maps.sentences.tolist()
    sentences = (
        Span(start, end, placed.texts[0][start:end], weight)
        for (start, end), weight in zip(maps.bounds, weights, strict=True)
    )
    shown, ranked = explained.label or explained.predicted, explained.ranked
    unit: Any = "weight" if maps.names else "contribution"
    return Highlights(shown, explained.probability, ranked, placed.texts, tuple(spans), tuple(sentences), read, unit)


def _measured(
    explained: LabelExplained, texts: Texts, maps: LabelMaps, placed: TextOffsets
) -> tuple[Belief | None, str]:
    """Whether to believe the map, and a note on what was measured, or why nothing was."""
    output: Any = explained.run.output
    model, labels, tokens = explained.run.model, output.labels, len(placed.tokens)
    most = MEASURED_BY_ALL if isinstance(getattr(model, "model", None), PooledEncoder) else MEASURED
    if tokens > most:
        return None, too_many_note(tokens, most)
    if all(here.start == here.end for here in map(placed.place_of, placed.words)):
        return None, "there is no word in the text, so there is nothing to measure"
    column = "word" if all(len(word) == 1 for word in placed.words) else "token"
    subject: LabelSubject | ContributionSubject
    if labels.kind == "number":
        assert isinstance(model, Labeller)
        subject = NumberSubject(model, texts, maps.names, column)
        note = "what was measured is how far the number changes when something is hidden or cut"
    else:
        index, several = labels.index(explained.label), labels.kind == "several"
        if isinstance(model, NBSVM):
            if not (maps.main > 0).any():
                return None, f"no word speaks for the label {explained.label!r}, so there is nothing to measure"
            subject = ContributionSubject(model, texts, index, output.temperature, several, column)
        else:
            assert isinstance(model, Labeller)
            subject = LabelSubject(
                model, texts, index, maps.names, temperature=output.temperature, several=several, column_name=column
            )
        note = f"what was measured is how likely the model finds the label {explained.label!r}"
    weights = np.maximum(maps.main, 0.0)[None].astype(np.float64)
    belief = believe(subject, weights, about=maps.about, names=maps.names, heads=bool(maps.names))
    return belief, note


def _notes(run: Run, placed: TextOffsets, texts: Texts, top: int | None) -> list[str]:
    notes, input, output = list[str](), cast("Any", run.input), cast("Any", run.output)
    inner, linear = getattr(run.model, "model", None), isinstance(run.model, NBSVM)
    if placed.unread:
        notes.append(f"the model reads {input.limit:,} tokens of a text: {placed.unread:,} in the middle were left out")
    if len(placed.words) > MOST_WORDS:
        notes.append(f"of {len(placed.words):,} words the {MOST_WORDS:,} with the largest weights are marked")
    if top is not None and not isinstance(inner, HAN) and not linear:
        notes.append(f"of each row inside the text only the {top} largest weights were kept")
    if texts.parts is not None and not isinstance(inner, PooledEncoder) and not linear:
        notes.append("the two texts are read one after the other: each has half of the weight")
    if output.labels.kind == "several" and not linear:
        notes.append("all labels are given from one reading of the text, so the map is the same for each of them")
    return notes
