"""Explain hidden words: what the model would write for each, and where it looked."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.explanation import Choice, Explanation, Step
from sightline.inputs.plain import Masked, Plain, PlainInput
from sightline.models.masked import MaskedWords
from sightline.models.text_to_labels import Texts
from sightline.outputs.encoder_maps import Axes, Window, axis_of, look
from sightline.records import Tokens
from sightline.tasks.explain import LIKELIEST, ExplainOptions
from sightline.tasks.run import Run
from sightline.training.steps import to_device
from sightline.text.places import Place, PlacedText, token_places, words_of_places
from sightline.vocabulary import MASK_SPELLING


def explain_masks(run: Run, x: Plain, options: ExplainOptions) -> Explanation:
    """Everything there is to show about the hidden words of one text."""
    reading, model = run.input, run.model
    assert isinstance(reading, PlainInput)
    assert isinstance(model, MaskedWords)
    if options.output is not None:
        raise UserError("the word that the model would write for each <mask> is explained; leave the output out")
    text = reading.text(x)
    placed, notes = _placed(reading, text), list[str]()
    if MASK_SPELLING not in text:
        placed = _hidden(run, placed)
        notes.append("no word of the text is hidden (<mask>): these were drawn by the run's seed and hidden")
    parts = reading.parts(placed.tokens[1:-1])
    masks: list[Any] = run.raw([text], parts=[parts], options=run.output.options({"best": LIKELIEST}))[0]
    tokeniser: Any = reading.reader.tokeniser
    steps, filled = [], placed.tokens[1:-1]
    for place, ids, probs in masks:
        names = [one.strip() for one in tokeniser.decode([[token] for token in ids])]
        steps.append(Step(names[0], probs[0], tuple(map(Choice, names, probs))))
        filled[place] = ids[0]
    windows, done = [], 0
    for part in parts:
        own = masks[done : done + len(part.masks)]
        windows.append(_window(run, part, placed, range(done, done + len(own)), [ids[0] for _, ids, _ in own]))
        done += len(own)
    rows = Tokens(tuple(f"{MASK_SPELLING} {step.written}" for step in steps))
    spelled = tuple(text[at.start : at.end] for at in map(placed.place_of, placed.words))
    axes = Axes(rows, axis_of(reading.reader, placed), Tokens(spelled), "guess", "text")
    looks = look(model, model.encoder, windows, axes, options)
    return Explanation(
        title=run.name,
        task=run.task.name,
        input=text,
        output=tokeniser.decode([filled])[0],
        records=tuple(looks.records),
        stacks=tuple(looks.stacks),
        steps=tuple(steps),
        belief=looks.belief,
        notes=(*notes, *looks.notes),
    )


def _placed(reading: PlainInput, text: str) -> PlacedText:
    """The tokens of a text with masks, and where they stand in it."""
    places: list[Place | None] = [None]
    at = 0
    for number, piece in enumerate(text.split(MASK_SPELLING)):
        start = at + len(piece) - len(piece.lstrip())
        places += [None] * bool(number)
        places += token_places(reading.reader, piece.strip(), 0, start, -1)
        at += len(piece) + len(MASK_SPELLING)
    specials = reading.reader.specials
    tokens = [specials.start, *reading.with_masks(text), specials.end]
    places.append(None)
    return PlacedText((text,), tokens, places, words_of_places((text,), places), [], 0)


def _hidden(run: Run, placed: PlacedText) -> PlacedText:
    """The same with some tokens hidden, as many as in training."""
    reader = run.input.reader  # type: ignore[attr-defined]
    real = [at for at, place in enumerate(placed.places) if place is not None]
    if not real:
        raise UserError("there is nothing to explain: the text has no words")
    count = max(1, round(run.config.masking.share * len(real)))
    tokens, places = list(placed.tokens), list(placed.places)
    for at in np.random.default_rng(run.config.seed).choice(real, count, replace=False).tolist():
        tokens[at], places[at] = reader.specials.mask, None
    return PlacedText(placed.texts, tokens, places, words_of_places(placed.texts, places), [], 0)


def _window(run: Run, part: Masked, placed: PlacedText, rows: range, ids: list[int]) -> Window:
    behind = part.first + len(part.tokens) - 2  # in the text, of the tokens between start and end
    columns = [0, *range(part.first + 1, behind + 1), len(placed.tokens) - 1]
    column = {one: at for at, one in enumerate(columns)}
    words = {
        number: [column[token] for token in word]
        for number, word in enumerate(placed.words)
        if all(token in column for token in word)
    }
    model: Any = run.model

    def measure(texts: Texts) -> Tensor:
        width = texts.words.shape[1]
        places = torch.tensor([row * width + at for row in range(len(texts.words)) for at in part.masks])
        gold = torch.tensor(ids).repeat(len(texts.words))
        device = texts.words.device
        return model.log_probs(texts, places.to(device), gold.to(device)).view(len(texts.words), -1)

    return Window(to_device(run.input.collate([part]), run.device), columns, part.masks, rows, words, measure)
