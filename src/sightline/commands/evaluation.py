"""Evaluate: every metric on the pairs, by length, and the worst sentences."""

from pathlib import Path

from sightline.commands.common import load_run, set_up
from sightline.commands.scoring import (
    check_beam,
    check_rows_wanted,
    console,
    plain_table,
    predicting,
    print_json,
    say_left_out,
    spaced,
    write_rows,
)
from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.tasks.evaluation import Evaluation, evaluate
from sightline.tasks.preparing import checked, overlap_with_training
from sightline.training.folder import RunFolder
from sightline.training.scores import METRICS, BleuTokeniser, TextMetric


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
    check_rows_wanted(errors, out)
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
    write_rows(found.rows(), out)
    overlap = overlap_with_training(run, translator.source, translator.target, pairs)
    if as_json:
        known = {} if overlap is None else {"in_training": {"pairs": overlap.pairs, "sources": overlap.sources}}
        print_json(found.to_json(errors) | known)
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


def read_pairs(files: PairFiles) -> list[tuple[str, str]]:
    """The good pairs; what was left out is said on standard error, because it changes what a score is a score of."""
    # A score is of all pairs: only what no model could read is left out.
    reading, reports = checked(files, Limits(max_characters=1_000_000))
    pairs = list(reading())
    say_left_out(reports[0])
    return pairs


def _metric_of(run: Path) -> tuple[TextMetric, ...]:
    """What the run was trained for, unless it names something that is not known here."""
    config = RunFolder(run).read_config().get("config", {})
    metric = config.get("metric") if isinstance(config, dict) else None
    return (metric,) if metric in METRICS else ()


def _print_scores(found: Evaluation) -> None:
    table = plain_table("metric", "score", "how")
    for name, score in found.scores.items():
        table.add_row(spaced(name), f"{score.value:.2f}", score.signature)
    table.add_row("perplexity", f"{found.perplexity:.3f}", "per target token")
    console().print(table)
    print(f"{len(found.pairs):,} pairs, {len(found.pairs) / found.seconds:.1f} a second")


def _print_lengths(found: Evaluation) -> None:
    names = list(found.by_length[0].values)
    table = plain_table(f"source, {found.by_length[0].bucket.unit}", "pairs", *map(spaced, names))
    for part in found.by_length:
        values = (f"{part.values[name]:.2f}" for name in names)
        table.add_row(part.bucket.label, f"{len(part.bucket.rows):,}", *values)
    print()
    console().print(table)
