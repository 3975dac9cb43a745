"""Pairs of sentences out of files, row by row.

A row that cannot be used is yielded with its ``problem`` and never raises: whoever reads decides how many are too many.
A file that cannot be used raises a `UserError`, when the first row is asked for or where the file turns out broken.
"""

import csv
import gzip
import importlib
import io
import itertools
import json
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from sightline.errors import UserError

LINE_LIMIT = 1_000_000  # bytes; nobody means a longer line, and one must not fill the memory
STANDARD_INPUT = "standard input"
DEFAULT_COLUMNS = ("source", "target")
FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}
PARQUET_BATCH = 1024


@dataclass(frozen=True)
class PairFiles:
    """Where the pairs stand: one table ``data`` (``"-"`` is standard input), or two aligned files, a sentence a line.

    ``columns`` are the names of the two columns. A table of exactly two columns may have other names, or none: a
    column that has its name keeps its side and the other column is the other side; where neither name is there, the
    first column is the source. Its first line is then read as data if ``columns`` are the default ones, and as a header
    if they are not. A table of Parquet always has names, and every line of JSON must have both.
    """

    data: str | None = None
    source: str | None = None
    target: str | None = None
    columns: tuple[str, str] = DEFAULT_COLUMNS

    def __post_init__(self) -> None:
        aligned = (self.source, self.target)
        if self.data is None and None in aligned:
            raise UserError("no pairs were given; expected either one data file, or both a source and a target file")
        if self.data is not None and aligned != (None, None):
            raise UserError("a data file and a source or target file were given; expected one or the other")
        if aligned == ("-", "-"):
            raise UserError("source and target are both standard input; give it one of them, or a table as data")
        if len(self.columns) != 2 or not all(self.columns):
            raise UserError(f"columns: found {', '.join(map(repr, self.columns))}; expected two names")


class Row(NamedTuple):
    """A pair and where it stands. A ``problem`` is ``"kind: what was found, what was expected"``; its texts are empty.

    ``line`` counts from 1, and is where a record starts; in Parquet it is the row.
    """

    source: str
    target: str
    file: str
    line: int
    problem: str | None = None


class _Line(NamedTuple):
    number: int
    content: bytes  # without the "\n"; empty if the line is too long
    length: int


class _Record(NamedTuple):
    line: int
    cells: list[str]
    problem: str | None


def read_rows(files: PairFiles, standard_input: io.BufferedIOBase | None = None) -> Iterator[Row]:
    """Every row, in order, those with a problem too. ``standard_input`` is what ``"-"`` reads, if not the real one."""
    row = None
    for row in _rows(files, standard_input):
        yield row
    if row is None:
        name = _name(files.data or files.source or "")
        again = " (it can be read only once)" if name == STANDARD_INPUT else ""
        raise UserError(f"{name} has no rows: found an empty file or a header alone{again}; expected pairs")


def _rows(files: PairFiles, standard_input: io.BufferedIOBase | None) -> Iterator[Row]:
    if files.data is None:
        return _aligned_rows(str(files.source), str(files.target), standard_input)
    name, kind = _name(files.data), _format_of(files.data)
    if kind == "parquet":
        return _parquet_rows(name, files.columns)
    lines: Iterator[_Line] = _lines(files.data, standard_input)
    if kind is None:
        first = list(itertools.islice(lines, 1))
        lines = itertools.chain(first, lines)
        is_json = first and first[0].content.removeprefix(b"\xef\xbb\xbf").startswith(b"{")
        kind = "jsonl" if is_json else "tsv"
    if kind == "jsonl":
        return _json_rows(name, lines, files.columns)
    return _table_rows(name, _csv_records(lines) if kind == "csv" else _tsv_records(lines), files.columns)


def _name(path: str) -> str:
    return STANDARD_INPUT if path == "-" else path


