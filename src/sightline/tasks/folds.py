"""Cross-validation of small data: a model for each part of the rows, trained on the others; their scores on it.

The parts choose the checkpoints too, as validation data does, so the scores are a little too high. The run that is
kept is trained as without folds.
"""

import logging
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from sightline.data.checking import Report
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.tasks.prepare import SomePrepared
from sightline.tasks.task import Task
from sightline.tasks.train import Interval, train_task

LOG = logging.getLogger(__name__)

# The t distribution, 97.5 %, by degrees of freedom.
T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12,
     2.11, 2.101, 2.093)  # fmt: skip


def cross_validate(
    task: Task,
    source: Source,
    out: Path,
    config: Any,
    folds: int,
    on_fold: Callable[[int, dict[str, float]], None] = lambda number, scores: None,
    **options: Any,
) -> dict[str, Interval]:
    """The mean of each score over the folds, with a 95 % interval of that mean. Options are those of `train_task`."""
    if not 2 <= folds <= len(T) + 1:
        raise UserError(f"--folds is {folds}; it is from 2 to {len(T) + 1}")
    if options.pop("valid", None) is not None:
        raise UserError("--folds divides the data itself; leave out --valid")
    if source.data == "-" or (source.held is not None and not isinstance(source.held, Sequence)):
        raise UserError("--folds reads the data several times; give a file or a list instead of a pipe")
    out.parent.mkdir(parents=True, exist_ok=True)
    scores: list[dict[str, float]] = []
    reports: list[Report] = []

    def keep(prepared: SomePrepared, model: nn.Module) -> None:
        reports.extend([] if prepared.report is None else [prepared.report])

    options["on_report"] = keep
    for number in range(folds):
        with tempfile.TemporaryDirectory(prefix=f".{out.name}-fold-", dir=out.parent) as folder:
            _, outcome = train_task(task, source, Path(folder) / "run", config, fold=(number, folds), **options)
        scores.append(outcome.scores)
        on_fold(number, outcome.scores)
    if most := max((one.in_validation for one in reports), default=0):
        LOG.warning(f"in each fold, up to {most:,} {reports[0].divided_line()}")
    return {name: interval([one[name] for one in scores]) for name in scores[0]}


def interval(values: Sequence[float]) -> Interval:
    """The mean of some values and the 95 % interval of that mean, by the t distribution."""
    mean, spread = statistics.fmean(values), statistics.stdev(values)
    half = T[len(values) - 2] * spread / math.sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def lines_of(folds: dict[str, Interval], count: int) -> list[str]:
    """The result to print."""
    shown = "; ".join(
        f"{name} {one['mean']:.2f} ({one['low']:.2f} to {one['high']:.2f})" for name, one in folds.items()
    )
    return [f"{count} folds, means with their 95 % intervals: {shown}"]
