"""One cell after the other: the recurrent attention decoder of the translators, whose words are the cells' labels.

A step's word is made of the cell's annotation and of what was written before: the labels of the neighbours that the
scan has labelled, each through an embedding of its direction. The decoder starts from the final states of the networks
along rows and columns, looks at all cells, moves on, and writes; search drives it as it drives a translator. With a
second sweep, which goes back the way the first one came, a cell sees the labels of all its neighbours.

What people get wrong: trained on right labels only, a decoder leans on its neighbours more than it may when they are
its own guesses. So a share of the labels it reads in training (``own_labels``) are drawn from what it would have said
(scheduled sampling, Bengio et al. 2015, in two passes as in Mihaylova & Martins 2019); labels of an earlier sweep are
always its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention import AttentionConfig
from sightline.attention.checks import check_least
from sightline.decoding.search import NEVER, Rules, greedy
from sightline.models.grid import NOTHING, GridModel, GridModelConfig, Inputs, general
from sightline.nn.decoder import DecoderShape, DecoderState, RecurrentAttentionDecoder
from sightline.nn.grid import Annotated, Neighbours, Order, Scan, directions, scan


class SweepState(NamedTuple):
    """What goes from one cell to the next: the decoder's state, what each step reads, and what was written so far.

    Behind the labels of all steps, ``written`` has two more that never change: not labelled yet, and no such cell.
    """

    decoder: DecoderState
    inputs: Float[Tensor, "b t e"]
    sources: Int[Tensor, "b t k"]
    written: Int[Tensor, "b u"]
    lengths: Int[Tensor, " b"]
    place: int


class SequentialGrid(GridModel):
    """Labels cells in the order of a scan."""

    def __init__(
        self, config: "SequentialConfig", inputs: Inputs, weights: Sequence[float] | None, pretrained: bool
    ) -> None:
        super().__init__(config, inputs, weights, pretrained)
        self.order, self.sweeps, self.own_labels = config.order, config.sweeps, config.own_labels
        self.around: Neighbours = config.neighbours
        size, layers = config.attn_num_hidden, config.attn_num_layers
        self.decoder = RecurrentAttentionDecoder(
            DecoderShape(
                size,
                self.annotation_size,
                size,
                layers,
                config.cell_kind,
                config.attention,
                looks="before",
                writes_from="deep",
                dropout=config.dropout,
            )
        )
        classes = inputs.classes
        self.start, self.end = classes, classes + 1  # tokens of search; as labels: not yet, no such cell
        count = directions(self.around, self.sweeps)
        self.own = nn.Linear(self.annotation_size, size)
        self.labels = nn.Embedding(max(1, count) * (classes + 2), size)
        self.sweep = nn.Embedding(self.sweeps, size)
        nn.init.normal_(self.labels.weight, std=0.5)
        nn.init.normal_(self.sweep.weight, std=0.1)
        self.register_buffer("offsets", (classes + 2) * torch.arange(count), persistent=False)
        final = self.annotation_size
        self.hidden, self.memory = nn.Linear(final, layers * size), nn.Linear(final, layers * size)
        self.output = nn.Linear(size, classes)

    def begin(self, annotated: Annotated, mask: Bool[Tensor, "b r c"], plan: Scan | None = None) -> SweepState:
        """Before the first cell."""
        plan = plan or scan(mask, self.order, self.around, self.sweeps)
        batch, steps = plan.cells.shape
        flat = self.dropout(annotated.annotations).flatten(1, 2)
        own = self.own(torch.cat([flat, flat.new_zeros(batch, 1, flat.shape[-1])], dim=1))
        inputs = own.gather(1, plan.cells.unsqueeze(-1).expand(-1, -1, own.shape[-1])) + self.sweep(plan.sweeps)
        starts = [
            torch.tanh(layer(annotated.final)).unflatten(-1, (len(self.decoder.cells), -1)).transpose(0, 1)
            for layer in (self.hidden, self.memory)
        ]
        there = None if bool(mask.all()) else mask.flatten(1)
        decoder = self.decoder.begin(starts[0], flat, there, starts[1])
        written = torch.full((batch, steps + 2), self.start, device=flat.device)
        written[:, -1] = self.end
        return SweepState(decoder, inputs, plan.sources, written, plan.lengths, 0)

    def step(self, tokens: Int[Tensor, " n"], state: SweepState) -> tuple[Float[Tensor, "n v"], SweepState]:
        """One step of search: the label of the next cell. Behind the last cell of a grid nothing but the end follows.

        The last label is written into the state itself: search uses none twice.
        """
        place, steps = state.place, state.inputs.shape[1]
        if place:
            state.written[:, place - 1] = tokens
        here = min(place, steps - 1)
        read = state.written.gather(1, state.sources[:, here])
        words = state.inputs[:, here] + self._read(read)
        features, decoder = self.decoder(words.unsqueeze(1), state.decoder)
        labels = torch.log_softmax(self.output(features[:, 0]), dim=-1)
        full = (place >= state.lengths).unsqueeze(-1)
        end = torch.where(full, 0.0, NEVER).to(labels.dtype)
        log_probs = torch.cat([labels.masked_fill(full, NEVER), torch.full_like(end, NEVER), end], dim=-1)
        return log_probs, state._replace(decoder=decoder, place=place + 1)

    def _read(self, labels: Int[Tensor, "*b k"]) -> Float[Tensor, "*b e"]:
        return self.labels(labels + self.get_buffer("offsets")).sum(dim=-2)

    def decide(self, annotated: Annotated, mask: Bool[Tensor, "b r c"], plan: Scan) -> Int[Tensor, "b t"]:
        """The labels that greedy search writes, step by step; START behind the last one of a grid."""
        rules = Rules(self.start, self.end, max_length=plan.cells.shape[1])
        hypotheses = greedy(self.step, self.begin(annotated, mask, plan), len(mask), rules, device=mask.device)
        tokens = torch.full(plan.cells.shape, self.start, device=mask.device)
        for row, one in enumerate(hypotheses):
            tokens[row, : len(one.tokens)] = torch.tensor(one.tokens, device=mask.device)
        return tokens

    def logits(
        self, annotated: Annotated, mask: Bool[Tensor, "b r c"], plan: Scan, tokens: Tensor, before: Tensor
    ) -> Float[Tensor, "b t k"]:
        """What the model would say at each step, had ``tokens`` been written; of an earlier sweep, ``before``."""
        state = self.begin(annotated, mask, plan)
        behind = state.written[:, -2:]
        rows, steps, k = plan.sources.shape
        flat = plan.sources.reshape(rows, -1)
        now, then = (torch.cat([one, behind], dim=1).gather(1, flat).view(rows, steps, k) for one in (tokens, before))
        words = state.inputs + self._read(torch.where(plan.earlier, then, now))
        features, _ = self.decoder(words, state.decoder)
        return self.output(self.dropout(features))

    def label(self, annotated: Annotated, mask: Bool[Tensor, "b r c"]) -> Float[Tensor, "b r c k"]:
        """Search decides the labels; a pass over what it decided gives the probabilities, those of the last sweep."""
        plan = scan(mask, self.order, self.around, self.sweeps)
        tokens = self.decide(annotated, mask, plan)
        log_probs = torch.log_softmax(self.logits(annotated, mask, plan, tokens, tokens), dim=-1)
        cells = torch.where(plan.sweeps == self.sweeps - 1, plan.cells, mask[0].numel())
        by_cell = log_probs.new_zeros(len(mask), mask[0].numel() + 1, log_probs.shape[-1])
        by_cell.scatter_(1, cells.unsqueeze(-1).expand_as(log_probs), log_probs)
        return by_cell[:, :-1].unflatten(1, mask.shape[1:])

    def cell_loss(self, annotated: Annotated, mask: Bool[Tensor, "b r c"], gold: Int[Tensor, "b r c"]) -> Tensor:
        """The mean over sweeps of the sums over cells."""
        plan = scan(mask, self.order, self.around, self.sweeps)
        behind = gold.new_full((len(gold), 1), NOTHING)
        target = torch.cat([gold.flatten(1), behind], dim=1).gather(1, plan.cells)
        right = target.masked_fill(target == NOTHING, self.start)
        tokens = before = right
        if self.training and plan.sources.shape[-1] and (self.own_labels or self.sweeps > 1):
            before = self._own(annotated, mask, plan, right)
            drawn = torch.rand(right.shape, device=right.device) < self.own_labels
            tokens = torch.where(drawn, before, right)
        return self._cross_entropy(self.logits(annotated, mask, plan, tokens, before), target) / self.sweeps

    @torch.no_grad()
    def _own(self, annotated: Annotated, mask: Bool[Tensor, "b r c"], plan: Scan, right: Tensor) -> Tensor:
        """A label for each step, drawn from what the model says there after right ones of the same sweep.

        Sweep by sweep, each after what was drawn in those before it: a later sweep reads the label that its own cell
        had, and would copy the right one.
        """
        drawn = right
        for sweep in range(self.sweeps):
            tokens = torch.where(plan.sweeps < sweep, drawn, right)
            probs = torch.softmax(self.logits(annotated, mask, plan, tokens, drawn), dim=-1)
            some = torch.multinomial(probs.flatten(0, 1), 1).view(right.shape)
            drawn = torch.where((plan.sweeps == sweep) & (right != self.start), some, drawn)
        return drawn


@dataclass(frozen=True)
class SequentialConfig(GridModelConfig):
    """``neighbours``: 4 or 8; 1: only the label of the cell before; 0: none. ``order`` of the scan: row by row, or in
    a snake. ``attention`` left out: the decoder sees the cell, its neighbours' labels and its own state only.
    """

    attn_num_hidden: int = 96
    attn_num_layers: int = 1
    attention: AttentionConfig | None = field(default_factory=general)
    neighbours: Neighbours = 8
    sweeps: int = 1
    order: Order = "rows"
    own_labels: float = 0.25
    kind: ClassVar[str] = "sequential"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "attn_num_hidden", "attn_num_layers")
        if not 1 <= self.sweeps <= 4:
            raise ValueError(f"sweeps is {self.sweeps}; it must be at least 1 and at most 4")
        if not 0 <= self.own_labels <= 1:
            raise ValueError(f"own_labels is {self.own_labels}; it must be between 0 and 1")

    def build(
        self, inputs: Inputs, weights: Sequence[float] | None = None, *, pretrained: bool = False
    ) -> SequentialGrid:
        return SequentialGrid(self, inputs, weights, pretrained)
