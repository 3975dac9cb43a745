"""All cells of a grid at once: the fast model, and the baseline that sees one cell only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention import Attention, AttentionConfig
from sightline.models.grid import GridModel, GridModelConfig, Grids, Inputs, general
from sightline.nn.grid import Annotated


class AtOnce(GridModel):
    """All cells at once: each is labelled from its annotation and, with attention, from what it looked at besides."""

    def __init__(
        self, config: "AtOnceConfig", inputs: Inputs, weights: Sequence[float] | None, pretrained: bool
    ) -> None:
        super().__init__(config, inputs, weights, pretrained)
        size = self.annotation_size
        self.attention: Attention | None = None
        if config.attention is not None:
            self.attention = config.attention.build(size, size, size)
            self.write = nn.Linear(size + self.attention.context_size, size)
        self.output = nn.Linear(size, inputs.classes)

    def _logits(self, annotated: Annotated, mask: Bool[Tensor, "b r c"]) -> Float[Tensor, "b r c k"]:
        features = annotated.annotations
        if self.attention is not None:
            flat = self.dropout(features).flatten(1, 2)
            memory = self.attention.remember(flat, mask=None if bool(mask.all()) else mask.flatten(1))
            read = self.attention(flat, memory)
            looked = torch.tanh(self.write(torch.cat([flat, read.context], dim=-1)))
            features = features + looked.unflatten(1, mask.shape[1:])
        return self.output(self.dropout(features))

    def label(self, annotated: Annotated, mask: Bool[Tensor, "b r c"]) -> Float[Tensor, "b r c k"]:
        return torch.log_softmax(self._logits(annotated, mask), dim=-1)

    def cell_loss(self, annotated: Annotated, mask: Bool[Tensor, "b r c"], gold: Int[Tensor, "b r c"]) -> Tensor:
        return self._cross_entropy(self._logits(annotated, mask), gold)


@dataclass(frozen=True)
class AtOnceConfig(GridModelConfig):
    """``attention``: each cell also looks at all cells; left out, it reads its row and its column only."""

    attention: AttentionConfig | None = field(default_factory=general)
    kind: ClassVar[str] = "at_once"

    def build(self, inputs: Inputs, weights: Sequence[float] | None = None, *, pretrained: bool = False) -> AtOnce:
        return AtOnce(self, inputs, weights, pretrained)


class Single(GridModel):
    """The baseline: every cell is labelled from its own pixels alone."""

    def __init__(
        self, config: "SingleConfig", inputs: Inputs, weights: Sequence[float] | None, pretrained: bool
    ) -> None:
        super().__init__(config, inputs, weights, pretrained)
        self.output = nn.Linear(self.annotation_size, inputs.classes)

    def annotate(self, grids: Grids) -> tuple[Annotated, list[Tensor]]:
        """Of a batch in which each cell is a grid of its own: the network cannot look over its edge."""
        batch, rows, columns = grids.mask.shape
        values = grids.values.unflatten(1, (rows, -1)).unflatten(3, (columns, -1))
        alone = values.transpose(2, 3).flatten(0, 2)  # cells, their pixels
        cells, stages = self.cells(alone, grids.mask.flatten()[:, None, None])
        return Annotated(cells.reshape(batch, rows, columns, -1), cells.new_zeros(batch, 1)), stages

    def label(self, annotated: Annotated, mask: Bool[Tensor, "b r c"]) -> Float[Tensor, "b r c k"]:
        return torch.log_softmax(self.output(self.dropout(annotated.annotations)), dim=-1)

    def cell_loss(self, annotated: Annotated, mask: Bool[Tensor, "b r c"], gold: Int[Tensor, "b r c"]) -> Tensor:
        return self._cross_entropy(self.output(self.dropout(annotated.annotations)), gold)

    def _pixel_logits(self, annotated: Annotated, stages: list[Tensor], mask: Bool[Tensor, "b r c"]) -> Tensor:
        alone = Annotated(annotated.annotations.flatten(0, 2)[:, None, None], annotated.final)
        logits = super()._pixel_logits(alone, stages, mask.flatten()[:, None, None])
        return logits.unflatten(0, mask.shape).permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


@dataclass(frozen=True)
class SingleConfig(GridModelConfig):
    rnn_layers: int = 0
    kind: ClassVar[str] = "single"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rnn_layers or self.encoder is not None:
            raise ValueError("a model of single cells has no rnn_layers and no image encoder: both read other cells")

    def build(self, inputs: Inputs, weights: Sequence[float] | None = None, *, pretrained: bool = False) -> Single:
        return Single(self, inputs, weights, pretrained)
