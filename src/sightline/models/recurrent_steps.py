"""A recurrent network over steps, which may repeat each of them: the baseline of machines with a memory.

With `sightline.nn.thinking` it decides by itself how often (Adaptive Computation Time, PonderNet), or repeats always as
often. One more number of the input is 1 at the first repeat and 0 at the others, so that the same frame read twice is
not two frames.
"""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from sightline.attention.checks import check_choice, check_least
from sightline.models.stepping import Schedule, StepFeatures, Stepping, SteppingConfig
from sightline.models.vector_writer import TargetShape
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import Cell
from sightline.nn.series import SeriesShape
from sightline.nn.thinking import FixedRepeats, FixedRepeatsConfig, State, ThinkingConfig, Thought

StepCell = Literal["lstm", "gru", "rnn"]


class RecurrentSteps(Stepping):
    """Layers of cells. The state of all layers is repeated together."""

    def __init__(self, config: "RecurrentStepsConfig", shape: SeriesShape, target: TargetShape) -> None:
        super().__init__()
        inputs = self.add_steps(config, shape)
        self.thinking = config.thinking.build(config.size)
        self.repeats = not (isinstance(self.thinking, FixedRepeats) and self.thinking.most == 1)
        sizes = [inputs + self.repeats, *[config.size] * (config.layers - 1)]
        self.cells = nn.ModuleList(Cell(config.cell, size, config.size) for size in sizes)
        self.dropout = Dropout(config.dropout)
        self.per_layer = 2 if config.cell == "lstm" else 1
        self.add_vectors(config.size, target, stops=not self.each)

    def run(self, schedule: Schedule) -> StepFeatures:
        inputs, first = schedule.inputs, self.cells[0]
        assert isinstance(first, Cell)
        zero = inputs.new_zeros(len(inputs), first.size)
        state: State = (zero,) * (len(self.cells) * self.per_layer)
        ways = [_flagged(inputs, flag) if self.repeats else inputs for flag in (1.0, 0.0)[: 1 + self.repeats]]
        projected = [first.project(one).unbind(dim=1) for one in ways]
        thoughts = list[Thought]()
        for number in range(inputs.shape[1]):
            entered = [one[number] for one in projected]
            there = None if isinstance(self.thinking, FixedRepeats) else schedule.there[:, number]
            thought = self.thinking(
                lambda own, n, entered=entered: self._step(entered[min(n, 2) - 1], own), state, there
            )
            thoughts.append(thought)
            state = thought.state
        features = self.dropout(torch.stack([one.state[0] for one in thoughts], dim=1))
        if isinstance(self.thinking, FixedRepeats):
            return StepFeatures(features)
        cost, repeats = (torch.stack([getattr(one, name) for one in thoughts], dim=1) for name in ("cost", "repeats"))
        most = max(len(one.weights) for one in thoughts)
        weights = torch.stack([_padded(one.weights, most) for one in thoughts], dim=2)
        repeated = None
        if thoughts and thoughts[0].states is not None:
            each = [torch.stack([own[0] for own in one.states or ()]) for one in thoughts]
            repeated = self.dropout(torch.stack([_padded(one, most) for one in each], dim=2))
        return StepFeatures(features, cost, repeats, repeated, weights)

    def _step(self, projected: Tensor, state: State) -> State:
        """The top layer comes first in the state: what is written, and whether to halt, is read from it."""
        own = [state[at : at + self.per_layer] for at in range(0, len(state), self.per_layer)][::-1]
        for number, cell in enumerate(self.cells):
            assert isinstance(cell, Cell)
            entered = projected if number == 0 else cell.project(self.dropout(own[number - 1][0]))
            own[number] = cell(entered, own[number])
        return tuple(one for layer in own[::-1] for one in layer)


def _flagged(inputs: Tensor, flag: float) -> Tensor:
    return torch.cat([inputs, inputs.new_full((*inputs.shape[:-1], 1), flag)], dim=-1)


def _padded(x: Tensor, most: int) -> Tensor:
    """With zeros for repeats that a step did not need."""
    return torch.cat([x, x.new_zeros(most - len(x), *x.shape[1:])]) if len(x) < most else x


@dataclass(frozen=True)
class RecurrentStepsConfig(SteppingConfig):
    """``thinking``: how often each step is repeated."""

    cell: StepCell = "lstm"
    layers: int = 1
    thinking: ThinkingConfig = field(default_factory=FixedRepeatsConfig)
    kind: ClassVar[str] = "lstm"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "layers")
        check_choice(self, StepCell, "cell")

    def build(self, shape: SeriesShape, target: TargetShape) -> RecurrentSteps:
        return RecurrentSteps(self, shape, target)
