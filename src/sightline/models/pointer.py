"""Pointer networks (Vinyals, Fortunato and Jaitly 2015): frames in, positions of these frames out.

An encoder reads the frames. A recurrent decoder is given the encoder state of the last position that was chosen, and
its attention over the encoder states, ``p_i = softmax_j(v · tanh(W_1 e_j + W_2 d_i))``, is the distribution over the
next position: nothing is read with the weights, they are the output. One more annotation, which is learnt, stands
behind the frames and means the end. What people get wrong: there is no output layer, so the number of classes is the
number of frames, and a model can answer for longer inputs than it was trained on; a softmax over a fixed number of
positions cannot. Where no position is to be chosen twice, the paper masks the search alone; here those that were chosen
have no weight in training either (as in Bello et al. 2016), so that the loss is that of what a search can choose.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention import AdditiveConfig, ComposedConfig, Memory
from sightline.attention.checks import check_least
from sightline.attention.contract import existing
from sightline.attention.scores import ScoreConfig
from sightline.models.listening import Listening, ListeningConfig
from sightline.models.series import Annotations, JointLoss, SeriesConfig, SeriesModel
from sightline.nn.rnn import Cell, CellKind, CellState
from sightline.nn.series import SeriesBatch, SeriesFrontConfig, SeriesShape, frame_mask


class PositionsBatch(NamedTuple):
    """Positions of several items, zeros behind the end of each, and how many each has."""

    places: Int[Tensor, "b u"]
    lengths: Int[Tensor, " b"]


class ChosenPositions(NamedTuple):
    """Positions, their log-probability, and whether the end was chosen behind them."""

    places: tuple[int, ...]
    log_prob: float
    complete: bool


class PointerState(NamedTuple):
    """What goes from one choice to the next: all encoder states with the end behind them, their projected keys, the
    decoder's state, and the positions that were chosen."""

    states: Float[Tensor, "b s a"]
    memory: Memory
    cell: CellState
    chosen: Bool[Tensor, "b s"]


class PositionWriter(SeriesModel):
    """A model that chooses positions of its input."""

    @abstractmethod
    def loss(self, source: SeriesBatch, target: PositionsBatch, once: bool = False) -> JointLoss:
        """The loss of a batch; ``once``: no target has a position twice."""

    @abstractmethod
    def generate(self, source: SeriesBatch, most: int, *, once: bool = False, beam: int = 1) -> list[ChosenPositions]:
        """At most ``most`` positions of each item; ``once``: none of them twice."""


