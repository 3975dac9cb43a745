"""Series of frames: what inputs of sound, of vectors and of images in time share.

The frames of all training files are made once and memory-mapped (`sightline.data.series`). A part is the row of a
stored series, or its frames. In training a series may be read at another speed, drawn for each epoch.
"""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import nn

from sightline.data.decoding import Decoding
from sightline.data.disk import array_of
from sightline.data.series import SeriesStore, write_series
from sightline.data.store import Corpus
from sightline.errors import UserError
from sightline.explain.evidence import believe
from sightline.explain.explanation import Belief
from sightline.inputs.base import Shown
from sightline.inputs.files import FileInput, FileItem, StoredFile, file_of
from sightline.inputs.image import of_images
from sightline.inputs.series_subject import SeriesSubject
from sightline.models.series import SeriesModel
from sightline.nn.series import MOST_PIXELS, SeriesBatch, SeriesShape
from sightline.picture import Picture
from sightline.recording import Recording
from sightline.records import Frames, Record
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.loading import SavedRun
from sightline.tasks.prepare import Rows, Setting
from sightline.tasks.task import BadValueError

FOLDER = "series"  # below the run's data: the frames of all files
FLAT = 1e-3  # a deviation below this is that of a constant
MEASURED = 2_000  # files whose frames give mean and deviation
FRAMES = 15  # of each of them that give principal components, or a few more


class StoredPart(NamedTuple):
    """The frames of a stored file, at one of the speeds that are stored."""

    row: int
    frames: int
    variant: int = 0


class SeriesWindow(NamedTuple):
    """Frames that a model reads at once, how many frames of the series come before them, and how many it has (0: it
    has these alone)."""

    values: np.ndarray
    start: int = 0
    whole: int = 0


SeriesPart = (
    StoredPart | SeriesWindow | np.ndarray
)  # the last as the training corpus has it: the row of a stored series


class BadSeries(ValueError):  # noqa: N818 - as `BadImage`
    """A file whose frames cannot be used. Its text is the reason, without the name of the file."""


