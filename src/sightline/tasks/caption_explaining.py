"""Explain one caption: decode fast, then read the winner once more under `capture`, and say where each word looked."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from sightline.data.images import BadImage, read_image
from sightline.errors import UserError
from sightline.evidence import believe
from sightline.evidence.subject import evaluating
from sightline.explanation import Belief, Calculation, Choice, Explanation, Stack, Step
from sightline.models.image_to_text import ImageToText
from sightline.picture import Picture
from sightline.records import Grid, Record
from sightline.tasks.captioner import CAPTION, Captioner, Source
from sightline.tasks.explaining import KEPT, LIKELIEST, Wanted, axis_of
from sightline.tasks.predictor import Prediction
from sightline.tasks.searching import SearchConfig, pad
from sightline.tasks.vectors import watch
from sightline.trace import capture
from sightline.vocabulary import END, START

CROSS, WITHIN = "From the caption to the image", "Inside the caption"
VARIANTS = 4096  # places of variants that are in work together
OF_TEXTS = ("special", "first")  # findings that say nothing of images


def explain(captioner: Captioner, image: Source, wanted: Wanted | None = None) -> Explanation:
    """Everything there is to show about one image."""
    wanted = wanted or Wanted()
    name = Path(image).name if isinstance(image, Path | str) else ""
    try:
        pixels = _pixels(image)
        sources = captioner.read([pixels])
        for reason in sources.bad.values():
            raise BadImage(reason)
    except BadImage as error:
        raise UserError(f"{name or 'the image'} cannot be used: {error}") from None
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
    return replace(found, belief=_of_images(belief))


def _pixels(image: Source) -> np.ndarray:
    if isinstance(image, np.ndarray):
        return image
    return read_image(image if isinstance(image, bytes) else Path(image))


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


def _of_images(belief: Belief) -> Belief:
    """Without what is measured of texts: an image has no special places, and its first is a corner."""
    return replace(belief, findings=tuple(one for one in belief.findings if one.key not in OF_TEXTS))


class PlaceSubject:
    """A model from images to text, one image, and what was written, for `sightline.evidence`.

    A place is hidden by putting the mean of the image's places there, before the model normalises it: what is left is
    what the image is like as a whole. Deleting it would change how many places there are. What people get wrong: the
    features of a place also hold some of what stands beside it, so hiding a place hides less than covering the image.
    """

    row_name, column_name = "word", "place"

    def __init__(self, model: ImageToText, source: Num[Tensor, "1 ..."], written: Sequence[int]) -> None:
        self.model, self.source = model, source
        self.device = next(model.parameters()).device
        self.written = torch.tensor(list(written), device=self.device)
        self.hideable = np.ones(model.places.count, dtype=bool)

    @property
    def rows(self) -> int:
        return len(self.written)

    @property
    def columns(self) -> int:
        return self.model.places.count

    def looks_at_columns(self, name: str) -> bool:
        return self.model.looks_at_source(name)

    @torch.no_grad()
    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        some = max(1, VARIANTS // self.columns)
        with evaluating(self.model):
            return torch.cat([self._read(len(part), part.to(self.device))[0] for part in keep.split(some)])

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        found = []
        with evaluating(self.model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for part in torch.tensor(list(rows), device=self.device).split(max(1, VARIANTS // self.columns)):
                # One copy of the image for each row: the sum over copies has the gradients of all rows apart.
                log_probs, seen = self._read(len(part), None)
                (gradient,) = torch.autograd.grad(log_probs.gather(1, part.unsqueeze(1)).sum(), seen)
                found.append((gradient * seen.detach()).sum(dim=-1))
        return torch.cat(found)

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of what was written `n t`, and the features of the places `n s d` they were made from."""
        source = self.source.to(self.device).expand(copies, *[-1] * (self.source.dim() - 1))
        words = torch.cat([torch.tensor([START], device=self.device), self.written[:-1]]).expand(copies, -1)
        with self._seen(keep) as seen:
            state = self.model.begin(source)
        features, _ = self.model.decode(words, state)
        logs = torch.log_softmax(self.model.output(features), dim=-1)
        wanted = self.written.expand(copies, -1).unsqueeze(-1)
        return logs.gather(-1, wanted).squeeze(-1), seen[0]

    @contextmanager
    def _seen(self, keep: Bool[Tensor, "n s"] | None) -> Iterator[list[Tensor]]:
        """Inside, the model normalises the mean in the place of what is not kept; the list gets what it normalised.

        Without ``keep`` nothing changes, and what it normalises is the leaf that gradients go to.
        """
        seen: list[Tensor] = []

        def hide(module: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor]:
            (places,) = given
            if keep is None:
                places = places.detach().requires_grad_()
            else:
                places = torch.where(keep.unsqueeze(-1), places, places.mean(dim=1, keepdim=True))
            seen.append(places)
            return (places,)

        handle = self.model.normalise.register_forward_pre_hook(hide)
        try:
            yield seen
        finally:
            handle.remove()
