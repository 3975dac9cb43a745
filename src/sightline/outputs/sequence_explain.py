"""Explain one written text: decode fast, then read the best hypothesis once more under `capture`.

The input gives its axis (tokens, places of an image, frames), how it is shown, and how a part of it is hidden to
measure what to make of a map.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor

from sightline.decoding.options import pad
from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.copying import copy_maps
from sightline.explain.evidence import choose_shift, rollout_records
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Calculation, Choice, Copied, Explanation, OutputStep, Stack
from sightline.explain.thinking import repeats_map, watch_repeats
from sightline.explain.vectors import watch
from sightline.outputs.encoder_maps import kept_note, too_many_note, top_for
from sightline.records import Axis, Record, Slots, Tokens
from sightline.tasks.explain import LIKELIEST, ExplainOptions
from sightline.tasks.run import Run
from sightline.text.copying import SourceWords
from sightline.text.tokeniser import Tokeniser
from sightline.text.words import token_axis
from sightline.training.steps import to_device
from sightline.vocabulary import END, START

KEPT = 24  # numbers of each vector: what fits beside a map
Kind = Literal["cross", "self", "causal"]
Written = tuple[str, float]  # a text and its log-probability


def explain_sequence(run: Run, x: Any, options: ExplainOptions) -> Explanation:
    """Everything there is to show about one item."""
    parts = run.encode([x])[0]
    part = parts[0] if parts else ()
    outputs, tokens = _outputs(run, x, parts[:1], options)
    explanation = _maps(run, x, part, outputs, tokens, options)
    if len(parts) > 1:
        explanation = replace(explanation, notes=(*explanation.notes, first_part_note(len(parts))))
    most = run.input.most_measured
    longest = max(len(main_map(explanation)[0].columns), len(tokens) + 1) - 1
    if not options.measure or most is None:
        return explanation
    if longest > most:
        return replace(explanation, notes=(*explanation.notes, too_many_note(longest, most)))
    belief = run.input.believe(run.model, part, [*tokens, END], main_map(explanation), explanation.shift)
    return replace(explanation, belief=belief)


def first_part_note(parts: int) -> str:
    """The note of an item that is too long to be explained whole."""
    return f"it is read in {parts:,} parts, and the first of them is explained"


def main_map(explanation: Explanation) -> list[Record]:
    """The map that is shown first: the heads of the last layer that attends to the source."""
    return explanation.of(explanation.stacks[0].names[-1])


def measured_shift(run: Run, texts: Sequence[str]) -> int:
    """By how many rows this model's maps should be moved when they are shown, measured on a few texts."""
    maps, subjects, output = {}, [], cast("Any", run.output)
    for text in texts:
        parts = run.encode([text])[0]
        part: Any = parts[0] if parts else ()
        options = ExplainOptions(beam=1, measure=False, shift=0)
        explanation = _maps(run, text, part, *_outputs(run, text, parts, options), options)
        written = output.tokens_of([text], [explanation.output])[0]
        subject: Any = run.input.subject(run.model, part, [*written, END])  # type: ignore[attr-defined]
        matrix = np.mean([record.matrix() for record in main_map(explanation)], axis=0)
        if matrix.shape == (subject.rows, subject.columns):
            maps[id(subject)] = matrix
            subjects.append(subject)
    return choose_shift(subjects, lambda subject: maps[id(subject)])


def _outputs(run: Run, x: Any, parts: Sequence[object], options: ExplainOptions) -> tuple[list[Written], list[int]]:
    """The output to explain with its alternatives, and the tokens that it was written with."""
    if options.output is not None:
        return [(options.output, 0.0)], run.output.tokens_of([x], [options.output])[0]  # type: ignore[attr-defined]
    best = min(1 + options.alternatives, options.beam)
    raw: Any
    (raw,) = run.raw([x], parts=[parts], options=run.output.options({"beam": options.beam, "best": best}))
    return [(one.text, one.log_prob) for one in raw.predictions], list(raw.predictions[0].tokens)


