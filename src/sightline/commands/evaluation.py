"""Evaluate: every metric on the pairs, by length, and the worst sentences."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from sightline.commands.common import load_run, set_up
from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.errors import UserError
from sightline.files import check_writable, whole_file
from sightline.tasks.evaluation import Evaluation, evaluate
from sightline.tasks.preparing import checked, overlap_with_training
from sightline.training.folder import RunFolder
from sightline.training.scores import METRICS, BleuTokeniser, Metric


def evaluate_command(
    run: Path,
    files: PairFiles,
    beam: int,
    length_penalty: float,
    as_json: bool,
    threads: int | None,
    *,
    bleu_tokenise: BleuTokeniser | None = None,
    by_length: bool = False,
    errors: int = 0,
    out: Path | None = None,
) -> None:
    """Every metric on the pairs, with how it was computed."""
    set_up(threads)
    check_beam(beam)
    if errors < 0:
        raise UserError(f"--errors is {errors}; it must be at least 0")
    if out is not None:
        check_ending(out, (".jsonl",))
    translator = load_run(run)
    pairs = read_pairs(files)
    with predicting(len(pairs)) as advance:
        found = evaluate(
            translator,
            pairs,
            beam=beam,
            length_penalty=length_penalty,
            bleu_tokenise=bleu_tokenise,
            by_length=(*_metric_of(run), "bleu", "chrf"),
            on_predicted=advance,
        )
    if out is not None:
        _write_rows(found, out)
    overlap = overlap_with_training(run, translator.source, translator.target, pairs)
    if as_json:
        known = {} if overlap is None else {"in_training": {"pairs": overlap.pairs, "sources": overlap.sources}}
        print(json.dumps(found.to_json(errors) | known, indent=2, ensure_ascii=False))
        return
    _print_scores(found)
    if overlap is not None and overlap.sources:
        print(
            f"{overlap.pairs:,} of these pairs stand in the training data, and {overlap.sources:,} have their source "
            "there: scores on them flatter"
        )
    if by_length:
        _print_lengths(found)
    for number, error in enumerate(found.worst(errors), start=1):
        print(f"\n{number}. chrF {error['chrf']:.1f}")
        for name in ("source", "prediction", "reference"):
            print(f"   {name:<10}  {error[name]}")


def check_beam(beam: int) -> None:
    if beam < 1:
        raise UserError(f"--beam is {beam}; it must be at least 1")


def check_ending(path: Path, endings: tuple[str, ...]) -> None:
    """Before the long work: that the file can be written, and what it would hold."""
    if path.suffix.lower() not in endings:
        raise UserError(f"--out is {path}; expected a name that ends in {' or '.join(endings)}")
    check_writable(path.parent)


def read_pairs(files: PairFiles) -> list[tuple[str, str]]:
    """The good pairs; what was left out is said on standard error, because it changes what a score is a score of."""
    # A score is of all pairs: only what no model could read is left out.
    reading, reports = checked(files, Limits(max_characters=1_000_000))
    pairs = list(reading())
    for line in reports[0].left_out_lines():
        print(f"sightline: {line}", file=sys.stderr)
    return pairs


@contextmanager
def predicting(total: int) -> Iterator[Any]:
    """A bar on standard error, where that is a terminal. Gives what to call with the number of new predictions."""
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.update(task, advance=count)


def console() -> Console:
    """Standard output; where it is no terminal, wide enough for a signature in one piece."""
    return Console(width=None if sys.stdout.isatty() else 160)


def plain_table(*names: str) -> Table:
    """Without lines; what is too long for the terminal goes on below instead of being cut."""
    return Table(*(Column(name, overflow="fold") for name in names), box=None, padding=(0, 2, 0, 0))


def _metric_of(run: Path) -> tuple[Metric, ...]:
    """What the run was trained for, unless it names something that is not known here."""
    config = RunFolder(run).read_config().get("config", {})
    metric = config.get("metric") if isinstance(config, dict) else None
    return (metric,) if metric in METRICS else ()


def _write_rows(found: Evaluation, out: Path) -> None:
    with whole_file(out) as part, part.open("w", encoding="utf-8") as file:
        for row in found.rows():
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _print_scores(found: Evaluation) -> None:
    table = plain_table("metric", "score", "how")
    for name, score in found.scores.items():
        table.add_row(name.replace("_", " "), f"{score.value:.2f}", score.signature)
    table.add_row("perplexity", f"{found.perplexity:.3f}", "per target token")
    console().print(table)
    print(f"{len(found.pairs):,} pairs, {len(found.pairs) / found.seconds:.1f} a second")


def _print_lengths(found: Evaluation) -> None:
    names = list(found.by_length[0].values)
    table = plain_table(
        f"source, {found.by_length[0].bucket.unit}", "pairs", *(name.replace("_", " ") for name in names)
    )
    for part in found.by_length:
        values = (f"{part.values[name]:.2f}" for name in names)
        table.add_row(part.bucket.label, f"{len(part.bucket.rows):,}", *values)
    print()
    console().print(table)
