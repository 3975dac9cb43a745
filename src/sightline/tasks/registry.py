"""Which tasks there are: the built-in ones and those of installed packages. Listing them imports no model."""

import json
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from sightline.errors import UserError
from sightline.tasks.task import Task, imported

GROUP = "sightline.task"  # the entry points of other packages; each names a `Task`
BUILT_IN = {
    "translate": "sightline.tasks.translate:TRANSLATE",
    "summarise": "sightline.tasks.summarise:SUMMARISE",
    "classify": "sightline.tasks.classify:CLASSIFY",
    "caption": "sightline.tasks.caption:CAPTION",
    "tag": "sightline.tasks.tag:TAG",
    "span": "sightline.tasks.span:SPAN",
    "pretrain": "sightline.tasks.pretrain:PRETRAIN",
    "grid": "sightline.tasks.grid:GRID",
}


@cache
def tasks() -> dict[str, Task]:
    """Every task by its name, the built-in ones first; a built-in one cannot be replaced."""
    found = {name: imported(path) for name, path in BUILT_IN.items()}
    for point in entry_points(group=GROUP):
        if point.name not in found:
            task = point.load()
            if not isinstance(task, Task) or task.name != point.name:
                raise UserError(f"the entry point {point.value!r} is no task called {point.name!r}")
            found[point.name] = task
    return found


def task_named(name: str) -> Task:
    """The task of this name. A built-in one is found without asking what is installed."""
    if name in BUILT_IN:
        return imported(BUILT_IN[name])
    if name not in tasks():
        raise UserError(f"there is no task {name!r}; there is {', '.join(tasks())}")
    return tasks()[name]


def stored_task(stored: str, run: Path) -> Task:
    """The task that a run folder says it is of."""
    for task in tasks().values():
        if any(variant.stored == stored for variant in task.variants):
            return task
    raise UserError(f"{run} is a run of the task {stored!r}; there is {', '.join(tasks())}")


def task_of(run: Path) -> Task:
    """The task of a run folder, or of one of its checkpoints, by its config.json alone."""
    folder = run.parent.parent if run.parent.name == "checkpoints" and not (run / "config.json").exists() else run
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder} is not a run folder: it has no config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / 'config.json'} cannot be read: {error}") from None
    return stored_task(str(about.get("task") if isinstance(about, dict) else None), folder)
