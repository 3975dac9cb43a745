"""From questions, texts and answers to a model that says where in a text the answer stands."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sightline.data.answers import AnswerReport, AnswersFile, Asked, CheckedAnswers, read_answers
from sightline.data.batches import BatchRows
from sightline.data.checking import Limits
from sightline.data.splitting import Overlap
from sightline.data.store import Corpus, write_corpus
from sightline.data.stratified import split_examples
from sightline.data.texts import TextReader
from sightline.data.tokenise import TokeniserConfig, train_tokeniser
from sightline.errors import UserError
from sightline.files import write_text
from sightline.models.encoder import EncoderConfig
from sightline.models.heads import Span
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.tasks.answerer import NONE, Answerer, gold_tokens, load_answerer, measure, read_pair, save_answerer
from sightline.tasks.card import Wording
from sightline.tasks.classifier import to_texts
from sightline.tasks.course import (
    Course,
    ReadingConfig,
    course_trial,
    fitted_to_pairs,
    overlap_lines,
    overlap_of,
    train_course,
    write_keys,
)
from sightline.tasks.lessons import TextLesson
from sightline.tasks.preparing import VALID, keep_pipe
from sightline.tasks.starting import SPAN
from sightline.tasks.table import Trial
from sightline.training.folder import RunFolder
from sightline.training.loop import Outcome

SpanMetric = Literal["f1", "exact"]


def _encoder() -> TextModelConfig:
    return EncoderConfig()


def _words() -> TokeniserConfig:
    return TokeniserConfig(method="bpe", words=8000)


@dataclass(frozen=True)
class SpanConfig(ReadingConfig):
    """``longest``: a question and a text of more tokens are read in stretches of the text, which share ``overlap``.

    ``longest_answer`` is the most tokens of an answer.
    """

    model: TextModelConfig = field(default_factory=_encoder)
    tokeniser: TokeniserConfig = field(default_factory=_words)
    metric: SpanMetric = "f1"
    longest: int = 384
    overlap: int = 128
    longest_answer: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model.kind == "han":
            raise ValueError("a model of documents (han) has nothing to say of single words; use attentive or encoder")
        if self.overlap < 0 or self.longest_answer < 1:
            raise ValueError(
                f"overlap is {self.overlap} and longest_answer {self.longest_answer}; at least 0 and at least 1"
            )

    def build(self, reader: TextReader) -> Span:
        """The model with its head."""
        return Span(self.model.build(reader.words, reader.specials), self.dropout, none=True)


@dataclass(frozen=True)
class PreparedAnswers:
    """How texts are read, the training corpus on the disk, and the validation questions."""

    reader: TextReader
    corpus: Corpus  # stretches of tokens; and where in each the answer starts and ends
    valid: list[Asked]
    unanswered: bool
    report: AnswerReport | None = None
    valid_report: AnswerReport | None = None
    overlap: Overlap | None = None
    long: int = 0
    longest: int = 0
    too_long: int = 0
    questions_cut: int = 0

    def lines(self) -> list[str]:
        """What there is to say of the data, before training."""
        found = [] if self.report is None else self.report.lines()
        if self.long:
            found.append(
                f"{self.long:,} texts have, with their question, more than {self.longest:,} tokens (longest): they are "
                "read in stretches"
            )
        if self.questions_cut:
            found.append(f"{self.questions_cut:,} questions are longer than half of that: their ends are left out")
        if self.too_long:
            found.append(
                f"{self.too_long:,} answers have more tokens than an answer may have (longest_answer): the model "
                "cannot give them whole"
            )
        if self.valid_report is not None and self.valid_report.bad:
            found += ["of the validation data:", *self.valid_report.left_out_lines()]
        return found + overlap_lines(self.overlap, "questions")

    def summary(self) -> str:
        """One line of what is trained on."""
        return (
            f"{len(self.corpus):,} questions with (parts of) texts to train on, {len(self.valid):,} to validate; "
            f"{self.reader.tokeniser.words:,} different tokens"
        )


class SpanLesson(TextLesson[PreparedAnswers, SpanConfig]):
    """Batches, loss and score for the training loop."""

    def batch(self, handle: BatchRows) -> tuple[Texts, Tensor]:
        rows = [self.prepared.corpus[row] for row in handle.tolist()]
        gold = np.stack([places.astype(np.int64) for _, places in rows])
        return to_texts(*self.prepared.reader.pad([tokens for tokens, _ in rows])), torch.from_numpy(gold)

    def tokens(self, batch: tuple[Texts, Tensor]) -> int:
        """The loss is of questions, not of tokens."""
        return len(batch[1])

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides, then how unsure the model was, and the other metric."""
        answerer = _answerer(model, self.prepared, self.config)
        found = answerer.predict([(one.question, one.text) for one in self.valid])
        values = measure([one.answer for one in found], self.valid)
        doubt = 1 - float(np.mean([one.probability for one in found]))
        ordered = {self.config.metric: values[self.config.metric], "doubt": doubt}
        return {name: round(value, 4) for name, value in (ordered | values).items()}


def _answerer(model: nn.Module, prepared: PreparedAnswers, config: SpanConfig, **about: Any) -> Answerer:
    shape = (config.longest, config.overlap, config.longest_answer, prepared.unanswered)
    return Answerer(model, prepared.reader, *shape, **about)


