"""`sightline train TASK`: a real command for each task, with that task's options, models and metrics only."""

import difflib
import sys
from collections.abc import Sequence
from pathlib import Path

from sightline.cli.options import DEVICE, REQUIRED, SET, THREADS, Option, parsed
from sightline.errors import UserError
from sightline.tasks.registry import BUILT_IN, task_named, tasks
from sightline.tasks.task import SIZES, Task

HELP = """Train a model on your data. Ctrl-C saves; `sightline resume RUN` continues.

Choose a task; `sightline train TASK --help` lists its options:

"""


def train(arguments: Sequence[str]) -> None:
    """Train a model for one of the tasks."""
    name = arguments[0] if arguments else ""
    if name in ("", "-h", "--help"):
        print(f"usage: sightline train TASK [OPTIONS]\n\n{HELP}{_listed()}")
        sys.exit(0 if name else 2)
    if name not in BUILT_IN and name not in tasks():
        close = difflib.get_close_matches(name, list(tasks()), n=1)
        advice = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(tasks())}"
        print(f"sightline: there is no task {name!r}; {advice}", file=sys.stderr)
        sys.exit(2)
    task = task_named(name)
    _refuse_others(task, arguments[1:])
    values = parsed(options_of(task), f"sightline train {name}", described(task), arguments[1:])
    from sightline.cli.train import train_command

    train_command(task, values)


def _refuse_others(task: Task, arguments: Sequence[str]) -> None:
    """Say whose option it is that another task has: the parser would only say that it does not know it."""
    own = {one.name for one in task.options}
    for name in (one[2:].partition("=")[0] for one in arguments if one.startswith("--") and one != "--help"):
        others = [other.name for other in tasks().values() if name in {one.name for one in other.options}]
        if others and name not in own:
            raise UserError(f"--{name} is for {' and '.join(others)}, not for {task.name}; leave it out")


def _listed() -> str:
    width = max(map(len, tasks()))
    return "\n".join(f"  {name:<{width}}  {task.help}" for name, task in tasks().items())


def described(task: Task) -> str:
    """What stands above a task's options."""
    return f"Train {task.name}: {task.help}. Ctrl-C saves; `sightline resume RUN` continues."


def options_of(task: Task) -> tuple[Option, ...]:
    """All options of `train` for one task."""
    columns = " ".join(f"[{one.name.upper()}]" if one.optional else one.name.upper() for one in task.columns)
    names = ", ".join(one.name for one in task.columns if not one.optional)
    models = ", ".join([f"{task.models[0]} (the default)", *task.models[1:]])
    own = tuple(
        Option(
            one.name,
            bool if one.flag else Path if one.metavar == "FOLDER" else str,
            one.help,
            False if one.flag else None,
            one.metavar or None,
            one.choices,
        )
        for one in task.options
    )
    return (
        Option("out", Path, "The run folder to make.", REQUIRED, "FOLDER"),
        Option("data", str, f"{task.data[0].upper()}{task.data[1:]}; - for a pipe.", None, "FILE"),
        Option("valid", str, "Validation data in the same form; left out, a part of the data.", None, "FILE"),
        Option("columns", tuple[str, ...], f"Column names, where they are not {names}.", None, columns),
        *own,
        Option("model", str, f"{models}.", None, "NAME", group="model"),
        Option("preset", str, "The size; tiny unless given.", None, choices=SIZES, group="model"),
        Option("from", Path, "Begin with an earlier run: its model, weights, vocabulary.", None, "RUN", group="model"),
        *_metric(task),
        Option("config", Path, "A file of the configuration, such as a run's config.json.", group="model"),
        Option("set", tuple[str, ...], f"{SET}.", (), "FIELD=VALUE", group="model"),
        Option("epochs", int, "Stop after this many passes; 30 without any limit.", group="training"),
        Option("steps", int, "Stop after this many updates.", group="training"),
        Option("minutes", float, "Stop after this many minutes.", group="training"),
        Option("seed", int, "Same seed, data and threads: same model; 0 unless given.", group="training"),
        Option(DEVICE.name, str, DEVICE.help, DEVICE.default, choices=DEVICE.choices, group="training"),
        Option("threads", int, THREADS.help, group="training"),
        Option("dry-run", bool, "Train a few batches; print time, memory and disk; keep nothing.", group="training"),
        Option("tensorboard", bool, "Write RUN/tensorboard too.", group="training"),
        Option(
            "max-characters", int, f"Longer texts are left out; {task.max_characters:,} unless given.", group="training"
        ),
        Option(
            "max-bad-share",
            float,
            f"Refuse if more rows are bad; {task.max_bad_share:g} unless given.",
            group="training",
        ),
    )


def _metric(task: Task) -> tuple[Option, ...]:
    if not task.metrics:
        return ()
    about = "Decides which checkpoint is best."
    return (Option("metric", str, about, None, choices=task.metrics, group="model"),)
