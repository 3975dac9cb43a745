"""The attention of single places of a text: the self-attention of their rows, the same through all layers, and what
hiding each word costs the prediction there. Tags, answers and hidden words are explained with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.attention import Attention
from sightline.attention.pooling import Pooling
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import believe, rollout
from sightline.explain.evidence.subject import MOST_HIDDEN, PlacesSubject, embedding_of, evaluating, lost_without
from sightline.explain.explanation import Belief, Explanation, Stack
from sightline.models.encoder import PooledEncoder
from sightline.models.text_to_labels import TextModel, Texts
from sightline.nn.thinking import Thinking
from sightline.records import Record, Tokens, TopK
from sightline.tasks.explain import LARGEST, WHOLE, ExplainOptions
from sightline.tasks.run import Run
from sightline.text.encoding import TextEncoder
from sightline.text.words import TextOffsets

HIDING, ROLLOUT = "hiding", "rollout"
MEASURED = 400  # tokens; what to make of a map takes a pass for each of them, of self-attention


@dataclass(frozen=True)
class TextWindow:
    """What the model reads at once, and what of it is explained.

    ``columns`` has for each token its column of the map, ``places`` are the tokens that are explained and ``rows``
    their rows, ``words`` the tokens of each word, by the word's number. ``measure`` gives the log-probability of the
    prediction in each row, ``n rows``, for n variants of the text.
    """

    texts: Texts
    columns: Sequence[int]
    places: Sequence[int]
    rows: Sequence[int]
    words: dict[int, list[int]]
    measure: Callable[[Texts], Tensor]


@dataclass(frozen=True)
class Axes:
    """The rows, and what they attend to, by tokens and by words; ``row_name`` is the name of a row."""

    rows: Tokens
    columns: Tokens
    words: Tokens
    row_name: str
    text_name: str


@dataclass(frozen=True)
class EncoderMaps:
    """Maps of the rows. ``main`` is the mean of the last layer's heads, ``lost`` what hiding each word costs a row."""

    records: list[Record]
    stacks: list[Stack]
    notes: list[str]
    belief: Belief | None
    main: np.ndarray | None
    lost: np.ndarray | None

    def explanation(self, run: Run, notes: Sequence[str], **fields: Any) -> Explanation:
        """With these notes first, and the other fields of an explanation."""
        return Explanation(
            title=run.name,
            task=run.task.name,
            records=tuple(self.records),
            stacks=tuple(self.stacks),
            belief=self.belief,
            notes=(*notes, *self.notes),
            **fields,
        )


def top_for(model: nn.Module, tokens: int) -> int | None:
    """How many weights of each row to keep of attention that is no pooling; None for all of them."""
    pools = {id(inner) for one in model.modules() if isinstance(one, Pooling) for inner in one.modules()}
    attentions = [one for one in model.modules() if isinstance(one, Attention) and id(one) not in pools]
    heads = sum(prod(one.heads) for one in attentions)
    heads *= max((one.most for one in model.modules() if isinstance(one, Thinking)), default=1)
    return None if heads * tokens**2 <= WHOLE else LARGEST


def kept_note(top: int) -> str:
    """The note where not all weights were kept."""
    return f"of each row only the {top} largest weights were kept; numbers about the map are about these"


def too_many_note(tokens: int, most: int) -> str:
    """The note where the evidence of a map would take too long."""
    return f"{tokens:,} tokens are too many to measure what to make of the map, which is done up to {most:,}"


def axis_of(reader: TextEncoder, placed: TextOffsets) -> Tokens:
    """The tokens of a text as the text has them; those that are not in the text, such as the end, as spelled."""
    tokeniser: Any = reader.tokeniser
    outside = sorted({token for token, at in zip(placed.tokens, placed.places, strict=True) if at is None})
    spelled = dict(zip(outside, tokeniser.spell(outside), strict=True))
    return placed.axis([spelled.get(token, "") for token in placed.tokens])


def word_axis(placed: TextOffsets) -> Tokens:
    """The words of a text as the text has them."""
    spans = map(placed.place_of, placed.words)
    return Tokens(tuple(placed.texts[at.part][at.start : at.end] for at in spans))


