"""The commands in Python: `sightline.train(...)` and `sightline.load(...)` return a `Run`."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from sightline.config import Config
from sightline.data.checking import RowLimits
from sightline.data.source import RowsLike, Source
from sightline.data.tables import reading_as
from sightline.errors import UserError
from sightline.machine import choose_device
from sightline.tasks.prepare import OnItems
from sightline.tasks.registry import task_named
from sightline.tasks.run import Run
from sightline.tasks.task import Task, imported
from sightline.tasks.train import Report, train_together
from sightline.training.checkpoint import Progress
from sightline.training.steps import Event

if TYPE_CHECKING:
    from sightline.interop.huggingface import HuggingFaceModel
    from sightline.tasks.configs.base import TaskConfig


def train(
    data: RowsLike | None,
    out: str | Path,
    *,
    task: str | Task = "translate",
    valid: RowsLike | None = None,
    model: str | None = None,
    size: Literal["tiny", "small", "base"] | None = None,
    start: str | Path | None = None,
    config: Config | None = None,
    columns: tuple[str, ...] | None = None,
    encoding: str | None = None,
    limits: RowLimits | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    device: str = "auto",
    overwrite: bool = False,
    folds: int | None = None,
    progress: bool | None = None,
    on_items: OnItems | None = None,
    on_report: Report | None = None,
    on_step: Callable[[Event], None] | None = None,
    on_scores: Callable[[Progress, dict[str, float]], None] | None = None,
    on_remark: Callable[[str], None] | None = None,
    **options: object,
) -> Run:
    """Train a model, and return the run.

    ``data`` is a path, rows (dictionaries, or tuples in the order of the task's columns; a generator is read once), a
    DataFrame of pandas or polars, or a `datasets.Dataset`. ``out`` is the run folder. The configuration is ``config``,
    or that of ``model`` in its ``size``, or that of the run to ``start`` from. ``options`` are the task's own, as on
    the command line, such as ``labels="several"`` of classify. ``overwrite`` replaces a run that is there.
    ``encoding`` is that of text files, UTF-8 by default.
    ``progress`` shows how training goes; by default, on a terminal and in a notebook, unless ``on_step`` or
    ``on_scores`` is given. ``folds``: first cross-validate with this many parts of the data; the card has the result.
    """
    from sightline.cli.display import Display
    from sightline.cli.train import base_config, with_fields

    chosen = task if isinstance(task, Task) else task_named(task)
    known = [one.name.replace("-", "_") for one in chosen.options]
    for name in options:
        if name not in known:
            there = f"; there is {', '.join(known)}" if known else ""
            raise UserError(f"{name} is no option of {chosen.name}{there}")
    with reading_as(encoding):
        sets, reader = chosen.own_options(options)
        source = Source.of(_Stream(data) if isinstance(data, Iterator) else data, columns, **reader)
        variant = chosen.variant_for(source)
        begin = None if start is None else Path(start)
        kind = imported(variant.config)
        if config is not None and not isinstance(config, kind):
            raise UserError(f"config is a {type(config).__name__}; {chosen.name} takes a {kind.__name__}")
        whole: TaskConfig = base_config(chosen, variant, model, size, begin) if config is None else config
        if model not in (None, whole.model.kind):
            raise UserError(
                f"model is {model!r}, but the configuration or the run to start from has a {whole.model.kind}"
            )
        limits_given = {"training.epochs": epochs, "training.steps": steps, "training.minutes": minutes}
        whole = with_fields(whole, {**sets, **limits_given})
        console = Console()
        shown = console.is_terminal or console.is_jupyter if progress is None else progress
        display = Display(console, chosen.counted.split()[-1]) if shown and not (on_step or on_scores) else None
        listeners: dict[str, Any] = {} if display is None else display.listeners()
        own_listeners = {"on_report": on_report, "on_step": on_step, "on_scores": on_scores, "on_remark": on_remark}
        listeners |= {name: one for name, one in own_listeners.items() if one is not None}
        fresh: dict[str, Any] = {
            "valid": None if valid is None else Source.of(valid, columns),
            "limits": limits,
            "start": begin,
            "on_items": on_items or (None if display is None else display.items),
            "overwrite": overwrite,
        }
        if folds is not None:
            from sightline.tasks.folds import cross_validate

            options_of_folds = {name: fresh[name] for name in ("valid", "limits", "start")}
            place, where = Path(out), choose_device(device)
            fresh["folds"] = cross_validate(chosen, source, place, whole, folds, device=where, **options_of_folds)
        with nullcontext() if display is None else display.progress:
            trained = train_together(
                chosen, source, Path(out), whole, device=choose_device(device), fresh=fresh, **listeners
            )
        return Run.load(out) if trained is None else trained[0]


class _Stream:
    """Rows of an iterator whose first row can be inspected before they are read: it decides the task's variant."""

    def __init__(self, rows: Iterator[Any]) -> None:
        self.first, self.rest = list(itertools.islice(rows, 1)), rows

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain(self.first, self.rest)


def load(run: str | Path) -> Run:
    """Load a run from its folder, or from one of its checkpoints.

    An untrusted folder is safe to load: nothing in it can run code.
    """
    if str(run).startswith("hf:"):
        raise UserError(f"{run} is a Hugging Face model; load it with sightline.load_huggingface")
    return Run.load(run)


def load_huggingface(folder: str | Path) -> "HuggingFaceModel":
    """Load a Hugging Face model from a folder on the disk; its `explain` shows its attention."""
    from sightline.interop.huggingface import load as load_folder

    return load_folder(folder)
