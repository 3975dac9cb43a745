"""What machines with a memory have in common: a controller, heads that read and write slots, one step after another."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sightline.attention.checks import check_choice, check_least
from sightline.attention.contract import Carry
from sightline.models.stepping import Stepping, SteppingConfig
from sightline.nn.rnn import Cell, CellState

Controller = Literal["lstm", "feed_forward"]
NEARLY_NOTHING = 1e-6  # in every place of a constant first memory (Collier and Beel 2018)


class Links(NamedTuple):
    """Which slots are in use, which one was written last, and which one was written after which."""

    usage: Float[Tensor, "b s"]
    precedence: Float[Tensor, "b s"]
    after: Float[Tensor, "b s s"]


class MachineState(NamedTuple):
    """Everything that goes from one step to the next: nothing is kept on the model. ``links`` are those of a
    differentiable neural computer."""

    memory: Float[Tensor, "b s m"]
    controller: CellState
    reads: Float[Tensor, "b r"]
    reading: Carry
    writing: Carry
    links: Links | None = None


class MemoryMachine(Stepping):
    """A machine with a memory. A subclass has the modules ``read`` and ``write``, whose attention is seen."""

    config: "MemoryMachineConfig"
    slots: int
    read_heads: int

    def add_controller(self, config: "MemoryMachineConfig", inputs: int) -> None:
        """What reads a frame of so many numbers and what the heads read before."""
        self.slots, self.width, self.read_heads = config.slots, config.width, config.read_heads
        self.read_size = config.read_heads * config.width
        self.recurrent = config.controller == "lstm"
        self.controller: Cell | nn.Linear = (
            Cell("lstm", inputs + self.read_size, config.size)
            if self.recurrent
            else nn.Linear(inputs + self.read_size, config.size)
        )

    def add_first(self) -> None:
        """What the controller starts from."""
        self.first_reads = nn.Parameter(0.01 * torch.randn(self.read_size))
        if self.recurrent:
            self.first_state = nn.Parameter(0.05 * torch.randn(2, self.config.size))

    def first_slots(self) -> Float[Tensor, "s m"]:
        """The memory before the first step."""
        return self.first_reads.new_full((self.slots, self.width), NEARLY_NOTHING)

    def first(self, rows: int) -> tuple[Float[Tensor, "b s m"], CellState, Float[Tensor, "b r"]]:
        """The memory, the controller's state and what was read, before the first step."""
        state = tuple(one.expand(rows, -1) for one in self.first_state) if self.recurrent else ()
        return self.first_slots().expand(rows, -1, -1), state, self.first_reads.expand(rows, -1)

    def control(self, x: Float[Tensor, "b d"], state: MachineState) -> tuple[Float[Tensor, "b h"], CellState]:
        """The controller's step: what heads and answers are made of, and its own state."""
        inputs = torch.cat([x, state.reads], dim=-1)
        if not isinstance(self.controller, Cell):
            return torch.tanh(self.controller(inputs)), ()
        own = self.controller(self.controller.project(inputs), state.controller)
        return own[0], own

    @abstractmethod
    def begin(self, rows: int) -> MachineState:
        """The state before the first step."""

    @abstractmethod
    def step(self, x: Float[Tensor, "b d"], state: MachineState) -> tuple[Float[Tensor, "b h"], MachineState]:
        """One step: features (the controller's, then what was read), and the state after it."""

    def features(self, inputs: Float[Tensor, "b t d"]) -> Float[Tensor, "b t f"]:
        """Features of all steps, step by step."""
        state, features = self.begin(len(inputs)), list[Tensor]()
        for x in inputs.unbind(dim=1):
            made, state = self.step(x, state)
            features.append(made)
        return torch.stack(features, dim=1)


@dataclass(frozen=True)
class MemoryMachineConfig(SteppingConfig):
    """``slots`` × ``width`` is the memory."""

    controller: Controller = "lstm"
    slots: int = 128
    width: int = 20
    read_heads: int = 1
    most_slots: ClassVar[int] = 1 << 17

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "slots", "width", "read_heads")
        if self.slots > self.most_slots:
            raise ValueError(f"slots is {self.slots:,}; it must be at most {self.most_slots:,}")
        check_choice(self, Controller, "controller")
