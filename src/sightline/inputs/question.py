"""A question and the text that answers it: ``START question END text END``, several times over parts of a long text."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from sightline.data.answers import QUESTION_NAMES, TEXT_NAMES
from sightline.data.checking import RowLimits
from sightline.errors import UserError
from sightline.inputs.text import ReaderInput, check_length, halves_of, text_of
from sightline.outputs.reports import fields_of
from sightline.tasks.prepare import normalised
from sightline.tasks.task import BadValueError
from sightline.text.encoding import windows

Question = tuple[str, str]  # the question, and the text
Answers = tuple[tuple[str, ...], int]  # the right answers, and the first character of the first of them, or -1
NONE = 0  # the token that both pointers point at where a stretch of text does not hold the answer


class Stretch(NamedTuple):
    """A question with the tokens ``first`` up to ``behind`` of the text; ``offset`` is the place of the first of them.

    ``places`` are the characters that each token of the whole text covers.
    """

    tokens: list[int]
    offset: int
    first: int
    behind: int
    places: list[tuple[int, int]]


class QuestionInput(ReaderInput[Question, Stretch]):
    """Questions to texts. Where both have more than ``config.max_length`` tokens, the text is read in stretches."""

    kind = "pair"
    noun = "questions"
    known_by = "texts"
    example = '("a question", "a text")'
    text_names = ("question", "text")
    at_once = 256
    reads_pairs = True
    questions_cut = 0  # questions that were too long to be stored whole

    def read(self, cells: Mapping[str, object]) -> Question:
        return text_of(cells, "question"), text_of(cells, "text")

    def check(self, x: Question, limits: RowLimits) -> None:
        for text in x:
            check_length(len(text), "a text", limits)
        if not x[0].strip():
            raise BadValueError("no question: found an empty one, expected text")

    def identity(self, x: Question) -> str:
        """That of the text: all questions about a text stay together."""
        return normalised(x[1])

    def pack(self, x: Question) -> list[object]:
        return [*x]

    def unpack(self, row: Sequence[object]) -> tuple[Question, Sequence[object]]:
        return cast("Question", (row[0], row[1])), row[2:]

    def encode(self, xs: Sequence[Question]) -> list[list[Stretch]]:
        return [self._stretches(*x)[0] for x in xs]

    def train_parts(self, xs: Sequence[Question]) -> list[list[Stretch]]:
        stretches = [self._stretches(*x) for x in xs]
        self.cut += sum(len(parts) > 1 for parts, _ in stretches)
        self.questions_cut += sum(cut for _, cut in stretches)
        return [parts for parts, _ in stretches]

    def _stretches(self, question: str, text: str) -> tuple[list[Stretch], bool]:
        """The parts, and whether the question's end was left out."""
        tokeniser: Any = self.reader.tokeniser
        specials, longest = self.reader.specials, self.config.max_length
        text = text if text.strip() else ""
        query, tokens = tokeniser.encode([question, text])
        places = [place for _, place in tokeniser.pieces(text)]
        most = max(1, (longest - 3) // 2)
        room = longest - 3 - min(len(query), most)
        before = [specials.start, *query[:most], specials.end]
        parts = [
            Stretch([*before, *tokens[first:behind], specials.end], len(before), first, behind, places)
            for first, behind in windows([1] * len(tokens), room, min(self.config.overlap, room // 2))
        ]
        return parts, len(query) > most

    def notes(self) -> list[str]:
        lines = []
        if self.cut:
            lines.append(
                f"{self.cut:,} texts have, with their question, more than {self.config.max_length:,} tokens "
                "(max_length): they are read in stretches"
            )
        if self.questions_cut:
            lines.append(f"{self.questions_cut:,} questions are longer than half of that: their ends are left out")
        return lines

    def fields(self, x: Question) -> dict[str, object]:
        return {"question": x[0], "text": x[1]}

    def texts(self, x: Question) -> tuple[str, ...]:
        return x

    def item(self, given: object) -> Question:
        two = cast("Sequence[object]", given)
        if isinstance(two, str) or len(two) != 2 or not all(isinstance(one, str) for one in two):
            raise UserError(f"expected a question and a text, found {given!r:.60}")
        return cast("Question", (two[0], two[1]))

    def parse(self, line: str, number: int, is_json: bool) -> Question:
        if is_json:
            question, text = fields_of(line, number, (QUESTION_NAMES, TEXT_NAMES))
            if not isinstance(question, str) or not isinstance(text, str):
                raise UserError(f"line {number:,}: question and text are not both texts")
            return question, text
        return halves_of(line, number, "expected a question and a text")


def answer_tokens(text: str, answers: Answers, places: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first and the last token of the first answer; None where there is none."""
    if not answers[0]:
        return None
    start = answers[1]
    end = start + len(answers[0][0])
    within = [i for i, (first, behind) in enumerate(places) if behind > start and first < end and behind > first]
    # A piece may begin with the blank before it: one that covers only that blank is no part of the answer.
    within = [i for i in within if text[max(places[i][0], start) : min(places[i][1], end)].strip()]
    return (within[0], within[-1]) if within else None