@torch.no_grad()
def _maps(
    run: Run, x: Any, part: Any, outputs: list[Written], tokens: list[int], options: ExplainOptions
) -> Explanation:
    model: Any = run.model
    output: Any = run.output
    vocabulary = output.vocabulary_for(x)
    rows = token_axis(vocabulary, tokens, output.spelled)
    columns = run.input.axis(x, part) or Slots(run.input.size(part))
    source = to_device(run.input.collate([part]), run.device)
    words = pad([[START, *tokens]]).to(run.device)
    top = options.top or top_for(model, max(len(rows), len(columns)))
    capturing = capture(model, top=top, scores=top is None)
    with evaluating(model), watch(model) as watched, watch_repeats(model) as repeats, capturing as trace:
        logs = model.log_probs(source, words)[0]
    kinds = {name: _kind(model, name) for name in trace.names}
    if "cross" not in kinds.values():
        raise UserError(
            f"{run.name} has no attention: its decoder gets {run.input.decodes}, so there is no attention map"
        )
    records: list[Record] = []
    calculations: list[Calculation] = []
    for name, kind in kinds.items():
        own = _records(trace, name, kind, rows, columns)
        if kind == "cross":
            calculations += watched.calculations(trace.mechanisms[name], name, len(columns), KEPT)
        records += own
    rolled: list[Record] = []
    if top is None and isinstance(columns, Tokens):
        rolled = rollout_records([record for record in records if kinds[record.name] == "self"])
    counted, stacks, notes = repeats_map(repeats.last, columns, kinds)
    copies, extra, own_stacks = copy_maps(model, source, [*tokens, END], rows, columns)
    counted, stacks = [*counted, *extra], [*own_stacks, *stacks]
    return Explanation(
        title=run.name,
        task=run.task.name,
        output=outputs[0][0],
        records=(*records, *rolled, *counted),
        stacks=(*_stacks(kinds, rolled, run.input.source_name, output.written), *stacks),
        steps=tuple(_steps(vocabulary, logs, [*tokens, END], copies)),
        calculations=tuple(calculations),
        alternatives=tuple(Choice(text, exp(min(log_prob, 0.0))) for text, log_prob in outputs[1:]),
        shift=output.shift if options.shift is None else options.shift,
        notes=(*notes, *(() if top is None else (kept_note(top),))),
        **run.input.shown(x),
    )


def _records(trace: Trace, name: str, kind: Kind, rows: Axis, columns: Axis) -> list[Record]:
    own = trace[name].records(rows=columns if kind == "self" else rows, columns=rows if kind == "causal" else columns)
    # Only what is shown step by step needs its scores.
    return own if kind == "cross" else [replace(record, scores=None) for record in own]


def _stacks(kinds: dict[str, Kind], rolled: Sequence[Record], source: str, written: str) -> Iterator[Stack]:
    titles: dict[Kind, str] = {
        "cross": f"From the {written} to the {source}",
        "self": f"Inside the {source}",
        "causal": f"Inside the {written}",
    }
    for kind, title in titles.items():
        names = tuple(name for name, one in kinds.items() if one == kind)
        if names:
            yield Stack(title, kind, names)
    if rolled:
        yield Stack(f"Inside the {source}, through all layers", "self", tuple(one.name for one in rolled))


def _kind(model: Any, name: str) -> Kind:
    if model.attends_to_source(name):
        return "cross"
    return "causal" if name.startswith("decoder.") else "self"


def _steps(
    target: Tokeniser | SourceWords, logs: Tensor, written: Sequence[int], copies: Sequence[Copied]
) -> Iterator[OutputStep]:
    values, choices = logs.exp().topk(min(LIKELIEST, logs.shape[-1]), dim=-1)
    spelled = target.spell(written)
    for row, token in enumerate(written):
        names = target.spell(choices[row].tolist())
        likeliest = tuple(map(Choice, names, values[row].tolist()))
        yield OutputStep(spelled[row], float(logs[row, token].exp()), likeliest, copies[row] if copies else None)
