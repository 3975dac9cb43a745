"""The saliency model of Itti, Koch and Niebur: where people look in an image, whatever it shows.

"A model of saliency-based visual attention for rapid scene analysis", IEEE Transactions on Pattern Analysis and Machine
Intelligence 20(11), 1998. Nothing is learned: intensity, two pairs of opposed colours and four orientations are
compared with their surrounds at several scales, and maps with one strong peak are promoted over maps with many alike.

What people get wrong:
- The printed formula of the colours, |(R − G)(c) ⊖ (G − R)(s)|, is a sum: red on green gives nothing, red on red the
  most. The sentence above it describes its converse, |(R − G)(c) ⊖ (R − G)(s)|, which is also what a double-opponent
  cell computes. That is implemented here; ``colours="printed"`` is the other.
- N(·) compares the highest peak with the mean of the *other* local maxima, not with the mean of the map. Places side by
  side that are equally high are one maximum: the middle of a square that lies evenly over two places is not two rivals.
- Level 8 of a photo of 256 pixels is one pixel: small photos are enlarged first.

Of the nine levels of a pyramid, no formula reads the first two. An image is scaled to level 2 at once, and the pyramids
begin there: the same result, at a sixteenth of the cost. Where the paper leaves something open, a comment says what is
done here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from sightline.errors import UserError
from sightline.saliency.pyramids import Maps, blur, gabors, orientations, pyramid, resize

CENTRES, STEPS = (2, 3, 4), (3, 4)  # levels of the pyramids: a surround is 3 or 4 levels above its centre
FIRST, LAST = 2, 8  # the levels that are read
SCALE = 4  # the level at which maps are added up and places compete
ANGLES = 4
DIMMEST = 0.1  # of the brightest: darker places have no visible hue
FLAT = 1e-4  # a map with a smaller range holds rounding errors, not contrast
# Strong contrasts of intensity, colour and orientation. N(·) scales every map to the same range, and by itself would
# make the noise of a photo without colours as salient as a red dot: a map that spans less than this fades.
FAINT_INTENSITY, FAINT_COLOUR, FAINT_ORIENTATION = 0.5, 2.0, 0.15
LOWEST_PEAK = 0.1  # of the highest: a local maximum below it is texture, not a rival
NEAR = 3  # places: a local maximum is the highest within this distance on all sides
VANISHED = 1e-3  # of S: what remains if all peaks have equal rivals, up to rounding
NAMES = ("intensity", "colour", "orientation")
Promote = Callable[[Maps, float], Maps]


@dataclass(frozen=True)
class SaliencyConfig:
    """What the paper leaves open.

    ``side`` is the length of the longer side to which an image is scaled first, in pixels of level 0: the scales of the
    model are then relative to the image. ``blur`` is the standard deviation of the Gaussian over the finished map,
    relative to the longer side; places compete without it. ``colours`` is "opposed" as in the paper's text, or
    "printed".
    """

    side: int = 1280
    blur: float = 0.03
    colours: Literal["opposed", "printed"] = "opposed"

    def __post_init__(self) -> None:
        if not 256 <= self.side <= 8192:
            raise UserError(f"side is {self.side}; it must be at least 256 and at most 8192 pixels")
        if not 0 <= self.blur <= 0.5:
            raise UserError(f"blur is {self.blur:g}; it must be at least 0 and at most 0.5 of the longer side")


class SaliencyMaps(NamedTuple):
    """The maps of a batch of images, at level 4: a quarter of the height and width of the input."""

    saliency: Float[Tensor, "b h w"]  # S, before any blur
    conspicuity: Float[Tensor, "b 3 h w"]  # N of each: intensity, colour, orientation; S is their mean


def saliency_maps(pixels: UInt8[Tensor, "b h w 3"], config: SaliencyConfig | None = None) -> SaliencyMaps:
    """The maps of images of one size, given at level 2: their longer side is a quarter of ``config.side``.

    If N(·) leaves nothing of an image, such as one square with four equal corners, its maps are added up without
    promotion.
    """
    config = config or SaliencyConfig()
    maps = _maps(pixels, config, promote)
    empty = maps.saliency.amax(dim=(1, 2)) < VANISHED
    if bool(empty.any()):
        for whole, plain in zip(maps, _maps(pixels[empty], config, scale), strict=True):
            whole[empty] = plain
    return maps


def _maps(pixels: UInt8[Tensor, "b h w 3"], config: SaliencyConfig, promote: Promote) -> SaliencyMaps:
    image = pixels.permute(0, 3, 1, 2).float() / 255
    intensity = image.mean(dim=1, keepdim=True)
    brightness = _levels(intensity, LAST + 1)
    filters = gabors(ANGLES, intensity)
    stripes = {
        level: orientations(brightness[level], brightness[level + 1], filters) for level in range(FIRST, LAST + 1)
    }
    sign = -1.0 if config.colours == "printed" else 1.0
    hues = _levels(opponents(image, intensity))
    of_intensity = _added_up(brightness, FAINT_INTENSITY, promote)
    of_colour = _added_up(hues, FAINT_COLOUR, promote, sign).sum(dim=1, keepdim=True)
    angles = promote(_added_up(stripes, FAINT_ORIENTATION, promote), FLAT)  # each by itself first
    of_orientation = angles.sum(dim=1, keepdim=True)
    conspicuity = promote(torch.cat([of_intensity, of_colour, of_orientation], dim=1), FLAT)
    return SaliencyMaps(conspicuity.mean(dim=1), conspicuity)


def opponents(image: Float[Tensor, "b 3 h w"], intensity: Float[Tensor, "b 1 h w"]) -> Float[Tensor, "b 2 h w"]:
    """Red against green and blue against yellow, broadly tuned, from hue without brightness.

    Smoothing is linear, so the pyramid of a difference is the difference of the pyramids.
    """
    seen = intensity > DIMMEST * intensity.amax(dim=(2, 3), keepdim=True)
    r, g, b = (torch.where(seen, image / intensity, 0.0)).unbind(dim=1)
    red = (r - (g + b) / 2).clamp(min=0)
    green = (g - (r + b) / 2).clamp(min=0)
    blue = (b - (r + g) / 2).clamp(min=0)
    yellow = ((r + g) / 2 - (r - g).abs() / 2 - b).clamp(min=0)
    return torch.stack([red - green, blue - yellow], dim=1)


def _levels(maps: Maps, last: int = LAST) -> dict[int, Tensor]:
    return dict(enumerate(pyramid(maps, last - FIRST + 1), start=FIRST))


def _added_up(levels: Mapping[int, Tensor], faint: float, promote: Promote, sign: float = 1.0) -> Maps:
    """Each centre against each of its surrounds, promoted, and added up at level 4.

    A place of level 4 takes the maximum of the finer places in it: their mean would reduce the peaks of a fine map to a
    sixteenth, and the coarse maps alone would decide.
    """
    total = torch.zeros_like(levels[SCALE])
    for centre in CENTRES:
        for step in STEPS:
            surround = resize(levels[centre + step], levels[centre].shape[2:])
            promoted = promote((levels[centre] - sign * surround).abs(), faint)
            total += F.adaptive_max_pool2d(promoted, total.shape[2:])
    return total


def promote(maps: Maps, faint: float = FLAT) -> Maps:
    """N(·): scaled to [0, 1], times (1 − the mean of the other local maxima)²: one high peak stays, many alike go.

    A map that spans less than ``faint`` fades with its span.
    """
    scaled, fading = _scaled(maps, faint)
    peaks = _peaks(scaled) & (scaled >= LOWEST_PEAK)
    count = peaks.sum(dim=(2, 3), keepdim=True)
    others = ((scaled * peaks).sum(dim=(2, 3), keepdim=True) - 1) / (count - 1).clamp(min=1)
    return scaled * (1 - others.clamp(min=0)).square() * fading


def scale(maps: Maps, faint: float = FLAT) -> Maps:
    """As `promote`, without the promotion: scaled and faded."""
    scaled, fading = _scaled(maps, faint)
    return scaled * fading


def _scaled(maps: Maps, faint: float) -> tuple[Maps, Tensor]:
    """The maps from 0 to 1, and how far each of them fades."""
    low, high = maps.amin(dim=(2, 3), keepdim=True), maps.amax(dim=(2, 3), keepdim=True)
    span = high - low
    scaled = torch.where(span > FLAT, (maps - low) / span.clamp(min=FLAT), 0.0)
    return scaled, (span / faint).clamp(max=1)


def _peaks(maps: Maps) -> Bool[Tensor, "b c h w"]:
    """Where a place is the highest of the 7 × 7 around it. Of two such places that close together, which are equally
    high, the first."""
    peaks = maps >= _highest_around(maps)
    height, width = maps.shape[2:]
    padded = F.pad(peaks, (NEAR, NEAR, NEAR, 0))
    left = padded[:, :, NEAR:, :width] | padded[:, :, NEAR:, 1 : 1 + width] | padded[:, :, NEAR:, 2 : 2 + width]
    rows = padded[:, :, :height] | padded[:, :, 1 : 1 + height] | padded[:, :, 2 : 2 + height]
    two = rows[..., :-1] | rows[..., 1:]
    four = two[..., :-2] | two[..., 2:]
    above = four[..., :width] | four[..., 3:]
    return peaks & ~(left | above)


def _highest_around(maps: Maps) -> Maps:
    """The highest of the 7 × 7 places around each, by comparing halves: torch's pooling is ten times as slow."""
    for dim in (2, 3):
        size = maps.shape[dim]
        padded = F.pad(maps, (0, 0, NEAR, NEAR) if dim == 2 else (NEAR, NEAR, 0, 0), value=-1.0)
        two = torch.maximum(padded.narrow(dim, 0, size + 5), padded.narrow(dim, 1, size + 5))
        four = torch.maximum(two.narrow(dim, 0, size + 3), two.narrow(dim, 2, size + 3))
        maps = torch.maximum(four.narrow(dim, 0, size), four.narrow(dim, 3, size))
    return maps


def finished(maps: Float[Tensor, "b h w"], config: SaliencyConfig) -> Float[Tensor, "b h w"]:
    """The map with its blur, still at level 4."""
    return blur(maps[:, None], config.blur * max(maps.shape[1:]))[:, 0]
