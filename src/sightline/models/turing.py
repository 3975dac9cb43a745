"""The Neural Turing Machine (Graves et al. 2014): a controller with heads that read and write a memory.

At each step the controller reads a frame and what the heads read before. All write heads erase and add, then all read
heads read what is there now. `sightline.attention.addressing` has the addressing. What people get wrong: a memory that
starts with zeros has no direction for the cosine; the weights of the first step must not be spread out evenly, for then
a shift changes nothing (both heads start at the first slot here).
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention import AddressingConfig, Memory
from sightline.attention.addressing import erase_and_add
from sightline.attention.checks import check_choice, check_least
from sightline.attention.observed import may_bypass
from sightline.kernels import turing as kernel
from sightline.models.memory_machine import MachineState, MemoryMachine, MemoryMachineConfig
from sightline.models.stepping import Schedule, StepFeatures
from sightline.models.vector_writer import TargetShape
from sightline.nn.dropout import Dropout
from sightline.nn.series import SeriesShape

FirstMemory = Literal["constant", "learned", "random"]


class TuringMachine(MemoryMachine):
    """A controller and its memory."""

    config: "TuringMachineConfig"

    def __init__(self, config: "TuringMachineConfig", shape: SeriesShape, target: TargetShape) -> None:
        super().__init__()
        self.add_controller(config, self.add_steps(config, shape))
        self.write_heads = config.write_heads
        self.read = config.addressing.build(config.size, config.width, config.width, heads=(config.read_heads,))
        self.write = config.addressing.build(config.size, config.width, config.width, heads=(config.write_heads,))
        self.content = nn.Linear(config.size, 2 * config.write_heads * config.width)
        self.add_first()
        if config.first_memory == "learned":
            self.first_memory = nn.Parameter(0.01 * torch.randn(config.slots, config.width))
        self.dropout = Dropout(config.dropout)
        self.add_vectors(config.size + self.read_size, target, stops=not self.each)

    def first_slots(self) -> Float[Tensor, "s m"]:
        if self.config.first_memory == "learned":
            return self.first_memory
        if self.config.first_memory == "random":  # drawn once for each batch
            fixed = None if self.training else torch.Generator().manual_seed(0)  # scores do not differ by chance
            return 0.05 * torch.randn(self.slots, self.width, generator=fixed).to(self.first_reads)
        return super().first_slots()

    def begin(self, rows: int) -> MachineState:
        memory, state, reads = self.first(rows)
        shared = _for_heads(memory)
        return MachineState(memory, state, reads, self.read.begin(shared), self.write.begin(shared))

    def step(self, x: Float[Tensor, "b d"], state: MachineState) -> tuple[Float[Tensor, "b h"], MachineState]:
        hidden, own = self.control(x, state)
        query = hidden[:, None, None, :]
        heads = (-1, self.write_heads, 1, -1)
        written = self.write(query.expand(heads), _for_heads(state.memory), state.writing, need_weights=True)
        assert written.weights is not None
        erase, add = self.content(hidden).unflatten(-1, (2, self.write_heads, self.width)).unbind(dim=1)
        memory = erase_and_add(state.memory, written.weights.squeeze(-2), torch.sigmoid(erase), torch.tanh(add))
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
class TuringMachineConfig(MemoryMachineConfig):
    """``first_memory``: what the memory holds before the first step."""

    write_heads: int = 1
    first_memory: FirstMemory = "constant"
    addressing: AddressingConfig = field(default_factory=AddressingConfig)
    kind: ClassVar[str] = "ntm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "write_heads")
        check_choice(self, FirstMemory, "first_memory")

    def build(self, shape: SeriesShape, target: TargetShape) -> TuringMachine:
        return TuringMachine(self, shape, target)
