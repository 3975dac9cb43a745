"""Layers for grids of cells: pixels become cells, cells read their rows and columns, cells become pixels again.

Grids of different sizes stand in one batch, padded to the right and below. What is behind the edge of a grid is zero
after every layer, just as it is behind the edge of the batch: padding changes nothing.
"""

import functools
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from sightline.nn.dropout import Dropout
from sightline.nn.image import BatchNorm, ImageEncoder
from sightline.nn.rnn import BidirectionalEncoder, CellKind

CELLS = (4, 8, 16, 32, 64)  # pixels along a cell


class ConvolutionBlock(nn.Module):
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
        normed = torch.zeros_like(x).movedim(1, -1)
        normed[mask] = F.relu(self.norm(x.movedim(1, -1)[mask][..., None, None]))[..., 0, 0]
        return normed.movedim(-1, 1)


class Stage(nn.Module):
    """Two blocks, the second added to the first."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.first, self.second = ConvolutionBlock(input_size, size), ConvolutionBlock(size, size)

    def forward(self, x: Float[Tensor, "b i h w"], mask: Bool[Tensor, "b h w"] | None) -> Float[Tensor, "b o h w"]:
        x = self.first(x, mask)
        return x + self.second(x, mask)


def masks_of(mask: Bool[Tensor, "b r c"], stages: int) -> list[Tensor | None]:
    """Which places there are at each stage, the finest first; None where all of them are."""
    if bool(mask.all()):
        return [None] * stages
    masks: list[Tensor | None] = [mask]
    for _ in range(stages - 1):
        last = masks[0]
        assert last is not None
        masks.insert(0, last.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2))
    return masks


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
        # An encoder takes no mask, so it encodes each image without its padding.
        features = pixels.new_zeros(*mask.shape, self.encoder.annotation_size, dtype=self.output.weight.dtype)
        cell = pixels.shape[1] // mask.shape[1]
        for row, there in enumerate(mask):
            rows, columns = int(there.any(dim=1).sum()), int(there.any(dim=0).sum())
            alone = pixels[row : row + 1, : rows * cell, : columns * cell]
            features[row, :rows, :columns] = self._cells(alone, rows, columns)[0]
        return self.output(features), []

    def _cells(self, pixels: Tensor, rows: int, columns: int) -> Float[Tensor, "b r c d"]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            features = self.encoder(pixels).unflatten(1, self.encoder.grid(*pixels.shape[1:3])).movedim(-1, 1)
            if features.shape[2:] != (rows, columns):
                features = F.interpolate(features, size=(rows, columns), mode="bilinear", align_corners=False)
        return features.movedim(1, -1)


class PixelHead(nn.Module):
    """From cells back to pixels: upwards through the stages, at each size what was seen there is added.

    Gives logits for every pixel; what the cells know reaches every pixel of theirs.
    """

    def __init__(self, cells: int, sizes: list[int], width: int, outputs: int) -> None:
        super().__init__()
        self.enter = nn.Linear(cells, width)
        self.beside = nn.ModuleList(nn.Conv2d(size, width, 1, bias=False) for size in sizes)
        self.mix = nn.ModuleList(ConvolutionBlock(width, width) for _ in sizes)
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


# In which order cells are labelled, and which labels of its neighbours a cell can know by then.


Order = Literal["rows", "snake"]
Neighbours = Literal[0, 1, 4, 8]

AROUND = {
    0: (),
    1: (),
    4: ((-1, 0), (0, -1), (0, 1), (1, 0)),
    8: ((-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)),
}


class Scan(NamedTuple):
    """What each step of a scan labels and what it can read, for a batch of grids padded to one size.

    ``cells`` are places of the padded grid, row by row (behind the last step of a grid: the number of places).
    ``sources`` are the steps that wrote the labels to read: all steps: none yet; all steps + 1: no such cell.
    ``earlier``: it was written in the sweep before. ``lengths`` are the steps of each grid.
    """

    cells: Int[Tensor, "b t"]
    sources: Int[Tensor, "b t k"]
    earlier: Bool[Tensor, "b t k"]
    sweeps: Int[Tensor, "b t"]
    lengths: Int[Tensor, " b"]


def directions(neighbours: Neighbours, sweeps: int) -> int:
    """How many labels a step reads: its neighbours' (or that of the step before), and with sweeps its own."""
    return (1 if neighbours == 1 else len(AROUND[neighbours])) + (sweeps > 1)


def scan(mask: Bool[Tensor, "b r c"], order: Order, neighbours: Neighbours, sweeps: int) -> Scan:
    """The scan of grids whose cells, a rectangle at the top left, the mask says."""
    sizes = [(int(one.any(dim=1).sum()), int(one.any(dim=0).sum())) for one in mask]
    steps = sweeps * max(rows * columns for rows, columns in sizes)
    places = (mask.shape[1] * mask.shape[2], mask.shape[2])
    parts = [_one(rows, columns, steps, *places, order, neighbours, sweeps) for rows, columns in sizes]
    stacked = [torch.from_numpy(np.stack(part)).to(mask.device) for part in zip(*parts, strict=True)]
    lengths = torch.tensor([sweeps * rows * columns for rows, columns in sizes], device=mask.device)
    return Scan(stacked[0], stacked[1], stacked[2], stacked[3], lengths)


@functools.lru_cache(maxsize=32)
def _one(
    rows: int, columns: int, steps: int, places: int, width: int, order: Order, neighbours: Neighbours, sweeps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One grid. Every second sweep goes back the way that the one before came."""
    count = rows * columns
    forward = np.arange(count).reshape(rows, columns)
    if order == "snake":
        forward[1::2] = forward[1::2, ::-1].copy()
    path = forward.reshape(-1)  # the step's cell, row by row in the grid itself
    offsets = [*AROUND[neighbours], *([(0, 0)] if sweeps > 1 else [])]
    k = directions(neighbours, sweeps)
    cells = np.full(steps, places, dtype=np.int64)
    sources = np.full((steps, k), steps + 1, dtype=np.int64)
    earlier = np.zeros((steps, k), dtype=bool)
    sweep_of = np.zeros(steps, dtype=np.int64)
    written = np.full((rows + 2, columns + 2), steps + 1, dtype=np.int64)  # the step that wrote each cell last
    written[1:-1, 1:-1] = steps
    for sweep in range(sweeps):
        first = sweep * count
        for step, cell in enumerate(path if sweep % 2 == 0 else path[::-1], start=first):
            i, j = divmod(int(cell), columns)
            cells[step], sweep_of[step] = i * width + j, sweep
            read = [written[i + 1 + di, j + 1 + dj] for di, dj in offsets]
            if neighbours == 1:
                read.insert(0, step - 1 if step else steps + 1)
            sources[step] = read
            earlier[step] = sources[step] < first
            written[i + 1, j + 1] = step
    return cells, sources, earlier, sweep_of
