"""Lines in and lines out: blocks of an input file, and predictions written in its order, by one process or several."""

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
from sightline.errors import UserError
from sightline.files import place_of
from sightline.tasks.run import Run
from sightline.training.ranks import Ranks

T = TypeVar("T")
MOST_NAMED = 20  # items that could not be read
BLOCK = 512  # lines predicted together: enough to sort by length, few enough to stream


@dataclass(frozen=True)
class Lines:
    """Where the lines come from: a file (- is standard input) or the texts themselves."""

    path: str | None = None
    texts: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.path is not None and self.texts:
            raise UserError("give --input or --text, not both")
        if self.file is not None and not self.file.is_file():
            raise UserError(f"there is no file {self.path}")

    @property
    def file(self) -> Path | None:
        return None if self.path in (None, "-") else Path(str(self.path))

    @property
    def is_json(self) -> bool:
        return self.path is not None and self.path.lower().endswith((".jsonl", ".ndjson"))

    def blocks(self) -> Iterator[tuple[list[str], int]]:
        """Some lines at a time, and how many bytes of the file they are."""
        reading = self._read()
        while some := list(itertools.islice(reading, BLOCK)):
            yield [line for line, _ in some], sum(size for _, size in some)

    def _read(self) -> Iterator[tuple[str, int]]:
        if self.texts:
            yield from ((text, 0) for text in self.texts)
            return
        name = "standard input" if self.file is None else self.path
        with contextlib.nullcontext(sys.stdin.buffer) if self.file is None else self.file.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                try:
                    yield line.decode("utf-8").rstrip("\n").removesuffix("\r"), len(line)
                except UnicodeDecodeError as error:
                    byte = line[error.start]
                    raise UserError(
                        f"{name}, line {number}: byte {error.start} is 0x{byte:02x}, which is not UTF-8"
                    ) from None


def write_predictions(
    lines: Lines,
    blocks: Iterable[tuple[list[T], int]],
    say: Callable[[list[T], int], Iterable[str]],
    out: Path | None,
    finish: Callable[[], None] = lambda: None,
) -> None:
    """What is said of each block, in the order of the input; ``say`` gets a block and its number.

    What ``finish`` raises at the end leaves a file that was there before as it was.

    Of several processes (`torchrun`), each takes every n-th block, and the first one writes.
    """
    ranks = Ranks.join()
    if ranks.count > 1 and lines.path == "-":
        raise UserError("several processes cannot share standard input; give a file as --input")
    numbered = enumerate(blocks)
    stream: IO[str]
    with (
        writing(out) if ranks.is_first else open(os.devnull, "w") as stream,  # the others say nothing
        line_progress(lines, out, ranks.is_first) as advance,
    ):
        while some := list(itertools.islice(numbered, ranks.count)):
            mine = list(say(some[ranks.rank][1][0], some[ranks.rank][0])) if ranks.rank < len(some) else []
            for said in ranks.to_first(mine):
                for line in said:
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
def line_progress(lines: Lines, out: Path | None, wanted: bool = True) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error where somebody sees it and the predictions do not run through it."""
    hidden = (out is None and sys.stdout.isatty()) or not wanted
    if lines.file is None or hidden or not sys.stderr.isatty():
        yield lambda count, size: None
        return
    done, started = 0, time.perf_counter()
    console = Console(stderr=True)
    with Progress(BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=lines.file.stat().st_size)

        def advance(count: int, size: int) -> None:
            nonlocal done
            done += count
            bar.advance(task, size)

        yield advance
    seconds = time.perf_counter() - started
    print(f"{done:,} lines, {done / seconds:.1f} a second", file=sys.stderr)


# Items to predict or to view: lines of a file or of the command line, or files such as images.


Block = tuple[list[Any], int]  # items, and how many bytes of the file they are


def blocks_of(run: Run, lines: Lines, files: Sequence[Path], taken: set[str] | None = None) -> Iterator[Block]:
    """The items that a command line names, some at a time; files that are yet to be read are added to ``taken``."""
    if run.input.reads_files:
        paths = _paths(run, lines, files)
        if taken is not None:
            taken |= set(map(place_of, paths))
        step = run.input.at_once
        starts = range(0, len(paths), step)
        return (([run.input.item(path) for path in paths[start : start + step]], 0) for start in starts)
    if files:
        raise UserError(f"{run.name} reads {run.input.noun}, and --image is for runs that read images; leave it out")
    return run.input.joined(lines) if run.input.joins_lines else _parsed(run, lines)


def _paths(run: Run, lines: Lines, files: Sequence[Path]) -> list[Path]:
    noun = run.input.noun
    if lines.texts:
        raise UserError(f"{run.name} reads {noun}, and --text is for runs that read texts; name {noun} with --image")
    if Ranks.is_launched():  # which of them could not be read, and names of files beside them, are known to one process
        raise UserError(f"several processes were started, and {noun} are predicted by one; leave the launcher out")
    return run.input.paths(files, lines.path)


def _parsed(run: Run, lines: Lines) -> Iterator[Block]:
    number = 0
    for block, size in lines.blocks():
        items = []
        for line in block:
            number += 1
            items.append(run.input.parse(line, number, lines.is_json))
        yield items, size


def items_of(run: Run, lines: Lines, files: Sequence[Path], most: int) -> list[Any]:
    """The items to view: at most so many and one more, without empty lines."""
    items: list[Any] = []
    for some, _ in blocks_of(run, lines, files):
        items += [one for one in some if run.input.label(one).strip()]
        if len(items) > most:
            break
    return items
