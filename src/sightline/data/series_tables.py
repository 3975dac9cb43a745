"""Tables and folders of recordings, of arrays and of images in time, with their texts or labels."""

from collections.abc import Iterator, Sequence
from typing import Any

from sightline.data.columns import TableRow
from sightline.data.image_tables import ANY_NAMES, FileKind, transcript_cells
from sightline.data.source import Source

VECTORS = FileKind("array", ("features", "vectors", "array", "npy", *ANY_NAMES), (".npy",))


def vector_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as the path of an array and a text."""
    return transcript_cells(source, columns, VECTORS)
