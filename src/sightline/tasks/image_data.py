"""Images and labels from a table or a folder to what is trained on: checked, split by content, read once.

Files with the same content are one image, whatever they are called: they stand together on one side of the split.
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from sightline.data.checking import Limits
from sightline.data.columns import Cells
from sightline.data.features import Features
from sightline.data.image_tables import LABEL_NAMES, ImageCells, read_image_cells
from sightline.data.labelled import (
    LOOKED_AT,
    SEPARATORS,
    Example,
    Label,
    LabelKind,
    LabelledFile,
    LabelledRow,
    labelled_row,
)
from sightline.data.labels_checking import CheckedRows, LabelReport
from sightline.data.splitting import Overlap
from sightline.data.stratified import split_examples
from sightline.errors import UserError
from sightline.files import write_text
from sightline.layers.image import ImageEncoder, ImageEncoderConfig
from sightline.tasks.caption_inputs import OnImages, make_inputs, open_inputs
from sightline.tasks.image_keys import BAD_IMAGE, image_key, image_overlap, image_overlap_lines, write_keys
from sightline.tasks.labels import Labels, labels_of
from sightline.tasks.preparing import keep_pipe

ROWS = "images.jsonl"


@dataclass(frozen=True)
class ImageLabelFile:
    """A table with the columns image and label, or a folder with a folder of images for each label.

    ``separator`` is what stands between several labels in one cell. ``features`` is a folder that keeps what a frozen
    encoder makes of the images, for other runs on the same images.
    """

    data: str
    columns: tuple[str, ...] | None = None
    labels: LabelKind = "one"
    separator: str | None = None
    features: Path | None = None

    def __post_init__(self) -> None:
        if self.separator is not None and (not self.separator or self.labels != "several"):
            raise UserError(f"the separator {self.separator!r} stands between several labels; ask for --labels several")


class LabelledImage(NamedTuple):
    """An image with its label, a number that its content has, and the row of its features or pixels (−1: none yet)."""

    image: Path
    label: Label
    key: int
    row: int = -1


@dataclass
class ImageLabelReport(LabelReport):
    """As of texts; what is counted are images, by their content."""

    what = "images"

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        for name in ("characters", "empty"):
            found.pop(name)
        return {"images": found.pop("texts"), **found}

    def lines(self) -> list[str]:
        lines = [f"{self.pairs:,} images of {self.rows:,} rows", *self.label_lines()]
        if self.duplicates:
            lines.append(f"{self.duplicates:,} images were there before with the same label (kept)")
        if self.contradicting:
            lines.append(f"{self.contradicting:,} images were there before with another label (kept)")
        return lines + self.left_out_lines()


class CheckedImages(CheckedRows):
    """The good rows of some, named by their content."""

    expected = "images and labels"

    def __init__(self, rows: Iterable[LabelledRow], kind: LabelKind, limits: Limits) -> None:
        super().__init__(rows, kind, limits)
        self.report: ImageLabelReport = ImageLabelReport(kind=kind)


def read_rows(files: ImageLabelFile) -> list[tuple[ImageCells, int]]:
    """Every row with the number of its image's content; nothing is decoded."""
    keys: dict[Path, int] = {}
    found = []
    for row in read_image_cells(files.data, LABEL_NAMES, files.columns):
        if row.problem is None and row.image not in keys:
            keys[row.image] = image_key(row.image)
        found.append((row, keys.get(row.image, 0)))
    return found


def with_separator(files: ImageLabelFile, rows: Sequence[tuple[ImageCells, int]]) -> ImageLabelFile:
    """With the separator of several labels found, where none was given and one is to be found."""
    if files.labels != "several" or files.separator is not None:
        return files
    values = [row.value for row, _ in itertools.islice(rows, LOOKED_AT) if isinstance(row.value, str)]
    return replace(files, separator=next((sign for sign in SEPARATORS if any(sign in one for one in values)), None))


def check_rows(
    rows: Sequence[tuple[ImageCells, int]], bad: dict[int, str], files: ImageLabelFile, limits: Limits
) -> tuple[list[LabelledImage], ImageLabelReport]:
    """The good rows and what was found. ``bad`` are the contents that cannot be read, with the reason."""
    paths: dict[int, Path] = {}
    how = LabelledFile(files.data, None, files.labels, files.separator)

    def labelled() -> Iterator[LabelledRow]:
        for row, key in rows:
            problem = row.problem
            if problem is None and key in bad:
                problem = f"{BAD_IMAGE}: {row.image}: {bad[key]}"
            if problem is None:
                paths.setdefault(key, row.image)
            values = () if problem else (f"{key:016x}", row.value)
            yield labelled_row(Cells(values, row.file, row.line, problem), ("the image", "the label"), how)

    checked = CheckedImages(labelled(), files.labels, limits)
    found = [LabelledImage(Path(), example.label, int(example.text, 16)) for example in checked]
    return [one._replace(image=paths[one.key]) for one in found], checked.report


