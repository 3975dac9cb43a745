"""A trained model that finds answers in texts: predict, score, save and load."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from sightline.config import Config
from sightline.data.answers import AnswerReport, AnswersFile, Asked, CheckedAnswers, read_answers
from sightline.data.checking import Limits
from sightline.data.texts import TextReader
from sightline.errors import UserError
from sightline.models.heads import Span
from sightline.tasks.classifier import (
    BATCH_TOKENS,
    TOKENISER,
    about_reader,
    load_labeller,
    load_reader,
    text_batches,
    to_texts,
)
from sightline.tasks.classify_data import in_training
from sightline.tasks.loading import Saved
from sightline.tasks.starting import SPAN
from sightline.tasks.windows import windows
from sightline.training import scores
from sightline.training.folder import MODEL, RunFolder, save_tensors

NONE = 0  # the token on which both pointers stand where a stretch of text does not hold the answer
ANSWERED = 256  # questions answered together


@runtime_checkable
class SaysPlaces(Protocol):
    """What of a tokeniser is needed here besides encoding."""

    def pieces(self, text: str) -> list[tuple[str, tuple[int, int]]]: ...


class AnswerPrediction(NamedTuple):
    """The answer, its characters in the text (first, behind the last) and its probability.

    Where the text does not say, the answer is empty, and the probability is that of there being none.
    """

    answer: str
    start: int | None
    end: int | None
    probability: float


class Stretch(NamedTuple):
    """A question with a part of the text as a model reads it. ``offset`` is the place of the token ``first``."""

    tokens: list[int]
    offset: int
    first: int
    behind: int


class Read(NamedTuple):
    """A question to a text as stretches, and the characters that each token of the text covers."""

    stretches: list[Stretch]
    places: list[tuple[int, int]]
    question_cut: bool


def read_pair(reader: TextReader, question: str, text: str, longest: int, overlap: int) -> Read:
    """As ``START question END text END``, several times over parts of the text where it is long."""
    tokeniser, specials = reader.tokeniser, reader.specials
    assert isinstance(tokeniser, SaysPlaces)
    asked, tokens = tokeniser.encode([question, text])
    places = [place for _, place in tokeniser.pieces(text)]
    most = max(1, (longest - 3) // 2)
    room = longest - 3 - min(len(asked), most)
    stretches = []
    for first, behind in windows([1] * len(tokens), room, min(overlap, room // 2)):
        before = [specials.start, *asked[:most], specials.end]
        stretches.append(Stretch([*before, *tokens[first:behind], specials.end], len(before), first, behind))
    return Read(stretches, places, len(asked) > most)


def gold_tokens(asked: Asked, places: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and the last token of the answer; None where there is none."""
    if not asked.answers:
        return None
    start, end = asked.start, asked.end
    within = [i for i, (first, behind) in enumerate(places) if behind > start and first < end and behind > first]
    # A piece may begin with the blank before it: one that covers only the blank before the answer is not of it.
    within = [i for i in within if asked.text[max(places[i][0], start) : min(places[i][1], end)].strip()]
    return (within[0], within[-1]) if within else None


