"""Tables and folders of recordings, of arrays and of images in time, with their texts or labels."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from sightline.data.columns import Columns, TableRow, choose_columns, read_columns
from sightline.data.image_tables import ANY_NAMES, FileKind, file_pairs, first_cell, table_in, transcript_cells
from sightline.data.labelled import TEXT_NAMES
from sightline.data.made import made_rows
from sightline.data.source import Source
from sightline.synthetic.made import POSITIONS as MADE_POSITIONS
from sightline.synthetic.made import VECTORS as MADE_VECTORS
from sightline.synthetic.made import is_made

SOUNDS = FileKind(
    "recording",
    ("audio", "sound", "recording", "wav", "audio_path", "speech", *ANY_NAMES),
    (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"),
    "convert M4A and WMA to WAV or FLAC",
)
POSITION_NAMES = ("positions", "order", "pointers")  # what the column of positions may be called
_POSITIONS = re.compile(r"\s*\d+(?:[\s,;]+\d+)*\s*")  # whole numbers, and nothing else
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
    """Whether data is of arrays with anything but positions, or made as such."""
    return _is_arrays(source, positions=False)


def is_position_source(source: Source) -> bool:
    """Whether data is of arrays with positions of their frames, or made as such."""
    return _is_arrays(source, positions=True)


def _is_arrays(source: Source, positions: bool) -> bool:
    if is_made(source.data):
        return is_made(source.data, MADE_POSITIONS if positions else MADE_VECTORS)
    if source.held is not None:  # a row is looked at once
        source = _first_row(source)
    return VECTORS.is_source(source) and _has_positions(source) is positions


def _first_row(source: Source) -> Source:
    held = () if isinstance(source.held, Iterator) else source.held or ()
    return Source(None, source.columns, source.options, list(islice(held, 1)))


def _has_positions(source: Source) -> bool:
    """Whether the second column is of positions. Its name tells, or where it has another one (``columns``), what
    stands in it first: paths and lists of lists are vectors."""
    named = source.columns[1].strip().casefold() if source.columns and len(source.columns) > 1 else None
    if named is None:
        names = {*_names(source)}
        return bool(names & {*POSITION_NAMES}) and "target" not in names
    if named in POSITION_NAMES or source.held is not None or (table := _table_of(source)) is None:
        return named in POSITION_NAMES

    def find(name: str, header: Sequence[str]) -> Columns:
        return choose_columns(name, header, (), (source.columns or ())[1:2])

    first = first_cell(table, find)
    if isinstance(first, list):
        return bool(first) and not isinstance(first[0], list)
    return isinstance(first, int) or (isinstance(first, str) and _POSITIONS.fullmatch(first) is not None)


def _names(source: Source) -> list[str]:
    """The names of the columns, or of the fields of the first row; a folder without a table has none."""
    there: list[str] = []

    def find(name: str, header: Sequence[str]) -> Columns:
        there.extend(header)
        return Columns(())

    if source.held is not None:
        first = next(iter(source.held), None)
        there += map(str, first) if isinstance(first, Mapping) else ()
    elif (table := _table_of(source)) is not None:
        next(iter(read_columns(table, find)), None)
    return [name.strip().casefold() for name in there]


def _table_of(source: Source) -> str | None:
    """The table that data is, or that a folder has."""
    return table_in(str(source.data), POSITION_NAMES)


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


def position_pairs(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as the path of an array, or its numbers, and positions as they stand there."""
    return made_rows(source) if is_made(source.data) else transcript_cells(source, columns, VECTORS)


def sound_pairs(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as the path of a recording and that of its target."""
    return file_pairs(source, columns, SOUNDS)
