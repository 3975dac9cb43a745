"""The registry of tasks: the built-in ones and those of installed packages. Listing them imports no model."""

from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from sightline.errors import UserError
from sightline.files import read_json
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
    "transcribe": "sightline.tasks.transcribe:TRANSCRIBE",
    "sequence": "sightline.tasks.sequence:SEQUENCE",
    "ask": "sightline.tasks.ask:ASK",
}


@cache
def tasks() -> dict[str, Task]:
    """Every task by its name, the built-in ones first; a built-in one cannot be replaced."""
    by_name = {name: imported(path) for name, path in BUILT_IN.items()}
    for point in entry_points(group=GROUP):
        if point.name not in by_name:
            task = point.load()
            if not isinstance(task, Task) or task.name != point.name:
                raise UserError(f"the entry point {point.value!r} is not a task called {point.name!r}")
            by_name[point.name] = task
    return by_name


def task_named(name: str) -> Task:
    """The task of this name. For a built-in one, installed packages are not searched."""
    if name in BUILT_IN:
        return imported(BUILT_IN[name])
    if name not in tasks():
        raise UserError(f"there is no task {name!r}; there is {', '.join(tasks())}")
    return tasks()[name]


def stored_task(stored: str, run: Path) -> Task:
    """The task that config.json of a run folder names."""
    for task in tasks().values():
        if any(variant.stored == stored for variant in task.variants):
            return task
    raise UserError(f"{run} is a run of the task {stored[:60]!r}; there is {', '.join(tasks())}")


def task_of(run: Path) -> Task:
    """The task of a run folder, or of one of its checkpoints; reads config.json only."""
    folder = run.parent.parent if run.parent.name == "checkpoints" and not (run / "config.json").exists() else run
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    try:
        metadata = read_json(folder / "config.json")
    except FileNotFoundError:
        raise UserError(f"{folder} is not a run folder: it has no config.json") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / 'config.json'} cannot be read: {error}") from None
    return stored_task(str(metadata.get("task") if isinstance(metadata, dict) else None), folder)
