"""Images and captions from a table or a folder to what is trained on. Split by image, never by caption.

Files with the same content are one image, whatever they are called: a photo that stands in the data twice cannot be
trained on under one name and scored under another.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from sightline.data.checking import TOO_LONG, Checked, Limits, Report, hash_of
from sightline.data.features import Features
from sightline.data.image_tables import CAPTION_NAMES, ImageRow, read_image_table
from sightline.data.images import BadImage, read_image
from sightline.data.splitting import Overlap, normalise
from sightline.data.store import Corpus, write_corpus
from sightline.data.tokenise import Tokeniser, TokeniserConfig, train_tokeniser
from sightline.errors import UserError
from sightline.files import write_text
from sightline.layers.image import ImageEncoder, ImageEncoderConfig
from sightline.tasks.caption_inputs import OnImages, make_inputs, open_inputs
from sightline.tasks.image_keys import BAD_IMAGE, image_key, image_overlap, image_overlap_lines, write_keys
from sightline.tasks.preparing import VALID, Missing, count_missing, keep_pipe
from sightline.training.scores.scripts import words_of

NO_WORDS = "empty caption"
ENCODED = 1000  # captions tokenised together


@dataclass(frozen=True)
class CaptionFile:
    """A table with the columns image and caption, or a folder of images with their captions beside them.

    ``features`` is a folder that keeps what a frozen encoder makes of the images, for other runs on the same images.
    """

    data: str
    columns: tuple[str, str] | None = None
    features: Path | None = None


class Photo(NamedTuple):
    """An image with its captions, where it was named first, and the row of its features or pixels (−1: none yet)."""

    image: Path
    captions: tuple[str, ...]
    key: int
    file: str = ""
    line: int = 0
    row: int = -1


@dataclass
class CaptionReport(Report):
    """What was found; ``pairs`` are captions. ``source_characters`` are those of the captions."""

    images: int = 0
    same: int = 0  # files whose content is that of a file before
    bad_images: int = 0
    repeated: int = 0  # captions more of bad images, which are named once
    captions: dict[int, int] = field(default_factory=dict)  # how many images have so many captions

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        found["captions"] = found.pop("pairs")
        found["characters"] = found.pop("source_characters")
        for name in ("target_characters", "identical"):
            found.pop(name)
        counts = {str(count): images for count, images in sorted(self.captions.items())}
        kept = {"images": self.images, "same_content": self.same, "bad_images": self.bad_images}
        return found | kept | {"captions_of_an_image": counts}

    def lines(self) -> list[str]:
        lines = [f"{self.images:,} images with {self.pairs:,} captions, of {self.rows:,} rows"]
        if len(self.captions) > 1:
            least, most = min(self.captions), max(self.captions)
            lines.append(f"captions of an image: from {least:,} to {most:,}")
        if found := self.source_characters.to_json():
            lines.append("characters: " + ", ".join(f"{name} {value:,}" for name, value in found.items()))
        if self.same:
            lines.append(f"{self.same:,} files have the content of another: each of these is one image")
        if self.duplicates:
            lines.append(f"{self.duplicates:,} captions were there before, of the same image (kept)")
        return lines + self.left_out_lines()

    def left_out_lines(self) -> list[str]:
        lines = super().left_out_lines()
        unnamed = self.bad - len(self.places)
        if unnamed and lines:
            lines = lines[:-1] + ([f"  and {unnamed - self.repeated:,} more"] if unnamed > self.repeated else [])
        return lines


class CheckedCaptions(Checked[tuple[ImageRow, str], CaptionReport]):
    """The good rows of a table of captions. Whether too many are bad is known when the images have been read."""

    expected = "images and captions"

    def __init__(self, rows: Iterable[ImageRow], limits: Limits, places: int = 20) -> None:
        super().__init__(CaptionReport(), limits, places)
        self._kept = self._check(rows)

    def _check(self, rows: Iterable[ImageRow]) -> Iterator[tuple[ImageRow, str]]:
        for row in rows:
            self.report.rows += 1
            problem = row.problem or self._problem(row.value)
            if problem is not None or row.value is None:
                self._leave_out(row.file, row.line, problem or "missing caption")
                continue
            yield row, normalise(row.value)

    def _problem(self, caption: str | None) -> str | None:
        most = self.limits.max_characters
        if caption is None:
            return "missing caption"
        if len(caption) > most:
            return f"{TOO_LONG}: found {len(caption):,} characters in a caption, expected at most {most:,}"
        return None if words_of(caption) else f"{NO_WORDS}: found no word in {caption.strip()!r}, expected a caption"

    def leave_out(self, photo: Photo, reason: str) -> None:
        """An image that cannot be read takes its captions with it."""
        named = len(self.report.places)
        self.report.bad_images += 1
        for _ in photo.captions:
            self._leave_out(photo.file, photo.line, f"{BAD_IMAGE}: {photo.image}: {reason}")
        if len(self.report.places) > named:
            del self.report.places[named + 1 :]
            self.report.repeated += len(photo.captions) - 1

    def finish(self, photos: Sequence[Photo]) -> None:
        """Count what is left, and refuse where too much is not."""
        report = self.report
        report.images, report.pairs = len(photos), sum(len(photo.captions) for photo in photos)
        for photo in photos:
            report.captions[len(photo.captions)] = report.captions.get(len(photo.captions), 0) + 1
            report.duplicates += len(photo.captions) - len(set(photo.captions))
            for caption in photo.captions:
                report.source_characters.add(len(caption))
        if not photos or report.bad > self.limits.max_bad_share * report.rows:
            raise self._too_many()


def read_photos(files: CaptionFile, limits: Limits) -> tuple[list[Photo], CheckedCaptions]:
    """The images in the order in which they are named, each with all of its captions. No image is decoded here."""
    checked = CheckedCaptions(read_image_table(files.data, CAPTION_NAMES, files.columns), limits)
    keys: dict[Path, int] = {}
    found: dict[int, Photo] = {}
    captions: dict[int, list[str]] = {}
    for row, caption in checked:
        if row.image not in keys:
            key = keys[row.image] = image_key(row.image)
            checked.report.same += key in found
            found.setdefault(key, Photo(row.image, (), key, row.file, row.line))
        captions.setdefault(keys[row.image], []).append(caption)
    return [photo._replace(captions=tuple(captions[key])) for key, photo in found.items()], checked


def split_photos(photos: Sequence[Photo], share: float, seed: int) -> tuple[list[Photo], list[Photo]]:
    """Training and validation, by seed and content: the same images in any order give the same parts."""
    if not 0 < share < 1:
        raise UserError(f"validation: found the share {share!r}; expected one between 0 and 1")
    if len(photos) < 2:
        raise UserError(f"validation: found {len(photos)} image; expected two or more, to train on and to validate on")
    key = hashlib.blake2b(str(seed).encode(), digest_size=32).digest()
    order = sorted(photos, key=lambda photo: hash_of(str(photo.key), key))
    count = min(max(1, round(share * len(photos))), len(photos) - 1)
    chosen = {photo.key for photo in order[:count]}
    return [one for one in photos if one.key not in chosen], [one for one in photos if one.key in chosen]


@dataclass(frozen=True)
class PreparedCaptions:
    """What is trained on: tokens of captions with the rows of their images, and what the model is given for a row."""

    tokeniser: Tokeniser
    corpus: Corpus
    inputs: Features
    valid: list[Photo]
    encoder: ImageEncoder  # of a frozen one, what made the inputs; else what the model is built with
    report: CaptionReport | None = None
    overlap: Overlap | None = None
    missing: Missing | None = None
    valid_report: CaptionReport | None = None
    too_long: int = 0
    longest: int = 0
    images_per_second: float | None = None
    training_images: int = 0

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        if self.too_long:
            found.append(
                f"{self.too_long:,} captions have more than {self.longest:,} tokens and are not trained on "
                "(raise longest to train on them)"
            )
        found += image_overlap_lines(self.overlap)
        if self.missing is not None:
            found += self.missing.lines()
        if self.images_per_second:
            found.append(f"images read at {self.images_per_second:,.1f} a second")
        return found

    def summary(self) -> str:
        """One line of what is trained on."""
        images = "" if self.report is None else f"of {self.training_images:,} images "
        return (
            f"{len(self.corpus):,} captions {images}to train on, {len(self.valid):,} images to validate; "
            f"{self.tokeniser.words:,} tokens"
        )


@dataclass(frozen=True)
class CaptionPreparation:
    """What decides how data becomes a corpus. With a ``tokeniser``, that of an earlier run, none is learnt."""

    encoder: ImageEncoderConfig
    tokeniser: TokeniserConfig
    valid_share: float
    seed: int
    longest: int
    limits: Limits
    known: Tokeniser | None = None


def prepare_captions(
    files: CaptionFile,
    valid: CaptionFile | None,
    how: CaptionPreparation,
    encoder: ImageEncoder,
    folder: Path,
    device: str = "cpu",
    on_images: OnImages | None = None,
) -> PreparedCaptions:
    """Check, split, read the images, tokenise and store everything under ``folder``."""
    data = folder / "data"
    files = replace(files, data=keep_pipe(files.data, data))
    photos, checked = read_photos(files, how.limits)
    if valid is None:
        _say_what_is_bad(photos, checked)
        training, validating = split_photos(photos, how.valid_share, how.seed)
        valid_checked = checked
    else:
        training, (validating, valid_checked) = photos, read_photos(valid, how.limits)
    overlap = None if valid is None else image_overlap(training, validating)
    every = list({photo.key: photo for photo in (*training, *validating)}.values())
    inputs, speed = make_inputs(
        [photo.image for photo in every],
        how.encoder,
        encoder,
        data,
        cache=files.features,
        limits=how.limits,
        device=device,
        on_images=on_images,
    )
    rows = {photo.key: row for row, photo in enumerate(every)}
    problems = {every[row].key: reason for row, reason in inputs.bad.items()}
    training, validating = (
        [photo._replace(row=rows[photo.key]) for photo in _readable(some, problems, one)]
        for some, one in ((training, checked), (validating, valid_checked))
    )
    checked.finish([*training, *validating] if valid is None else training)
    if valid is not None:
        valid_checked.finish(validating)
    if not training or not validating:
        raise UserError("there is no image left to train on, or none to validate on; give more images")
    captions = [caption for photo in training for caption in photo.captions]
    tokeniser = how.known or train_tokeniser(captions, how.tokeniser)
    writing = _Encoding(training, tokeniser, how.longest)
    write_corpus(data / "train", writing)
    write_valid(data, validating)
    write_keys(data, rows)
    return PreparedCaptions(
        tokeniser,
        Corpus.open(data / "train"),
        inputs,
        validating,
        encoder,
        checked.report,
        overlap,
        count_missing(tokeniser, iter(captions)) if how.known else None,
        None if valid is None else valid_checked.report,
        writing.too_long,
        how.longest,
        speed,
        len(training),
    )


def captions_before(folder: Path, tokeniser: Tokeniser, encoder: ImageEncoder) -> PreparedCaptions:
    """What an earlier session prepared."""
    data = folder / "data"
    path = data / VALID
    if not path.exists():
        raise UserError(f"{path} is missing: without its data the run cannot go on")
    try:
        valid = [
            Photo(Path(one["image"]), tuple(one["captions"]), one["key"], row=one["row"])
            for one in map(json.loads, path.read_text(encoding="utf-8").split("\n")[:-1])
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return PreparedCaptions(tokeniser, Corpus.open(data / "train"), open_inputs(data), valid, encoder)


def write_valid(data: Path, photos: Iterable[Photo]) -> None:
    """Names only: where an image lay is nobody else's business."""
    rows = (
        {"image": photo.image.name, "captions": photo.captions, "key": photo.key, "row": photo.row} for photo in photos
    )
    write_text(data / VALID, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _readable(photos: Sequence[Photo], problems: dict[int, str], checked: CheckedCaptions) -> Iterator[Photo]:
    for photo in photos:
        if photo.key in problems:
            checked.leave_out(photo, problems[photo.key])
        else:
            yield photo


def _say_what_is_bad(photos: Sequence[Photo], checked: CheckedCaptions) -> None:
    """Where a split would say that there are too few images: first what is wrong with those that are named."""
    if len(photos) > 1:
        return
    problems = {}
    for photo in photos:
        try:
            read_image(photo.image)
        except BadImage as error:
            problems[photo.key] = str(error)
    checked.finish(list(_readable(photos, problems, checked)))


class _Encoding:
    """Rows of images and tokens of captions, once; counts what is too long."""

    def __init__(self, photos: Sequence[Photo], tokeniser: Tokeniser, longest: int) -> None:
        self.photos, self.tokeniser, self.longest, self.too_long = photos, tokeniser, longest, 0

    def __iter__(self) -> Iterator[tuple[list[int], list[int]]]:
        self.too_long, kept = 0, 0
        pairs = [(photo.row, caption) for photo in self.photos for caption in photo.captions]
        for start in range(0, len(pairs), ENCODED):
            part = pairs[start : start + ENCODED]
            for (row, _), ids in zip(part, self.tokeniser.encode([text for _, text in part]), strict=True):
                if len(ids) > self.longest:
                    self.too_long += 1
                else:
                    kept += 1
                    yield [row], ids
        if not kept:
            raise UserError(f"all {self.too_long:,} captions have more than {self.longest:,} tokens; raise longest")
