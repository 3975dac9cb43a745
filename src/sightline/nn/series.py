"""Series: sequences of frames, such as those of sound, of features or of images, and what encodes them.

A batch is padded behind, with the length of each row. `SeriesFront` makes one vector of each frame: it normalises,
augments in training, and stacks or convolves. `PyramidEncoder` is the listener of Chan et al. (2016).
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor, nn

from sightline.attention.checks import check_least, check_share
from sightline.config import Config
from sightline.nn.dropout import Dropout
from sightline.nn.rnn import BidirectionalEncoder, CellKind, Encoded


class SeriesBatch(NamedTuple):
    """Frames of several series, zeros behind the end of each, and how many frames each has."""

    values: Num[Tensor, "b t *d"]
    lengths: Int[Tensor, " b"]


@dataclass(frozen=True)
class SeriesShape:
    """What a frame is: ``frame`` is its shape (numbers, or height and width), ``seconds`` its duration."""

    frame: tuple[int, ...]
    seconds: float = 0.0

    @property
    def size(self) -> int:
        """Numbers in a frame."""
        return int(torch.Size(self.frame).numel())


def frame_mask(lengths: Int[Tensor, " b"], longest: int) -> Bool[Tensor, "b t"]:
    """True at the frames of a padded batch that are there."""
    return torch.arange(longest, device=lengths.device) < lengths.unsqueeze(-1)


@dataclass(frozen=True)
class FrameMaskingConfig(Config):
    """SpecAugment (Park et al. 2019) without its warping: bands of features and stretches of time become the mean.

    ``bands`` masks of at most the share ``band`` of the features, ``stretches`` of at most the share ``stretch`` of the
    frames. What people get wrong: the paper's widths are for utterances of ten seconds, and erase short ones; masks of
    zeros where features are not normalised are loud, not silent.
    """

    bands: int = 2
    band: float = 0.3
    stretches: int = 2
    stretch: float = 0.1
    family: ClassVar[str] = "frame_masking"

    def __post_init__(self) -> None:
        check_least(self, 0, "bands", "stretches")
        check_share(self, "band", "stretch")


def masked(x: Float[Tensor, "b t d"], lengths: Int[Tensor, " b"], config: FrameMaskingConfig) -> Float[Tensor, "b t d"]:
    """Normalised frames with masks drawn by torch's generator; the mean of a feature is 0."""
    rows, longest, size = x.shape
    hidden = torch.zeros(rows, longest, size, dtype=torch.bool, device=x.device)
    for _ in range(config.stretches):
        hidden |= _stretch(lengths.to(x.dtype), config.stretch, longest).unsqueeze(-1)
    for _ in range(config.bands):
        hidden |= _stretch(x.new_full((rows,), float(size)), config.band, size).unsqueeze(1)
    return x.masked_fill(hidden, 0.0)


def _stretch(lengths: Float[Tensor, " b"], share: float, longest: int) -> Bool[Tensor, "b n"]:
    """Of each row a stretch of 0 to ``share`` of its length, anywhere in it."""
    draws = torch.rand(2, len(lengths), device=lengths.device)
    widths = (draws[0] * (share * lengths + 1)).floor()
    starts = (draws[1] * (lengths - widths + 1)).floor()
    places = torch.arange(longest, device=lengths.device)
    return (places >= starts.unsqueeze(-1)) & (places < (starts + widths).unsqueeze(-1))


Centring = Literal["item", "data", "none"]


