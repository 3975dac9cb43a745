"""From rows to training data, for every task: checked and spooled once, split, fitted, stored, batched.

The source is read once; after that, rows come from a file in the run folder. Memory does not grow with the number of
rows, except for the validation rows, which are few.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

import numpy as np

from sightline.data.batches import BatchPlan, BatchRows, drawn_share
from sightline.data.checking import Checked, Report, RowLimits
from sightline.data.columns import TableRow
from sightline.data.disk import hash_of
from sightline.data.held_out import overlap_with, row_hashes, split_rows
from sightline.data.progress import counted
from sightline.data.source import Source, spool_pipe
from sightline.data.splitting import Overlap, count_different, different_keys, normalise
from sightline.data.spool import Marks, Spool
from sightline.data.store import Corpus, write_corpus
from sightline.errors import UserError
from sightline.files import RECORDS, read_text, whole_file, write_text
from sightline.tasks.task import Column, Example, SomeExample, Task, Variant, X_co, Y_co, imported
from sightline.text.tokeniser import Tokeniser
from sightline.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from sightline.inputs.base import SomeInput
    from sightline.outputs.base import SomeOutput

DATA, TRAIN, VALID = "data", "train", "valid.jsonl"
LEAST_VALID = 10  # different items to validate on, where a share of few comes to less; at most a tenth of them
FEW_VALID = 30  # of so few rows a score says little
VOCABULARY_ROWS = 1_000_000  # a vocabulary is learnt from about this many rows at most
OnItems = Callable[[int, int, float], None]  # items done, all items, items per second


@dataclass(frozen=True)
class Setting:
    """How to prepare data, and where to store it: ``data`` is that folder."""

    task: Task
    variant: Variant
    config: Any
    data: Path
    limits: RowLimits
    start: Any = None  # `sightline.tasks.warm_start`: an earlier run whose input, output and weights are kept
    device: str = "cpu"
    on_items: OnItems | None = None
    source: Source = field(default_factory=Source)  # the training data
    fold: tuple[int, int] | None = None  # of a cross-validation: which part of the rows is for validation, of how many
    crossed: bool = False  # the data was cross-validated before

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.variant.columns or self.task.columns


class Rows(Generic[X_co, Y_co]):
    """The training examples; they can be read repeatedly."""

    def __init__(
        self,
        spool: Spool,
        marks: Marks | None,
        unpack: Callable[[Sequence[object]], Example[X_co, Y_co]],
        report: Report,
    ) -> None:
        self.spool, self.marks, self.unpack, self.report = spool, marks, unpack, report

    @property
    def count(self) -> int:
        return self.spool.count if self.marks is None else self.marks.count

    def __iter__(self) -> Iterator[Example[X_co, Y_co]]:
        return map(self.unpack, self.spool.rows(self.marks))

    def texts(self, of: Callable[[Example[X_co, Y_co]], Iterable[str]]) -> "VocabularyTexts[X_co, Y_co]":
        """VocabularyTexts of the examples to learn a vocabulary from; they can be read repeatedly."""
        return VocabularyTexts(self, of)

    def limited(self, most: int, seed: int) -> "Rows[X_co, Y_co]":
        """All rows, or about ``most`` of them drawn at random."""
        if self.count <= most:
            return self
        drawn = self.spool.mark(lambda start, end: drawn_share(start, end, most / self.count, seed))
        marks = drawn if self.marks is None else self.spool.both(self.marks, drawn)
        return Rows(self.spool, marks, self.unpack, self.report)


@dataclass(frozen=True)
class VocabularyTexts(Generic[X_co, Y_co]):
    """VocabularyTexts that can be read repeatedly; progress is reported while they are read."""

    rows: Rows[X_co, Y_co]
    of: Callable[[Example[X_co, Y_co]], Iterable[str]]

    def __iter__(self) -> Iterator[str]:
        for example in counted(self.rows, "learning the vocabulary", self.rows.count):
            yield from self.of(example)


@dataclass(frozen=True)
class Prepared(Generic[X_co, Y_co]):
    """A fitted input and output, the training corpus on the disk, and the validation examples."""

    input: "SomeInput"
    output: "SomeOutput"
    corpus: Any
    valid: list[Example[X_co, Y_co]]
    config: Any  # as fitted to the data
    task: Task
    report: Report | None = None
    valid_report: Report | None = None
    overlap: Overlap | None = None  # of validation data that was given with the training data
    extra: tuple[str, ...] = ()
    crossed: bool = False  # the data was cross-validated before

    def lines(self) -> list[str]:
        """The report on the data, printed before training."""
        lines = [] if self.report is None else self.report.lines()
        lines += [*self.extra, *self.input.notes()]
        if self.valid_report is not None and self.valid_report.bad:
            lines += ["of the validation data:", *self.valid_report.left_out_lines()]
        lines += self.output.notes(self)
        if self.report is not None and len(self.valid) < FEW_VALID:
            given = self.crossed or self.valid_report is not None
            advice = "" if given else "; cross-validate with --folds 5, or give --valid"
            few = f"only {len(self.valid):,} {self.task.rows} to validate on"
            lines.append(f"{few}: a score of so few says little{advice}")
        return lines + overlap_lines(self.overlap, self.task.rows, self.output.pair_split)

    def summary(self) -> str:
        """The sizes of the training data and of what was fitted, in one line."""
        sizes = "; ".join(filter(None, (self.input.summary(), self.output.summary_of_fit())))
        rows = self.output.counts(self)
        return f"{rows}; {sizes}" if sizes else rows


SomePrepared = Prepared[object, object]
SomeRows = Rows[object, object]


def overlap_lines(overlap: Overlap | None, rows: str, pairs: bool) -> list[str]:
    """A line on validation rows that are training rows too."""
    if overlap is None or not overlap.sources:
        return []
    same = f"{overlap.pairs:,} are in the training data and {overlap.sources:,} have their source there"
    if not pairs:
        same = f"{overlap.sources:,} are in the training data"
        same += f", {overlap.pairs:,} with the same target" if overlap.pairs != overlap.sources else ""
    return [f"of {overlap.evaluation:,} validation {rows}, {same}: scores on them are too high"]


def unfitted(setting: Setting) -> tuple["SomeInput", "SomeOutput"]:
    """The input and output of a task before they are fitted."""
    return imported(setting.variant.input)(setting.config), imported(setting.variant.output)(setting.config)


def table_of(source: Source, task: Task, columns: Sequence[Column]) -> Iterator[TableRow]:
    """The rows of a source, values in the order of the columns."""
    if source.held is not None:
        return source.cells(columns)
    if source.data is None and not source.options:
        raise UserError(f"give --data: {task.data}")
    return imported(task.reader)(source, columns)


def expected_row(task: Task, columns: Sequence[Column]) -> str:
    """What errors say a row should be."""
    return f"{task.rows}: {' and '.join(one.name for one in columns if not one.optional)}"


def checked(
    rows: Iterable[TableRow],
    input: "SomeInput",
    output: "SomeOutput",
    columns: Sequence[Column],
    limits: RowLimits,
    expected: str,
) -> Checked[SomeExample, Report]:
    """The valid examples among rows, to be read once; the report counts them meanwhile."""
    names = [column.name for column in columns]

    report = output.report()
    report.input = input

    def read(values: Sequence[Any]) -> SomeExample:
        cells = dict(zip(names, values, strict=False))
        x = input.read(cells)
        input.check(x, limits)
        y = output.read(cells, x)
        output.check(y, limits)
        if (document := output.document(cells)) is not None:
            report.documents.append(hash_of(document))
        return Example(x, y)

    return Checked(rows, read, report, limits, expected)


def grouped(examples: Iterable[SomeExample], input: "SomeInput") -> Iterator[SomeExample]:
    """Items with all of their targets, for outputs with several references."""
    items: dict[str, Any] = {}
    targets: dict[str, list[Any]] = {}
    for x, y in examples:
        name = input.identity(x)
        items.setdefault(name, x)
        targets.setdefault(name, []).append(y)
    return (Example(x, tuple(targets[name])) for name, x in items.items())


@contextmanager
def preparing(source: Source, valid: Source | None, setting: Setting) -> Iterator[tuple[SomePrepared, SomeRows]]:
    """Check, split, fit and store the data in ``setting.data``. Inside the block the training rows can be read."""
    source = _as_configured(source, setting.config)
    if not imported(setting.variant.input).reads_files:  # paths in a pipe are relative to the working folder
        source = spool_pipe(source, setting.data)
    valid = None if valid is None else _as_configured(valid, setting.config)
    setting = replace(setting, source=source)
    input, output = unfitted(setting)
    tables = [
        output.stage(table_of(one, setting.task, setting.columns), one, setting.columns)
        for one in (source, valid)
        if one is not None
    ]
    staged = input.stage(tables, setting)
    expected = expected_row(setting.task, setting.columns)
    readings = [checked(rows, input, output, setting.columns, setting.limits, expected) for rows in staged]
    streams: list[Iterable[SomeExample]] = [grouped(one, input) if output.grouped else one for one in readings]
    report, valid_report = readings[0].report, readings[1].report if len(readings) > 1 else None
    kept = list(streams[1]) if len(streams) > 1 else None
    pack = partial(_packed, input, output)
    with Spool(setting.data / ".spool", map(pack, streams[0])) as spool:
        report.check(setting.source)
        hashes = row_hashes(spool, input, output, setting.config.seed)
        report.repeats(spool.count, *(count_different(one) for one in hashes[:2]))
        marks, overlap = None, None
        if kept is None:
            different = count_different(hashes[1])
            share = max(setting.config.valid_share, min(LEAST_VALID, different // 10) / max(1, different))
            named = setting.task.rows, setting.config.seed, setting.fold
            marks, apart = split_rows(spool, hashes, input, output, share, report, *named)
            kept = [_unpacked(input, output, row) for row in spool.rows(apart)]
            targets = None if hashes[2] is None else count_different(hashes[2])
            report.divided(spool.count - marks.count - apart.count, targets)
        else:
            overlap = overlap_with(hashes, [pack(one) for one in kept], input, output, setting.config.seed)
        if not kept or (marks is not None and not marks.count):
            raise UserError(f"there is no row of {setting.task.rows} to train on, or none to validate on; give more")
        rows = Rows(spool, marks, partial(_unpacked, input, output), report)
        fitted_input, fitted_output = output.fit(input, rows, setting)
        config = setting.config.fitted(fitted_input, fitted_output, setting.start is None)
        corpus = fitted_output.write(fitted_input, rows, setting)
        fitted_output.write_valid(fitted_input, kept, setting)
        if input.keys_file:
            own = np.array([input.key(one.x) for one in kept], np.uint64)
            _write_keys(setting.data / input.keys_file, spool.numbers(partial(_key, input))[0], own)
        reports, crossed = (report, valid_report, overlap), setting.crossed
        yield (
            Prepared(fitted_input, fitted_output, corpus, kept, config, setting.task, *reports, crossed=crossed),
            rows,
        )


def _as_configured(source: Source, config: Any) -> Source:
    """The source with those options of its reader that the configuration sets."""
    given: dict[str, Any] = config.source_options()
    return replace(source, options={**given, **source.options}) if given and source.data is not None else source


def reopened(setting: Setting, input: "SomeInput", output: "SomeOutput") -> SomePrepared:
    """The data that an earlier session prepared."""
    input.reopen(setting)
    corpus = output.open(input, setting)
    return Prepared(input, output, corpus, output.open_valid(input, setting), setting.config, setting.task)


def write_rows(input: "SomeInput", output: "SomeOutput", rows: SomeRows, folder: Path) -> Corpus:
    """Write the training corpus: each row holds the numbers of a part and of its target."""

    def encoded() -> Iterator[tuple[Any, Any]]:
        coming = iter(counted(rows, "encoding", rows.count))
        while some := list(islice(coming, min(1000, input.at_once))):
            for (x, y), parts in zip(some, input.train_parts([one.x for one in some]), strict=True):
                for part, target in output.encode(x, y, parts):
                    yield input.stored(part), target

    return write_corpus(folder / TRAIN, encoded())


def write_valid(input: "SomeInput", output: "SomeOutput", examples: Iterable[SomeExample], folder: Path) -> None:
    """The validation examples, a row of plain data each."""
    rows = (json.dumps(_packed(input, output, one), ensure_ascii=False) for one in examples)
    write_text(folder / VALID, "".join(f"{row}\n" for row in rows))


def read_valid(input: "SomeInput", output: "SomeOutput", folder: Path) -> list[SomeExample]:
    """What `write_valid` wrote."""
    path = folder / VALID
    try:
        lines = read_text(path, RECORDS).split("\n")[:-1]
        return [_unpacked(input, output, json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise UserError(f"{path} is missing: without its data the run cannot be resumed") from None
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def read_examples(
    source: Source, task: Task, variant: Variant, input: "SomeInput", output: "SomeOutput", limits: RowLimits
) -> tuple[list[SomeExample], Report]:
    """The valid rows of data to score, and the report on all rows."""
    columns = variant.columns or task.columns
    rows = input.stage_scored(output.stage(table_of(source, task, columns), source, columns))
    reading = checked(rows, input, output, columns, limits, expected_row(task, columns))
    return list(grouped(reading, input) if output.grouped else reading), reading.report


def seen_in_training(run: Path | None, input: "SomeInput", xs: Iterable[Any]) -> np.ndarray | None:
    """For each item, whether it is in the run's training or validation data; None if the run has no data folder."""
    known = None if run is None else input.known_keys(run / DATA)
    return None if known is None else np.isin(np.array([input.key(x) for x in xs], dtype=np.uint64), known)


