"""Images: files, bytes or pixels. A frozen encoder sees each of them once; one that learns is a part of the model.

Of training data all images are read while it is prepared, and what the model is given of them is stored: features, or
pixels (`sightline.inputs.image`). Files with the same content are one image, whatever they are called.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline.data.captioned import BAD_IMAGE
from sightline.data.checking import Limits
from sightline.data.columns import Cells, text_problem
from sightline.data.features import Features, Fitted, write_features
from sightline.data.image_tables import image_paths
from sightline.data.images import (
    KEYS,
    LIMITS,
    BadImage,
    ImageLimits,
    fit_image,
    image_key,
    read_fitted,
    read_image,
    read_images,
)
from sightline.errors import UserError
from sightline.explain.evidence import believe
from sightline.explain.explanation import Belief
from sightline.inputs.base import Input
from sightline.models.image_to_text import Places
from sightline.nn.image import ImageEncoder, ImageEncoderConfig
from sightline.outputs.image_subject import PlaceSubject, of_images
from sightline.picture import Picture
from sightline.records import Grid, Record
from sightline.tasks.loading import Saved
from sightline.tasks.prepare import Setting
from sightline.tasks.task import BadValueError
from sightline.training.folder import RunFolder, save_tensors

# Images as an encoder takes them: out of files, bytes or pixels, some at a time, the bad ones named.


AT_ONCE = 64  # images that are in work together
Source = Path | str | bytes | np.ndarray  # an image: its file, what is in the file, or its pixels


class Some(NamedTuple):
    """Pixels of the good images among some, with their numbers; what is wrong with the bad ones, by number."""

    pixels: np.ndarray
    numbers: list[int]
    bad: dict[int, str]


def read_some(
    images: Sequence[Source],
    how: ImageEncoderConfig,
    at_once: int = AT_ONCE,
    *,
    limits: ImageLimits = LIMITS,
    workers: int | None = None,
) -> Iterator[Some]:
    """All images in the size that the encoder takes, in order; files are decoded ahead in other threads."""
    files = [one if isinstance(one, bytes) else Path(one) for one in images if not isinstance(one, np.ndarray)]
    reading = read_images(
        files, how.size, how.size, how.fit, limits=limits, workers=workers if len(files) > 1 or workers else 0
    )
    pixels: list[np.ndarray] = []
    numbers: list[int] = []
    bad: dict[int, str] = {}
    for number, image in enumerate(images):
        found = _fitted(image, how) if isinstance(image, np.ndarray) else next(reading)[1]
        if isinstance(found, BadImage):
            bad[number] = str(found)
        else:
            pixels.append(found)
            numbers.append(number)
        if len(pixels) == at_once or number == len(images) - 1:
            shape = (0, how.size, how.size, 3)
            yield Some(np.stack(pixels) if pixels else np.zeros(shape, np.uint8), numbers, bad)
            pixels, numbers, bad = [], [], {}


def check_several(images: Any) -> None:
    """One path would be read letter by letter."""
    if isinstance(images, str | bytes | Path | np.ndarray):
        raise UserError("images is one image; expected a list of images")


def named(image: Source, number: int) -> str:
    """What errors call an image."""
    return str(image) if isinstance(image, Path | str) else f"image {number + 1}"


def pixels_of(image: Source) -> np.ndarray:
    """The pixels of one image, in the size that it has."""
    if isinstance(image, np.ndarray):
        return image
    return read_image(image if isinstance(image, bytes) else Path(image))


def _fitted(pixels: np.ndarray, how: ImageEncoderConfig) -> "np.ndarray | BadImage":
    if pixels.ndim != 3 or pixels.shape[-1] != 3:
        return BadImage(f"found an array of shape {pixels.shape}, expected height × width × 3")
    try:
        return fit_image(pixels, how.size, how.size, how.fit)
    except ValueError as error:
        return BadImage(str(error))


# The image encoder of a run: where a new run gets it, what places it makes, and its file in the run folder.


ENCODER = "encoder.safetensors"


def new_encoder(config: Any, earlier: Any) -> ImageEncoder:
    """That of the run to go on from where it does not learn; else a new one, with what it has learnt before."""
    if earlier is not None and earlier.input.how != config.encoder:
        raise UserError(f"{earlier.name} has another image encoder, and what goes on from it keeps that one")
    if earlier is not None and earlier.input.encoder is not None:
        return earlier.input.encoder
    torch.manual_seed(config.seed)
    return config.encoder.build(pretrained=earlier is None)


def places_of(how: ImageEncoderConfig, encoder: ImageEncoder) -> Places:
    """The annotations that an encoder makes of every image."""
    return Places(encoder.annotation_size, *encoder.grid(how.size, how.size))


def save_encoder(folder: RunFolder, encoder: ImageEncoder | None) -> None:
    """One that does not learn, so that a run needs no package that it came from; others are a part of the model."""
    if encoder is not None:
        save_tensors(folder.path / ENCODER, dict(encoder.state_dict()))


def load_encoder(saved: Saved, how: ImageEncoderConfig) -> ImageEncoder | None:
    """What `save_encoder` saved; to be used, not to learn."""
    if not how.frozen:
        return None
    return saved._replace(weights=saved.path / ENCODER).model(how.build).requires_grad_(False)


# What a model is given for each image of its training data: features of a frozen encoder, or pixels. Made once.


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


class Photo(NamedTuple):
    """An image of some data: its file, a number that its content has, and the row that is stored of it (−1: none)."""

    file: str
    key: int
    row: int = -1


Image = Photo | Path | str | bytes | np.ndarray


class ImageInput(Input):
    """Images. A part is the row of a stored image, or its pixels in the size that the encoder takes.

    ``encoder`` is one that does not learn; a model whose encoder learns is built with ``learning``, and given pixels.
    """

    kind = "image"
    noun = "images"
    at_once = AT_ONCE
    budget = AT_ONCE
    keys_file = KEYS
    by_item = True
    reads_files = True
    label_explanation = "sightline.outputs.labels_explain:explain_image_label"
    label_baselines = "sightline.outputs.label_baselines:ImageBaselines"
    decodes = "the mean of all places"
    source_name = "image"
    most_measured = 1 << 20

    def __init__(self, config: Any, places: Places | None = None, encoder: ImageEncoder | None = None) -> None:
        super().__init__(config)
        self._places, self.encoder = places, encoder
        self.learning: ImageEncoder | None = None
        self.features: Features | None = None
        self.per_second: float | None = None  # images read, where they were not there already
        self.same_files = 0  # files of the training data whose content is that of a file before
        self._quick: ImageEncoder | None = None

    @property
    def how(self) -> ImageEncoderConfig:
        return self.config.encoder

    @property
    def places(self) -> Places:
        assert self._places is not None, "the input is not fitted"
        return self._places

    @property
    def extra_parameters(self) -> int:  # type: ignore[override]
        return 0 if self.encoder is None else sum(one.numel() for one in self.encoder.parameters())

    # -- reading

    def stage(self, tables: Sequence[Iterable[Cells]], setting: Setting) -> Sequence[Iterable[Cells]]:
        """Know every image by its content, and read them all once. Rows of images that cannot be read come last, with
        their problem, at the place where the image was named first."""
        held = [list(table) for table in tables]
        encoder = new_encoder(self.config, None if setting.start is None else setting.start.run)
        self._places = places_of(self.how, encoder)
        self.encoder, self.learning = (encoder, None) if self.how.frozen else (None, encoder)
        known = Known()
        for number, table in enumerate(held):
            same = known.add(table)
            self.same_files += 0 if number else same
        if known.files:
            self._read_all(list(known.files.values()), encoder, setting)
        return [known.staged(table, self.features) for table in held]

    def stage_scored(self, rows: Iterable[Cells]) -> Iterable[Cells]:
        known, held = Known(), list(rows)
        known.add(held)
        return known.staged(held, None)

    def _read_all(self, files: Sequence[Path], encoder: ImageEncoder, setting: Setting) -> None:
        cache = setting.source.options.get("features")
        self.features, self.per_second = make_inputs(
            files,
            self.how,
            encoder,
            setting.data,
            cache=None if cache is None else Path(cache),
            limits=setting.limits,
            device=setting.device,
            on_images=setting.on_items,
        )

    def read(self, cells: Mapping[str, Any]) -> Photo:
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

    def pack(self, x: Photo) -> list[Any]:
        """The name only: where an image was is nobody else's business."""
        return [Path(x.file).name, x.key, x.row]

    def unpack(self, row: Any) -> tuple[Photo, Sequence[Any]]:
        if isinstance(row, Mapping):  # as runs of earlier versions kept captions
            return Photo(row["image"], row["key"], row["row"]), [row["captions"]]
        return Photo(*row[:3]), row[3:]

    # -- fitted

    def encode(self, xs: Sequence[Image]) -> list[list[Any]]:
        if self.features is not None and all(isinstance(x, Photo) and x.row >= 0 for x in xs):
            return [[(x.row,)] for x in xs]  # type: ignore[union-attr]
        parts: list[list[Any]] = [[] for _ in xs]
        for some in read_some([_file(x) for x in xs], self.how, max(1, len(xs))):
            for number, pixels in zip(some.numbers, some.pixels, strict=True):
                parts[number] = [pixels]
            for number, reason in some.bad.items():
                parts[number] = [BadValueError(reason)]
        return parts

    def size(self, part: Any) -> int:
        return 1

    def work(self, xs: Sequence[Image]) -> list[int]:
        return [self.config.work] * len(xs)

    def collate(self, parts: Sequence[Any]) -> Tensor:
        """What the model is given: features of the encoder that does not learn, or pixels."""
        if np.ndim(parts[0]) == 3:
            return self.see(np.stack(parts))
        assert self.features is not None
        return torch.from_numpy(self.features.rows([int(part[0]) for part in parts]))

    @torch.inference_mode()
    def see(self, pixels: np.ndarray) -> Tensor:
        """Pixels as they are, or the features of the encoder that does not learn."""
        whole = torch.from_numpy(pixels)
        if self.encoder is None:
            return whole
        if self._quick is None:
            self._quick = self.encoder.quick()
        return self._quick(whole.to(self.encoder.mean.device))

    def axis(self, x: Image, part: Any) -> Grid:
        return Grid(self.places.height, self.places.width)

    def shown(self, x: Image) -> dict[str, Any]:
        name = Path(_file(x)).name if isinstance(x, Photo | Path | str) else ""
        try:
            pixels = np.ascontiguousarray(pixels_of(_file(x)))
        except BadImage as error:
            raise UserError(f"{self.named(x, 0)} cannot be used: {error}") from None
        picture = Picture.of(pixels, name, fit=self.how.fit, shape=(self.how.size, self.how.size))
        return {"input": name or "an image", "image": picture}

    def believe(
        self, model: Any, part: np.ndarray, written: Sequence[int], records: Sequence[Record], shift: int
    ) -> Belief:
        subject = PlaceSubject(model, self.collate([part]).clone(), written)  # gradients may go through a clone
        return of_images(believe(subject, list(records), shift=shift, special=()))

    def receive(self, content: bytes, limits: ImageLimits, shown: bool) -> tuple[np.ndarray, int, Picture | None]:
        side, fit = self.how.size, self.how.fit
        pixels = read_fitted(content, side, side, fit, limits)  # as `predict` reads it
        picture = Picture.of(read_image(content, limits), fit=fit, shape=(side, side)) if shown else None
        return pixels, pixels.nbytes, picture

    def taken_encoder(self) -> ImageEncoder | None:
        """The encoder that a model is built with: None where it does not learn."""
        if self.how.frozen:
            return None
        encoder = self.learning or self.how.build()
        if places_of(self.how, encoder) != self.places:
            raise ValueError(f"{self.places} do not fit the encoder")
        return encoder

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        save_encoder(RunFolder(folder), self.encoder)
        return {"places": list(self.places)}, [] if self.encoder is None else [ENCODER]

    @classmethod
    def load(cls, saved: Saved, config: Any) -> "ImageInput":
        encoder = load_encoder(saved, config.encoder)
        with saved.reading():
            places = Places(*saved.about["places"])
            if not all(type(one) is int and 0 < one < 1 << 20 for one in places):
                raise ValueError(f"places is {list(places)}")
            if encoder is not None and places_of(config.encoder, encoder) != places:
                raise ValueError(f"{places} do not fit the encoder")
        return cls(config, places, encoder)

    def reopen(self, setting: Setting) -> None:
        self.features = open_inputs(setting.data)

    def notes(self) -> list[str]:
        return [f"images read at {self.per_second:,.1f} a second"] if self.per_second else []

    # -- for people

    def label(self, x: Image) -> str:
        if isinstance(x, Photo):
            return x.file
        return str(x) if isinstance(x, str | Path) else "an image"

    def named(self, x: Image, number: int) -> str:
        return named(_file(x), number)

    def item(self, given: Any) -> Image:
        return given

    def check_several(self, items: Any) -> None:
        check_several(items)

    def paths(self, files: Sequence[Path], listed: str | None) -> list[Path]:
        paths = image_paths(files, listed)
        if not paths:
            raise UserError(
                f"there is no image to {self.config.verb}: name images or folders with --image, or a list with --input"
            )
        return paths

    def bad_line(self, x: Image, reason: str, as_json: bool) -> str:
        name = self.label(x)
        return json.dumps({"image": name, "problem": reason}, ensure_ascii=False) if as_json else f"{one_line(name)}\t"


