"""Any backbone of the package timm, by its name, as an encoder of images."""

import importlib
import importlib.util
import math
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor

from sightline.data.images import Fit
from sightline.errors import UserError
from sightline.files import check_tensors
from sightline.nn.image import IMAGENET_MEAN, IMAGENET_STD, ImageEncoder, ImageEncoderConfig, check_size

_PLAIN = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?")  # an architecture, and perhaps which weights


@dataclass(frozen=True)
class TimmConfig(ImageEncoderConfig):
    """The ``name`` of a backbone as ``timm.list_models()`` has it, and nothing else that timm would understand: a name
    in a run from elsewhere must not make it contact a hub or read a folder.

    Nothing is fetched: ``weights`` is a file (.safetensors) that a new run begins with; left out, they are those that
    an earlier program has left in the local cache of the Hugging Face hub. Without either, the backbone must learn.
    """

    name: str = "resnet18"
    size: int = 224
    fit: Fit = "stretch"
    frozen: bool = True
    weights: str | None = None
    kind: ClassVar[str] = "timm"

    def __post_init__(self) -> None:
        check_size(self.size, 32)
        if not _PLAIN.fullmatch(self.name):
            raise ValueError(f"name is {self.name!r}; expected the plain name of a backbone, such as resnet18")

    def build(self, *, pretrained: bool = False) -> "TimmEncoder":
        encoder = TimmEncoder(self)
        if pretrained:
            encoder.load(self._weights(encoder), required=self.frozen or self.weights is not None)
        if self.frozen:
            encoder.requires_grad_(False)
        return encoder

    def _weights(self, encoder: "TimmEncoder") -> Path | None:
        if self.weights is None:
            return _cached(encoder.about)
        if not Path(self.weights).is_file() or Path(self.weights).suffix != ".safetensors":
            raise UserError(f"weights is {self.weights!r}; expected a file that ends in .safetensors")
        return Path(self.weights)


class TimmEncoder(ImageEncoder):
    """The features of a backbone before they are pooled, whatever form they come in."""

    def __init__(self, config: TimmConfig) -> None:
        timm = _timm()
        try:
            backbone = timm.create_model(config.name, pretrained=False, num_classes=0)
        except RuntimeError as error:  # it says so where it has no model of this name
            near = ", ".join(timm.list_models(f"*{config.name[:6]}*")[:5]) or "none with a like name"
            raise UserError(f"timm has no backbone {config.name!r} ({error}); there is {near}") from None
        about: dict[str, Any] = dict(getattr(backbone, "pretrained_cfg", None) or {})
        super().__init__(
            backbone.num_features, tuple(about.get("mean", IMAGENET_MEAN)), tuple(about.get("std", IMAGENET_STD))
        )
        self.name, self.frozen, self.about, self.backbone = config.name, config.frozen, about, backbone
        self._grids: dict[tuple[int, int], tuple[int, int]] = {}
        self.train()
        self.grid(config.size, config.size)  # says now what does not fit

    def train(self, mode: bool = True) -> "TimmEncoder":
        super().train(mode and not self.frozen)
        return self

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Seen by trying, once for each size: backbones do not say it in one way."""
        if (height, width) not in self._grids:
            training = self.backbone.training
            self.backbone.eval()
            with torch.no_grad():
                features = self.feature_map(self.mean.new_zeros(1, 3, height, width))
            self.backbone.train(training)
            self._grids[height, width] = (features.shape[2], features.shape[3])
        return self._grids[height, width]

    def feature_map(self, x: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d y x"]:
        try:
            features = self.backbone.forward_features(x)
        except (AssertionError, RuntimeError, ValueError) as error:
            height, width = x.shape[-2:]
            raise UserError(f"{self.name} takes no images of {height} × {width} pixels: {error}") from None
        if features.ndim == 3:  # tokens, after those that stand for no place
            places = features[:, getattr(self.backbone, "num_prefix_tokens", 0) :]
            return places.transpose(1, 2).unflatten(2, self._grid_of(places.shape[1]))
        if features.ndim == 4 and features.shape[1] != self.annotation_size:  # channels last
            features = features.permute(0, 3, 1, 2)
        if features.ndim != 4 or features.shape[1] != self.annotation_size:
            raise UserError(f"{self.name} gives features of shape {tuple(features.shape)}, which are no map of places")
        return features

    def _grid_of(self, places: int) -> tuple[int, int]:
        """Rows and columns of tokens: as the backbone says, or as many of each, where it says nothing."""
        for part in ("patch_embed", "stem"):
            size = getattr(getattr(self.backbone, part, None), "grid_size", None)
            if size is not None and size[0] * size[1] == places:
                return int(size[0]), int(size[1])
        side = math.isqrt(places)
        if side * side != places:
            raise UserError(f"{self.name} gives {places} tokens, of which it is not known where they stand")
        return side, side

    def load(self, path: Path | None, required: bool) -> None:
        """Put weights into the backbone; what is only for its own labels is left aside."""
        if path is None:
            if required:
                raise UserError(
                    f"no weights of {self.name} were found on this machine; give a file: "
                    "encoder.weights=FILE.safetensors, or let it learn: encoder.frozen=false"
                )
            return
        expected = self.backbone.state_dict()
        check_tensors(path)
        tensors = load_file(path)
        missing = [name for name in expected if name not in tensors]
        other = [name for name in expected if name in tensors and expected[name].shape != tensors[name].shape]
        if missing or other:
            first = f"it has no {missing[0]}" if missing else f"{other[0]} has another shape"
            raise UserError(f"{path} does not hold the weights of {self.name}: {first}")
        self.backbone.load_state_dict({name: tensors[name] for name in expected})


def _timm() -> ModuleType:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        reason = "" if importlib.util.find_spec("timm") is None else f" (it is there, but says: {error})"
        raise UserError(f"the encoder timm needs the package timm{reason}; pip install timm") from None


def _cached(about: dict[str, Any]) -> Path | None:
    """The file of weights in the local cache of the hub, without asking the network."""
    if not about.get("hf_hub_id") or importlib.util.find_spec("huggingface_hub") is None:
        return None
    hub = importlib.import_module("huggingface_hub")
    path = hub.try_to_load_from_cache(about["hf_hub_id"], about.get("hf_hub_filename") or "model.safetensors")
    return Path(path) if isinstance(path, str) and path.endswith(".safetensors") else None
