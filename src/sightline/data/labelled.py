"""Texts and their labels out of files, row by row: from every form that pairs are read from.

As with pairs, a row that cannot be used is yielded with its problem: the caller decides how many are too many.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sightline.data.checking import Report
from sightline.data.columns import Columns, TableRow, named_columns, read_columns, text_problem
from sightline.data.source import Source
from sightline.data.tables import kind_of, listed
from sightline.errors import UserError

LabelKind = Literal["one", "several", "number"]
Label = str | tuple[str, ...] | float

# What columns may be called. The first name of each is taken wherever it stands; of the others, one alone must.
TEXT_NAMES = ("text", "sentence", "review", "text1", "sentence1")
SECOND_NAMES = ("text2", "sentence2")
LABEL_NAMES = ("label", "labels", "target", "score")
SEPARATORS = ("|", ";", ",")  # looked for in this order
LOOKED_AT = 1000  # rows in which a separator is looked for
NAME_THEM = "name the columns to use: --columns TEXT LABEL"
LONGEST_LABEL = 500  # characters; a longer one is a text in the wrong column


def labelled_cells(source: Source, columns: Sequence[Any]) -> Iterator[TableRow]:
    """Every row as a text, a second one or None, and a label as the file has it, those with a problem too.

    The columns are found by name, unless the source names them; a table of two columns that has none of the names has
    no header: the text comes first.
    """
    source.check_columns(("text", "text2", "label"), optional=("text2",))
    names: list[str] = []

    def find(name: str, there: Sequence[str]) -> Columns | None:
        chosen = find_columns(name, there, source.columns)
        if chosen is None and len(there) != 2:
            raise UserError(f"{name}: found the columns {listed(there)}; expected 'text' and 'label'; {NAME_THEM}")
        names[:] = map(repr, chosen) if chosen else ("the first column", "the second column")
        return None if chosen is None else Columns(chosen)

    nothing = "has no rows: found an empty file or a header alone; expected texts and labels"
    for values, file, line, problem in source.some(read_columns(str(source.data), find), nothing):
        for name, text in zip(names[:-1], values, strict=False):
            problem = problem or text_problem(text, name)
        texts = (values[0], values[1] if len(values) == 3 else None) if values else ()
        yield TableRow((*texts, *values[-1:]), file, line, problem)


def separated(rows: Iterable[TableRow], place: int, separator: str | None) -> tuple[str | None, Iterator[TableRow]]:
    """Rows with the cells at this place cut into lists of labels; the separator is looked for unless it is given."""
    coming = iter(rows)
    if separator is None:
        first = list(itertools.islice(coming, LOOKED_AT))
        coming = itertools.chain(first, coming)
        cells = [str(row.values[place]) for row in first if row.problem is None and _is_cell(row.values[place])]
        separator = next((sign for sign in SEPARATORS if any(sign in cell for cell in cells)), None)
    return separator, coming if separator is None else (_cut(row, place, separator) for row in coming)


def _is_cell(value: Any) -> bool:
    return value is not None and not isinstance(value, list | dict)


def _cut(row: TableRow, place: int, separator: str) -> TableRow:
    if row.problem is not None or not _is_cell(row.values[place]):
        return row
    labels = [part for part in str(row.values[place]).split(separator) if part.strip()]
    return row._replace(values=(*row.values[:place], labels, *row.values[place + 1 :]))


def read_label(value: Any, kind: LabelKind) -> Label:
    """A label, several or a number out of a cell, or a `ValueError` that says what is wrong."""
    return _READERS[kind](value)


def find_columns(name: str, columns: Sequence[str], given: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names of text, second text where there is one, and label, as the file writes them; None if none is there."""
    if given is not None:
        return named_columns(name, columns, given).needed
    known = {column.strip().casefold(): column for column in reversed(columns)}
    text, second, label = (_one_of(name, known, names) for names in (TEXT_NAMES, SECOND_NAMES, LABEL_NAMES))
    if text is None and label is None:
        return None
    if text is None or label is None:
        what = "text" if text is None else "label"
        raise UserError(f"{name}: found the columns {listed(columns)}; none of them is called {what}; {NAME_THEM}")
    return (text, label) if second is None else (text, second, label)


