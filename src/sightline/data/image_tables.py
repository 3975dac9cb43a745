"""Images with their captions, masks or labels: out of a table that names the files, or out of folders.

A table is any that `sightline.data.columns` reads; paths in it are relative to its own folder, or else to the working
folder. A folder with ``metadata.csv`` (or another table of that name) is that table, as Hugging Face has it. How other
folders are read depends on the second column: for labels, each folder in it is one; for masks, ``images`` and
``masks`` hold files of the same names (a mask may have ``_mask`` behind it), or masks stand beside their images; for
captions, a ``.txt`` beside each image has a caption a line. A row that cannot be used is yielded
with its problem; the caller decides how many are too many. The images are not opened here.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from sightline.data.columns import Columns, Find, TableRow, choose_columns, no_cells, read_columns, text_problem
from sightline.data.images import ENDINGS
from sightline.data.shards import ending_of, is_address
from sightline.data.source import Source
from sightline.data.tables import FORMATS, LINE_LIMIT, decoded
from sightline.errors import UserError
from sightline.files import place_of

# What the column of images may be called.
IMAGE_NAMES = ("image", "image_path", "image_file", "file_name", "filename", "file", "path")
ANY_NAMES = IMAGE_NAMES[3:]  # names that do not tell what kind of file it is
LOOKED_AT = 1000  # files of a folder that decide what kind they are
ALL_ENDINGS = (
    *(*ENDINGS, ".npy", ".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff"),
    *(".mp4", ".avi", ".mov", ".mkv", ".webm", ".mpg", ".mpeg"),
)
TABLES = (*FORMATS, ".gz")
_MASK = re.compile(r"(?<=.)[._ -]masks?$", re.IGNORECASE)  # behind the name of an image: its mask
_ARRAYS = (".npy",)  # a mask may be one, and so may a grid of features


@dataclass(frozen=True)
class FileKind:
    """A kind of files that tables and folders name: what one is called, its column, and the endings of files."""

    noun: str
    names: tuple[str, ...]
    endings: tuple[str, ...]
    hint: str = ""  # on files that look alike and are not read
    numbers: bool = False  # a cell may hold the numbers themselves, as lists

    def is_data(self, data: str, columns: Sequence[str] | None = None, beside: Sequence[str] = ()) -> bool:
        """Whether data has files of this kind: a folder most of whose files are, or a table with a column of them.

        Where ``columns`` are named, what stands first in the first of them decides. In a table with one of the columns
        ``beside``, a name that any kind of file may have (`ANY_NAMES`) tells nothing.
        """
        if data == "-":
            return False
        if Path(data).is_dir() and (table := table_in(data, ("text",))) is not None:
            data = table
        if Path(data).is_dir():
            files = [path.name.lower() for path in islice(_files(Path(data), ALL_ENDINGS), LOOKED_AT)]
            return 2 * sum(name.endswith(self.endings) for name in files) > len(files)

        def find(name: str, names: Sequence[str]) -> Columns:
            if columns is not None:
                return choose_columns(name, names, (), columns[:1])
            there = {one.strip().casefold() for one in names}
            known = [one for one in self.names if one not in ANY_NAMES or not there & {*beside}]
            own = [one for one in names if one.strip().casefold() in known]
            return Columns(tuple(own[:1]))

        first = first_cell(data, find)
        return (self.numbers and isinstance(first, list)) or str(first).strip().lower().endswith(self.endings)

    def is_source(self, source: Source, beside: Sequence[str] = ()) -> bool:
        """The same of a source; of rows that a Python program holds, the names of the fields decide."""
        if source.held is None:
            return source.data is not None and self.is_data(source.data, source.columns, beside)
        first = None if isinstance(source.held, Iterator) else next(iter(source.held), None)
        names = [str(name).strip().casefold() for name in first] if isinstance(first, Mapping) else []
        return any(name in self.names and name not in ANY_NAMES for name in names)


def is_table(path: str) -> bool:
    """Whether a path (--input) is a table, by its ending."""
    return path != "-" and Path(path).is_file() and Path(path).suffix.lower() in TABLES


def first_cell(data: str, find: Find) -> Any:
    """What stands first in the first column that ``find`` gives: nulls, empty cells and bad rows are passed over. None
    where there is no such column, or where the table cannot be read: its reader says what is wrong."""
    try:
        for row in islice(read_columns(data, find), LOOKED_AT):
            if row.problem is None and not row.values:
                return None
            if row.problem is None and row.values[0] is not None and row.values[0] != "":
                return row.values[0]
    except UserError:
        pass
    return None


IMAGES = FileKind("image", IMAGE_NAMES, ENDINGS, "convert HEIC to JPEG")


def image_paths(
    images: Sequence[str | Path],
    path: str | None = None,
    endings: Sequence[str] | None = None,
    kind: FileKind = IMAGES,
) -> list[Path]:
    """Files, folders of them (with those below), and with ``path`` (--input) a folder, an image, a table with a column
    of images, or a text file with a path a line (- is standard input). ``endings`` are those of images; files may be of
    another ``kind``."""
    endings = endings or kind.endings
    paths: list[Path] = []
    for one in map(Path, images):
        paths += in_folder(one, endings, kind) if one.is_dir() else [one]
    if path is None:
        return paths
    if path != "-" and Path(path).is_dir():
        return paths + in_folder(Path(path), endings, kind)
    if path != "-" and not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    suffix = Path(path).suffix.lower()
    if suffix in endings:
        return [*paths, Path(path)]
    if suffix in TABLES:
        for row in read_image_cells(path, (), kind=kind):
            if row.problem is not None:
                raise UserError(f"{row.file}:{row.line}: {row.problem}")
            paths.append(row.values[0])
        return list(dict.fromkeys(paths))
    try:
        text = decoded(sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes())
    except ValueError as error:
        what = f"{'an' if kind.noun[0] in 'aeiou' else 'a'} {kind.noun}"
        raise UserError(f"{path} is neither {what} nor a list of {kind.noun}s: {error}") from None
    base = Path() if path == "-" else Path(path).parent
    return paths + [base / line.strip() for line in text.splitlines() if line.strip()]


def in_folder(folder: Path, endings: Sequence[str] = ENDINGS, kind: FileKind = IMAGES) -> list[Path]:
    """The images (or files of another kind) of a folder and of those below it."""
    return [row.values[0] for row in read_image_cells(str(folder), (), endings=endings, kind=kind)]


def free_name(file: Path, folder: Path, endings: Sequence[str], taken: set[str]) -> str:
    """What the results of an image are called in a folder, before these endings: as the image, with a number behind it
    where one of them is ``taken`` (`place_of`). They are taken from then on."""
    stem = file.stem.replace(":", "-")  # Windows has no such names
    number, name = 1, stem
    while (places := {place_of(folder / f"{name}{ending}") for ending in endings}) & taken:
        number += 1
        name = f"{stem}-{number}"
    taken |= places
    return name


def read_image_table(
    data: str, known: Sequence[str], columns: Sequence[str] | None = None, *, endings: Sequence[str] = ENDINGS
) -> Iterator[TableRow]:
    """Every row as the path of an image and what belongs to it, in order, those with a problem too.

    ``known`` are the names that the second column may have, of which the first (caption, mask or label) also decides
    how a folder is read; none if there is no second column. ``columns`` are the names of the two columns, where they
    are others. ``endings`` are those of the files in a folder that count as images. Several captions in one row become
    as many rows; the path of a mask is complete, or empty where nothing is marked. The line is 0 where a row comes from
    a folder.
    """
    base = _base_of(table_in(data, known))
    for row in read_image_cells(data, known, columns, endings=endings):
        if row.problem is not None or not known:
            yield row
            continue
        image, value = row.values
        several = value if isinstance(value, list) and known[0] == "caption" else [value]
        if not several:
            yield no_cells(row.file, row.line, "empty: found a list of no captions, expected a caption")
        for one in several:
            text = str(one) if isinstance(one, int) and not isinstance(one, bool) else one
            text = "" if text is None and known[0] == "mask" else text
            problem = text_problem(text, f"the {known[0]}")
            if problem is None and known[0] == "mask" and base is not None and text.strip():
                place, problem = placed(base, text, "mask")
                text = str(place)
            yield TableRow(() if problem else (image, text), row.file, row.line, problem)


def read_image_cells(
    data: str,
    known: Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    endings: Sequence[str] | None = None,
    kind: FileKind = IMAGES,
) -> Iterator[TableRow]:
    """As `read_image_table`, with values as they stand in the file (in a folder, masks are complete paths): of JSON or
    Parquet they may be numbers or lists. ``kind`` is that of the files."""
    source = Source(data, None if columns is None else tuple(columns))
    source.check_columns((kind.names[0], *known[:1]))
    table, endings = table_in(data, known), endings or kind.endings
    folder = table is None
    rows = _folder_rows(Path(data), known, endings) if table is None else _table_rows(table, known, columns, kind)
    expected = f"{kind.noun}s, each with a {known[0]}" if known else f"{kind.noun}s"
    if folder and known:
        expected += f" ({_FOLDERS[known[0]][1]})"
    hint = f"; {kind.hint}" if kind.hint else ""
    instead = f"no {kind.noun} ({', '.join(endings)}{hint})" if folder else "an empty file or a header alone"
    return source.some(rows, f"has no rows: found {instead}; expected {expected}")


def caption_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row of a source as the path of an image and a caption, those with a problem too."""
    return read_image_table(str(source.data), columns[1].all, source.columns)


