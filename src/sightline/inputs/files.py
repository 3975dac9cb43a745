"""Items that are files, such as images and recordings: identified by their content, read once, stored.

Of training data all files are read while it is prepared, and what a model is given of them is stored below the run's
data. Files with the same content are one item, whatever they are called.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from sightline.data.columns import TableRow, text_problem
from sightline.data.image_tables import IMAGES, FileKind, image_paths
from sightline.data.images import image_key
from sightline.errors import UserError
from sightline.inputs.base import Input
from sightline.tasks.prepare import Setting
from sightline.tasks.task import BadValueError, Batch, Part


class StoredFile(NamedTuple):
    """A file of some data: its path, a number that its content has, and the row that is stored of it (−1: none)."""

    file: str
    key: int
    row: int = -1


class HeldNumbers(NamedTuple):
    """The numbers that a file would hold, and the row of a table that has them, as FILE:LINE."""

    file: str
    values: np.ndarray


FileItem = StoredFile | HeldNumbers | Path | str | bytes | np.ndarray


class FileInput(Input[FileItem, Part, Batch]):
    """Files. A subclass reads all of them (`read_files`), encodes and collates what it stored.

    ``files`` is the kind of its files.
    """

    single = (str, bytes, Path, np.ndarray)
    item_types = (StoredFile, HeldNumbers, *single)
    example = '"photo.png"'
    by_item = True
    reads_files = True
    files: ClassVar[FileKind] = IMAGES
    same_files: int = 0  # files of the training data whose content is that of a file before

    @property
    def one(self) -> str:
        """One of the items, with its article."""
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun.removesuffix('s')}"

    @abstractmethod
    def read_files(self, files: Sequence[Path | np.ndarray], setting: Setting) -> Mapping[int, str]:
        """Read and store all files; gives those that cannot be used, by their number, with the reason."""

    def stage(self, tables: Sequence[Iterable[TableRow]], setting: Setting) -> Sequence[Iterable[TableRow]]:
        """Hash every file, and read them all once. Rows of files that cannot be read come last, with their problem,
        at the place where the file was named first."""
        held = [list(table) for table in tables]
        known = KnownFiles()
        for number, table in enumerate(held):
            same = known.add(table)
            self.same_files += 0 if number else same
        bad = self.read_files(list(known.files.values()), setting) if known.files else None
        return [known.staged(table, bad, self.noun) for table in held]

    def stage_scored(self, rows: Iterable[TableRow]) -> Iterable[TableRow]:
        known, held = KnownFiles(), list(rows)
        known.add(held)
        return known.staged(held, None, self.noun)

    def read(self, cells: Mapping[str, object]) -> FileItem:
        file, what = cells.get(self.column), self.noun.removesuffix("s")
        if isinstance(file, StoredFile | HeldNumbers | np.ndarray):
            return file
        problem = None if isinstance(file, Path) else text_problem(file, f"the {what}")
        if problem is not None or not str(file).strip():
            raise BadValueError(problem or f"empty: found no text in the {what}, expected the path of {self.one}")
        return StoredFile(str(file).strip(), image_key(Path(str(file).strip())))

    def identity(self, x: FileItem) -> str:
        return format(self.key(x), self.config.key_format)

    def key(self, x: FileItem) -> int:
        if isinstance(x, StoredFile):
            return x.key
        if isinstance(x, str | Path):
            return image_key(Path(x))
        return _content_key(x.values if isinstance(x, HeldNumbers) else x)

    def pack(self, x: FileItem) -> list[object]:
        """The name only: a run folder does not tell where a file was."""
        assert isinstance(x, StoredFile)
        return [Path(x.file).name, x.key, x.row]

    def unpack(self, row: Sequence[object]) -> tuple[FileItem, Sequence[object]]:
        values: Any = row
        return StoredFile(*values[:3]), values[3:]

    # -- for people

    def label(self, x: FileItem) -> str:
        if isinstance(x, StoredFile | HeldNumbers):
            return x.file
        return str(x) if isinstance(x, str | Path) else self.one

    def named(self, x: FileItem, number: int) -> str:
        return self.label(x) if not isinstance(x, bytes | np.ndarray) else super().named(x, number)

    def item(self, given: object) -> FileItem:
        return cast("FileItem", given)

    def paths(self, files: Sequence[Path], listed: str | None) -> Sequence[FileItem]:
        """The items that a command line names: files, folders of them, and those of a list or a table."""
        paths = image_paths(files, listed, kind=self.files)
        if not paths:
            what = self.noun.removesuffix("s")
            raise UserError(
                f"there is no {what} to {self.config.verb}: name {self.noun} or folders with --{self.column}, or a "
                "list with --input"
            )
        return paths


def file_of(x: FileItem) -> Path | bytes | np.ndarray:
    """A path, bytes or an array."""
    if isinstance(x, HeldNumbers):
        return x.values
    return Path(x.file) if isinstance(x, StoredFile) else Path(x) if isinstance(x, str) else x


def _content_key(x: bytes | np.ndarray) -> int:
    data = x if isinstance(x, bytes) else x.tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big") or 1


def _held(row: TableRow) -> Path | np.ndarray | None:
    """The file of a row, where it names one, or the numbers that stand in it."""
    file = row.values[0] if row.problem is None and row.values else None
    if isinstance(file, np.ndarray):
        return file
    return Path(file) if isinstance(file, Path) or (isinstance(file, str) and file.strip()) else None


class KnownFiles:
    """Files that rows name, by their content: the number of each file, and the first file of each number. A row may
    also hold the numbers that a file would hold."""

    def __init__(self) -> None:
        self.keys: dict[Path, int] = {}
        self.files: dict[int, Path | np.ndarray] = {}

    def key(self, held: Path | np.ndarray) -> int:
        """The number of what a row has."""
        if isinstance(held, np.ndarray):
            return _content_key(held)
        if held not in self.keys:
            self.keys[held] = image_key(held)
        return self.keys[held]

    def add(self, table: Iterable[TableRow]) -> int:
        """Look at the files of some rows; how many of them have the content of a file before."""
        same = 0
        for row in table:
            held = _held(row)
            if held is not None and not (isinstance(held, Path) and held in self.keys):
                key = self.key(held)
                same += key in self.files
                self.files.setdefault(key, held)
        return same

    def staged(self, table: Iterable[TableRow], bad: Mapping[int, str] | None, noun: str) -> list[TableRow]:
        """The rows with their files as a `StoredFile`; those of bad files come last. ``bad`` is None where nothing was
        stored: numbers stay in their rows then."""
        numbers = {} if bad is None else {key: row for row, key in enumerate(self.files)}
        staged, left_out = list[TableRow](), dict[int, list[TableRow]]()
        for row in table:
            held = _held(row)
            key = 0 if held is None else self.key(held)
            place = numbers.get(key, -1)
            if held is None:
                staged.append(row)
                continue
            if bad is None and isinstance(held, np.ndarray):
                staged.append(row._replace(values=(HeldNumbers(f"{row.file}:{row.line}", held), *row.values[1:])))
                continue
            first = self.files[key]
            name = f"{row.file}:{row.line}" if isinstance(first, np.ndarray) else str(first)
            if bad is not None and place in bad:
                others = left_out.setdefault(key, [])
                shown = "" if isinstance(held, np.ndarray) else f"{held}: "  # a row is named with its problem
                problem = f"bad {noun.removesuffix('s')}: {shown}{bad[place]}"
                others.append(others[0] if others else row._replace(values=(), problem=problem))
            else:
                staged.append(row._replace(values=(StoredFile(name, key, place), *row.values[1:])))
        return staged + [row for some in left_out.values() for row in some]