class Answerer:
    """A model with its tokeniser. ``unanswered``: it may say that the text does not hold the answer."""

    def __init__(
        self,
        model: nn.Module,
        reader: TextReader,
        longest: int,
        overlap: int,
        longest_answer: int,
        unanswered: bool,
        name: str = "the model",
        run: Path | None = None,
    ) -> None:
        self.model, self.reader, self.longest, self.overlap = model, reader, longest, overlap
        self.longest_answer, self.unanswered, self.name, self.run = longest_answer, unanswered, name, run

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        batch_tokens: int = BATCH_TOKENS,
        on_predicted: Callable[[int], None] = lambda count: None,
    ) -> list[AnswerPrediction]:
        """The answer to each question in its text; a pair is a question and a text."""
        if batch_tokens < 1:
            raise UserError(f"batch_tokens is {batch_tokens}; it must be at least 1")
        for number, pair in enumerate(pairs, start=1):
            if isinstance(pair, str) or len(pair) != 2:
                raise UserError(f"pair {number:,}: expected a question and a text")
        found: list[AnswerPrediction] = []
        for start in range(0, len(pairs), ANSWERED):
            some = pairs[start : start + ANSWERED]
            found += self._answer(some, batch_tokens)
            on_predicted(len(some))
        return found

    @torch.inference_mode()
    def _answer(self, pairs: Sequence[tuple[str, str]], batch_tokens: int) -> list[AnswerPrediction]:
        reads = [read_pair(self.reader, *pair, self.longest, self.overlap) for pair in pairs]
        jobs = [(pair, stretch) for pair, read in enumerate(reads) for stretch in read.stretches]
        best: list[_Best] = [_Best()] * len(pairs)
        in_training_mode = self.model.training
        self.model.eval()
        try:
            for chosen in text_batches([len(stretch.tokens) for _, stretch in jobs], batch_tokens):
                texts = to_texts(*self.reader.pad([jobs[i][1].tokens for i in chosen]), self.device)
                logits = self.model.scores(texts).float()  # type: ignore[operator]
                for job, one in zip(chosen, self._best(logits), strict=True):
                    pair, stretch = jobs[job]
                    best[pair] = best[pair].better(one, stretch)
        finally:
            self.model.train(in_training_mode)
        return [self._said(text, read, one) for (_, text), read, one in zip(pairs, reads, best, strict=True)]

    def _best(self, logits: Tensor) -> Iterator[tuple[int, int, float, float]]:
        """Of each stretch: the likeliest span, the logarithms of its probability and of there being none."""
        chances = torch.log_softmax(logits, dim=-1)
        inside = logits.clone()
        inside[:, :, NONE] = torch.finfo(logits.dtype).min
        places = Span.best(inside, self.longest_answer)
        rows = torch.arange(len(places), device=places.device)
        likely = chances[rows, 0, places[:, 0]] + chances[rows, 1, places[:, 1]]
        none = chances[:, :, NONE].sum(dim=1)
        yield from zip(*(one.tolist() for one in (places[:, 0], places[:, 1], likely, none)), strict=True)

    def _said(self, text: str, read: Read, best: "_Best") -> AnswerPrediction:
        if not read.places or best.stretch is None or (self.unanswered and best.none):
            return AnswerPrediction("", None, None, float(np.exp(best.least_none)) if read.places else 1.0)
        stretch = best.stretch
        first, last = (stretch.first + place - stretch.offset for place in (best.start, best.end))
        start, end = read.places[first][0], read.places[last][1]
        answer = text[start:end]
        if not answer.strip():  # a blank is no answer
            return AnswerPrediction("", None, None, float(np.exp(best.likely)))
        start += len(answer) - len(answer.lstrip())
        return AnswerPrediction(answer.strip(), start, start + len(answer.strip()), float(np.exp(best.likely)))

    def evaluate(self, data: str | Path | Sequence[Asked], **options: Any) -> "AnswerEvaluation":
        """Every score on questions with answers: a file, or the questions."""
        if isinstance(data, str | Path):
            data = read_asked(AnswersFile(str(data)))[0]
        return evaluate(self, data, **options)


class _Best(NamedTuple):
    """The likeliest span of the stretches so far; ``none`` as long as each of them rather says that it has none."""

    stretch: Stretch | None = None
    start: int = 0
    end: int = 0
    likely: float = -np.inf
    none: bool = True
    least_none: float = 0.0

    def better(self, found: tuple[int, int, float, float], stretch: Stretch) -> "_Best":
        start, end, likely, none = found
        if stretch.first == stretch.behind:  # there is no text
            return self
        after = self._replace(none=self.none and none >= likely, least_none=min(self.least_none, none))
        if likely > self.likely:
            after = after._replace(stretch=stretch, start=start, end=end, likely=likely)
        return after


def read_asked(files: AnswersFile, limits: Limits | None = None) -> tuple[list[Asked], AnswerReport]:
    """The good questions of a file, and what was left out."""
    reading = CheckedAnswers(read_answers(files), limits)
    return list(reading), reading.report


def measure(said: Sequence[str], asked: Sequence[Asked]) -> dict[str, float]:
    """Exact match and F1 of words, as SQuAD counts them."""
    gold = [list(one.answers) for one in asked]
    return {"f1": scores.answer_f1(said, gold).value, "exact": scores.answer_exact(said, gold).value}


