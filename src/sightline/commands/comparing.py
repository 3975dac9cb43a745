"""Compare: several runs on the same pairs, and whether they differ by more than chance."""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from sightline.commands.common import load_run, set_up
from sightline.commands.evaluation import read_pairs
from sightline.commands.scoring import (
    check_beam,
    check_ending,
    console,
    plain_table,
    predicting,
    print_json,
    print_resampled,
    spaced,
)
from sightline.data.reading import PairFiles
from sightline.errors import UserError
from sightline.machine import check_seed
from sightline.tasks.evaluation import Comparison, compare
from sightline.training.scores import METRICS, BleuTokeniser, TextMetric

PICTURES = (".png", ".svg", ".pdf")
MOST_SAMPLES = 1_000_000
PAPER_NAMES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact": "exact match",
    "tokenised_bleu": "tokenised BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
}


def compare_command(
    runs: Sequence[Path],
    files: PairFiles,
    metrics: Sequence[TextMetric],
    samples: int,
    seed: int,
    beam: int,
    length_penalty: float,
    bleu_tokenise: BleuTokeniser | None,
    out: Path | None,
    as_json: bool,
    threads: int | None,
) -> None:
    """Score, interval, difference to the first run and its p-value; then the first metric by length."""
    set_up(threads)
    check_beam(beam)
    check_seed(seed)
    check_runs(runs, metrics, samples)
    if out is not None:
        check_ending(out, PICTURES)
    translators = {str(run): load_run(run) for run in runs}
    pairs = read_pairs(files)
    with predicting(len(runs) * len(pairs)) as advance:
        found = compare(
            translators,
            pairs,
            metrics=metrics,
            samples=samples,
            seed=seed,
            beam=beam,
            length_penalty=length_penalty,
            bleu_tokenise=bleu_tokenise,
            on_predicted=advance,
        )
    if out is not None:
        draw_comparison(found, out)
    if as_json:
        print_json(found.to_json())
        return
    _print_scores(found)
    _print_lengths(found)
    if out is not None:
        print(f"\npicture  {out}")


def check_metrics(metrics: Sequence[str] | None) -> Sequence[TextMetric]:
    """Those of text; BLEU and chrF where none was named."""
    for name in metrics or ():
        if name not in METRICS:
            raise UserError(f"--metrics {name} is for runs that classify; expected some of {', '.join(METRICS)}")
    return ("bleu", "chrf") if metrics is None else metrics  # type: ignore[return-value]


def draw_comparison(found: Comparison, out: Path) -> Path:
    """The first metric by the length of the source, a line for each run."""
    from sightline.view.charts import lines_by_length

    metric, parts = next(iter(found.by_length.items()))
    return lines_by_length(
        [part.bucket.label for part in parts],
        [len(part.bucket.rows) for part in parts],
        {name: [part.values[name] for part in parts] for name in parts[0].values},
        out,
        score=PAPER_NAMES[metric],
        unit=parts[0].bucket.unit,
    )


def check_runs(runs: Sequence[Path], metrics: Sequence[str], samples: int) -> None:
    if len(runs) < 2:
        raise UserError(f"compare was given {len(runs)} run{'s' if not runs else ''}; expected two or more run folders")
    for place, run in enumerate(runs):
        if run.resolve() in {other.resolve() for other in runs[:place]}:
            raise UserError(f"{run} is given twice; a run does not differ from itself")
    if not metrics:
        raise UserError("--metrics names none; expected at least one, such as bleu")
    if not 1 <= samples <= MOST_SAMPLES:
        raise UserError(f"--samples is {samples}; it must be at least 1 and at most {MOST_SAMPLES:,}")


def _print_scores(found: Comparison) -> None:
    print_resampled(found.found, spaced, f"{found.pairs:,} pairs", found.samples, found.seed)
    for metric, signature in found.signatures.items():
        if signature:
            print(f"{spaced(metric)}: {signature}")


def _print_lengths(found: Comparison) -> None:
    metric, parts = next(iter(found.by_length.items()))
    table = plain_table(f"source, {parts[0].bucket.unit}", "pairs")
    for name in parts[0].values:
        table.add_column(Text(name), overflow="fold")
    for part in parts:
        values = (f"{value:.2f}" for value in part.values.values())
        table.add_row(part.bucket.label, f"{len(part.bucket.rows):,}", *values)
    print(f"\n{spaced(metric)} by length")
    console().print(table)