def _format_of(path: str) -> str | None:
    """The format that the ending names, or None where it is to be guessed from the first line: a pipe has no ending."""
    if path == "-":
        return None
    ending = Path(Path(path).name.lower().removesuffix(".gz")).suffix
    place = Path(path)
    if ending in FORMATS or not place.exists() or place.is_dir():
        return FORMATS.get(ending, "tsv")  # opening it says what is wrong with a file that is not there
    if place.is_fifo() or place.is_char_device():
        return None
    raise UserError(f"{path}: found the ending {ending!r}; expected {', '.join(FORMATS)}, or these with .gz")


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were read to look at them. A pipe cannot go back, so they are put in front again."""

    def __init__(self, head: bytes, rest: io.BufferedIOBase) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found, self._head = (self._head, b"") if self._head else (self._rest.read(len(buffer)), b"")
        buffer[: len(found)] = found
        return len(found)


def _open(path: str, standard_input: io.BufferedIOBase | None, stack: ExitStack) -> io.BufferedIOBase:
    """The bytes of a file, unpacked if they are gzip: by their content, because names lie and pipes have none."""
    if path != "-":
        raw: Any = stack.enter_context(open(path, "rb"))  # noqa: SIM115 - the stack closes it
    elif (raw := standard_input or getattr(sys.stdin, "buffer", None)) is None:
        raise UserError("standard input is closed; expected pairs there")
    head = raw.read(2)
    if head in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{_name(path)}: found UTF-16 text; expected UTF-8, so save it as UTF-8")
    stream = stack.enter_context(io.BufferedReader(_Rejoined(head, raw), 1 << 16))
    return stack.enter_context(gzip.GzipFile(fileobj=stream)) if head == b"\x1f\x8b" else stream


def _lines(path: str, standard_input: io.BufferedIOBase | None) -> Iterator[_Line]:
    """The lines of a file. Only ``\\n`` ends one: U+2028, form feeds and the like are text."""
    name, number = _name(path), 0
    try:
        with ExitStack() as stack:
            stream = _open(path, standard_input, stack)
            while content := stream.readline(LINE_LIMIT + 1):
                number += 1
                length = len(content)
                if content.endswith(b"\n"):
                    yield _Line(number, content[:-1], length - 1)
                elif length <= LINE_LIMIT:
                    yield _Line(number, content, length)
                else:
                    yield _Line(number, b"", length + _skip_line(stream))
    except EOFError:
        raise UserError(f"{name} is a gzip file cut short after line {number}; copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{name} is a damaged gzip file after line {number} ({error}); copy it again") from None
    except FileNotFoundError:
        raise UserError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise UserError(f"{name} is a folder; expected a file") from None
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from None


def _skip_line(stream: io.BufferedIOBase) -> int:
    """Read to the end of the line, and say how many bytes of it were left."""
    length = 0
    while piece := stream.readline(1 << 16):
        length += len(piece)
        if piece.endswith(b"\n"):
            return length - 1
    return length


def _decode(line: _Line) -> tuple[str, str | None]:
    if line.length > LINE_LIMIT:
        return "", f"line too long: found {line.length:,} bytes, expected at most {LINE_LIMIT:,}"
    try:
        text = line.content.decode("utf-8")
    except UnicodeDecodeError as error:
        byte = line.content[error.start]
        return "", f"bad UTF-8: found byte 0x{byte:02x} at offset {error.start} of line {line.number}, expected UTF-8"
    if line.number == 1:
        text = text.removeprefix("\ufeff")
    return text.removesuffix("\r"), None


def _row(source: str, target: str, name: str, line: int, problem: str | None) -> Row:
    if problem is None and ("\0" in source or "\0" in target):
        side = "source" if "\0" in source else "target"
        problem = f"NUL character: found one in the {side}, expected text"
    return Row(source, target, name, line) if problem is None else Row("", "", name, line, problem)


def _aligned_rows(source: str, target: str, standard_input: io.BufferedIOBase | None) -> Iterator[Row]:
    names = _name(source), _name(target)
    sides = _lines(source, standard_input), _lines(target, standard_input)
    for number, lines in enumerate(itertools.zip_longest(*sides), start=1):
        if None in lines:
            short = lines.index(None)
            longer = number + sum(1 for _ in sides[1 - short])
            raise UserError(
                f"{names[short]} has {number - 1:,} lines and {names[1 - short]} has {longer:,}; "
                "expected as many, because line n of the one belongs to line n of the other"
            )
        texts, problems = zip(*map(_decode, lines), strict=True)
        wrong = problems[0] is None and problems[1] is not None  # the place is the file that has the problem
        yield _row(texts[0], texts[1], names[wrong], number, problems[wrong])


def _tsv_records(lines: Iterable[_Line]) -> Iterator[_Record]:
    """No quoting: a quotation mark is text, as in the corpora that come as TSV."""
    for line in lines:
        text, problem = _decode(line)
        yield _Record(line.number, text.split("\t"), problem)


class _CsvFeed:
    """Lines for `csv.reader`, which remembers those of the record under way so that they can be read again."""

    def __init__(self, lines: Iterator[_Line]) -> None:
        self._lines = lines
        self._waiting: deque[_Line] = deque()
        self.begin()

    def begin(self) -> None:
        self.taken: list[_Line] = []
        self.size = 0
        self.problem: str | None = None

    def give_back(self) -> None:
        """All lines but the first of the record: a quote that is never closed spoils its own line, not the rest."""
        self._waiting.extendleft(reversed(self.taken[1:]))

    def __iter__(self) -> "_CsvFeed":
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else next(self._lines)
        self.taken.append(line)
        self.size += line.length
        text, problem = _decode(line)
        if problem is not None:
            self.problem = self.problem or problem
            text = line.content.decode("utf-8", "replace")  # for the quotes in it, which say where the record ends
        if self.size > LINE_LIMIT:
            raise csv.Error(f"a quoted field is not closed within {LINE_LIMIT:,} bytes")
        return text + ("\r\n" if line.content.endswith(b"\r") else "\n")  # within quotes they are text


def _csv_records(lines: Iterator[_Line]) -> Iterator[_Record]:
    feed = _CsvFeed(lines)
    reader = csv.reader(feed, strict=True)  # also limits a field to `csv.field_size_limit` characters, 131,072
    while True:
        feed.begin()
        cells: list[str] = []
        try:
            cells = next(reader)
            problem = feed.problem
        except StopIteration:
            return
        except csv.Error as error:
            reason = "a quoted field is never closed" if "unexpected end" in str(error) else str(error)
            if "new-line character" in reason:  # what it goes on to advise is meant for programmers
                reason = "a carriage return outside quotes"
            problem = feed.problem or f"bad CSV: found {reason}, expected fields quoted as in RFC 4180"
            feed.give_back()
        yield _Record(feed.taken[0].number, cells, problem)


def _table_rows(name: str, records: Iterator[_Record], columns: tuple[str, str]) -> Iterator[Row]:
    first = next(records, None)
    if first is None:
        return
    if first.problem is not None:
        raise UserError(f"{name}:{first.line}: the first line has {first.problem}; expected the names of the columns")
    source, target, headless = _find_columns(name, [cell.strip() for cell in first.cells], columns)
    for line, cells, problem in itertools.chain([first], records) if headless else records:
        if problem is None and len(cells) != len(first.cells):
            problem = f"wrong number of columns: found {len(cells)}, expected {len(first.cells)}"
        yield _row(*("", "") if problem else (cells[source], cells[target]), name, line, problem)


def _find_columns(name: str, found: list[str], columns: tuple[str, str]) -> tuple[int, int, bool]:
    """Where the two columns stand, and whether what was found is data and no header. `PairFiles` says the rule."""
    there = [found.index(column) if column in found else None for column in columns]
    if there[0] is not None and there[1] is not None:
        return there[0], there[1], False
    if len(found) == 2:
        if there[0] is not None:
            return there[0], 1 - there[0], False
        if there[1] is not None:
            return 1 - there[1], there[1], False
        named = {cell.casefold() for cell in found} & {column.casefold() for column in columns}
        return 0, 1, columns == DEFAULT_COLUMNS and not named
    missing = [column for column in columns if column not in found]
    raise UserError(
        f"{name}: found the columns {_listed(found)}; expected {' and '.join(map(repr, columns))}"
        f"{_nearest(missing, found)}; name the columns to use"
    )


def _listed(names: list[str]) -> str:
    shown = [repr(name if len(name) <= 40 else name[:39] + "…") for name in names[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "") or "none"


def _nearest(missing: list[str], found: list[str]) -> str:
    known = {name.casefold(): name for name in found}
    close = {name: get_close_matches(name.casefold(), known, n=1, cutoff=0.5) for name in missing}
    meant = ", ".join(f"{known[near[0]]!r} for {name!r}" for name, near in close.items() if near)
    return f" (did you mean {meant}?)" if meant else ""


def _json_rows(name: str, lines: Iterable[_Line], columns: tuple[str, str]) -> Iterator[Row]:
    for line in lines:
        text, problem = _decode(line)
        source, target, problem = _json_pair(text, columns) if problem is None else ("", "", problem)
        yield _row(source, target, name, line.number, problem)


def _json_pair(text: str, columns: tuple[str, str]) -> tuple[str, str, str | None]:
    expected = f"expected an object with {columns[0]!r} and {columns[1]!r}"
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        return "", "", f"bad JSON: found a fault at column {error.colno} ({error.msg}), {expected}"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a thousand nested lists
        return "", "", f"bad JSON: {error}, {expected}"
    if not isinstance(found, dict):
        return "", "", f"bad JSON: found {_kind(found)}, {expected}"
    for column in columns:
        if column not in found:
            near = _nearest([column], list(found))
            return "", "", f"missing field: found {_listed(list(found))}, expected {column!r}{near}"
        if not isinstance(found[column], str):
            return "", "", f"field is not text: found {_kind(found[column])} in {column!r}, expected a string"
        if "\\" in text and any("\ud800" <= letter <= "\udfff" for letter in found[column]):
            return "", "", f"bad JSON: found half a surrogate pair in {column!r}, expected whole characters"
    return found[columns[0]], found[columns[1]], None


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null", bytes: "bytes"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)


def _parquet_rows(name: str, columns: tuple[str, str]) -> Iterator[Row]:
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
            source, target, _ = _find_columns(name, names, columns)
            wanted = list(dict.fromkeys([names[source], names[target]]))
            for batch in table.iter_batches(batch_size=PARQUET_BATCH, columns=wanted):
                sides = [_parquet_texts(batch.column(names[side]), names[side]) for side in (source, target)]
                for (one, problem), (other, other_problem) in zip(*sides, strict=True):
                    number += 1
                    yield _row(one, other, name, number, problem or other_problem)
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{name} is no Parquet file that can be read: {str(error).splitlines()[0]}") from None


def _parquet_texts(column: Any, name: str) -> Iterator[tuple[str, str | None]]:
    for cell in column:
        try:
            value = cell.as_py()
        except UnicodeDecodeError as error:
            yield "", f"bad UTF-8: found byte 0x{error.object[error.start]:02x} at offset {error.start} in {name!r}"
            continue
        good = isinstance(value, str)
        yield (value, None) if good else ("", f"field is not text: found {_kind(value)} in {name!r}, expected a string")
