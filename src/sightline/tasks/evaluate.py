"""Scores of a run on data with targets, and of several runs on the same data. Nothing here prints.

Scores are given with and without the items that a run was trained on: scores on those are too high.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NamedTuple, cast

import numpy as np

from sightline.data.checking import Report, RowLimits
from sightline.data.source import RowsLike, Source
from sightline.data.tables import LINE_LIMIT
from sightline.errors import UserError
from sightline.metrics import Resampled, Statistics, paired_bootstrap
from sightline.synthetic.made import is_made
from sightline.tasks.card import verdict
from sightline.tasks.prepare import read_examples, seen_in_training
from sightline.tasks.task import Example, Pred_co, PredictOptions, Raw_co, SomeExample, X_co, Y_co

if TYPE_CHECKING:
    from sightline.tasks.run import Run

# All rows are scored, except those that no model can read.
SCORED = RowLimits(max_characters=LINE_LIMIT, max_bad_share=1.0)


@dataclass(frozen=True)
class Table:
    """A table to print: names of columns, and rows of text."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Evaluation(Generic[X_co, Y_co, Raw_co, Pred_co]):
    """Predictions for examples, and every score of them.

    ``seen`` marks the items that the run was trained on, where that is known; ``without`` are the scores of the others.
    ``extra`` holds results of this output alone.
    """

    run: "Run"
    examples: list[Example[X_co, Y_co]]
    predictions: list[Pred_co]
    raws: list[Raw_co]
    statistics: dict[str, Statistics]
    values: dict[str, float]
    seen: np.ndarray | None
    without: dict[str, float] | None
    seconds: float  # of predicting
    options: PredictOptions | None = None
    extra: dict[str, object] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)  # items that could not be read and are left out: label, reason
    repeats: float | None = None  # of a position, on average; None where the model does not decide how long to think

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """By name, the scores of the baselines on the same examples."""
        return cast("dict[str, dict[str, float]]", self.extra.get("floors") or self.extra.get("baselines") or {})

    @property
    def verdict(self) -> str:
        """Whether a baseline is as good as the run."""
        decisive = getattr(self.run.config, "decisive", None) or getattr(self.run.config, "metric", None)
        return verdict(self.values, self.baselines, decisive, self.run.output.offers)

    def rows(self) -> Iterator[dict[str, object]]:
        """Every example with its prediction."""
        return (self.row(number) for number in range(len(self.examples)))

    def row(self, number: int) -> dict[str, object]:
        """One example with its prediction."""
        row = self.run.output.scored_row(self, number)
        return row if self.seen is None else row | {"in_training": bool(self.seen[number])}

    def worst(self, count: int) -> list[dict[str, object]]:
        """The worst predictions, the worst first, without correct ones."""
        badness = self.run.output.badness(self)
        order = sorted((row for row, bad in enumerate(badness) if bad > 0), key=lambda row: -badness[row])
        return [self.run.output.error_row(self, row) for row in order[:count]]

    def to_json(self, errors: int = 0) -> dict[str, object]:
        """Everything except the predictions; with ``errors``, also that many of the worst."""
        data: dict[str, object] = {self.run.task.rows: len(self.examples)}
        data |= self.run.output.scores_json(self)
        if self.repeats is not None:
            data["repeats"] = self.repeats
        if self.bad:
            data[f"bad_{self.run.input.noun}"] = self.bad
        if self.seen is not None:
            data["in_training"] = int(self.seen.sum())
        if self.without is not None:
            noun = self.run.input.known_by or self.run.input.noun
            data[f"without_training_{noun}"] = self.run.output.without_json(self)
        data |= self.run.output.summary(self)
        if self.baselines:
            data["baselines"] = self.baselines
        return data | ({"errors": self.worst(errors)} if errors else {})


SomeEvaluation = Evaluation[object, object, object, object]


def examples_for(
    run: "Run",
    data: RowsLike | Sequence[SomeExample] | None,
    columns: Sequence[str] | None = None,
    limits: RowLimits | None = None,
    **options: object,
) -> tuple[list[SomeExample], Report | None]:
    """The valid rows of data to score, and the report of the others; `Example`s are used as they are."""
    if isinstance(data, Sequence) and not isinstance(data, str) and data and isinstance(data[0], Example):
        return list(data), None
    given = {**run.output.source_options(), **{name: one for name, one in options.items() if one is not None}}
    if isinstance(data, str) and is_made(data):
        given["scored"] = True  # other rows than those of training
    known = run.output.columns() if columns is None else tuple(columns)
    source = Source.of(data, known, **given)
    return read_examples(source, run.task, run.variant, run.input, run.output, limits or SCORED)


def evaluate(
    run: "Run",
    examples: Sequence[SomeExample],
    *,
    on_predicted: Callable[[int], None] = lambda count: None,
    **options: object,
) -> "SomeEvaluation":
    """Every score of a run on examples; options are those of `Run.predict`, and of the output's own scores."""
    from sightline.explain.thinking import watch_repeats

    started = time.perf_counter()
    with watch_repeats(run.model) as repeats:
        scoring, made = _predict(run, examples, options, on_predicted, measure_targets=True)
    seconds, run = time.perf_counter() - started, made.run
    statistics = run.output.statistics(run, made.examples, made.predictions, made.raws)
    seen = seen_in_training(run.folder, run.input, [one.x for one in made.examples])
    without = None
    if seen is not None and seen.any() and not seen.all():
        without = run.output.scores_of(statistics, np.flatnonzero(~seen).tolist())
    values = run.output.scores_of(statistics, None)
    scores = (statistics, values, seen, without, seconds, made.options)
    evaluation = Evaluation(
        run, made.examples, made.predictions, made.raws, *scores, bad=made.bad, repeats=repeats.mean
    )
    evaluation.extra["baselines"] = run.output.baseline_scores(run, made.examples)
    return run.output.finished(evaluation, scoring)


