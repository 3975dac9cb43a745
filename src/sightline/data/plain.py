"""Plain text to learn from without labels: a text a line, paragraphs, or the text column of a table."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sightline.data.checking import Report
from sightline.data.columns import Cells, Columns, choose_columns, read_columns, text_problem
from sightline.data.labelled import TEXT_NAMES
from sightline.data.shards import ending_of, over_shards, shards_of
from sightline.data.source import Source
from sightline.data.tables import FORMATS, decode, lines_of, name_of
from sightline.errors import UserError

PLAIN_ENDINGS = (".txt", ".text")


@dataclass(frozen=True)
class PlainFile:
    """Where the text stands: a .txt file (packed with gzip or not), ``"-"`` for standard input, or a table.

    In a .txt file a line is a text; with ``paragraphs``, lines belong together up to an empty one. ``columns`` is the
    name of the text's column in a table, where it is not one of the usual names.
    """

    data: str
    columns: tuple[str, ...] | None = None
    paragraphs: bool = False

    def __post_init__(self) -> None:
        if self.columns is not None and (len(self.columns) != 1 or not self.columns[0]):
            found = ", ".join(map(repr, self.columns)) or "none"
            raise UserError(f"columns: found {found}; expected the name of one column, of the text")

    @property
    def shards(self) -> list[str]:
        return shards_of(self.data, (*PLAIN_ENDINGS, *FORMATS))

    @property
    def is_plain(self) -> bool:
        return self.data == "-" or ending_of(self.shards[0]) in PLAIN_ENDINGS


class PlainRow(NamedTuple):
    """A text and where it begins, or the ``problem`` that it has."""

    text: str
    file: str
    line: int
    problem: str | None = None


def read_plain(files: PlainFile) -> Iterator[PlainRow]:
    """Every text, in order. Empty lines are no texts."""
    row = None
    for row in _plain(files) if files.is_plain else _column(files):
        yield row
    if row is None:
        raise UserError(f"{name_of(files.data)} has no text: found an empty file or a header alone")


def plain_cells(source: Source, columns: Sequence[Any]) -> Iterator[Cells]:
    """Every text of a source; its option ``paragraphs`` puts lines of a .txt file together up to an empty one."""
    files, row = PlainFile(str(source.data), source.columns, source.options.get("paragraphs") is True), None
    if files.is_plain:
        rows: Iterator[Cells] = (Cells((one.text,), *one[1:]) for one in _plain(files))
    else:
        rows = read_columns(files.data, lambda name, found: choose_columns(name, found, (TEXT_NAMES,), files.columns))
    for row in without_blanks(rows):
        yield row
    if row is None:
        raise UserError(f"{name_of(files.data)} has no text: found an empty file or a header alone")


def without_blanks(rows: Iterable[Cells]) -> Iterator[Cells]:
    """Without those that hold blanks alone: they are no texts."""
    return (one for one in rows if one.problem or not (isinstance(one.values[0], str) and not one.values[0].strip()))


def _plain(files: PlainFile) -> Iterator[PlainRow]:
    return over_shards(
        files.shards,
        lambda shard: _texts(shard, files.paragraphs),
        lambda file, line, problem: PlainRow("", file, line, problem),
    )


def _texts(shard: str, paragraphs: bool) -> Iterator[PlainRow]:
    name, waiting, began = name_of(shard), list[str](), 0
    for line in lines_of(shard):
        text, problem = decode(line)
        problem = problem or text_problem(text, "the line")
        if problem is not None:
            yield PlainRow("", name, line.number, problem)
        elif not paragraphs:
            if text.strip():
                yield PlainRow(text.strip(), name, line.number)
        elif text.strip():
            began = began if waiting else line.number
            waiting.append(text.strip())
        elif waiting:
            yield PlainRow(" ".join(waiting), name, began)
            waiting = []
    if waiting:
        yield PlainRow(" ".join(waiting), name, began)


def _column(files: PlainFile) -> Iterator[PlainRow]:
    def find(name: str, found: Any) -> Columns:
        return choose_columns(name, found, (TEXT_NAMES,), files.columns)

    for values, file, line, problem in read_columns(files.data, find):
        problem = problem or text_problem(values[0], "the text")
        if problem is not None or values[0].strip():
            yield PlainRow("" if problem else values[0].strip(), file, line, problem)


@dataclass
class PlainReport(Report):
    """What was found; ``pairs`` are the texts kept."""

    def add(self, x: str, y: Any) -> None:
        self.source_characters.add(len(x))

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        kept = ("rows", "left_out", "places", "duplicates")
        return {"texts": self.pairs, **{name: found[name] for name in kept}, "characters": found["source_characters"]}

    def lines(self) -> list[str]:
        lengths = ", ".join(f"{name} {value:,}" for name, value in self.source_characters.to_json().items())
        lines = [f"{self.pairs:,} texts, {self.source_characters.total:,} characters", f"characters: {lengths}"]
        if self.duplicates:
            lines.append(f"{self.duplicates:,} texts were there before (kept)")
        return lines + self.left_out_lines()
