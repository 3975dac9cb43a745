"""From a file of texts and labels to what training reads: checked, split, tokenised, stored."""

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sightline.data.arrays import mapped
from sightline.data.checking import Limits
from sightline.data.labelled import Example, LabelledFile, found_separator, read_labelled
from sightline.data.labels_checking import TEXT_LIMITS, CheckedRows, LabelReport
from sightline.data.splitting import Overlap
from sightline.data.store import Corpus, write_corpus
from sightline.data.stratified import split_examples, text_key
from sightline.data.texts import TextReader
from sightline.data.tokenise import TokeniserConfig, train_tokeniser
from sightline.errors import UserError
from sightline.files import whole_file, write_text
from sightline.tasks.labels import Labels, labels_of
from sightline.tasks.preparing import VALID, keep_pipe

KEYS, NUMBERS = "texts.npy", "numbers.npy"
AT_ONCE = 1 << 20  # characters tokenised together

Examples = Callable[[], Iterator[Example]]


@dataclass(frozen=True)
class TextPreparation:
    """What decides how labelled texts become a corpus. With ``reader``, that of an earlier run, none is learnt."""

    tokeniser: TokeniserConfig
    valid_share: float
    seed: int
    longest: int | None
    sentences: bool
    limits: Limits = TEXT_LIMITS
    reader: TextReader | None = None


@dataclass(frozen=True)
class PreparedTexts:
    """How texts are read, what the labels are, the training corpus on the disk, and the validation examples."""

    reader: TextReader
    labels: Labels
    corpus: Corpus  # the texts with their starts and ends; and the classes of each
    numbers: np.ndarray | None  # where labels are numbers
    valid: list[Example]
    report: LabelReport | None = None
    valid_report: LabelReport | None = None
    overlap: Overlap | None = None  # of validation data that was given with the training data
    cut: int = 0
    longest: int | None = None
    training: Examples | None = None  # begins the training examples anew, while their file is there

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        if self.cut:
            found.append(
                f"{self.cut:,} texts are longer than {self.longest:,} tokens (longest): training reads their beginning "
                "and their end"
            )
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        if unseen := self.labels.unseen([example.label for example in self.valid]):
            named = ", ".join(f"{name!r} ({count:,})" for name, count in list(unseen.items())[:10])
            found.append(f"validation data has labels that training does not have, counted as wrong: {named}")
        if self.overlap is not None and self.overlap.sources:
            found.append(
                f"of {self.overlap.evaluation:,} validation texts, {self.overlap.sources:,} stand in the training "
                f"data, {self.overlap.pairs:,} with the same label: scores on them flatter"
            )
        return found

    def summary(self) -> str:
        """One line of what is trained on."""
        return (
            f"{len(self.corpus):,} texts to train on, {len(self.valid):,} to validate; "
            f"{self.reader.tokeniser.words:,} different tokens"
        )


def checked_examples(files: LabelledFile, limits: Limits) -> tuple[Examples, list[LabelReport]]:
    """Good examples of the file, as often as asked for, and the report of each reading."""
    reports: list[LabelReport] = []

    def examples() -> Iterator[Example]:
        reading = CheckedRows(read_labelled(files), files.labels, limits)
        reports.append(reading.report)
        return reading

    return examples, reports


def prepare_texts(files: LabelledFile, valid: LabelledFile | None, how: TextPreparation, folder: Path) -> PreparedTexts:
    """Check, split, tokenise and store the data under ``folder``."""
    data = folder / "data"
    files = with_separator(replace(files, data=keep_pipe(files.data, data)))
    examples, reports = checked_examples(files, how.limits)
    valid_report = None
    if valid is None:
        split = split_examples(_refusing(examples, reports, files), how.valid_share, how.seed)
        training: Examples = split.train
        kept = list(split.valid())
    else:
        for _ in _refusing(examples, reports, files)():
            pass
        training = examples
        reading, valid_reports = checked_examples(replace(valid, separator=files.separator), how.limits)
        kept = list(reading())
        valid_report = valid_reports[0]
    report = reports[0]
    pairs = bool(report.target_characters.count)
    if any((example.second is not None) != pairs for example in kept):
        raise UserError("of training and validation data, one has pairs of texts and the other has not")
    labels = labels_of(report, pairs, files.columns, files.separator)
    if how.reader is None:
        tokeniser = train_tokeniser(_Texts(training), how.tokeniser)
        reader = TextReader(tokeniser, pairs=pairs, sentences=how.sentences)
    else:
        reader = replace(how.reader, pairs=pairs, sentences=how.sentences)
    writing = _Writing(training, reader, labels, how.longest)
    write_corpus(data / "train", writing.rows())
    # What was kept apart from the same file chose the weights: an evaluation that meets it again flatters too.
    apart = [text_key(example) for example in kept] if valid is None else []
    _save(data / KEYS, np.unique(np.array([*writing.keys, *apart], dtype=np.uint64)))
    if labels.kind == "number":
        _save(data / NUMBERS, np.array(writing.numbers))
    write_text(data / VALID, "".join(json.dumps(example, ensure_ascii=False) + "\n" for example in kept))
    overlap = None if valid is None else _overlap(training, kept)
    corpus = Corpus.open(data / "train")
    numbers = _numbers(data, labels)
    return PreparedTexts(
        reader, labels, corpus, numbers, kept, report, valid_report, overlap, writing.cut, how.longest, training
    )


