"""Where rows come from: a file, a folder, shards, a pipe, or rows that a Python program holds."""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from sightline.data.columns import Columns, TableRow, choose_columns, named_columns, read_columns, unnested
from sightline.data.tables import listed, name_of, open_unpacked
from sightline.errors import UserError
from sightline.files import whole_file

if TYPE_CHECKING:
    from sightline.tasks.task import Column

ROWS = "the rows"  # what errors call rows that are no file's


@runtime_checkable
class DataFrame(Protocol):
    """What is read of a DataFrame of pandas or polars before its rows: that it has columns."""

    @property
    def columns(self) -> Iterable[object]: ...


@dataclass(frozen=True)
class Source:
    """Data by its name (``"-"`` is standard input), or ``held`` rows: dictionaries, or tuples in the columns' order.

    ``columns`` are the names to read, where they are not those that a task expects. ``options`` are those of the
    task's reader, such as the separator of several labels.
    """

    data: str | None = None
    columns: tuple[str, ...] | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    held: Iterable[object] | None = None

    @classmethod
    def of(cls, data: "RowsLike | None", columns: Sequence[str] | None = None, **options: object) -> "Source":
        """From what a Python program gives: a path, rows, a DataFrame of pandas or polars, a `datasets.Dataset`."""
        named = None if columns is None else tuple(columns)
        given = {name: value for name, value in options.items() if value is not None}
        if isinstance(data, cls):
            return data
        if isinstance(data, str | Path):
            return cls(str(data), named, given)
        if data is None:
            return cls(None, named, given)
        return cls(None, named, given, _held(data))

    @property
    def name(self) -> str:
        """What errors and model cards call the data: the names of files, not their folders."""
        if self.held is not None:
            return "rows given in Python"
        names = [one for one in (self.data, self.options.get("source"), self.options.get("target")) if one]
        return " and ".join("a pipe" if one == "-" else Path(str(one)).name for one in names)

    @property
    def is_empty(self) -> bool:
        """Whether the data is a file without a byte."""
        path = None if self.data is None else Path(self.data)
        return path is not None and path.is_file() and not path.stat().st_size

    def check_columns(self, columns: Sequence[str], optional: Sequence[str] = ()) -> None:
        """Refuse names of columns that are too few, too many or empty; of the columns, some are optional."""
        if self.columns is None or (0 <= len(columns) - len(self.columns) <= len(optional) and all(self.columns)):
            return
        given = ", ".join(map(repr, self.columns)) or "none"
        names = [f"{name} (optional)" if name in optional else name for name in columns]
        several = f"names of {', '.join(names[:-1])} and {names[-1]}"
        named = several if len(names) > 1 else f"name of the column {names[0]}"
        raise UserError(f"columns: found {given}; expected the {named}")

    def some(self, rows: Iterable[TableRow], problem: str) -> Iterator[TableRow]:
        """The rows of this data, of which there must be one; ``problem`` says of the data that there is none."""
        row = None
        for row in rows:
            yield row
        if row is None:
            raise UserError(f"{name_of(str(self.data or self.options.get('source')))} {problem}")

    def cells(self, columns: "Sequence[Column]") -> Iterator[TableRow]:
        """The rows that are held, as values in the order of a task's `Column`s."""
        number, names = 0, list[str]()
        least = sum(not column.optional for column in columns)
        for number, row in enumerate(self.held or (), start=1):
            problem, values = None, dict[str, object]()
            if isinstance(row, Mapping):
                row = unnested(row)
                names = names or _named(columns, list(map(str, row)), self.columns)
                of_columns = list(zip(names, columns, strict=True))
                missing = [name for name, column in of_columns if name not in row and not column.optional]
                if missing:
                    problem = f"missing field: found {listed(list(map(str, row)))}, expected {missing[0]!r}"
                values = {column.name: _plain(row.get(name)) for name, column in of_columns}
            elif isinstance(row, str) or not isinstance(row, Sequence):
                if len(columns) > 1:
                    problem = f"no row: found a {type(row).__name__}, expected a dictionary or a tuple"
                values = {columns[0].name: _plain(row)}
            elif not least <= len(row) <= len(columns):
                problem = f"wrong number of columns: found {len(row)}, expected {least}"
            else:
                values = dict(zip(_given(columns, len(row)), map(_plain, row), strict=True))
            yield TableRow(() if problem else tuple(values.get(one.name) for one in columns), ROWS, number, problem)
        if not number:
            raise UserError(f"there are no rows; expected {' and '.join(column.name for column in columns)}")


