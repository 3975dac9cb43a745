"""What the commands share."""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text as Plain

from sightline.data.checking import Report
from sightline.errors import UserError
from sightline.files import check_writable, whole_file
from sightline.kernels.allocator import keep_memory
from sightline.machine import set_threads
from sightline.metrics import Resampled
from sightline.tasks.run import Run
from sightline.tasks.task import Task
from sightline.training.folder import CHECKSUMS, METRICS


def set_up(threads: int | None) -> None:
    """Memory and threads, before torch allocates."""
    keep_memory()
    set_threads(threads)


def load_run(run: Path, task: Task | None = None) -> Run:
    """A trained model, with a word on standard error when its training has not ended."""
    found = Run.load(run, task)
    say_unfinished(run, found.about or {})
    return found


def say_unfinished(run: Path, about: dict[str, Any]) -> None:
    """A word on standard error when the training of a run has not ended."""
    if not (run / CHECKSUMS).exists() and run.parent.name != "checkpoints":
        trained = (run / METRICS).exists() or about.get("weights") != "untrained"  # written with the best weights
        weights = "these are its best weights so far" if trained else "its weights are still those it began with"
        print(f"sightline: the training of {run} has not ended; {weights}", file=sys.stderr)


@contextlib.contextmanager
def spelling(options: Iterable[str]) -> Iterator[None]:
    """Errors name these options as they are written here: --batch-tokens, and not batch_tokens as in Python."""
    try:
        yield
    except UserError as error:
        names = rf"(?<![-\w])({'|'.join(options) or '-'})(?=,| is | above | and | do | are |$)"
        said = re.sub(names, lambda name: f"--{name[0].replace('_', '-')}", str(error))
        raise UserError(said, exit_code=error.exit_code) from None


@contextlib.contextmanager
def writing(out: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that is there when it is whole."""
    if out is None:
        yield sys.stdout
        return
    with whole_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream


# What `evaluate` and `compare` of several tasks share: what is checked before, and what is printed and written.


WHAT_P_IS = "p: the share of resamples in which whichever of a run and the first scores higher overall does not."


def check_ending(path: Path, endings: tuple[str, ...]) -> None:
    """Before the long work: that the file can be written, and what it would hold."""
    if path.suffix.lower() not in endings:
        raise UserError(f"--out is {path}; expected a name that ends in {' or '.join(endings)}")
    check_writable(path.parent)


def check_rows_wanted(errors: int, out: Path | None) -> None:
    """Before the long work: how many of the worst are shown, and whether all can be written."""
    if errors < 0:
        raise UserError(f"--errors is {errors}; it must be at least 0")
    if out is not None:
        check_ending(out, (".jsonl",))


@contextmanager
def predicting(total: int) -> Iterator[Any]:
    """A bar on standard error, where that is a terminal. Gives what to call with the number of new predictions."""
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.update(task, advance=count)


def console() -> Console:
    """Standard output; where it is no terminal, wide enough for a signature in one piece."""
    return Console(width=None if sys.stdout.isatty() else 160)


def plain_table(*names: str) -> Table:
    """Without lines; what is too long for the terminal goes on below instead of being cut."""
    return Table(*(Column(name, overflow="fold") for name in names), box=None, padding=(0, 2, 0, 0))


def say_left_out(report: Report) -> None:
    """What was left out, on standard error, because it changes what a score is a score of."""
    for line in report.left_out_lines():
        print(f"sightline: {line}", file=sys.stderr)


def write_rows(rows: Iterable[Mapping[str, Any]], out: Path | None) -> None:
    """One JSON object a line, where a file was asked for."""
    if out is None:
        return
    with whole_file(out) as part, part.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def print_json(data: Mapping[str, Any]) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False))


def print_resampled(
    found: Mapping[str, Mapping[str, Resampled]], shown: Callable[[str], str], rows: str, samples: int, seed: int
) -> None:
    """Metric by metric, each run beside the first; ``rows`` is what was drawn anew, and how many there are."""
    table = plain_table("metric", "run", "score", "95 % interval", "difference", "p")
    for metric, runs in found.items():
        for place, (name, one) in enumerate(runs.items()):
            low, high = one.interval
            table.add_row(
                "" if place else shown(metric),
                Plain(name),  # a name in brackets is no markup
                f"{one.value:.2f}",
                f"{low:.2f} – {high:.2f}",
                "" if one.difference is None else f"{one.difference:+.2f}",
                "" if one.p is None else f"{one.p:.3f}",
            )
    console().print(table)
    print(f"\n{rows}; paired bootstrap with {samples:,} resamples, seed {seed}.")
    print(WHAT_P_IS)