class FeatureNorm(nn.Module):
    """Each feature less its mean, in units of its deviation. Padding stays zero, and enters no mean.

    ``item``: the mean is that of the series itself, which removes what a microphone or a voice adds to all frames;
    ``data``: that of the training data. The deviation is that of the training data. ``none``: numbers stay as they are,
    for data in which rare numbers are no larger than frequent ones, such as bits.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, size: int, centring: Centring) -> None:
        super().__init__()
        self.centring = centring
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        there = mask.unsqueeze(-1)
        mean = self.mean
        if self.centring == "item":
            counts = there.sum(dim=1, keepdim=True).clamp(min=1)
            mean = x.masked_fill(~there, 0.0).sum(dim=1, keepdim=True) / counts
        return ((x - mean) * self.scale).masked_fill(~there, 0.0)


def with_deltas(x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"], orders: int) -> Float[Tensor, "b t e"]:
    """Frames with their slopes over two frames to each side (and the slopes of these), the ends repeated."""
    parts = [x]
    lengths = mask.sum(dim=1, keepdim=True)
    places = torch.arange(x.shape[1], device=x.device)
    for _ in range(orders):
        last = parts[-1]
        slope = torch.zeros_like(last)
        for step in (1, 2):
            ahead = torch.minimum(places + step, (lengths - 1).clamp(min=0)).unsqueeze(-1).expand_as(last)
            behind = (places - step).clamp(min=0).expand(len(x), -1).unsqueeze(-1).expand_as(last)
            slope = slope + step * (last.gather(1, ahead) - last.gather(1, behind))
        parts.append((slope / 10).masked_fill(~mask.unsqueeze(-1), 0.0))
    return torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class SeriesFrontConfig(Config):
    """How frames become vectors.

    ``centring``: features are normalised with the mean of the item or of the data, or not at all. ``deltas`` adds
    slopes in time. ``masking``: what is masked in training (null: nothing). Frames that are images become so many
    principal ``components`` of the training data's pixels, or, with 0, go through convolutions of these ``channels``,
    of which each layer halves both sides, and have ``dropout`` behind them; ``mirrored``: half of them are flipped left
    to right in training.
    """

    centring: Centring = "item"
    deltas: int = 0
    components: int = 0
    masking: FrameMaskingConfig | None = field(default_factory=FrameMaskingConfig)
    channels: tuple[int, ...] = (16, 32, 64)
    mirrored: bool = True
    dropout: float = 0.0
    family: ClassVar[str] = "series_front"

    def __post_init__(self) -> None:
        check_least(self, 0, "deltas", "components")
        check_share(self, "dropout")
        if not self.channels or min(self.channels) < 1:
            raise ValueError(f"channels is {list(self.channels)}; give one or more, each at least 1")

    def build(self, shape: SeriesShape) -> "SeriesFront | ImageFront":
        if len(shape.frame) == 1:
            return SeriesFront(self, shape)
        return EigenFront(self, shape) if self.components else ImageFront(self, shape)


class SeriesFront(nn.Module):
    """Frames of numbers: normalised, masked in training, with their slopes."""

    def __init__(self, config: SeriesFrontConfig, shape: SeriesShape, size: int | None = None) -> None:
        super().__init__()
        self.config, size = config, size or shape.size
        self.normalise = FeatureNorm(size, config.centring)
        self.size = size * (1 + config.deltas)

    def forward(self, source: SeriesBatch) -> tuple[Float[Tensor, "b t d"], Bool[Tensor, "b t"]]:
        mask = frame_mask(source.lengths, source.values.shape[1])
        x = self.normalise(source.values.to(self.normalise.scale.dtype), mask)
        if self.training and self.config.masking is not None:
            x = masked(x, source.lengths, self.config.masking)
        return with_deltas(x, mask, self.config.deltas) if self.config.deltas else x, mask


MOST_PIXELS = 4096  # of a frame whose principal components are computed


class EigenFront(SeriesFront):
    """Frames that are images, as principal components of their pixels (Bregler and Konig 1994), then as numbers.

    With few clips this learns much faster than convolutions, and as well. ``project`` sets what was measured of the
    training data.
    """

    pixel_mean: Tensor
    axes: Tensor

    def __init__(self, config: SeriesFrontConfig, shape: SeriesShape) -> None:
        if shape.size > MOST_PIXELS:
            raise ValueError(
                f"frames have {shape.size:,} pixels, and principal components are of at most {MOST_PIXELS:,}; set "
                "smaller height and width, or components=0"
            )
        components = min(config.components, shape.size)
        super().__init__(config, shape, components)
        self.register_buffer("pixel_mean", torch.zeros(shape.size))
        self.register_buffer("axes", torch.eye(shape.size, components))

    def project(self, mean: Tensor, axes: Tensor) -> None:
        """Set the mean frame and the axes."""
        self.pixel_mean.copy_(mean)
        self.axes.copy_(axes)

    def forward(self, source: SeriesBatch) -> tuple[Float[Tensor, "b t d"], Bool[Tensor, "b t"]]:
        pixels = source.values.flatten(2).to(self.axes.dtype)
        return super().forward(SeriesBatch((pixels - self.pixel_mean) @ self.axes, source.lengths))


class ClipNorm(nn.Module):
    """Each channel less its mean over a clip, in units of its deviation there; padding enters neither.

    What people get wrong: normalised by itself, a frame in which nothing moves is as loud as one in which much moves.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, 1, 1, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1, 1, 1))

    def forward(self, x: Float[Tensor, "b c t h w"], there: Bool[Tensor, "b 1 t 1 1"]) -> Float[Tensor, "b c t h w"]:
        counts = there.sum(dim=(2, 3, 4), keepdim=True).clamp(min=1) * x.shape[3] * x.shape[4]
        x = x.masked_fill(~there, 0.0)
        mean = x.sum(dim=(2, 3, 4), keepdim=True) / counts
        centred = (x - mean).masked_fill(~there, 0.0)
        scale = (centred.square().sum(dim=(2, 3, 4), keepdim=True) / counts + 1e-5).rsqrt()
        return centred * (scale * self.weight) + self.bias


