"""Sentences with a label for each word: CoNLL-style files, or tables with the columns words and tags.

In a CoNLL-style file a line has a word and its label with a tab between them (or blanks, where the file has no tabs;
of more columns, the first is the word and the last the label), and an empty line ends a sentence. A sentence with a
problem is left out whole: half of it would teach that the rest had no labels. Documents begin at a line -DOCSTART-, at
a remark "# newdoc", or behind several empty lines; a table may have a column of documents.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sightline.data.checking import Report
from sightline.data.columns import TableRow, no_cells, text_problem
from sightline.data.labelled import LONGEST_LABEL, MOST_LABELS, shares
from sightline.data.shards import ending_of, over_shards, shards_of
from sightline.data.source import Source, table_cells
from sightline.data.tables import FORMATS, decode, lines_of, name_of
from sightline.errors import UserError

WORD_NAMES = ("words", "tokens", "sentence", "text")
CONLL_ENDINGS = (".conll", ".bio", ".iob", ".iob2", ".txt", ".pos")
_REMARK = re.compile(r"#\s*(?:id\b|newdoc\b|newpar\b|\w+ = )")
UNSPACED_ADVICE = "put spaces between words, or between characters if each has a label"
DOCUMENT = "-DOCSTART-"  # stands between documents in files of the shared tasks, and is no sentence


def tagged_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every sentence of a source as its words and its labels, those with a problem too."""
    source.check_columns([one.name for one in columns], [one.name for one in columns if one.optional])
    shards = shards_of(str(source.data), (*CONLL_ENDINGS, *FORMATS))
    if not _is_conll(shards[0], source, columns):
        return table_cells(source, columns)
    rows = over_shards(shards, _conll, no_cells)
    return source.some(rows, "has no sentences: found an empty file; expected words with their labels")


def _is_conll(data: str, source: Source, columns: Sequence[Any]) -> bool:
    """By its ending; a .tsv is a table if its first line names the columns."""
    if data == "-":
        return source.columns is None  # tables are kept in a file first, and sentences come one word a line
    ending = ending_of(data)
    if ending in CONLL_ENDINGS:
        return True
    if source.columns is not None or ending != ".tsv":
        return False
    first = next(lines_of(data), None)
    header = [] if first is None else [cell.strip().casefold() for cell in decode(first)[0].split("\t")]
    return not all({*header} & {*column.all} for column in columns if not column.optional)


def _conll(data: str) -> Iterator[TableRow]:
    name, words, tags = name_of(data), list[str](), list[str]()
    began, problem, document, empty = 0, None, 0, 0
    separator: str | None = None
    decided = False

    def whole() -> Iterator[TableRow]:
        if problem is not None:
            yield TableRow((), name, bad, problem)
        elif words and words != [DOCUMENT]:
            yield TableRow((words, tags, f"{name} {document}"), name, began)

    bad = 0
    for line in lines_of(data):
        text, wrong = decode(line)
        if wrong is None and not text.strip():
            yield from whole()
            empty += 1
            document += words == [DOCUMENT] or empty == 2  # more than one empty line stands between documents
            words, tags, problem = [], [], None
            continue
        empty = 0
        document += wrong is None and text.startswith("# newdoc")
        if not words and problem is None:
            began = line.number
        if wrong is None and not decided and not text.startswith("#"):
            separator, decided = "\t" if "\t" in text else None, True
        if wrong is None and text.startswith("# ") and separator == "\t" and "\t" not in text:
            continue  # a remark
        if wrong is None and not words and problem is None and "\t" not in text and _REMARK.match(text):
            continue  # above a sentence, also before it is known what stands between cells
        cells = text.split(separator)
        wrong = wrong or _cells_problem(cells)
        if wrong is not None:
            problem, bad = (problem, bad) if problem is not None else (wrong, line.number)
            continue
        words.append(cells[0].strip())
        tags.append(cells[-1].strip())
    yield from whole()


def _cells_problem(cells: Sequence[str]) -> str | None:
    if len(cells) < 2:
        return f"missing label: found {len(cells)} column, expected a word and its label with a tab between them"
    if not cells[0].strip() or not cells[-1].strip():
        return "missing label: found an empty word or label, expected both"
    if len(cells[-1]) > LONGEST_LABEL:
        return f"label too long: found {len(cells[-1]):,} characters, expected at most {LONGEST_LABEL}"
    return text_problem(cells[0], "the words") or text_problem(cells[-1], "the labels")


@dataclass
class TagReport(Report):
    """The report on such data; ``pairs`` are the sentences kept, lengths are in words."""

    kept: ClassVar[str] = "sentences"
    again: ClassVar[str] = "sentences were there before with the same labels (kept)"
    measured: ClassVar[Mapping[str, str]] = {"words": "words"}
    labels: Counter[str] = field(default_factory=Counter)
    unspaced: int = 0  # sentences that are one word, because they have no spaces

    def add(self, x: Sequence[str], y: Sequence[str]) -> None:
        self.measure(len(x))
        self.unspaced += self.input is not None and self.input.is_unspaced(x)
        self.labels.update(y)
        if len(self.labels) > MOST_LABELS:
            self.check()

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "labels": dict(self.labels.most_common())}

    def heading(self) -> str:
        return f"{self.pairs:,} sentences of {self.rows:,}, {self.labels.total():,} words"

    def more(self) -> list[str]:
        unspaced = f"{self.unspaced:,} sentences are written without spaces and read as one word: {UNSPACED_ADVICE}"
        return [shares(self.labels, self.labels.total()), *([unspaced] if self.unspaced else [])]

    def check(self, source: Any = None) -> None:
        """Refuse labels from which nothing can be learnt."""
        if len(self.labels) == 1:
            (only,) = self.labels
            raise UserError(f"all {self.labels.total():,} words have the label {only!r}; expected at least two labels")
        if len(self.labels) > 20 and 2 * len(self.labels) > self.labels.total():
            named = ", ".join(map(repr, list(self.labels)[:3]))
            raise UserError(
                f"found {len(self.labels):,} different labels on {self.labels.total():,} words ({named}), as words "
                "have: is it the wrong column? The word comes first and the label last"
            )
