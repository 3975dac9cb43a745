"""From sentences with a label for each word to a trained tagger: names, parts of speech, segmentation."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sightline.data.batches import BatchRows
from sightline.data.checking import Limits
from sightline.data.splitting import Overlap
from sightline.data.store import Corpus, write_corpus
from sightline.data.stratified import split_examples
from sightline.data.tagged import CheckedSentences, Sentence, TaggedFile, TagReport, read_tagged
from sightline.data.texts import TextReader
from sightline.data.tokenise import TokeniserConfig, train_tokeniser
from sightline.errors import UserError
from sightline.files import write_text
from sightline.layers.embedding import LOUD
from sightline.models.heads import NOTHING, Labeller, build_labeller
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.tasks.card import Wording
from sightline.tasks.classifier import to_texts
from sightline.tasks.course import (
    Course,
    ReadingConfig,
    course_trial,
    overlap_lines,
    overlap_of,
    table_section,
    train_course,
    write_keys,
)
from sightline.tasks.labels import LABELS, Labels
from sightline.tasks.lessons import TextLesson
from sightline.tasks.preparing import VALID, keep_pipe
from sightline.tasks.starting import TAG
from sightline.tasks.table import Trial
from sightline.tasks.tagger import Tagger, TagMetric, cut_words, load_tagger, mean_loss, measure, save_tagger
from sightline.training import scores
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome

AT_ONCE = 1000  # sentences tokenised together
Sentences = Callable[[], Iterator[Sentence]]


def _attentive() -> TextModelConfig:
    from sightline.models.attentive import AttentiveConfig

    return AttentiveConfig(deviation=LOUD)


def _pieces() -> TokeniserConfig:
    # Capitals and endings say much of a word: names, parts of speech.
    return TokeniserConfig(method="bpe", words=8000)


@dataclass(frozen=True)
class TagConfig(ReadingConfig):
    """``metric`` left out is F1 of spans where labels mark them (B-PER, I-PER), else the accuracy of words.

    ``longest``: sentences of more tokens are read in stretches. ``smoothing`` is that of the labels in training.
    """

    model: TextModelConfig = field(default_factory=_attentive)
    tokeniser: TokeniserConfig = field(default_factory=_pieces)
    metric: TagMetric | None = None
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.kind == "han":
            raise ValueError("a model of documents (han) has nothing to say of single words; use attentive or encoder")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"smoothing is {self.smoothing}; it must be at least 0 and below 1")

    def build(self, labels: Labels, reader: TextReader) -> Labeller:
        """The model with its head."""
        model = self.model.build(reader.words, reader.specials)
        return build_labeller("tag_each", model, labels.classes, smoothing=self.smoothing, dropout=self.dropout)


@dataclass(frozen=True)
class PreparedTags:
    """How sentences are read, what the labels are, the training corpus on the disk, and the validation sentences."""

    reader: TextReader
    labels: Labels
    corpus: Corpus  # stretches of tokens; and for each token its label and one, or 0
    valid: list[Sentence]
    report: TagReport | None = None
    valid_report: TagReport | None = None
    overlap: Overlap | None = None
    long: int = 0
    longest: int = 0

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        if self.long:
            found.append(
                f"{self.long:,} sentences have more than {self.longest:,} tokens (longest): they are read in stretches"
            )
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        if unseen := self.labels.unseen([tag for sentence in self.valid for tag in sentence.tags]):
            named = ", ".join(f"{name!r} ({count:,})" for name, count in list(unseen.items())[:10])
            found.append(f"validation data has labels that training does not have, counted as wrong: {named}")
        return found + overlap_lines(self.overlap, "sentences")

    def summary(self) -> str:
        """One line of what is trained on."""
        return (
            f"{len(self.corpus):,} sentences to train on, {len(self.valid):,} to validate; "
            f"{self.reader.tokeniser.words:,} different tokens"
        )


class TagLesson(TextLesson[PreparedTags, TagConfig]):
    """Batches, loss and score for the training loop."""

    def batch(self, handle: BatchRows) -> tuple[Texts, Tensor]:
        rows = [self.prepared.corpus[row] for row in handle.tolist()]
        words, parts = self.prepared.reader.pad([tokens for tokens, _ in rows])
        gold = np.full(words.shape, NOTHING, np.int64)
        for place, (_, labels) in enumerate(rows):
            gold[place, : len(labels)] = labels.astype(np.int64) - 1
        return to_texts(words, parts), torch.from_numpy(gold)

    def tokens(self, batch: tuple[Texts, Tensor]) -> int:
        """Words, each counted once however many pieces it has."""
        return int((batch[1] != NOTHING).sum())

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides, the loss, and the other metrics."""
        labels = self.prepared.labels
        tagger = Tagger(model, self.prepared.reader, labels, self.config.longest)
        chances = tagger.chances([sentence.words for sentence in self.valid])
        said = [[labels.names[i] for i in rows.argmax(axis=1).tolist()] for rows in chances]
        gold = [sentence.tags for sentence in self.valid]
        values = measure(labels, said, gold).values
        first = self.config.metric or ("span_f1" if "span_f1" in values else "accuracy")
        if first not in values:
            raise UserError(f"metric is {first}; of these labels there is {', '.join(values)}")
        ordered = {first: values[first], "valid_loss": mean_loss(labels, chances, gold)}
        return {name: round(value, 4) for name, value in (ordered | values).items()}