def one_line(path: str) -> str:
    """A path that keeps to its line, whatever its name."""
    return path.replace("\t", " ").replace("\n", " ").replace("\r", " ")


def _file(x: Image) -> Any:
    return x.file if isinstance(x, Photo) else x


def _path(row: Cells) -> Path | None:
    """The image of a row, where it names one."""
    image = row.values[0] if row.problem is None and row.values else None
    return Path(image) if isinstance(image, Path) or (isinstance(image, str) and image.strip()) else None


class Known:
    """Images that rows name, by their content: the number of each file, and the first file of each number."""

    def __init__(self) -> None:
        self.keys: dict[Path, int] = {}
        self.files: dict[int, Path] = {}

    def add(self, table: Iterable[Cells]) -> int:
        """Look at the files of some rows; how many of them have the content of a file before."""
        same = 0
        for row in table:
            path = _path(row)
            if path is not None and path not in self.keys:
                key = self.keys[path] = image_key(path)
                same += key in self.files
                self.files.setdefault(key, path)
        return same

    def staged(self, table: Iterable[Cells], features: Features | None) -> list[Cells]:
        """The rows with their images as a `Photo`; those of bad images come last."""
        numbers = {} if features is None else {key: row for row, key in enumerate(self.files)}
        staged, left_out = list[Cells](), dict[int, list[Cells]]()
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
