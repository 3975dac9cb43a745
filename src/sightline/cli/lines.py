"""Items from an input file in blocks, and predictions as lines in its order, by one process or several."""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

from sightline.cli.common import writing
from sightline.cli.options import FILE_OPTIONS
from sightline.data.made_names import read_name
from sightline.data.tables import ENCODING_RULE, recoded
from sightline.errors import UserError
from sightline.files import place_of
from sightline.synthetic.made import is_made
from sightline.tasks.made_items import made_items
from sightline.tasks.run import Run
from sightline.training.ranks import Ranks

T = TypeVar("T")
MOST_NAMED = 20  # items that could not be read
BLOCK = 512  # lines predicted together: enough to sort by length, few enough to stream


@dataclass(frozen=True)
class Lines:
    """The source of lines: a file (- is standard input), texts of the command line, or made data by its name."""

    path: str | None = None
    texts: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.path is not None and self.texts:
            raise UserError("give --input or --text, not both")
        if self.file is not None and not self.file.is_file():
            raise UserError(f"there is no file {self.path}")

    @property
    def file(self) -> Path | None:
        return None if self.path in (None, "-") or self.is_made else Path(str(self.path))

    @property
    def is_made(self) -> bool:
        return is_made(self.path)

    @property
    def whole_size(self) -> int | None:
        """Bytes of the file, or items of made data; None if unknown."""
        if self.is_made:
            return read_name(str(self.path)).rows
        return None if self.file is None else self.file.stat().st_size

    def refuse(self, **given: object) -> None:
        """Refuse options that say how a file is read, beside made data."""
        for name, value in given.items():
            if self.is_made and value is not None:
                raise UserError(f"give --input {self.path} or --{name}, not both")

    @property
    def is_json(self) -> bool:
        return self.path is not None and self.path.lower().endswith((".jsonl", ".ndjson"))

    def blocks(self) -> Iterator[tuple[list[str], int]]:
        """Blocks of lines, each with its number of bytes in the file."""
        reading = self._read()
        while some := list(itertools.islice(reading, BLOCK)):
            yield [line for line, _ in some], sum(size for _, size in some)

    def _read(self) -> Iterator[tuple[str, int]]:
        if self.is_made:
            raise UserError(f"{self.path} is for runs that were trained on made data")
        if self.texts:
            yield from ((text, 0) for text in self.texts)
            return
        name = "standard input" if self.file is None else self.path
        with contextlib.nullcontext(sys.stdin.buffer) if self.file is None else self.file.open("rb") as stream:
            for number, line in enumerate(recoded(str(name), stream), start=1):
                try:
                    yield line.decode("utf-8").rstrip("\n").removesuffix("\r"), len(line)
                except UnicodeDecodeError as error:
                    byte = line[error.start]
                    wrong = f"{name}, line {number}: byte {error.start} is 0x{byte:02x}, which is not UTF-8"
                    raise UserError(f"{wrong}; {ENCODING_RULE}") from None


def write_predictions(
    lines: Lines,
    blocks: Iterable[tuple[list[T], int]],
    predict: Callable[[list[T], int], Iterable[str]],
    out: Path | None,
    finish: Callable[[], None] = lambda: None,
) -> None:
    """Write the lines of each block in the order of the input; ``predict`` gets a block and its number.

    An error that ``finish`` raises at the end leaves an existing file unchanged. Of several processes (`torchrun`),
    each takes every n-th block, and the first one writes.
    """
    ranks = Ranks.join()
    if ranks.count > 1 and lines.path == "-":
        raise UserError("several processes cannot share standard input; give a file as --input")
    numbered = enumerate(blocks)
    stream: IO[str]
    with (
        writing(out) if ranks.is_first else open(os.devnull, "w") as stream,
        line_progress(lines, out, ranks.is_first) as advance,
    ):
        while some := list(itertools.islice(numbered, ranks.count)):
            mine = list(predict(some[ranks.rank][1][0], some[ranks.rank][0])) if ranks.rank < len(some) else []
            for line in itertools.chain.from_iterable(ranks.to_first(mine)):
                print(line, file=stream)
            stream.flush()
            for _, (block, size) in some:
                advance(len(block), size)
        finish()


