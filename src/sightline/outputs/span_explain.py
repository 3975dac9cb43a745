"""Explain an answer: question and text with the answer marked, and where its start and its end looked."""

from typing import Any

import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Choice, Explanation, Highlights, Span, Step
from sightline.inputs.question import NONE, Question, QuestionInput, Stretch, answer_tokens
from sightline.models.heads import SpanHead
from sightline.models.text_to_labels import Texts
from sightline.outputs.encoder_maps import Axes, Looks, Window, axis_of, look
from sightline.records import Tokens
from sightline.tasks.explain import LIKELIEST, ExplainOptions
from sightline.tasks.run import Run
from sightline.text.places import PlacedText, token_places, words_of_places
from sightline.training.steps import to_device

NOTHING = "no answer"  # what is shown where the text does not say


def explain_answer(run: Run, x: Question, options: ExplainOptions) -> Explanation:
    """Everything there is to show about one answer; ``options.output`` is other words of the text to ask for."""
    reading, output = run.input, run.output
    assert isinstance(reading, QuestionInput)
    (raw,) = run.raw([x], options=output.options({}))
    found = output.decide(x, raw)
    parts = reading.encode([x])[0]
    part, places = _explained(x, parts, found, raw.part, options.output)
    texts = to_device(reading.collate([part]), run.device)
    model: Any = run.model

    def measure(some: Texts) -> Tensor:
        return torch.log_softmax(model.scores(some).double(), dim=-1)[:, [0, 1], places]

    placed = _placed(reading, x, part)
    words = dict(enumerate(placed.words))
    window = Window(texts, range(len(part.tokens)), places, (0, 1), words, measure)
    spelled = tuple(x[at.part][at.start : at.end] for at in map(placed.place_of, placed.words))
    axes = Axes(Tokens(("start", "end")), axis_of(reading.reader, placed), Tokens(spelled), "pointer", "text")
    looks = look(model, model.model, [window], axes, options)
    likeliest = _likeliest(run, x, part, texts)
    answer = found.answer if options.output is None else options.output
    with evaluating(model), torch.no_grad():
        start, end = measure(texts)[0].exp().tolist()
    notes = ["pointers stand on the first and on the last token of the answer"] if answer else []
    if not answer:
        notes.append("the text does not say, to the model: both pointers stand on the first token of all")
    if len(parts) > 1:
        notes.append(f"the text was read in {len(parts):,} stretches; what is shown is the one with the answer")
    return Explanation(
        title=run.name,
        task=run.task.name,
        input="\t".join(x),
        output=found.answer or NOTHING,
        records=tuple(looks.records),
        stacks=tuple(looks.stacks),
        steps=(Step("start", start), Step("end", end)),
        alternatives=tuple(one for one in likeliest if one.text != (found.answer or NOTHING)),
        belief=looks.belief,
        notes=(*notes, *looks.notes),
        highlights=_highlights(x, placed, looks, answer, (start * end, likeliest), _characters(x, part, places)),
    )


def _explained(
    x: Question, parts: list[Stretch], found: Any, best: Stretch | None, asked: str | None
) -> tuple[Stretch, list[int]]:
    """The stretch to show, and the tokens on which the two pointers stand."""
    answer, start = (found.answer, found.start) if asked is None else (asked, x[1].find(asked))
    if asked is not None and (not asked.strip() or start == -1):
        raise UserError(f"{asked!r:.60} does not stand in the text: what is explained must be words of it")
    tokens = answer_tokens(x[1], ((answer,), start or 0), parts[0].places) if answer else None
    if tokens is None:
        return best or parts[0], [NONE, NONE]
    held = [one for one in parts if one.first <= tokens[0] and tokens[1] < one.behind]
    if not held:
        raise UserError(f"{answer!r:.60} is longer than what the model reads at once")
    part = best if best in held else held[0]
    assert part is not None
    return part, [part.offset + token - part.first for token in tokens]


def _placed(reading: QuestionInput, x: Question, part: Stretch) -> PlacedText:
    question, text = (token_places(reading.reader, one, number, 0, -1) for number, one in enumerate(x))
    places = [None, *question[: part.offset - 2], None, *text[part.first : part.behind], None]
    return PlacedText(x, part.tokens, places, words_of_places(x, places), [], 0)


def _characters(x: Question, part: Stretch, places: list[int]) -> tuple[int, int]:
    """Of the answer in the text; none of them where there is no answer."""
    if places == [NONE, NONE]:
        return 0, 0
    first, last = (part.first + token - part.offset for token in places)
    return part.places[first][0], part.places[last][1]


def _likeliest(run: Run, x: Question, part: Stretch, texts: Texts) -> tuple[Choice, ...]:
    """Other answers of this stretch that were likely, and that there is none, where the model may say so."""
    model: Any = run.model
    with evaluating(model), torch.no_grad():
        logits = model.scores(texts).double()
    log_probs = torch.log_softmax(logits, dim=-1)[0]
    choices = {NOTHING: float(log_probs[:, NONE].sum().exp())} if run.output.unanswered else {}  # type: ignore[attr-defined]
    logits[:, :, NONE] = torch.finfo(logits.dtype).min
    for _ in range(LIKELIEST if part.behind > part.first else 0):
        first, last = SpanHead.best(logits, run.config.longest_answer)[0].tolist()
        probability = float((log_probs[0, first] + log_probs[1, last]).exp())
        start, end = _characters(x, part, [first, last])
        choices.setdefault(x[1][start:end].strip() or NOTHING, probability)
        logits[:, 0, first] = torch.finfo(logits.dtype).min  # the next one starts elsewhere
    return tuple(Choice(text, share) for text, share in sorted(choices.items(), key=lambda one: -one[1]))


def _highlights(
    x: Question,
    placed: PlacedText,
    looks: Looks,
    answer: str,
    likely: tuple[float, tuple[Choice, ...]],
    characters: tuple[int, int],
) -> Highlights:
    """Words of both texts by what the two pointers looked at, on average; those of the answer are marked."""
    weights, spans = looks.weights.mean(axis=0), []
    for number, word in enumerate(placed.words):
        at = placed.place_of(word)
        weight = float(weights[number] if looks.main is None else weights[word].sum())
        marked = at.part == 1 and at.start < characters[1] and characters[0] < at.end
        if at.start < at.end:
            text = x[at.part][at.start : at.end]
            spans.append(Span(at.start, at.end, text, weight, part=at.part, marked=marked or None))
    return Highlights(answer or NOTHING, likely[0], likely[1], x, tuple(spans), read=len(spans))
