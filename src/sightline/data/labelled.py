"""Texts and their labels out of files, row by row: from every form that pairs are read from.

As with pairs, a row that cannot be used is yielded with its problem, and whoever reads decides how many are too many.
"""

import csv
import importlib
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from sightline.data.reading import (
    LINE_LIMIT,
    PARQUET_BATCH,
    _csv_records,
    _decode,
    _format_of,
    _kind,
    _Line,
    _lines,
    _listed,
    _name,
    _nearest,
    _Record,
    _tsv_records,
)
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


class LabelledRow(NamedTuple):
    """An example and where it stands, or the ``problem`` that it has."""

    example: Example | None
    file: str
    line: int
    problem: str | None = None


@dataclass(frozen=True)
class LabelledFile:
    """Where the rows stand, ``"-"`` is standard input, and what their labels are.

    ``columns`` are the names of the text and the label, or of two texts and the label. Left out, they are found by
    name; a table of two columns that has none of the names has no header: the text comes first.
    ``separator`` is what stands between several labels in one cell of a table; a list of JSON or Parquet needs none.
    """

    data: str
    columns: tuple[str, ...] | None = None
    labels: LabelKind = "one"
    separator: str | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and (len(self.columns) not in (2, 3) or not all(self.columns)):
            found = ", ".join(map(repr, self.columns)) or "none"
            raise UserError(
                f"columns: found {found}; expected the names of text and label, or of text, text2 and label"
            )
        if self.separator is not None and (not self.separator or self.labels != "several"):
            raise UserError(f"the separator {self.separator!r} stands between several labels; ask for --labels several")


def read_labelled(files: LabelledFile) -> Iterator[LabelledRow]:
    """Every row, in order, those with a problem too."""
    row = None
    with ExitStack() as stack:
        # A text of a hundred thousand words is longer than the csv module takes; a record is limited by its bytes.
        stack.callback(csv.field_size_limit, csv.field_size_limit(LINE_LIMIT))
        for row in _rows(files):
            yield row
    if row is None:
        raise UserError(
            f"{_name(files.data)} has no rows: found an empty file or a header alone; expected texts and labels"
        )


def found_separator(files: LabelledFile) -> str | None:
    """The separator that the first rows of a table show: the first of `SEPARATORS` that any label holds."""
    whole = LabelledFile(files.data, files.columns, "one")
    rows = itertools.islice(read_labelled(whole), LOOKED_AT)
    labels = [str(row.example.label) for row in rows if row.example is not None]
    return next((sign for sign in SEPARATORS if any(sign in label for label in labels)), None)


def _rows(files: LabelledFile) -> Iterator[LabelledRow]:
    name, kind = _name(files.data), _format_of(files.data)
    if kind == "parquet":
        return _parquet_rows(name, files)
    lines: Iterator[_Line] = _lines(files.data, None)
    if kind is None:
        first = list(itertools.islice(lines, 1))
        lines = itertools.chain(first, lines)
        is_json = first and first[0].content.removeprefix(b"\xef\xbb\xbf").startswith(b"{")
        kind = "jsonl" if is_json else "tsv"
    if kind == "jsonl":
        return _json_rows(name, lines, files)
    return _table_rows(name, _csv_records(lines) if kind == "csv" else _tsv_records(lines), files)