# What a Python program gives as data: a path, rows (mappings, or tuples in the columns' order), a table.
RowsLike: TypeAlias = str | Path | Source | DataFrame | Iterable[Mapping[str, object]] | Iterable[Sequence[object]]


def table_cells(source: Source, columns: "Sequence[Column]") -> Iterator[TableRow]:
    """The rows of a table (TSV, CSV, JSON lines, Parquet) that has these columns: what a task reads unless it says
    otherwise. Optional columns that the table does not have are None."""
    needed, optional = ([one for one in columns if one.optional is kind] for kind in (False, True))
    names = [one.name for one in needed]
    source.check_columns([one.name for one in columns], [one.name for one in optional])
    there: list[str] = []  # the columns that the values of a row are of

    def find(name: str, header: Sequence[str]) -> Columns:
        known = {one.strip().casefold() for one in header}
        there[:] = [*names, *(one.name for one in optional if known & {*one.all})]
        if source.columns is not None:
            there[:] = _given(columns, len(source.columns))
        of_needed, of_optional = ([one.all for one in kind] for kind in (needed, optional))
        return choose_columns(name, header, of_needed, source.columns, of_optional)

    nothing = f"has no rows: found an empty file or a header alone; expected {' and '.join(names)}"
    for row in source.some(read_columns(str(source.data), find), nothing):
        values = dict(zip(there, row.values, strict=False))
        yield row if row.problem else row._replace(values=tuple(values.get(one.name) for one in columns))


def _held(data: Any) -> Any:
    """Rows of a table of another package; they are read one by one, and may be read again."""
    if hasattr(data, "iter_rows") and hasattr(data, "columns"):  # polars
        return _Again(lambda: data.iter_rows(named=True))
    if hasattr(data, "itertuples") and hasattr(data, "columns"):  # pandas
        names = list(map(str, data.columns))
        return _Again(lambda: (dict(zip(names, row, strict=True)) for row in data.itertuples(index=False, name=None)))
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        kind = type(data).__name__
        raise UserError(f"data is a {kind}; expected a path, rows (dictionaries or tuples), or a DataFrame")
    return data


@dataclass(frozen=True)
class _Again:
    """Rows that can be read more than once."""

    begin: Any

    def __iter__(self) -> Iterator[Any]:
        return self.begin()


def _given(columns: Sequence[Any], count: int) -> list[str]:
    """The columns that so many values are of: where they are fewer, the last of the optional ones are missing."""
    spare = len(columns) - count
    missing = [column.name for column in columns if column.optional][-spare:] if spare > 0 else []
    return [column.name for column in columns if column.name not in missing]


def _named(columns: Sequence[Any], fields: Sequence[str], given: tuple[str, ...] | None) -> list[str]:
    """For each column the name by which these rows have it; a name of an optional column may be missing."""
    if given is not None:
        of_columns = dict(zip(_given(columns, len(given)), named_columns(ROWS, fields, given).needed, strict=False))
        return [of_columns.get(column.name, "" if column.optional else column.name) for column in columns]
    there = {name.strip().casefold(): name for name in reversed(fields)}
    names = []
    for column in columns:
        name = next((there[one] for one in column.all if one in there), None)
        if name is None and not column.optional:
            raise UserError(
                f"{ROWS}: found the fields {listed(fields)}; none of them is called {column.name!r}; "
                "name them with columns"
            )
        names.append(name or column.name)
    return names


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy as Python's own; a missing value of a table as None."""
    if hasattr(value, "tolist") and not isinstance(value, str | bytes):
        value = value.tolist()
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and value != value else value


def spool_pipe(source: Source, folder: Path) -> Source:
    """What comes from a pipe is kept in a file while it is prepared: readers may look at its beginning first."""
    if source.data != "-":
        return source
    with ExitStack() as stack:
        stream = open_unpacked("-", stack)
        first = stream.read(1)  # one byte tells JSON from a table
        path = folder / ("rows.jsonl" if first == b"{" else f"rows{source.options.get('pipe_ending', '.tsv')}")
        with whole_file(path) as part, part.open("wb") as file:
            file.write(first)
            shutil.copyfileobj(stream, file)
    return replace(source, data=str(path))
