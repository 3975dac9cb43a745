"""Explain one caption: decode fast, then read the winner once more under `capture`, and say where each word looked."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Num
from torch import Tensor

from sightline.data.images import BadImage
from sightline.errors import UserError
from sightline.evidence import believe
from sightline.evidence.subject import evaluating
from sightline.explanation import Calculation, Choice, Explanation, Stack, Step
from sightline.models.image_to_text import ImageToText
from sightline.picture import Picture
from sightline.records import Grid, Record
from sightline.tasks.captioner import CAPTION, Captioner
from sightline.tasks.explaining import KEPT, LIKELIEST, Wanted, axis_of
from sightline.tasks.image_sources import Source, named, pixels_of
from sightline.tasks.image_subject import PlaceSubject, of_images
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import SearchConfig, pad
from sightline.tasks.vectors import watch
from sightline.trace import capture
from sightline.vocabulary import END, START

CROSS, WITHIN = "From the caption to the image", "Inside the caption"


def explain(captioner: Captioner, image: Source, wanted: Wanted | None = None) -> Explanation:
    """Everything there is to show about one image."""
    wanted = wanted or Wanted()
    name = Path(image).name if isinstance(image, Path | str) else ""
    try:
        pixels = pixels_of(image)
        sources = captioner.read([pixels])
        for reason in sources.bad.values():
            raise BadImage(reason)
    except BadImage as error:
        raise UserError(f"{named(image, 0)} cannot be used: {error}") from None
    source = sources.read.clone()  # a tensor that gradients may go through
    outputs, tokens = _outputs(captioner, source, wanted)
    found = _looks(captioner, source, outputs, tokens, wanted)
    side = captioner.how.size
    picture = Picture.of(np.ascontiguousarray(pixels), name, fit=captioner.how.fit, shape=(side, side))
    found = replace(found, input=name or "an image", image=picture)
    if not wanted.measure:
        return found
    subject = PlaceSubject(captioner.model, source, [*tokens, END])
    main = found.of(found.stacks[0].names[-1])
    belief = believe(subject, main, shift=found.shift, special=())
    return replace(found, belief=of_images(belief))


def looks(
    captioner: Captioner, source: Num[Tensor, "n ..."], tokens: Sequence[Sequence[int]]
) -> list[Float[np.ndarray, "t s"]] | None:
    """Where each word and the end looked: the mean over the heads of the last attention that sees the image."""
    model = captioner.model
    words = pad([[START, *some] for some in tokens]).to(captioner.device)
    with evaluating(model), torch.no_grad(), capture(model) as trace:
        model.decode(words, model.begin(source.clone().to(captioner.device)))
    names = [name for name in trace.names if model.looks_at_source(name)]
    if not names:
        return None
    weights = trace[names[-1]].weights.mean(dim=1).float().cpu().numpy()
    return [weights[row, : len(some) + 1] for row, some in enumerate(tokens)]


def _outputs(captioner: Captioner, source: Tensor, wanted: Wanted) -> tuple[list[Prediction], list[int]]:
    """The caption to explain with its alternatives, and the tokens that it was written with."""
    if wanted.output is not None:
        tokens = captioner.tokeniser.encode([wanted.output])[0]
        return [Prediction(wanted.output, 0.0, 0.0)], tokens
    best = min(1 + wanted.alternatives, wanted.beam)
    outputs = captioner.search_read(source, SearchConfig(beam=wanted.beam, best=best))[0]
    return outputs, list(outputs[0].tokens)


@torch.no_grad()
def _looks(
    captioner: Captioner, source: Tensor, outputs: list[Prediction], tokens: list[int], wanted: Wanted
) -> Explanation:
    model, places = captioner.model, captioner.places
    rows, columns = axis_of(captioner.tokeniser, tokens), Grid(places.height, places.width)
    words = pad([[START, *tokens]]).to(captioner.device)
    top = wanted.top
    with evaluating(model), watch(model) as watched, capture(model, top=top, scores=top is None) as trace:
        features, _ = model.decode(words, model.begin(source.to(captioner.device)))
        logs = torch.log_softmax(model.output(features[0]), dim=-1)
    if not any(model.looks_at_source(name) for name in trace.names):
        raise UserError(
            f"{captioner.name} has no attention: its decoder gets the mean of all places, so there is nothing that it "
            "looked at"
        )
    records: list[Record] = []
    calculations: list[Calculation] = []
    names: dict[str, list[str]] = {"cross": [], "causal": [], "self": []}
    for name in trace.names:
        kind = _kind(model, name)
        names[kind].append(name)
        found = trace[name].records(
            rows=columns if kind == "self" else rows, columns=rows if kind == "causal" else columns
        )
        if kind == "cross":
            calculations += watched.calculations(trace.mechanisms[name], name, len(columns), KEPT)
        else:  # only what is shown step by step needs its scores
            found = [replace(record, scores=None) for record in found]
        records += found
    stacks = [Stack(CROSS, "cross", tuple(names["cross"]))]
    if names["causal"]:
        stacks.append(Stack(WITHIN, "causal", tuple(names["causal"])))
    if names["self"]:
        stacks.append(Stack("Inside the image", "self", tuple(names["self"])))
    return Explanation(
        title=captioner.name,
        task=CAPTION,
        input="",
        output=outputs[0].text,
        records=tuple(records),
        stacks=tuple(stacks),
        steps=tuple(_steps(captioner, logs, [*tokens, END])),
        calculations=tuple(calculations),
        alternatives=tuple(Choice(one.text, exp(min(one.log_prob, 0.0))) for one in outputs[1:]),
        shift=wanted.shift or 0,
    )


def _kind(model: ImageToText, name: str) -> str:
    if model.looks_at_source(name):
        return "cross"
    return "causal" if name.startswith("decoder.") else "self"


def _steps(captioner: Captioner, logs: Tensor, written: Sequence[int]) -> Iterator[Step]:
    values, choices = logs.exp().topk(min(LIKELIEST, logs.shape[-1]), dim=-1)
    spelled = captioner.tokeniser.spell(written)
    for row, token in enumerate(written):
        names = captioner.tokeniser.spell(choices[row].tolist())
        yield Step(spelled[row], float(logs[row, token].exp()), tuple(map(Choice, names, values[row].tolist())))
