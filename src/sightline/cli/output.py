"""What commands print: JSON, tables, a progress bar. Nothing here imports torch."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text


def print_json(data: Mapping[str, Any]) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


def print_table(names: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> None:
    """A table without lines; long cells are folded. A pipe is wide enough for a metric's signature on one line."""
    table = Table(*(Column(name, overflow="fold") for name in names), box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))  # brackets are not markup
    Console(width=None if sys.stdout.isatty() else 160).print(table)


@contextmanager
def progress_bar(label: str, total: int | None, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on standard error if that is a terminal; yields a function of the number of items just done."""
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    disabled = hidden or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=disabled) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.update(task, advance=count)
