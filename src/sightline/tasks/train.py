"""From a source of rows to a run folder: one trainer for every task, for new runs and for those that are resumed.

::

    rows -> preparing (checked, split, fitted, stored) -> model -> training loop -> calibrated -> saved, scored, sealed
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sightline.data.batches import BatchPlan, BatchRows
from sightline.data.checking import Limits
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.files import write_text
from sightline.nn.lora import merge_lora
from sightline.tasks.card import ABOUT, CARD, CURVES, card
from sightline.tasks.prepare import DATA, OnItems, Prepared, Setting, preparing, reopened
from sightline.tasks.run import Run
from sightline.tasks.task import Task, Variant, imported
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.loop import OtherRank, Outcome, train
from sightline.training.ranks import Ranks

# Training batches of a task, and what the training loop is given: the same for every input and output.


class RowBatches:
    """Rows of a corpus of like length together, at most ``batch_tokens`` in all, and ``batch_rows`` if it is set."""

    def __init__(self, prepared: Prepared, config: Any) -> None:
        self.input, self.output, self.corpus = prepared.input, prepared.output, prepared.corpus
        source, target = self.corpus.lengths()
        both = self.output.sized_targets
        rows = getattr(config, "batch_rows", None)
        self.plan = BatchPlan(source, target if both else None, config.batch_tokens, config.seed, rows=rows)

    def epoch(self, number: int) -> Sequence[BatchRows]:
        return self.plan.epoch(number)

    def batch(self, handle: BatchRows) -> tuple[Any, Any]:
        parts, targets = zip(*(self.corpus[row] for row in handle.tolist()), strict=True)
        batch = self.input.collate(parts)
        return batch, self.output.collate(targets, batch)


def validated_rows(rows: int, most: int, seed: int) -> list[int]:
    """The validation rows that are scored in training: always the same for the same seed, in order."""
    return sorted(np.random.default_rng(seed).permutation(rows)[:most].tolist())


class TaskLesson:
    """Batches, loss and score for the training loop (`sightline.training.loop.Lesson`)."""

    def __init__(self, run: Run, prepared: Prepared) -> None:
        config = run.config
        self.run, self.batches = run, run.output.batches(prepared, config)
        self.valid = run.output.validated(prepared.valid, config)
        self.step = 0
        self._parts: list[list[Any]] | None = None

    def epoch(self, number: int) -> Sequence[Any]:
        return self.batches.epoch(number)

    def batch(self, handle: Any) -> Any:
        return self.batches.batch(handle)

    def tokens(self, batch: Any) -> int:
        return self.run.output.counted(batch)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return self.run.output.loss(model, batch, self.step)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides first, and the loss or what stands for it second."""
        run = self.run.with_model(model)
        return run.output.validate(run, self.raws(run), self.valid)

    @torch.no_grad()
    def raws(self, run: Run) -> list[Any]:
        """Raw outputs of the validation examples, which are encoded once."""
        xs = [one.x for one in self.valid]
        if self._parts is None and len(xs) <= run.input.at_once:
            self._parts = run.encode(xs)
        options = run.output.with_targets(run.output.validation_options(), self.valid, training=True)
        return run.output.scored(run, xs, self._parts, options)


Report = Callable[[Prepared, nn.Module], None]


