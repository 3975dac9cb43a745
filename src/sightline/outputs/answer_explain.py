"""What is shown of an answer, and what it rests on: columns and rows that are hidden, passes that are left out, and
operations that are replaced.

A hidden column or row is taken out of the table, which is then read again: ranks, equal cells and matches are those of
the smaller table. What people get wrong: a program may keep its answer without a column that it names (another one has
the same cells), and lose it without one that it does not name.
"""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from sightline.explain.asking import asked_maps, asked_table
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Belief, Explanation, Finding
from sightline.inputs.table import Asked, TableInput
from sightline.inputs.table_arrays import shown_words
from sightline.metrics.denotations import same_denotation
from sightline.models.asking import OPERATIONS, Asker, Program, TableArrays
from sightline.outputs.answer_words import program_answers, program_steps
from sightline.table import DataTable
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run
from sightline.training.steps import to_device

MOST_HIDDEN = 64  # columns, and rows, that are hidden one by one
MOST_CELLS = 200_000  # of a table whose evidence is measured
MOST_READ = 400_000  # cells that are read to measure it: of a large table fewer rows and columns are hidden
SHOWN = 80  # characters of an answer in a sentence
NAMED = 3  # columns or rows in a sentence
NO_ANSWER = "no answer"


def explain_program(run: Run, x: Asked, program: Program, options: ExplainOptions) -> Explanation:
    """The table and the program pass by pass; with ``options.measure``, the evidence for it."""
    steps = program_steps(x, program)
    table = asked_table(program, x.table.header, x.table.rows, shown_words(x.question), [one.sentence for one in steps])
    records, stacks, choices = asked_maps(table)
    answers, notes, belief = program_answers(x.table, program), list[str](), None
    if not answers:
        notes.append("the program selects no row: there is no answer")
    cells = len(x.table.rows) * len(x.table.header)
    if options.measure and cells > MOST_CELLS:
        notes.append(f"{cells:,} cells are too many to measure what the answer rests on; at most {MOST_CELLS:,} are")
    elif options.measure and program.passes:
        belief = Evidence(run, x, program).belief()
    return Explanation(
        title=run.config.model.kind,
        task=run.task.name,
        input=x.question,
        output=shown_answer(answers),
        records=records,
        stacks=stacks,
        steps=choices,
        notes=tuple(notes),
        belief=belief,
        table=table,
    )


def shown_answer(answers: Sequence[str]) -> str:
    return ", ".join(" ".join(one.split()) for one in answers) or NO_ANSWER


def short_answer(answers: Sequence[str]) -> str:
    """An answer inside a sentence."""
    text = shown_answer(answers)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


