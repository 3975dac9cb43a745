"""Questions, the texts that answer them, and where the answers stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sightline.data.checking import Report
from sightline.data.columns import text_problem
from sightline.data.tables import kind_of
from sightline.errors import UserError

QUESTION_NAMES = ("question", "query")
TEXT_NAMES = ("text", "context", "passage")
SHOWN = 40  # characters of an answer in an error


def answers_in(text: str, answer: Any, start: Any) -> tuple[tuple[str, ...], int]:
    """The right answers and where the first of them begins, or a `ValueError` that says what is wrong."""
    answers, begins = _answers(answer, start)
    return answers, _place(text, answers, begins)


def _answers(value: Any, start: Any) -> tuple[tuple[str, ...], int | None]:
    """One answer, a list of right ones, or, as SQuAD's tables have it, an object of their texts and starts."""
    if isinstance(value, dict) and "text" in value:
        start = value.get("answer_start") if start is None else start
        value = value["text"]
    texts = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(one, str) for one in texts):
        wrong = next(one for one in texts if not isinstance(one, str))
        raise ValueError(f"answer is not text: found {kind_of(wrong)}, expected a string or a list of strings")
    for one in texts:
        if (problem := text_problem(one, "the answer")) is not None:
            raise ValueError(problem)
    if isinstance(start, list):
        start = start[0] if start else None
    if isinstance(start, str):
        start = start.strip() or None
    if start is not None:
        try:
            start = -1 if isinstance(start, bool | dict | list) else int(start)
        except (ValueError, OverflowError):
            start = -1
    answers = tuple(one for one in texts if one.strip())
    if not answers:
        return answers, None  # -1 is a common way to say that it stands nowhere
    if start is not None and start < 0:
        raise ValueError("bad start: found no number of a character, expected one from 0 or an empty cell")
    return answers, start


def _place(text: str, answers: tuple[str, ...], start: int | None) -> int:
    if not answers:
        return -1
    answer = answers[0]
    shown = repr(answer if len(answer) <= SHOWN else answer[: SHOWN - 1] + "…")
    if start is None:
        place = text.find(answer)
        if place < 0:
            raise ValueError(f"answer not in text: found {shown}, expected words of the text")
        return place
    if text[start : start + len(answer)] != answer:
        there = text[start : start + min(len(answer), SHOWN)]
        raise ValueError(f"answer not at start: found {there!r} at character {start:,}, expected {shown}")
    return start


@dataclass
class AnswerReport(Report):
    """The report on such data; ``pairs`` are the questions kept."""

    kept: ClassVar[str] = "questions"
    again: ClassVar[str] = "questions were there before with the same text and answer (kept)"
    measured: ClassVar[Mapping[str, str]] = {
        "characters": "text characters",
        "question_characters": "question characters",
    }
    unanswered: int = 0

    def add(self, x: tuple[str, str], y: tuple[Sequence[str], int]) -> None:
        self.measure(len(x[1]), len(x[0]))
        self.unanswered += not y[0]

    def check(self, source: Any) -> None:
        """Refuse questions without any answer."""
        if self.unanswered == self.pairs:
            raise UserError(f"none of the {self.pairs:,} questions has an answer; there is nothing to learn")

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "unanswered": self.unanswered}

    def heading(self) -> str:
        return f"{self.pairs:,} questions of {self.rows:,} rows"

    def more(self) -> list[str]:
        unanswered = f"{self.unanswered:,} questions have no answer: the model may say that there is none"
        return [unanswered] if self.unanswered else []
