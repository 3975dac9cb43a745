"""Texts and their labels out of files, row by row: from every form that pairs are read from.

As with pairs, a row that cannot be used is yielded with its problem, and whoever reads decides how many are too many.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from sightline.data.columns import Cells, Columns, asked_columns, read_columns, text_problem
from sightline.data.source import Source
from sightline.data.tables import kind_of, listed, name_of
from sightline.errors import UserError

LabelKind = Literal["one", "several", "number"]
Label = str | tuple[str, ...] | float

# What columns may be called. The first name of each is taken wherever it stands; of the others, one alone must.
TEXT_NAMES = ("text", "sentence", "review", "text1", "sentence1")
SECOND_NAMES = ("text2", "sentence2")
LABEL_NAMES = ("label", "labels", "target", "score")
SEPARATORS = ("|", ";", ",")  # looked for in this order
LOOKED_AT = 1000  # rows in which a separator is looked for
LONGEST_LABEL = 500  # characters; a longer one is a text in the wrong column


class Example(NamedTuple):
    """A text or a pair of texts, and its label: one, several, or a number."""

    text: str
    second: str | None
    label: Label

    @property
    def texts(self) -> str | tuple[str, str]:
        """What a classifier is given."""
        return self.text if self.second is None else (self.text, self.second)


def labelled_cells(source: Source, columns: Sequence[Any]) -> Iterator[Cells]:
    """Every row as a text, a second one or None, and a label as the file has it, those with a problem too."""
    files, names = LabelledFile(str(source.data), source.columns), list[str]()

    def find(name: str, there: Sequence[str]) -> Columns | None:
        chosen = find_columns(name, there, files.columns)
        if chosen is None and len(there) != 2:
            raise UserError(
                f"{name}: found the columns {listed(there)}; expected 'text' and 'label'; name the columns to use: "
                "--columns TEXT LABEL"
            )
        names[:] = map(repr, chosen) if chosen else ("the first column", "the second column")
        return None if chosen is None else Columns(chosen)

    row = None
    for row in read_columns(files.data, find):
        values, problem = row.values, row.problem
        for name, text in zip(names[:-1], values, strict=False):
            problem = problem or text_problem(text, name)
        texts = (values[0], values[1] if len(values) == 3 else None) if values else ()
        yield Cells((*texts, *values[-1:]), row.file, row.line, problem)
    if row is None:
        raise UserError(
            f"{name_of(files.data)} has no rows: found an empty file or a header alone; expected texts and labels"
        )


def separated(rows: Iterable[Cells], place: int, separator: str | None) -> tuple[str | None, Iterator[Cells]]:
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


def _cut(row: Cells, place: int, separator: str) -> Cells:
    if row.problem is not None or not _is_cell(row.values[place]):
        return row
    labels = [part for part in str(row.values[place]).split(separator) if part.strip()]
    return row._replace(values=(*row.values[:place], labels, *row.values[place + 1 :]))


def read_label(value: Any, kind: LabelKind) -> Label:
    """A label, several or a number out of a cell, or a `ValueError` that says what is wrong."""
    return _READERS[kind](value, None)


def find_columns(name: str, found: Sequence[str], wanted: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names of text, second text where there is one, and label, as the file writes them; None if none is there."""
    if wanted is not None:
        return asked_columns(name, found, wanted).wanted
    known = {column.strip().casefold(): column for column in reversed(found)}
    text, second, label = (_one_of(name, known, names) for names in (TEXT_NAMES, SECOND_NAMES, LABEL_NAMES))
    if text is None and label is None:
        return None
    if text is None or label is None:
        what = "text" if text is None else "label"
        raise UserError(
            f"{name}: found the columns {listed(found)}; none of them is called {what}; name the columns to use: "
            "--columns TEXT LABEL"
        )
    return (text, label) if second is None else (text, second, label)


def _one_of(name: str, known: dict[str, str], names: tuple[str, ...]) -> str | None:
    there = [known[column] for column in names if column in known]
    if len(there) > 1 and names[0] not in known:
        raise UserError(
            f"{name}: found {listed(there)}, each of which may be the {names[0]}; name the columns to use: "
            "--columns TEXT LABEL"
        )
    return there[0] if there else None


class _LabelError(ValueError):
    """What is wrong with a label: "kind: what was found"; the column is named behind it."""


def _one_label(value: Any, separator: str | None = None) -> str:
    if isinstance(value, list | dict):
        found = kind_of(value)
        raise _LabelError(f"several labels: found {found}, expected one label (or ask for --labels several)")
    if isinstance(value, bool):
        return "true" if value else "false"
    label = "" if value is None else str(value).strip()
    if not label:
        raise _LabelError("missing label: found nothing, expected a label")
    if len(label) > LONGEST_LABEL:
        raise _LabelError(f"label too long: found {len(label):,} characters, expected at most {LONGEST_LABEL}")
    if "\0" in label or any("\ud800" <= letter <= "\udfff" for letter in label):
        raise _LabelError("bad label: found a character that is none, expected text")
    return label


def _several_labels(value: Any, separator: str | None) -> tuple[str, ...]:
    """In the order of the row, each once. An empty list, or cell, says that none of the labels is right."""
    if value is None:
        raise _LabelError("missing label: found null, expected a list of labels")
    parts = value if isinstance(value, list) else str(value).split(separator) if separator else [str(value)]
    if not isinstance(value, list):
        parts = [part for part in parts if part.strip()]
    return tuple(dict.fromkeys(_one_label(part) for part in parts))


def _number(value: Any, separator: str | None) -> float:
    if value is None or (isinstance(value, str) and not value.strip()):
        raise _LabelError("missing label: found nothing, expected a number")
    try:
        number = math.nan if isinstance(value, bool | list | dict) else float(value)
    except (ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        shown = str(value)[:40]
        raise _LabelError(f"label is no number: found {shown!r}, expected a number")
    return number


_READERS: dict[str, Callable[[Any, str | None], Label]] = {
    "one": _one_label,
    "several": _several_labels,
    "number": _number,
}