def say_bad(bad: Mapping[str, str], noun: str) -> None:
    """Name on standard error the items that could not be read."""
    for name, reason in list(bad.items())[:MOST_NAMED]:
        print(f"sightline: {name}: {reason}", file=sys.stderr)
    if len(bad) > MOST_NAMED:
        print(f"sightline: and {len(bad) - MOST_NAMED:,} more {noun} that could not be read", file=sys.stderr)


@contextlib.contextmanager
def line_progress(lines: Lines, out: Path | None, shown: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, if that is a terminal to which no predictions are written."""
    hidden = (out is None and sys.stdout.isatty()) or not shown
    total = lines.whole_size
    if total is None or hidden or not sys.stderr.isatty():
        yield lambda count, size: None
        return
    done, started = 0, time.perf_counter()
    console = Console(stderr=True)
    with Progress(BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=total)

        def advance(count: int, size: int) -> None:
            nonlocal done
            done += count
            bar.advance(task, size)

        yield advance
    seconds = time.perf_counter() - started
    print(f"{done:,} {'items' if lines.is_made else 'lines'}, {done / seconds:.1f} per second", file=sys.stderr)


def named_files(run: Run, files: Mapping[str, Sequence[Path]]) -> Sequence[Path]:
    """The files of the option that is for this run; others are refused."""
    column = run.input.column if run.input.reads_files else None
    for option in files:
        if files[option] and option != column:
            instead = "leave it out" if column is None else f"use --{column}"
            what = f"--{option} is for runs that read {FILE_OPTIONS[option]}"
            raise UserError(f"{run.name} reads {run.input.noun}, and {what}; {instead}")
    return files.get(column or "", ())


ItemBlock = tuple[list[Any], int]  # items, and their number of bytes in the file (of made data: of items)


def blocks_of(
    run: Run, lines: Lines, files: Sequence[Path], taken: set[str] | None = None, count: int | None = None
) -> Iterator[ItemBlock]:
    """The items that a command line names, in blocks; the paths of files to read are added to ``taken``. Of made data
    there are ``count``, unless its name says how many."""
    if lines.is_made:
        if files:
            raise UserError(f"give --input {lines.path} or --{run.input.column}, not both")
        return ((some, len(some)) for some in made_items(run, str(lines.path), count))
    if run.input.reads_files:
        noun = run.input.noun
        if lines.texts:
            raise UserError(
                f"{run.name} reads {noun}, and --text is for runs that read texts; name {noun} with "
                f"--{run.input.column}"
            )
        if Ranks.is_launched():  # one process must know all unreadable files, and all names of files to write
            raise UserError(f"several processes were started, but {noun} are predicted by one; start a single process")
        paths = run.input.paths(files, lines.path)
        if taken is not None:
            taken |= {place_of(path) for path in paths if isinstance(path, Path)}
        step = run.input.at_once
        starts = range(0, len(paths), step)
        return (([run.input.item(path) for path in paths[start : start + step]], 0) for start in starts)
    return run.input.joined(lines) if run.input.joins_lines else _parsed(run, lines)


def _parsed(run: Run, lines: Lines) -> Iterator[ItemBlock]:
    numbers = itertools.count(1)
    for block, size in lines.blocks():
        yield [run.input.parse(line, next(numbers), lines.is_json) for line in block], size


def items_of(run: Run, lines: Lines, files: Sequence[Path], most: int) -> list[Any]:
    """The items to view, without empty lines; reads at least one more than ``most`` if there are more.

    Made data is one item, unless its name says how many (``count=``).
    """
    items: list[Any] = []
    for some, _ in blocks_of(run, lines, files, count=1):
        items += [one for one in some if run.input.label(one).strip()]
        if len(items) > most:
            break
    return items
