"""The scan path: winner-take-all with inhibition of return.

Two layers of neurons at level 4, simulated in steps of a millisecond. Those of the saliency map follow S and never
fire. Each drives one of the second layer, and the first of those to reach its threshold wins: the focus of attention
moves there, the second layer is reset, the disc around the place is inhibited in the first, and a ring around the disc
is excited a little, so that near places are preferred.

The paper gives the purpose of its constants, not their values: jumps after 30 to 70 ms, an attended place inhibited
for 500 to 900 ms. Those below achieve that: the most salient place wins after about 40 ms, one half as salient after
about 75 ms, and a place that was left competes again at half its strength after 700 ms.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from sightline.errors import UserError

FOLLOWING, COMPETING = 8.0, 300.0  # milliseconds: time constants of the two layers
THRESHOLD = 0.1  # of the potential that the most salient place would reach: places below it never win
INHIBITED, EXCITED = 500.0, 100.0  # milliseconds: how fast inhibition and excitation wear off
INHIBITION, EXCITATION = 2.0, 0.05  # how strong they are, the most salient place being 1
RING = 2.0  # how far excitation reaches, in radii of the disc
FOCUS = 1 / 6  # radius of the disc: of the shorter side of the image
MOST_FIXATIONS = 100


@dataclass(frozen=True)
class PathConfig:
    """The most fixations, and the most simulated milliseconds."""

    fixations: int = 8
    milliseconds: int = 3_000

    def __post_init__(self) -> None:
        if not 0 <= self.fixations <= MOST_FIXATIONS:
            raise UserError(f"fixations is {self.fixations}; it must be at least 0 and at most {MOST_FIXATIONS}")
        if not 1 <= self.milliseconds <= 60_000:
            raise UserError(f"milliseconds is {self.milliseconds}; it must be at least 1 and at most 60,000")


@dataclass(frozen=True)
class Fixation:
    """A fixated place in pixels of the image, its time, and its saliency."""

    x: float
    y: float
    milliseconds: int
    saliency: float


def scan_paths(
    maps: Float[Tensor, "b h w"], sizes: list[tuple[int, int]], config: PathConfig | None = None
) -> list[tuple[Fixation, ...]]:
    """The winning places of each map, in order; ``sizes`` are height and width of the images. Flat maps have none."""
    config = config or PathConfig()
    _, height, width = maps.shape
    highest = maps.amax(dim=(1, 2), keepdim=True)
    drive = torch.where(highest > 0, maps / highest.clamp(min=torch.finfo(maps.dtype).tiny), 0.0)
    potential, charge = torch.zeros_like(drive), torch.zeros_like(drive)
    inhibition, excitation = torch.zeros_like(drive), torch.zeros_like(drive)
    distances = _Distances(maps, sizes)
    paths: list[list[Fixation]] = [[] for _ in sizes]
    active = [salient and config.fixations > 0 for salient in (highest > 0).flatten().tolist()]
    for now in range(1, config.milliseconds + 1):
        if not any(active):
            break
        potential += (drive + excitation - inhibition - potential) / FOLLOWING
        charge += (potential.clamp(min=0) - charge) / COMPETING
        inhibition *= 1 - 1 / INHIBITED
        excitation *= 1 - 1 / EXCITED
        strongest, places = charge.flatten(1).max(dim=1)
        if float(strongest.max()) < THRESHOLD:
            continue
        for image in (strongest >= THRESHOLD).nonzero().flatten().tolist():
            if not active[image]:
                continue
            row, column = divmod(int(places[image]), width)
            tall, wide = sizes[image]
            x, y = (column + 0.5) * wide / width, (row + 0.5) * tall / height
            paths[image].append(Fixation(x, y, now, float(maps[image, row, column])))
            active[image] = len(paths[image]) < config.fixations
            charge[image] = 0
            away = distances.from_place(image, row, column)
            disc = away <= 1
            inhibition[image] = torch.where(disc, INHIBITION, inhibition[image])
            ring = EXCITATION * torch.exp(-0.5 * ((away - 1) / (RING - 1)).square())
            excitation[image] = torch.where(disc, 0.0, torch.maximum(excitation[image], ring))
    return [tuple(path) for path in paths]


class _Distances:
    """Distances between places, in radii of the disc of attention; cells need not be square."""

    def __init__(self, maps: Float[Tensor, "b h w"], sizes: list[tuple[int, int]]) -> None:
        _, height, width = maps.shape
        self.rows = torch.arange(height, dtype=maps.dtype, device=maps.device)[:, None]
        self.columns = torch.arange(width, dtype=maps.dtype, device=maps.device)[None]
        self.cells = [
            (tall / height / (FOCUS * min(tall, wide)), wide / width / (FOCUS * min(tall, wide)))
            for tall, wide in sizes
        ]

    def from_place(self, image: int, row: int, column: int) -> Float[Tensor, "h w"]:
        tall, wide = self.cells[image]
        return torch.sqrt(((self.rows - row) * tall).square() + ((self.columns - column) * wide).square())
