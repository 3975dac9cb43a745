"""Layers for grids of cells: pixels become cells, cells read their rows and columns, cells become pixels again.

Grids of different sizes stand in one batch, padded to the right and below. What is behind the edge of a grid is zero
after every layer, just as it is behind the edge of the batch: padding changes nothing.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from sightline.kernels.dropout import Dropout
from sightline.nn.image import BatchNorm, ImageEncoder
from sightline.nn.rnn import BidirectionalEncoder, CellKind

CELLS = (4, 8, 16, 32, 64)  # pixels along a cell


class Block(nn.Module):
    """Convolution, normalisation, ReLU. The normalisation counts only what there is."""

    def __init__(self, input_size: int, size: int, kernel: int = 3) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(input_size, size, kernel, padding=kernel // 2, bias=False)
        self.norm = BatchNorm(size)
        nn.init.kaiming_normal_(self.convolution.weight, nonlinearity="relu")

    def forward(self, x: Float[Tensor, "b i h w"], mask: Bool[Tensor, "b h w"] | None) -> Float[Tensor, "b o h w"]:
        x = self.convolution(x)
        if mask is None:
            return F.relu(self.norm(x))
        norm, rows = self.norm, x.movedim(1, -1)[mask]
        there = F.batch_norm(
            rows,
            norm.running_mean,
            norm.running_var,
            norm.weight,
            norm.bias,
            self.training and len(rows) > 1,  # as `BatchNorm` does: one place alone has no spread
            norm.momentum or 0.0,
            norm.eps,
        )
        normed = torch.zeros_like(x).movedim(1, -1)
        normed[mask] = F.relu(there)
        return normed.movedim(-1, 1)


class Stage(nn.Module):
    """Two blocks, the second added to the first."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.first, self.second = Block(input_size, size), Block(size, size)

    def forward(self, x: Float[Tensor, "b i h w"], mask: Bool[Tensor, "b h w"] | None) -> Float[Tensor, "b o h w"]:
        x = self.first(x, mask)
        return x + self.second(x, mask)


def masks_of(mask: Bool[Tensor, "b r c"], stages: int) -> list[Tensor | None]:
    """Which places there are at each stage, the finest first; None where all of them are."""
    if bool(mask.all()):
        return [None] * stages
    found: list[Tensor | None] = [mask]
    for _ in range(stages - 1):
        last = found[0]
        assert last is not None
        found.insert(0, last.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2))
    return found