def find_columns(name: str, found: list[str], wanted: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The names of text, second text where there is one, and label, as the file writes them; None if none is there."""
    if wanted is not None:
        missing = [column for column in wanted if column not in found]
        if not missing:
            return wanted
        raise UserError(
            f"{name}: found the columns {_listed(found)}; expected {', '.join(map(repr, wanted))}"
            f"{_nearest(missing, found)}"
        )
    known = {column.strip().casefold(): column for column in reversed(found)}
    text, second, label = (_one_of(name, known, names) for names in (TEXT_NAMES, SECOND_NAMES, LABEL_NAMES))
    if text is None and label is None:
        return None
    if text is None or label is None:
        what = "text" if text is None else "label"
        raise UserError(
            f"{name}: found the columns {_listed(found)}; none of them is called {what}; name the columns to use: "
            "--columns TEXT LABEL"
        )
    return (text, label) if second is None else (text, second, label)


def _one_of(name: str, known: dict[str, str], names: tuple[str, ...]) -> str | None:
    there = [known[column] for column in names if column in known]
    if len(there) > 1 and names[0] not in known:
        raise UserError(
            f"{name}: found {_listed(there)}, each of which may be the {names[0]}; name the columns to use: "
            "--columns TEXT LABEL"
        )
    return there[0] if there else None


def _table_rows(name: str, records: Iterator[_Record], files: LabelledFile) -> Iterator[LabelledRow]:
    first = next(records, None)
    if first is None:
        return
    if first.problem is not None:
        raise UserError(f"{name}:{first.line}: the first line has {first.problem}; expected the names of the columns")
    header = [cell.strip() for cell in first.cells]
    columns = find_columns(name, header, files.columns)
    if columns is None and len(header) != 2:
        raise UserError(
            f"{name}: found the columns {_listed(header)}; expected 'text' and 'label'; name the columns to use: "
            "--columns TEXT LABEL"
        )
    headless = columns is None
    places = (0, 1) if columns is None else tuple(map(header.index, columns))
    names = columns or ("the first column", "the second column")
    for line, cells, problem in itertools.chain([first], records) if headless else records:
        if problem is None and len(cells) != len(header):
            problem = f"wrong number of columns: found {len(cells)}, expected {len(header)}"
        yield _row([] if problem else [cells[place] for place in places], names, files, name, line, problem)


def _json_rows(name: str, lines: Iterable[_Line], files: LabelledFile) -> Iterator[LabelledRow]:
    columns: tuple[str, ...] | None = files.columns
    for line in lines:
        text, problem = _decode(line)
        values: list[Any] = []
        if problem is None:
            found, problem = _json_object(text)
            if problem is None:
                columns = columns or find_columns(f"{name}:{line.number}", list(found), None) or ("text", "label")
                missing = [column for column in columns if column not in found]
                if missing:
                    near = _nearest(missing, list(found))
                    problem = f"missing field: found {_listed(list(found))}, expected {missing[0]!r}{near}"
                else:
                    values = [found[column] for column in columns]
        yield _row(values, columns or (), files, name, line.number, problem)


def _json_object(text: str) -> tuple[dict[str, Any], str | None]:
    expected = "expected an object with a text and a label"
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        return {}, f"bad JSON: found a fault at column {error.colno} ({error.msg}), {expected}"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a thousand nested lists
        return {}, f"bad JSON: {error}, {expected}"
    return (found, None) if isinstance(found, dict) else ({}, f"bad JSON: found {_kind(found)}, {expected}")


def _parquet_rows(name: str, files: LabelledFile) -> Iterator[LabelledRow]:
    if not Path(name).is_file():
        next(_lines(name, None), None)  # says what is wrong with it, as for any file
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UserError(f"{name}: reading Parquet needs pyarrow; pip install 'sightline[parquet]'") from None
    number = 0
    try:
        with parquet.ParquetFile(name) as table:
            names = list(table.schema_arrow.names)
            columns = find_columns(name, names, files.columns)
            if columns is None:
                raise UserError(f"{name}: found the columns {_listed(names)}; expected 'text' and 'label'")
            for batch in table.iter_batches(batch_size=PARQUET_BATCH, columns=list(dict.fromkeys(columns))):
                for cells in zip(*(batch.column(column) for column in columns), strict=True):
                    number += 1
                    values, problem = _parquet_values(cells)
                    yield _row(values, columns, files, name, number, problem)
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{name} is no Parquet file that can be read: {str(error).splitlines()[0]}") from None


def _parquet_values(cells: Iterable[Any]) -> tuple[list[Any], str | None]:
    try:
        return [cell.as_py() for cell in cells], None
    except UnicodeDecodeError as error:
        return [], f"bad UTF-8: found byte 0x{error.object[error.start]:02x} at offset {error.start}"


def _row(
    values: list[Any], columns: tuple[str, ...], files: LabelledFile, name: str, line: int, problem: str | None
) -> LabelledRow:
    """A row of raw values: texts first, the label last."""
    if problem is None:
        for column, text in zip(columns[:-1], values[:-1], strict=True):
            problem = problem or _text_problem(text, column)
    if problem is None:
        try:
            label = _READERS[files.labels](values[-1], files.separator)
        except _LabelError as error:
            problem = f"{error} in {columns[-1]!r}"
        else:
            return LabelledRow(Example(values[0], values[1] if len(values) == 3 else None, label), name, line)
    return LabelledRow(None, name, line, problem)


def _text_problem(text: Any, column: str) -> str | None:
    if not isinstance(text, str):
        return f"field is not text: found {_kind(text)} in {column!r}, expected a string"
    if "\0" in text:
        return f"NUL character: found one in {column!r}, expected text"
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return f"bad JSON: found half a surrogate pair in {column!r}, expected whole characters"
    return None


class _LabelError(ValueError):
    """What is wrong with a label: "kind: what was found"; the column is named behind it."""


def _one_label(value: Any, separator: str | None = None) -> str:
    if isinstance(value, list | dict):
        found = _kind(value)
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
