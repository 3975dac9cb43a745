"""`sightline evaluate`: every score of a run on data with targets, as tables or as JSON."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from sightline.cli.common import (
    check_rows_wanted,
    console,
    load_run,
    plain_table,
    predicting,
    print_json,
    say_left_out,
    set_up,
    spelling,
    write_rows,
)
from sightline.cli.lines import say_bad
from sightline.data.source import Source
from sightline.tasks.evaluate import Evaluation, Table, evaluate, examples_for
from sightline.tasks.run import Run
from sightline.tasks.task import Example


def read_for(run: Run, data: str | None, columns: Sequence[str] | None, **options: Any) -> list[Example]:
    """The examples that the options name; what was left out is said, because it changes what a score is of."""
    run.task.check_source(Source.of(data, columns, **options))
    examples, report = examples_for(run, data, columns, **options)
    if report is not None:
        say_left_out(report)
    return examples


def evaluate_command(
    run: Path,
    data: str | None,
    columns: Sequence[str] | None,
    source: str | None,
    target: str | None,
    errors: int,
    out: Path | None,
    json: bool,
    threads: int | None,
    **given: Any,
) -> None:
    """Read the data, predict, score, print."""
    set_up(threads)
    check_rows_wanted(errors, out)
    options = {name: value for name, value in given.items() if value is not None and value is not False}
    loaded = load_run(run)
    examples = read_for(loaded, data, columns, source=source, target=target)
    with spelling(given), predicting(len(examples)) as advance:
        evaluation = evaluate(loaded, examples, on_predicted=advance, **options)
    for warning in loaded.output.warnings(evaluation):
        print(f"sightline: {warning}", file=sys.stderr)
    say_bad(evaluation.bad, loaded.input.noun)
    write_rows(evaluation.rows(), out)
    if json:
        print_json(evaluation.to_json(errors))
        return
    print_evaluation(evaluation)
    for number, row in enumerate(evaluation.worst(errors), start=1):
        print(f"\n{number}. {loaded.output.shown_error(row)}")


def print_evaluation(evaluation: Evaluation) -> None:
    """The scores, and what the output has to say besides."""
    run, count = evaluation.run, len(evaluation.examples)
    print_part(run.output.score_table(evaluation))
    if evaluation.seen is not None and evaluation.seen.any():
        seen = int(evaluation.seen.sum())
        print(f"{seen:,} of {count:,} {run.task.rows} stand in the run's own data: scores on them flatter")
    for part in run.output.tables(evaluation):
        print_part(part)


def print_part(part: Table | str) -> None:
    """A table behind an empty line, or a sentence."""
    if isinstance(part, str):
        print(part)
        return
    table = plain_table(*part.names)
    for row in part.rows:
        table.add_row(*map(Text, row))  # a name in brackets is no markup
    console().print(table)
