"""What every input is: how items are read, identified, encoded and collated. See `sightline.tasks.task` first."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, NotRequired, Protocol, TypedDict, cast, runtime_checkable

from sightline.data.disk import hash_of
from sightline.data.tables import kind_of
from sightline.errors import UserError
from sightline.outputs.reports import object_of
from sightline.tasks.evaluate import path_name
from sightline.tasks.prepare import Rows, Setting, read_keys
from sightline.tasks.task import BadValueError, Batch, Column, Part, X

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from sightline.data.checking import RowLimits
    from sightline.data.columns import TableRow
    from sightline.data.decoding import Decoding
    from sightline.data.store import Corpus, Numbers
    from sightline.explain.explanation import Belief
    from sightline.picture import Picture
    from sightline.recording import Recording
    from sightline.records import Axis, Record
    from sightline.tasks.configs.base import TaskConfig
    from sightline.tasks.run import SavedRun


class Shown(TypedDict):
    """The fields of an `Explanation` that show its item."""

    input: str
    image: "NotRequired[Picture]"
    recording: "NotRequired[Recording]"


@runtime_checkable
class InputLines(Protocol):
    """The lines of `sightline predict --input`: blocks of them, and how many bytes each block has."""

    @property
    def path(self) -> str | None: ...
    @property
    def is_json(self) -> bool: ...
    def blocks(self) -> Iterator[tuple[list[str], int]]: ...


class Input(ABC, Generic[X, Part, Batch]):
    """What comes in: how it is read, identified, encoded and collated, and what a map's columns are.

    Unfitted, it reads rows; what `fit` and `load` set is None. `fit` (of the output, which may be fitted jointly) gives
    one that encodes. ``kind`` names the plain data that an explanation shows: text, pair, words, image, grid, frames,
    table, vectors. ``noun`` is the name of the items.
    """

    kind: ClassVar[str] = "text"
    noun: ClassVar[str] = "texts"
    single: ClassVar[tuple[type, ...]] = (str, bytes, Path)  # what is one item, where a list would be several
    item_types: ClassVar[tuple[type, ...]] = (object,)  # what a Python program may give as an item
    example: ClassVar[str] = '"a text"'  # of an item, for errors
    at_once: ClassVar[int] = 4096  # items encoded together
    budget: ClassVar[int] = 16_384  # sizes of parts that are in one batch of predictions, padding counted
    keys_file: ClassVar[str] = "texts.npy"  # below the run's data: what it was trained on
    known_by: ClassVar[str] = ""  # the part of an item that its key is of, where that is not the whole item

    def __init__(self, config: "TaskConfig") -> None:
        self.config = config

    # -- reading

    def stage(self, tables: "Sequence[Iterable[TableRow]]", setting: "Setting") -> "Sequence[Iterable[TableRow]]":
        """The rows of the training data and of given validation data, before they are read one by one.

        An input that reads files (images, sound) does it here, once for all of them.
        """
        return tables

    def stage_scored(self, rows: "Iterable[TableRow]") -> "Iterable[TableRow]":
        """The same for data to score, of which nothing is stored."""
        return rows

    @abstractmethod
    def read(self, cells: Mapping[str, object]) -> X:
        """The item in a row, or a `BadValueError`."""

    def check(self, x: X, limits: "RowLimits") -> None:
        """Raise a `BadValueError` where an item is too large to learn from."""

    by_item: ClassVar[bool] = False  # overlap of training and validation data is counted by item, whatever the target

    def identity(self, x: X) -> str:
        """The same for equal items, which stay on one side of a split."""
        return str(x)

    def key(self, x: X) -> int:
        """The hash of an item's identity: a run stores those of its training items."""
        return hash_of(self.identity(x))

    def known_keys(self, data: Path) -> "np.ndarray | None":
        """The keys of all training and validation items of a run; None without its data."""
        return read_keys(data / self.keys_file) if self.keys_file else None

    def pack(self, x: X) -> list[object]:
        """The item as the first fields of a stored row."""
        return [x]

    def unpack(self, row: Sequence[object]) -> tuple[X, Sequence[object]]:
        """The item that `pack` packed, and the rest of the row."""
        return cast("X", row[0]), row[1:]

    # -- fitted

    def fit(self, rows: "Rows[X, object]", setting: "Setting") -> "Input[X, Part, Batch]":
        """Fitted to the training rows by itself, for outputs that do not fit it together with themselves."""
        return self

    @abstractmethod
    def encode(self, xs: Sequence[X]) -> Sequence[Sequence[Part | BadValueError]]:
        """Each item as the parts that a model reads at once: one, several where it is too long, none where it is empty.

        A part is what `collate` takes and `size` measures; an item that cannot be used has a `BadValueError` as its
        only part.
        """

    def train_parts(self, xs: Sequence[X]) -> Sequence[Sequence[Part | BadValueError]]:
        """The same for training, where that differs (no overlap between windows, longer texts cut)."""
        return self.encode(xs)

    def stored(self, part: Part) -> "Numbers":
        """A part as the numbers that the training corpus keeps."""
        return cast("Numbers", part)

    def size(self, part: Part) -> int:
        """How large a part is, for batches."""
        return len(cast("Numbers", part))

    def lengths(self, corpus: "Corpus") -> "np.ndarray":
        """How large each part of the training corpus is, where its numbers do not tell."""
        return corpus.lengths()[0]

    def augmented(self, parts: Sequence[Part], draw: "Callable[[], np.random.Generator]") -> Sequence[Part]:
        """Parts of a training batch as they are trained on this time; ``draw`` makes the generator of the batch."""
        return parts

    @abstractmethod
    def collate(self, parts: Sequence[Part]) -> Batch:
        """Parts, or what `stored` made of them, as a batch of tensors."""

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        """Write what `load` needs; gives fields for config.json and the names of files to seal."""
        return {}, []

    @classmethod
    def load(cls, saved: "SavedRun", config: "TaskConfig") -> "Input[X, Part, Batch]":
        """A fitted input from a run folder of unknown origin."""
        return cls(config)

    def reopen(self, setting: "Setting") -> None:
        """Open what training needs besides when a run is resumed (stored features)."""

    def notes(self) -> list[str]:
        """Remarks on the data after it was stored, such as how many items were cut."""
        return []

    def count_cut(self, xs: Sequence[X]) -> int:
        """How many items are longer than what is read of them; `predict` and `evaluate` warn of these."""
        return 0

    def cut_line(self, count: int, total: int) -> str:
        """The warning that so many of all items were cut."""
        return f"of {count:,} of {total:,} {self.noun} only the beginning is read: they are longer than this run reads"

    source_name: ClassVar[str] = "source"  # the name of an item in the titles of maps
    decodes: ClassVar[str] = "one vector for all of it"  # what a decoder without attention is given
    most_measured: ClassVar[int | None] = None  # longest item for `believe`; None: no part of it can be hidden

    def believe(
        self, model: "nn.Module", part: Part, written: Sequence[int], records: "Sequence[Record]", shift: int
    ) -> "Belief":
        """Whether to believe a map of what was written: what it costs to hide parts of the item."""
        raise TypeError(f"nothing of {self.noun} can be hidden")

    def shown(self, x: X) -> Shown:
        """The fields of an explanation that show the item."""
        return {"input": self.label(x)}

    # -- for people

    def axis(self, x: X, part: Part) -> "Axis | None":
        """The columns of a map: the places of a part that a model attends to; None: numbers alone."""
        return None

    def summary(self) -> str:
        """How large what was fitted is, such as the vocabulary."""
        return ""

    def label(self, x: X) -> str:
        """An item in one line."""
        return str(x)

    def fields(self, x: X) -> dict[str, object]:
        """An item as the first fields of a row of JSON."""
        return {self.noun.removesuffix("s"): self.label(x)}

    def texts(self, x: X) -> tuple[str, ...]:
        """The texts of an item, if it has any: what reports measure and baselines read."""
        return ()

    def too_long(self, xs: Sequence[X]) -> int | None:
        """How many of these items are read only in part; None where a model reads all of any item."""
        return None

    def named(self, x: X, number: int) -> str:
        """The name of an item in errors."""
        return f"{self.noun.removesuffix('s')} {number + 1:,}"

    def about_table(self, table: str, name: str) -> "Input[X, Part, Batch]":
        """The same input with the table in a file that all items are about (--table); ``name`` is the run's."""
        raise UserError(f"{name} reads {self.noun}, and --table is for runs that answer questions about tables")

    def pair(self, first: str, second: str, name: str) -> X:
        """An item out of --text and --text2, where items are two texts; ``name`` is the run's."""
        raise UserError(f"{name} reads one text; --text2 is for runs that classify pairs of texts")

    def item(self, given: object) -> X:
        """An item out of what a Python program gives to `Run.predict`: with one column, the value of that column."""
        if len(self.columns) != 1:
            return cast("X", given)
        try:
            return self.read({self.columns[0].name: given})
        except BadValueError as error:
            raise UserError(str(error)) from None

    def items(self, given: Iterable[object]) -> list[X]:
        """The same for several."""
        return [self.item(one) for one in given]

    def check_item(self, given: object) -> None:
        """Refuse what can be no item."""
        if given is None or not isinstance(given, self.item_types):
            raise UserError(f"expected one {self.noun.removesuffix('s')}, such as {self.example}, {_found(given)}")

    def check_items(self, given: object) -> None:
        """Refuse what can be no list of items: a single value, or a dictionary or table, which would give its names."""
        named = isinstance(given, Mapping) or hasattr(given, "columns")
        if named or not (hasattr(given, "__iter__") or hasattr(given, "__getitem__")):
            raise UserError(f"expected a list of {self.noun}, such as [{self.example}], {_found(given)}")

    def parse(self, line: str, number: int, is_json: bool) -> X:
        """An item out of a line of `sightline predict --input`: its first column, or an object of JSON."""
        cells: dict[str, object] = {self.columns[0].name: line} if self.columns else {}
        if is_json:
            cells = object_of(line, number)
        try:
            return self.read(cells)
        except BadValueError as error:
            raise UserError(f"line {number:,}: {error}") from None

    columns: ClassVar[tuple[Column, ...]] = ()  # those that `read` reads, for lines of JSON
    reads_files: ClassVar[bool] = False  # items are files
    reads_table: ClassVar[bool] = False  # an item is a question and a table
    reads_folders: ClassVar[bool] = False  # one item may be a folder, such as the images of a clip
    column: ClassVar[str] = "image"  # of files: that of their paths, and the option that names them
    joins_lines: ClassVar[bool] = False  # an item may be several lines

    def paths(self, files: Sequence[Path], listed: str | None) -> Sequence[X | Path]:
        """The files that options name: files, folders of them, and those that ``listed`` lists, or items that stand in
        it."""
        raise UserError(f"{self.noun} are no files")

    def joined(self, lines: InputLines) -> Iterator[tuple[list[X], int]]:
        """Blocks of items out of lines, where an item may be several of them (`joins_lines`)."""
        raise UserError(f"{self.noun} of several lines cannot be read")

    encoder_parameters: int = 0  # of a part before the model, such as a frozen encoder
    text_names: ClassVar[tuple[str, str]] = ("text", "second text")  # names of both, where items are two texts

    @property
    def two_texts(self) -> bool:
        """Whether an item is two texts: a pair, or a question and a text."""
        return False

    bench_unit: ClassVar[str] = ""  # what `bench` counts items in, where that is not their number

    def amount(self, xs: Sequence[X]) -> float:
        """How much these items are in that unit."""
        return len(xs)

    def work(self, xs: Sequence[X]) -> list[int]:
        """How much work each item is, in tokens."""
        return [sum(map(self.size, cast("Sequence[Part]", parts))) for parts in self.encode(xs)]

    def receive(self, content: bytes, decoding: "Decoding", shown: bool) -> tuple[X, int, "Picture | None"]:
        """A file that was sent to the server: the item, its bytes in memory, and a small picture if ``shown``.

        ``decoding`` decodes images and sounds in a process that can be killed.
        """
        raise UserError(f"{self.noun} are no files")

    def requested(self, x: X) -> dict[str, object]:
        """The fields of a request to the server for a question and a table (`reads_table`)."""
        raise UserError(f"{self.noun} are no questions about tables")

    def bad_line(self, x: X, reason: str, as_json: bool) -> str:
        """The line of an item that cannot be used: it keeps its place."""
        if as_json:
            name = self.noun.removesuffix("s") if self.reads_files else "item"
            return json.dumps({name: self.label(x), "problem": reason}, ensure_ascii=False)
        return f"{path_name(self.label(x))}\t" if self.reads_files else ""


def _found(given: object) -> str:
    return "found None" if given is None else f"found {kind_of(given)}: {given!r:.60}"


SomeInput = Input[object, object, object]
