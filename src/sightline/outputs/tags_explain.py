"""Explain the tags of a sentence: each word with its tag, where that looked, and which words it depends on."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.explanation import Choice, Explanation, Step
from sightline.inputs.words import Cut, Words, WordsInput, cut_words, piece_places
from sightline.models.text_to_labels import Texts
from sightline.outputs.encoder_maps import Axes, Window, axis_of, look
from sightline.records import Tokens
from sightline.tasks.explain import LIKELIEST, ExplainOptions
from sightline.tasks.run import Run
from sightline.training.steps import to_device
from sightline.text.places import Place, PlacedText
from sightline.text.windows import owners


def explain_tags(run: Run, x: Words, options: ExplainOptions) -> Explanation:
    """Everything there is to show about the tags of one sentence; ``options.output`` is a tag to ask for instead."""
    reading, output, model = run.input, run.output, run.model
    labels = output.labels  # type: ignore[attr-defined]
    assert isinstance(reading, WordsInput)
    if not x:
        raise UserError("there is nothing to explain: the sentence has no words")
    if options.output is not None and options.output not in labels.names:
        raise UserError(f"{run.name} knows no tag {options.output!r}; it knows {', '.join(labels.names[:10])}")
    (raw,) = run.raw([x], options=output.options({}))
    tags = output.decide(x, raw).tags
    asked = tags if options.output is None else (options.output,) * len(x)
    ids = [labels.index(tag) for tag in asked]
    whole, parts = cut_words(reading.reader, [x], 1 << 30, 0)[0][0], reading.encode([x])[0]
    windows = [
        _window(run, part, whole, (start, end), ids[start:end])
        for part, (start, end) in zip(parts, owners([(one.first, one.behind) for one in parts]), strict=True)
    ]
    rows = Tokens(tuple(f"{word} {tag}" for word, tag in zip(x, asked, strict=True)))
    axes = Axes(rows, axis_of(reading.reader, _placed(reading, x, whole)), Tokens(x), "tag", "sentence")
    looks = look(model, model.model, windows, axes, options)  # type: ignore[arg-type]
    notes = ["a row is a word with its tag: what its first piece looked at"] if looks.main is not None else []
    if len(parts) > 1:
        notes.append(f"the sentence has more than {reading.config.longest:,} tokens: it was read in stretches")
    return Explanation(
        title=run.name,
        task=run.task.name,
        input=" ".join(x),
        output=" ".join(f"{word}/{tag}" for word, tag in zip(x, tags, strict=True)),
        records=tuple(looks.records),
        stacks=tuple(looks.stacks),
        steps=tuple(_step(tag, label, row, labels.names) for tag, label, row in zip(asked, ids, raw, strict=True)),
        belief=looks.belief,
        notes=(*notes, *looks.notes),
    )


def _window(run: Run, part: Cut, whole: Cut, own: tuple[int, int], ids: list[int]) -> Window:
    """A stretch of the sentence; it answers for the words ``own``."""
    numbers = range(part.first, part.behind)
    ends = [*part.places[1:], len(part.tokens) - 1]
    words = {word: list(range(*span)) for word, span in zip(numbers, zip(part.places, ends, strict=True), strict=True)}
    columns = [0] * len(part.tokens)
    for word, tokens in words.items():
        columns[tokens[0] : tokens[-1] + 1] = range(whole.places[word], whole.places[word] + len(tokens))
    columns[-1] = len(whole.tokens) - 1
    places = part.places[own[0] - part.first : own[1] - part.first]
    model: Any = run.model

    def measure(texts: Texts) -> Tensor:
        return torch.log_softmax(model.scores(texts).double(), dim=-1)[:, places, ids]

    texts = to_device(run.input.collate([part]), run.device)
    return Window(texts, columns, places, range(*own), words, measure)


def _placed(reading: WordsInput, x: Words, whole: Cut) -> PlacedText:
    """The tokens in the sentence, words with blanks between them."""
    places: list[Place | None] = [None]
    words, at = list[list[int]](), 0
    ends = [*whole.places[1:], len(whole.tokens) - 1]
    for word, first, behind in zip(x, whole.places, ends, strict=True):
        words.append(list(range(first, behind)))
        spans = piece_places(reading.reader, word)[: behind - first] or [(0, len(word))]
        places += [Place(0, at + start, at + end) for start, end in spans]
        at += len(word) + 1
    return PlacedText((" ".join(x),), whole.tokens, [*places, None], words, [], 0)


def _step(tag: str, label: int, log_probs: np.ndarray, names: tuple[str, ...]) -> Step:
    order = np.argsort(-log_probs, kind="stable")[:LIKELIEST].tolist()
    likeliest = tuple(Choice(names[one], float(np.exp(log_probs[one]))) for one in order)
    return Step(tag, float(np.exp(log_probs[label])), likeliest)
