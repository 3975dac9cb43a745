"""What the commands share."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from sightline.errors import UserError
from sightline.files import whole_file
from sightline.kernels.allocator import keep_memory
from sightline.machine import set_threads
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
