"""From a source of rows to a run folder: one trainer for every task, for new and for resumed runs.

::

    rows -> preparing (checked, split, fitted, stored) -> model -> training loop -> calibrated -> saved, scored, sealed
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from sightline.data.checking import RowLimits
from sightline.data.source import Source
from sightline.errors import UserError, lacks_memory
from sightline.files import write_text
from sightline.nn.lora import merge_lora
from sightline.nn.thinking import Halting
from sightline.tasks.card import ABOUT, CARD, CURVES, card, verdict
from sightline.tasks.prepare import DATA, OnItems, Setting, SomePrepared, preparing, reopened
from sightline.tasks.run import Run
from sightline.tasks.task import Task, Variant, imported
from sightline.training.checkpoint import checkpoints
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import BatchLoss, OtherRank, Outcome, TrainingConfig, train
from sightline.training.ranks import Ranks, launch_id


class TaskLesson:
    """Batches, loss and score for the training loop (`sightline.training.loop.Lesson`)."""

    def __init__(self, run: Run, prepared: SomePrepared) -> None:
        config = run.config
        self.run = run
        self.batches: Any = run.output.batches(prepared, config)
        self.valid = run.output.validated(prepared.valid, config)
        self.step = 0
        self._parts: Sequence[Sequence[object]] | None = None

    def epoch(self, number: int) -> Sequence[Any]:
        return self.batches.epoch(number)

    def batch(self, handle: Any) -> Any:
        return self.batches.batch(handle)

    def longest(self, handles: Sequence[Any]) -> Any:
        """The batch that takes most memory: that of the fewest rows has the longest ones, unless the data is made."""
        made = getattr(self.batches, "longest", None)
        return made() if made else min(handles, key=len)

    def tokens(self, batch: Any) -> int:
        return self.run.output.counted(batch)

    def loss(self, model: nn.Module, batch: Any) -> BatchLoss:
        for module in model.modules():
            if isinstance(module, Halting):
                module.at_step(self.step)
        return self.run.output.loss(model, batch, self.step)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides first, and a loss second."""
        run = self.run.with_model(model)
        return run.output.validate(run, self.raws(run), self.valid)

    @torch.no_grad()
    def raws(self, run: Run) -> list[object]:
        """Raw outputs of the validation examples, which are encoded only once."""
        xs = [one.x for one in self.valid]
        if self._parts is None and len(xs) <= run.input.at_once:
            self._parts = run.encode(xs)
        options = run.output.with_targets(run.output.validation_options(), self.valid, training=True)
        return run.output.scored(run, xs, self._parts, options)


Interval = dict[str, float]  # mean, low and high of a score over the folds of a cross-validation
LISTENERS = ("on_step", "on_scores", "on_remark", "on_begin")  # of `sightline.training.loop.train`
Report = Callable[[SomePrepared, nn.Module], None]