@dataclass(frozen=True)
class AnswerEvaluation:
    """Predictions for questions, and every score of them.

    ``without``: of questions to texts that training did not have; ``answered`` of those that have an answer, where some
    have none.
    """

    asked: list[Asked]
    predictions: list[AnswerPrediction]
    values: dict[str, float]
    seen: int | None
    without: dict[str, float] | None
    answered: dict[str, float] | None
    in_stretches: int
    seconds: float

    def worst(self, count: int) -> list[dict[str, Any]]:
        """The wrong answers that the model was surest of."""
        wrong = [
            row
            for row, (one, asked) in enumerate(zip(self.predictions, self.asked, strict=True))
            if measure([one.answer], [asked])["exact"] == 0
        ]
        return [self._row(row) for row in sorted(wrong, key=lambda row: -self.predictions[row].probability)[:count]]

    def _row(self, row: int) -> dict[str, Any]:
        asked, found = self.asked[row], self.predictions[row]
        given = {"question": asked.question, "text": asked.text, "answers": list(asked.answers)}
        said = {"prediction": found.answer, "start": found.start, "end": found.end, "probability": found.probability}
        return given | said

    def rows(self) -> list[dict[str, Any]]:
        """Every question with its prediction."""
        return [self._row(row) for row in range(len(self.asked))]

    def to_json(self, errors: int = 0) -> dict[str, Any]:
        """Everything but the predictions; with ``errors``, that many of the worst."""
        found: dict[str, Any] = {"questions": len(self.asked), **self.values}
        for name in ("seen", "without", "answered"):
            if (value := getattr(self, name)) is not None:
                found[{"seen": "in_training", "without": "without_training_texts"}.get(name, name)] = value
        found["in_stretches"] = self.in_stretches
        return found | ({"errors": self.worst(errors)} if errors else {})


def evaluate(
    answerer: Answerer, asked: Sequence[Asked], *, on_predicted: Callable[[int], None] = lambda count: None
) -> AnswerEvaluation:
    """Every score of a model on questions, with and without those to texts that it was trained on."""
    if not asked:
        raise UserError("there is no question to score; expected at least one")
    started = time.perf_counter()
    found = answerer.predict([(one.question, one.text) for one in asked], on_predicted=on_predicted)
    seconds = time.perf_counter() - started
    said = [one.answer for one in found]
    flags = None if answerer.run is None else in_training(answerer.run, [one.as_example() for one in asked])

    def of(rows: np.ndarray | None) -> dict[str, float] | None:
        if rows is None or not rows.any() or rows.all():
            return None
        chosen = np.flatnonzero(rows).tolist()
        return measure([said[row] for row in chosen], [asked[row] for row in chosen])

    reads = (read_pair(answerer.reader, one.question, one.text, answerer.longest, answerer.overlap) for one in asked)
    return AnswerEvaluation(
        list(asked),
        found,
        measure(said, asked),
        None if flags is None else int(flags.sum()),
        of(None if flags is None else ~flags),
        of(np.array([bool(one.answers) for one in asked])),
        sum(len(read.stretches) > 1 for read in reads),
        seconds,
    )


def save_answerer(folder: RunFolder, answerer: Answerer, config: Config, weights: str) -> None:
    """Everything that `load_answerer` needs."""
    save_tensors(folder.path / MODEL, dict(answerer.model.state_dict()))
    answerer.reader.tokeniser.save(folder.path / TOKENISER)
    about = {"task": SPAN, "weights": weights, "unanswered": answerer.unanswered, **about_reader(answerer.reader)}
    folder.write_config({**about, "config": config.to_json()})


def load_answerer(path: Path) -> tuple[Answerer, dict[str, Any]]:
    """A trained model from its run folder, checked file by file; or as it was at one of the run's checkpoints."""
    from sightline.tasks.span import SpanConfig

    saved = Saved.open(path, SPAN)
    data = saved.about
    reader = load_reader(saved.path, data, pairs=True)
    with saved.reading():
        config = SpanConfig.from_json(data["config"])
    model = load_labeller(saved, lambda: config.build(reader), config.lora)
    shape = (config.longest, config.overlap, config.longest_answer, data.get("unanswered") is True)
    return Answerer(model, reader, *shape, saved.name, saved.path), data
