"""Word alignment by attention: where the model attends while it is forced to write a given target.

One teacher-forced pass gives, for every word of the target, weights over the words of the source: those of the tokens,
summed over the tokens of a source word and averaged over those of a target word. The end of the source is not a word.
`sightline.align.choosing` chooses the layer, head and shift.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
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
from sightline.attention.tap import Look, Tap, open_tap, repeat_suffix, suffix_of
from sightline.decoding.options import pad
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.explain.evidence.measures import SHIFTS
from sightline.explain.evidence.subject import evaluating
from sightline.text.tokeniser import Tokeniser
from sightline.text.words import Cutting, covered_words, word_spans
from sightline.vocabulary import END, START

if TYPE_CHECKING:
    from sightline.tasks.run import Run

BATCH_TOKENS = 2048  # of the longer side of a batch
BATCH_CELLS = 1 << 21  # target × source tokens of a batch: bounds the memory of long pairs
LONGEST = 2000  # tokens of either side; the weights of a longer pair would not fit into memory
DEFAULT: Symmetrising = "grow-diag-final-and"
Cuttings = tuple[Cutting, Cutting]
Pair = tuple[str, str]


@dataclass(frozen=True)
class MapSelector:
    """An attention map: the attention of this ``name``, one ``head`` or the mean of all (None), and the shift.

    ``shift`` is by how many rows the map is moved down: with −1, a word is linked by the row after the one that wrote
    it, which is the row that reads it.
    """

    name: str
    head: int | None
    shift: int

    def __str__(self) -> str:
        return f"{self.name}:{'mean' if self.head is None else self.head}:{self.shift}"

    @classmethod
    def parse(cls, text: str) -> "MapSelector":
        """The inverse of ``str``, for text such as ``decoder.2.cross:mean:-1``."""
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
    """The tokenisers of source and target; only runs from text to text have both."""
    sides = [getattr(one, "tokeniser", None) for one in (run.input, run.output)]
    if not all(isinstance(one, Tokeniser) for one in sides):
        raise UserError(f"{run.name} is a run of {run.task.name}; words are aligned by runs from text to text")
    return sides[0], sides[1]  # type: ignore[return-value]


class Side(NamedTuple):
    """A text as tokens and as words; ``covered`` are (token, word, share of the token) of all tokens."""

    ids: list[int]
    words: tuple[str, ...]
    covered: list[tuple[int, int, float]]


def sides_of(tokeniser: Tokeniser, texts: Sequence[str], cutting: Cutting) -> list[Side]:
    """The texts with their words; a token that covers several words (of a script without spaces) belongs to each."""
    sides = []
    for text, ids in zip(texts, tokeniser.encode(list(texts)), strict=True):
        words = word_spans(text, cutting)
        pieces = [span for _, span in tokeniser.pieces(text)]
        sides.append(Side(ids, tuple(text[start:end] for start, end in words), covered_words(pieces, words)))
    return sides


class Attentions(NamedTuple):
    """The attentions from target to source, first layer first, and how many heads each has."""

    modules: dict[str, nn.Module]
    heads: dict[str, int]

    def selectors(self, shifts: Sequence[int] = SHIFTS) -> list[MapSelector]:
        """Every map: of each attention the mean of its heads, then each head if there are several."""
        return [
            MapSelector(name, head, shift)
            for name, count in self.heads.items()
            for head in (None, *range(count if count > 1 else 0))
            for shift in shifts
        ]

    def check(self, selector: MapSelector) -> MapSelector:
        """The selector, if this model has the map."""
        name, head = selector.name, selector.head
        if name not in self.heads:
            raise UserError(f"no attention to the source is named {name!r}; there is {', '.join(self.heads)}")
        if head is not None and head >= self.heads[name]:
            raise UserError(f"{name} has {self.heads[name]} heads, counted from 0; found {head}")
        return selector


@torch.inference_mode()
def attentions_to_source(run: "Run") -> Attentions:
    """Every attention from target to source, found by one pass over an empty pair."""
    tokenisers(run)
    model: Any = run.model
    device = run.device
    with evaluating(model), capture(model) as trace:
        model.decode(torch.tensor([[START]], device=device), model.begin(torch.tensor([[END]], device=device)))
    names = [name for name in trace.names if model.attends_to_source(name)]
    if not names:
        raise UserError(
            f"{run.name} has no attention: its decoder gets one vector for the whole source, so there is "
            f"nothing to align by; train a transformer, rnnsearch, luong or grammar"
        )
    heads = {name: trace[name].weights.shape[1] for name in names}
    return Attentions({name: trace.mechanisms[name] for name in names}, heads)


class _Enough(Exception):  # noqa: N818 - no error
    """All weights are captured: the rest of the pass is not needed."""


class _Watch(Tap):
    """Keeps the weights of some attentions, as `b h t s`, and ends the pass when it has the rows of all of them."""

    def __init__(self, modules: dict[str, nn.Module], rows: int) -> None:
        self._names = {(id(module), suffix_of(name)): name for name, module in modules.items()}
        self._rows, self._waiting = rows, len(modules)
        self._parts: dict[str, list[Tensor]] = {name: [] for name in modules}

    def __call__(self, look: Look) -> Tensor:
        name = self._names.get((id(look.mechanism), repeat_suffix()))
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


def weights_of_words(
    run: "Run", sources: Sequence[Side], targets: Sequence[Side], selectors: Sequence[MapSelector]
) -> Iterator[tuple[int, Float[np.ndarray, "n t s"]]]:
    """For every pair its number and the weights of each map, target words × source words. Not in order.

    Pairs of similar length share a batch. Pairs with an empty side are omitted.
    """
    there = attentions_to_source(run)
    modules = {there.check(selector).name: there.modules[selector.name] for selector in selectors}
    for rows in _batches(sources, targets):
        some, others = [sources[row] for row in rows], [targets[row] for row in rows]
        together = _weights_of_batch(run, some, others, selectors, modules)
        for index, row in enumerate(rows):
            yield row, together[index, :, : len(others[index].words), : len(some[index].words)]


@torch.inference_mode()
def _weights_of_batch(
    run: "Run",
    sources: Sequence[Side],
    targets: Sequence[Side],
    selectors: Sequence[MapSelector],
    modules: dict[str, nn.Module],
) -> Float[np.ndarray, "b n t s"]:
    source = pad([[*side.ids, END] for side in sources]).to(run.device)
    # The end is written too: a map that is moved up gives the last word that row.
    words = pad([[START, *side.ids] for side in targets]).to(run.device)
    model: Any = run.model
    watch = _Watch(modules, words.shape[1])
    with evaluating(model):
        state = model.begin(source)
        with suppress(_Enough), open_tap(watch):
            model.decode(words, state)
    summing = _summing(sources, source.shape[1]).to(run.device)
    averaging = {
        shift: _averaging(targets, words.shape[1], shift).to(run.device)
        for shift in {selector.shift for selector in selectors}
    }
    # The columns first, once for all maps of an attention: a shift moves rows only.
    of_source = {name: watch[name].float() @ summing.unsqueeze(1) for name in modules}
    maps = []
    for selector in selectors:
        weights = of_source[selector.name]
        head = weights.mean(dim=1) if selector.head is None else weights[:, selector.head]
        maps.append(averaging[selector.shift] @ head)
    return torch.stack(maps, dim=1).cpu().numpy()


def _batches(sources: Sequence[Side], targets: Sequence[Side]) -> Iterator[list[int]]:
    """Pairs of similar length together, the longest first; without those that have nothing to link."""
    lengths = [(max(len(a.ids), len(b.ids)) + 1, len(b.ids)) for a, b in zip(sources, targets, strict=True)]
    linkable = [row for row, (a, b) in enumerate(zip(sources, targets, strict=True)) if a.words and b.words]
    order = sorted(linkable, key=lambda row: lengths[row], reverse=True)
    start = 0
    while start < len(order):
        longest = lengths[order[start]][0]
        rows = max(1, min(BATCH_TOKENS // longest, BATCH_CELLS // longest**2))
        yield order[start : start + rows]
        start += rows


def _summing(sides: Sequence[Side], pieces: int) -> Float[Tensor, "b p w"]:
    """The matrix that sums weights over the tokens of a word."""
    cells = [(row, *cell) for row, side in enumerate(sides) for cell in side.covered]
    return _filled((len(sides), pieces, max(len(side.words) for side in sides)), cells)


def _averaging(sides: Sequence[Side], rows: int, shift: int) -> Float[Tensor, "b w p"]:
    """The matrix that averages rows of a shifted map over the tokens of a word, without tokens that get no row."""
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

    ``weights`` are those of the links in the chosen map, ``reverse_weights`` in that of the other direction.
    ``forward`` and ``backward`` are the links of each direction alone.
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
        """The agreement of both directions."""
        return agreement_of(self.forward, self.backward or frozenset())

    def symmetrised(self, method: Symmetrising) -> Links:
        """The links of both directions combined by another method."""
        return self.forward if self.backward is None else symmetrised(self.forward, self.backward, method)

    def to_json(self) -> dict[str, object]:
        data = {"source_words": self.source, "target_words": self.target, "links": self.links, "weights": self.weights}
        return {**data} if self.reverse_weights is None else {**data, "reverse_weights": self.reverse_weights}


@dataclass(frozen=True)
class Aligner:
    """Aligns pairs by the selected map of one direction, or of two directions that are combined.

    A link needs more weight than ``threshold`` in its direction. ``cuttings`` are how the words of each side are
    separated.
    """

    run: "Run"
    selector: MapSelector
    reverse: "Run | None" = None
    reverse_selector: MapSelector | None = None
    symmetrise: Symmetrising = DEFAULT
    threshold: float = 0.0
    cuttings: Cuttings = ("spaces", "spaces")

    def __post_init__(self) -> None:
        if (self.reverse is None) != (self.reverse_selector is None):
            raise UserError("give a run in the other direction together with its map, or neither")
        if not 0 <= self.threshold < 1:
            raise UserError(f"threshold is {self.threshold}; it is a weight, at least 0 and below 1")

    def align(self, pairs: Sequence[Pair]) -> list[Alignment | None]:
        """An alignment for each pair, in order; None for a pair longer than `LONGEST`."""
        forward = self._direction(self.run, self.selector, pairs, self.cuttings)
        if self.reverse is None or self.reverse_selector is None:
            return [one and self._alignment(one, None) for one in forward]
        turned = [(target, source) for source, target in pairs]
        backward = self._direction(self.reverse, self.reverse_selector, turned, (self.cuttings[1], self.cuttings[0]))
        return [
            None if one is None or other is None else self._alignment(one, other)
            for one, other in zip(forward, backward, strict=True)
        ]

    def _direction(
        self, run: "Run", selector: MapSelector, pairs: Sequence[Pair], cuttings: Cuttings
    ) -> list["_WordWeights | None"]:
        """The words and weights of each pair; None if it is too long."""
        source, target = tokenisers(run)
        sources = sides_of(source, [text for text, _ in pairs], cuttings[0])
        targets = sides_of(target, [text for _, text in pairs], cuttings[1])
        both = list(enumerate(zip(sources, targets, strict=True)))
        fitting = [(number, a, b) for number, (a, b) in both if max(len(a.ids), len(b.ids)) <= LONGEST]
        of_pairs: list[_WordWeights | None] = [None] * len(pairs)
        for number, a, b in fitting:
            of_pairs[number] = _WordWeights(a.words, b.words, np.zeros((len(b.words), len(a.words)), dtype=np.float32))
        for index, weights in weights_of_words(run, [a for _, a, _ in fitting], [b for *_, b in fitting], [selector]):
            number, a, b = fitting[index]
            of_pairs[number] = _WordWeights(a.words, b.words, weights[0])
        return of_pairs

    def _alignment(self, one: "_WordWeights", other: "_WordWeights | None") -> Alignment:
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


class _WordWeights(NamedTuple):
    """The words of a pair, and the weights between them, target × source."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: np.ndarray