class Pointer(Listening, PositionWriter):
    """Frames in, positions out."""

    def __init__(self, config: "PointerConfig", shape: SeriesShape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.front = config.front.build(shape)
        self.add_listener(config)
        size = self.encoder.annotation_size
        self.cell = Cell(config.cell, size, config.decoder_size)
        self.start = nn.Linear(size, config.decoder_size)
        self.first = nn.Parameter(0.1 * torch.randn(size))  # in the place of the position before the first
        self.end = nn.Parameter(0.1 * torch.randn(size))
        self.attention = ComposedConfig(config.score).build(config.decoder_size, size, 1)

    def begin(self, annotations: Annotations) -> PointerState:
        """The state before the first choice."""
        assert annotations.summary is not None
        rows = len(annotations.states)
        states = torch.cat([annotations.states, self.end.expand(rows, 1, -1)], dim=1)
        mask = F.pad(annotations.mask, (0, 1), value=True)
        memory = self.attention.remember(states, states.new_zeros(*states.shape[:2], 1), mask)
        cell = self.cell.begin(torch.tanh(self.start(annotations.summary)))
        return PointerState(states, memory, cell, torch.zeros_like(mask))

    def weights(
        self, hidden: Float[Tensor, "b t h"], memory: Memory, allowed: Bool[Tensor, "b t s"]
    ) -> Float[Tensor, "b t s"]:
        """The distribution of each choice: positions, then the end."""
        read = self.attention(hidden, memory, allow=allowed, need_weights=True)
        assert read.weights is not None
        return read.weights

    def follow(
        self, annotations: Annotations, places: Int[Tensor, "b u"], once: bool = False
    ) -> Float[Tensor, "b t s"]:
        """The distributions of the first choice and of those behind each of the given ones, all queries at once. What
        a search cannot choose has no weight."""
        state = self.begin(annotations)
        chosen = state.states.gather(1, places.unsqueeze(-1).expand(-1, -1, state.states.shape[-1]))
        inputs = torch.cat([self.first.expand(len(places), 1, -1), chosen], dim=1)
        cell, hidden = state.cell, list[Tensor]()
        for projected in self.cell.project(inputs).unbind(1):
            cell = self.cell(projected, cell)
            hidden.append(cell[0])
        before = F.one_hot(places, state.chosen.shape[1]).cumsum(dim=1) > 0
        allowed = self.allowed(F.pad(before, (0, 0, 1, 0)), once)
        allowed[:, 0, -1] = False
        return self.weights(self.dropout(torch.stack(hidden, dim=1)), state.memory, allowed)

    def allowed(self, chosen: Bool[Tensor, "*b s"], once: bool) -> Bool[Tensor, "*b s"]:
        """What may be chosen behind these positions: with ``once``, none of them again; the end always."""
        allowed = ~chosen if once else torch.ones_like(chosen)
        allowed[..., -1] = True
        return allowed

    def loss(self, source: SeriesBatch, target: PositionsBatch, once: bool = False) -> JointLoss:
        weights = self.follow(self.annotate(source), target.places, once)
        steps, columns = weights.shape[1:]
        places = F.pad(target.places, (0, 1))
        places = places.scatter(1, target.lengths.unsqueeze(-1), columns - 1)
        there = frame_mask(target.lengths + 1, steps)
        own = -_log(weights.gather(-1, places.unsqueeze(-1)).squeeze(-1))[there].sum()
        return JointLoss(own, int(there.sum()), {"cross_entropy": float(own.detach())})

    @torch.no_grad()
    def generate(self, source: SeriesBatch, most: int, *, once: bool = False, beam: int = 1) -> list[ChosenPositions]:
        """The likeliest of ``beam`` hypotheses; 1 is greedy search. An output has at least one position."""
        state, rows = self.begin(self.annotate(source)), len(source.lengths)
        columns = state.states.shape[1]
        state = _selected(state, torch.arange(rows, device=state.states.device).repeat_interleave(beam))
        there = existing(state.memory)
        last = self.first.expand(rows * beam, -1)
        # Until they differ, only the first of equal hypotheses counts.
        totals = last.new_full((rows, beam), -torch.inf)
        totals[:, 0] = 0.0
        ended = torch.zeros(rows * beam, dtype=torch.bool, device=last.device)
        places = torch.zeros(rows * beam, 0, dtype=torch.long, device=last.device)
        while places.shape[1] <= most and not bool(ended.all()):  # the last choice may only be the end
            cell = self.cell(self.cell.project(last), state.cell)
            allowed = self.allowed(state.chosen, once) & there
            if not places.shape[1]:
                allowed[:, -1] = False
            weights = self.weights(cell[0].unsqueeze(1), state.memory, allowed.unsqueeze(1)).squeeze(1)
            log_probs = _log(weights).masked_fill(~allowed, -torch.inf)
            log_probs = torch.where(ended.unsqueeze(-1), _only_end(log_probs), log_probs)
            scores = (totals.unsqueeze(-1) + log_probs.view(rows, beam, columns)).flatten(1)
            totals, best = scores.topk(beam, dim=-1)
            parents = best // columns + beam * torch.arange(rows, device=best.device).unsqueeze(-1)
            parents, place = parents.flatten(), (best % columns).flatten()
            state = _moved(state, tuple(one.index_select(0, parents) for one in cell), parents, place)
            places = torch.cat([places.index_select(0, parents), place.unsqueeze(-1)], dim=1)
            ended = place == columns - 1
            last = state.states.gather(1, place.view(-1, 1, 1).expand(-1, 1, state.states.shape[-1])).squeeze(1)
        return _likeliest(totals, places.view(rows, beam, -1), columns - 1, most)

    def attends_to_source(self, name: str) -> bool:
        """Whether the mechanism of this name looks at the frames."""
        return name == "attention"


def _log(weights: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Log-probabilities of weights, finite where a weight is too small to be one."""
    return weights.clamp(min=torch.finfo(weights.dtype).tiny).log()


def _only_end(log_probs: Float[Tensor, "n s"]) -> Float[Tensor, "n s"]:
    """Of hypotheses that have ended: the end again, for nothing."""
    ended = torch.full_like(log_probs, -torch.inf)
    ended[:, -1] = 0.0
    return ended


def _selected(state: PointerState, rows: Int[Tensor, " n"]) -> PointerState:
    keys, values, mask = state.memory
    memory = Memory(keys[rows], values[rows], None if mask is None else mask[rows])
    return PointerState(state.states[rows], memory, tuple(one[rows] for one in state.cell), state.chosen[rows])


def _moved(state: PointerState, cell: CellState, parents: Int[Tensor, " n"], place: Int[Tensor, " n"]) -> PointerState:
    """Behind a choice. The hypotheses of an item share their annotations, which stay where they are."""
    chosen = state.chosen.index_select(0, parents).scatter(1, place.unsqueeze(-1), True)
    return state._replace(cell=cell, chosen=chosen)


def _likeliest(
    totals: Float[Tensor, "b k"], places: Int[Tensor, "b k u"], end: int, most: int
) -> list[ChosenPositions]:
    """The best hypothesis of each item; without an end, its first positions."""
    made = []
    for scores, some in zip(totals.tolist(), places.tolist(), strict=True):
        best = max(range(len(scores)), key=scores.__getitem__)
        own = some[best]
        complete = end in own
        made.append(ChosenPositions(tuple(own[: own.index(end) if complete else most]), scores[best], complete))
    return made


class PositionWriterConfig(SeriesConfig):
    """The base of the configurations of all models that choose positions."""

    family: ClassVar[str] = "series_to_positions"

    @abstractmethod
    def build(self, shape: SeriesShape) -> PositionWriter:
        """The model for frames of this shape."""


@dataclass(frozen=True)
class PointerConfig(ListeningConfig, PositionWriterConfig):
    """``reduces`` are all 1: every frame has a state that can be pointed to. ``score`` is that of the attention whose
    weights are the output."""

    front: SeriesFrontConfig = field(default_factory=lambda: SeriesFrontConfig(centring="data", masking=None))
    size: int = 128
    reduces: tuple[int, ...] = (1,)
    cell: CellKind = "gru"
    dropout: float = 0.0
    decoder_size: int = 128
    score: ScoreConfig = field(default_factory=lambda: AdditiveConfig(hidden_size=128))
    kind: ClassVar[str] = "pointer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "decoder_size")
        if set(self.reduces) != {1}:
            raise ValueError(f"reduces is {list(self.reduces)}; each must be 1, so that every frame can be pointed to")

    def build(self, shape: SeriesShape) -> Pointer:
        return Pointer(self, shape)
