"""Images: files, bytes or pixels. A frozen encoder reads each of them once; one that learns is a part of the model.

What the model is given of training images is stored: features, or pixels (`sightline.data.features`).
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from sightline.data.decoding import Decoding
from sightline.data.features import Features, Fitted, write_features
from sightline.data.images import KEYS, BadImage, fit_image, read_image, read_images
from sightline.errors import UserError
from sightline.explain.evidence import believe
from sightline.explain.evidence.hiding import HidingSubject
from sightline.explain.explanation import Belief
from sightline.inputs.base import Shown
from sightline.inputs.files import FileInput, FileItem, StoredFile, file_of
from sightline.models.image_to_labels import ImageToLabels
from sightline.models.image_to_text import ImageToText, Places
from sightline.nn.image import ImageEncoder, ImageEncoderConfig
from sightline.picture import Picture
from sightline.records import Grid, Record
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.loading import SavedRun
from sightline.tasks.prepare import Setting
from sightline.tasks.task import BadValueError
from sightline.training.folder import save_tensors
from sightline.vocabulary import START

AT_ONCE = 64  # images that are in work together
ENCODER = "encoder.safetensors"
FOLDER = "images"  # below the run's data: features or pixels of all images


def new_encoder(config: TaskConfig, earlier: Any) -> ImageEncoder:
    """The frozen encoder of the run to start from; else a new one, with pretrained weights."""
    if earlier is not None and earlier.input.encoder_config != config.encoder:
        raise UserError(f"{earlier.name} has another image encoder, and a run that starts from it keeps that one")
    if earlier is not None and earlier.input.encoder is not None:
        return earlier.input.encoder
    torch.manual_seed(config.seed)
    return config.encoder.build(pretrained=earlier is None)


def places_of(config: ImageEncoderConfig, encoder: ImageEncoder) -> Places:
    """The encoder states that an encoder makes of every image."""
    return Places(encoder.annotation_size, *encoder.grid(config.size, config.size))


def encoding(encoder: ImageEncoder, device: str = "cpu") -> Callable[[np.ndarray], np.ndarray]:
    """Pixels to features, as they are stored: in 16 bits, which is more than they are exact to."""
    folded = encoder.to(device).quick()

    def encode(pixels: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return folded(torch.from_numpy(pixels).to(device)).half().cpu().numpy()

    return encode


def encoder_key(config: ImageEncoderConfig, encoder: ImageEncoder) -> str:
    """The same for the same encoder: its configuration and every weight."""
    digest = hashlib.sha256(json.dumps(config.to_json(), sort_keys=True).encode())
    for name, tensor in encoder.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


Image = FileItem
ImagePart = tuple[int] | np.ndarray  # the row of a stored image, or pixels


class ImageInput(FileInput[ImagePart, Tensor]):
    """Images. A part is the row of a stored image, or its pixels in the size that the encoder takes.

    ``encoder`` is one that does not learn; a model whose encoder learns is built with ``learning``, and given pixels.
    """

    kind = "image"
    noun = "images"
    at_once = AT_ONCE
    budget = AT_ONCE
    keys_file = KEYS
    decodes = "the mean of all places"
    source_name = "image"
    most_measured = 1 << 20

    places: Places

    def __init__(self, config: TaskConfig, places: Places | None = None, encoder: ImageEncoder | None = None) -> None:
        super().__init__(config)
        self.places, self.encoder = cast("Places", places), encoder  # places: None until it is fitted
        self.learning: ImageEncoder | None = None
        self.features: Features | None = None
        self.per_second: float | None = None  # images read, where they were not there already
        self._folded: ImageEncoder | None = None  # the encoder, folded for inference

    @property
    def encoder_config(self) -> ImageEncoderConfig:
        return self.config.encoder

    @property
    def encoder_parameters(self) -> int:  # type: ignore[override]
        return 0 if self.encoder is None else sum(one.numel() for one in self.encoder.parameters())

    # -- reading

    def read_files(self, files: Sequence[Path | np.ndarray], setting: Setting) -> Mapping[int, str]:
        """Store features or pixels of all images.

        The option ``features`` is a folder in which features of frozen encoders stay for other runs on the same images;
        the run has them in its own folder too, so that it needs no other.
        """
        encoder = new_encoder(self.config, None if setting.start is None else setting.start.run)
        self.places = places_of(self.encoder_config, encoder)
        self.encoder, self.learning = (encoder, None) if self.encoder_config.frozen else (None, encoder)
        config, own, on_images = self.encoder_config, setting.data / FOLDER, setting.on_items
        cache = cast("str | None", setting.source.options.get("features")) if config.frozen else None
        key = encoder_key(config, encoder) if config.frozen else ""
        folder = own if cache is None else Path(cache) / f"{config.kind}-{key[:12]}"

        def tell(done: int, total: int, per_second: float) -> None:
            self.per_second = per_second
            if on_images is not None:
                on_images(done, total, per_second)

        self.features = write_features(
            folder,
            cast("Sequence[Path]", files),
            Fitted(config.size, config.size, config.fit),
            encoding(encoder, setting.device) if config.frozen else None,
            key=key,
            bad_limits=setting.limits,
            tell=tell,
            waiting=lambda: None if on_images is None else on_images(0, len(files), 0.0),
            also=None if folder == own else own,
        )
        return self.features.bad

    def unpack(self, row: Sequence[object] | Mapping[str, object]) -> tuple[Image, Sequence[object]]:
        values: Any = row
        if isinstance(row, Mapping):  # as runs of earlier versions kept captions
            return StoredFile(values["image"], values["key"], values["row"]), [values["captions"]]
        return super().unpack(values)

    # -- fitted

    def encode(self, xs: Sequence[Image]) -> list[list[ImagePart | BadValueError]]:
        if self.features is not None and all(isinstance(x, StoredFile) and x.row >= 0 for x in xs):
            return [[(x.row,)] for x in xs]  # type: ignore[union-attr]
        images, config = [file_of(x) for x in xs], self.encoder_config
        files = [one for one in images if not isinstance(one, np.ndarray)]
        workers = None if len(files) > 1 else 0
        decoded = read_images(files, config.size, config.size, config.fit, workers=workers)
        parts: list[list[ImagePart | BadValueError]] = []
        for image in images:
            pixels = _fitted(image, config) if isinstance(image, np.ndarray) else next(decoded)[1]
            parts.append([BadValueError(str(pixels)) if isinstance(pixels, BadImage) else pixels])
        return parts

    def size(self, part: ImagePart) -> int:
        return 1

    def work(self, xs: Sequence[Image]) -> list[int]:
        return [self.config.work] * len(xs)

    def collate(self, parts: Sequence[ImagePart]) -> Tensor:
        """What the model is given: features of the encoder that does not learn, or pixels."""
        if np.ndim(parts[0]) == 3:
            return self.see(np.stack(cast("Sequence[np.ndarray]", parts)))
        assert self.features is not None
        return torch.from_numpy(self.features.rows([int(part[0]) for part in parts]))

    @torch.inference_mode()
    def see(self, pixels: np.ndarray) -> Tensor:
        """Pixels as they are, or the features of the encoder that does not learn."""
        whole = torch.from_numpy(pixels)
        if self.encoder is None:
            return whole
        if self._folded is None:
            self._folded = self.encoder.quick()
        return self._folded(whole.to(self.encoder.mean.device))

    def axis(self, x: Image, part: ImagePart) -> Grid:
        return Grid(self.places.height, self.places.width)

    def shown(self, x: Image) -> Shown:
        image, config = file_of(x), self.encoder_config
        name = "" if isinstance(image, bytes | np.ndarray) else image.name
        try:
            pixels = image if isinstance(image, np.ndarray) else read_image(image)
        except BadImage as error:
            raise UserError(f"{self.named(x, 0)} cannot be used: {error}") from None
        picture = Picture.of(np.ascontiguousarray(pixels), name, fit=config.fit, shape=(config.size, config.size))
        return {"input": name or "an image", "image": picture}

    def believe(
        self, model: nn.Module, part: ImagePart, written: Sequence[int], records: Sequence[Record], shift: int
    ) -> Belief:
        subject = PlaceSubject(
            cast("ImageToText", model), self.collate([part]).clone(), written
        )  # gradients may go through a clone
        return of_images(believe(subject, list(records), shift=shift, special=()))

    def receive(self, content: bytes, decoding: Decoding, shown: bool) -> tuple[np.ndarray, int, Picture | None]:
        side, fit = self.encoder_config.size, self.encoder_config.fit
        pixels = decoding.fitted(content, side, side, fit)  # as `predict` reads it
        picture = decoding.picture(content, side, side, fit) if shown else None
        return pixels, pixels.nbytes, picture

    def taken_encoder(self) -> ImageEncoder | None:
        """The encoder that a model is built with: None where it does not learn."""
        if self.encoder_config.frozen:
            return None
        encoder = self.learning or self.encoder_config.build()
        if places_of(self.encoder_config, encoder) != self.places:
            raise ValueError(f"{self.places} do not fit the encoder")
        return encoder

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        """With a frozen encoder, so that a run needs no package that it came from; others are a part of the model."""
        if self.encoder is not None:
            save_tensors(folder / ENCODER, dict(self.encoder.state_dict()))
        return {"places": list(self.places)}, [] if self.encoder is None else [ENCODER]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "ImageInput":
        encoder: ImageEncoder | None = None
        if config.encoder.frozen:
            encoder = saved._replace(weights=saved.path / ENCODER).model(config.encoder.build).requires_grad_(False)
        with saved.reading():
            places = Places(*saved.about["places"])
            if not all(type(one) is int and 0 < one < 1 << 20 for one in places):
                raise ValueError(f"places is {list(places)}")
            if encoder is not None and places_of(config.encoder, encoder) != places:
                raise ValueError(f"{places} do not fit the encoder")
        return cls(config, places, encoder)

    def reopen(self, setting: Setting) -> None:
        self.features = Features.open(setting.data / FOLDER)

    def notes(self) -> list[str]:
        return [f"images read at {self.per_second:,.1f} a second"] if self.per_second else []


def _fitted(pixels: np.ndarray, config: ImageEncoderConfig) -> "np.ndarray | BadImage":
    if pixels.ndim != 3 or pixels.shape[-1] != 3:
        return BadImage(f"found an array of shape {pixels.shape}, expected height × width × 3")
    try:
        return fit_image(pixels, config.size, config.size, config.fit)
    except ValueError as error:
        return BadImage(str(error))


# -- images under perturbation: places are hidden to measure the evidence of captions and of labels

OF_TEXTS = ("special", "first")  # findings that do not apply to images


class ImageSubject(HidingSubject):
    """A model that reads places and one image, for `sightline.explain.evidence`. A subclass reads the variants.

    A place is hidden before the model normalises it: its features become those of `_blank`. Deleting it would change
    how many places there are. What people get wrong: the features of a place also hold some of its neighbours, so
    hiding a place hides less than covering that part of the image.
    """

    model: ImageToText | ImageToLabels

    def __init__(self, model: ImageToText | ImageToLabels, source: Num[Tensor, "1 ..."]) -> None:
        super().__init__(model)
        self.source = source

    @property
    def columns(self) -> int:
        return self.model.places.count

    def _products(self, gradient: Tensor, seen: Tensor) -> Float[Tensor, "n s"]:
        return (gradient * seen).sum(dim=-1)

    @abstractmethod
    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        """The features of a hidden place."""

    def _copies(self, count: int) -> Tensor:
        """The image so many times."""
        return self.source.to(self.device).expand(count, *[-1] * (self.source.dim() - 1))

    @contextmanager
    def _seen(self, keep: Bool[Tensor, "n s"] | None) -> Iterator[list[Tensor]]:
        """Hide places that are not kept from the model inside the block; the list gets the places that it normalises.

        Without ``keep`` no place is hidden, and the places are the leaf of gradients.
        """
        seen: list[Tensor] = []

        def hide(module: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor]:
            (places,) = given
            if keep is None:
                places = places.detach().requires_grad_()
            else:
                places = torch.where(keep.unsqueeze(-1), places, self._blank(places))
            seen.append(places)
            return (places,)

        handle = self.model.normalise.register_forward_pre_hook(hide)
        try:
            yield seen
        finally:
            handle.remove()


class PlaceSubject(ImageSubject):
    """A model from images to text, one image, and what was written.

    A hidden place gets the mean of the image's places: the image as a whole is left.
    """

    model: ImageToText
    row_name = "word"

    def __init__(self, model: ImageToText, source: Num[Tensor, "1 ..."], written: Sequence[int]) -> None:
        super().__init__(model, source)
        self.written = torch.tensor(list(written), device=self.device)

    @property
    def rows(self) -> int:
        return len(self.written)

    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        words = torch.cat([torch.tensor([START], device=self.device), self.written[:-1]]).expand(copies, -1)
        with self._seen(keep) as seen:
            state = self.model.begin(self._copies(copies))
        features, _ = self.model.decode(words, state)
        log_probs = torch.log_softmax(self.model.output(features), dim=-1)
        return log_probs.gather(-1, self.written.expand(copies, -1).unsqueeze(-1)).squeeze(-1), seen[0]

    def _blank(self, places: Float[Tensor, "n s d"]) -> Tensor:
        return places.mean(dim=1, keepdim=True)


def of_images(belief: Belief) -> Belief:
    """Without what is measured of texts: an image has no special places, and its first is a corner."""
    return replace(belief, findings=tuple(one for one in belief.findings if one.key not in OF_TEXTS))