class SeriesInput(FileInput[SeriesPart, SeriesBatch]):
    """Series of frames. A subclass makes frames of a file (`frames_of`) and names their shape (`shape`).

    ``speeds`` are those that a series is trained at, the first of them its own.
    """

    kind = "series"
    noun = "recordings"
    at_once = 64
    budget = 24_000  # frames in one batch of predictions, padding counted
    keys_file = "series.npy"
    example = '"recording.wav"'
    source_name = "recording"
    decodes = "one vector for all of it"
    seconds: ClassVar[float] = 0.01  # a frame, where the data does not tell

    def __init__(self, config: TaskConfig, shape: SeriesShape | None = None) -> None:
        super().__init__(config)
        self.shape = cast("SeriesShape", shape)  # None until it is fitted
        self.store: SeriesStore | None = None
        self.centre: tuple[np.ndarray, np.ndarray] | None = None  # mean and reciprocal deviation of the training data
        self.axes: tuple[np.ndarray, np.ndarray] | None = None  # the mean frame and principal components of its pixels
        self.per_second: float | None = None

    @abstractmethod
    def frames_of(self, file: Path | bytes | np.ndarray, speed: float = 1.0) -> np.ndarray:
        """The frames of a file (or of what a program holds) at a speed, or a `BadSeries`."""

    @property
    def speeds(self) -> tuple[float, ...]:
        return (1.0, *(one for one in self.config.speeds if one != 1.0))

    # -- reading

    def read_files(self, files: Sequence[Path | np.ndarray], setting: Setting) -> Mapping[int, str]:
        began = time.perf_counter()

        def read() -> Iterator[tuple[list[np.ndarray], str | None]]:
            for number, file in enumerate(files):
                try:
                    arrays = [self.frames_of(file)]
                    self.check_frames(arrays[0])
                    arrays += [self.frames_of(file, speed) for speed in self.speeds[1:]]
                    self.examine(file)
                    yield arrays, None
                except BadSeries as error:
                    yield [], str(error)
                self.per_second = (number + 1) / max(1e-9, time.perf_counter() - began)
                if setting.on_items is not None:
                    setting.on_items(number + 1, len(files), self.per_second)

        coming = read()
        first: list[tuple[list[np.ndarray], str | None]] = []
        for one in coming:  # the first good file tells the shape of a frame
            first.append(one)
            if one[1] is None:
                break
        good = first[-1][0]
        if not good:
            names = (str(one) if isinstance(one, Path) else f"row {row:,}" for row, one in enumerate(files[:3], 1))
            reasons = "; ".join(f"{name}: {why}" for name, (_, why) in zip(names, first, strict=False))
            raise UserError(f"none of {len(files):,} {self.noun} can be used ({reasons})")
        self.shape = SeriesShape(good[0].shape[1:], self.frame_seconds())

        def rest() -> Iterator[tuple[list[np.ndarray], str | None]]:
            for arrays, problem in (*first, *coming):
                other = arrays and arrays[0].shape[1:] != self.shape.frame
                yield (
                    ([], f"its frames are {_sizes(arrays[0])}, those before {_sizes(good[0])}")
                    if other
                    else (
                        arrays,
                        problem,
                    )
                )

        self.store = write_series(setting.data / FOLDER, rest(), self.shape.frame, len(self.speeds))
        return self.store.bad

    def check_frames(self, frames: np.ndarray) -> None:
        """Refuse what is too short or too long to learn from."""
        most = self.config.max_frames
        if not len(frames):
            raise BadSeries("too short: it has no frames")
        if len(frames) > most:
            raise BadSeries(
                f"too long: it has {self.spoken(len(frames))}, and one to learn from has at most {self.spoken(most)} "
                "(max_frames); cut it into several"
            )

    def examine(self, file: Path | np.ndarray) -> None:
        """Note what is wrong with a file that can be used all the same."""

    def spoken(self, frames: int) -> str:
        """A duration in words."""
        seconds = frames * self.frame_seconds()
        return f"{seconds:,.1f} seconds" if seconds else f"{frames:,} frames"

    def frame_seconds(self) -> float:
        """How long a frame is."""
        return self.seconds

    def fit(self, rows: "Rows[FileItem, object]", setting: Setting) -> "SeriesInput":
        """With the mean and the deviation of each feature of the training data."""
        store, front = self.store, self.config.model.front
        assert store is not None
        files = [cast("StoredFile", one.x).row for one in islice(rows, MEASURED)]
        images, size = len(self.shape.frame) > 1, self.shape.size
        if setting.start is not None and self.shape.frame != (earlier := setting.start.run.input.shape.frame):
            raise UserError(
                f"{setting.start.path} reads frames of {_sizes(earlier)}, and those of the data are "
                f"{_sizes(self.shape.frame)}; begin without --from"
            )
        if images and front.components:
            if size > MOST_PIXELS:
                raise UserError(
                    f"frames have {_sizes(self.shape.frame)} pixels, and principal components are of at most "
                    f"{MOST_PIXELS:,}; set --set height=32 width=64, or convolutions with model.front.components=0"
                )
            size = min(front.components, size)
            self.axes = principal_axes((store.frames(file) for file in files), self.shape.size, size)
        elif images or front.centring == "none":
            return self
        count, sums = 0, np.zeros((2, size))
        for file in files:
            frames = store.frames(file).reshape(-1, self.shape.size).astype(np.float64)
            if self.axes is not None:
                frames = (frames - self.axes[0]) @ self.axes[1]
            if front.centring == "item":
                frames = frames - frames.mean(axis=0)
            count, sums = count + len(frames), sums + np.stack([frames.sum(axis=0), np.square(frames).sum(axis=0)])
        mean, squares = sums / count
        deviation = np.sqrt(np.maximum(squares - mean**2, 0.0))
        self.centre = mean, 1 / np.where(deviation < FLAT, 1.0, deviation)
        return self

    def initialise(self, model: SeriesModel) -> None:
        """Give a new model what was measured of the training data."""
        if self.centre is not None:
            model.centre(*(torch.from_numpy(one).float() for one in self.centre))
        if self.axes is not None:
            model.project(*(torch.from_numpy(one).float() for one in self.axes))

    # -- fitted

    def encode(self, xs: Sequence[FileItem]) -> list[list[SeriesPart | BadValueError]]:
        return [self._parts(x) for x in xs]

    def _parts(self, x: FileItem) -> list[SeriesPart | BadValueError]:
        if self.store is not None and isinstance(x, StoredFile) and x.row >= 0:
            return [StoredPart(x.row, self.store.length(x.row))]
        try:
            frames = self.frames_of(file_of(x))
            if frames.shape[1:] != self.shape.frame:
                raise BadSeries(f"its frames are {_sizes(frames)}, and the model reads {_sizes(self.shape.frame)}")
            if not len(frames):
                raise BadSeries("too short: it has no frames")
            return [SeriesWindow(frames[start:end], start, len(frames)) for start, end in self.windows(frames)]
        except BadSeries as error:
            return [BadValueError(str(error))]

    def windows(self, frames: np.ndarray) -> list[tuple[int, int]]:
        """From where to where each part of a series is that is too long to be read at once."""
        most = self.config.max_frames
        count = -(-len(frames) // most)
        places = [len(frames) * number // count for number in range(count + 1)]
        return list(pairwise(places))

    def stored(self, part: SeriesPart) -> Sequence[int]:
        assert isinstance(part, StoredPart)
        return (part.row,)

    def lengths(self, corpus: Corpus) -> np.ndarray:
        assert self.store is not None
        rows = np.array([corpus[number][0][0] for number in range(len(corpus))], np.int64)
        return self.store.lengths(rows)

    def augmented(self, parts: Sequence[SeriesPart], draw: Callable[[], np.random.Generator]) -> Sequence[SeriesPart]:
        speeds = len(self.speeds)
        if speeds == 1:
            return parts
        drawn = draw().integers(0, speeds, len(parts))
        rows = (int(part[0]) for part in parts)
        return [StoredPart(row, 0, int(variant)) for row, variant in zip(rows, drawn, strict=True)]

    def size(self, part: SeriesPart) -> int:
        return (
            part.frames
            if isinstance(part, StoredPart)
            else len(part.values if isinstance(part, SeriesWindow) else part)
        )

    def collate(self, parts: Sequence[SeriesPart]) -> SeriesBatch:
        arrays = [self._frames(part) for part in parts]
        values = np.zeros((len(arrays), max(map(len, arrays)), *self.shape.frame), arrays[0].dtype)
        for row, frames in enumerate(arrays):
            values[row, : len(frames)] = frames
        return SeriesBatch(torch.from_numpy(values), torch.tensor([len(frames) for frames in arrays]))

    def _frames(self, part: SeriesPart) -> np.ndarray:
        if isinstance(part, SeriesWindow):
            return part.values
        assert self.store is not None
        return self.store.frames(int(part[0]), part.variant if isinstance(part, StoredPart) else 0)

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        return {"frame": list(self.shape.frame), "frame_seconds": self.shape.seconds}, []

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "SeriesInput":
        with saved.reading():
            frame, seconds = tuple(saved.about["frame"]), float(saved.about["frame_seconds"])
            if not frame or len(frame) > 2 or not all(type(one) is int and 0 < one < 1 << 16 for one in frame):
                raise ValueError(f"frame is {list(frame)}")
            if not 0 <= seconds < 1e6:
                raise ValueError(f"frame_seconds is {seconds}")
        return cls(config, SeriesShape(frame, seconds))

    def reopen(self, setting: Setting) -> None:
        self.store = SeriesStore.open(setting.data / FOLDER)
        if (self.store.frame, self.store.variants) != (self.shape.frame, len(self.speeds)):
            raise UserError(f"the frames in {setting.data / FOLDER} are not those of this run; prepare the data again")

    def notes(self) -> list[str]:
        return [f"{self.noun} read at {self.per_second:,.1f} a second"] if self.per_second else []

    def axis(self, x: FileItem, part: SeriesPart) -> Frames:
        frames = self.size(part)
        steps = self.config.model.steps(frames)
        return Frames(steps, self.shape.seconds * self.config.model.reduction)

    most_measured = 1 << 12

    def believe(
        self, model: nn.Module, part: SeriesPart, written: Sequence[int], records: Sequence[Record], shift: int
    ) -> Belief:
        subject = SeriesSubject(model, self.collate([part]), written, self.config.model.reduction)
        return of_images(believe(subject, list(records), shift=shift, special=()))

    def shown(self, x: FileItem) -> Shown:
        frames, name = self._frames(cast("SeriesPart", self._parts(x)[0])), Path(self.label(x)).name
        seconds = self.shape.seconds
        return {"input": name, "recording": Recording.of(frames, len(frames) * seconds, name=name, step=seconds)}

    def receive(self, content: bytes, decoding: Decoding, shown: bool) -> tuple[np.ndarray, int, Picture | None]:
        """An array (.npy) is what every series can be sent as."""
        try:
            frames = self.frames_of(array_of(content))
        except BadSeries as error:
            raise UserError(str(error)) from None
        except ValueError as error:
            raise UserError(f"it is no array (.npy): {error}") from None
        return frames, frames.nbytes, None

    bench_unit = "seconds of the data"  # so many a second: how many times faster than real time

    def amount(self, xs: Sequence[FileItem]) -> float:
        frames = sum(self.size(cast("SeriesPart", part)) for parts in self.encode(xs) for part in parts)
        return frames * (self.shape.seconds or 1.0)

    def work(self, xs: Sequence[FileItem]) -> list[int]:
        return [self.config.work] * len(xs)


def principal_axes(clips: Iterable[np.ndarray], size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The mean frame of some clips, and the axes along which their pixels differ most, the largest first."""
    frames, total, products = 0, np.zeros(size), np.zeros((size, size))
    for clip in clips:
        pixels = clip[:: max(1, len(clip) // FRAMES)].reshape(-1, size).astype(np.float64)
        frames, total, products = frames + len(pixels), total + pixels.sum(axis=0), products + pixels.T @ pixels
    mean = total / frames
    return mean, np.linalg.eigh(products / frames - np.outer(mean, mean))[1][:, ::-1][:, :count].copy()


def _sizes(frames: np.ndarray | tuple[int, ...]) -> str:
    shape = frames if isinstance(frames, tuple) else frames.shape[1:]
    return " × ".join(map(str, shape)) or "single numbers"