class Predicted(NamedTuple):
    """The examples that a run could read, and its predictions for them; ``bad`` are the others."""

    run: "Run"
    examples: list[SomeExample]
    predictions: list[object]
    raws: list[object]
    options: PredictOptions | None
    bad: dict[str, str]


def _predict(
    run: "Run",
    examples: Sequence[SomeExample],
    options: dict[str, object],
    on_predicted: Callable[[int], None],
    measure_targets: bool,
) -> tuple[object, Predicted]:
    """The options of the scores, and predictions to score; ``measure_targets``: also their loss, for perplexity."""
    if not examples:
        raise UserError(f"there is no row of {run.task.rows} to score; expected at least one")
    scoring, options = run.output.scoring_options(options)
    run = replace(run, output=run.output.scored_by(scoring))
    chosen = run.output.options(options)
    xs = [example.x for example in examples]
    targeted, unread = run.output.with_targets(chosen, examples) if measure_targets else chosen, dict[int, str]()
    noted = {"bad": unread} if run.input.reads_files else {}
    raws = run.output.scored(run, xs, None, targeted, on_predicted, **noted)
    bad = {run.input.label(xs[number]): reason for number, reason in unread.items()}
    good = [number for number in range(len(xs)) if number not in unread]
    if not good:
        first, noun = next(iter(bad.items())), run.input.noun.removesuffix("s")
        raise UserError(f"there is no {noun} to score ({first[0]}: {first[1]}); expected at least one")
    predictions = [run.output.decide(xs[number], raws[number], chosen) for number in good]
    kept = [examples[number] for number in good]
    return scoring, Predicted(run, kept, predictions, [raws[number] for number in good], chosen, bad)


@dataclass(frozen=True)
class Comparison:
    """Runs on the same examples: by metric, then by run. Differences are to the first run."""

    rows: str
    count: int
    samples: int
    seed: int
    resampled: dict[str, dict[str, Resampled]]
    extra: dict[str, dict[str, object]] = field(default_factory=dict)  # by metric: signature, scores by length
    bad: dict[str, str] = field(default_factory=dict)  # items that could not be read: label, reason

    def to_json(self) -> dict[str, object]:
        metrics = {
            metric: {**self.extra.get(metric, {}), "runs": {name: vars(one) for name, one in runs.items()}}
            for metric, runs in self.resampled.items()
        }
        counts = {self.rows: self.count, "samples": self.samples, "seed": self.seed}
        return {**counts, **({f"bad_{self.rows}": self.bad} if self.bad else {}), "metrics": metrics}


def compare(
    runs: Mapping[str, "Run"],
    examples: Sequence[SomeExample],
    *,
    metrics: Sequence[str] | None = None,
    samples: int = 1000,
    seed: int = 0,
    on_predicted: Callable[[int], None] = lambda count: None,
    **options: object,
) -> Comparison:
    """Whether runs differ by more than chance: paired bootstrap of each metric over the same examples.

    Nothing else of an evaluation is computed: neither baselines, nor perplexity, nor scores outside the training data.
    """
    first = next(iter(runs.values()))
    if len(runs) < 2:
        raise UserError(f"there is {len(runs)} to compare; expected two or more")
    for name, one in runs.items():
        if one.task.name != first.task.name:
            raise UserError(
                f"{name} is a run of {one.task.name}, and {first.name} of {first.task.name}: not comparable"
            )
        one.output.check_comparable(first.output, name)
    systems, bad = {}, dict[str, str]()
    for name, one in runs.items():
        given = one.output.sized_by_targets
        _, made = _predict(one, examples, dict(options), on_predicted, measure_targets=given)
        output = made.run.output.scored_as(first.output)
        systems[name] = output.statistics(made.run, made.examples, made.predictions, made.raws)
        examples, bad = made.examples, bad | made.bad
    known = next(iter(systems.values()))
    chosen = tuple(dict.fromkeys(metrics or first.output.compared or known))
    for metric in chosen:
        for name, statistics in systems.items():
            if metric not in statistics:
                raise UserError(f"{metric} is no metric of {name}; there is {', '.join(known)}")
    resampled = {
        metric: dict(
            zip(systems, paired_bootstrap([one[metric] for one in systems.values()], samples, seed), strict=True)
        )
        for metric in chosen
    }
    output = first.output.scored_by(first.output.scoring_options(dict(options))[0])
    extra = {
        metric: output.comparison_fields(
            metric, examples, {name: one[metric] for name, one in systems.items()}, (samples, seed)
        )
        for metric in chosen
    }
    return Comparison(first.task.rows, len(examples), samples, seed, resampled, extra, bad)


def path_name(path: Path | str) -> str:
    """A path on one line, also with tabs or line breaks in its name."""
    return str(path).replace("\t", " ").replace("\n", " ").replace("\r", " ")
