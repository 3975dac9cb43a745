"""`sightline train TASK`: a real command for each task, with that task's options, models and metrics only."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sightline.cli.options import DEVICE, ENCODING, REQUIRED, SET, THREADS, Arg, nearest, parsed
from sightline.errors import UserError
from sightline.tasks.registry import BUILT_IN, task_named, tasks
from sightline.tasks.task import SIZES, Task

HELP = """Train a model on your data. Ctrl-C saves; `sightline resume RUN` continues.

Choose a task; `sightline train TASK --help` lists its options:

"""


TRAINING = (
    Arg("epochs", int, "Stop after this many passes. Without a limit: 30, or with few rows up to 1,000 (3,000 steps)."),
    Arg("steps", int, "Stop after this many updates."),
    Arg("minutes", float, "Stop after this many minutes."),
    Arg("folds", int, "First cross-validate with this many parts of the data: for small data."),
    Arg("learning-rate", float, "The highest learning rate; by default, that of the preset."),
    Arg("seed", int, "The same seed, data and threads give the same model; 0 by default."),
    Arg("dry-run", bool, "Train a few batches, print time, memory and disk, and keep nothing."),
    Arg("tensorboard", bool, "Also write RUN/tensorboard."),
    Arg("overwrite", bool, "Replace the run in the folder, if there is one."),
)
# Fields of the configuration that are taken for options, and how to set them.
FIELDS = {
    "batch-tokens": "batch_tokens=2048",
    "batch-rows": "batch_rows=16",
    "batch-size": "batch_tokens=2048 (texts), batch_rows=16 (texts) or batch=16 (images)",
    "lr": "training.learning_rate=0.001, or --learning-rate 0.001",
    "dropout": "dropout=0.1 or model.dropout=0.1",
    "patience": "training.patience=5",
    "warmup": "training.warmup=200",
    "weight-decay": "training.weight_decay=0.01",
    "max-length": "max_length=256",
    "vocab-size": "tokeniser.vocab_size=8000",
}


def train(arguments: Sequence[str]) -> None:
    """Train a model for one of the tasks."""
    name = arguments[0] if arguments else ""
    if name in ("", "-h", "--help"):
        print(f"usage: sightline train TASK [OPTIONS]\n\n{HELP}{_listed()}")
        sys.exit(0 if name else 2)
    if name not in BUILT_IN and name not in tasks():
        raise UserError(f"there is no task {name!r}; {nearest(name, tasks())}")
    task = task_named(name)
    _refuse_others(task, arguments[1:])
    values = parsed(options_of(task), f"sightline train {name}", described(task), arguments[1:])
    from sightline.cli.train import train_command

    train_command(task, values)


def _refuse_others(task: Task, arguments: Sequence[str]) -> None:
    """Refuse an option of another task in a sentence that names the task."""
    own = {one.name for one in task.options}
    for name in (one[2:].partition("=")[0] for one in arguments if one.startswith("--") and one != "--help"):
        if name.replace("_", "-") in FIELDS and name not in own:
            raise UserError(
                f"--{name} is a field of the configuration; set it with --set {FIELDS[name.replace('_', '-')]}"
            )
        others = [other.name for other in tasks().values() if name in {one.name for one in other.options}]
        if others and name not in own:
            raise UserError(f"--{name} is for {' and '.join(others)}, not for {task.name}; leave it out")


def _listed() -> str:
    width = max(map(len, tasks()))
    return "\n".join(f"  {name:<{width}}  {task.help}" for name, task in tasks().items())


def described(task: Task) -> str:
    """The text above a task's options."""
    return f"Train {task.name}: {task.help}. Ctrl-C saves; `sightline resume RUN` continues."


def options_of(task: Task) -> tuple[Arg, ...]:
    """All options of `train` for one task."""
    columns = " ".join(f"[{one.name.upper()}]" if one.optional else one.name.upper() for one in task.columns)
    names = ", ".join(one.name for one in task.columns if not one.optional)
    models = ", ".join([f"{task.models[0]} (the default)", *task.models[1:]])
    own = tuple(
        Arg(
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
        Arg("out", Path, "Create this run folder.", REQUIRED, "FOLDER"),
        Arg("data", str, f"{task.data[0].upper()}{task.data[1:]}; - reads a pipe.", None, "FILE"),
        Arg("valid", str, "Validation data in the same format; by default, a part of the data.", None, "FILE"),
        Arg("columns", tuple[str, ...], f"Names of the columns, if they are not {names}.", None, columns),
        ENCODING,
        *own,
        Arg("model", str, f"{models}.", None, "NAME", group="model"),
        Arg("preset", str, "The size of the model; tiny by default.", None, choices=SIZES, group="model"),
        Arg("from", Path, "Start from an earlier run: its model, weights, vocabulary.", None, "RUN", group="model"),
        *_metric(task),
        Arg("config", Path, "Read the configuration from this file, such as config.json of a run.", group="model"),
        Arg("set", tuple[str, ...], f"{SET}.", (), "FIELD=VALUE", group="model"),
        *(replace(one, group="training") for one in (*TRAINING, DEVICE, THREADS)),
        Arg("max-characters", int, f"Skip longer texts; {task.max_characters:,} by default.", group="training"),
        Arg(
            "max-bad-share",
            float,
            f"Fail if a larger fraction of rows is bad; {task.max_bad_share:g} by default.",
            group="training",
        ),
    )


def _metric(task: Task) -> tuple[Arg, ...]:
    if not task.metrics:
        return ()
    return (Arg("metric", str, "Choose the best checkpoint by this.", None, choices=task.metrics, group="model"),)
