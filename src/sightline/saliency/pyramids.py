"""Pyramids of images: each level is smoothed, and half as high and wide as the one before."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Maps = Float[Tensor, "b c h w"]
Resized = Float[Tensor, "b c new_h new_w"]

GABOR_SIDE, GABOR_SPREAD, GABOR_PERIOD = 7, 4 / 3, 4.0  # in pixels of the level


def pyramid(maps: Maps, levels: int) -> list[Tensor]:
    """The maps themselves, then each level half as large as the one before."""
    pyramid = [maps]
    while len(pyramid) < levels:
        pyramid.append(halve(pyramid[-1]))
    return pyramid


def halve(maps: Maps) -> Resized:
    """Smooth by (1 3 3 1) ÷ 8 and keep every second pixel, along both sides; the border is repeated outside.

    Four taps, not five: the new pixel is then in the middle of the two that it replaces. With five it is on the first
    of them, and after eight levels a surround would be off its centre by half of its own pixel, 128 of the image's.
    """
    return _halve(_halve(maps, dim=2), dim=3)


def _halve(maps: Maps, dim: int) -> Resized:
    size = maps.shape[dim]
    sides = (1, 1 + size % 2)
    padded = F.pad(maps, (0, 0, *sides) if dim == 2 else (*sides, 0, 0), mode="replicate")
    last = size + size % 2 - 1
    taps = [padded.narrow(dim, tap, last) for tap in range(4)]
    first, second, third, fourth = (tap[:, :, ::2] if dim == 2 else tap[..., ::2] for tap in taps)
    return (second + third).mul_(3).add_(first).add_(fourth).div_(8)


def resize(maps: Maps, size: Sequence[int]) -> Resized:
    """Scale to another height and width: bilinear to larger sizes, means to smaller ones."""
    height, width = size
    if tuple(maps.shape[2:]) == (height, width):
        return maps
    if height <= maps.shape[2] and width <= maps.shape[3]:
        return F.interpolate(maps, (height, width), mode="area")
    return F.interpolate(maps, (height, width), mode="bilinear", align_corners=False)


def blur(maps: Maps, spread: float, border: str = "replicate") -> Maps:
    """Blur by a Gaussian of ``spread`` pixels; outside, the ``border`` is repeated, or zero ("constant")."""
    if spread <= 0:
        return maps
    reach = math.ceil(3 * spread)
    place = torch.arange(-reach, reach + 1, dtype=maps.dtype, device=maps.device)
    bell = torch.exp(-0.5 * (place / spread).square())
    bell /= bell.sum()
    batch, kinds, height, width = maps.shape
    alone = maps.reshape(batch * kinds, 1, height, width)
    alone = F.conv2d(F.pad(alone, (0, 0, reach, reach), mode=border), bell.view(1, 1, -1, 1))
    return F.conv2d(F.pad(alone, (reach, reach, 0, 0), mode=border), bell.view(1, 1, 1, -1)).view_as(maps)


def gabors(angles: int, like: Tensor) -> Float[Tensor, "pairs one side side"]:
    """Pairs of Gabor filters, even and odd: one pair for each angle, from 0 (upright stripes) to 180 degrees.

    Their mean is zero: a uniform surface of any brightness has no orientation.
    """
    place = torch.arange(GABOR_SIDE, dtype=torch.float64) - GABOR_SIDE // 2
    y, x = torch.meshgrid(place, place, indexing="ij")
    window = torch.exp(-(x * x + y * y) / (2 * GABOR_SPREAD**2))
    filters = []
    for number in range(angles):
        angle = math.pi * number / angles
        along = 2 * math.pi / GABOR_PERIOD * (x * math.cos(angle) + y * math.sin(angle))
        for wave in (torch.cos(along), torch.sin(along)):
            stripes = window * (wave - (window * wave).sum() / window.sum())
            filters.append(stripes / stripes.abs().sum())
    return torch.stack(filters)[:, None].to(like)


def orientations(
    finer: Float[Tensor, "b 1 h w"], coarser: Float[Tensor, "b 1 h2 w2"], filters: Float[Tensor, "pairs 1 s s"]
) -> Float[Tensor, "b angles h w"]:
    """The energy of stripes at each angle, independent of their phase.

    As in the pyramids that the paper cites (Greenspan and others, 1994), the filters are applied to the difference of a
    level and the next: otherwise each responds to the edges of all coarser levels too.
    """
    margin = filters.shape[-1] // 2
    own = finer - resize(coarser, finer.shape[2:])
    responses = F.conv2d(F.pad(own, (margin,) * 4, mode="replicate"), filters)
    even, odd = responses[:, ::2], responses[:, 1::2]
    return torch.sqrt(even * even + odd * odd)