class SpanCourse(Course[SpanConfig, PreparedAnswers, Answerer]):
    task, counted = SPAN, "question"

    def prepare(self, files: AnswersFile, valid: AnswersFile | None, folder: Path) -> PreparedAnswers:
        data, config = folder / "data", self.config
        files = replace(files, data=keep_pipe(files.data, data))
        reports: list[AnswerReport] = []

        def asked() -> Iterator[Asked]:
            reading = CheckedAnswers(read_answers(files), self.limits)
            reports.append(reading.report)
            return reading

        valid_report, training = None, asked
        if valid is None:
            split = split_examples(lambda: (one.as_example() for one in asked()), config.valid_share, config.seed)

            def training() -> Iterator[Asked]:
                return (one for one in asked() if not split.is_valid(one.as_example()))

            kept = [one for one in asked() if split.is_valid(one.as_example())]
        else:
            for _ in asked():
                pass
            reading = CheckedAnswers(read_answers(valid), self.limits)
            kept, valid_report = list(reading), reading.report
        if reports[0].unanswered == reports[0].pairs:
            raise UserError(f"none of the {reports[0].pairs:,} questions has an answer; there is nothing to learn")
        if self.earlier is None:
            self.config = replace(config, model=fitted_to_pairs(config.model))
            reader = TextReader(train_tokeniser(_Texts(training), config.tokeniser), pairs=True)
        else:
            reader = replace(self.earlier.reader, pairs=True, sentences=False)
        writing = _Writing(training, reader, config)
        corpus = write_corpus(data / "train", writing.rows())
        apart = [one.as_example() for one in kept] if valid is None else []
        write_keys(data, (*(one.as_example() for one in training()), *apart))
        write_text(data / VALID, "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in kept))
        overlap = None
        if valid is not None:
            overlap = overlap_of([one.as_example() for one in kept], (one.as_example() for one in training()))
        return PreparedAnswers(
            reader,
            corpus,
            kept,
            bool(reports[0].unanswered),
            reports[0],
            valid_report,
            overlap,
            writing.long,
            config.longest,
            writing.too_long,
            writing.questions_cut,
        )

    def reopen(self, folder: Path) -> PreparedAnswers:
        before, about = load_answerer(folder)
        self.config = replace(self.config, model=SpanConfig.from_json(about["config"]).model)  # fitted to pairs, or not
        path = folder / "data" / VALID
        try:
            rows = map(json.loads, path.read_text(encoding="utf-8").split("\n")[:-1])
            valid = [Asked(question, text, tuple(answers), start) for question, text, answers, start in rows]
        except FileNotFoundError:
            raise UserError(f"{path} is missing: without its data the run cannot go on") from None
        except (TypeError, ValueError) as error:
            raise UserError(f"{path} is damaged: {error}") from None
        return PreparedAnswers(before.reader, Corpus.open(folder / "data" / "train"), valid, before.unanswered)

    def lesson(self, prepared: PreparedAnswers) -> SpanLesson:
        return SpanLesson(prepared, self.config)

    def new_model(self, prepared: PreparedAnswers) -> nn.Module:
        model = self.config.build(prepared.reader)
        if self.earlier is not None:
            self.earlier.put_into(model)
        return model

    def finished(self, model: nn.Module, prepared: PreparedAnswers, out: Path) -> Answerer:
        return _answerer(model, prepared, self.config, name=str(out), run=out)

    def save(self, folder: RunFolder, found: Answerer, weights: str) -> None:
        save_answerer(folder, found, self.config, weights)

    def wording(self, folder: RunFolder, found: Answerer, prepared: PreparedAnswers) -> Wording:
        always = "It points at some words of any text" if not found.unanswered else "It points at words or at none"
        return Wording(
            "that finds the answer to a question in a text",
            "questions",
            "On validation data: F1 of words and exact match, as SQuAD counts them.",
            "texts it saw have at most {longest:,} characters.",
            (
                f"{always}; whether they are an answer, it does not know.",
                "Where it looked is not why it answered: attention is a picture of the computation, not an "
                "explanation.",
            ),
        )


class _Writing:
    """Rows of a corpus, and what was met on the way."""

    def __init__(self, training: Callable[[], Iterator[Asked]], reader: TextReader, config: SpanConfig) -> None:
        self.training, self.reader, self.config = training, reader, config
        self.long = self.too_long = self.questions_cut = 0

    def rows(self) -> Iterator[tuple[list[int], list[int]]]:
        for asked in self.training():
            read = read_pair(self.reader, asked.question, asked.text, self.config.longest, self.config.overlap)
            gold = gold_tokens(asked, read.places)
            self.long += len(read.stretches) > 1
            self.questions_cut += read.question_cut
            self.too_long += gold is not None and gold[1] - gold[0] >= self.config.longest_answer
            for stretch in read.stretches:
                places = [NONE, NONE]
                if gold is not None and stretch.first <= gold[0] and gold[1] < stretch.behind:
                    places = [stretch.offset + token - stretch.first for token in gold]
                yield stretch.tokens, places


@dataclass(frozen=True)
class _Texts:
    """What a vocabulary is learnt from; can be read again."""

    asked: Callable[[], Iterator[Asked]]

    def __iter__(self) -> Iterator[str]:
        for one in self.asked():
            yield one.question
            yield one.text


def train_span(
    files: AnswersFile | None,
    out: Path,
    config: SpanConfig,
    *,
    limits: Limits | None = None,
    start: Path | None = None,
    **options: Any,
) -> tuple[Answerer, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None."""
    return train_course(SpanCourse(config, limits, start), files, out, start=start, **options)


def span_trial(
    files: AnswersFile,
    valid: AnswersFile | None,
    config: SpanConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What training would begin with."""
    return course_trial(SpanCourse(config, limits, start), files, valid, folder)