def overlap_with_training(
    run: Path, source: Tokeniser, target: Tokeniser, pairs: Sequence[tuple[str, str]], longest: int | None = None
) -> Overlap | None:
    """How many of these pairs the run was trained on; None if the run has no data folder.

    ``longest``: of sources, so many tokens are read.
    """
    if not (run / DATA / TRAIN).is_dir():
        return None
    corpus = Corpus.open(run / DATA / TRAIN)
    sides = [
        [np.array(row[:most], dtype=np.int64).tobytes() for row in tokeniser.encode([pair[side] for pair in pairs])]
        for side, (tokeniser, most) in enumerate(((source, longest), (target, None)))
    ]
    counts: dict[bytes, Counter[bytes]] = {}  # target tokens by source tokens
    unknown = np.int64(UNKNOWN).tobytes()
    for read, written in zip(*sides, strict=True):
        if _holds(read, unknown) or _holds(written, unknown):
            continue  # unknown words have one token: whether these were seen cannot be decided
        counts.setdefault(read, Counter())[written] += 1
    sources, overlapping = 0, 0
    met: dict[bytes, set[bytes]] = {}
    # Only rows as long as one of the sources can equal one: most are skipped without being read.
    lengths = np.unique([len(read) // 8 for read in counts])
    for row in _of_lengths(corpus.lengths()[0], lengths):
        read, written = (side.astype(np.int64).tobytes() for side in corpus[row])
        if read not in counts:
            continue
        if read not in met:
            met[read] = set()
            sources += counts[read].total()
        if written not in met[read]:
            met[read].add(written)
            overlapping += counts[read][written]
    return Overlap(len(pairs), overlapping, sources)


def _of_lengths(lengths: np.ndarray, searched: np.ndarray, some: int = 1 << 18) -> Iterator[int]:
    """The rows that have one of the lengths, found in parts: a corpus may be large."""
    for start in range(0, len(lengths), some):
        yield from (start + np.flatnonzero(np.isin(lengths[start : start + some], searched))).tolist()


def _holds(tokens: bytes, token: bytes) -> bool:
    return any(tokens[start : start + 8] == token for start in range(0, len(tokens), 8))


def read_keys(path: Path) -> np.ndarray | None:
    """The keys that `_write_keys` wrote; None if there is no such file."""
    from sightline.data.disk import mapped

    if not path.is_file():
        return None
    try:
        known = mapped(path)
        if known.dtype != np.uint64 or known.ndim != 1:
            raise ValueError("it does not hold keys of texts")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return known


def _packed(input: "SomeInput", output: "SomeOutput", example: SomeExample) -> list[Any]:
    return [*input.pack(example.x), *output.pack(example.y)]


def _unpacked(input: "SomeInput", output: "SomeOutput", row: Any) -> SomeExample:
    x, rest = input.unpack(row)
    return Example(x, output.unpack(rest))


def _key(input: "SomeInput", row: Sequence[Any]) -> int:
    return input.key(input.unpack(row)[0])


def _write_keys(path: Path, keys: np.ndarray, apart: np.ndarray) -> None:
    """Write the keys by which an evaluation recognises training items and validation items (``apart``)."""
    keys = keys if np.isin(apart, keys).all() else np.concatenate([keys, apart])
    with whole_file(path) as part, part.open("wb") as file:
        np.lib.format.write_array(file, different_keys(keys), allow_pickle=False)


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """The rows of a batch, and the epoch: what is drawn for them depends on both, and on the seed."""

    rows: BatchRows
    epoch: int

    def __len__(self) -> int:
        return len(self.rows)


class RowBatches:
    """Rows of similar length, at most ``batch_tokens`` in all, and at most ``batch_rows`` rows if that is set.

    Parts that the input augments are drawn by seed, epoch and rows alone, so that a resumed training draws the same.
    """

    def __init__(self, prepared: SomePrepared, config: Any) -> None:
        self.input, self.output, self.corpus, self.seed = prepared.input, prepared.output, prepared.corpus, config.seed
        source, target = self.input.lengths(self.corpus), self.corpus.lengths()[1]
        both = self.output.sized_targets
        rows = getattr(config, "batch_rows", None)
        self.plan = BatchPlan(source, target if both else None, config.batch_tokens, config.seed, rows=rows)

    def epoch(self, number: int) -> Sequence[DrawnRows]:
        return [DrawnRows(rows, number) for rows in self.plan.epoch(number)]

    def rows(self, handle: DrawnRows) -> tuple[Sequence[Any], Sequence[Any]]:
        """The parts and targets of a batch, as they are trained on."""
        rows = handle.rows.tolist()
        parts, targets = zip(*(self.corpus[row] for row in rows), strict=True)
        return self.input.augmented(parts, lambda: np.random.default_rng([self.seed, handle.epoch, *rows])), targets

    def batch(self, handle: DrawnRows) -> tuple[Any, Any]:
        parts, targets = self.rows(handle)
        batch = self.input.collate(parts)
        return batch, self.output.collate(targets, batch)


def validation_sample(rows: int, most: int, seed: int) -> list[int]:
    """The validation rows that are scored in training, in order; the same for the same seed."""
    return sorted(np.random.default_rng(seed).permutation(rows)[:most].tolist())


def normalised(*texts: str) -> str:
    """VocabularyTexts as one string that does not depend on how their white space is written."""
    return "\0".join(map(normalise, texts))


def unseen_line(unseen: Mapping[str, int]) -> list[str]:
    """A line on labels that only the validation data has."""
    if not unseen:
        return []
    named = ", ".join(f"{name!r} ({count:,})" for name, count in list(unseen.items())[:10])
    return [f"validation data has labels that training does not have, counted as wrong: {named}"]
