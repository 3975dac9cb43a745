"""Questions, the texts that answer them, and where the answers stand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sightline.data.checking import Report
from sightline.data.columns import Cells, choose_columns, read_columns, text_problem
from sightline.data.labelled import Example
from sightline.data.source import Source
from sightline.data.tables import kind_of, name_of
from sightline.errors import UserError

QUESTION_NAMES = ("question", "query")
TEXT_NAMES = ("text", "context", "passage")
ANSWER_NAMES = ("answer", "answers")
START_NAMES = ("start", "answer_start")
SHOWN = 40  # characters of an answer in an error


class Asked(NamedTuple):
    """A question, a text, and the answers that are right: none of them where the text does not say.

    ``start`` is the first character of the first answer, or -1.
    """

    question: str
    text: str
    answers: tuple[str, ...] = ()
    start: int = -1

    @property
    def end(self) -> int:
        """Behind the last character of the first answer."""
        return self.start + len(self.answers[0]) if self.answers else -1

    def as_example(self) -> Example:
        """What texts are told apart and split by: all questions to one text go together."""
        return Example(self.text, None, "answer" if self.answers else "none")


class AskedRow(NamedTuple):
    """A question and where it stands, or the ``problem`` that it has."""

    asked: Asked | None
    file: str
    line: int
    problem: str | None = None


@dataclass(frozen=True)
class AnswersFile:
    """A table, ``"-"`` is standard input. ``columns``: the names of question, text and answer, and of the start."""

    data: str
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and (len(self.columns) not in (3, 4) or not all(self.columns)):
            found = ", ".join(map(repr, self.columns)) or "none"
            raise UserError(
                f"columns: found {found}; expected the names of question, text and answer, and where there is one of "
                "the start"
            )


def answer_cells(source: Source, columns: Sequence[Any]) -> Iterator[Cells]:
    """Every row of a source as question, text, answer and, where there is one, start."""
    files, row = AnswersFile(str(source.data), source.columns), None
    names = (QUESTION_NAMES, TEXT_NAMES, ANSWER_NAMES)
    for row in read_columns(
        files.data, lambda name, found: choose_columns(name, found, names, files.columns, (START_NAMES,))
    ):
        yield row
    if row is None:
        raise UserError(f"{name_of(files.data)} has no rows: found an empty file or a header alone; expected questions")


def answers_in(text: str, answer: Any, start: Any) -> tuple[tuple[str, ...], int]:
    """The right answers and where the first of them begins, or a `ValueError` that says what is wrong."""
    answers, begins = _answers(answer, start)
    return answers, _place(text, answers, begins)


class _AnswerError(ValueError):
    """What is wrong with an answer: "kind: what was found"."""


def _row(cells: Cells) -> AskedRow:
    problem = cells.problem
    for value, column in zip(cells.values, ("the question", "the text"), strict=False):
        problem = problem or text_problem(value, column)
    if problem is None:
        try:
            question, text, answer, *rest = cells.values
            found = answers_in(text, answer, rest[0] if rest else None)
            return AskedRow(Asked(question, text, *found), cells.file, cells.line)
        except _AnswerError as error:
            problem = str(error)
    return AskedRow(None, cells.file, cells.line, problem)


def _answers(value: Any, start: Any) -> tuple[tuple[str, ...], int | None]:
    """One answer, a list of right ones, or, as SQuAD's tables have it, an object of their texts and starts."""
    if isinstance(value, dict) and "text" in value:
        start = value.get("answer_start") if start is None else start
        value = value["text"]
    found = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(one, str) for one in found):
        wrong = next(one for one in found if not isinstance(one, str))
        raise _AnswerError(f"answer is not text: found {kind_of(wrong)}, expected a string or a list of strings")
    for one in found:
        if (problem := text_problem(one, "the answer")) is not None:
            raise _AnswerError(problem)
    if isinstance(start, list):
        start = start[0] if start else None
    if isinstance(start, str):
        start = start.strip() or None
    if start is not None:
        try:
            start = -1 if isinstance(start, bool | dict | list) else int(start)
        except (ValueError, OverflowError):
            start = -1
    answers = tuple(one for one in found if one.strip())
    if not answers:
        return answers, None  # -1 is a common way to say that it stands nowhere
    if start is not None and start < 0:
        raise _AnswerError("bad start: found no number of a character, expected one from 0 or an empty cell")
    return answers, start


def _place(text: str, answers: tuple[str, ...], start: int | None) -> int:
    if not answers:
        return -1
    answer = answers[0]
    shown = repr(answer if len(answer) <= SHOWN else answer[: SHOWN - 1] + "…")
    if start is None:
        place = text.find(answer)
        if place < 0:
            raise _AnswerError(f"answer not in text: found {shown}, expected words that stand in the text")
        return place
    if text[start : start + len(answer)] != answer:
        there = text[start : start + min(len(answer), SHOWN)]
        raise _AnswerError(f"answer not at start: found {there!r} at character {start:,}, expected {shown}")
    return start


@dataclass
class AnswerReport(Report):
    """What was found; ``pairs`` are the questions kept."""

    unanswered: int = 0

    def add(self, x: tuple[str, str], y: tuple[Sequence[str], int]) -> None:
        self.source_characters.add(len(x[1]))
        self.target_characters.add(len(x[0]))
        self.unanswered += not y[0]

    def check(self, source: Any) -> None:
        """Refuse questions without any answer."""
        if self.unanswered == self.pairs:
            raise UserError(f"none of the {self.pairs:,} questions has an answer; there is nothing to learn")

    def to_json(self) -> dict[str, Any]:
        found = super().to_json()
        kept = {name: found[name] for name in ("rows", "left_out", "places", "duplicates")}
        lengths = {"characters": found["source_characters"], "question_characters": found["target_characters"]}
        return {"questions": self.pairs, **kept, "unanswered": self.unanswered, **lengths}

    def lines(self) -> list[str]:
        lines = [f"{self.pairs:,} questions of {self.rows:,} rows"]
        for name, lengths in (("text", self.source_characters), ("question", self.target_characters)):
            if found := lengths.to_json():
                lines.append(f"{name} characters: " + ", ".join(f"{key} {value:,}" for key, value in found.items()))
        if self.unanswered:
            lines.append(f"{self.unanswered:,} questions have no answer: the model may say that there is none")
        if self.duplicates:
            lines.append(f"{self.duplicates:,} questions were there before with the same text and answer (kept)")
        return lines + self.left_out_lines()