def _one_of(name: str, known: dict[str, str], names: tuple[str, ...]) -> str | None:
    there = [known[column] for column in names if column in known]
    if len(there) > 1 and names[0] not in known:
        raise UserError(f"{name}: found {listed(there)}, each of which may be the {names[0]}; {NAME_THEM}")
    return there[0] if there else None


def _one_label(value: Any) -> str:
    if isinstance(value, list | dict):
        kind = kind_of(value)
        raise ValueError(f"several labels: found {kind}, expected one label (or ask for --labels several)")
    if isinstance(value, bool):
        return "true" if value else "false"
    label = "" if value is None else str(value).strip()
    if not label:
        raise ValueError("missing label: found nothing, expected a label")
    if len(label) > LONGEST_LABEL:
        raise ValueError(f"label too long: found {len(label):,} characters, expected at most {LONGEST_LABEL}")
    if "\0" in label or any("\ud800" <= letter <= "\udfff" for letter in label):
        raise ValueError("bad label: found a character that is none, expected text")
    return label


def _several_labels(value: Any) -> tuple[str, ...]:
    """In the order of the row, each once. An empty list, or cell, says that none of the labels is right."""
    if value is None:
        raise ValueError("missing label: found null, expected a list of labels")
    parts = value if isinstance(value, list) else [str(value)] if str(value).strip() else []
    return tuple(dict.fromkeys(_one_label(part) for part in parts))


def _number(value: Any) -> float:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise ValueError("missing label: found nothing, expected a number")
    try:
        number = math.nan if isinstance(value, bool | list | dict) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        shown = str(value)[:40]
        raise ValueError(f"label is no number: found {shown!r}, expected a number")
    return number


_READERS: dict[str, Callable[[Any], Label]] = {"one": _one_label, "several": _several_labels, "number": _number}


# The report on labelled rows, which also refuses labels that cannot be learnt from.

NAMED = 20  # labels named in a report
MOST_LABELS = 100_000  # different ones; more are texts or numbers
RARE = 0.05  # a label with a smaller share of the rows makes accuracy say little