class ImageFront(nn.Module):
    """Frames that are images: convolutions over time, height and width (Assael et al. 2016), then one vector each.

    Each layer sees three frames and halves height and width. Masks in training cover stretches of time. ``centring``
    item: from each pixel its mean over the clip is taken, which leaves what moves; data: the mean of all pixels. Both
    are in units of the clip's deviation, because light differs between recordings.
    """

    def __init__(self, config: SeriesFrontConfig, shape: SeriesShape) -> None:
        super().__init__()
        self.config = config
        sizes, (height, width) = (1, *config.channels), shape.frame
        self.convolutions = nn.ModuleList(
            nn.Conv3d(before, after, (3, 5, 5) if not number else 3, (1, 2, 2), (1, 2, 2) if not number else 1)
            for number, (before, after) in enumerate(pairwise(sizes))
        )
        self.norms = nn.ModuleList(ClipNorm(size) for size in config.channels)
        for _ in config.channels:
            height, width = -(-height // 2), -(-width // 2)
        self.size = config.channels[-1] * height * width
        self.dropout = Dropout(config.dropout)

    def forward(self, source: SeriesBatch) -> tuple[Float[Tensor, "b t d"], Bool[Tensor, "b t"]]:
        mask = frame_mask(source.lengths, source.values.shape[1])
        x = source.values.to(self.norms[0].weight.dtype)  # type: ignore[arg-type]
        there = mask[..., None, None]
        counts = there.sum(dim=(1, 2, 3), keepdim=True).clamp(min=1) * x.shape[2] * x.shape[3]
        x = x.masked_fill(~there, 0.0)
        if self.config.centring == "item":
            mean = x.sum(dim=1, keepdim=True) / there.sum(dim=1, keepdim=True).clamp(min=1)
        else:
            mean = x.sum(dim=(1, 2, 3), keepdim=True) / counts
        x = (x - mean).masked_fill(~there, 0.0)
        x = x / (x.square().sum(dim=(1, 2, 3), keepdim=True) / counts).sqrt().clamp(min=1e-3)
        if self.training and self.config.mirrored:
            x = torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x.flip(-1), x)
        if self.training and self.config.masking is not None:
            masking = self.config.masking
            for _ in range(masking.stretches):
                hidden = _stretch(source.lengths.to(x.dtype), masking.stretch, x.shape[1])
                x = x.masked_fill(hidden[..., None, None], 0.0)
        x, there = x.unsqueeze(1), there.unsqueeze(1)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.relu(norm(convolution(x), there)).masked_fill(~there, 0.0)
        return self.dropout(x.transpose(1, 2).flatten(2)), mask


def stacked(x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"], count: int) -> tuple[Tensor, Tensor]:
    """Each ``count`` neighbouring frames as one, side by side; zeros fill up the last one of an odd length."""
    if count == 1:
        return x, mask
    rows, longest, size = x.shape
    steps = -(-longest // count)
    x = F.pad(x.masked_fill(~mask.unsqueeze(-1), 0.0), (0, 0, 0, steps * count - longest))
    there = F.pad(mask, (0, steps * count - longest)).view(rows, steps, count).any(dim=-1)
    return x.reshape(rows, steps, count * size), there


class PyramidEncoder(nn.Module):
    """Bidirectional layers, each over ``reduces[i]`` neighbouring states of the layer below side by side.

    Chan et al. (2016): ``h_i^j = BLSTM(h_{i−1}^j, [h_{2i}^{j−1}; h_{2i+1}^{j−1}])``. What people get wrong: neighbours
    are concatenated, not dropped; of an odd length the last state has no neighbour, and still counts.
    """

    def __init__(
        self, kind: CellKind, input_size: int, size: int, reduces: tuple[int, ...], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.reduces = reduces
        sizes = [input_size, *[2 * size] * (len(reduces) - 1)]
        self.layers = nn.ModuleList(
            BidirectionalEncoder(kind, n * count, size) for n, count in zip(sizes, reduces, strict=True)
        )
        self.dropout = Dropout(dropout)
        self.annotation_size = 2 * size

    def forward(self, x: Float[Tensor, "b t d"], mask: Bool[Tensor, "b t"]) -> tuple[Encoded, Bool[Tensor, "b s"]]:
        encoded = None
        for number, (layer, count) in enumerate(zip(self.layers, self.reduces, strict=True)):
            x, mask = stacked(self.dropout(x) if number else x, mask, count)
            encoded = layer(x, mask)
            x = encoded.annotations
        assert encoded is not None
        return encoded, mask


def check_reduces(reduces: tuple[int, ...]) -> None:
    """Of a configuration: raises ValueError."""
    if not reduces or min(reduces) < 1:
        raise ValueError(f"reduces is {list(reduces)}; give one or more, each at least 1")


def reduced(frames: int, reduces: tuple[int, ...]) -> int:
    """How many states a pyramid makes of so many frames."""
    for count in reduces:
        frames = -(-frames // count)
    return frames
