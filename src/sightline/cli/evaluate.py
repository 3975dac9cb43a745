"""`sightline evaluate`: every score of a run on data with targets, as tables or as JSON."""

import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any

from sightline.cli.common import check_ending, load_run, set_up, spelling, writing
from sightline.cli.lines import say_bad
from sightline.cli.output import print_json, print_table, progress_bar
from sightline.data.source import Source
from sightline.data.tables import read_as
from sightline.errors import UserError
from sightline.tasks.evaluate import Evaluation, Table, evaluate, examples_for
from sightline.tasks.prepare import DATA, TRAIN
from sightline.tasks.run import Run
from sightline.tasks.task import Example


def read_for(run: Run, data: str | None, columns: Sequence[str] | None, **options: Any) -> list[Example]:
    """The examples that the options name. Rows left out are reported on standard error: they change the score."""
    run.task.check_source(Source.of(data, columns, **options))
    examples, report = examples_for(run, data, columns, **options)
    for line in () if report is None else report.left_out_lines():
        print(f"sightline: {line}", file=sys.stderr)
    return examples


def evaluate_command(
    run: Path,
    data: str | None,
    columns: Sequence[str] | None,
    source: str | None,
    target: str | None,
    table: str | None,
    encoding: str | None,
    lengths: str | None,
    count: str | None,
    repeats: str | None,
    errors: int,
    out: Path | None,
    json: bool,
    threads: int | None,
    **given: Any,
) -> None:
    """Read the data, predict, score, print."""
    set_up(threads)
    read_as(encoding)
    made = {"lengths": lengths, "count": count, "repeats": repeats}
    if errors < 0:
        raise UserError(f"--errors is {errors}; it must be at least 0")
    if out is not None:
        check_ending(out, (".jsonl",))
    options = {name: value for name, value in given.items() if value is not None and value is not False}
    loaded = load_run(run)
    examples = read_for(loaded, data, columns, source=source, target=target, table=table, **made)
    with spelling(given), progress_bar("predicting", len(examples)) as advance:
        evaluation = evaluate(loaded, examples, on_predicted=advance, **options)
    for warning in loaded.output.warnings(evaluation):
        print(f"sightline: {warning}", file=sys.stderr)
    if cut := loaded.input.count_cut([one.x for one in evaluation.examples]):
        print(f"sightline: {loaded.input.cut_line(cut, len(evaluation.examples))}", file=sys.stderr)
    say_bad(evaluation.bad, loaded.input.noun)
    if out is not None:
        with writing(out) as stream:
            stream.writelines(f"{dumps(row, ensure_ascii=False)}\n" for row in evaluation.rows())
    if json:
        print_json(evaluation.to_json(errors))
        return
    print_evaluation(evaluation)
    for number, row in enumerate(evaluation.worst(errors), start=1):
        print(f"\n{number}. {loaded.output.shown_error(row)}")


def print_evaluation(evaluation: Evaluation) -> None:
    """Print the scores, and the other tables of the output."""
    run, count = evaluation.run, len(evaluation.examples)
    print_part(run.output.score_table(evaluation))
    if evaluation.repeats is not None:
        print(f"{evaluation.repeats:.2f} repeats of a position on average")
    if evaluation.seen is not None and evaluation.seen.any():
        seen = int(evaluation.seen.sum())
        about = f"the {run.input.known_by} of " if run.input.known_by else ""
        print(f"{about}{seen:,} of {count:,} {run.task.rows} are in the run's own data: scores on them are too high")
    elif evaluation.seen is None and run.folder is not None and not (run.folder / DATA / TRAIN).is_dir():
        print("the run folder has no training data: whether it has some of these rows is not known")
    if evaluation.verdict:
        print(evaluation.verdict)
    for part in run.output.tables(evaluation):
        print_part(part)


def print_part(part: Table | str) -> None:
    """Print a table or a sentence."""
    if isinstance(part, str):
        print(part)
    else:
        print_table(part.names, part.rows)