def read_maps(
    model: nn.Module, inner: TextModel, windows: Sequence[TextWindow], axes: Axes, options: ExplainOptions
) -> EncoderMaps:
    """Everything there is to show about the rows; ``inner`` is the part of the model that reads the text."""
    longest = max(len(one.columns) for one in windows)
    top = options.top or top_for(model, max(longest, len(axes.columns)))
    maps, through = _Maps(axes, top), _Maps(axes, None)
    whole = isinstance(inner, PooledEncoder) and top is None
    for window in windows:
        with evaluating(model), torch.no_grad(), capture(model, top=top) as trace:
            window.measure(window.texts)
        maps.add(trace, window)
        if whole and trace.names:
            through.put((ROLLOUT, 0, 0), _rolled(trace)[window.places].astype(np.float32), window)
    names, notes = maps.names(), list[str]()
    to_text = f"From each {axes.row_name} to the {axes.text_name}"
    records, stacks = maps.records(), [Stack(to_text, "cross", names)] if names else []
    if through.weights:
        records += through.records()
        stacks.append(Stack(f"{to_text}, through all layers", "cross", (ROLLOUT,)))
    if top is not None and names:
        notes.append(kept_note(top))
    main = None
    if names:
        main = np.mean([one.matrix() for one in records if one.name == names[-1]], axis=0).astype(np.float64)
    lost = _lost(model, inner, windows, axes) if options.measure or not names else None
    if lost is not None:
        records.append(Record(HIDING, 0, 0, axes.rows, axes.words, lost.astype(np.float32)))
        stacks.append(Stack(f"What hiding each word costs each {axes.row_name}", "cross", (HIDING,), unit="share"))
        notes += _hiding_notes(axes, bool(names), windows)
    belief = None
    if names and options.measure:
        if len(windows) > 1:
            notes.append("what to make of the map was not measured: that is done for what is read at once")
        elif longest > MEASURED:
            notes.append(too_many_note(len(axes.columns), MEASURED))
        else:
            subject = _subject(model, inner, windows[0], axes, names[-1:])
            belief = believe(subject, [one for one in records if one.name == names[-1]])
    return EncoderMaps(records, stacks, notes, belief, main, lost)


def _hiding_notes(axes: Axes, attention: bool, windows: Sequence[TextWindow]) -> list[str]:
    notes = []
    if not attention:
        notes.append(
            f"nothing in this model attends from a {axes.row_name} to the words, so there is no map of that; what is "
            "shown is what hiding words costs"
        )
    notes.append(
        f"{HIDING}: which share of its probability a {axes.row_name} loses when a word is hidden, by putting the mean "
        "of all words in its place"
    )
    if any(len(one.words) > MOST_HIDDEN for one in windows):
        notes.append(f"there are more than {MOST_HIDDEN} words: neighbours were hidden together")
    return notes


def _subject(
    model: nn.Module, inner: TextModel, window: TextWindow, axes: Axes, attentions: Sequence[str] = ()
) -> PlacesSubject:
    specials = inner.specials
    special = [one for one in (specials.padding, specials.start, specials.end, specials.mask) if one is not None]
    fixed = (model, embedding_of(inner), window.texts, len(window.places), window.measure)
    return PlacesSubject(*fixed, attentions=attentions, special=special, row_name=axes.row_name)


def _lost(model: nn.Module, inner: TextModel, windows: Sequence[TextWindow], axes: Axes) -> np.ndarray:
    whole = np.zeros((len(axes.rows), len(axes.words)))
    for window in windows:
        lost = lost_without(_subject(model, inner, window, axes), list(window.words.values()))
        whole[np.ix_(list(window.rows), list(window.words))] = lost
    return whole


def _rolled(trace: Trace) -> np.ndarray:
    return rollout([trace[name].weights[0].double().mean(dim=0).cpu().numpy() for name in trace.names])[-1]


class _Maps:
    """Rows of several windows put together, attention by attention and head by head, whole or the largest of each."""

    def __init__(self, axes: Axes, top: int | None) -> None:
        self.axes, self.top = axes, top
        self.weights: dict[tuple[str, int, int], np.ndarray | TopK] = {}

    def add(self, trace: Trace, window: TextWindow) -> None:
        for name in trace.names:
            for one in trace[name].records():
                weights, places = one.weights, list(window.places)
                if isinstance(weights, TopK):
                    self._put_largest((name, one.layer, one.head), weights, window)
                else:
                    self.put((name, one.layer, one.head), weights[places], window)

    def put(self, key: tuple[str, int, int], weights: np.ndarray, window: TextWindow) -> None:
        whole = self.weights.setdefault(key, np.zeros((len(self.axes.rows), len(self.axes.columns)), np.float32))
        assert isinstance(whole, np.ndarray)
        whole[np.ix_(list(window.rows), list(window.columns))] = weights

    def _put_largest(self, key: tuple[str, int, int], weights: TopK, window: TextWindow) -> None:
        assert self.top is not None
        shape, width = (len(self.axes.rows), self.top), weights.places.shape[1]
        empty = TopK(np.full(shape, -1, np.int32), np.zeros(shape, np.float32), len(self.axes.columns))
        whole = self.weights.setdefault(key, empty)
        assert isinstance(whole, TopK)
        columns = np.array([*window.columns, -1], np.int32)  # −1 stays what it is
        own = list(window.places)
        whole.places[list(window.rows), :width] = columns[weights.places[own]]
        whole.weights[list(window.rows), :width] = weights.weights[own]

    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _, _ in self.weights))

    def records(self) -> list[Record]:
        rows, columns = self.axes.rows, self.axes.columns
        return [Record(*key, rows, columns, weights) for key, weights in self.weights.items()]
