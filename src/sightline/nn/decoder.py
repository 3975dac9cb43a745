"""The one recurrent attention decoder: it serves every recurrent model there is.

Two questions tell the papers apart. *When does it look?* Before its state moves on, with the old state as the query
(Bahdanau et al. 2015), or after, with the new one (Luong et al. 2015), or never (Sutskever et al. 2014). *What is
written from?* A maxout of old state, last word and context (Bahdanau), tanh(W [context; state]) (Luong), which can
also be fed into the next step, [state; context] as it is (Vinyals et al. 2015), which can be fed too, or the deep
output: the last word's embedding plus W [context; state] (Xu et al. 2015).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention import Attention, AttentionConfig, Carry, Composed, Memory, Read
from sightline.attention.additive import Additive
from sightline.attention.coverage import Coverage
from sightline.attention.normalisers import Softmax
from sightline.attention.observed import may_bypass
from sightline.kernels import rnnsearch
from sightline.kernels.maxout import maxout
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import Cell, CellKind, CellState


@dataclass(frozen=True)
class DecoderShape:
    """The answers to both questions, and sizes. ``attention`` left out: one context vector for everything.

    ``feeds_input``: what is written from also goes into the next step.
    ``gates_context``: the state that looks also says how much of what it reads counts, β = σ(w · state + b).
    """

    embedding_size: int
    annotation_size: int
    size: int
    layers: int = 1
    cell: CellKind = "gru"
    attention: AttentionConfig | None = None
    looks: Literal["before", "after"] = "after"
    feeds_input: bool = False
    writes_from: Literal["maxout", "tanh", "deep", "joined"] = "tanh"
    dropout: float = 0.0
    gates_context: bool = False


class DecoderState(NamedTuple):
    """Everything that goes from one word to the next. A plain tuple, so that beams can be reordered."""

    cells: tuple[CellState, ...]
    fed: Float[Tensor, "b f"] | None
    memory: Memory | None
    carry: Carry | None


class Attended(NamedTuple):
    """Of each word the features, the weights of attention, and what was read with them."""

    features: Float[Tensor, "b t f"]
    weights: Float[Tensor, "b t s"] | Float[Tensor, "b h t s"]
    contexts: Float[Tensor, "b t c"]


class RecurrentAttentionDecoder(nn.Module):
    """Embedded words in, features for the output layer out; one word at a time or a whole sentence."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.shape = shape
        self.attention: Attention | None = None
        context_size = 0
        if shape.attention is not None:
            self.attention = shape.attention.build(shape.size, shape.annotation_size, shape.annotation_size)
            context_size = self.attention.context_size
        self.attends_before = self.attention is not None and shape.looks == "before"
        written = {"deep": shape.embedding_size, "joined": shape.size + context_size}
        self.feature_size = written.get(shape.writes_from, shape.size)
        extra = (context_size if self.attends_before else 0) + (self.feature_size if shape.feeds_input else 0)
        sizes = [shape.embedding_size, *[shape.size] * (shape.layers - 1)]
        cells = [Cell(shape.cell, n, shape.size) for n in sizes]
        # What the step before gives to the first cell: apart from the words' part, which is known beforehand.
        self.inner_input = nn.Linear(extra, cells[0].input.out_features, bias=False) if extra else None
        self.cells = nn.ModuleList(cells)
        self.between = Dropout(shape.dropout)
        if shape.writes_from == "maxout":
            self.write = nn.Linear(shape.size + shape.embedding_size + context_size, 2 * shape.size)
        elif shape.writes_from != "joined":
            self.write = nn.Linear(shape.size + context_size, self.feature_size)
        self.gate = nn.Linear(shape.size, 1) if shape.gates_context else None

    def begin(
        self,
        hidden: Float[Tensor, "l b h"],
        annotations: Float[Tensor, "b s a"] | None,
        mask: Tensor | None,
        cell_memory: Float[Tensor, "l b h"] | None = None,
    ) -> DecoderState:
        """Start every layer from ``hidden``, an LSTM's memory from ``cell_memory``, with the annotations to look at."""
        starts = zip(self.cells, hidden, [None] * len(hidden) if cell_memory is None else cell_memory, strict=True)
        cells = tuple(cell.begin(start, kept) for cell, start, kept in starts)  # type: ignore[operator]
        fed = hidden.new_zeros(hidden.shape[1], self.feature_size) if self.shape.feeds_input else None
        if self.attention is None or annotations is None:
            return DecoderState(cells, fed, None, None)
        memory = self.attention.remember(annotations, mask=mask)
        return DecoderState(cells, fed, memory, self.attention.begin(memory))

    def forward(
        self,
        words: Float[Tensor, "b t e"],
        state: DecoderState,
        reads: list[Read] | None = None,
        covering: bool = False,
    ) -> tuple[Float[Tensor, "b t f"], DecoderState]:
        """Any number of words that follow what the state has seen.

        ``reads``, for losses that need them, takes in what attention gave at each look, with its weights. ``covering``:
        a loss will be made of the coverage, so that it is learnt.
        """
        if reads is None and self._can_align(state):
            attended, state = self._aligned(words, state)
            return attended.features, state
        if not self._covers(covering) and state.carry is not None:
            state = state._replace(
                carry=state.carry._replace(weights=None)
            )  # it is not learnt before its loss is there
        # Cut once: the gradient of an index is a tensor of zeros as large as the whole, at every step.
        projected = self.cells[0].project(words).unbind(1)  # type: ignore[operator]
        tops: list[Tensor] = []
        olds: list[Tensor] = []
        contexts: list[Tensor | None] = []
        for word in projected:
            olds.append(state.cells[-1][0])
            context, state = self._step(word, state, reads)
            tops.append(state.cells[-1][0])
            contexts.append(context)
        new, old = torch.stack(tops, dim=1), torch.stack(olds, dim=1)
        if self.attention is None:
            return self._write(words, old, new, None), state
        if contexts[0] is not None:
            return self._write(words, old, new, torch.stack(contexts, dim=1)), state  # type: ignore[arg-type]
        # Nothing of what is read goes back into the loop: look with all states at once.
        context, carry = self._read(new, state, reads)
        return self._write(words, old, new, context), state._replace(carry=carry)

    def look(
        self, words: Float[Tensor, "b t e"], state: DecoderState, covering: bool = False
    ) -> tuple[Attended, DecoderState]:
        """As `forward`, with what attention gave. ``covering``: a loss will be made of the coverage."""
        if self._can_align(state, covering):
            return self._aligned(words, state)
        reads: list[Read] = []
        features, state = self(words, state, reads, covering)
        weights = torch.cat([read.weights for read in reads], dim=-2)  # type: ignore[misc]
        return Attended(features, weights, torch.cat([read.context for read in reads], dim=1)), state

    def _can_align(self, state: DecoderState, covering: bool = False) -> bool:
        """Whether this is the decoder whose loop `sightline.kernels.rnnsearch` computes."""
        attention = self.attention
        if not self.attends_before or self.shape.feeds_input or self.gate is not None or len(self.cells) != 1:
            return False
        if type(attention) is Coverage:
            if self._covers(covering):
                return False
        elif type(attention) is not Composed:
            return False
        if attention.heads:
            return False
        if type(attention.score) is not Additive or type(attention.normaliser) is not Softmax or state.memory is None:
            return False
        return rnnsearch.supported(self.cells[0], state.cells[0][0], state.memory) and may_bypass(self)  # type: ignore

    def _covers(self, covering: bool) -> bool:
        """Whether the carry of coverage counts; True for every other attention, whose carry is its own."""
        return type(self.attention) is not Coverage or covering or self.attention.covers()

    def _aligned(self, words: Float[Tensor, "b t e"], state: DecoderState) -> tuple[Attended, DecoderState]:
        assert state.carry is not None
        projected = self.cells[0].project(words.transpose(0, 1))  # type: ignore[operator]
        parts = (self.attention, self.cells[0], self.inner_input, projected, state.cells[0][0], state.memory)
        states, contexts, weights = rnnsearch.fast(*parts)  # type: ignore[arg-type]
        old, new, context, weights = (x.transpose(0, 1) for x in (states[:-1], states[1:], contexts, weights))
        carry = state.carry._replace(position=state.carry.position + words.shape[1])
        attended = Attended(self._write(words, old, new, context), weights, context)
        return attended, state._replace(cells=((states[-1],),), carry=carry)

    def _step(
        self, projected: Float[Tensor, "b g"], state: DecoderState, reads: list[Read] | None
    ) -> tuple[Tensor | None, DecoderState]:
        """One word: the cells move on, and where the next step needs it, attention looks inside the loop."""
        context, carry = None, state.carry
        inner = []
        if self.attends_before:
            context, carry = self._look(state.cells[-1][0], state, reads)
            inner.append(context)
        if state.fed is not None:
            inner.append(state.fed)
        if self.inner_input is not None:
            projected = projected + self.inner_input(torch.cat(inner, dim=-1) if len(inner) > 1 else inner[0])
        cells = self._move(projected, state.cells)
        fed = None
        if state.fed is not None:
            moved = state._replace(cells=cells, carry=carry)
            if self.attention is not None and not self.attends_before:
                context, carry = self._look(cells[-1][0], moved, reads)
            new = cells[-1][0].unsqueeze(1)
            fed = self._write(new[..., :0], new, new, None if context is None else context.unsqueeze(1)).squeeze(1)
        return context, DecoderState(cells, fed, state.memory, carry)

    def _look(self, query: Float[Tensor, "b h"], state: DecoderState, reads: list[Read] | None) -> tuple[Tensor, Carry]:
        context, carry = self._read(query.unsqueeze(1), state, reads)
        return context.squeeze(1), carry

    def _read(
        self, query: Float[Tensor, "b t h"], state: DecoderState, reads: list[Read] | None
    ) -> tuple[Tensor, Carry]:
        assert self.attention is not None
        assert state.memory is not None
        read = self.attention(query, state.memory, state.carry, need_weights=reads is not None)
        if reads is not None:
            reads.append(read)
        return read.context if self.gate is None else read.context * torch.sigmoid(self.gate(query)), read.carry

    def _move(self, projected: Float[Tensor, "b g"], states: tuple[CellState, ...]) -> tuple[CellState, ...]:
        moved: list[CellState] = []
        for i, (cell, state) in enumerate(zip(self.cells, states, strict=True)):
            if i:
                projected = cell.project(self.between(moved[-1][0]))  # type: ignore[operator]
            moved.append(cell(projected, state))
        return tuple(moved)

    def _write(
        self, words: Tensor, old: Tensor, new: Tensor, context: Float[Tensor, "b t c"] | None
    ) -> Float[Tensor, "b t f"]:
        looked = [] if context is None else [context]
        if self.shape.writes_from == "maxout":
            return maxout(self.write(torch.cat([old, words, *looked], dim=-1)))
        if self.shape.writes_from == "deep":
            return words + self.write(torch.cat([new, *looked], dim=-1))
        joined = torch.cat([new, *looked], dim=-1)
        return joined if self.shape.writes_from == "joined" else torch.tanh(self.write(joined))
