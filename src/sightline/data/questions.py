"""Questions about tables: rows with a question, the table that it is about, and the answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.data.checking import Report
from sightline.data.columns import TableRow, text_problem
from sightline.data.source import Source, table_cells
from sightline.data.table_files import BadTableError, TableCell, TableFiles
from sightline.data.tables import kind_of
from sightline.synthetic.made import is_made
from sightline.table import cell_text

if TYPE_CHECKING:
    from sightline.tasks.task import Column

QUESTION_NAMES = ("question", "utterance", "query")
TABLE_NAMES = ("table", "table_file", "context")
ANSWER_NAMES = ("answer", "answers", "targetvalue", "denotation")
MOST_ANSWERS = 1_000  # items of an answer
LONGEST_ANSWER = 10_000  # characters of an item
_ESCAPES = {"n": "\n", "p": "|", "\\": "\\", "t": "\t"}


def question_cells(source: Source, columns: "Sequence[Column]") -> Iterator[TableRow]:
    """Every row as a question, a table, an answer and what else there is. Tables are read, each file once.

    The option ``table`` is the file of one table for all questions.
    """
    if is_made(source.data):
        from sightline.data.made_tables import made_question_rows

        yield from made_question_rows(source)
        return
    given, files = source.options.get("table"), TableFiles(_base_of(source))
    shared = None if given is None else TableCell(shared_table(str(given)))
    place = next(number for number, column in enumerate(columns) if column.name == "table")
    named = [replace(one, optional=True) if one.name == "table" and shared is not None else one for one in columns]
    for row in table_cells(source, named):
        if row.problem is not None:
            yield row
            continue
        values = list(row.values)
        if shared is not None and values[place] in (None, ""):
            values[place] = shared
        try:
            values[place] = TableCell(files.table(values[place]))
        except BadTableError as error:
            yield row._replace(values=(), problem=str(error))
        else:
            yield row._replace(values=tuple(values))


def shared_table(path: str) -> Any:
    """The table of ``--table``."""
    from sightline.data.table_files import read_table
    from sightline.errors import UserError

    try:
        return read_table(path)
    except BadTableError as error:
        raise UserError(f"--table: {str(error).removeprefix('bad table: ')}") from None


def _base_of(source: Source) -> Path:
    data = str(source.data)
    if data == "-" or "://" in data:
        return Path()
    return Path(data) if Path(data).is_dir() else Path(data).parent


def answers_of(value: object) -> tuple[str, ...]:
    """The items of an answer: a list, or a text with ``|`` between them, in which ``\\p`` is a bar, ``\\n`` a new line
    and ``\\\\`` a backslash. Raises a `ValueError`."""
    if isinstance(value, str):
        items = [_unescaped(one).strip() for one in value.split("|")]
    elif isinstance(value, list | tuple):
        items = [cell_text(one).strip() if isinstance(one, str | int | float) else "" for one in value]
        wrong = next((one for one in value if not isinstance(one, str | int | float)), None)
        if wrong is not None:
            raise ValueError(f"answer is not text: found {kind_of(wrong)} in the list, expected texts or numbers")
    elif isinstance(value, int | float):
        items = [cell_text(value)]
    elif value is None:
        items = []
    else:
        raise ValueError(f"answer is not text: found {kind_of(value)}, expected a text or a list of texts")
    items = [one for one in items if one]
    if not items:
        raise ValueError("no answer: found an empty one, expected a text or a list of texts")
    if len(items) > MOST_ANSWERS or any(len(one) > LONGEST_ANSWER for one in items):
        raise ValueError(
            f"answer too long: found {len(items):,} items of up to {max(map(len, items)):,} characters, expected at "
            f"most {MOST_ANSWERS:,} of {LONGEST_ANSWER:,}"
        )
    for one in items:
        if (problem := text_problem(one, "the answer")) is not None:
            raise ValueError(problem)
    return tuple(dict.fromkeys(items))


def answer_line(items: Sequence[str]) -> str:
    """What `answers_of` reads, on one line."""
    escaped = (one.replace("\\", "\\\\").replace("|", "\\p").replace("\n", "\\n").replace("\t", " ") for one in items)
    return "|".join(one.replace("\r", " ") for one in escaped)


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    parts, place = [], 0
    while place < len(text):
        own = _ESCAPES.get(text[place + 1 : place + 2]) if text[place] == "\\" else None
        parts.append(text[place] if own is None else own)
        place += 1 if own is None else 2
    return "".join(parts)


@dataclass
class QuestionReport(Report):
    """The report on such data; ``pairs`` are the questions kept."""

    kept: ClassVar[str] = "questions"
    again: ClassVar[str] = "questions were there before with the same table and answer (kept)"
    measured: ClassVar[Mapping[str, str]] = {
        "characters": "question characters",
        "table_rows": "rows of a table",
        "table_columns": "columns of a table",
    }
    tables: set[str] = field(default_factory=set)  # by their digests

    def add(self, x: Any, y: Any) -> None:
        self.measure(len(x.question), len(x.table.rows), len(x.table.header))
        self.tables.add(x.table.digest)

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "tables": len(self.tables)}

    def heading(self) -> str:
        return f"{self.pairs:,} questions about {len(self.tables):,} tables, of {self.rows:,} rows"
