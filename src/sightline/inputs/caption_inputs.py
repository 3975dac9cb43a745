"""What a model is given for each image of its training data: features of a frozen encoder, or pixels. Made once."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from sightline.data.checking import Limits
from sightline.data.features import Features, Fitted, write_features
from sightline.nn.image import ImageEncoder, ImageEncoderConfig

FOLDER = "images"  # below the run's data
OnImages = Callable[[int, int, float], None]  # images done, all images, images a second


def make_inputs(
    images: Sequence[Path],
    config: ImageEncoderConfig,
    encoder: ImageEncoder,
    data: Path,
    *,
    cache: Path | None = None,
    limits: Limits | None = None,
    device: str = "cpu",
    on_images: OnImages | None = None,
) -> tuple[Features, float | None]:
    """Read all images; also how many a second, where they were not there already.

    ``cache`` is a folder in which features of frozen encoders stay for other runs on the same images; the run has them
    in its own folder too, so that it needs no other.
    """
    speed: list[float] = []

    def tell(done: int, total: int, per_second: float) -> None:
        speed.append(per_second)
        if on_images is not None:
            on_images(done, total, per_second)

    own = data / FOLDER
    key = encoder_key(config, encoder) if config.frozen else ""
    folder = own if cache is None or not config.frozen else cache / f"{config.kind}-{key[:12]}"
    found = write_features(
        folder,
        images,
        Fitted(config.size, config.size, config.fit),
        encoding(encoder, device) if config.frozen else None,
        key=key,
        bad_limits=limits,
        tell=tell,
        waiting=lambda: None if on_images is None else on_images(0, len(images), 0.0),
        also=None if folder == own else own,
    )
    return found, speed[-1] if speed else None


def open_inputs(data: Path) -> Features:
    """What `make_inputs` made for a run."""
    return Features.open(data / FOLDER)


def encoding(encoder: ImageEncoder, device: str = "cpu") -> Callable[[np.ndarray], np.ndarray]:
    """Pixels to features, as they are kept: in 16 bits, which is more than they are exact to."""
    quick = encoder.to(device).quick()

    def encode(pixels: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return quick(torch.from_numpy(pixels).to(device)).half().cpu().numpy()

    return encode


def encoder_key(config: ImageEncoderConfig, encoder: ImageEncoder) -> str:
    """The same for the same encoder: its configuration and every weight."""
    found = hashlib.sha256(json.dumps(config.to_json(), sort_keys=True).encode())
    for name, tensor in encoder.state_dict().items():
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
