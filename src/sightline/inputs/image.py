"""Images: files, bytes or pixels. A frozen encoder reads each of them once; one that learns is a part of the model.

Of training data all images are read while it is prepared, and what the model is given of them is stored: features, or
pixels (`sightline.data.features`). Files with the same content are one image, whatever they are called.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Num
from torch import Tensor, nn

from sightline.data.captioned import BAD_IMAGE
from sightline.data.columns import TableRow, text_problem
from sightline.data.decoding import Decoding
from sightline.data.features import Features, Fitted, write_features
from sightline.data.image_tables import image_paths
from sightline.data.images import KEYS, BadImage, fit_image, image_key, read_image, read_images
from sightline.errors import UserError
from sightline.explain.evidence import believe
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief
from sightline.inputs.base import Input, Shown
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


class Photo(NamedTuple):
    """An image of some data: its file, a number that its content has, and the row that is stored of it (−1: none)."""

    file: str
    key: int
    row: int = -1


Image = Photo | Path | str | bytes | np.ndarray
ImagePart = tuple[int] | np.ndarray  # the row of a stored image, or pixels


class ImageInput(Input[Image, ImagePart, Tensor]):
    """Images. A part is the row of a stored image, or its pixels in the size that the encoder takes.

    ``encoder`` is one that does not learn; a model whose encoder learns is built with ``learning``, and given pixels.
    """

    kind = "image"
    noun = "images"
    single = (str, bytes, Path, np.ndarray)
    item_types = (Photo, *single)
    example = '"photo.png"'
    at_once = AT_ONCE
    budget = AT_ONCE
    keys_file = KEYS
    by_item = True
    reads_files = True
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
        self.same_files = 0  # files of the training data whose content is that of a file before
        self._folded: ImageEncoder | None = None  # the encoder, folded for inference

    @property
    def encoder_config(self) -> ImageEncoderConfig:
        return self.config.encoder

    @property
    def encoder_parameters(self) -> int:  # type: ignore[override]
        return 0 if self.encoder is None else sum(one.numel() for one in self.encoder.parameters())

    # -- reading

    def stage(self, tables: Sequence[Iterable[TableRow]], setting: Setting) -> Sequence[Iterable[TableRow]]:
        """Hash every image, and read them all once. Rows of images that cannot be read come last, with their problem,
        at the place where the image was named first."""
        held = [list(table) for table in tables]
        encoder = new_encoder(self.config, None if setting.start is None else setting.start.run)
        self.places = places_of(self.encoder_config, encoder)
        self.encoder, self.learning = (encoder, None) if self.encoder_config.frozen else (None, encoder)
        known = Known()
        for number, table in enumerate(held):
            same = known.add(table)
            self.same_files += 0 if number else same
        if known.files:
            self._read_all(list(known.files.values()), encoder, setting)
        return [known.staged(table, self.features) for table in held]

    def stage_scored(self, rows: Iterable[TableRow]) -> Iterable[TableRow]:
        known, held = Known(), list(rows)
        known.add(held)
        return known.staged(held, None)

    def _read_all(self, files: Sequence[Path], encoder: ImageEncoder, setting: Setting) -> None:
        """Store features or pixels of all images.

        The option ``features`` is a folder in which features of frozen encoders stay for other runs on the same images;
        the run has them in its own folder too, so that it needs no other.
        """
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
            files,
            Fitted(config.size, config.size, config.fit),
            encoding(encoder, setting.device) if config.frozen else None,
            key=key,
            bad_limits=setting.limits,
            tell=tell,
            waiting=lambda: None if on_images is None else on_images(0, len(files), 0.0),
            also=None if folder == own else own,
        )

    def read(self, cells: Mapping[str, object]) -> Photo:
        image = cells.get("image")
        if isinstance(image, Photo):
            return image
        problem = None if isinstance(image, Path) else text_problem(image, "the image")
        if problem is not None or not str(image).strip():
            raise BadValueError(problem or "empty: found no text in the image, expected the path of an image")
        return Photo(str(image).strip(), image_key(Path(str(image).strip())))

    def identity(self, x: Image) -> str:
        return format(self.key(x), self.config.key_format)

    def key(self, x: Image) -> int:
        if isinstance(x, Photo):
            return x.key
        if isinstance(x, str | Path):
            return image_key(Path(x))
        data = x if isinstance(x, bytes) else x.tobytes()
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") or 1

    def pack(self, x: Image) -> list[object]:
        """The name only: a run folder does not tell where an image was."""
        assert isinstance(x, Photo)
        return [Path(x.file).name, x.key, x.row]

    def unpack(self, row: Sequence[object] | Mapping[str, object]) -> tuple[Photo, Sequence[object]]:
        values: Any = row
        if isinstance(row, Mapping):  # as runs of earlier versions kept captions
            return Photo(values["image"], values["key"], values["row"]), [values["captions"]]
        return Photo(*values[:3]), values[3:]

    # -- fitted

    def encode(self, xs: Sequence[Image]) -> list[list[ImagePart | BadValueError]]:
        if self.features is not None and all(isinstance(x, Photo) and x.row >= 0 for x in xs):
            return [[(x.row,)] for x in xs]  # type: ignore[union-attr]
        images, config = [_file(x) for x in xs], self.encoder_config
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
        image, config = _file(x), self.encoder_config
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

    # -- for people

    def label(self, x: Image) -> str:
        if isinstance(x, Photo):
            return x.file
        return str(x) if isinstance(x, str | Path) else "an image"

    def named(self, x: Image, number: int) -> str:
        return self.label(x) if isinstance(x, Photo | str | Path) else super().named(x, number)

    def item(self, given: object) -> Image:
        return cast("Image", given)

    def paths(self, files: Sequence[Path], listed: str | None) -> list[Path]:
        paths = image_paths(files, listed)
        if not paths:
            raise UserError(
                f"there is no image to {self.config.verb}: name images or folders with --image, or a list with --input"
            )
        return paths


def _file(x: Image) -> Path | bytes | np.ndarray:
    """A path, bytes or pixels."""
    return Path(x.file) if isinstance(x, Photo) else Path(x) if isinstance(x, str) else x


def _fitted(pixels: np.ndarray, config: ImageEncoderConfig) -> "np.ndarray | BadImage":
    if pixels.ndim != 3 or pixels.shape[-1] != 3:
        return BadImage(f"found an array of shape {pixels.shape}, expected height × width × 3")
    try:
        return fit_image(pixels, config.size, config.size, config.fit)
    except ValueError as error:
        return BadImage(str(error))


def _path(row: TableRow) -> Path | None:
    """The image of a row, where it names one."""
    image = row.values[0] if row.problem is None and row.values else None
    return Path(image) if isinstance(image, Path) or (isinstance(image, str) and image.strip()) else None


class Known:
    """Images that rows name, by their content: the number of each file, and the first file of each number."""

    def __init__(self) -> None:
        self.keys: dict[Path, int] = {}
        self.files: dict[int, Path] = {}

    def add(self, table: Iterable[TableRow]) -> int:
        """Look at the files of some rows; how many of them have the content of a file before."""
        same = 0
        for row in table:
            path = _path(row)
            if path is not None and path not in self.keys:
                key = self.keys[path] = image_key(path)
                same += key in self.files
                self.files.setdefault(key, path)
        return same

    def staged(self, table: Iterable[TableRow], features: Features | None) -> list[TableRow]:
        """The rows with their images as a `Photo`; those of bad images come last."""
        numbers = {} if features is None else {key: row for row, key in enumerate(self.files)}
        staged, left_out = list[TableRow](), dict[int, list[TableRow]]()
        for row in table:
            path = _path(row)
            key = 0 if path is None else self.keys[path]
            place = numbers.get(key, -1)
            if path is None:
                staged.append(row)
            elif features is not None and place in features.bad:
                first = left_out.setdefault(key, [])
                problem = f"{BAD_IMAGE}: {path}: {features.bad[place]}"
                first.append(first[0] if first else row._replace(values=(), problem=problem))
            else:
                staged.append(row._replace(values=(Photo(str(self.files[key]), key, place), *row.values[1:])))
        return staged + [row for some in left_out.values() for row in some]


# -- images under perturbation: places are hidden to measure the evidence of captions and of labels

VARIANTS = 4096  # places of variants that are in work together
OF_TEXTS = ("special", "first")  # findings that do not apply to images


class ImageSubject(ABC):
    """A model that reads places and one image, for `sightline.explain.evidence`. A subclass reads the variants.

    A place is hidden before the model normalises it: its features become those of `_blank`. Deleting it would change
    how many places there are. What people get wrong: the features of a place also hold some of its neighbours, so
    hiding a place hides less than covering that part of the image.
    """

    column_name = "place"

    def __init__(self, model: ImageToText | ImageToLabels, source: Num[Tensor, "1 ..."]) -> None:
        self.model, self.source = model, source
        self.device = next(model.parameters()).device
        self.hideable = np.ones(self.columns, dtype=bool)

    @property
    def columns(self) -> int:
        return self.model.places.count

    def attends_to_columns(self, name: str) -> bool:
        return self.model.attends_to_source(name)

    @property
    def at_once(self) -> int:
        """Variants of the image that are in work together."""
        return max(1, VARIANTS // self.columns)

    @torch.no_grad()
    def log_probs(self, keep: Bool[Tensor, "n s"]) -> Float[Tensor, "n t"]:
        with evaluating(self.model):
            parts = [self._read(len(part), part.to(self.device))[0] for part in keep.split(self.at_once)]
        return torch.cat(parts)

    def gradient_times_input(self, rows: Sequence[int]) -> Float[Tensor, "n s"]:
        products = []
        with evaluating(self.model), torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            for part in torch.tensor(list(rows), device=self.device).split(self.at_once):
                # One copy of the image for each row: the sum over copies has the gradients of all rows apart.
                log_probs, seen = self._read(len(part), None)
                (gradient,) = torch.autograd.grad(log_probs.gather(1, part.unsqueeze(1)).sum(), seen)
                products.append((gradient * seen.detach()).sum(dim=-1))
        return torch.cat(products)

    @abstractmethod
    def _read(self, copies: int, keep: Bool[Tensor, "n s"] | None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the rows `n t`, and the features of the places `n s d` that they were made from."""

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
