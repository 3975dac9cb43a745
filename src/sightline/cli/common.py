"""Functions that several commands use."""

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from sightline.errors import UserError
from sightline.files import check_writable, whole_file
from sightline.kernels.allocator import keep_memory
from sightline.machine import set_threads
from sightline.tasks.run import Run
from sightline.training.folder import CHECKSUMS, METRICS


def set_up(threads: int | None) -> None:
    """Set memory and threads, before torch allocates."""
    keep_memory()
    set_threads(threads)


def load_run(run: Path) -> Run:
    """A run, with a note on standard error if its training has not ended."""
    loaded = Run.load(run)
    say_unfinished(run, loaded.about or {})
    return loaded


def say_unfinished(run: Path, about: dict[str, Any]) -> None:
    """Note on standard error that the training of a run has not ended."""
    if not (run / CHECKSUMS).exists() and run.parent.name != "checkpoints":
        trained = (run / METRICS).exists() or about.get("weights") != "untrained"  # written with the best weights
        weights = "these are its best weights so far" if trained else "its weights are still the initial ones"
        print(f"sightline: the training of {run} has not ended; {weights}", file=sys.stderr)


@contextlib.contextmanager
def spelling(options: Iterable[str]) -> Iterator[None]:
    """Write the names of options in errors as on the command line: --batch-tokens, not batch_tokens as in Python."""
    try:
        yield
    except UserError as error:
        names = rf"(?<![-\w])({'|'.join(options) or '-'})(?=,| is | above | and | do | are |$)"
        sentence = re.sub(names, lambda name: f"--{name[0].replace('_', '-')}", str(error))
        raise UserError(sentence, exit_code=error.exit_code) from None


@contextlib.contextmanager
def writing(out: Path | None) -> Iterator[IO[str]]:
    """Standard output, or a file that is written atomically."""
    if out is None:
        yield sys.stdout
        return
    with whole_file(out) as part, part.open("w", encoding="utf-8", newline="\n") as stream:
        yield stream


def check_ending(path: Path, endings: tuple[str, ...]) -> None:
    """Before the long work: check that the file has a known format and can be written."""
    if path.suffix.lower() not in endings:
        raise UserError(f"--out is {path}; expected a name that ends in {' or '.join(endings)}")
    check_writable(path.parent)
