"""A label for every cell of a grid: what all models of it have in common.

Cells become vectors (a small network on their pixels with some around them, an `ImageEncoder`, or given features),
vectors become annotations (networks along rows and columns), annotations become labels. With pixels and masks a second
output may refine: it says of every pixel what it shows, learns in the same run, and is read inside the cells that the
labels name only.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sightline.attention import ComposedConfig, GeneralConfig
from sightline.attention.checks import check_least, check_share
from sightline.config import Config
from sightline.models.text_to_text import Loss
from sightline.nn.dropout import Dropout
from sightline.nn.grid import Annotated, EncodedCells, FeatureCells, GridEncoder, PixelCells, PixelHead
from sightline.nn.image import ImageEncoderConfig
from sightline.nn.rnn import CellKind

NOTHING = -1  # no label: behind the edge of a grid, or not known


class Grids(NamedTuple):
    """A batch: pixels ``b h w 3`` of uint8 in whole cells, or features ``b r c d``; and which cells there are."""

    values: Tensor
    mask: Bool[Tensor, "b r c"]


class Gold(NamedTuple):
    """The right class of each cell, and where there are masks of each pixel; `NOTHING` where there is none."""

    cells: Int[Tensor, "b r c"]
    pixels: Int[Tensor, "b h w"] | None


class Answers(NamedTuple):
    """The logarithm of the probability of each class, for each cell and (from a model that refines) each pixel."""

    cells: Float[Tensor, "b r c k"]
    pixels: Float[Tensor, "b k h w"] | None


class Inputs(NamedTuple):
    """What a model is for: ``cell`` pixels along a cell (0: features are given), so many numbers for each place."""

    cell: int
    channels: int
    classes: int


def general() -> ComposedConfig:
    return ComposedConfig(GeneralConfig())


@dataclass(frozen=True)
class GridModelConfig(Config):
    """What the models share.

    ``width``: channels of the network on pixels at its finest. ``cell_size``: numbers of a cell's vector. ``rnn_size``:
    of each direction along rows and columns, ``rnn_layers`` of them (0: cells stay as they are). ``pixel_width``: of
    the output that refines (0: none). ``pixels`` is how much its loss counts beside that of the cells. ``encoder``: an
    image encoder instead of the network on pixels; its places are resampled to the cells, and it refines nothing.
    """

    width: int = 24
    cell_size: int = 96
    use_gru: bool = False
    rnn_size: int = 32
    rnn_layers: int = 1
    dropout: float = 0.2
    pixel_width: int = 24
    pixels: float = 1.0
    encoder: ImageEncoderConfig | None = None
    family: ClassVar[str] = "grid_model"

    def __post_init__(self) -> None:
        check_least(self, 1, "width", "cell_size", "rnn_size")
        check_least(self, 0, "rnn_layers", "pixel_width", "pixels")
        check_share(self, "dropout")

    @property
    def cell_kind(self) -> CellKind:
        return "gru" if self.use_gru else "lstm"

    @abstractmethod
    def build(self, inputs: Inputs, weights: Sequence[float] | None = None, *, pretrained: bool = False) -> "GridModel":
        """Build the model. ``weights`` say how much a cell of each class counts in training."""


class GridModel(nn.Module):
    """The base: cells in, annotations of cells, labels out."""

    def __init__(
        self, config: GridModelConfig, inputs: Inputs, weights: Sequence[float] | None, pretrained: bool
    ) -> None:
        super().__init__()
        self.config, self.inputs = config, inputs
        self.cells: PixelCells | FeatureCells | EncodedCells
        if not inputs.cell:
            if config.encoder is not None:
                raise ValueError("an image encoder reads pixels, and these grids have features already")
            self.cells = FeatureCells(inputs.channels, config.cell_size)
        elif config.encoder is not None:
            encoder = config.encoder.build(pretrained=pretrained)
            self.cells = EncodedCells(encoder, config.encoder.frozen, config.cell_size)
        else:
            self.cells = PixelCells(inputs.cell, config.width, config.cell_size)
        self.lines: GridEncoder | None = None
        self.annotation_size = config.cell_size
        if config.rnn_layers:
            self.lines = GridEncoder(
                config.cell_kind, config.cell_size, config.rnn_size, config.rnn_layers, config.dropout
            )
            self.annotation_size = self.lines.annotation_size
        self.dropout = Dropout(config.dropout)
        self.pixel_head: PixelHead | None = None
        if config.pixel_width and isinstance(self.cells, PixelCells):
            self.pixel_head = PixelHead(
                self.annotation_size, self.cells.sizes, config.pixel_width, 1 if inputs.classes == 2 else inputs.classes
            )
        given = torch.ones(inputs.classes) if weights is None else torch.tensor(list(weights))
        self.register_buffer("weights", given.float(), persistent=False)  # of use in training only

    def annotate(self, grids: Grids) -> tuple[Annotated, list[Tensor]]:
        """Annotations of the cells, and what the network on pixels saw on the way to them."""
        cells, stages = self.cells(grids.values, grids.mask)
        if self.lines is None:
            there = grids.mask.unsqueeze(-1)
            mean = (cells * there).sum(dim=(1, 2)) / there.sum(dim=(1, 2)).clamp(min=1)
            return Annotated(cells * there, mean), stages
        return self.lines(cells, grids.mask), stages

    def answer(self, grids: Grids) -> Answers:
        """What the model says, without ever seeing a label."""
        annotated, stages = self.annotate(grids)
        return Answers(self.label(annotated, grids.mask), self._refine(annotated, stages, grids.mask))

    @abstractmethod
    def label(self, annotated: Annotated, mask: Bool[Tensor, "b r c"]) -> Float[Tensor, "b r c k"]:
        """The logarithm of the probability of each class of each cell."""

    @abstractmethod
    def cell_loss(self, annotated: Annotated, mask: Bool[Tensor, "b r c"], gold: Int[Tensor, "b r c"]) -> Tensor:
        """The sum over the cells that have a label."""

    def loss(self, grids: Grids, gold: Gold) -> Loss:
        """Of cells and pixels, summed over cells: each pixel of a cell counts its share."""
        annotated, stages = self.annotate(grids)
        total = self.cell_loss(annotated, grids.mask, gold.cells)
        if self.pixel_head is not None and gold.pixels is not None and self.config.pixels:
            logits = self._pixel_logits(annotated, stages, grids.mask)
            total = total + self.config.pixels * self._pixel_loss(logits, gold.pixels)
        return Loss(total, int((gold.cells != NOTHING).sum()))

    def _refine(self, annotated: Annotated, stages: list[Tensor], mask: Bool[Tensor, "b r c"]) -> Tensor | None:
        if self.pixel_head is None:
            return None
        logits = self._pixel_logits(annotated, stages, mask)
        if self.inputs.classes == 2:
            return torch.cat([F.logsigmoid(-logits), F.logsigmoid(logits)], dim=1)
        return torch.log_softmax(logits, dim=1)

    def _pixel_logits(self, annotated: Annotated, stages: list[Tensor], mask: Bool[Tensor, "b r c"]) -> Tensor:
        assert self.pixel_head is not None
        return self.pixel_head(annotated.annotations, stages, mask)

    def _pixel_loss(self, logits: Float[Tensor, "b o h w"], gold: Int[Tensor, "b h w"]) -> Tensor:
        """Cross-entropy and, of two classes, 1 − Dice as well (Milletari et al. 2016): what is marked is thin, and
        cross-entropy alone hardly sees it. In units of cells, so that both losses are of one size."""
        there = gold != NOTHING
        cells = there.sum() / self.inputs.cell**2
        if self.inputs.classes > 2:
            return cells * F.cross_entropy(logits, gold, ignore_index=NOTHING)
        target = (gold == 1)[there].to(logits.dtype)
        marked = logits[:, 0][there]
        entropy = F.binary_cross_entropy_with_logits(marked, target)
        probs = torch.sigmoid(marked)
        dice = (2 * (probs * target).sum() + 1) / (probs.sum() + target.sum() + 1)
        return cells * (entropy + 0.5 * (1 - dice))

    def _cross_entropy(self, logits: Float[Tensor, "... k"], gold: Int[Tensor, "..."]) -> Tensor:
        return F.cross_entropy(
            logits.flatten(0, -2), gold.flatten(), self.get_buffer("weights"), ignore_index=NOTHING, reduction="sum"
        )
