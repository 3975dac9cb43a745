"""The lines and records of files, on which every reader of tables is built.

A line or a record that cannot be used comes with its problem; a file that cannot be used raises a `UserError`.
"""

import codecs
import csv
import gzip
import io
import itertools
import json
import re
import stat
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from sightline.data.shards import DamagedError, ending_of, is_address, one_line, open_bytes
from sightline.errors import UserError
from sightline.files import open_regular

LINE_LIMIT = 1_000_000  # bytes; a longer line is an error, and must not fill the memory
MOST_SKIPPED = 1 << 28  # bytes behind that in one line, before the file is no text
NO_FILE = "there is no such file"
BAD_UTF8 = "bad UTF-8"
ENCODING_RULE = "a file in another encoding is read with --encoding, such as latin-1 or gb18030"
PATH_RULE = "a path in a table is relative to the table's folder, or else to the working folder"
STANDARD_INPUT = "standard input"
FORMATS = {
    ".tsv": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_SHEET, _PACKED = "save the sheet as CSV (UTF-8)", "unpack it"
_PICKLE = "a pickle can run code, so save the rows as .parquet or .jsonl"
CONVERT = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _SHEET),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z", ".bz2", ".xz", ".zst"), _PACKED),
    **dict.fromkeys((".pkl", ".pickle", ".pt"), _PICKLE),
    **dict.fromkeys((".docx", ".pdf", ".html", ".xml"), "save its text as .txt, or its table as CSV"),
}
BARS, LABEL_MARK = " ||| ", "__label__"


NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,39}")  # of a column


def open_named(path: Path, most_bytes: int, bad: type[ValueError], what: str) -> io.BufferedReader:
    """A regular file that a row names, to read. What is wrong with it is an error of the class ``bad``."""
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise bad(f"it is a folder, expected {what}")
        if not stat.S_ISREG(about.st_mode):  # a pipe would be waited for, a device has no end
            raise bad("it is no regular file")
        if about.st_size > most_bytes:
            raise bad(too_many_bytes(about.st_size, most_bytes))
        return open_regular(path)
    except FileNotFoundError:
        raise bad(NO_FILE) from None
    except (OSError, ValueError) as error:  # a NUL in a name is a ValueError
        if isinstance(error, bad):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise bad(f"it cannot be read ({reason})") from None


def too_many_bytes(size: int, most_bytes: int) -> str:
    return f"it is too large: found {size:,} bytes, expected at most {most_bytes:,}"


# What text files are read as. Lines are UTF-8 from here on, whatever the file has.
_ENCODING = ContextVar("encoding", default="utf-8")


def read_as(encoding: str | None) -> None:
    """Read text files in this encoding from now on; None is UTF-8. In Python: `reading_as`."""
    try:
        _ENCODING.set(codecs.lookup(encoding or "utf-8").name)
        "".encode(_ENCODING.get())
    except (LookupError, ValueError):
        raise UserError(f"there is no encoding {encoding!r}; expected one such as latin-1, gb18030 or utf-16") from None


@contextmanager
def reading_as(encoding: str | None) -> Iterator[None]:
    """Read text files in this encoding inside the block."""
    before = _ENCODING.get()
    read_as(encoding)
    try:
        yield
    finally:
        _ENCODING.set(before)


def recoded(name: str, stream: Any) -> Any:
    """A stream of text as UTF-8, whatever encoding `read_as` named."""
    encoding = _ENCODING.get()
    return stream if encoding == "utf-8" else io.BufferedReader(_Recoded(name, stream, encoding), 1 << 16)


def decoded(content: bytes) -> str:
    """The text of a whole file, in the encoding that `read_as` named; a `ValueError` says what is wrong."""
    encoding = _ENCODING.get()
    try:
        return content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except UnicodeDecodeError as error:
        found = f"found byte 0x{error.object[error.start]:02x} at offset {error.start}"
        kind, expected = (BAD_UTF8, "UTF-8") if encoding == "utf-8" else ("bad encoding", encoding)
        raise ValueError(f"{kind}: {found}, expected {expected}") from None


class _Recoded(io.RawIOBase):
    """A stream of text in another encoding, as UTF-8."""

    def __init__(self, name: str, stream: io.BufferedIOBase, encoding: str) -> None:
        self._name, self._stream, self._rest = name, stream, b""
        self._decoder, self._encoding = codecs.getincrementaldecoder(encoding)(), encoding

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ended = False
        while not self._rest and not ended:
            content = self._stream.read(1 << 14)
            ended = not content
            try:
                self._rest = self._decoder.decode(content, ended).encode("utf-8", "replace")
            except UnicodeDecodeError as error:
                wrong = f"found byte 0x{error.object[error.start]:02x}, which is not {self._encoding}"
                raise UserError(f"{self._name}: {wrong}; name another --encoding") from None
        content, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(content)] = content
        return len(content)


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
    if ending in CONVERT:
        raise UserError(f"{path}: a file that ends in {ending} is no table that is read; {CONVERT[ending]}")
    if ending in FORMATS or (not is_address(path) and (not place.exists() or place.is_dir())):
        return FORMATS.get(ending, "tsv")  # opening it says what is wrong with a file that is not there
    return None