@dataclass
class LabelReport(Report):
    """The report on labelled rows: as that on pairs (``pairs`` are the rows kept), and on the labels."""

    measured: ClassVar[Mapping[str, str]] = {"characters": "characters", "second_characters": "of the second text"}
    what: ClassVar[str] = "texts"  # that have the labels, unless the input says something else
    kind: LabelKind = "one"
    labels: Counter[str] = field(default_factory=Counter)
    empty: int = 0
    contradicting: int = 0  # texts that stood before with another label
    without: int = 0  # rows that none of several labels is right for
    least: float = float("inf")
    most: float = float("-inf")
    mean: float = 0.0
    squares: float = 0.0  # of the distances to the mean, summed (Welford's way: large numbers lose nothing)

    @property
    def spread(self) -> float:
        """The standard deviation of numbers."""
        return math.sqrt(self.squares / self.pairs) if self.pairs else 0.0

    @property
    def noun(self) -> str:
        """What has the labels."""
        return self.what if self.input is None else self.input.noun

    def add(self, x: Any, y: Any) -> None:
        """Count an item that is kept, and its label."""
        texts = self.input.texts(x)
        self.measure(*map(len, texts))
        self.empty += bool(texts) and not "".join(texts).strip()
        if isinstance(y, float):
            self.least, self.most = min(self.least, y), max(self.most, y)
            before, self.mean = self.mean, self.mean + (y - self.mean) / self.pairs
            self.squares += (y - before) * (y - self.mean)
        elif isinstance(y, str):
            self.labels[y] += 1
        else:
            self.labels.update(y)
            self.without += not y
        if len(self.labels) > MOST_LABELS:
            self.check()

    def repeats(self, rows: int, different: int, items: int) -> None:
        self.duplicates, self.contradicting = rows - different, different - items

    def to_json(self) -> dict[str, Any]:
        report = {name: value for name, value in super().to_json().items() if value != {} or name not in self.measured}
        report[self.noun] = report.pop("pairs")
        if "characters" in report:
            report["empty"] = self.empty
        report |= {"contradicting": self.contradicting, "kind": self.kind}
        if self.kind == "number":
            numbers = {"min": self.least, "mean": self.mean, "max": self.most, "deviation": self.spread}
            return report | {"numbers": numbers}
        return report | {"labels": dict(self.labels.most_common())}

    def heading(self) -> str:
        return f"{self.pairs:,} {self.noun} of {self.rows:,} rows"

    def more(self) -> list[str]:
        return self.label_lines() + ([f"{self.empty:,} texts are empty (kept)"] if self.empty else [])

    @property
    def again(self) -> str:  # type: ignore[override]
        return f"{self.noun} were there before with the same label (kept)"

    def behind(self) -> list[str]:
        other = f"{self.contradicting:,} {self.noun} were there before with another label (kept)"
        return [other] if self.contradicting else []

    def label_lines(self) -> list[str]:
        """How the labels are spread."""
        if self.kind == "number":
            ends = f"min {self.least:g}, mean {self.mean:.4g}, max {self.most:g}"
            return [f"numbers: {ends}, deviation {self.spread:.4g}"]
        ranked = self.labels.most_common()
        lines = [shares(self.labels, self.pairs)]
        if self.without:
            lines.append(f"{self.without:,} {self.noun} have none of the labels")
        single = [name for name, count in ranked if count == 1]
        if single:
            named = ", ".join(map(repr, single[:NAMED])) + (" ..." if len(single) > NAMED else "")
            lines.append(
                f"with one example each, which training takes: {named}; no score measures how well they are learnt"
            )
        if self.kind == "one" and len(ranked) > 1 and ranked[-1][1] < RARE * self.pairs / max(1, len(ranked) / 2):
            lines.append(
                f"the labels are skewed: always predicting {ranked[0][0]!r} is right in "
                f"{ranked[0][1] / self.pairs:.1%} of the rows, so judge by macro-F1 and the table of labels"
            )
        return lines

    def check(self, source: Source | str | None = None) -> None:
        """Refuse labels from which nothing can be learnt."""
        columns = getattr(source, "columns", None)
        column = f"the column {columns[-1]!r}" if columns else source if isinstance(source, str) else "the label column"
        if self.kind == "number":
            if self.least == self.most:
                raise UserError(f"all {self.pairs:,} rows have the number {self.least:g}; there is nothing to learn")
            return
        different = len(self.labels)
        if different > 2 and 2 * different > self.pairs:
            raise UserError(self._too_many_labels(column))
        if self.kind == "one" and different == 1:
            (only,) = self.labels
            raise UserError(
                f"all {self.pairs:,} rows have the label {only!r}; expected at least two labels to tell apart"
            )
        if not different:
            raise UserError(f"none of the {self.pairs:,} rows has a label; expected labels in {column}")

    def _too_many_labels(self, column: str) -> str:
        examples = ", ".join(repr(name if len(name) <= 30 else name[:29] + "…") for name in list(self.labels)[:3])
        labels = f"{column} has {len(self.labels):,} different labels in {self.pairs:,} rows ({examples})"
        if all(map(_is_number, list(self.labels)[:1000])):
            return f"{labels}, as numbers have: learn them with --labels number, or name the columns with --columns"
        first = self.noun.removesuffix("s").upper()
        return f"{labels}, as texts have: is it the wrong column? Name the columns with --columns {first} LABEL"


def shares(labels: Counter[str], total: int) -> str:
    """How many there are of each label, in a line."""
    ranked = labels.most_common()
    named = ", ".join(f"{name} {count:,} ({count / max(total, 1):.1%})" for name, count in ranked[:NAMED])
    more = f" and {len(ranked) - NAMED:,} more, down to {ranked[-1][1]:,}" if len(ranked) > NAMED else ""
    return f"{len(ranked):,} labels: {named}{more}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
