"""Explain one output of a model from text to text: decode fast, then read the winner once more under `capture`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import exp, prod
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sightline.attention import Attention
from sightline.data.sentences import writes_without_spaces
from sightline.data.tokenise import Tokeniser
from sightline.errors import UserError
from sightline.evidence import TextSubject, believe, choose_shift, rollout_records
from sightline.explanation import Calculation, Choice, Explanation, Stack, Step
from sightline.records import Record, Tokens
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import pad
from sightline.tasks.translator import Translator
from sightline.tasks.vectors import watch
from sightline.trace import capture
from sightline.vocabulary import END, SPELLINGS, START

SPACE = "▁"  # as a tokeniser's labels write it
LIKELIEST = 5  # choices shown for each step
KEPT = 24  # numbers of each vector: what fits beside a map
Kind = Literal["cross", "self", "causal"]
TITLES: dict[Kind, str] = {
    "cross": "From the output to the source",
    "self": "Inside the source",
    "causal": "Inside the output",
}
WHOLE = 1 << 24  # weights, over all heads; above that only the largest of each row are kept
LARGEST = 64
MEASURED = 400  # tokens; hiding each of them in turn grows with the cube


@dataclass(frozen=True)
class Wanted:
    """What to explain and how far: the model's own output unless ``output`` is given.

    ``alternatives`` is how many other outputs of the beam to name. ``top`` keeps that many weights of each row; left
    out, all are kept unless the input is long. ``shift`` is the run's own unless given. ``measure`` says whether to
    believe the map (`sightline.evidence`), which takes many more passes than the map itself.
    """

    output: str | None = None
    beam: int = 5
    alternatives: int = 3
    top: int | None = None
    shift: int | None = None
    measure: bool = True

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise UserError(f"top is {self.top}; it must be at least 1")
        if self.beam < 1 or self.alternatives < 0:
            raise UserError("beam must be at least 1 and alternatives at least 0")


def explain(translator: Translator, text: str, wanted: Wanted | None = None) -> Explanation:
    """Everything there is to show about one text."""
    wanted = wanted or Wanted()
    outputs, tokens = _outputs(translator, text, wanted)
    source_tokens = translator.source.encode([text])[0]
    found = _looks(translator, text, outputs, tokens, source_tokens, wanted)
    if not wanted.measure:
        return found
    longest = max(len(source_tokens), len(tokens))
    if longest > MEASURED:
        note = f"{longest:,} tokens are too many to measure what to make of the map, which is done up to {MEASURED:,}"
        return replace(found, notes=(*found.notes, note))
    subject = TextSubject(translator.model, [*source_tokens, END], [*tokens, END])
    return replace(found, belief=believe(subject, main_map(found), shift=found.shift))


def main_map(explanation: Explanation) -> list[Record]:
    """What is shown first: the heads of the last layer that looks at the source."""
    return explanation.of(explanation.stacks[0].names[-1])


def measured_shift(translator: Translator, texts: Sequence[str]) -> int:
    """By how many rows this model's maps should be moved when they are shown, from what a few texts say."""
    maps, subjects = {}, []
    for text in texts:
        found = explain(translator, text, Wanted(beam=1, measure=False, shift=0))
        sides = translator.source.encode([text])[0], translator.target.encode([found.output])[0]
        subject = TextSubject(translator.model, [*sides[0], END], [*sides[1], END])
        matrix = np.mean([record.matrix() for record in main_map(found)], axis=0)
        if matrix.shape == (subject.rows, subject.columns):
            maps[id(subject)] = matrix
            subjects.append(subject)
    return choose_shift(subjects, lambda subject: maps[id(subject)])


