"""Arrays of features: ``.npy`` files of frames × features, such as cepstra of sound or values of sensors."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from sightline.data.augment import stretch
from sightline.data.columns import TableRow
from sightline.data.disk import array_of, mapped
from sightline.data.image_tables import is_table, read_image_cells
from sightline.data.series_tables import VECTORS
from sightline.errors import UserError
from sightline.inputs.files import FileItem, HeldNumbers
from sightline.inputs.series import BadSeries, SeriesInput
from sightline.tasks.prepare import Setting

MOST_FRAMES = 10_000_000


class VectorsInput(SeriesInput):
    """Files of arrays, T × D. Each is kept in 16 bits, and at other speeds its frames are interpolated."""

    kind = "vectors"
    noun = "arrays"
    source_name = "frames"
    column = "features"
    files = VECTORS
    example = '"features.npy"'

    def stage(self, tables: Sequence[Iterable[TableRow]], setting: Setting) -> Sequence[Iterable[TableRow]]:
        return super().stage([map(_with_array, table) for table in tables], setting)

    def stage_scored(self, rows: Iterable[TableRow]) -> Iterable[TableRow]:
        return super().stage_scored(map(_with_array, rows))

    def paths(self, files: Sequence[Path], listed: str | None) -> Sequence[FileItem]:
        """Rows of a table may also hold the numbers themselves."""
        if listed is None or not is_table(listed):
            return super().paths(files, listed)
        items = map(_item, map(_with_array, read_image_cells(listed, (), kind=self.files)))
        named = super().paths(files, None) if files else ()
        return list({self.label(one): one for one in (*named, *items)}.values())

    def frame_seconds(self) -> float:
        return self.config.frame_seconds

    def frames_of(self, file: Path | bytes | np.ndarray, speed: float = 1.0) -> np.ndarray:
        frames = file if isinstance(file, np.ndarray) else _read(file)
        if frames.ndim != 2 or frames.dtype.kind not in "fiu" or not 0 < frames.shape[1] < 1 << 16:
            raise BadSeries(f"found an array of {frames.dtype} and shape {frames.shape}, expected frames × features")
        if len(frames) > MOST_FRAMES:
            raise BadSeries(f"too long: found {len(frames):,} frames, expected at most {MOST_FRAMES:,}")
        values = np.asarray(frames, np.float32)
        if not np.isfinite(values).all() or np.abs(values).max(initial=0) > np.finfo(np.float16).max:
            raise BadSeries("found numbers that are not finite or above 65,504, expected smaller ones")
        return self.kept(values if speed == 1 else stretch(values, speed))

    def kept(self, values: np.ndarray) -> np.ndarray:
        """In 16 bits, as frames are stored."""
        return values.astype(np.float16)


def _with_array(row: TableRow) -> TableRow:
    """A row whose numbers stand in the table, or in a program's memory, with these as an array."""
    if row.problem is not None or not row.values or not isinstance(row.values[0], list | np.ndarray):
        return row
    array: np.ndarray
    try:
        array = np.asarray(row.values[0], np.float32)
    except (TypeError, ValueError):
        array = np.zeros(0)
    if array.ndim != 2 or not array.size:
        problem = "bad array: expected frames × features, lists of as many numbers each"
        return row._replace(values=(), problem=problem)
    return row._replace(values=(array, *row.values[1:]))


def _item(row: TableRow) -> Path | HeldNumbers:
    """A row as an item to predict."""
    place = f"{row.file}:{row.line}"
    if row.problem is not None:
        raise UserError(f"{place}: {row.problem}")
    return HeldNumbers(place, row.values[0]) if isinstance(row.values[0], np.ndarray) else row.values[0]


def _read(file: Path | bytes) -> np.ndarray:
    try:
        return array_of(file) if isinstance(file, bytes) else mapped(file)
    except FileNotFoundError:
        raise BadSeries("there is no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise BadSeries(f"it is no array (.npy): {error}") from None
