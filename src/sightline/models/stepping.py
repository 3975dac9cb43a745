"""Models that take one step for each frame and answer in steps of their own: machines with a state.

A row of a batch is its frames, then as many steps without a frame as it answers with, then padding: each row begins to
answer where its own frames end, so that a batch of different lengths gives what each row gives by itself. One more
number of each step tells whether it is to answer. Where each frame has an answer (``answers`` is ``each``), the steps
of the frames are those of the answers.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.attention.checks import check_choice, check_least, check_share
from sightline.models.series import JointLoss, SeriesModel
from sightline.models.vector_writer import Generated, TargetShape, VectorsBatch, VectorWriter, VectorWriterConfig
from sightline.nn.series import SeriesBatch, SeriesFrontConfig, SeriesShape, frame_mask

Answers = Literal["auto", "after", "each"]
AT_ONCE = 32  # steps that are answered before it is seen whether all rows have stopped


class Schedule(NamedTuple):
    """What each step reads, whether it is there, and at which step the answers of each row begin."""

    inputs: Float[Tensor, "b t d"]
    there: Bool[Tensor, "b t"]
    starts: Int[Tensor, " b"]


class StepFeatures(NamedTuple):
    """What a machine makes of the steps: features of each; the cost of repeats and their number, where it decides.

    Where the loss is that of every repeat (PonderNet), ``repeated`` are the features after each repeat and ``weights``
    their probabilities: repeats × rows × steps.
    """

    features: Float[Tensor, "b t h"]
    cost: Float[Tensor, "b t"] | None = None
    repeats: Float[Tensor, "b t"] | None = None
    repeated: Float[Tensor, "n b t h"] | None = None
    weights: Float[Tensor, "n b t"] | None = None


class Stepping(SeriesModel, VectorWriter):
    """A machine. A subclass runs through all steps (`run`)."""

    config: "SteppingConfig"

    def add_steps(self, config: "SteppingConfig", shape: SeriesShape) -> int:
        """The front end; gives how many numbers a step reads."""
        self.config = config
        self.front = config.front.build(shape)
        self.each = config.answers == "each"
        return self.front.size + 1

    @abstractmethod
    def run(self, schedule: Schedule) -> StepFeatures:
        """Features of all steps."""

    def schedule(self, source: SeriesBatch, answers: Int[Tensor, " b"]) -> Schedule:
        """The steps of a batch whose rows answer with so many vectors."""
        frames, mask = self.front(source)
        lengths = mask.sum(dim=-1)
        starts = torch.zeros_like(lengths) if self.each else lengths
        ends = lengths if self.each else lengths + answers
        longest = int(ends.max()) if len(ends) else 0
        inputs = frames.new_zeros(len(frames), longest, frames.shape[-1] + 1)
        inputs[:, : frames.shape[1], :-1] = frames[:, :longest]
        there = frame_mask(ends, longest)
        inputs[..., -1] = (there & ~frame_mask(starts, longest)).to(frames.dtype)
        return Schedule(inputs, there, starts)

    def answered(self, x: Float[Tensor, "... h"], starts: Int[Tensor, " b"], count: int) -> Float[Tensor, "... h"]:
        """Of rows × steps those at which each row answers; behind its last step the last one stands again."""
        places = starts.unsqueeze(-1) + torch.arange(count, device=starts.device)
        places = places.clamp(max=x.shape[-2] - 1).unsqueeze(-1)
        return x.gather(-2, places.expand(*x.shape[:-2], count, x.shape[-1]))

    def loss(self, source: SeriesBatch, target: VectorsBatch) -> JointLoss:
        longest = target.values.shape[1]
        mask = frame_mask(target.lengths, longest)
        true = self.standardised(target.values).masked_fill(~mask.unsqueeze(-1), 0.0)
        schedule = self.schedule(source, target.lengths)
        steps = self.run(schedule)
        if steps.repeated is None:
            features = self.answered(steps.features, schedule.starts, longest)
            made = self.vector_loss(features, target, true, mask)
        else:
            made = self._expected(steps, schedule, target, true, mask)
        if steps.cost is None or steps.repeats is None:
            return made
        cost = steps.cost[schedule.there].sum()
        count = max(1, int(schedule.there.sum()))
        repeats = float(steps.repeats[schedule.there].sum().detach()) / count * made.tokens  # a mean, as parts are
        parts = {**made.parts, "ponder": float(cost.detach())}
        return JointLoss(made.total + cost, made.tokens, parts, {"repeats": repeats})

    def _expected(
        self, steps: StepFeatures, schedule: Schedule, target: VectorsBatch, true: Tensor, mask: Bool[Tensor, "b u"]
    ) -> JointLoss:
        """The expectation of the losses of all repeats."""
        assert steps.repeated is not None
        assert steps.weights is not None
        longest = true.shape[1]
        features = self.answered(steps.repeated, schedule.starts, longest)
        weights = self.answered(steps.weights.unsqueeze(-1), schedule.starts, longest).squeeze(-1)
        own = (weights * self.errors(features, true)).sum(dim=0)[mask].sum()
        total, parts = own, {"bits" if self.bits else "squared_error": float(own.detach())}
        if self.stops:
            stopped = (weights * self.stop_errors(features, target.lengths)).sum(dim=0)[mask].sum()
            total, parts["stop"] = own + stopped, float(stopped.detach())
        return JointLoss(total, int(mask.sum()), parts)

    @torch.no_grad()
    def generate(self, source: SeriesBatch, most: int, least: int = 0) -> Generated:
        """Answers need no answer before them: all are computed at once, more of them until all rows have stopped."""
        if self.each:
            steps = self.run(self.schedule(source, source.lengths))
            return Generated(self.values_of(self.output(steps.features)), source.lengths)
        count = min(most, max(least, AT_ONCE))
        while True:
            answers = torch.full_like(source.lengths, count)
            schedule = self.schedule(source, answers)
            features = self.answered(self.run(schedule).features, schedule.starts, count)
            stops = self._stops(features)
            if count >= most or bool((stops <= count).all()):
                return Generated(self.values_of(self.output(features)), stops)
            count = min(most, 2 * count)

    def _stops(self, features: Float[Tensor, "b u h"]) -> Int[Tensor, " b"]:
        """After how many vectors each row stops: one more than there are where it does not."""
        going = torch.cumprod(1 - torch.sigmoid(self.stop(features).squeeze(-1)), dim=-1)
        return 1 + (going >= 0.5).sum(dim=-1)


@dataclass(frozen=True)
class SteppingConfig(VectorWriterConfig):
    """``answers``: ``after`` all frames, at ``each`` of them, or ``auto``: each where all targets are as long as their
    inputs."""

    front: SeriesFrontConfig = field(default_factory=lambda: SeriesFrontConfig(centring="data", masking=None))
    answers: Answers = "auto"
    size: int = 100
    dropout: float = 0.0
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, 1, "size")
        check_share(self, "dropout")
        check_choice(self, Answers, "answers")

    @property
    def shortens(self) -> tuple[int, ...]:
        return ()

    @abstractmethod
    def build(self, shape: SeriesShape, target: TargetShape) -> Stepping:
        """The machine for frames of this shape."""
