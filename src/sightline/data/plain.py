"""Plain text to learn from without labels: a text a line, paragraphs, or the text column of a table."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sightline.data.checking import Report
from sightline.data.columns import TableRow, no_cells, text_problem
from sightline.data.shards import ending_of, over_shards, shards_of
from sightline.data.source import Source, table_cells
from sightline.data.tables import FORMATS, decode, lines_of, name_of

PLAIN_ENDINGS = (".txt", ".text")


def plain_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every text of a source: of a .txt file (packed with gzip or not) or of standard input a line, of a table a cell.

    The option ``paragraphs`` puts lines together up to an empty one. Lines and cells of blanks alone are no texts.
    """
    source.check_columns([one.name for one in columns])
    data, paragraphs = str(source.data), source.options.get("paragraphs") is True
    shards = shards_of(data, (*PLAIN_ENDINGS, *FORMATS))
    if data == "-" or ending_of(shards[0]) in PLAIN_ENDINGS:
        rows = over_shards(shards, lambda shard: _texts(shard, paragraphs), no_cells)
    else:
        rows = without_blanks(table_cells(source, columns))
    return source.some(rows, "has no text: found an empty file or a header alone")


def without_blanks(rows: Iterable[TableRow]) -> Iterator[TableRow]:
    """Without those that hold blanks alone: they are no texts."""
    return (one for one in rows if one.problem or not (isinstance(one.values[0], str) and not one.values[0].strip()))


def _texts(shard: str, paragraphs: bool) -> Iterator[TableRow]:
    name, waiting, began = name_of(shard), list[str](), 0
    for line in lines_of(shard):
        text, problem = decode(line)
        problem = problem or text_problem(text, "the line")
        if problem is not None:
            yield TableRow((), name, line.number, problem)
        elif not paragraphs:
            if text.strip():
                yield TableRow((text.strip(),), name, line.number)
        elif text.strip():
            began = began if waiting else line.number
            waiting.append(text.strip())
        elif waiting:
            yield TableRow((" ".join(waiting),), name, began)
            waiting = []
    if waiting:
        yield TableRow((" ".join(waiting),), name, began)


@dataclass
class PlainReport(Report):
    """The report on such data; ``pairs`` are the texts kept."""

    kept: ClassVar[str] = "texts"
    again: ClassVar[str] = "texts were there before (kept)"
    measured: ClassVar[Mapping[str, str]] = {"characters": "characters"}

    def add(self, x: str, y: Any) -> None:
        self.measure(len(x))

    def heading(self) -> str:
        return f"{self.pairs:,} texts, {self.lengths['characters'].sum:,} characters"
