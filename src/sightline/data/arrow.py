"""Cells of Parquet files, and of Arrow's own: Feather, and what `datasets` saves.

Files are not trusted. A few bytes of Parquet may say a long text a million times, so a text that repeats is in memory
once, and the sizes that a file states are checked before anything is read.
"""

import importlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sightline.data.shards import DamagedError, is_address, one_line, open_bytes
from sightline.data.tables import LINE_LIMIT, NO_FILE, lines_of
from sightline.errors import UserError

ROWS = 128  # that are in memory together
MOST_BYTES, MOST_VALUES = 1 << 30, 100_000_000  # of one column in a group of rows of Parquet
NESTED = "translation"  # Hugging Face has pairs in a column of this name, which holds a column for each language


class _BadCell(NamedTuple):
    problem: str


def arrow_cells(
    name: str, kind: str, choose: Callable[[Sequence[str]], Sequence[str]]
) -> Iterator[tuple[tuple[Any, ...], str | None]]:
    """The values of each row in the columns that are chosen, or what is wrong with the row."""
    if not is_address(name) and not Path(name).is_file():
        next(lines_of(name), None)  # says what is wrong with it, as for any file
    try:
        arrow = importlib.import_module("pyarrow")
        importlib.import_module("pyarrow.compute")
        reader = importlib.import_module("pyarrow.parquet" if kind == "parquet" else "pyarrow.ipc")
    except ImportError:
        raise UserError(f"{name}: reading {kind.title()} needs pyarrow; pip install 'sightline[parquet]'") from None
    number, rows = 0, None
    with _reading(name, kind, arrow, lambda: (number, rows)), ExitStack() as stack:
        place = stack.enter_context(open_bytes(name)) if is_address(name) else name
        if kind == "parquet":
            table = stack.enter_context(reader.ParquetFile(place))
            rows, schema = table.metadata.num_rows, table.schema_arrow
        else:
            table = _opened_arrow(arrow, reader, place, stack)
            schema = table.schema
        paths = _paths(arrow, schema)
        asked = [paths[column] for column in choose(list(paths))]
        batches = _parquet_batches(name, reader, place, table, asked) if kind == "parquet" else _arrow_batches(table)
        for batch in batches:
            lists = [_values(arrow, _column(batch, path), path[-1]) for path in asked]
            for values in zip(*lists, strict=True):
                number += 1
                problem = next((one.problem for one in values if isinstance(one, _BadCell)), None)
                yield values, problem