class Evidence:
    """What happens to an answer when something of the table or of the program is taken away."""

    def __init__(self, run: Run, x: Asked, program: Program) -> None:
        self.run, self.x, self.program = run, x, program
        self.input, self.model = cast("TableInput", run.input), cast("Asker", run.model)
        self.answers = program_answers(x.table, program)

    def belief(self) -> Belief:
        findings = (self.without_columns(), self.without_rows(), self.without_passes(), self.with_other_operations())
        return Belief("the program", len(self.program.passes), findings)

    @property
    def most(self) -> int:
        """How many columns, and how many rows, are hidden one by one."""
        cells = max(1, len(self.x.table.rows) * len(self.x.table.header))
        return max(4, min(MOST_HIDDEN, MOST_READ // cells))

    def same(self, answers: Sequence[str]) -> bool:
        return same_denotation(self.answers, answers)

    def programs(self, parts: Sequence[TableArrays], **changed: Any) -> list[Program]:
        batch = to_device(self.input.collate(list(parts)), self.run.device)
        with torch.no_grad(), evaluating(self.model):
            return self.model.programs(batch, **changed)

    def answers_of(self, tables: Sequence[DataTable]) -> list[tuple[str, ...]]:
        """The answers to the same question about other tables, few at a time."""
        answers: list[tuple[str, ...]] = []
        for table in tables:
            (program,) = self.programs([self.input.arrays(self.x.question, table)])
            answers.append(program_answers(table, program))
        return answers

    def without_columns(self) -> Finding:
        """Hide each column."""
        table, used = self.x.table, self.columns_used()
        places = [*used, *(one for one in range(len(table.header)) if one not in used)][: self.most]
        if len(table.header) < 2:
            return Finding("columns", "Hide a column", None, None, "the table has one column: none can be hidden")
        after = self.answers_of([table.without_column(place) for place in places])
        changed = {place: own for place, own in zip(places, after, strict=True) if not self.same(own)}
        named = [f"without *{table.header[place]}* it is {short_answer(own)}" for place, own in changed.items()]
        others = [place for place in changed if place not in used]
        sentence = f"the answer changes without {len(changed):,} of {_tried(len(places), len(table.header), 'columns')}"
        sentence += _listed(named)
        if others:
            sentence += f"; {len(others):,} of them stand in no pass that acts"
        return Finding("columns", "Hide a column", len(changed) / len(places), len(used) / len(table.header), sentence)

    def columns_used(self) -> list[int]:
        """The columns of passes that act."""
        steps = program_steps(self.x, self.program)
        pairs = zip(steps, self.program.passes, strict=True)
        return list(dict.fromkeys(one.column for step, one in pairs if step.column is not None and not step.idle))

    def without_rows(self) -> Finding:
        """Hide each row, those of the answer first."""
        table = self.x.table
        if len(table.rows) < 2:
            return Finding("rows", "Hide a row", None, None, "the table has fewer than two rows: none can be hidden")
        last = self.program.passes[-1].rows
        selected = [row for row in np.flatnonzero(np.asarray(last) > 0.5).tolist() if row < len(table.rows)]
        held = list(dict.fromkeys([*(row for row, _ in self.program.cells), *selected]))
        spread = np.linspace(0, len(table.rows) - 1, min(len(table.rows), self.most)).astype(int).tolist()
        places = list(dict.fromkeys([*held[: self.most // 2], *spread]))[: self.most]
        after = self.answers_of([table.without_row(place) for place in places])
        changed = {place: own for place, own in zip(places, after, strict=True) if not self.same(own)}
        named = [f"without row {place + 1:,} it is {short_answer(own)}" for place, own in changed.items()]
        tried = _tried(len(places), len(table.rows), "rows")
        sentence = f"the answer changes without {len(changed):,} of {tried}{_listed(named)}"
        others = [place for place in changed if place not in held]
        if others:
            sentence += f"; {len(others):,} of them are not selected at the end"
        return Finding("rows", "Hide a row", len(changed) / len(places), len(held) / len(table.rows), sentence)

    def without_passes(self) -> Finding:
        """Leave out each pass."""
        part = self.input.arrays(*self.x)
        steps = program_steps(self.x, self.program)
        changed, named = 0, list[str]()
        for place, step in enumerate(steps):
            (program,) = self.programs([part], skipped=place)
            own = program_answers(self.x.table, program)
            if not self.same(own):
                changed += 1
                named.append(f"without pass {place + 1} ({step.sentence}) it is {short_answer(own)}")
        sentence = f"the answer changes without {changed:,} of {len(steps):,} passes{_listed(named)}"
        acting = sum(not step.idle for step in steps)
        return Finding("passes", "Leave out a pass", changed / len(steps), acting / len(steps), sentence)

    def with_other_operations(self) -> Finding:
        """Replace the operation of each pass by the second likeliest."""
        part = self.input.arrays(*self.x)
        changed, named = 0, list[str]()
        for place, one in enumerate(self.program.passes):
            order = np.argsort(-np.asarray(one.operation_probs), kind="stable")
            second = next(int(other) for other in order if int(other) != one.operation)
            (program,) = self.programs([part], replaced={place: second})
            own = program_answers(self.x.table, program)
            if not self.same(own):
                changed += 1
                named.append(
                    f"with {OPERATIONS[second]} for {OPERATIONS[one.operation]} in pass {place + 1} it is "
                    f"{short_answer(own)}"
                )
        count = len(self.program.passes)
        sentence = f"with the second likeliest operation of a pass, {changed:,} of {count:,} answers change"
        sentence += _listed(named)
        return Finding("operations", "Replace an operation", changed / count, None, sentence)


def _listed(named: Sequence[str]) -> str:
    more = f", and {len(named) - NAMED:,} more" if len(named) > NAMED else ""
    return f": {', '.join(named[:NAMED])}{more}" if named else ""


def _tried(tried: int, count: int, noun: str) -> str:
    """How many were hidden, of how many."""
    return f"{tried:,} {noun}" if tried == count else f"{tried:,} {noun} that were tried (there are {count:,})"
