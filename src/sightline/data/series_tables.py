"""Tables and folders of recordings, of arrays and of images in time, with their texts or labels."""

from collections.abc import Iterator, Sequence
from typing import Any

from sightline.data.columns import TableRow
from sightline.data.image_tables import ANY_NAMES, FileKind, file_pairs, transcript_cells
from sightline.data.labelled import TEXT_NAMES
from sightline.data.made import made_rows
from sightline.data.source import Source
from sightline.synthetic.made import VECTORS as MADE_VECTORS
from sightline.synthetic.made import is_made

SOUNDS = FileKind(
    "recording",
    ("audio", "sound", "recording", "wav", "audio_path", "speech", *ANY_NAMES),
    (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"),
    "convert M4A and WMA to WAV or FLAC",
)
VECTORS = FileKind("array", ("features", "vectors", "array", "npy", *ANY_NAMES), (".npy",), numbers=True)

CLIPS = FileKind(
    "clip",
    ("frames", "video", "clip", "lips", *ANY_NAMES),
    (".mp4", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".npy", ".jpg", ".jpeg", ".png"),
)


def sound_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as the path of a recording and a text or a label."""
    return transcript_cells(source, columns, SOUNDS)


def is_sound_source(source: Source) -> bool:
    """Whether data is of recordings."""
    return SOUNDS.is_source(source)


def is_vector_source(source: Source) -> bool:
    """Whether data is of arrays, or made as such."""
    return is_made(source.data, MADE_VECTORS) or (not is_made(source.data) and VECTORS.is_source(source))


def is_labelled_sound(source: Source) -> bool:
    """Whether data that may be of texts is of recordings: beside a text, a path is no item."""
    return SOUNDS.is_source(source, TEXT_NAMES)


def is_labelled_vectors(source: Source) -> bool:
    """The same for arrays."""
    return VECTORS.is_source(source, TEXT_NAMES)


def is_clip_source(source: Source) -> bool:
    """Whether data is of clips."""
    return CLIPS.is_source(source)


def clip_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as the path of a clip and a text or a label."""
    return transcript_cells(source, columns, CLIPS)


def vector_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as the path of an array and a text."""
    return transcript_cells(source, columns, VECTORS)


def vector_pairs(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as the path of an array and that of its target, or as their numbers."""
    return made_rows(source) if is_made(source.data) else file_pairs(source, columns, VECTORS)
