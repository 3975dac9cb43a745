"""From files of pairs to what training reads: checked, split, tokenised, stored."""

import gzip
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from sightline.data.checking import CheckedPairs, Limits, Report
from sightline.data.hashes import Distinct
from sightline.data.progress import counted
from sightline.data.reading import PairFiles, read_rows
from sightline.data.shuffled import drawn_share
from sightline.data.splitting import Overlap, key_of, overlap_of_hashes, split_hashes
from sightline.data.spool import Marks, Spool
from sightline.data.store import Corpus, write_blocks
from sightline.data.tokenise import Tokeniser, TokeniserConfig, train_tokenisers
from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.tasks.missing import Missing, count_missing
from sightline.tasks.trained_pairs import overlap_with_training  # noqa: F401 - others import it from here
from sightline.tasks.translator import SOURCE, TARGET

VALID = "valid.jsonl"
VOCABULARY_PAIRS = 1_000_000  # a vocabulary is learnt from no more than about so many
Pairs = Callable[[], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Prepared:
    """Tokenisers, the training corpus on the disk, and the validation pairs."""

    source: Tokeniser
    target: Tokeniser
    corpus: Corpus
    valid: list[tuple[str, str]]
    report: Report | None = None
    overlap: Overlap | None = None  # of validation pairs that were given with the training pairs
    missing: Missing | None = None  # what the vocabulary of an earlier run cannot write
    valid_report: Report | None = None
    learnt_from: int | None = None  # pairs, where the vocabulary was learnt from a part of them

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        if self.overlap is not None and (self.overlap.pairs or self.overlap.sources):
            found.append(
                f"of {self.overlap.evaluation:,} validation pairs, {self.overlap.pairs:,} stand in the training data "
                f"and {self.overlap.sources:,} have their source there: scores on them flatter"
            )
        if self.missing is not None:
            found += self.missing.lines()
        if self.learnt_from is not None:
            found.append(f"the vocabulary is learnt from {self.learnt_from:,} of the pairs, drawn at random")
        return found

    def summary(self) -> str:
        """One line of what is trained on."""
        return (
            f"{len(self.corpus):,} pairs to train on, {len(self.valid):,} to validate; "
            f"{self.source.words:,} source and {self.target.words:,} target tokens"
        )


def checked(files: PairFiles, limits: Limits) -> tuple[Pairs, list[Report]]:
    """Good pairs of the files, as often as asked for, and the report of each reading."""
    reports: list[Report] = []

    def pairs() -> Iterator[tuple[str, str]]:
        reading = CheckedPairs(read_rows(files), limits)
        reports.append(reading.report)
        return reading

    return pairs, reports


@dataclass(frozen=True)
class Preparation:
    """What decides how data becomes a corpus. With ``tokenisers``, those of an earlier run, none are learnt."""

    tokeniser: TokeniserConfig
    valid_share: float
    seed: int
    limits: Limits
    tokenisers: tuple[Tokeniser, Tokeniser] | None = None


def prepare(files: PairFiles, valid: PairFiles | None, how: Preparation, folder: Path) -> Prepared:
    """Check, split, tokenise and store the data under ``folder``. It is read once, whatever it is and wherever."""
    data, limits, key = folder / "data", how.limits, key_of(how.seed)
    valid_pairs, valid_report = [], None
    if valid is not None:
        valid_reading, valid_reports = checked(valid, limits)
        valid_pairs = list(valid_reading())
        valid_report = valid_reports[0]
    reading = CheckedPairs(read_rows(files), limits, duplicates=False)
    with Spool(data / ".spool", reading) as spool:
        hashes = spool.hashes(key)
        reading.report.duplicates = _repeated(hashes.pairs)
        marks = overlap = None
        if valid is None:
            split = split_hashes(hashes.sources, hashes.targets, how.valid_share)
            marks = spool.mark(split.train)
            valid_pairs = [(a, b) for a, b in spool.rows(spool.mark(split.valid))]
        else:
            overlap = overlap_of_hashes((hashes.sources, hashes.targets), valid_pairs, key)
        if not valid_pairs:
            raise UserError("there is no pair to validate on")
        learning = None if how.tokenisers else _to_learn_from(spool, marks, how.seed)
        source, target = how.tokenisers or _vocabularies(spool, learning or marks, how.tokeniser)
        with closing(spool.encoded(source, target, marks)) as blocks:
            write_blocks(data / "train", blocks)
        write_text(data / VALID, "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in valid_pairs))
        missing = count_missing(target, (b for _, b in spool.rows(marks))) if how.tokenisers else None
    return Prepared(
        source,
        target,
        Corpus.open(data / "train"),
        valid_pairs,
        reading.report,
        overlap,
        missing,
        valid_report,
        None if learning is None else learning.count,
    )


def _repeated(hashes: np.ndarray) -> int:
    """How many were there before."""
    seen, some = Distinct(), 1 << 18
    for start in range(0, len(hashes), some):
        seen.extend(hashes[start : start + some])
    return seen.count - seen.different()


def _to_learn_from(spool: Spool, marks: Marks | None, seed: int) -> Marks | None:
    """Pairs drawn at random, of those that are marked, where there are very many."""
    count = spool.count if marks is None else marks.count
    if count <= VOCABULARY_PAIRS:
        return None
    drawn = spool.mark(lambda start, end: drawn_share(start, end, VOCABULARY_PAIRS / count, seed))
    return drawn if marks is None else spool.both(marks, drawn)


def _vocabularies(spool: Spool, marks: Marks | None, config: TokeniserConfig) -> tuple[Tokeniser, Tokeniser]:
    def side(index: int) -> Callable[[], Iterator[str]]:
        total = spool.count if marks is None else marks.count
        stage = "learning the vocabulary"
        return lambda: (pair[index] for pair in counted(spool.rows(marks), stage, total))

    return train_tokenisers(side(0), side(1), config)


def prepared_before(folder: Path, dropout: float) -> Prepared:
    """What an earlier session prepared."""
    source, target = (Tokeniser.load(folder / name, dropout) for name in (SOURCE, TARGET))
    path = folder / "data" / VALID
    if not path.exists():
        raise UserError(f"{path} is missing: without its data the run cannot go on")
    try:
        valid = [_pair(json.loads(line)) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return Prepared(source, target, Corpus.open(folder / "data" / "train"), valid)


def _pair(row: Any) -> tuple[str, str]:
    if not isinstance(row, list) or len(row) != 2 or not all(isinstance(text, str) for text in row):
        raise ValueError(f"found {str(row)[:60]!r}, expected two texts")
    return row[0], row[1]


def keep_pipe(data: str, folder: Path) -> str:
    """A pipe can be read once, and preparing reads several times: what comes from a pipe is kept in a file first."""
    if data != "-":
        return data
    pipe = sys.stdin.buffer
    # Two bytes tell gzip, one tells JSON from a table; a pipe cannot be asked to go back.
    head = pipe.read(2)
    rest: Any = _Rejoined(head, pipe)
    stream: Any = gzip.GzipFile(fileobj=rest, mode="rb") if head == b"\x1f\x8b" else rest
    first = stream.read(1)
    path = folder / ("pairs.jsonl" if first == b"{" else "pairs.tsv")
    with whole_file(path) as part, part.open("wb") as file:
        file.write(first)
        shutil.copyfileobj(stream, file)
    return str(path)


class _Rejoined:
    """A stream with the bytes that were read from it put back."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self.head, self.rest = head, rest

    def read(self, count: int = -1) -> bytes:
        if not self.head:
            return self.rest.read(count)
        found, self.head = (self.head, b"") if count < 0 else (self.head[:count], self.head[count:])
        return found + self.rest.read(-1) if count < 0 else found