def prepared_before(folder: Path, reader: TextReader, labels: Labels) -> PreparedTexts:
    """What an earlier session prepared."""
    data = folder / "data"
    return PreparedTexts(
        reader, labels, Corpus.open(data / "train"), _numbers(data, labels), read_valid(folder, labels)
    )


def read_valid(folder: Path, labels: Labels) -> list[Example]:
    """The validation examples that a run keeps."""
    path = folder / "data" / VALID
    if not path.exists():
        raise UserError(f"{path} is missing: without its data the run cannot go on")
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
        return [
            Example(text, second, tuple(label) if labels.kind == "several" else label) for text, second, label in rows
        ]
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def with_separator(files: LabelledFile) -> LabelledFile:
    """With the separator of several labels found, where none was given and one is to be found."""
    if files.labels != "several" or files.separator is not None or files.data == "-":
        return files
    return replace(files, separator=found_separator(files))


def in_training(run: Path, examples: Sequence[Example]) -> np.ndarray | None:
    """Which of these texts the run was trained on; None where it was moved without its data."""
    path = run / "data" / KEYS
    if not path.is_file():
        return None
    try:
        known = mapped(path)
        if known.dtype != np.uint64 or known.ndim != 1:
            raise ValueError("it holds no keys of texts")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{path} is damaged: {error}") from None
    return np.isin(np.array([text_key(example) for example in examples], dtype=np.uint64), known)


def _refusing(examples: Examples, reports: list[LabelReport], files: LabelledFile) -> Examples:
    """The examples; at their end, labels that cannot be learnt from are refused."""
    column = "the label column" if files.columns is None else f"the column {files.columns[-1]!r}"

    def reading() -> Iterator[Example]:
        yield from examples()
        reports[-1].check(column)

    return reading


def _overlap(training: Examples, valid: Sequence[Example]) -> Overlap:
    texts = {text_key(example) for example in valid}
    met: dict[int, set[object]] = {}
    for example in training():
        if (key := text_key(example)) in texts:
            met.setdefault(key, set()).add(example.label)
    found = [met.get(text_key(example)) for example in valid]
    same = sum(labels is not None and example.label in labels for example, labels in zip(valid, found, strict=True))
    return Overlap(len(valid), same, sum(labels is not None for labels in found))


@dataclass(frozen=True)
class _Texts:
    """The texts of examples, which can be read again."""

    examples: Examples

    def __iter__(self) -> Iterator[str]:
        for example in self.examples():
            yield example.text
            if example.second is not None:
                yield example.second


class _Writing:
    """Rows of a corpus, some at a time: the tokeniser is fast on many, and memory stays flat."""

    def __init__(self, training: Examples, reader: TextReader, labels: Labels, longest: int | None) -> None:
        self.training, self.reader, self.labels, self.longest = training, reader, labels, longest
        self.cut = 0
        self.keys, self.numbers = array("Q"), array("d")

    def rows(self) -> Iterator[tuple[list[int], list[int]]]:
        waiting: list[Example] = []
        size = 0
        for example in self.training():
            waiting.append(example)
            size += len(example.text) + len(example.second or "")
            if size >= AT_ONCE:
                yield from self._flush(waiting)
                waiting, size = [], 0
        yield from self._flush(waiting)

    def _flush(self, examples: list[Example]) -> Iterator[tuple[list[int], list[int]]]:
        read = self.reader.read([example.texts for example in examples], self.longest)
        self.cut += read.cut
        for example, tokens in zip(examples, read.rows, strict=True):
            self.keys.append(text_key(example))
            if isinstance(example.label, float):
                self.numbers.append(example.label)
            yield tokens, self.labels.ids(example.label)


def _save(path: Path, array: np.ndarray) -> None:
    with whole_file(path) as part:
        np.save(part, array, allow_pickle=False)


def _numbers(data: Path, labels: Labels) -> np.ndarray | None:
    if labels.kind != "number":
        return None
    try:
        numbers = np.array(mapped(data / NUMBERS))
        if numbers.dtype != np.float64 or numbers.ndim != 1:
            raise ValueError("it holds no numbers")
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{data / NUMBERS} is damaged or missing: {error}") from None
    return numbers
