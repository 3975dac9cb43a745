"""A question and the table that it is about."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np

from sightline.data.checking import RowLimits
from sightline.data.columns import TableRow
from sightline.data.questions import QUESTION_NAMES, TABLE_NAMES, shared_table
from sightline.data.table_files import BadTableError, TableFiles
from sightline.data.table_store import TableStore
from sightline.errors import UserError
from sightline.inputs.base import Input
from sightline.inputs.table_arrays import MOST_WORDS, TableFacts, table_arrays, words_of
from sightline.inputs.text import check_length, text_of
from sightline.models.asking import TableArrays, TableBatch, collate_tables, unflattened
from sightline.outputs.reports import object_of
from sightline.table import DataTable
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.loading import SavedRun
from sightline.tasks.prepare import Rows, Setting
from sightline.tasks.task import BadValueError, Column
from sightline.training.folder import RunFolder

if TYPE_CHECKING:
    from sightline.data.store import Numbers

VOCABULARY = "words.json"
FIRST_WORD = 2  # 0 is padding, 1 an unknown word
MOST_VOCABULARY = 1_000_000
LEAST = 1  # is added to stored numbers, of which −1 is the least: a corpus holds none below 0


class Asked(NamedTuple):
    """A question, and the table that it is about."""

    question: str
    table: DataTable


class TableInput(Input[Asked, TableArrays, TableBatch]):
    """Questions about tables. ``words`` is the vocabulary of questions and of names of columns, fitted.

    ``shared`` is the table of all questions that name none (`about_table`). Of a table, the first ``config.max_rows``
    rows are trained on; predictions read all of them.
    """

    kind = "table"
    noun = "questions"
    known_by = "tables"
    example = '("which nation won most?", "medals.csv")'
    item_types: ClassVar[tuple[type, ...]] = (str, tuple, list, Mapping)
    reads_table: ClassVar[bool] = True
    at_once = 256
    budget = 200_000
    source_name = "question"
    columns = (Column("question", "the question", QUESTION_NAMES[1:]), Column("table", "its table", TABLE_NAMES[1:]))

    def __init__(self, config: TaskConfig, words: Sequence[str] | None = None, store: TableStore | None = None) -> None:
        super().__init__(config)
        self.words = cast("tuple[str, ...]", None if words is None else tuple(words))
        self.ids = {word: number for number, word in enumerate(words or (), start=FIRST_WORD)}
        self.store = store
        self.shared: DataTable | None = None
        self.files, self.facts = TableFiles(), TableFacts()
        self.cut: set[str] = set()  # tables of which training leaves out rows

    # -- reading

    def stage(self, tables: Sequence[Iterable[TableRow]], setting: Setting) -> Sequence[Iterable[TableRow]]:
        self.store = TableStore.create(setting.data)
        return tables

    def read(self, cells: Mapping[str, object]) -> Asked:
        question, value = text_of(cells, "question"), cells.get("table")
        if not words_of(question):
            raise BadValueError("no question: found an empty one, expected text")
        if value is None or value == "":
            if self.shared is None:
                raise BadValueError("no table: found a question without one, expected the path of a table, or its rows")
            return Asked(question, self.shared)
        try:
            return Asked(question, self.files.table(value))
        except BadTableError as error:
            raise BadValueError(str(error)) from None

    def check(self, x: Asked, limits: RowLimits) -> None:
        check_length(len(x.question), "a question", limits)

    def identity(self, x: Asked) -> str:
        """That of the table: all questions about a table stay together."""
        return x.table.digest

    def pack(self, x: Asked) -> list[object]:
        """The question, and the digest of a table that is stored once, or the table itself where nothing is stored."""
        if self.store is not None and (self.store.writable or x.table.digest in self.store):
            return [x.question, self.store.add(x.table)]
        return [x.question, x.table.to_json()]

    def unpack(self, row: Sequence[object]) -> tuple[Asked, Sequence[object]]:
        question, table = cast("tuple[str, Any]", row[:2])
        if isinstance(table, str):
            if self.store is None:
                raise ValueError("the tables are not there")
            return Asked(question, self.store.get(table)), row[2:]
        return Asked(question, DataTable.from_value(table)), row[2:]

    def reopen(self, setting: Setting) -> None:
        self.store = TableStore.open(setting.data)

    # -- fitted

    def fit(self, rows: "Rows[Asked, object]", setting: Setting) -> "TableInput":
        """With the vocabulary of an earlier run, or with the words of the training data that are frequent enough."""
        if self.store is not None:
            self.store.close()  # every table is there
        if setting.start is not None:
            return TableInput(self.config, setting.start.run.input.words, self.store)
        counts, seen = Counter[str](), set[str]()
        for one in rows:
            counts.update(words_of(one.x.question)[:MOST_WORDS])
            if one.x.table.digest not in seen:
                seen.add(one.x.table.digest)
                counts.update(word for name in one.x.table.plain_header for word in words_of(name))
        least = min(self.config.min_frequency, max(1, rows.count // 500))  # few questions have few frequent words
        kept = sorted((word for word, count in counts.items() if count >= least), key=lambda one: (-counts[one], one))
        return TableInput(self.config, kept[:MOST_VOCABULARY], self.store)

    @property
    def vocabulary_size(self) -> int:
        """Words with padding and the unknown word."""
        return FIRST_WORD + len(self.words)

    def arrays(self, question: str, table: DataTable) -> TableArrays:
        """A question and a table as numbers."""
        return table_arrays(question, table, self.facts.of(table), self.ids)

    def encode(self, xs: Sequence[Asked]) -> list[list[TableArrays | BadValueError]]:
        return [[self.arrays(*x)] if words_of(x.question) else [] for x in xs]

    def train_parts(self, xs: Sequence[Asked]) -> list[list[TableArrays | BadValueError]]:
        most = self.config.max_rows
        self.cut |= {x.table.digest for x in xs if len(x.table.rows) > most}
        return self.encode([x._replace(table=x.table.head(most)) for x in xs])

    def stored(self, part: TableArrays) -> "Numbers":
        return part.flat() + LEAST

    def size(self, part: "TableArrays | Numbers") -> int:
        """As many numbers as `stored` gives."""
        if not isinstance(part, TableArrays):
            return len(part)
        return 4 + sum(one.size for one in part)

    def collate(self, parts: "Sequence[TableArrays | np.ndarray]") -> TableBatch:
        kept = (one if isinstance(one, TableArrays) else unflattened(one.astype(np.int64) - LEAST) for one in parts)
        return collate_tables(list(kept))

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        RunFolder(folder).write_json(VOCABULARY, list(self.words))
        return {"words": len(self.words)}, [VOCABULARY]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "TableInput":
        words = RunFolder(saved.path).read_json(VOCABULARY)
        named = isinstance(words, list) and all(isinstance(one, str) for one in words)
        if not named or len(words) > MOST_VOCABULARY or len({*words}) != len(words):
            raise UserError(f"{saved.path / VOCABULARY} is damaged: it is no list of different words")
        return cls(config, words)

    def notes(self) -> list[str]:
        if not self.cut:
            return []
        what = "table has" if len(self.cut) == 1 else "tables have"
        return [
            f"{len(self.cut):,} {what} more than {self.config.max_rows:,} rows (max_rows): training leaves out the "
            "others, predictions read all of them"
        ]

    # -- for people

    def summary(self) -> str:
        return f"{len(self.words):,} different words"

    def label(self, x: Asked) -> str:
        return " ".join(x.question.split())

    def fields(self, x: Asked) -> dict[str, object]:
        return {"question": x.question, "table": x.table.name}

    def requested(self, x: Asked) -> dict[str, object]:
        table = x.table.to_json()
        return {"question": x.question, "table": {name: table[name] for name in ("header", "rows")}}

    def texts(self, x: Asked) -> tuple[str, ...]:
        return (x.question,)

    def about_table(self, table: str, name: str) -> "TableInput":
        """The same input with a table for all questions that name none."""
        own = TableInput(self.config, self.words, self.store)
        own.shared = replace(shared_table(table), name=Path(table).name)
        return own

    def item(self, given: object) -> Asked:
        if isinstance(given, Asked):
            return given
        cells: Mapping[str, object] = {}
        if isinstance(given, Mapping):
            cells = _canonical(given)
        elif isinstance(given, str):
            cells = {"question": given}
        elif isinstance(given, Sequence) and len(given) == 2:
            cells = {"question": given[0], "table": given[1]}
        if not isinstance(cells.get("question"), str):
            raise UserError(f"expected a question and a table, such as {self.example}, found {given!r:.60}")
        try:
            return self.read(cells)
        except BadValueError as error:
            raise UserError(str(error)) from None

    def parse(self, line: str, number: int, is_json: bool) -> Asked:
        """A question, with the path of its table behind a tab unless `about_table` named one; or an object of JSON."""
        cells: dict[str, object] = {"question": line}
        if is_json:
            cells = _canonical(object_of(line, number))
        elif self.shared is None:
            question, tab, path = line.rpartition("\t")
            if not tab:
                raise UserError(f"line {number:,}: found a question without a table; name one with --table FILE")
            cells = {"question": question, "table": path}
        try:
            return self.read(cells)
        except BadValueError as error:
            raise UserError(f"line {number:,}: {error}") from None


def _canonical(fields: Mapping[str, object]) -> dict[str, object]:
    """Fields by the names that the columns have here."""
    there = {str(name).strip().casefold(): value for name, value in fields.items()}
    own = {}
    for names in (QUESTION_NAMES, TABLE_NAMES):
        own[names[0]] = next((there[name] for name in names if name in there), None)
    return own