class PixelCells(nn.Module):
    """A small network on the pixels: a vector for each cell, that has seen the cell and some pixels around it.

    The image is halved until a cell is one place, with a stage of two convolutions at each size: at the last of four
    they have seen 60 pixels beyond the cell's edge. ``stages`` of its answer are what it saw on the way.
    """

    def __init__(self, cell: int, width: int, size: int) -> None:
        super().__init__()
        if cell not in CELLS:
            raise ValueError(f"cell is {cell}; it must be one of {', '.join(map(str, CELLS))}")
        count = cell.bit_length() - 1
        self.sizes = [width + place * (width // 2) for place in range(count)]
        self.stages = nn.ModuleList(
            Stage(before, size) for before, size in zip([12, *self.sizes], self.sizes, strict=False)
        )
        self.output = nn.Linear(self.sizes[-1], size)
        self.size = size

    def forward(
        self, pixels: UInt8[Tensor, "b h w 3"], mask: Bool[Tensor, "b r c"]
    ) -> tuple[Float[Tensor, "b r c d"], list[Tensor]]:
        x = (pixels.movedim(-1, 1).to(self.output.weight.dtype) - 127.5) / 64
        x = F.pixel_unshuffle(x, 2)  # four pixels are one place: nothing is lost, and the rest is four times as fast
        seen = []
        for number, (stage, there) in enumerate(zip(self.stages, masks_of(mask, len(self.stages)), strict=True)):
            if number:
                x = F.max_pool2d(x, 2)
            elif there is not None:
                x = x * there.unsqueeze(1)
            x = stage(x, there)
            seen.append(x)
        return self.output(x.movedim(1, -1)), seen


class FeatureCells(nn.Module):
    """A vector for each cell out of given features: of that cell alone."""

    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.first, self.output = nn.Linear(features, size), nn.Linear(size, size)
        self.size = size

    def forward(
        self, features: Float[Tensor, "b r c f"], mask: Bool[Tensor, "b r c"]
    ) -> tuple[Float[Tensor, "b r c d"], list[Tensor]]:
        return self.output(F.relu(self.first(features))), []


class EncodedCells(nn.Module):
    """Cells out of an image encoder: its feature map, resampled to the grid."""

    def __init__(self, encoder: ImageEncoder, frozen: bool, size: int) -> None:
        super().__init__()
        self.encoder, self.frozen, self.size = encoder, frozen, size
        encoder.requires_grad_(not frozen)
        self.output = nn.Linear(encoder.annotation_size, size)

    def train(self, mode: bool = True) -> "EncodedCells":
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
        return self

    def forward(self, pixels: Tensor, mask: Bool[Tensor, "b r c"]) -> tuple[Float[Tensor, "b r c d"], list[Tensor]]:
        if bool(mask.all()):
            return self.output(self._cells(pixels, *mask.shape[1:])), []
        # An encoder knows nothing of padding: each image by itself, so that none reads what is not there.
        found = pixels.new_zeros(*mask.shape, self.encoder.annotation_size, dtype=self.output.weight.dtype)
        cell = pixels.shape[1] // mask.shape[1]
        for row, there in enumerate(mask):
            rows, columns = int(there.any(dim=1).sum()), int(there.any(dim=0).sum())
            alone = pixels[row : row + 1, : rows * cell, : columns * cell]
            found[row, :rows, :columns] = self._cells(alone, rows, columns)[0]
        return self.output(found), []

    def _cells(self, pixels: Tensor, rows: int, columns: int) -> Float[Tensor, "b r c d"]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            found = self.encoder(pixels).unflatten(1, self.encoder.grid(*pixels.shape[1:3])).movedim(-1, 1)
            if found.shape[2:] != (rows, columns):
                found = F.interpolate(found, size=(rows, columns), mode="bilinear", align_corners=False)
        return found.movedim(1, -1)


class PixelHead(nn.Module):
    """From cells back to pixels: upwards through the stages, at each size what was seen there is added.

    Gives logits for every pixel; what the cells know reaches every pixel of theirs.
    """

    def __init__(self, cells: int, sizes: list[int], width: int, outputs: int) -> None:
        super().__init__()
        self.enter = nn.Linear(cells, width)
        self.beside = nn.ModuleList(nn.Conv2d(size, width, 1, bias=False) for size in sizes)
        self.mix = nn.ModuleList(Block(width, width) for _ in sizes)
        self.output = nn.Conv2d(width, 4 * outputs, 1)

    def forward(
        self, cells: Float[Tensor, "b r c d"], stages: list[Tensor], mask: Bool[Tensor, "b r c"]
    ) -> Float[Tensor, "b o h w"]:
        x = self.enter(cells).movedim(-1, 1)
        if not bool(mask.all()):
            x = x * mask.unsqueeze(1)
        there = masks_of(mask, len(stages))
        for number in reversed(range(len(stages))):
            x = self.mix[number](x + self.beside[number](stages[number]), there[number])
            if number:
                x = F.interpolate(x, scale_factor=2, mode="nearest")
        return F.pixel_shuffle(self.output(x), 2)


class Annotated(NamedTuple):
    """Annotations of the cells, and the mean of the final states: along rows and columns, forward and backward."""

    annotations: Float[Tensor, "b r c a"]
    final: Float[Tensor, "b a"]


class GridEncoder(nn.Module):
    """Two bidirectional networks, one along the rows and one along the columns, put side by side for each cell.

    Annotations have 4 · ``size`` numbers. In every layer the cell's own vector, projected, is added: a cell need not
    pass through a memory to be seen.
    """

    def __init__(self, kind: CellKind, input_size: int, size: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.annotation_size = 4 * size
        sizes = [input_size, *[4 * size] * (layers - 1)]
        self.rows = nn.ModuleList(BidirectionalEncoder(kind, n, size) for n in sizes)
        self.columns = nn.ModuleList(BidirectionalEncoder(kind, n, size) for n in sizes)
        self.own = nn.ModuleList(nn.Linear(n, 4 * size) for n in sizes)
        self.dropout = Dropout(dropout)

    def forward(self, cells: Float[Tensor, "b r c d"], mask: Bool[Tensor, "b r c"]) -> Annotated:
        x, final = cells, cells.new_zeros(len(cells), self.annotation_size)
        batch, rows, columns = mask.shape
        down = mask.transpose(1, 2)
        for along, across, own in zip(self.rows, self.columns, self.own, strict=True):
            x = self.dropout(x)
            read = along(x.flatten(0, 1), mask.flatten(0, 1))
            turned = across(x.transpose(1, 2).flatten(0, 1), down.flatten(0, 1))
            finals = [
                _mean(read.forward, mask),
                _mean(read.backward, mask),
                _mean(turned.forward, down),
                _mean(turned.backward, down),
            ]
            final = torch.cat(finals, dim=-1)
            sides = (
                read.annotations.unflatten(0, (batch, rows)),
                turned.annotations.unflatten(0, (batch, columns)).transpose(1, 2),
            )
            x = torch.cat(sides, dim=-1) + own(x)
            if not bool(mask.all()):
                x = x * mask.unsqueeze(-1)
        return Annotated(x, final)


def _mean(states: Float[Tensor, "n h"], mask: Bool[Tensor, "b r c"]) -> Float[Tensor, "b h"]:
    """Over the lines of a grid that there are."""
    there = mask.any(dim=-1).to(states.dtype)
    summed = (states.unflatten(0, there.shape) * there.unsqueeze(-1)).sum(dim=1)
    return summed / there.sum(dim=-1, keepdim=True).clamp(min=1)