class TagCourse(Course[TagConfig, PreparedTags, Tagger]):
    task, counted, sealed = TAG, "word", (LABELS,)

    def prepare(self, files: TaggedFile, valid: TaggedFile | None, folder: Path) -> PreparedTags:
        data, config = folder / "data", self.config
        files = replace(files, data=keep_pipe(files.data, data))
        reports: list[TagReport] = []

        def sentences() -> Iterator[Sentence]:
            reading = CheckedSentences(read_tagged(files), self.limits)
            reports.append(reading.report)
            yield from reading
            reading.report.check()

        valid_report, training = None, sentences
        if valid is None:
            split = split_examples(lambda: (one.as_example() for one in sentences()), config.valid_share, config.seed)

            def training() -> Iterator[Sentence]:
                return (one for one in sentences() if not split.is_valid(one.as_example()))

            kept = [one for one in sentences() if split.is_valid(one.as_example())]
        else:
            for _ in sentences():
                pass
            reading = CheckedSentences(read_tagged(valid), self.limits)
            kept, valid_report = list(reading), reading.report
        labels = _labels_of(reports[0], files.columns)
        reader = self._reader(training)
        long = 0

        def rows() -> Iterator[tuple[list[int], list[int]]]:
            nonlocal long
            for some in _groups(training(), AT_ONCE):
                cut = cut_words(reader, [sentence.words for sentence in some], config.longest, 0)
                for sentence, cuts in zip(some, cut, strict=True):
                    long += len(cuts) > 1
                    ids = [labels.index(tag) + 1 for tag in sentence.tags]
                    for one in cuts:
                        gold = [0] * len(one.tokens)
                        for place, label in zip(one.places, ids[one.first : one.behind], strict=True):
                            gold[place] = label
                        yield one.tokens, gold

        corpus = write_corpus(data / "train", rows())
        apart = [sentence.as_example() for sentence in kept] if valid is None else []
        write_keys(data, (*(one.as_example() for one in training()), *apart))
        write_text(data / VALID, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in kept))
        overlap = (
            None
            if valid is None
            else overlap_of([one.as_example() for one in kept], (one.as_example() for one in training()))
        )
        found = PreparedTags(reader, labels, corpus, kept, reports[0], valid_report, overlap, long, config.longest)
        self._check_metric(labels)
        return found

    def _check_metric(self, labels: Labels) -> None:
        spans = scores.are_spans(labels.names)
        if self.config.metric == ("macro_f1" if spans else "span_f1"):
            there = "span_f1 and accuracy" if spans else "accuracy and macro_f1: no label begins with B-"
            raise UserError(f"metric is {self.config.metric}; of these labels there is {there}")

    def _reader(self, training: Sentences) -> TextReader:
        if self.earlier is not None:
            return replace(self.earlier.reader, pairs=False, sentences=False)
        return TextReader(train_tokeniser(_Words(training), self.config.tokeniser))

    def reopen(self, folder: Path) -> PreparedTags:
        before, _ = load_tagger(folder)
        path = folder / "data" / VALID
        try:
            lines = path.read_text(encoding="utf-8").split("\n")[:-1]
            valid = [Sentence(tuple(words), tuple(tags)) for words, tags in map(json.loads, lines)]
        except FileNotFoundError:
            raise UserError(f"{path} is missing: without its data the run cannot go on") from None
        except (TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return PreparedTags(before.reader, before.labels, Corpus.open(folder / "data" / "train"), valid)

    def lesson(self, prepared: PreparedTags) -> TagLesson:
        return TagLesson(prepared, self.config)

    def new_model(self, prepared: PreparedTags) -> nn.Module:
        model = self.config.build(prepared.labels, prepared.reader)
        if self.earlier is not None:
            self.earlier.put_into(model, prepared.labels)
        return model

    def finished(self, model: nn.Module, prepared: PreparedTags, out: Path) -> Tagger:
        return Tagger(model, prepared.reader, prepared.labels, self.config.longest, str(out), out)

    def save(self, folder: RunFolder, found: Tagger, weights: str) -> None:
        save_tagger(folder, found, self.config, weights)

    def wording(self, folder: RunFolder, found: Tagger, prepared: PreparedTags) -> Wording:
        said = [one.tags for one in found.predict([sentence.words for sentence in prepared.valid])]
        table = measure(found.labels, said, [sentence.tags for sentence in prepared.valid]).table
        first, counted = ("kind", "spans") if found.spans else ("label", "words")
        return Wording(
            "that gives each word a label",
            "sentences",
            "On validation data.",
            limits=(
                "It gives every word one of its labels, also where none of them is right.",
                "Where it looked is not why it decided: attention is a picture of the computation, not an explanation.",
            ),
            sections=tuple(table_section("Spans" if found.spans else "Labels", first, counted, table)),
        )


@dataclass(frozen=True)
class _Words:
    """What a vocabulary is learnt from: words, which can be read again."""

    sentences: Sentences

    def __iter__(self) -> Iterator[str]:
        for sentence in self.sentences():
            yield from sentence.words


def _groups(sentences: Iterator[Sentence], count: int) -> Iterator[list[Sentence]]:
    waiting: list[Sentence] = []
    for sentence in sentences:
        waiting.append(sentence)
        if len(waiting) == count:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _labels_of(report: TagReport, columns: tuple[str, ...] | None) -> Labels:
    names = sorted(report.labels)
    return Labels("one", tuple(names), tuple(report.labels[name] for name in names), columns=columns)


def train_tag(
    files: TaggedFile | None,
    out: Path,
    config: TagConfig,
    *,
    limits: Limits | None = None,
    start: Path | None = None,
    **options: Any,
) -> tuple[Tagger, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None."""
    return train_course(TagCourse(config, limits, start), files, out, start=start, **options)


def tag_trial(
    files: TaggedFile,
    valid: TaggedFile | None,
    config: TagConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What training a tagger would begin with."""
    return course_trial(TagCourse(config, limits, start), files, valid, folder)
