"""Transformers over steps: a stack of layers, or one layer that is repeated (Universal Transformer).

All frames attend to each other; a step that answers attends to all frames, to itself and to the answers before it, so
that no answer depends on how many follow. The steps that answer have positions, and nothing else that tells them apart:
a sequence that is longer than those of training has positions that were never trained.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from sightline.attention.checks import check_least
from sightline.models.stepping import Schedule, StepFeatures, Stepping, SteppingConfig
from sightline.models.vector_writer import TargetShape
from sightline.nn.annotating import sinusoids
from sightline.nn.dropout import Dropout
from sightline.nn.series import SeriesShape
from sightline.nn.thinking import AdaptiveConfig, FixedRepeats, ThinkingConfig
from sightline.nn.transformer import EncoderLayer, LayerShape
from sightline.nn.universal import UniversalEncoder


class TransformerSteps(Stepping):
    """A stack of layers."""

    def __init__(self, config: "TransformerStepsConfig", shape: SeriesShape, target: TargetShape) -> None:
        super().__init__()
        self.enter = nn.Linear(self.add_steps(config, shape), config.size)
        self.layers = nn.ModuleList(EncoderLayer(config.layer_shape) for _ in range(config.layers))
        self.norm, self.dropout = nn.LayerNorm(config.size), Dropout(config.dropout)
        self.add_vectors(config.size, target, stops=not self.each)

    def run(self, schedule: Schedule) -> StepFeatures:
        x = self.enter(schedule.inputs)
        x = self.dropout(x + sinusoids(0, x.shape[1], x.shape[2], x))
        allow = seen_by_steps(schedule)
        for layer in self.layers:
            x = layer(x, schedule.there, allow)
        return StepFeatures(self.norm(x))


class UniversalSteps(Stepping):
    """One layer, repeated; each step halts by itself."""

    def __init__(self, config: "UniversalStepsConfig", shape: SeriesShape, target: TargetShape) -> None:
        super().__init__()
        self.enter = nn.Linear(self.add_steps(config, shape), config.size)
        self.encoder = UniversalEncoder(config.layer_shape, config.thinking)
        self.add_vectors(config.size, target, stops=not self.each)

    def run(self, schedule: Schedule) -> StepFeatures:
        thought = self.encoder(self.enter(schedule.inputs), schedule.there, seen_by_steps(schedule))
        features = thought.state[0]
        if isinstance(self.encoder.thinking, FixedRepeats):
            return StepFeatures(features)
        repeated = None if thought.states is None else torch.stack([one[0] for one in thought.states])
        return StepFeatures(features, thought.cost, thought.repeats, repeated, thought.weights)


def seen_by_steps(schedule: Schedule) -> Bool[Tensor, "b 1 t t"]:
    """Which step (the last axis) each step may attend to, for all heads."""
    steps = torch.arange(schedule.inputs.shape[1], device=schedule.starts.device)
    frames = steps < schedule.starts.unsqueeze(-1)
    if not bool(frames.any()):  # each frame has an answer: all attend to all
        return torch.ones_like(frames).unsqueeze(1).unsqueeze(1).expand(-1, 1, len(steps), -1)
    return (frames.unsqueeze(1) | (steps <= steps.unsqueeze(-1))).unsqueeze(1)


@dataclass(frozen=True)
class AttendingStepsConfig(SteppingConfig):
    """What both have in common."""

    size: int = 128
    heads: int = 4
    feed_forward: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "heads", "feed_forward")
        if self.size % (2 * self.heads):
            raise ValueError(f"size is {self.size}; it must be divisible by twice the number of heads, {self.heads}")

    @property
    def layer_shape(self) -> LayerShape:
        return LayerShape(self.size, self.heads, self.feed_forward, self.dropout)


@dataclass(frozen=True)
class TransformerStepsConfig(AttendingStepsConfig):
    """A stack of ``layers``."""

    layers: int = 2
    kind: ClassVar[str] = "transformer"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "layers")

    def build(self, shape: SeriesShape, target: TargetShape) -> TransformerSteps:
        return TransformerSteps(self, shape, target)


@dataclass(frozen=True)
class UniversalStepsConfig(AttendingStepsConfig):
    """``thinking``: how often the layer is repeated."""

    thinking: ThinkingConfig = field(default_factory=lambda: AdaptiveConfig(most=10))
    kind: ClassVar[str] = "universal"

    def build(self, shape: SeriesShape, target: TargetShape) -> UniversalSteps:
        return UniversalSteps(self, shape, target)
