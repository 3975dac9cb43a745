"""The Differentiable Neural Computer (Graves et al. 2016): a memory whose slots are allocated, freed and linked.

It writes where the memory is free or where the content matches, by a gate, and reads by content, or goes from the slot
it read to the one written before or after it. Usage: ``u ← (u + w − u ∘ w) ∘ Π (1 − f_i r_i)`` with the weights w of
the last write and r of the last reads. Free slots, with φ the order of usage: ``a_φ(j) = (1 − u_φ(j)) Π_{i<j} u_φ(i)``.
Links: ``L_ij ← (1 − w_i − w_j) L_ij + w_i p_j``, where p is what was written last.

What people get wrong: slots are freed by what the heads read a step before, and the free gates belong to this step;
L has no diagonal; ``L r`` goes forward and ``Lᵀ r`` back; p is updated after L; write weights may sum to less than one.
Not as in the paper: usages that are nearly alike are sorted as alike (`allocation`); the first state and the first
reads are learned, and a slot begins with 1e-6 and not with 0.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.addressing import Content, erase_and_add
from sightline.attention.contract import Carry
from sightline.attention.heads import HeadLinear
from sightline.attention.tap import Look, active_taps, new_passage, show
from sightline.errors import MachineError
from sightline.kernels import links as kernel
from sightline.machine import whole_memory
from sightline.models.memory_machine import Links, MachineState, MemoryMachine, MemoryMachineConfig
from sightline.models.stepping import Schedule, StepFeatures
from sightline.models.vector_writer import TargetShape
from sightline.nn.dropout import Dropout
from sightline.nn.series import SeriesShape

PASSING = 3  # links that are there at once where nothing is kept for the backward pass
PEAK = 2.0  # of what is kept, at most, while the backward pass makes its own
LEVELS = 4096  # usages that are closer than one of so many levels are alike


class HeadRequest(NamedTuple):
    """The numbers of heads: keys for addressing by content, and gates and modes."""

    key: Float[Tensor, "b n 1 k"]  # with its strength behind it
    more: Float[Tensor, "b n m"]


class MixingHeads(nn.Module):
    """Heads whose weights are those by content, mixed with other weights over the same slots."""

    def __init__(self, size: int, width: int, heads: int, more: int) -> None:
        super().__init__()
        self.heads, self.parts = heads, (width + 1, more)
        self.head = HeadLinear(size, width + 1 + more, heads=(heads,), bias=True)
        self.score = Content(least=1.0)

    def ask(self, hidden: Float[Tensor, "b h"]) -> HeadRequest:
        key, more = self.head(hidden[:, None, None, :].expand(-1, self.heads, 1, -1)).split(self.parts, dim=-1)
        return HeadRequest(key, more.squeeze(-2))

    def begin(self, memory: Float[Tensor, "b s m"]) -> Carry:
        """No slot was read or written."""
        return Carry(weights=memory.new_zeros(len(memory), self.heads, memory.shape[1]))

    def forward(
        self,
        asked: HeadRequest,
        memory: Float[Tensor, "b s m"],
        others: Float[Tensor, "b n o s"],
        shares: Float[Tensor, "b n p"],
        carry: Carry,
    ) -> Carry:
        """Weights by content times the first share, plus the others times theirs; the carry holds them."""
        scores = self.score(asked.key, memory.unsqueeze(1), carry.position)
        every = torch.cat([torch.softmax(scores, dim=-1), others], dim=-2)
        weights, passage = shares.unsqueeze(-2) @ every, carry.passage
        if active_taps() and not passage:
            passage = new_passage()
        weights = show(Look(self, carry.position, scores, weights, None, heads=1, passage=passage))
        return carry._replace(position=carry.position + 1, weights=weights.squeeze(-2), passage=passage)


class NeuralComputer(MemoryMachine):
    """A controller and its memory, with one head that writes."""

    config: "NeuralComputerConfig"

    def __init__(self, config: "NeuralComputerConfig", shape: SeriesShape, target: TargetShape) -> None:
        super().__init__()
        self.add_controller(config, self.add_steps(config, shape))
        self.read = MixingHeads(config.size, config.width, config.read_heads, 4)  # three modes, and whether to free
        self.write = MixingHeads(config.size, config.width, 1, 2)  # whether to write, and whether into a free slot
        self.content = nn.Linear(config.size, 2 * config.width)
        self.add_first()
        self.dropout = Dropout(config.dropout)
        self.add_vectors(config.size + self.read_size, target, stops=not self.each)

    def begin(self, rows: int) -> MachineState:
        memory, state, reads = self.first(rows)
        none = memory.new_zeros(rows, self.slots)
        links = Links(none, none, memory.new_zeros(rows, self.slots, self.slots))
        return MachineState(memory, state, reads, self.read.begin(memory), self.write.begin(memory), links)

    def step(self, x: Float[Tensor, "b d"], state: MachineState) -> tuple[Float[Tensor, "b h"], MachineState]:
        hidden, own = self.control(x, state)
        assert state.links is not None
        assert state.reading.weights is not None
        assert state.writing.weights is not None
        reading, writing = self.read.ask(hidden), self.write.ask(hidden)
        usage = used(state.links.usage, state.writing.weights[:, 0], state.reading.weights, reading.more[..., 3:])
        gate, free = torch.sigmoid(writing.more).split(1, dim=-1)
        shares = gate * torch.cat([1 - free, free], dim=-1)
        written = self.write(writing, state.memory, allocation(usage)[:, None, None], shares, state.writing)
        assert written.weights is not None
        erase, add = self.content(hidden).unflatten(-1, (2, 1, self.width)).unbind(dim=1)
        memory = erase_and_add(state.memory, written.weights, torch.sigmoid(erase), add)
        links = linked(state.links, usage, written.weights[:, 0])
        ways = neighbours(links.after, state.reading.weights)
        modes = torch.softmax(reading.more[..., :3], dim=-1)
        read = self.read(reading, memory, ways, modes, state.reading)
        assert read.weights is not None
        reads = (read.weights @ memory).flatten(1)
        return torch.cat([hidden, reads], dim=-1), MachineState(memory, own, reads, read, written, links)

    def run(self, schedule: Schedule) -> StepFeatures:
        if schedule.inputs.device.type == "cpu":
            rows, steps = schedule.inputs.shape[:2]
            self.check_memory(rows, steps if torch.is_grad_enabled() else PASSING, whole_memory())
        return StepFeatures(self.dropout(self.features(schedule.inputs)))

    def check_memory(self, rows: int, steps: int, available: int | None) -> None:
        """Refuse a batch whose links cannot be kept, those of so many steps: most systems would end the process."""
        needed = PEAK * rows * steps * self.slots**2 * self.first_reads.element_size()
        if available is not None and needed > available:
            raise MachineError(
                f"the links between {self.slots:,} slots take up to {needed / 1e9:,.1f} GB ({rows:,} sequences "
                f"together, {steps:,} steps kept), and this machine has {available / 1e9:,.1f} GB; lower model.slots, "
                "batch_rows or batch_tokens"
            )


def used(
    usage: Float[Tensor, "b s"],
    written: Float[Tensor, "b s"],
    read: Float[Tensor, "b r s"],
    free: Float[Tensor, "b r 1"],
) -> Float[Tensor, "b s"]:
    """How much each slot is in use: the last write uses slots, and what was read may be freed (``free``: logits)."""
    kept = torch.prod(1 - torch.sigmoid(free) * read, dim=1)
    return (usage + written - usage * written) * kept


def allocation(usage: Float[Tensor, "b s"]) -> Float[Tensor, "b s"]:
    """Where to write next: the least used slot, and the following ones as far as it is used. Of slots that are used
    alike, the first one comes first: in an empty memory, one slot after another.

    The paper sorts usage as it is. Slots that were never chosen differ there by rounding alone, so that a row writes
    to other slots by itself than in a batch.
    """
    order = (usage.detach() * LEVELS).round().argsort(dim=-1, stable=True)
    ordered = usage.gather(-1, order)
    before = torch.cat([torch.ones_like(ordered[:, :1]), ordered[:, :-1].cumprod(dim=-1)], dim=-1)
    return torch.zeros_like(usage).scatter(-1, order, (1 - ordered) * before)


def neighbours(after: Float[Tensor, "b s s"], read: Float[Tensor, "b r s"]) -> Float[Tensor, "b r 2 s"]:
    """Back and forward from the slots that were read, in the precision of the links: a copy in another is as large."""
    with torch.autocast(after.device.type, enabled=False):
        read = read.to(after.dtype)
        return torch.stack([read @ after, read @ after.transpose(1, 2)], dim=-2)


def linked(links: Links, usage: Float[Tensor, "b s"], written: Float[Tensor, "b s"]) -> Links:
    """The links after a write."""
    precedence = (1 - written.sum(dim=-1, keepdim=True)) * links.precedence + written
    return Links(usage, precedence, kernel.linked(links.after, links.precedence, written))


@dataclass(frozen=True)
class NeuralComputerConfig(MemoryMachineConfig):
    """Each step has slots × slots links for every row of a batch; training keeps those of all steps."""

    kind: ClassVar[str] = "dnc"
    most_slots: ClassVar[int] = 2048

    def build(self, shape: SeriesShape, target: TargetShape) -> NeuralComputer:
        return NeuralComputer(self, shape, target)
