"""The answer to a question about a table, and the program that gave it."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np

from sightline import metrics
from sightline.data.questions import QuestionReport, answer_line, answers_of
from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.inputs.base import Input
from sightline.inputs.table import LEAST, Asked, TableInput
from sightline.models.asking import (
    AnswerTargets,
    Asker,
    Program,
    TableArrays,
    TableBatch,
    collate_answers,
    unflattened_answer,
)
from sightline.outputs.answer_explain import explain_program
from sightline.outputs.answer_words import (
    ProgramStep,
    answer_arrays,
    likely_cell,
    program_answers,
    program_steps,
    program_text,
)
from sightline.outputs.base import Output, ranked_scores
from sightline.outputs.reports import COUNT, NUMBER, TEXT, listed, structure
from sightline.table import for_spreadsheet
from sightline.tasks.card import Wording
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run
from sightline.tasks.task import BadValueError, Example, PredictOptions

USUAL = "the most frequent answer"
LIKELY = "the cell in the row and the column that the question names"
KINDS_SHOWN = 50
NO_ANSWER = "(no answer)"


class Answer(NamedTuple):
    """The items of the right answer; the kind of the question and its name, where the data has them."""

    items: tuple[str, ...]
    kind: str = ""
    id: str = ""


class ProgramPrediction(NamedTuple):
    """The items of an answer, the program in words, its passes, and the probability of all its choices together."""

    answers: tuple[str, ...]
    program: str
    steps: tuple[ProgramStep, ...]
    probability: float
    cells: tuple[tuple[int, int], ...] = ()


AskInput = Input[Asked, TableArrays, TableBatch]
AskExamples = Sequence[Example[Asked, Answer]]
AskEvaluation = Evaluation[Asked, Answer, Program, ProgramPrediction]


class AnswerOutput(Output[Asked, Answer, TableArrays, TableBatch, Program, ProgramPrediction, PredictOptions | None]):
    """Answers. Raw outputs are programs with what they selected."""

    noun = "answers"
    unit = "loss of a question"
    calibrates = False
    names: ClassVar[Mapping[str, str]] = {"denotation": "right answers (denotation)"}
    explains_without = frozenset({"output"})
    answer = structure(
        "Answer",
        "The items of the answer, the program that gave it in words and pass by pass, and the probability of its "
        "choices. Rows and columns of printed cells are counted from 0.",
        question=TEXT,
        answers=listed(TEXT),
        program=TEXT,
        operations=listed(
            structure(
                "Pass",
                "One pass of a program.",
                operation=TEXT,
                column={"type": ["string", "null"]},
                number={"type": ["string", "null"]},
                rows=COUNT,
                probability=NUMBER,
                words=TEXT,
            )
        ),
        cells=listed(listed(COUNT)),
        probability=NUMBER,
    )

    def __init__(self, config: TaskConfig) -> None:
        super().__init__(config)
        self.trained = 0  # questions that are trained on
        self.unreachable = 0  # questions whose answer no program can give
        self.cut_off = 0  # questions whose answer is in rows that training leaves out

    # -- reading

    def read(self, cells: Mapping[str, object], x: Asked) -> Answer:
        try:
            items = answers_of(cells.get("answer"))
        except ValueError as error:
            raise BadValueError(str(error)) from None
        kind, name = (" ".join(str(cells.get(field) or "").split())[:200] for field in ("kind", "id"))
        return Answer(items, kind, name)

    def report(self) -> QuestionReport:
        return QuestionReport()

    def pack(self, y: Answer) -> list[object]:
        return [list(y.items), y.kind, y.id]

    def unpack(self, row: Sequence[object]) -> Answer:
        items, kind, name = cast("tuple[list[str], str, str]", row)
        return Answer(tuple(items), kind, name)

    # -- fitted

    def fit(self, input: AskInput, rows: Rows[Asked, Answer], setting: Setting) -> tuple[AskInput, "AnswerOutput"]:
        return input.fit(rows, setting), AnswerOutput(self.config)

    def encode(self, x: Asked, y: Answer, parts: Sequence[TableArrays]) -> Iterator[tuple[TableArrays, np.ndarray]]:
        """Where the answer stands in each part; nothing where no program can give it."""
        for part in parts:
            rows = len(part.ranks)
            answer = answer_arrays(x.table.head(rows), y.items)
            if answer.reachable:
                self.trained += 1
                yield part, answer.flat() + LEAST
            elif rows < len(x.table.rows) and answer_arrays(x.table, y.items).reachable:
                self.cut_off += 1
            else:
                self.unreachable += 1

    def write(self, input: AskInput, rows: Rows[Asked, Answer], setting: Setting) -> object:
        try:
            return super().write(input, rows, setting)
        except UserError:
            if self.trained:
                raise
        raise UserError(
            f"no program can answer any of the {rows.count:,} questions: an answer is a count of rows, or cells of the "
            "table; check the answers and the tables that the questions name"
        )

    def collate(self, targets: Sequence[np.ndarray], batch: TableBatch) -> AnswerTargets:
        return collate_answers([unflattened_answer(one.astype(np.int64) - LEAST) for one in targets], batch)

    def notes(self, prepared: Prepared[Asked, Answer]) -> list[str]:
        lines, count = [], self.trained + self.unreachable + self.cut_off
        if self.unreachable:
            lines.append(
                f"no program of this kind can answer {self.unreachable:,} of {count:,} training questions (the answer "
                "is neither a count of rows nor in cells): they are left out"
            )
        if self.cut_off:
            lines.append(
                f"{self.cut_off:,} training questions are left out, because their answer is in rows behind the first "
                f"{self.config.max_rows:,} (max_rows)"
            )
        return lines

    def about_data(self, prepared: Prepared[Asked, Answer]) -> dict[str, object]:
        return {"unreachable": self.unreachable, "cut_off": self.cut_off}

    # -- predicting

    def outputs(
        self,
        run: Run,
        xs: Sequence[Asked],
        parts: Sequence[TableArrays],
        batch: TableBatch,
        options: PredictOptions | None,
    ) -> list[Program]:
        return cast("Asker", run.model).programs(batch)

    def merge(self, x: Asked, parts: Sequence[TableArrays], outputs: Sequence[Program]) -> Program:
        return outputs[0] if outputs else Program((), None, (), -math.inf)

    def decide(self, x: Asked, raw: Program, options: PredictOptions | None = None) -> ProgramPrediction:
        steps = tuple(program_steps(x, raw))
        answers = program_answers(x.table, raw)
        return ProgramPrediction(answers, program_text(steps), steps, math.exp(min(0.0, raw.log_prob)), raw.cells)

    # -- scoring

    def statistics(
        self, run: Run, examples: AskExamples, predictions: Sequence[ProgramPrediction], raws: Sequence[Program]
    ) -> dict[str, metrics.Statistics]:
        """The share of right answers, by the rules of WikiTableQuestions."""
        predicted, gold = [one.answers for one in predictions], [one.y.items for one in examples]
        return {"denotation": metrics.denotation.statistics(predicted, gold)}

    def validate(self, run: Run, raws: Sequence[Program], examples: AskExamples) -> dict[str, float]:
        """Where as many answers are right, the surer model is better."""
        own = [program_answers(one.x.table, raw) for one, raw in zip(examples, raws, strict=True)]
        right = metrics.denotation.statistics(own, [one.y.items for one in examples]).score()
        doubt = 1 - float(np.mean([math.exp(min(0.0, one.log_prob)) for one in raws]))
        return ranked_scores(self.config.metric, {"doubt": doubt}, {"denotation": right})

    def baseline_facts(self, input: AskInput, rows: Rows[Asked, Answer]) -> dict[str, object]:
        counts = Counter(one.y.items for one in rows)
        return {"answer": list(counts.most_common(1)[0][0])}

    def baseline_predictions(
        self, run: Run, examples: AskExamples, facts: Mapping[str, object]
    ) -> dict[str, list[ProgramPrediction]]:
        likely = [ProgramPrediction(likely_cell(one.x), "", (), 1.0) for one in examples]
        usual = facts.get("answer")
        if not isinstance(usual, list) or not all(isinstance(one, str) for one in usual):
            return {LIKELY: likely}
        return {USUAL: [ProgramPrediction(tuple(usual), "", (), 1.0)] * len(examples), LIKELY: likely}

    def finished(self, evaluation: AskEvaluation, scoring: object) -> AskEvaluation:
        able = [answer_arrays(one.x.table, one.y.items).reachable for one in evaluation.examples]
        evaluation.extra["reachable"] = able
        reached = [row for row, one in enumerate(able) if one]
        if 0 < len(reached) < len(able):
            evaluation.extra["of_reachable"] = self.scores_of(evaluation.statistics, reached)
        kinds: dict[str, list[int]] = {}
        for row, one in enumerate(evaluation.examples):
            if one.y.kind:
                kinds.setdefault(one.y.kind, []).append(row)
        if len(kinds) > 1:
            evaluation.extra["kinds"] = {
                kind: {**self.scores_of(evaluation.statistics, rows), "questions": len(rows)}
                for kind, rows in sorted(kinds.items())
            }
        return evaluation

    def summary(self, evaluation: AskEvaluation) -> dict[str, object]:
        able = cast("list[bool]", evaluation.extra["reachable"])
        own: dict[str, object] = {"unreachable": able.count(False)}
        return own | {name: evaluation.extra[name] for name in ("of_reachable", "kinds") if name in evaluation.extra}

    def score_table(self, evaluation: AskEvaluation) -> Table:
        table, extra = super().score_table(evaluation), evaluation.extra
        if "of_reachable" not in extra:
            return table
        values = cast("dict[str, float]", extra["of_reachable"])
        count = cast("list[bool]", extra["reachable"]).count(True)
        row = ("that a program can answer", *(f"{one:.2f}" for one in values.values()), f"{count:,}")
        return Table(table.names, (table.rows[0], row, *table.rows[1:]))

    def tables(self, evaluation: AskEvaluation) -> list[Table | str]:
        able = cast("list[bool]", evaluation.extra["reachable"])
        parts: list[Table | str] = [f"no program of this kind can answer {able.count(False):,} of {len(able):,}"]
        if (kinds := cast("dict[str, Any]", evaluation.extra.get("kinds"))) is not None:
            shown = list(kinds.items())[:KINDS_SHOWN]
            rows = tuple((name, f"{one['denotation']:.2f}", f"{one['questions']:,}") for name, one in shown)
            parts.append(Table(("kind of question", "denotation", "questions"), rows))
        return parts

    def badness(self, evaluation: AskEvaluation) -> list[float]:
        """Wrong answers by how sure the model was of them."""
        right = evaluation.statistics["denotation"].of_each()
        pairs = zip(right, evaluation.predictions, strict=True)
        return [0.0 if own else 1e-9 + one.probability for own, one in pairs]

    def row(self, example: Example[Asked, Answer], prediction: ProgramPrediction) -> dict[str, object]:
        own = {"id": example.y.id} if example.y.id else {}
        kind = {"kind": example.y.kind} if example.y.kind else {}
        given = {"question": example.x.question, "table": example.x.table.name, "right": list(example.y.items)}
        return {**own, **kind, **given, **self.to_json(example.x, prediction)}

    def scored_row(self, evaluation: AskEvaluation, number: int) -> dict[str, object]:
        able = cast("list[bool]", evaluation.extra.get("reachable") or [])
        row = self.row(evaluation.examples[number], evaluation.predictions[number])
        row["correct"] = bool(evaluation.statistics["denotation"].rows[number, 0])
        return row | ({"reachable": able[number]} if able else {})

    def shown_error(self, row: Mapping[str, object]) -> str:
        right, own = (answer_line(cast("list[str]", row[name])) for name in ("right", "answers"))
        sure = f"{own or NO_ANSWER}, {row['probability']:.1%} sure; right is {right}"
        unable = "" if row.get("reachable", True) else "\n   no program of this kind can answer it"
        return f"{row['question']}\n   {sure}\n   {row['program']}\n   {row['table']}{unable}"

    # -- for people

    def card(self, run: Run, prepared: Prepared[Asked, Answer], raws: Sequence[Program], folder: Path) -> Wording:
        return Wording(
            "that answers a question about a table with a program",
            "questions",
            "On validation data: the share of right answers, by the rules of WikiTableQuestions.",
            "questions it saw have at most {longest:,} characters.",
            (
                "An answer is a count of rows, or cells of the table. Sums, differences, averages and yes or no are "
                "none that it can give.",
                "It was taught by answers alone: a right answer may come of a wrong program, so read the program.",
                "The probability is that of its choices, not that of a right answer.",
            ),
        )

    def explain(self, run: Run, x: Asked, options: ExplainOptions) -> Explanation:
        """The table with the rows that each pass selected, the program in words, and what changes the answer."""
        if options.output is not None:
            raise UserError(f"{run.name} is a run of {run.task.name}, which explains its own answer; leave output out")
        assert isinstance(run.input, TableInput)
        (raw,) = run.raw([x], options=self.options({}))
        return explain_program(run, x, cast("Program", raw), options)

    def line(self, x: Asked, prediction: ProgramPrediction) -> str:
        """The answer and the program, with a tab between them. Neither begins a formula in a spreadsheet."""
        if not prediction.steps and not prediction.answers:
            return ""
        cells = (answer_line(prediction.answers), " ".join(prediction.program.split()))
        return "\t".join(map(for_spreadsheet, cells))

    def to_json(self, x: Asked, prediction: ProgramPrediction) -> dict[str, object]:
        return {
            "question": x.question,
            "answers": list(prediction.answers),
            "program": prediction.program,
            "operations": [
                {
                    "operation": one.operation,
                    "column": one.column,
                    "number": one.number,
                    "rows": one.rows,
                    "probability": float(f"{one.probability:.6g}"),
                    "words": one.sentence,
                }
                for one in prediction.steps
            ],
            "cells": [list(one) for one in prediction.cells],
            "probability": float(f"{prediction.probability:.6g}"),
        }

    def remark(self, x: Asked, prediction: ProgramPrediction) -> str | None:
        if prediction.answers or not prediction.steps:
            return None
        return f"{x.question!r:.80}: the program selects no row, so there is no answer"