@torch.no_grad()
def _looks(
    translator: Translator,
    text: str,
    outputs: list[Prediction],
    tokens: list[int],
    source_tokens: list[int],
    wanted: Wanted,
) -> Explanation:
    columns = axis_of(translator.source, source_tokens)
    rows = axis_of(translator.target, tokens)
    model = translator.model.eval()
    source, words = pad([[*source_tokens, END]]), pad([[START, *tokens]])
    top = wanted.top or _top(translator, len(rows), len(columns))
    with watch(model) as watched, capture(model, top=top, scores=top is None) as trace:
        features, _ = model.decode(words.to(translator.device), model.begin(source.to(translator.device)))
    logs = torch.log_softmax(model.output(features[0]), dim=-1)
    if not trace.names:
        raise UserError(
            f"{translator.name} has no attention: its decoder gets one vector for the whole source, so there is "
            f"nothing that it looked at"
        )
    records: list[Record] = []
    calculations: list[Calculation] = []
    kinds = {name: _kind(translator, name) for name in trace.names}
    for name, kind in kinds.items():
        found = trace[name].records(
            rows=columns if kind == "self" else rows, columns=rows if kind == "causal" else columns
        )
        if kind == "cross":
            calculations += watched.calculations(trace.mechanisms[name], name, len(columns), KEPT)
        else:  # only what is shown step by step needs its scores
            found = [replace(record, scores=None) for record in found]
        records += found
    rolled = rollout_records([record for record in records if kinds[record.name] == "self"]) if top is None else []
    names: dict[Kind, list[str]] = {"cross": [], "self": [], "causal": []}
    for name, kind in kinds.items():
        names[kind].append(name)
    stacks = [Stack(TITLES[kind], kind, tuple(some)) for kind, some in names.items() if some]
    if rolled:
        stacks.append(Stack("Inside the source, through all layers", "self", tuple(one.name for one in rolled)))
    return Explanation(
        title=translator.name,
        task="translate",
        input=text,
        output=outputs[0].text,
        records=(*records, *rolled),
        stacks=tuple(stacks),
        steps=tuple(_steps(translator.target, logs, [*tokens, END])),
        calculations=tuple(calculations),
        alternatives=tuple(Choice(one.text, _probability(one)) for one in outputs[1:]),
        shift=translator.shift if wanted.shift is None else wanted.shift,
        notes=() if top is None else (_kept(top),),
    )


def axis_of(tokeniser: Tokeniser, tokens: Sequence[int]) -> Tokens:
    """Tokens as the labels of an axis, with the end behind them."""
    texts = [*tokeniser.spell(tokens), SPELLINGS[END]]
    special = tuple(place for place, token in enumerate([*tokens, END]) if token < len(SPELLINGS))
    return Tokens(tuple(texts), word_numbers(texts, special), special)


def word_numbers(texts: Sequence[str], special: Sequence[int]) -> tuple[int, ...] | None:
    """Which word each piece belongs to: a new one begins at a space, between letters and signs, and at a special token.

    Scripts without spaces keep their pieces, and so do vocabularies of characters: there is nothing to put together
    (None).
    """
    plain = [text for place, text in enumerate(texts) if place not in special]
    if all(len(text) == 1 for text in plain):
        return None
    numbers: list[int] = []
    before = ""
    for place, text in enumerate(texts):
        letters = text.lstrip(SPACE)
        alone = place in special or place - 1 in special
        goes_on = (
            bool(before)
            and not alone
            and not text.startswith(SPACE)
            and (_is_sign(before[-1]) == _is_sign(letters[0]))
            and not writes_without_spaces(before[-1] + letters[0])
        )
        numbers.append(numbers[-1] + (not goes_on) if numbers else 0)
        before = letters or before
    return tuple(numbers)


def _is_sign(character: str) -> bool:
    # "<0xE2>" is a byte of a character that has no piece of its own: part of a word.
    return not character.isalnum() and character not in "<>"


def _outputs(translator: Translator, text: str, wanted: Wanted) -> tuple[list[Prediction], list[int]]:
    """The output to explain with its alternatives, and the tokens that it was written with."""
    if wanted.output is not None:
        return [Prediction(wanted.output, 0.0, 0.0)], translator.target.encode([wanted.output])[0]
    best = min(1 + wanted.alternatives, wanted.beam)
    outputs = translator.predict_best([text], best, beam=wanted.beam)[0]
    return outputs, list(outputs[0].tokens)


def _kind(translator: Translator, name: str) -> Kind:
    if translator.model.looks_at_source(name):
        return "cross"
    return "self" if name.startswith("encoder.") else "causal"


def _top(translator: Translator, rows: int, columns: int) -> int | None:
    """How many weights of each row to keep; None for all of them."""
    heads = sum(prod(module.heads) for module in translator.model.modules() if isinstance(module, Attention))
    return None if heads * max(rows, columns) ** 2 <= WHOLE else LARGEST


def _steps(target: Tokeniser, logs: Tensor, written: Sequence[int]) -> Iterator[Step]:
    values, choices = logs.exp().topk(min(LIKELIEST, logs.shape[-1]), dim=-1)
    spelled = target.spell(written)
    for row, token in enumerate(written):
        names = target.spell(choices[row].tolist())
        likeliest = tuple(map(Choice, names, values[row].tolist()))
        yield Step(spelled[row], float(logs[row, token].exp()), likeliest)


def _kept(top: int) -> str:
    return f"of each row only the {top} largest weights were kept; numbers about the map are about these"


def _probability(prediction: Prediction) -> float:
    return exp(min(prediction.log_prob, 0.0))
