"""The lines and records of files, on which every reader of tables is built.

A line or a record that cannot be used comes with its problem; a file that cannot be used raises a `UserError`.
"""

import csv
import gzip
import io
import json
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from sightline.data.shards import DamagedError, ending_of, is_address, one_line, open_bytes
from sightline.errors import UserError

LINE_LIMIT = 1_000_000  # bytes; a longer line is an error, and must not fill the memory
NO_FILE = "there is no such file"
PATH_RULE = "a path in a table is relative to the table's folder, or else to the working folder"
STANDARD_INPUT = "standard input"
FORMATS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class Line(NamedTuple):
    number: int
    content: bytes  # without the "\n"; empty if the line is too long
    length: int


class TableRecord(NamedTuple):
    """The cells of a line of a table, or of several lines of CSV: ``line`` is where it starts."""

    line: int
    cells: list[str]
    problem: str | None


def name_of(path: str) -> str:
    """What errors call a file."""
    return STANDARD_INPUT if path == "-" else path


def format_of(path: str) -> str | None:
    """The format that the ending names, or None where it is to be guessed from the first line: a pipe has no ending."""
    if path == "-":
        return None
    ending, place = ending_of(path), Path(path)
    if ending in FORMATS or (not is_address(path) and (not place.exists() or place.is_dir())):
        return FORMATS.get(ending, "tsv")  # opening it says what is wrong with a file that is not there
    if place.is_fifo() or place.is_char_device():
        return None
    raise UserError(f"{path}: found the ending {ending!r}; expected {', '.join(FORMATS)}, or these with .gz")


class _Rejoined(io.RawIOBase):
    """A stream whose first bytes were read to look at them. A pipe cannot go back, so they are put in front again."""

    def __init__(self, head: bytes, rest: Any) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content, self._head = (self._head, b"") if self._head else (self._rest.read(len(buffer)), b"")
        buffer[: len(content)] = content
        return len(content)


def open_unpacked(path: str, stack: ExitStack) -> io.BufferedIOBase:
    """The bytes of a file, unpacked if they are gzip: by their content, because names lie and pipes have none."""
    if path != "-":
        raw: Any = stack.enter_context(open_bytes(path))
    elif (raw := getattr(sys.stdin, "buffer", None)) is None:
        raise UserError("standard input is closed; expected pairs there")
    head = raw.read(2)
    if head in (b"\xff\xfe", b"\xfe\xff"):
        raise UserError(f"{name_of(path)}: found UTF-16 text; expected UTF-8, so save it as UTF-8")
    stream = stack.enter_context(io.BufferedReader(_Rejoined(head, raw), 1 << 16))
    return stack.enter_context(gzip.GzipFile(fileobj=stream)) if head == b"\x1f\x8b" else stream


def lines_of(path: str) -> Iterator[Line]:
    """The lines of a file. Only ``\\n`` ends one: U+2028, form feeds and the like are text."""
    name, number = name_of(path), 0
    try:
        with ExitStack() as stack:
            stream = open_unpacked(path, stack)
            while content := stream.readline(LINE_LIMIT + 1):
                number += 1
                length = len(content)
                if content.endswith(b"\n"):
                    yield Line(number, content[:-1], length - 1)
                elif length <= LINE_LIMIT:
                    yield Line(number, content, length)
                else:
                    yield Line(number, b"", length + _skip_line(stream))
    except EOFError:
        what = f"is a gzip file cut short after line {number}; copy or download it again"
        raise DamagedError(name, what, number) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        what = f"is a damaged gzip file after line {number} ({error}); copy it again"
        raise DamagedError(name, what, number) from None
    except FileNotFoundError:
        raise UserError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise UserError(f"{name} is a folder; expected a file") from None
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error.strerror or error}") from None
    except UserError:
        raise
    except Exception as error:  # other file systems have errors of their own
        if not is_address(path):
            raise
        raise UserError(f"{name} cannot be read: {one_line(error)}") from None


def _skip_line(stream: io.BufferedIOBase) -> int:
    """Read to the end of the line, and say how many bytes of it were left."""
    length = 0
    while piece := stream.readline(1 << 16):
        length += len(piece)
        if piece.endswith(b"\n"):
            return length - 1
    return length


def decode(line: Line) -> tuple[str, str | None]:
    """The text of a line, or what is wrong with it."""
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


def tsv_records(lines: Iterable[Line]) -> Iterator[TableRecord]:
    """No quoting: a quotation mark is text, as in the corpora that come as TSV."""
    for line in lines:
        text, problem = decode(line)
        yield TableRecord(line.number, text.split("\t"), problem)


class _CsvFeed:
    """Lines for `csv.reader`, which remembers those of the record under way so that they can be read again."""

    def __init__(self, lines: Iterator[Line]) -> None:
        self._lines = lines
        self._waiting: deque[Line] = deque()
        self.begin()

    def begin(self) -> None:
        self.taken: list[Line] = []
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
        text, problem = decode(line)
        if problem is not None:
            self.problem = self.problem or problem
            text = line.content.decode("utf-8", "replace")  # for the quotes in it, which say where the record ends
        if self.size > LINE_LIMIT:
            raise csv.Error(f"a quoted field is not closed within {LINE_LIMIT:,} bytes")
        return text + ("\r\n" if line.content.endswith(b"\r") else "\n")  # within quotes they are text


def csv_records(lines: Iterator[Line]) -> Iterator[TableRecord]:
    """As RFC 4180 says; a quote that is never closed spoils one line."""
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
            if "new-line character" in reason:  # the advice that follows is for programmers
                reason = "a carriage return outside quotes"
            problem = feed.problem or f"bad CSV: found {reason}, expected fields quoted as in RFC 4180"
            feed.give_back()
        yield TableRecord(feed.taken[0].number, cells, problem)


def listed(names: Sequence[str]) -> str:
    """Names for an error, not too many and not too long."""
    shown = [repr(name if len(name) <= 40 else name[:39] + "…") for name in names[:10]]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "") or "none"


def nearest(missing: Sequence[str], names: Sequence[str]) -> str:
    """What may have been meant, for the end of an error."""
    known = {name.casefold(): name for name in names}
    close = {name: get_close_matches(name.casefold(), known, n=1, cutoff=0.5) for name in missing}
    meant = ", ".join(f"{known[near[0]]!r} for {name!r}" for name, near in close.items() if near)
    return f" (did you mean {meant}?)" if meant else ""


def json_object(text: str, expected: str) -> tuple[dict[str, Any], str | None]:
    """A line of JSON, or what is wrong with it."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return {}, f"bad JSON: found a fault at column {error.colno} ({error.msg}), expected {expected}"
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, a thousand nested lists
        return {}, f"bad JSON: {error}, expected {expected}"
    return (value, None) if isinstance(value, dict) else ({}, f"bad JSON: found {kind_of(value)}, expected {expected}")


def kind_of(value: object) -> str:
    """What a value of JSON or Parquet is, in an error."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null", bytes: "bytes"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else type(value).__name__)