def guess(path: str, first: bytes) -> str:
    """The format of a file whose name does not tell it, by its first line."""
    line = first.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip("\r\n")
    for kind, is_it in (
        ("jsonl", line.startswith("{")),
        ("json", line.lstrip().startswith("[")),
        ("bars", BARS in line),
        ("fasttext", line.startswith(LABEL_MARK)),
        ("tsv", "\t" in line),
        ("csv", len(names := line.split(",")) > 1 and all(NAME.fullmatch(name.strip()) for name in names)),
    ):
        if is_it:
            return kind
    place = Path(path)
    if path == "-" or place.is_fifo() or place.is_char_device():
        return "tsv"
    ending = ending_of(path)
    aligned = "; the sides of aligned files are given with --source and --target" if len(ending) == 3 else ""
    raise UserError(f"{path}: found the ending {ending!r}; expected {', '.join(FORMATS)}, or these with .gz{aligned}")


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
    if head in (b"\xff\xfe", b"\xfe\xff") and _ENCODING.get() == "utf-8":
        raise UserError(
            f"{name_of(path)}: found UTF-16 text; expected UTF-8, so save it as UTF-8, or --encoding utf-16"
        )
    stream: Any = stack.enter_context(io.BufferedReader(_Rejoined(head, raw), 1 << 16))
    if head == b"\x1f\x8b":
        stream = stack.enter_context(gzip.GzipFile(fileobj=stream))
    return recoded(name_of(path), stream)


def lines_of(path: str) -> Iterator[Line]:
    """The lines of a file. Only ``\\n`` ends one: U+2028, form feeds and the like are text."""
    number = 0
    with opening(path, lambda: number), ExitStack() as stack:
        stream = open_unpacked(path, stack)
        while content := stream.readline(LINE_LIMIT + 1):
            number += 1
            length = len(content)
            if content.endswith(b"\n"):
                yield Line(number, content[:-1], length - 1)
            elif length <= LINE_LIMIT:
                yield Line(number, content, length)
            else:
                yield Line(number, b"", length + _skip_line(name_of(path), stream))


@contextmanager
def opening(path: str, lines: Callable[[], int]) -> Iterator[None]:
    """What goes wrong in the block with a file that is opened there is a `UserError`. ``lines`` were read before."""
    name = name_of(path)
    try:
        yield
    except EOFError:
        number = lines()
        what = f"is a gzip file cut short after line {number}; copy or download it again"
        raise DamagedError(name, what, number) from None
    except (gzip.BadGzipFile, zlib.error) as error:
        number = lines()
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


def _skip_line(name: str, stream: io.BufferedIOBase) -> int:
    """Read to the end of the line, and say how many bytes of it were left."""
    length = 0
    while piece := stream.readline(1 << 16):
        length += len(piece)
        if length > MOST_SKIPPED:
            raise UserError(f"{name}: a line has more than {MOST_SKIPPED:,} bytes; expected text")
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
        return "", f"{BAD_UTF8}: found byte 0x{byte:02x} at offset {error.start} of line {line.number}, expected UTF-8"
    if line.number == 1:
        text = text.removeprefix("\ufeff")
    return text.removesuffix("\r"), None


def tsv_records(lines: Iterable[Line]) -> Iterator[TableRecord]:
    """No quoting: a quotation mark is text, as in the corpora that come as TSV."""
    for line in lines:
        text, problem = decode(line)
        yield TableRecord(line.number, text.split("\t"), problem)


def bar_records(lines: Iterable[Line]) -> Iterator[TableRecord]:
    """Cells with ``|||`` between them, as aligners read sentences; below names, of which such a file has none."""
    yield TableRecord(0, ["source", "target"], None)
    for line in lines:
        text, problem = decode(line)
        yield TableRecord(line.number, [cell.strip() for cell in text.split(BARS.strip())], problem)


def fasttext_records(lines: Iterable[Line]) -> Iterator[TableRecord]:
    """Labels, each with ``__label__`` in front, and a text; several labels have ``|`` between them."""
    yield TableRecord(0, ["label", "text"], None)
    for line in lines:
        text, problem = decode(line)
        words = text.split(" ")
        count = next((place for place, word in enumerate(words) if not word.startswith(LABEL_MARK)), len(words))
        labels = "|".join(word.removeprefix(LABEL_MARK) for word in words[:count])
        yield TableRecord(line.number, [labels, " ".join(words[count:])], problem)


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
    """As RFC 4180 says; a quote that is never closed spoils one line. Where the first line has no comma, semicolons or
    tabs are between the cells, as spreadsheets write them in some countries."""
    first = list(itertools.islice(lines, 1))
    sign = next((sign for sign in ",;\t" if first and sign.encode() in first[0].content), ",")
    feed = _CsvFeed(itertools.chain(first, lines))
    reader = csv.reader(feed, delimiter=sign, strict=True)  # it also limits a field to `csv.field_size_limit`
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
