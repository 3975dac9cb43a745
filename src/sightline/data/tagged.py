"""Sentences with a label for each word: CoNLL-style files, or tables with the columns words and tags.

In a CoNLL-style file a line has a word and its label with a tab between them (or blanks, where the file has no tabs;
of more columns, the first is the word and the last the label), and an empty line ends a sentence. A sentence with a
problem is left out whole: half of it would teach that the rest had no labels.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sightline.data.checking import Report
from sightline.data.columns import Cells, Columns, choose_columns, read_columns, text_problem
from sightline.data.labelled import LONGEST_LABEL, Example
from sightline.data.labels_checking import MOST_LABELS, NAMED
from sightline.data.shards import ending_of, over_shards, shards_of
from sightline.data.source import Source
from sightline.data.tables import FORMATS, decode, kind_of, lines_of, name_of
from sightline.errors import UserError

WORD_NAMES = ("words", "tokens", "sentence", "text")
TAG_NAMES = ("tags", "labels", "ner_tags", "pos_tags")
CONLL_ENDINGS = (".conll", ".bio", ".iob", ".iob2", ".txt", ".pos")
_REMARK = re.compile(r"#\s*(?:id\b|newdoc\b|newpar\b|\w+ = )")
DOCUMENT = "-DOCSTART-"  # stands between documents in files of the shared tasks, and is no sentence


class Sentence(NamedTuple):
    """Words, and a label for each; without labels where they are to be found."""

    words: tuple[str, ...]
    tags: tuple[str, ...] = ()

    def as_example(self) -> Example:
        """What texts are told apart and split by."""
        return Example(" ".join(self.words), None, tuple(dict.fromkeys(self.tags)))


class SentenceRow(NamedTuple):
    """A sentence and where it begins, or the ``problem`` that it has."""

    sentence: Sentence
    file: str
    line: int
    problem: str | None = None


@dataclass(frozen=True)
class TaggedFile:
    """Where the sentences stand, ``"-"`` is standard input. ``columns`` are the names of words and tags in a table."""

    data: str
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and (len(self.columns) != 2 or not all(self.columns)):
            found = ", ".join(map(repr, self.columns)) or "none"
            raise UserError(f"columns: found {found}; expected two names, of the words and of the tags")


def tagged_cells(source: Source, columns: Sequence[Any]) -> Iterator[Cells]:
    """Every sentence of a source as its words and its labels, those with a problem too."""
    files, row = TaggedFile(str(source.data), source.columns), None
    shards = shards_of(files.data, (*CONLL_ENDINGS, *FORMATS))
    if _is_conll(shards[0], files.columns):
        rows: Iterator[Cells] = (
            Cells((list(one.sentence.words), list(one.sentence.tags)), one.file, one.line, one.problem)
            for one in _conll_rows(shards)
        )
    else:
        rows = read_columns(
            files.data, lambda name, found: choose_columns(name, found, (WORD_NAMES, TAG_NAMES), files.columns)
        )
    for row in rows:
        yield row
    if row is None:
        raise UserError(
            f"{name_of(files.data)} has no sentences: found an empty file; expected words with their labels"
        )


def _is_conll(data: str, columns: tuple[str, ...] | None) -> bool:
    """By its ending; a .tsv is a table if its first line names the two columns."""
    if data == "-":
        return columns is None  # tables are kept in a file first, and sentences come one word a line
    ending = ending_of(data)
    if ending in CONLL_ENDINGS:
        return True
    if columns is not None or ending != ".tsv":
        return False
    first = next(lines_of(data), None)
    header = [] if first is None else [cell.strip().casefold() for cell in decode(first)[0].split("\t")]
    return not ({*header} & {*WORD_NAMES} and {*header} & {*TAG_NAMES})


def _conll_rows(shards: Sequence[str]) -> Iterator[SentenceRow]:
    return over_shards(shards, _conll, lambda file, line, problem: SentenceRow(Sentence(()), file, line, problem))


def _conll(data: str) -> Iterator[SentenceRow]:
    name, words, tags = name_of(data), list[str](), list[str]()
    began, problem = 0, None
    separator: str | None = None
    decided = False

    def whole() -> Iterator[SentenceRow]:
        if problem is not None:
            yield SentenceRow(Sentence(()), name, bad, problem)
        elif words and words != [DOCUMENT]:
            yield SentenceRow(Sentence(tuple(words), tuple(tags)), name, began)

    bad = 0
    for line in lines_of(data):
        text, wrong = decode(line)
        if wrong is None and not text.strip():
            yield from whole()
            words, tags, problem = [], [], None
            continue
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
    return _pair_problem(cells[0], cells[-1])


def _pair_problem(word: str, tag: str) -> str | None:
    if len(tag) > LONGEST_LABEL:
        return f"label too long: found {len(tag):,} characters, expected at most {LONGEST_LABEL}"
    return text_problem(word, "the words") or text_problem(tag, "the labels")


def _table(files: TaggedFile) -> Iterator[SentenceRow]:
    def find(name: str, found: Sequence[str]) -> Columns:
        return choose_columns(name, found, (WORD_NAMES, TAG_NAMES), files.columns)

    return (_row(cells) for cells in read_columns(files.data, find))


def _row(cells: Cells) -> SentenceRow:
    problem, sides = cells.problem, list[list[str]]()
    if problem is None:
        for what, value in zip(("words", "labels"), cells.values, strict=True):
            found = value.split() if isinstance(value, str) else value
            if not isinstance(found, list) or not all(isinstance(one, str | int) for one in found):
                problem = problem or f"bad {what}: found {kind_of(value)}, expected a list, or text with blanks between"
            else:
                sides.append([str(one).strip() for one in found])
    if problem is None:
        words, tags = sides
        if len(words) != len(tags):
            problem = f"lengths differ: found {len(words)} words and {len(tags)} labels, expected as many"
        elif not words:
            problem = "no words: found an empty sentence, expected words"
        elif not all(words) or not all(tags):
            problem = "missing label: found an empty word or label, expected both"
        else:
            problems = (_pair_problem(word, tag) for word, tag in zip(words, tags, strict=True))
            problem = next((one for one in problems if one is not None), None)
    sentence = Sentence(()) if problem else Sentence(tuple(words), tuple(tags))
    return SentenceRow(sentence, cells.file, cells.line, problem)


@dataclass
class TagReport(Report):
    """What was found; ``pairs`` are the sentences kept, lengths are in words."""

    labels: Counter[str] = field(default_factory=Counter)

    def add(self, x: Sequence[str], y: Sequence[str]) -> None:
        self.source_characters.add(len(x))
        self.labels.update(y)
        if len(self.labels) > MOST_LABELS:
            self.check()

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        kept = {name: found[name] for name in ("rows", "left_out", "places", "duplicates")}
        lengths = {"words": found["source_characters"], "labels": dict(self.labels.most_common())}
        return {"sentences": self.pairs, **kept, **lengths}

    def lines(self) -> list[str]:
        lengths = ", ".join(f"{name} {value:,}" for name, value in self.source_characters.to_json().items())
        total = self.labels.total()
        lines = [f"{self.pairs:,} sentences of {self.rows:,}, {total:,} words", f"words: {lengths}"]
        ranked = self.labels.most_common()
        shares = ", ".join(f"{name} {count:,} ({count / max(total, 1):.1%})" for name, count in ranked[:NAMED])
        more = f" and {len(ranked) - NAMED:,} more, down to {ranked[-1][1]:,}" if len(ranked) > NAMED else ""
        lines.append(f"{len(ranked):,} labels: {shares}{more}")
        if self.duplicates:
            lines.append(f"{self.duplicates:,} sentences were there before with the same labels (kept)")
        return lines + self.left_out_lines()

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
