"""Word alignment by attention: where the model looked while it was made to write the target.

One teacher-forced pass gives, for every word of the target, weights over the words of the source: those of the pieces,
summed over the pieces of a source word and averaged over those of a target word. The end of the source is no word.
`sightline.align.choosing` says which layer, head and shift to read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.align.links import (
    AlignmentScore,
    Links,
    Symmetrising,
    agreement_of,
    best_columns,
    links_of,
    pharaoh,
    symmetrised,
)
from sightline.attention.tap import Look, Tap, open_tap
from sightline.decoding.options import pad
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.explain.evidence.measures import SHIFTS
from sightline.explain.evidence.subject import evaluating
from sightline.models.text_to_text import TextToText
from sightline.text.tokeniser import Tokeniser
from sightline.text.words import Cutting, covered_words, word_spans
from sightline.vocabulary import END, START

if TYPE_CHECKING:
    from sightline.tasks.run import Run

BATCH_TOKENS = 2048  # of the longer side, in work together
BATCH_CELLS = 1 << 21  # target × source tokens in work together: what bounds the memory of long pairs
LONGEST = (
    2000  # tokens of either side; the weights of a longer pair would not fit into memory, nor did training see any
)
DEFAULT: Symmetrising = "grow-diag-final-and"
Cuttings = tuple[Cutting, Cutting]
Pair = tuple[str, str]


@dataclass(frozen=True)
class Place:
    """Which weights to read: the attention of this ``name``, one ``head`` or the mean of all (None), and the shift.

    ``shift`` is by how many rows the map is moved down: with −1, a word is linked by the row behind the one that wrote
    it, which is the row that reads it.
    """

    name: str
    head: int | None
    shift: int

    def __str__(self) -> str:
        return f"{self.name}:{'mean' if self.head is None else self.head}:{self.shift}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """What ``str`` gives, such as ``decoder.2.cross:mean:-1``."""
        name, _, rest = text.partition(":")
        head, _, shift = rest.partition(":")
        if not name or not (head == "mean" or (head.isdecimal() and len(head) < 6)) or shift not in map(str, SHIFTS):
            raise UserError(
                f"found {text!r}; expected NAME:HEAD:SHIFT such as decoder.2.cross:mean:0, where HEAD is a number or "
                f"mean, and SHIFT one of {', '.join(map(str, SHIFTS))}"
            )
        return cls(name, None if head == "mean" else int(head), int(shift))

    def to_json(self) -> dict[str, Any]:
        return {"layer": self.name, "head": "mean" if self.head is None else self.head, "shift": self.shift}


def tokenisers(run: "Run") -> tuple[Tokeniser, Tokeniser]:
    """Of what a run reads and of what it writes; only runs from text to text have both."""
    sides = [getattr(one, "tokeniser", None) for one in (run.input, run.output)]
    if not all(isinstance(one, Tokeniser) for one in sides):
        raise UserError(f"{run.name} is a run of {run.task.name}; words are aligned by runs from text to text")
    return sides[0], sides[1]  # type: ignore[return-value]


class Side(NamedTuple):
    """A text as a model reads it and as its writer does: which piece covers which word, with its share."""

    ids: list[int]
    words: tuple[str, ...]
    covered: list[tuple[int, int, float]]


def sides_of(tokeniser: Tokeniser, texts: Sequence[str], cutting: Cutting) -> list[Side]:
    """The texts with their words; a piece that covers several words (of a script without spaces) belongs to each."""
    found = []
    for text, ids in zip(texts, tokeniser.encode(list(texts)), strict=True):
        words = word_spans(text, cutting)
        pieces = [span for _, span in tokeniser.pieces(text)]
        found.append(Side(ids, tuple(text[start:end] for start, end in words), covered_words(pieces, words)))
    return found


class Attentions(NamedTuple):
    """The attentions that look from the target at the source, first layer first, and how many heads each has."""

    modules: dict[str, nn.Module]
    heads: dict[str, int]

    def places(self, shifts: Sequence[int] = SHIFTS) -> list[Place]:
        """Everything that can be read: of each attention the mean of its heads, then each head where there are more."""
        found = []
        for name, count in self.heads.items():
            found += [
                Place(name, head, shift) for head in (None, *range(count if count > 1 else 0)) for shift in shifts
            ]
        return found

    def check(self, place: Place) -> Place:
        """The place, if it is there."""
        if place.name not in self.heads:
            raise UserError(f"no attention to the source is named {place.name!r}; there is {', '.join(self.heads)}")
        if place.head is not None and place.head >= self.heads[place.name]:
            raise UserError(f"{place.name} has {self.heads[place.name]} heads, counted from 0; found {place.head}")
        return place


@torch.inference_mode()
def attentions_to_source(run: "Run") -> Attentions:
    """Found by one look at nothing: the end alone."""
    tokenisers(run)
    model: Any = run.model
    device = run.device
    with evaluating(model), capture(model) as trace:
        model.decode(torch.tensor([[START]], device=device), model.begin(torch.tensor([[END]], device=device)))
    looking = [name for name in trace.names if model.looks_at_source(name)]
    if not looking:
        raise UserError(
            f"{run.name} has no attention: its decoder gets one vector for the whole source, so there is "
            f"nothing to align by; train a transformer, rnnsearch or luong"
        )
    heads = {name: trace[name].weights.shape[1] for name in looking}
    return Attentions({name: trace.mechanisms[name] for name in looking}, heads)


class _Enough(Exception):  # noqa: N818 - no error
    """Everything wanted has been seen: what the model would still compute is needed by nobody."""


class _Watch(Tap):
    """Keeps the weights of some attentions, as `b h t s`, and ends the pass when it has the rows of all of them."""

    def __init__(self, wanted: dict[str, nn.Module], rows: int) -> None:
        self._names = {id(module): name for name, module in wanted.items()}
        self._rows, self._waiting = rows, len(wanted)
        self._parts: dict[str, list[Tensor]] = {name: [] for name in wanted}

    def __call__(self, look: Look) -> Tensor:
        name = self._names.get(id(look.mechanism))
        if name is not None:
            weights = look.weights
            self._parts[name].append(weights.reshape(weights.shape[0], -1, *weights.shape[-2:]))
            if sum(part.shape[2] for part in self._parts[name]) == self._rows:
                self._waiting -= 1
        if not self._waiting:
            raise _Enough
        return look.weights

    def __getitem__(self, name: str) -> Float[Tensor, "b h t s"]:
        return torch.cat(self._parts[name], dim=2)


def _look(
    model: TextToText, source: Int[Tensor, "b s"], words: Int[Tensor, "b t"], wanted: dict[str, nn.Module]
) -> _Watch:
    state = model.begin(source)
    watch = _Watch(wanted, words.shape[1])
    try:
        with open_tap(watch):
            model.decode(words, state)
    except _Enough:
        pass
    return watch


def weights_of_words(
    run: "Run", sources: Sequence[Side], targets: Sequence[Side], places: Sequence[Place]
) -> Iterator[tuple[int, Float[np.ndarray, "n t s"]]]:
    """For every pair its number and the weights of each place, target words × source words. Not in order.

    Pairs of like length go together. Where a side has no word, nothing comes.
    """
    there = attentions_to_source(run)
    modules = {there.check(place).name: there.modules[place.name] for place in places}
    for rows in _batches(sources, targets):
        some, others = [sources[row] for row in rows], [targets[row] for row in rows]
        together = _weights_of_batch(run, some, others, places, modules)
        for index, row in enumerate(rows):
            yield row, together[index, :, : len(others[index].words), : len(some[index].words)]


@torch.inference_mode()
def _weights_of_batch(
    run: "Run",
    sources: Sequence[Side],
    targets: Sequence[Side],
    places: Sequence[Place],
    modules: dict[str, nn.Module],
) -> Float[np.ndarray, "b n t s"]:
    source = pad([[*side.ids, END] for side in sources]).to(run.device)
    # The end is written too: a map that is moved up gives the last word that row.
    words = pad([[START, *side.ids] for side in targets]).to(run.device)
    model: Any = run.model
    with evaluating(model):
        watch = _look(model, source, words, modules)
    summing = _summing(sources, source.shape[1]).to(run.device)
    averaging = {
        shift: _averaging(targets, words.shape[1], shift).to(run.device) for shift in {place.shift for place in places}
    }
    # The columns first, once for all places of an attention: only the rows are moved.
    of_source = {name: watch[name].float() @ summing.unsqueeze(1) for name in modules}
    found = []
    for place in places:
        weights = of_source[place.name]
        head = weights.mean(dim=1) if place.head is None else weights[:, place.head]
        found.append(averaging[place.shift] @ head)
    return torch.stack(found, dim=1).cpu().numpy()


def _batches(sources: Sequence[Side], targets: Sequence[Side]) -> Iterator[list[int]]:
    """Pairs of one length together, the longest first; without those that have nothing to link."""
    lengths = [(max(len(a.ids), len(b.ids)) + 1, len(b.ids)) for a, b in zip(sources, targets, strict=True)]
    there = [row for row, (a, b) in enumerate(zip(sources, targets, strict=True)) if a.words and b.words]
    order = sorted(there, key=lambda row: lengths[row], reverse=True)
    start = 0
    while start < len(order):
        longest = lengths[order[start]][0]
        rows = max(1, min(BATCH_TOKENS // longest, BATCH_CELLS // longest**2))
        yield order[start : start + rows]
        start += rows


def _summing(sides: Sequence[Side], pieces: int) -> Float[Tensor, "b p w"]:
    """What sums the weights of pieces over the pieces of a word."""
    cells = [(row, *cell) for row, side in enumerate(sides) for cell in side.covered]
    return _filled((len(sides), pieces, max(len(side.words) for side in sides)), cells)


def _averaging(sides: Sequence[Side], rows: int, shift: int) -> Float[Tensor, "b w p"]:
    """What averages the rows of a moved map over the pieces of a word; a piece that nothing moved to does not count."""
    cells = []
    for number, side in enumerate(sides):
        mine = [(word, piece - shift) for piece, word, _ in side.covered if piece >= shift]
        counts = [0] * len(side.words)
        for word, _ in mine:
            counts[word] += 1
        cells += [(number, word, row, 1 / counts[word]) for word, row in mine]
    return _filled((len(sides), max(len(side.words) for side in sides), rows), cells)


def _filled(shape: tuple[int, int, int], cells: Sequence[tuple[int, int, int, float]]) -> Tensor:
    filled = np.zeros(shape, dtype=np.float32)
    if cells:
        one, two, three, values = zip(*cells, strict=True)
        filled[one, two, three] = values
    return torch.from_numpy(filled)


@dataclass(frozen=True)
class Alignment:
    """The words of a pair and the links between them, as (source word, target word), in order.

    ``weights`` are what the chosen map of the run gives each link, ``reverse_weights`` that of the run in the other
    direction. ``forward`` and ``backward`` are the links of each direction alone.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[tuple[int, int], ...]
    weights: tuple[float, ...]
    reverse_weights: tuple[float, ...] | None
    forward: Links
    backward: Links | None

    @property
    def pharaoh(self) -> str:
        return pharaoh(self.links)

    @property
    def agreement(self) -> AlignmentScore:
        """How far both directions agree."""
        return agreement_of(self.forward, self.backward or frozenset())

    def symmetrised(self, how: Symmetrising) -> Links:
        """The links of both directions put together in another way."""
        return self.forward if self.backward is None else symmetrised(self.forward, self.backward, how)

    def to_json(self) -> dict[str, Any]:
        data = {"source_words": self.source, "target_words": self.target, "links": self.links, "weights": self.weights}
        return data if self.reverse_weights is None else {**data, "reverse_weights": self.reverse_weights}