@dataclass(frozen=True)
class PreparedImages:
    """What is trained on: images with their labels, and what the model is given for each row."""

    labels: Labels
    inputs: Features
    train: list[LabelledImage]
    valid: list[LabelledImage]
    encoder: ImageEncoder  # of a frozen one, what made the inputs; else what the model is built with
    report: ImageLabelReport | None = None
    valid_report: ImageLabelReport | None = None
    overlap: Overlap | None = None
    images_per_second: float | None = None

    @property
    def corpus(self) -> list[LabelledImage]:
        """What a card counts."""
        return self.train

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        if unseen := self.labels.unseen([one.label for one in self.valid]):
            named = ", ".join(f"{name!r} ({count:,})" for name, count in list(unseen.items())[:10])
            found.append(f"validation data has labels that training does not have, counted as wrong: {named}")
        found += image_overlap_lines(self.overlap)
        if self.images_per_second:
            found.append(f"images read at {self.images_per_second:,.1f} a second")
        return found

    def summary(self) -> str:
        """One line of what is trained on."""
        return f"{len(self.train):,} images to train on, {len(self.valid):,} to validate"


def prepare_images(
    files: ImageLabelFile,
    valid: ImageLabelFile | None,
    how: ImageEncoderConfig,
    encoder: ImageEncoder,
    folder: Path,
    *,
    valid_share: float,
    seed: int,
    limits: Limits,
    device: str = "cpu",
    on_images: OnImages | None = None,
) -> PreparedImages:
    """Check, split and read the images, and store everything under ``folder``."""
    data = folder / "data"
    files = replace(files, data=keep_pipe(files.data, data))
    rows = read_rows(files)
    files = with_separator(files, rows)
    others = [] if valid is None else read_rows(valid)
    every = {key: row.image for row, key in (*rows, *others) if row.problem is None}
    if not every:
        check_rows(rows, {}, files, limits)  # says why no row is good
    inputs, speed = make_inputs(
        list(every.values()),
        how,
        encoder,
        data,
        cache=files.features,
        limits=limits,
        device=device,
        on_images=on_images,
    )
    bad = {key: inputs.bad[row] for row, key in enumerate(every) if row in inputs.bad}
    found, report = check_rows(rows, bad, files, limits)
    report.check("the label column" if files.columns is None else f"the column {files.columns[-1]!r}")
    labels = labels_of(report, False, files.columns, files.separator)
    valid_report = None
    if valid is None:
        training, validating = split_images(found, valid_share, seed)
    else:
        validating, valid_report = check_rows(others, bad, replace(valid, separator=files.separator), limits)
        training = found
    places = {key: row for row, key in enumerate(every)}
    training, validating = ([one._replace(row=places[one.key]) for one in some] for some in (training, validating))
    _write(data, training, validating)
    overlap = None if valid is None else image_overlap(training, validating)
    return PreparedImages(labels, inputs, training, validating, encoder, report, valid_report, overlap, speed)


def split_images(
    images: Sequence[LabelledImage], share: float, seed: int
) -> tuple[list[LabelledImage], list[LabelledImage]]:
    """Training and validation, labels in like shares, an image on one side only, by seed and content."""
    named = [Example(f"{one.key:016x}", None, one.label) for one in images]
    split = split_examples(lambda: iter(named), share, seed, "images")
    chosen = [split.is_valid(example) for example in named]
    return (
        [one for one, apart in zip(images, chosen, strict=True) if not apart],
        [one for one, apart in zip(images, chosen, strict=True) if apart],
    )


def images_before(folder: Path, labels: Labels, encoder: ImageEncoder) -> PreparedImages:
    """What an earlier session prepared."""
    path = folder / "data" / ROWS
    if not path.exists():
        raise UserError(f"{path} is missing: without its data the run cannot go on")
    inputs = open_inputs(folder / "data")
    sides: tuple[list[LabelledImage], list[LabelledImage]] = ([], [])
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            name, label, key, row, apart = json.loads(line)
            if type(row) is not int or not 0 <= row < len(inputs):
                raise ValueError(f"there is no row {row!r}")
            label = tuple(label) if labels.kind == "several" else label
            sides[bool(apart)].append(LabelledImage(Path(name), label, int(key, 16), row))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return PreparedImages(labels, inputs, *sides, encoder)


def _write(data: Path, training: Sequence[LabelledImage], validating: Sequence[LabelledImage]) -> None:
    """Names only: where an image lay is nobody else's business. The keys are what an evaluation tells images by."""
    rows = [(one, apart) for some, apart in ((training, 0), (validating, 1)) for one in some]
    lines = (json.dumps([one.image.name, one.label, f"{one.key:016x}", one.row, apart]) for one, apart in rows)
    write_text(data / ROWS, "".join(f"{line}\n" for line in lines))
    write_keys(data, (one.key for one, _ in rows))