@contextmanager
def _reading(name: str, kind: str, arrow: Any, counts: Callable[[], tuple[int, int | None]]) -> Iterator[None]:
    """What goes wrong in the block is a `UserError`; ``counts`` are the rows read, and all that there are."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{name}: {NO_FILE}") from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of what stands there
            raise UserError(f"{name} cannot be read: {error.strerror or one_line(error)}") from None
        if isinstance(error, arrow.ArrowException | OSError | UnicodeDecodeError):  # the last: names of columns
            number, rows = counts()
            what = f"is no {kind.title()} file that can be read: {one_line(error)}"
            raise DamagedError(name, what, number, None if rows is None else rows - number) from None
        if not is_address(name):
            raise
        raise UserError(f"{name} cannot be read: {one_line(error)}") from None


def _opened_arrow(arrow: Any, reader: Any, place: Any, stack: ExitStack) -> Any:
    """A file with an index, or a stream, as `datasets` saves them."""
    source = stack.enter_context(arrow.memory_map(place)) if isinstance(place, str) else place
    try:
        return stack.enter_context(reader.open_file(source))
    except arrow.ArrowInvalid:
        source.seek(0)
        return stack.enter_context(reader.open_stream(source))


def _arrow_batches(table: Any) -> Iterator[Any]:
    whole = map(table.get_batch, range(table.num_record_batches)) if hasattr(table, "get_batch") else table
    for batch in whole:
        batch.validate(full=True)  # nothing has checked where its cells begin and end
        yield from (batch.slice(start, ROWS) for start in range(0, batch.num_rows, ROWS))


def _parquet_batches(name: str, reader: Any, place: Any, table: Any, paths: Sequence[tuple[str, ...]]) -> Iterator[Any]:
    """Some rows at a time. A few bytes may say a text a million times: what repeats is read once, as a dictionary."""
    about, asked = table.metadata, [".".join(path) for path in dict.fromkeys(paths)]
    texts = []
    for group, column in itertools.product(range(about.num_row_groups), range(about.num_columns)):
        chunk = about.row_group(group).column(column)
        if not f"{chunk.path_in_schema}.".startswith(tuple(f"{one}." for one in asked)):
            continue
        if chunk.total_uncompressed_size > MOST_BYTES or chunk.num_values > MOST_VALUES:
            raise UserError(
                f"{name}: a part of the column {chunk.path_in_schema!r} has {chunk.total_uncompressed_size:,} bytes "
                f"and {chunk.num_values:,} values; expected at most {MOST_BYTES:,} and {MOST_VALUES:,}, so write "
                "the file with smaller row groups"
            )
        if chunk.physical_type == "BYTE_ARRAY":
            texts.append(chunk.path_in_schema)
    if not isinstance(place, str):
        place.seek(0)
    with reader.ParquetFile(place, read_dictionary=list(dict.fromkeys(texts))) as whole:
        yield from whole.iter_batches(batch_size=ROWS, columns=asked)


def _paths(arrow: Any, schema: Any) -> dict[str, tuple[str, ...]]:
    """The names of columns and where they are: a column of `NESTED` texts is as many columns."""
    paths: dict[str, tuple[str, ...]] = {}
    for column in schema:
        nested = column.name == NESTED and arrow.types.is_struct(column.type)
        for inner in column.type if nested else ():
            paths.setdefault(inner.name, (column.name, inner.name))
        if not nested:
            paths.setdefault(column.name, (column.name,))
    return paths


def _column(batch: Any, path: tuple[str, ...]) -> Any:
    column = batch.column(path[0])
    return column if len(path) == 1 else column.flatten()[[one.name for one in column.type].index(path[1])]


def _values(arrow: Any, array: Any, column: str) -> list[Any]:
    """The cells of a column; those of a dictionary are in memory once, and one that is too long is none."""
    types, kind = arrow.types, array.type
    if types.is_dictionary(kind):
        words = _values(arrow, array.dictionary, column)
        damaged = _BadCell(f"damaged cell: found no text of that number in {column!r}")  # nothing has checked them
        places = array.indices.to_pylist()
        return [None if at is None else words[at] if 0 <= at < len(words) else damaged for at in places]
    if types.is_list(kind) or types.is_large_list(kind):
        borders = array.offsets.to_pylist()
        spans = list(zip(array.is_valid().to_pylist(), borders, borders[1:], strict=False))
        whole = [] if any(end - start > LINE_LIMIT for _, start, end in spans) else _values(arrow, array.values, column)
        return [
            _list_cell(arrow, array.values, whole, start, end, column) if there else None for there, start, end in spans
        ]
    if types.is_struct(kind):
        return _struct_cells(arrow, array, column)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        lengths = arrow.compute.binary_length(array)
        if (arrow.compute.max(lengths).as_py() or 0) > LINE_LIMIT:
            return [_one(*both, column) for both in zip(array, lengths.to_pylist(), strict=True)]
    try:
        return array.to_pylist()
    except UnicodeDecodeError:  # somewhere: look for the rows
        return [_one(cell, None, column) for cell in array]


def _struct_cells(arrow: Any, array: Any, column: str) -> list[Any]:
    columns = {one.name: _values(arrow, inner, column) for one, inner in zip(array.type, array.flatten(), strict=True)}
    cells: list[Any] = []
    for number, there in enumerate(array.is_valid().to_pylist()):
        cell = {name: values[number] for name, values in columns.items()}
        bad = next((value for value in cell.values() if isinstance(value, _BadCell)), cell)
        cells.append(bad if there else None)
    return cells


def _one(cell: Any, length: int | None, column: str) -> Any:
    if length is not None and length > LINE_LIMIT:
        return _BadCell(f"cell too long: found {length:,} bytes in {column!r}, expected at most {LINE_LIMIT:,}")
    try:
        return cell.as_py()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        return _BadCell(f"bad UTF-8: found byte 0x{byte:02x} at offset {error.start} in {column!r}")


def _list_cell(arrow: Any, array: Any, whole: list[Any], start: int, end: int, column: str) -> Any:
    """A list out of the ``whole`` values, or out of the array where one of its lists is too long to read them all."""
    size = end - start
    if size <= LINE_LIMIT:
        values = whole[start:end] if whole else _values(arrow, array.slice(start, size), column)
        bad = next((value for value in values if isinstance(value, _BadCell)), None)
        size = sum(len(value) if isinstance(value, str | bytes) else 1 for value in values)
        if bad is not None or size <= LINE_LIMIT:
            return bad or values
    return _BadCell(f"cell too long: found a list of {size:,} in {column!r}, expected at most {LINE_LIMIT:,}")
