"""From files of pairs to what training reads: checked, split, tokenised, stored."""

import gzip
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from sightline.data.checking import CheckedPairs, Limits, Report
from sightline.data.reading import PairFiles, read_rows
from sightline.data.splitting import Overlap, count_overlap, split_pairs
from sightline.data.store import Corpus, write_corpus
from sightline.data.tokenise import Tokeniser, TokeniserConfig, train_tokenisers
from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.tasks.translator import SOURCE, TARGET
from sightline.vocabulary import UNKNOWN

VALID = "valid.jsonl"
Pairs = Callable[[], Iterator[tuple[str, str]]]


@dataclass(frozen=True)
class Missing:
    """What new targets hold that an earlier run's vocabulary cannot write, the most frequent by name."""

    unit: str  # words or characters
    total: int
    unwritable: int
    examples: tuple[tuple[str, int], ...]

    def lines(self) -> list[str]:
        if not self.unwritable:
            return [f"the vocabulary of the earlier run can write all {self.unit} of the new targets"]
        named = ", ".join(f"{unit} ({count:,})" for unit, count in self.examples)
        return [
            f"the vocabulary of the earlier run has nothing for {self.unwritable:,} of {self.total:,} {self.unit} of "
            f"the new targets: {named}"
        ]


def count_missing(tokeniser: Tokeniser, texts: Iterator[str], named: int = 10) -> Missing:
    """Words of a vocabulary of words, characters of any other. Only different ones are held in memory."""
    of_words = tokeniser.of_words
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split() if of_words else text.replace(" ", ""))
    units = list(counts)
    writable = tokeniser.writable(units)
    unwritable = {unit: counts[unit] for unit, known in zip(units, writable, strict=True) if not known}
    examples = sorted(unwritable.items(), key=lambda item: (-item[1], item[0]))[:named]
    return Missing("words" if of_words else "characters", counts.total(), sum(unwritable.values()), tuple(examples))


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
    """Check, split, tokenise and store the data under ``folder``."""
    data, limits = folder / "data", how.limits
    pairs, reports = checked(_kept(files, data), limits)
    if valid is not None:
        training: Pairs = pairs
        valid_report: Report | None
        valid_reading, valid_reports = checked(valid, limits)
        valid_pairs = list(valid_reading())
        valid_report = valid_reports[0]
    else:
        splitter = split_pairs(pairs, how.valid_share, how.seed)
        training = splitter.train
        valid_pairs, valid_report = list(splitter.valid()), None
    if not valid_pairs:
        raise UserError("there is no pair to validate on")
    source, target = how.tokenisers or train_tokenisers(_side(training, 0), _side(training, 1), how.tokeniser)
    write_corpus(data / "train", _encoded(training, source, target))
    write_text(data / VALID, "".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in valid_pairs))
    overlap = None if valid is None else count_overlap(training(), valid_pairs)
    missing = count_missing(target, (b for _, b in training())) if how.tokenisers else None
    return Prepared(
        source, target, Corpus.open(data / "train"), valid_pairs, reports[0], overlap, missing, valid_report
    )


def prepared_before(folder: Path, dropout: float) -> Prepared:
    """What an earlier session prepared."""
    source, target = (Tokeniser.load(folder / name, dropout) for name in (SOURCE, TARGET))
    path = folder / "data" / VALID
    if not path.exists():
        raise UserError(f"{path} is missing: without its data the run cannot go on")
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    valid = [(a, b) for a, b in map(json.loads, lines)]
    return Prepared(source, target, Corpus.open(folder / "data" / "train"), valid)


def overlap_with_training(
    run: Path, source: Tokeniser, target: Tokeniser, pairs: Sequence[tuple[str, str]]
) -> Overlap | None:
    """How many of these pairs the run was trained on; None where it was moved without its data."""
    if not (run / "data" / "train").is_dir():
        return None
    corpus = Corpus.open(run / "data" / "train")
    sides = [
        [np.array(row, dtype=np.int64).tobytes() for row in tokeniser.encode([pair[side] for pair in pairs])]
        for side, tokeniser in enumerate((source, target))
    ]
    wanted: dict[bytes, Counter[bytes]] = {}
    unknown = np.int64(UNKNOWN).tobytes()
    for read, written in zip(*sides, strict=True):
        if _holds(read, unknown) or _holds(written, unknown):
            continue  # unknown words all look alike: whether these were seen cannot be said
        wanted.setdefault(read, Counter())[written] += 1
    sources, found = 0, 0
    met: dict[bytes, set[bytes]] = {}
    # Only rows as long as one of the sources can be one of them: most are passed over without being read.
    lengths = np.unique([len(read) // 8 for read in wanted])
    for row in np.flatnonzero(np.isin(corpus.lengths()[0], lengths)).tolist():
        read, written = (side.astype(np.int64).tobytes() for side in corpus[row])
        if read not in wanted:
            continue
        if read not in met:
            met[read] = set()
            sources += wanted[read].total()
        if written not in met[read]:
            met[read].add(written)
            found += wanted[read][written]
    return Overlap(len(pairs), found, sources)


def _holds(tokens: bytes, token: bytes) -> bool:
    return any(tokens[start : start + 8] == token for start in range(0, len(tokens), 8))


def _kept(files: PairFiles, folder: Path) -> PairFiles:
    return files if files.data is None else replace(files, data=keep_pipe(files.data, folder))


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


def _side(pairs: Pairs, index: int) -> Callable[[], Iterator[str]]:
    return lambda: (pair[index] for pair in pairs())


def _encoded(
    pairs: Pairs, source: Tokeniser, target: Tokeniser, rows: int = 1000
) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids, some rows at a time: the tokeniser is fast on many, and memory stays flat."""
    waiting: list[tuple[str, str]] = []

    def flush() -> Iterator[tuple[list[int], list[int]]]:
        sides = source.encode([a for a, _ in waiting]), target.encode([b for _, b in waiting])
        yield from zip(*sides, strict=True)
        waiting.clear()

    for pair in pairs():
        waiting.append(pair)
        if len(waiting) == rows:
            yield from flush()
    yield from flush()
