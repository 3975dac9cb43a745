"""Series to series: frames in, vectors out, one behind the other, with attention over the frames for each.

The listener and the decoder of Listen, Attend and Spell; the last vector takes the place of the last letter, as in
Tacotron (Wang et al. 2017). The loss is the squared error of standardised vectors, and that of a stop probability. What
people get wrong: a decoder that is always given the true last vector learns to repeat it, and drifts when it runs by
itself: in training a share of the true vectors is dropped; a threshold of a stop probability that is uncertain by a
frame or two is never reached: it stops where the product of (1 − p) falls below a half.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sightline.models.listening import Attending, AttendingConfig
from sightline.models.series import Annotations, JointLoss
from sightline.nn.decoder import DecoderState
from sightline.nn.series import SeriesBatch, SeriesShape, frame_mask


class VectorsBatch(NamedTuple):
    """Vectors of several items, zeros behind the end of each, and how many each has."""

    values: Float[Tensor, "b u e"]
    lengths: Int[Tensor, " b"]


class Generated(NamedTuple):
    """The vectors of a batch, and after how many of them the model would stop (more than there are: not yet)."""

    values: Float[Tensor, "b u e"]
    stops: Int[Tensor, " b"]


class SeriesToSeries(Attending):
    """Frames in, vectors out."""

    target_mean: Tensor
    target_deviation: Tensor

    def __init__(self, config: "SeriesToSeriesConfig", shape: SeriesShape, target_size: int) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.front = config.front.build(shape)
        self.add_listener(config)
        self.add_decoder(config)
        self.register_buffer("target_mean", torch.zeros(target_size))
        self.register_buffer("target_deviation", torch.ones(target_size))
        self.enter = nn.Linear(target_size, config.embedding_size)
        self.output = nn.Linear(config.decoder_size, target_size)
        self.stop = nn.Linear(config.decoder_size, 1)

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Set the mean and the deviation of the training data's vectors."""
        self.target_mean.copy_(mean)
        self.target_deviation.copy_(deviation)

    def begin(self, source: SeriesBatch) -> DecoderState:
        return self.begin_from(self.annotate(source))

    def decode(
        self, before: Float[Tensor, "b u e"], state: DecoderState
    ) -> tuple[Float[Tensor, "b u h"], DecoderState]:
        """Features of the next vectors; ``before`` are the standardised vectors before each, which a model that never
        was given any in training does not see."""
        if self.config.dropped == 1:
            before = torch.zeros_like(before)
        features, state = self.decoder(self.dropout(torch.relu(self.enter(before))), state)
        return self.dropout(features), state

    def loss(self, source: SeriesBatch, target: VectorsBatch) -> JointLoss:
        mask = frame_mask(target.lengths, target.values.shape[1])
        true = ((target.values - self.target_mean) / self.target_deviation).masked_fill(~mask.unsqueeze(-1), 0.0)
        features, _ = self.decode(self._before(true), self.begin(source))
        squared = (self.output(features) - true).square().mean(dim=-1)[mask].sum()
        last = torch.arange(mask.shape[1], device=mask.device) == target.lengths.unsqueeze(-1) - 1
        logits = self.stop(features).squeeze(-1)
        stopped = F.binary_cross_entropy_with_logits(logits[mask], last[mask].to(logits.dtype), reduction="sum")
        parts = {"squared_error": float(squared.detach()), "stop": float(stopped.detach())}
        return JointLoss(squared + stopped, int(mask.sum()), parts)

    def _before(self, true: Float[Tensor, "b u e"]) -> Float[Tensor, "b u e"]:
        """The vector before each; in training a share of them is dropped. Before the first stands the mean, 0."""
        before = F.pad(true, (0, 0, 1, 0))[:, :-1]
        if self.training and self.config.dropped:
            kept = torch.rand(before.shape[:2], device=before.device) >= self.config.dropped
            before = before * kept.unsqueeze(-1)
        return before

    @torch.no_grad()
    def generate(self, source: SeriesBatch, most: int, least: int = 0) -> Generated:
        """Vectors until all have stopped, at least ``least`` and at most ``most``, from its own before them."""
        state = self.begin(source)
        rows = len(source.lengths)
        last = self.target_mean.new_zeros(rows, 1, len(self.target_mean))
        going = last.new_ones(rows)
        stops = torch.zeros(rows, dtype=torch.long, device=last.device)
        made: list[Tensor] = []
        while len(made) < most and (len(made) < least or bool((going >= 0.5).any())):
            features, state = self.decode(last, state)
            last = self.output(features)
            made.append(last)
            stops += going >= 0.5
            going = going * (1 - torch.sigmoid(self.stop(features).flatten()))
        values = torch.cat(made, dim=1) if made else last[:, :0]
        return Generated(values * self.target_deviation + self.target_mean, stops + (going >= 0.5))

    def again(self, annotations: Annotations, values: Float[Tensor, "b u e"]) -> Float[Tensor, "b u e"]:
        """The vectors once more, standardised, all at once: each behind the given ones."""
        true = (values - self.target_mean) / self.target_deviation
        features, _ = self.decode(F.pad(true, (0, 0, 1, 0))[:, :-1], self.begin_from(annotations))
        return self.output(features)

    def attends_to_source(self, name: str) -> bool:
        """Whether the mechanism of this name looks at the frames."""
        return name.startswith("decoder.")


@dataclass(frozen=True)
class SeriesToSeriesConfig(AttendingConfig):
    """``dropped``: the share of true vectors that the decoder is not given in training. With 1 it never sees a vector,
    its own neither: best where the input alone tells what comes out."""

    dropped: float = 0.5
    family: ClassVar[str] = "series_to_series"
    kind: ClassVar[str] = "encoder_decoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dropped <= 1:
            raise ValueError(f"dropped is {self.dropped}; it must be from 0 to 1")

    def build(self, shape: SeriesShape, target_size: int) -> SeriesToSeries:
        return SeriesToSeries(self, shape, target_size)
