"""The same as on the command line, in Python: `sightline.train(...)` and `sightline.load(...)` give a `Run`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline.data.checking import Limits
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.machine import choose_device
from sightline.tasks.registry import task_named
from sightline.tasks.run import Run
from sightline.tasks.task import Task, Variant, imported

if TYPE_CHECKING:
    from sightline.interop.huggingface import HuggingFaceModel


def train(
    data: Any,
    out: str | Path,
    *,
    task: str | Task = "translate",
    valid: Any = None,
    model: str | None = None,
    size: Literal["tiny", "small", "base"] | None = None,
    start: str | Path | None = None,
    config: Any = None,
    columns: tuple[str, ...] | None = None,
    limits: Limits | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    device: str = "auto",
    on_items: Any = None,
    on_report: Any = None,
    on_step: Any = None,
    on_scores: Any = None,
    on_remark: Any = None,
    **options: Any,
) -> Run:
    """Train a model, and give it back trained.

    ``data`` is a path, rows (dictionaries, or tuples in the order of the task's columns), a DataFrame of pandas or
    polars, or a `datasets.Dataset`. ``out`` is the run folder. The configuration is that of ``model`` in its ``size``,
    or that of the run to ``start`` from, unless ``config`` is given whole. ``options`` are the task's own, as on the
    command line, such as ``labels="several"`` of classify.
    """
    from sightline.cli.train import base_config
    from sightline.tasks.train import train_together

    chosen = task if isinstance(task, Task) else task_named(task)
    known = [one.name.replace("-", "_") for one in chosen.options]
    for name in options:
        if name not in known:
            there = f"; there is {', '.join(known)}" if known else ""
            raise UserError(f"{name} is no option of {chosen.name}{there}")
    sets, reader = chosen.own_options(options)
    source = Source.of(data, columns, **reader)
    variant = chosen.variant_for(source)
    begin = None if start is None else Path(start)
    whole = _whole(chosen, variant, config, lambda: base_config(chosen, variant, model, size, begin), model)
    given = {"epochs": epochs, "steps": steps, "minutes": minutes}
    changed = {name: value for name, value in given.items() if value is not None}
    whole = replace(whole, training=replace(whole.training, **changed), **sets)
    listeners = {"on_report": on_report, "on_step": on_step, "on_scores": on_scores, "on_remark": on_remark}
    fresh = {
        "valid": None if valid is None else Source.of(valid, columns),
        "limits": limits,
        "start": begin,
        "on_items": on_items,
    }
    ended = train_together(
        chosen,
        source,
        Path(out),
        whole,
        device=choose_device(device),
        fresh=fresh,
        **{name: one for name, one in listeners.items() if one is not None},
    )
    return Run.load(out) if ended is None else ended[0]


def _whole(task: Task, variant: Variant, config: Any, base: Any, model: str | None) -> Any:
    kind = imported(variant.config)
    if config is not None and not isinstance(config, kind):
        raise UserError(f"config is a {type(config).__name__}; {task.name} takes a {kind.__name__}")
    whole = base() if config is None else config
    if model not in (None, whole.model.kind):
        raise UserError(f"model is {model!r}, but the configuration or the run to start from has a {whole.model.kind}")
    return whole


def load(run: str | Path) -> Run:
    """A trained model from its run folder, or as it was at one of its checkpoints.

    The folder may be anybody's: nothing in it can run code.
    """
    if str(run).startswith("hf:"):
        raise UserError(f"{run} is a model of Hugging Face's; sightline.load_huggingface looks into those")
    return Run.load(run)


def load_huggingface(folder: str | Path) -> "HuggingFaceModel":
    """A model of Hugging Face's from a folder on the disk, to look into: `explain` shows where it looks."""
    from sightline.interop.huggingface import load as load_folder

    return load_folder(folder)
