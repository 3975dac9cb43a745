"""The saliency of images of any size: scaled to a few sizes, and computed in batches."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float32, UInt8

from sightline.data.images import BadImage, fit_image, read_image
from sightline.errors import UserError
from sightline.machine import choose_device
from sightline.saliency.competition import Fixation, PathConfig, scan_paths
from sightline.saliency.model import FIRST, NAMES, SCALE, SaliencyConfig, finished, saliency_maps
from sightline.saliency.pyramids import resize

BATCH = 8  # images computed together: more are not faster on a processor
WAITING = 8 * BATCH  # images that may wait for others of their size
CELL = 2 ** (SCALE - FIRST)  # sides are multiples of this: level 4 ends where the image does, more images share a size
LARGEST = 640  # pixels along the longer side of a map
Key = TypeVar("Key")


@dataclass(frozen=True)
class PreparedImage:
    """An image at the size of level 2, and its original height and width."""

    height: int
    width: int
    pixels: UInt8[np.ndarray, "h w 3"]


@dataclass(frozen=True)
class Saliency:
    """The saliency of one image of ``height`` × ``width`` pixels.

    ``map`` is S with the blur of the configuration, as large as the image, but at most 640 pixels along the longer
    side. ``raw`` is S without blur, and ``conspicuity`` the maps that it is the mean of, both at level 4. All have the
    unit of the paper's N(·), 0 to 1: in a flat image they are 0, and images can be compared.
    """

    height: int
    width: int
    map: Float32[np.ndarray, "map_h map_w"]
    raw: Float32[np.ndarray, "h w"]
    conspicuity: dict[str, np.ndarray]
    path: tuple[Fixation, ...]

    def resized(self, height: int, width: int) -> Float32[np.ndarray, "new_h new_w"]:
        """The map at another size."""
        return resize(torch.from_numpy(self.map)[None, None], (height, width))[0, 0].numpy()

    def to_json(self) -> dict[str, object]:
        """The scan path: x to the right and y down from the upper left corner, in pixels of the image."""
        about = {"width": self.width, "height": self.height, "most_salient": float(self.raw.max())}
        return {**about, "fixations": [asdict(one) for one in self.path]}


def saliency(
    images: Sequence[np.ndarray | str | Path],
    config: SaliencyConfig | None = None,
    path: PathConfig | None = None,
    *,
    device: str = "auto",
) -> list[Saliency]:
    """The saliency of images, in their order, given as arrays (uint8, height × width × 3) or as files.

    A file that is not an image is a `UserError` with its name.
    """
    config = config or SaliencyConfig()
    ready = ((number, prepare_image(_pixels(image), config)) for number, image in enumerate(images))
    by_number = {number: one for number, _, one in saliency_stream(ready, config, path, device=device)}
    return [by_number[number] for number in range(len(images))]


def prepare_image(pixels: UInt8[np.ndarray, "h w 3"], config: SaliencyConfig) -> PreparedImage:
    """The image at level 2, a quarter of the configuration's side; both sides are multiples of a cell."""
    height, width = pixels.shape[:2]
    scale = config.side / 2**FIRST / max(height, width) / CELL
    tall, wide = (max(1, round(side * scale)) * CELL for side in (height, width))
    return PreparedImage(height, width, fit_image(pixels, tall, wide))


def saliency_stream(
    images: Iterable[tuple[Key, PreparedImage]],
    config: SaliencyConfig | None = None,
    path: PathConfig | None = None,
    *,
    device: str = "auto",
    batch: int = BATCH,
) -> Iterator[tuple[Key, PreparedImage, Saliency]]:
    """The saliency of a stream of any length, in batches of images of one size; the order may change."""
    config, path, chosen = config or SaliencyConfig(), path or PathConfig(), choose_device(device)
    waiting: dict[tuple[int, ...], list[tuple[Key, PreparedImage]]] = defaultdict(list)
    for one in images:
        same = waiting[one[1].pixels.shape]
        same.append(one)
        if len(same) == batch:
            yield from _batch(waiting.pop(one[1].pixels.shape), config, path, chosen)
        elif sum(map(len, waiting.values())) >= WAITING:
            yield from _batch(waiting.pop(max(waiting, key=lambda size: len(waiting[size]))), config, path, chosen)
    for rest in waiting.values():
        yield from _batch(rest, config, path, chosen)


@torch.inference_mode()
def _batch(
    images: list[tuple[Key, PreparedImage]], config: SaliencyConfig, path: PathConfig, device: str
) -> list[tuple[Key, PreparedImage, Saliency]]:
    pixels = torch.from_numpy(np.stack([one.pixels for _, one in images])).to(device)
    maps = saliency_maps(pixels, config)
    paths = scan_paths(maps.saliency, [(one.height, one.width) for _, one in images], path)
    smooth = finished(maps.saliency, config)
    raw, conspicuity = maps.saliency.cpu().numpy(), maps.conspicuity.cpu().numpy()
    results = []
    for number, (key, one) in enumerate(images):
        size = _map_size(one.height, one.width)
        whole = resize(smooth[number][None, None], size)[0, 0].cpu().numpy()
        parts = dict(zip(NAMES, conspicuity[number], strict=True))
        results.append((key, one, Saliency(one.height, one.width, whole, raw[number], parts, paths[number])))
    return results


def _map_size(height: int, width: int) -> tuple[int, int]:
    scale = min(1.0, LARGEST / max(height, width))
    return max(1, round(height * scale)), max(1, round(width * scale))


def _pixels(image: Any) -> UInt8[np.ndarray, "h w 3"]:
    if isinstance(image, (str, Path)):
        try:
            return read_image(Path(image))
        except BadImage as error:
            raise UserError(f"{image}: {error}") from None
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
        found = f"{image.dtype} of shape {image.shape}" if isinstance(image, np.ndarray) else type(image).__name__
        raise UserError(f"an image is an array of uint8, height × width × 3, or a file; found {found}")
    if not image.size:
        raise UserError(f"an image has no pixels: its shape is {image.shape}")
    return image
