"""The Neural Turing Machine (Graves et al. 2014): a controller with heads that read and write a memory.

At each step the controller reads a frame and what the heads read before. All write heads erase and add, then all read
heads read what is there now. `sightline.attention.addressing` has the addressing. What people get wrong: a memory that
starts with zeros has no direction for the cosine; the weights of the first step must not be spread out evenly, for then
a shift changes nothing (both heads start at the first slot here).
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention import AddressingConfig, Memory
from sightline.attention.checks import check_least
from sightline.attention.contract import Carry
from sightline.attention.observed import may_bypass
from sightline.kernels import turing as kernel
from sightline.models.stepping import Schedule, StepFeatures, Stepping, SteppingConfig
from sightline.models.vector_writer import TargetShape
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import Cell, CellState
from sightline.nn.series import SeriesShape

Controller = Literal["lstm", "feed_forward"]
FirstMemory = Literal["constant", "learned", "random"]
MOST_SLOTS = 1 << 17
NEARLY_NOTHING = 1e-6  # in every place of a constant first memory (Collier and Beel 2018)


class MachineState(NamedTuple):
    """Everything that goes from one step to the next: nothing is kept on the model."""

    memory: Float[Tensor, "b s m"]
    controller: CellState
    reads: Float[Tensor, "b r"]
    reading: Carry
    writing: Carry


class TuringMachine(Stepping):
    """A controller and its memory."""

    config: "TuringMachineConfig"

    def __init__(self, config: "TuringMachineConfig", shape: SeriesShape, target: TargetShape) -> None:
        super().__init__()
        inputs = self.add_steps(config, shape)
        self.slots, self.width = config.slots, config.width
        self.read_heads, self.write_heads = config.read_heads, config.write_heads
        read_size = config.read_heads * config.width
        self.recurrent = config.controller == "lstm"
        self.controller: Cell | nn.Linear = (
            Cell("lstm", inputs + read_size, config.size)
            if self.recurrent
            else nn.Linear(inputs + read_size, config.size)
        )
        self.read = config.addressing.build(config.size, config.width, config.width, heads=(config.read_heads,))
        self.write = config.addressing.build(config.size, config.width, config.width, heads=(config.write_heads,))
        self.content = nn.Linear(config.size, 2 * config.write_heads * config.width)
        self.first_reads = nn.Parameter(0.01 * torch.randn(read_size))
        if self.recurrent:
            self.first_state = nn.Parameter(0.05 * torch.randn(2, config.size))
        if config.first_memory == "learned":
            self.first_memory = nn.Parameter(0.01 * torch.randn(config.slots, config.width))
        self.dropout = Dropout(config.dropout)
        self.add_vectors(config.size + read_size, target, stops=not self.each)

    def begin(self, rows: int) -> MachineState:
        """The state before the first step."""
        like, first = self.first_reads, self.config.first_memory
        memory: Tensor
        if first == "learned":
            memory = self.first_memory
        elif first == "random":  # drawn once for each batch
            fixed = None if self.training else torch.Generator().manual_seed(0)  # scores do not differ by chance
            memory = 0.05 * torch.randn(self.slots, self.width, generator=fixed).to(like)
        else:
            memory = like.new_full((self.slots, self.width), NEARLY_NOTHING)
        memory = memory.expand(rows, -1, -1)
        shared = _for_heads(memory)
        state = tuple(one.expand(rows, -1) for one in self.first_state) if self.recurrent else ()
        reads = self.first_reads.expand(rows, -1)
        return MachineState(memory, state, reads, self.read.begin(shared), self.write.begin(shared))

    def step(self, x: Float[Tensor, "b d"], state: MachineState) -> tuple[Float[Tensor, "b h"], MachineState]:
        """One step: features, and the state after it."""
        inputs = torch.cat([x, state.reads], dim=-1)
        if isinstance(self.controller, Cell):
            own = self.controller(self.controller.project(inputs), state.controller)
            hidden = own[0]
        else:
            own, hidden = (), torch.tanh(self.controller(inputs))
        query = hidden[:, None, None, :]
        heads = (-1, self.write_heads, 1, -1)
        written = self.write(query.expand(heads), _for_heads(state.memory), state.writing, need_weights=True)
        assert written.weights is not None
        erase, add = self.content(hidden).unflatten(-1, (2, self.write_heads, self.width)).unbind(dim=1)
        before = Memory(state.memory, state.memory)
        memory = self.write.write(before, written.weights.squeeze(-2), torch.sigmoid(erase), torch.tanh(add)).values
        read = self.read(query.expand(-1, self.read_heads, 1, -1), _for_heads(memory), state.reading)
        reads = read.context.flatten(1)
        features = torch.cat([hidden, reads], dim=-1)
        return features, MachineState(memory, own, reads, read.carry, written.carry)

    def run(self, schedule: Schedule) -> StepFeatures:
        inputs = schedule.inputs
        steps = kernel.fast if kernel.supported(self, inputs) and may_bypass(self) else kernel.reference
        return StepFeatures(self.dropout(steps(self, inputs)))


def _for_heads(memory: Float[Tensor, "b s m"]) -> Memory:
    """The same memory for every head."""
    shared = memory.unsqueeze(1)
    return Memory(shared, shared)


@dataclass(frozen=True)
class TuringMachineConfig(SteppingConfig):
    """``slots`` × ``width`` is the memory. ``first_memory``: what it holds before the first step."""

    controller: Controller = "lstm"
    slots: int = 128
    width: int = 20
    read_heads: int = 1
    write_heads: int = 1
    first_memory: FirstMemory = "constant"
    addressing: AddressingConfig = field(default_factory=AddressingConfig)
    kind: ClassVar[str] = "ntm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "slots", "width", "read_heads", "write_heads")
        if self.slots > MOST_SLOTS:
            raise ValueError(f"slots is {self.slots:,}; it must be at most {MOST_SLOTS:,}")
        for name, kinds in (("controller", Controller), ("first_memory", FirstMemory)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is one of {', '.join(get_args(kinds))}")

    def build(self, shape: SeriesShape, target: TargetShape) -> TuringMachine:
        return TuringMachine(self, shape, target)
