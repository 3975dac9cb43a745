"""From rows to what training reads, for every task: checked and spooled once, split, fitted, stored.

Rows are read once, whatever they are and wherever they come from; after that they come from a file in the run folder.
What is held in memory does not grow with their number, except for validation rows, which are few.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.data.batches import drawn_share
from sightline.data.checking import Checked, Limits, Report
from sightline.data.columns import Cells
from sightline.data.held_out import overlap_with, row_hashes, split_rows
from sightline.data.progress import counted
from sightline.data.source import Source, keep_pipe
from sightline.data.splitting import Overlap, count_different, different_keys, normalise
from sightline.data.spool import Marks, Spool
from sightline.data.store import Corpus, write_corpus
from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.tasks.task import Column, Example, Task, Variant, imported

if TYPE_CHECKING:
    from sightline.inputs.base import Input
    from sightline.outputs.base import Output

DATA, TRAIN, VALID = "data", "train", "valid.jsonl"
VOCABULARY_ROWS = 1_000_000  # a vocabulary is learnt from no more than about so many
OnItems = Callable[[int, int, float], None]  # items done, all items, items a second


@dataclass(frozen=True)
class Setting:
    """What decides how data is prepared, and where it is stored: ``data`` is that folder."""

    task: Task
    variant: Variant
    config: Any
    data: Path
    limits: Limits
    start: Any = None  # `sightline.tasks.warm_start`: an earlier run whose input, output and weights are kept
    device: str = "cpu"
    on_items: OnItems | None = None
    source: Source = field(default_factory=Source)  # the training data

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.variant.columns or self.task.columns


class Rows:
    """The training examples, as often as they are needed."""

    def __init__(
        self, spool: Spool, marks: Marks | None, unpack: Callable[[Sequence[Any]], Example], report: Report
    ) -> None:
        self.spool, self.marks, self.unpack, self.report = spool, marks, unpack, report

    @property
    def count(self) -> int:
        return self.spool.count if self.marks is None else self.marks.count

    def __iter__(self) -> Iterator[Example]:
        return map(self.unpack, self.spool.rows(self.marks))

    def texts(self, of: Callable[[Example], Iterable[str]]) -> "Texts":
        """Texts of the examples to learn a vocabulary from; they can be read again."""
        return Texts(self, of)

    def limited(self, most: int, seed: int) -> "Rows":
        """About so many of them, drawn at random, where there are more."""
        if self.count <= most:
            return self
        drawn = self.spool.mark(lambda start, end: drawn_share(start, end, most / self.count, seed))
        marks = drawn if self.marks is None else self.spool.both(self.marks, drawn)
        return Rows(self.spool, marks, self.unpack, self.report)


@dataclass(frozen=True)
class Texts:
    """Texts that can be read again; reading them is told to whoever watches."""

    rows: Rows
    of: Callable[[Example], Iterable[str]]

    def __iter__(self) -> Iterator[str]:
        for example in counted(self.rows, "learning the vocabulary", self.rows.count):
            yield from self.of(example)


@dataclass(frozen=True)
class Prepared:
    """A fitted input and output, the training corpus on the disk, and the validation examples."""

    input: "Input"
    output: "Output"
    corpus: Any
    valid: list[Example]
    config: Any  # as fitted to the data
    task: Task
    report: Report | None = None
    valid_report: Report | None = None
    overlap: Overlap | None = None  # of validation data that was given with the training data
    extra: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        lines = [] if self.report is None else self.report.lines()
        lines += [*self.extra, *self.input.notes()]
        if self.valid_report is not None and self.valid_report.bad:
            lines += ["of the validation data:", *self.valid_report.left_out_lines()]
        lines += self.output.notes(self)
        return lines + overlap_lines(self.overlap, self.task.rows, self.output.pair_split)

    def summary(self) -> str:
        """One line of what is trained on."""
        sizes = "; ".join(filter(None, (self.input.summary(), self.output.summary_of_fit())))
        rows = self.output.counts(self)
        return f"{rows}; {sizes}" if sizes else rows


def overlap_lines(overlap: Overlap | None, rows: str, pairs: bool) -> list[str]:
    """What there is to say of validation rows that are training rows too."""
    if overlap is None or not overlap.sources:
        return []
    same = f"{overlap.pairs:,} stand in the training data and {overlap.sources:,} have their source there"
    if not pairs:
        same = f"{overlap.sources:,} stand in the training data"
        same += f", {overlap.pairs:,} with the same target" if overlap.pairs != overlap.sources else ""
    return [f"of {overlap.evaluation:,} validation {rows}, {same}: scores on them flatter"]


def unfitted(setting: Setting) -> tuple["Input", "Output"]:
    """The input and output of a task before they have seen data."""
    return imported(setting.variant.input)(setting.config), imported(setting.variant.output)(setting.config)


def table_of(source: Source, task: Task, columns: Sequence[Column]) -> Iterator[Cells]:
    """The rows of a source, values in the order of the columns."""
    if source.held is not None:
        return source.cells(columns)
    if source.data is None and not source.options:
        raise UserError(f"give --data: {task.data}")
    return imported(task.reader)(source, columns)


def checked(
    rows: Iterable[Cells], input: "Input", output: "Output", columns: Sequence[Column], limits: Limits, expected: str
) -> Checked[Example, Report]:
    """The good examples of some rows, once; the report counts on the way."""
    names = [column.name for column in columns]

    def read(values: Sequence[Any]) -> Example:
        cells = dict(zip(names, values, strict=False))
        x = input.read(cells)
        input.check(x, limits)
        y = output.read(cells, x)
        output.check(y, limits)
        return Example(x, y)

    report = output.report()
    report.input = input
    return Checked(rows, read, report, limits, expected)


def grouped(examples: Iterable[Example], input: "Input") -> Iterator[Example]:
    """Items with all of their targets: for outputs with several references."""
    items: dict[str, Any] = {}
    targets: dict[str, list[Any]] = {}
    for x, y in examples:
        name = input.identity(x)
        items.setdefault(name, x)
        targets.setdefault(name, []).append(y)
    return (Example(x, tuple(targets[name])) for name, x in items.items())


@contextmanager
def preparing(source: Source, valid: Source | None, setting: Setting) -> Iterator[tuple[Prepared, Rows]]:
    """Check, split, fit and store the data under ``setting.data``. Inside the block the training rows can be read."""
    source = _as_configured(source, setting.config)
    if not imported(setting.variant.input).reads_files:  # paths in a pipe are relative to where it comes from
        source = keep_pipe(source, setting.data)
    valid = None if valid is None else _as_configured(valid, setting.config)
    setting = replace(setting, source=source)
    input, output = unfitted(setting)
    tables = [
        output.stage(table_of(one, setting.task, setting.columns), one, setting.columns)
        for one in (source, valid)
        if one is not None
    ]
    staged = input.stage(tables, setting)
    expected = f"{setting.task.rows}: {' and '.join(one.name for one in setting.columns if not one.optional)}"
    readings = [checked(rows, input, output, setting.columns, setting.limits, expected) for rows in staged]
    streams: list[Iterable[Example]] = [grouped(one, input) if output.grouped else one for one in readings]
    report, valid_report = readings[0].report, readings[1].report if len(readings) > 1 else None
    kept = list(streams[1]) if len(streams) > 1 else None
    pack = partial(_packed, input, output)
    with Spool(setting.data / ".spool", map(pack, streams[0])) as spool:
        report.check(setting.source)
        hashes = row_hashes(spool, input, output, setting.config.seed)
        report.repeats(spool.count, *(count_different(one) for one in hashes[:2]))
        marks, overlap = None, None
        if kept is None:
            share = setting.config.valid_share
            marks, apart = split_rows(spool, hashes, input, output, share, report, setting.task.rows)
            kept = [_unpacked(input, output, row) for row in spool.rows(apart)]
        else:
            overlap = overlap_with(hashes, [pack(one) for one in kept], input, output, setting.config.seed)
        if not kept or (marks is not None and not marks.count):
            raise UserError(f"there is no row of {setting.task.rows} to train on, or none to validate on; give more")
        rows = Rows(spool, marks, partial(_unpacked, input, output), report)
        fitted_input, fitted_output = output.fit(input, rows, setting)
        config = _fitted(setting.config, fitted_input, fitted_output, setting.start is None)
        corpus = fitted_output.write(fitted_input, rows, setting)
        fitted_output.write_valid(fitted_input, kept, setting)
        if input.keys_file:
            own = np.array([input.key(one.x) for one in kept], np.uint64)
            _write_keys(setting.data / input.keys_file, spool.numbers(partial(_key, input))[0], own)
        yield (
            Prepared(fitted_input, fitted_output, corpus, kept, config, setting.task, report, valid_report, overlap),
            rows,
        )


def _as_configured(source: Source, config: Any) -> Source:
    """With the options of the reader that the configuration decides."""
    given: dict[str, Any] = getattr(config, "source_options", dict)()
    return replace(source, options={**given, **source.options}) if given and source.data is not None else source


def _fitted(config: Any, input: "Input", output: "Output", new: bool) -> Any:
    """The configuration as the data needs it, such as a model that tells two texts apart."""
    fit = getattr(config, "fitted", None)
    return config if fit is None else fit(input, output, new)


def reopened(setting: Setting, input: "Input", output: "Output") -> Prepared:
    """What an earlier session prepared."""
    input.reopen(setting)
    corpus = output.open(input, setting)
    return Prepared(input, output, corpus, output.open_valid(input, setting), setting.config, setting.task)


def write_rows(input: "Input", output: "Output", rows: Rows, folder: Path) -> Corpus:
    """The training corpus: each row the numbers of a part and of its target."""

    def encoded() -> Iterator[tuple[Any, Any]]:
        coming = iter(counted(rows, "encoding", rows.count))
        while some := list(islice(coming, min(1000, input.at_once))):
            for (x, y), parts in zip(some, input.train_parts([one.x for one in some]), strict=True):
                for part, target in output.encode(x, y, parts):
                    yield input.stored(part), target

    return write_corpus(folder / TRAIN, encoded())


def write_valid(input: "Input", output: "Output", examples: Iterable[Example], folder: Path) -> None:
    """The validation examples, a row of plain data each."""
    rows = (json.dumps(_packed(input, output, one), ensure_ascii=False) for one in examples)
    write_text(folder / VALID, "".join(f"{row}\n" for row in rows))


def read_valid(input: "Input", output: "Output", folder: Path) -> list[Example]:
    """What `write_valid` wrote."""
    path = folder / VALID
    try:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [_unpacked(input, output, json.loads(line)) for line in lines]
    except FileNotFoundError:
        raise UserError(f"{path} is missing: without its data the run cannot go on") from None
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def read_examples(
    source: Source, task: Task, variant: Variant, input: "Input", output: "Output", limits: Limits
) -> tuple[list[Example], Report]:
    """The good rows of data to score, and what was left out."""
    columns = variant.columns or task.columns
    expected = f"{task.rows}: {' and '.join(one.name for one in columns if not one.optional)}"
    rows = input.stage_scored(output.stage(table_of(source, task, columns), source, columns))
    reading = checked(rows, input, output, columns, limits, expected)
    examples = list(grouped(reading, input) if output.grouped else reading)
    return examples, reading.report


def seen_in_training(run: Path | None, input: "Input", xs: Iterable[Any]) -> np.ndarray | None:
    """For each item, whether the run was trained on it or chosen by it; None where it was moved without its data."""
    known = None if run is None else input.known_keys(run / DATA)
    return None if known is None else np.isin(np.array([input.key(x) for x in xs], dtype=np.uint64), known)


def read_keys(path: Path) -> np.ndarray | None:
    """What `_write_keys` wrote, if it is there."""
    from sightline.data.disk import mapped

    if not path.is_file():
        return None
    try:
        known = mapped(path)
        if known.dtype != np.uint64 or known.ndim != 1:
            raise ValueError("it holds no keys of texts")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return known


def _packed(input: "Input", output: "Output", example: Example) -> list[Any]:
    return [*input.pack(example.x), *output.pack(example.y)]


def _unpacked(input: "Input", output: "Output", row: Any) -> Example:
    x, rest = input.unpack(row)
    return Example(x, output.unpack(rest))


def _key(input: "Input", row: Sequence[Any]) -> int:
    return input.key(input.unpack(row)[0])


def _write_keys(path: Path, keys: np.ndarray, apart: np.ndarray) -> None:
    """What an evaluation tells items of the training data by; those that chose the weights are among them."""
    keys = keys if np.isin(apart, keys).all() else np.concatenate([keys, apart])
    with whole_file(path) as part, part.open("wb") as file:
        np.lib.format.write_array(file, different_keys(keys), allow_pickle=False)


def normalised(*texts: str) -> str:
    """What texts that are the same have in common, however their blanks are written."""
    return "\0".join(map(normalise, texts))


def unseen_line(unseen: Mapping[str, int]) -> list[str]:
    """Labels that only validation data has."""
    if not unseen:
        return []
    named = ", ".join(f"{name!r} ({count:,})" for name, count in list(unseen.items())[:10])
    return [f"validation data has labels that training does not have, counted as wrong: {named}"]
