"""Series to series: frames in, vectors out, one behind the other, with attention over the frames for each.

The listener and the decoder of Listen, Attend and Spell; the last vector takes the place of the last letter, as in
Tacotron (Wang et al. 2017). What people get wrong: a decoder that is always given the true last vector learns to repeat
it, and drifts when it runs by itself: in training a share of the true vectors is dropped.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.models.listening import Attending, AttendingConfig
from sightline.models.series import Annotations, JointLoss
from sightline.models.vector_writer import Generated, TargetShape, VectorsBatch, VectorWriter, VectorWriterConfig
from sightline.nn.decoder import DecoderState
from sightline.nn.series import SeriesBatch, SeriesShape, frame_mask


class SeriesToSeries(Attending, VectorWriter):
    """Frames in, vectors out."""

    def __init__(self, config: "SeriesToSeriesConfig", shape: SeriesShape, target: TargetShape) -> None:
        super().__init__()
        self.config, self.shape = config, shape
        self.front = config.front.build(shape)
        self.add_listener(config)
        self.add_decoder(config)
        self.enter = nn.Linear(target.size, config.embedding_size)
        self.add_vectors(config.decoder_size, target)

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
        true = self.standardised(target.values).masked_fill(~mask.unsqueeze(-1), 0.0)
        features, _ = self.decode(self._before(true), self.begin(source))
        return self.vector_loss(features, target, true, mask)

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
            made.append(self.output(features))
            last = (made[-1] > 0).to(made[-1].dtype) if self.bits else made[-1]
            stops += going >= 0.5
            going = going * (1 - torch.sigmoid(self.stop(features).flatten()))
        values = torch.cat(made, dim=1) if made else last[:, :0]
        return Generated(self.values_of(values), stops + (going >= 0.5))

    def again(self, annotations: Annotations, values: Float[Tensor, "b u e"]) -> Float[Tensor, "b u e"]:
        """The vectors once more, standardised, all at once: each behind the given ones."""
        true = self.standardised(values)
        features, _ = self.decode(F.pad(true, (0, 0, 1, 0))[:, :-1], self.begin_from(annotations))
        return self.output(features)

    def attends_to_source(self, name: str) -> bool:
        """Whether the mechanism of this name looks at the frames."""
        return name.startswith("decoder.")


@dataclass(frozen=True)
class SeriesToSeriesConfig(AttendingConfig, VectorWriterConfig):
    """``dropped``: the share of true vectors that the decoder is not given in training. With 1 it never sees a vector,
    its own neither: best where the input alone tells what comes out."""

    dropped: float = 0.5
    kind: ClassVar[str] = "encoder_decoder"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.dropped <= 1:
            raise ValueError(f"dropped is {self.dropped}; it must be from 0 to 1")

    def build(self, shape: SeriesShape, target: TargetShape) -> SeriesToSeries:
        return SeriesToSeries(self, shape, target)
