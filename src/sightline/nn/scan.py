"""In which order cells are labelled, and which labels of its neighbours a cell can know by then."""

import functools
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

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