@contextmanager
def building(*, from_earlier: bool = False) -> Iterator[None]:
    """A configuration that no model can be built with is an error in one sentence."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        if from_earlier:
            raise UserError(f"the model is not that of the run to go on from: {reason}") from None
        raise UserError(f"there is no model with this configuration: {reason}") from None


def build(prepared: Prepared, start: Any = None) -> nn.Module:
    """The model for this data: always the same for the same seed. It begins with what an earlier run learnt, if any."""
    config = prepared.config
    torch.manual_seed(config.seed)
    with building(from_earlier=start is not None):
        model = config.build(prepared.input, prepared.output)
        initialise = getattr(prepared.output, "initialise", None)
        if initialise is not None and start is None:
            initialise(model, prepared)
        if start is not None:
            start.put_into(model, prepared.output)
        adapt = getattr(config, "adapt", None)
        if adapt is not None:
            adapt(model)
    return model


def started(task: Task, variant: Variant, start: Path | None) -> Any:
    """The earlier run, or folder of another tool, to begin with."""
    return None if start is None else imported(variant.start)(start, task, variant)


def train_task(
    task: Task,
    source: Source | None,
    out: Path,
    config: Any,
    *,
    valid: Source | None = None,
    limits: Limits | None = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Report = lambda prepared, model: None,
    on_items: OnItems | None = None,
    **listeners: Any,
) -> tuple[Run, Outcome]:
    """Train a new run in ``out``, or resume the one that is there when ``source`` is None."""
    if source is None:
        folder = RunFolder.open(out)
        before = Run.load(out)
        config, task = replace(config, model=before.config.model), before.task  # as they were fitted to the data
        setting = Setting(task, before.variant, config, out / DATA, limits or task.limits(), None, device)
        before.input.config = before.output.config = config
        prepared = reopened(setting, before.input, before.output)
        model = build(prepared)
        run = Run(task, before.variant, model, prepared.input, prepared.output, prepared.config, str(out), out)
        on_report(prepared, model)
        sealed: list[str] = before.output.baseline_files(out)
    else:
        variant = task.variant_for(source)
        task = task.of(variant)
        earlier = started(task, variant, start)
        config = checked_config(config, source, earlier)
        with RunFolder.creating(out) as folder:
            given = limits or task.limits()
            setting = Setting(task, variant, config, out / DATA, given, earlier, device, on_items)
            with preparing(source, valid, setting) as (prepared, rows):
                model = build(prepared, earlier)  # fails before anything is kept
                run = Run(task, variant, model, prepared.input, prepared.output, prepared.config, str(out), out)
                on_report(prepared, model)
                sealed = prepared.output.baselines(prepared.input, rows, setting)
        folder.write_json(ABOUT, describe(prepared, source, valid, start, command))
        run.save(folder, "untrained")
    lesson = TaskLesson(run, prepared)
    torch.manual_seed(run.config.seed)  # whatever was drawn before, training draws the same
    training = run.config.training.limited(len(lesson.epoch(0)))
    outcome = train(model, lesson, training, folder, device=device, **listeners)
    model.load_state_dict(outcome.weights)
    merge_lora(model)
    model.eval()
    return finish(run, prepared, lesson, folder, outcome, sealed), outcome


def checked_config(config: Any, source: Source, start: Any) -> Any:
    """The configuration as the source needs it, checked against it and the earlier run."""
    fit = getattr(config, "for_source", None)
    if fit is not None:
        config = fit(source)
    if hasattr(start, "check"):
        start.check(config)
    if getattr(config, "lora", None) is not None and start is None:
        raise UserError("lora adapts what was learnt before, and there is nothing here; say with --from what to adapt")
    return config


def finish(
    run: Run, prepared: Prepared, lesson: TaskLesson, folder: RunFolder, outcome: Outcome, sealed: list[str]
) -> Run:
    """Calibrate on validation data, save, draw, write the card, seal."""
    valid = prepared.valid if run.output.calibrates else []
    raws = run.raw([one.x for one in valid], options=run.output.validation_options())
    output = run.output.calibrate(run, raws, prepared)
    run = replace(run, output=output)
    names = run.save(folder, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    from sightline.view.charts import draw_curves  # matplotlib takes as long to import as PyTorch

    draw_curves(folder.metrics(), folder.path / CURVES, run.output.unit)
    wording = run.output.card(run, prepared, raws, folder.path)
    write_text(folder.path / CARD, card(folder, run.config, run.model, outcome, wording))
    folder.seal([*names, *sealed])
    return run


def describe(
    prepared: Prepared, source: Source, valid: Source | None, start: Path | None, command: str
) -> dict[str, Any]:
    """What is known of the data before training. File names only: where files were is private."""
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
    **listeners: Any,
) -> tuple[Run, Outcome] | None:
    """Train in this process and in those that a launcher started with it; only the first knows what came of it.

    ``source`` is None for a run that is resumed; ``fresh`` is what only a new run takes. A run that a launcher starts
    anew after a loss is resumed.
    """
    ranks = Ranks.join(device)
    restarted = ranks.is_restart()
    if ranks.is_first and source is not None and (out / CONFIG).exists():
        if not restarted:
            RunFolder.create(out)  # says that there is a run already
        source = None
    if not ranks.is_first:
        ranks.wait()  # the first process prepares the data; then this one finds a run to resume
        with suppress(OtherRank):
            train_task(task, None, out, config, device=device)
        ranks.wait()
        return None

    def begin() -> None:
        on_begin()
        ranks.wait()

    options = {} if source is None or fresh is None else fresh
    found = train_task(task, source, out, config, device=device, on_begin=begin, **listeners, **options)
    ranks.wait()
    return found