@contextmanager
def building(*, from_earlier: bool = False) -> Iterator[None]:
    """Report a configuration that no model can be built from in one sentence."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if lacks_memory(error):
            raise
        what = "the model differs from that of the earlier run" if from_earlier else "invalid model configuration"
        raise UserError(f"{what}: {str(error).strip().splitlines()[0]}") from None


def build(prepared: SomePrepared, start: Any = None) -> nn.Module:
    """The model for this data, the same for the same seed; ``start`` gives the weights of an earlier run."""
    config = prepared.config
    torch.manual_seed(config.seed)
    with building(from_earlier=start is not None):
        model = config.build(prepared.input, prepared.output)
        initialise = getattr(prepared.output, "initialise", None)
        if initialise is not None and start is None:
            initialise(model, prepared)
        if start is not None:
            start.put_into(model, prepared.output)
        config.adapt(model)
    return model


def started(task: Task, variant: Variant, start: Path | None) -> Any:
    """The earlier run, or the folder of another tool, whose weights to start from (`sightline.tasks.warm_start`)."""
    return None if start is None else imported(variant.start)(start, task, variant)


def plan(task: Task, source: Source, config: Any, start: Path | None) -> tuple[Task, Variant, Any, Any]:
    """The task and variant that read the source, the configuration checked against it, and the earlier run."""
    variant = task.variant_for(source)
    task = task.of(variant)
    earlier = started(task, variant, start)
    config = config.for_source(source)
    if hasattr(earlier, "check"):
        earlier.check(config)
    if getattr(config, "lora", None) is not None and earlier is None:
        raise UserError("lora adapts an earlier model, and there is none; name one with --from")
    return task, variant, config, earlier


def train_task(
    task: Task,
    source: Source | None,
    out: Path,
    config: Any,
    *,
    valid: Source | None = None,
    limits: RowLimits | None = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Report = lambda prepared, model: None,
    on_items: OnItems | None = None,
    overwrite: bool = False,
    fold: tuple[int, int] | None = None,
    folds: Mapping[str, Interval] | None = None,
    **listeners: Any,
) -> tuple[Run, Outcome]:
    """Train a new run in ``out``; if ``source`` is None, resume the run that is there.

    ``overwrite`` replaces a run that is there, once the data is prepared. ``fold`` is the part of the rows to validate
    on, in a cross-validation, and ``folds`` are the scores of one that was done before.
    """
    for name in listeners.keys() - LISTENERS:  # before the folder is made
        raise TypeError(f"train_task has no argument {name!r}; listeners are {', '.join(LISTENERS)}")
    if source is None:
        folder = RunFolder.open(out)
        if not checkpoints(out) and not any(path.is_dir() for path in (out / DATA).glob("*")):
            raise UserError(f"{out} has no data and no checkpoints (sightline tidy removes them); it cannot be resumed")
        folder.verify_data()
        before = Run.load(out)
        config = replace(config, model=before.config.model)  # as fitted to the data
        setting = Setting(before.task, before.variant, config, out / DATA, before.task.limits(), None, device)
        before.input.config = before.output.config = config
        prepared = reopened(setting, before.input, before.output)
        run = untrained(prepared, before.variant, out)
        on_report(prepared, run.model)
        sealed: list[str] = before.output.baseline_files(out)
    else:
        task, variant, config, earlier = plan(task, source, config, start)
        with RunFolder.creating(out, overwrite) as folder:
            given = limits or task.limits()
            setting = Setting(task, variant, config, out / DATA, given, earlier, device, on_items, fold=fold)
            setting = replace(setting, crossed=folds is not None)
            with preparing(source, valid, setting) as (prepared, rows):
                run = untrained(prepared, variant, out, earlier)  # fails before anything is kept
                on_report(prepared, run.model)
                sealed = prepared.output.baselines(prepared.input, rows, setting)
        about = describe(prepared, source, valid, start, command)
        folder.write_json(ABOUT, about if folds is None else {**about, "folds": folds})
        changing = {CONFIG, MODEL, METRICS, *run.output.calibrated_files}
        folder.seal_data([*sealed, *(name for name in run.save(folder, "untrained") if name not in changing)])
    model = run.model
    lesson = TaskLesson(run, prepared)
    torch.manual_seed(run.config.seed)  # training draws the same numbers, whatever was drawn before
    training = run.config.training.limited(len(lesson.epoch(0)))
    outcome = train(model, lesson, training, folder, device=device, **listeners)
    model.load_state_dict(outcome.weights)
    merge_lora(model)
    model.eval()
    return finish(run, prepared, lesson, folder, outcome, sealed, training)


def untrained(prepared: SomePrepared, variant: Variant, out: Path, start: Any = None) -> Run:
    """The run to train, with a model that is built for its data."""
    model = build(prepared, start)
    return Run(prepared.task, variant, model, prepared.input, prepared.output, prepared.config, str(out), out)


def finish(
    run: Run,
    prepared: SomePrepared,
    lesson: TaskLesson,
    folder: RunFolder,
    outcome: Outcome,
    sealed: list[str],
    training: TrainingConfig,
) -> tuple[Run, Outcome]:
    """Calibrate on validation data, save, draw, compare with baselines, write the card, seal."""
    valid = prepared.valid if run.output.calibrates else []
    raws = run.raw([one.x for one in valid], options=run.output.validation_options())
    output = run.output.calibrate(run, raws, prepared)
    run = replace(run, output=output)
    names = run.save(folder, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    from sightline.view.charts import draw_curves  # matplotlib takes as long to import as PyTorch

    draw_curves(folder.metrics(), folder.path / CURVES, run.output.unit)
    wording = run.output.card(run, prepared, raws, folder.path)
    baselines = wording.baselines or run.output.baseline_scores(run, lesson.valid)
    wording = replace(wording, baselines=baselines, offers=run.output.offers)
    own, decisive = wording.own or outcome.scores, next(iter(outcome.scores), None)
    outcome = outcome._replace(verdict=verdict(own, baselines, decisive, wording.offers))
    limits = "" if getattr(run.model, "solved", False) else training.limits()
    write_text(folder.path / CARD, card(folder, run.config, run.model, outcome, wording, limits))
    folder.seal([*names, *sealed])
    return run, outcome


def describe(
    prepared: SomePrepared, source: Source, valid: Source | None, start: Path | None, command: str
) -> dict[str, Any]:
    """The content of about.json. It has file names only, not paths, for privacy."""
    overlap = prepared.overlap
    return {
        "data": source.name,
        "valid": "a part of the data, kept apart" if valid is None else valid.name,
        "pairs": len(prepared.corpus),
        "valid_pairs": len(prepared.valid),
        "report": None if prepared.report is None else prepared.report.to_json(),
        "valid_pairs_in_training": None if overlap is None else overlap.pairs,
        "from": None if start is None else start.name,
        "command": command,
        **prepared.output.about_data(prepared),
    }


def train_together(
    task: Task,
    source: Source | None,
    out: Path,
    config: Any,
    *,
    device: str,
    fresh: dict[str, Any] | None = None,
    on_begin: Callable[[], None] = lambda: None,
    on_report: Report = lambda prepared, model: None,
    **listeners: Any,
) -> tuple[Run, Outcome] | None:
    """Train in this process and in those that a launcher started with it; only the first returns a result.

    ``source`` is None for a run that is resumed; ``fresh`` holds the options of a new run. A launcher that restarts its
    processes after a failure resumes the run that it began, and no earlier one.
    """
    ranks = Ranks.join(device)
    restarted, launch = ranks.is_restart(), launch_id()
    if ranks.is_first and source is not None and (out / CONFIG).exists():
        if restarted and RunFolder(out).began_with(launch):
            source = None
        elif not (fresh or {}).get("overwrite"):
            RunFolder.create(out)  # raises: there is a run already
    if not ranks.is_first:
        ranks.wait()  # the first process prepares the data; then this one resumes its run
        with suppress(OtherRank):
            train_task(task, None, out, config, device=device)
        ranks.wait()
        return None

    def report(prepared: SomePrepared, model: nn.Module) -> None:
        on_report(prepared, model)
        if launch is not None and source is not None:  # before config.json makes a run of the folder
            RunFolder(out).begin_with(launch)

    def begin() -> None:
        on_begin()
        ranks.wait()

    options = {} if source is None or fresh is None else fresh
    trained = train_task(
        task, source, out, config, device=device, on_begin=begin, on_report=report, **listeners, **options
    )
    ranks.wait()
    return trained
