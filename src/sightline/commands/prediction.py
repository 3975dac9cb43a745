"""Predict: one line in, one line out."""

import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn

from sightline.commands.common import load_run, set_up, writing
from sightline.data.checking import Limits
from sightline.errors import UserError
from sightline.tasks.engine import load_engine
from sightline.tasks.ensemble import Ensemble
from sightline.tasks.predictor import BATCH_TOKENS, Prediction, Predictor
from sightline.tasks.searching import SearchConfig
from sightline.training.ranks import Ranks

T = TypeVar("T")

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


@dataclass(frozen=True)
class Wanted:
    """How the outputs are searched for and written."""

    search: SearchConfig
    prefix: str = ""
    split: bool = False
    keep_unknown: bool = False
    batch_tokens: int = BATCH_TOKENS
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.search.best > 1 and not self.as_json:
            raise UserError("--best above 1 gives several outputs for one line; write them with --format jsonl")
        if self.search.best > 1 and self.split:
            raise UserError("--best above 1 and --split do not go together: every sentence has outputs of its own")
        if self.prefix and self.split:
            raise UserError("--prefix and --split do not go together: a text has several sentences")
        if self.batch_tokens < 1:
            raise UserError(f"--batch-tokens is {self.batch_tokens}; it must be at least 1")

    def predict(self, predictor: Predictor, texts: list[str], block: int) -> list[list[Prediction]]:
        """The outputs of a block of lines."""
        # Each block draws anew: the same seed would give the same draws again.
        search = replace(self.search, seed=(self.search.seed + block) % 2**63)
        how: dict[str, Any] = {"batch_tokens": self.batch_tokens, "keep_unknown": self.keep_unknown}
        if self.split:
            return [[one] for one in predictor.predict_documents(texts, **how, **asdict(search))]
        return predictor.search(texts, search, prefixes=[self.prefix] * len(texts), **how)

    def line(self, text: str, found: list[Prediction]) -> str:
        """What is written for a line of the input."""
        if not self.as_json:
            return found[0].text.replace("\n", " ")
        if self.search.best > 1:
            outputs = [{"text": one.text, "log_prob": one.log_prob, "score": one.score} for one in found]
            data: dict[str, Any] = {"source": text, "predictions": outputs}
        else:
            (one,) = found
            data = {"source": text, "prediction": one.text, "log_prob": one.log_prob, "score": one.score}
        return json.dumps(data, ensure_ascii=False)


def predict_command(
    run: Path,
    others: Sequence[Path],
    lines: Lines,
    wanted: Wanted,
    out: Path | None,
    threads: int | None,
    engine: Literal["sightline", "ctranslate2", "onnx"] = "sightline",
) -> None:
    """One prediction a line, in the order of the input; an empty line gives an empty line."""
    set_up(threads)
    if out is not None and out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    if engine != "sightline" and others:
        raise UserError("--ensemble runs on our own engine; leave out --engine")
    predictor: Predictor = load_run(run) if engine == "sightline" else load_engine(run, engine, threads)
    if others:
        predictor = Ensemble([predictor, *map(load_run, others)])
    warned = wanted.split

    def say(texts: list[str], number: int) -> list[str]:
        nonlocal warned
        warned = warned or _warn_of_long_lines(texts, number * BLOCK + 1)
        found = wanted.predict(predictor, texts, number)
        return [wanted.line(text, some) for text, some in zip(texts, found, strict=True)]

    write_predictions(lines, lines.blocks(), say, out)


def write_predictions(
    lines: Lines, blocks: Iterable[tuple[list[T], int]], say: Callable[[list[T], int], Iterable[str]], out: Path | None
) -> None:
    """What is said of each block, in the order of the input; ``say`` gets a block and its number.

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


def _warn_of_long_lines(texts: Sequence[str], first: int) -> bool:
    """Any length works, but not well: say so once."""
    longest = Limits().max_characters
    for number, text in enumerate(texts, start=first):
        if len(text) > longest:
            print(
                f"sightline: line {number:,} has {len(text):,} characters, more than training takes unless asked to; "
                f"--split predicts sentence by sentence",
                file=sys.stderr,
            )
            return True
    return False


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