def image_label_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row of a source as the path of an image and a label as the file has it, those with a problem too."""
    return read_image_cells(str(source.data), columns[1].all, source.columns)


def transcript_cells(source: Source, columns: Sequence[Any], kind: FileKind) -> Iterator[TableRow]:
    """Every row of a source as the path of a file of this kind and a text, those with a problem too."""
    return read_image_cells(str(source.data), columns[1].all, source.columns, kind=kind)


def file_pairs(source: Source, columns: Sequence[Any], kind: FileKind) -> Iterator[TableRow]:
    """Every row of a source as the path of a file of this kind and that of its target, those with a problem too."""
    base = _base_of(str(source.data)) or Path()
    for row in transcript_cells(source, columns, kind):
        if row.problem is None and kind.numbers and isinstance(row.values[1], list):
            yield row
            continue
        problem = row.problem or text_problem(row.values[1], "the target")
        if problem is not None:
            yield row._replace(values=(), problem=problem)
            continue
        place, problem = placed(base, str(row.values[1]), "target")
        yield row._replace(values=() if problem else (row.values[0], str(place)), problem=problem)


def is_image_data(data: str, columns: Sequence[str] | None = None) -> bool:
    """Whether data that may be of texts or of images is of images: a folder, or a table with a column of images.

    Where ``columns`` are named, what stands first in the first of them decides.
    """
    if data == "-":
        return False
    if Path(data).is_dir() and table_in(data, ("label",)) is not None:
        return True
    if Path(data).is_dir():  # of images, unless it holds shards of a table and nothing else
        inside = list(Path(data).iterdir())
        return any(map(Path.is_dir, inside)) or not any(ending_of(path.name) in FORMATS for path in inside)
    there: list[str] = []

    def find(name: str, names: Sequence[str]) -> Columns:
        there.extend(name.strip().casefold() for name in names)
        return Columns(()) if columns is None else choose_columns(name, names, (), columns[:1])

    try:
        first = next((cells for cells in read_columns(data, find) if cells.problem is None), None)
    except UserError:  # the reader of texts says what is wrong
        return False
    if columns is None:
        return any(name in IMAGE_NAMES[:3] for name in there)
    return first is not None and str(first.values[0]).strip().lower().endswith(ENDINGS)


def is_image_source(source: Source) -> bool:
    """The same of a source; of rows that a Python program holds, the names of the fields decide."""
    if source.held is None:
        return source.data is not None and is_image_data(source.data, source.columns)
    first = None if isinstance(source.held, Iterator) else next(iter(source.held), None)
    names = [str(name).strip().casefold() for name in first] if isinstance(first, Mapping) else []
    return any(name in IMAGE_NAMES[:3] for name in names)


def _table_rows(data: str, known: Sequence[str], columns: Sequence[str] | None, kind: FileKind) -> Iterator[TableRow]:
    base = _base_of(data) or Path()
    names = (kind.names, known) if known else (kind.names,)

    def find(name: str, header: Sequence[str]) -> Columns:
        return choose_columns(name, header, names, columns, option=bool(known))  # without known, to predict

    for values, file, line, problem in read_columns(data, find):
        place = Path()
        if problem is None and kind.numbers and isinstance(values[0], list):
            yield TableRow(values, file, line)
            continue
        if problem is None and isinstance(values[0], dict | bytes):
            problem = f"{kind.noun} in the table: expected the path of a file, so save the {kind.noun}s as files"
        if problem is None and kind.numbers and values[0] is None:
            problem = f"empty: found null in the {kind.noun}, expected a path or lists of numbers"
        problem = problem or text_problem(values[0], f"the {kind.noun}")
        if problem is None:
            place, problem = placed(base, values[0], kind.noun)
        yield TableRow(() if problem else (place, *values[1:]), file, line, problem)


def table_in(data: str, known: Sequence[str]) -> str | None:
    """The table that data is, or that a folder holds under the name that Hugging Face gives it; None of others."""
    if data == "-" or not Path(data).is_dir():
        return data
    if not known:
        return None
    return next((str(path) for path in (Path(data) / f"metadata{one}" for one in FORMATS) if path.is_file()), None)


def _base_of(table: str | None) -> Path | None:
    """The folder that paths in a table are relative to."""
    return None if table is None else Path() if table == "-" else Path(table).parent


def placed(base: Path, text: str, what: str) -> tuple[Path, str | None]:
    """The file that a table names (`PATH_RULE`), and what is wrong with its name. ``\\`` may stand for ``/``."""
    text = text.strip()
    if not text:
        return base, f"empty: found no text in the {what}, expected the path of the {what}"
    if is_address(text) or text.startswith("data:"):
        return base, f"address: found {text[:60]!r} in the {what}, expected a path, so download the file first"
    forms = dict.fromkeys((text, text.replace("\\", "/")))
    places = [place / form for form in forms for place in (base, Path())]
    return next((place for place in places if os.path.exists(place)), base / list(forms)[-1]), None


def _folder_rows(folder: Path, known: Sequence[str], endings: Sequence[str]) -> Iterator[TableRow]:
    if not known:
        inner = folder / "images" if (folder / "images").is_dir() and (folder / "masks").is_dir() else folder
        return (TableRow((path,), str(folder), 0) for path in _without_masks(list(_files(inner, endings))))
    if known[0] not in _FOLDERS:
        raise UserError(f"{folder} is a folder; expected a table with a column of files and the column {known[0]}")
    return _FOLDERS[known[0]][0](folder, endings)


def _beside(folder: Path, endings: Sequence[str], what: str) -> Iterator[tuple[Path, Path, str, TableRow | None]]:
    """Each file, the .txt beside it, the text in it, and what is wrong with it."""
    for path in _files(folder, endings):
        beside = path.with_suffix(".txt")
        if not beside.is_file():
            yield path, beside, "", no_cells(str(path), 0, f"missing {what}: expected {beside.name} beside it")
            continue
        if beside.stat().st_size > LINE_LIMIT:
            problem = f"too long: expected a {what}, at most {LINE_LIMIT:,} bytes"
            yield path, beside, "", no_cells(str(beside), 0, problem)
            continue
        try:
            yield path, beside, decoded(beside.read_bytes()), None
        except ValueError as error:
            yield path, beside, "", no_cells(str(beside), 0, str(error))


def _transcribed(folder: Path, endings: Sequence[str]) -> Iterator[TableRow]:
    for path, beside, text, problem in _beside(folder, endings, "transcript"):
        yield problem or TableRow((path, " ".join(text.split())), str(beside), 1)


def _captioned(folder: Path, endings: Sequence[str]) -> Iterator[TableRow]:
    for path, beside, text, problem in _beside(folder, endings, "caption"):
        if problem is not None:
            yield problem
            continue
        lines = text.splitlines()
        captions = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
        if not captions:
            yield no_cells(str(beside), 0, "empty: found no caption, expected one or more lines")
        yield from (TableRow((path, caption), str(beside), number) for number, caption in captions)


def _masked(folder: Path, endings: Sequence[str]) -> Iterator[TableRow]:
    images, masks = folder / "images", folder / "masks"
    missing = next((one.name for one in (images, masks) if not one.is_dir()), None)
    if missing is not None:
        images = masks = folder
    named: dict[str, list[Path]] = {}
    for mask in _files(masks, (*ENDINGS, *_ARRAYS)):
        stem = str(mask.relative_to(masks).with_suffix(""))
        if missing is None or _MASK.search(stem):
            named.setdefault(_MASK.sub("", stem), []).append(mask)
    if missing is not None and not named:
        raise UserError(
            f"{folder}: found no folder {missing!r} in it, and no NAME_mask beside an image; expected images and masks"
        )
    taken = {mask for some in named.values() for mask in some}
    for path in _files(images, endings):
        if path in taken:
            continue
        stem = str(path.relative_to(images).with_suffix(""))
        of_image = named.get(stem, [])
        problem = None
        if len(of_image) != 1:
            shown = ", ".join(mask.name for mask in of_image) or "none"
            problem = f"missing mask: found {shown} in {masks}, expected one called {stem} or {stem}_mask"
            problem += "" if of_image else " (in a table, an empty cell says that nothing is marked)"
        yield TableRow(() if problem else (path, str(of_image[0])), str(path), 0, problem)


def _without_masks(paths: Sequence[Path]) -> list[Path]:
    """Images without those that are masks of others: ``x_mask.png`` beside ``x.jpg``."""
    there = {str(path.with_suffix("")) for path in paths}
    stems = ((path, str(path.with_suffix(""))) for path in paths)
    return [path for path, stem in stems if not (_MASK.search(stem) and _MASK.sub("", stem) in there)]


def _labelled(folder: Path, endings: Sequence[str]) -> Iterator[TableRow]:
    with os.scandir(folder) as entries:
        labels = sorted(one.name for one in entries if one.is_dir() and not one.name.startswith("."))
    if not labels:
        raise UserError(f"{folder}: found no folders in it; expected one for each label, with its files")
    for label in labels:
        yield from (TableRow((path, label), str(path), 0) for path in _files(folder / label, endings))


def _files(folder: Path, endings: Sequence[str]) -> Iterator[Path]:
    """The files of a folder and those below it, sorted; what is hidden is left out, and links to folders too."""
    for place, folders, names in os.walk(folder, onerror=_cannot_read):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith(".") and name.lower().endswith(tuple(endings)):
                yield Path(place) / name


def _cannot_read(error: OSError) -> None:
    raise UserError(f"{error.filename} cannot be read: {error.strerror}")


# By what belongs to an image: what reads such a folder, and what the folder holds.
_FOLDERS = {
    "text": (_transcribed, "recording.wav with recording.txt beside it"),
    "caption": (_captioned, "image.jpg with image.txt beside it, a caption a line"),
    "mask": (_masked, "images/NAME and masks/NAME"),
    "label": (_labelled, "a folder for each label"),
}