@dataclass(frozen=True)
class Aligner:
    """Aligns pairs with places that were chosen; in one direction, or in two that are put together.

    A link needs more weight than ``threshold`` in its direction. ``cuttings`` say how the words of each side are told
    apart.
    """

    run: "Run"
    place: Place
    reverse: "Run | None" = None
    reverse_place: Place | None = None
    symmetrise: Symmetrising = DEFAULT
    threshold: float = 0.0
    cuttings: Cuttings = ("spaces", "spaces")

    def __post_init__(self) -> None:
        if (self.reverse is None) != (self.reverse_place is None):
            raise UserError("a run in the other direction and where to read it go together")
        if not 0 <= self.threshold < 1:
            raise UserError(f"threshold is {self.threshold}; it is a weight, at least 0 and below 1")

    def align(self, pairs: Sequence[Pair]) -> list[Alignment | None]:
        """An alignment for each pair, in order; None for a pair longer than `LONGEST`."""
        forward = self._direction(self.run, self.place, pairs, self.cuttings)
        if self.reverse is None or self.reverse_place is None:
            return [one and self._alignment(pair, one, None) for pair, one in zip(pairs, forward, strict=True)]
        turned = [(target, source) for source, target in pairs]
        backward = self._direction(self.reverse, self.reverse_place, turned, (self.cuttings[1], self.cuttings[0]))
        return [
            None if one is None or other is None else self._alignment(pair, one, other)
            for pair, one, other in zip(pairs, forward, backward, strict=True)
        ]

    def _direction(self, run: "Run", place: Place, pairs: Sequence[Pair], cuttings: Cuttings) -> list["_Looked | None"]:
        """Words and weights, written × read; nothing for what is too long."""
        source, target = tokenisers(run)
        sources = sides_of(source, [text for text, _ in pairs], cuttings[0])
        targets = sides_of(target, [text for _, text in pairs], cuttings[1])
        fits = [max(len(a.ids), len(b.ids)) <= LONGEST for a, b in zip(sources, targets, strict=True)]
        numbers = [number for number, one in enumerate(fits) if one]
        some, others = [sources[number] for number in numbers], [targets[number] for number in numbers]
        found: list[_Looked | None] = [None] * len(pairs)
        for number, a, b in zip(numbers, some, others, strict=True):
            found[number] = _Looked(a.words, b.words, np.zeros((len(b.words), len(a.words)), dtype=np.float32))
        for index, weights in weights_of_words(run, some, others, [place]):
            found[numbers[index]] = _Looked(some[index].words, others[index].words, weights[0])
        return found

    def _alignment(self, pair: Pair, one: "_Looked", other: "_Looked | None") -> Alignment:
        forward = links_of(best_columns(one.weights, self.threshold))
        if other is None:
            links, backward = forward, None
        else:
            turned = links_of(best_columns(other.weights, self.threshold))
            backward = frozenset((source, target) for target, source in turned)
            links = symmetrised(forward, backward, self.symmetrise)
        ordered = tuple(sorted(links))
        return Alignment(
            one.source,
            one.target,
            ordered,
            tuple(float(one.weights[target, source]) for source, target in ordered),
            None if other is None else tuple(float(other.weights[source, target]) for source, target in ordered),
            forward,
            backward,
        )


class _Looked(NamedTuple):
    """Words that were read and written, and the weights between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray
