"""`sightline compare`: several runs on the same data, and whether they differ by more than chance."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.cli.common import check_ending, load_run, set_up, spelling
from sightline.cli.evaluate import read_for
from sightline.cli.lines import say_bad
from sightline.cli.output import print_json, print_table, progress_bar
from sightline.data.tables import read_as
from sightline.errors import UserError
from sightline.machine import check_seed
from sightline.outputs.base import Output
from sightline.tasks.evaluate import Comparison, compare

PICTURES = (".png", ".svg", ".pdf")
MOST_SAMPLES = 1_000_000


def compare_command(
    runs: Sequence[Path],
    data: str | None,
    columns: Sequence[str] | None,
    source: str | None,
    target: str | None,
    table: str | None,
    encoding: str | None,
    lengths: str | None,
    count: str | None,
    repeats: str | None,
    metrics: Sequence[str] | None,
    samples: int,
    seed: int,
    out: Path | None,
    json: bool,
    threads: int | None,
    **given: Any,
) -> None:
    """Score, interval, difference to the first run and its p-value."""
    set_up(threads)
    read_as(encoding)
    made = {"lengths": lengths, "count": count, "repeats": repeats}
    check_seed(seed)
    check_runs(runs, samples)
    if out is not None:
        check_ending(out, PICTURES)
    options = {name: value for name, value in given.items() if value is not None}
    loaded = {str(run): load_run(run) for run in runs}
    first = next(iter(loaded.values()))
    if out is not None and not first.output.by_length:
        raise UserError(
            f"--out draws scores by the length of the source; {first.name} has no source texts: leave it out"
        )
    examples = read_for(first, data, columns, source=source, target=target, table=table, **made)
    draw = {"samples": samples, "seed": seed}
    with spelling(given), progress_bar("predicting", len(runs) * len(examples)) as advance:
        comparison = compare(loaded, examples, metrics=metrics, **draw, on_predicted=advance, **options)
    say_bad(comparison.bad, first.input.noun)
    if out is not None:
        draw_comparison(comparison, first.output, out)
    if json:
        print_json(comparison.to_json())
        return
    print_comparison(comparison, first.output)
    if out is not None:
        print(f"\npicture  {out}")


def check_runs(runs: Sequence[Path], samples: int) -> None:
    """Before anything is loaded: check the number of runs and samples."""
    if len(runs) < 2:
        raise UserError(f"compare was given {len(runs)} run{'s' if not runs else ''}; expected two or more run folders")
    for place, run in enumerate(runs):
        if run.resolve() in {other.resolve() for other in runs[:place]}:
            raise UserError(f"{run} is given twice; a run does not differ from itself")
    if not 1 <= samples <= MOST_SAMPLES:
        raise UserError(f"--samples is {samples}; it must be at least 1 and at most {MOST_SAMPLES:,}")


def print_comparison(comparison: Comparison, output: Output) -> None:
    """Each metric for each run, the differences to the first run, signatures, and the first metric by length."""
    rows = []
    for metric, runs in comparison.resampled.items():
        for number, (name, one) in enumerate(runs.items()):
            interval = f"{one.interval[0]:.2f} – {one.interval[1]:.2f}"
            difference = "" if one.difference is None else f"{one.difference:+.2f}"
            p = "" if one.p is None else f"{one.p:.3f}"
            rows.append(
                ("" if number else output.metric_name(metric), name, f"{one.value:.2f}", interval, difference, p)
            )
    print_table(("metric", "run", "score", "95 % interval", "difference", "p"), rows)
    bootstrap = f"paired bootstrap with {comparison.samples:,} resamples, seed {comparison.seed}."
    print(f"\n{comparison.count:,} {comparison.rows}; {bootstrap}")
    print("p: the fraction of resamples in which the run that scores higher on all rows does not score higher.")
    extra: Any
    for metric, extra in comparison.extra.items():
        if extra.get("signature"):
            print(f"{output.metric_name(metric)}: {extra['signature']}")
        for name, (low, high) in extra.get("difference_interval", {}).items():
            print(f"{output.metric_name(metric)}, difference of {name}: its 95 % interval is {low:+.2f} – {high:+.2f}")
    metric = next(iter(comparison.extra), "")
    parts: Any = comparison.extra.get(metric, {}).get("by_length")
    if parts:
        names = list(parts[0]["runs"])
        print(f"\n{output.metric_name(metric)} by length")
        buckets = (
            (_bucket(part), f"{part['pairs']:,}", *(f"{part['runs'][name]:.2f}" for name in names)) for part in parts
        )
        print_table((f"source, {parts[0]['unit']}", comparison.rows, *names), buckets)


def _bucket(part: dict[str, Any]) -> str:
    return f"{part['least']}+" if part["most"] is None else f"{part['least']}–{part['most']}"


def draw_comparison(comparison: Comparison, output: Output, out: Path) -> Path:
    """The first metric by the length of the source, a line for each run."""
    from sightline.view.charts import lines_by_length

    metric, extra = next(iter(comparison.extra.items()))
    parts: Any = extra["by_length"]
    return lines_by_length(
        [_bucket(part) for part in parts],
        [part["pairs"] for part in parts],
        {name: [part["runs"][name] for part in parts] for name in parts[0]["runs"]},
        out,
        score=output.paper_name(metric),
        unit=parts[0]["unit"],
    )
