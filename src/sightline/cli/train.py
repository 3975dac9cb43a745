"""Train and resume from the command line: the configuration, the display, the dry run."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

from rich.console import Console

from sightline.cli.common import set_up
from sightline.cli.display import Board, Display
from sightline.config import ConfigError, override
from sightline.data.progress import watched
from sightline.data.source import Source
from sightline.data.tables import read_as
from sightline.errors import UserError
from sightline.files import is_no_folder, read_json
from sightline.machine import check_seed, choose_device
from sightline.tasks.card import CARD
from sightline.tasks.dry_run import Estimate, estimate
from sightline.tasks.registry import task_of
from sightline.tasks.task import SIZES, Task, Variant, imported
from sightline.tasks.train import started, train_together
from sightline.training.checkpoint import checkpoints, read_progress
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.ranks import Ranks, launch_id
from sightline.training.stopping import Terminated

SIZES_OF_BATCHES = ("batch", "batch_rows", "batch_tokens")


def preset(variant: Variant, model: str | None = None, size: str = "tiny") -> Any:
    """The configuration of a model in one of its sizes. A model that is not built in has its defaults only."""
    if size not in SIZES:
        raise ConfigError(f"preset is {size!r}; it is one of {', '.join(SIZES)}")
    kind, name = imported(variant.config), model or next(iter(variant.models))
    sizes = variant.models.get(name)
    if sizes is None and size != "tiny":
        raise ConfigError(f"the model {name!r} has no presets; set its fields with --set")
    fields = {} if sizes is None else sizes[size]
    chosen = get_type_hints(kind)["model"].from_json({"kind": name, **fields})
    rates: Any = variant.rates.get(name, variant.rates.get("", variant.rates))
    config = replace(kind(), model=chosen)
    if size in rates:
        config = replace(config, training=replace(config.training, learning_rate=rates[size]))
    return override(config, [f"{name}={json.dumps(value)}" for name, value in variant.fields.get(size, {}).items()])


def read_config(path: Path, kind: Any) -> Any:
    """A task's configuration: a file of its fields, or the config.json of a run."""
    try:
        data = read_json(path)
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from None
    try:
        return kind.from_json(data["config"] if isinstance(data, dict) and "config" in data else data)
    except ConfigError as error:
        raise UserError(f"{path}: {error}") from None


def base_config(
    task: Task, variant: Variant, model: str | None, size: str | None, start: Path | None, path: Path | None = None
) -> Any:
    """The configuration in a file, that of an earlier run to start from, or a preset."""
    if path is not None:
        if model is not None or start is not None or size is not None:
            raise UserError("--config names the model to train; leave out --model, --preset and --from")
        return read_config(path, imported(variant.config))
    if start is not None:
        if size is not None:
            raise UserError(f"{start} has its size already; leave out --preset")
        config = started(task, variant, start).config()
        if model not in (None, config.model.kind):
            raise UserError(f"{start} is a {config.model.kind}; a run that starts from it cannot be a {model}")
        return config
    if model is not None and model not in variant.models and any(model in one.models for one in task.variants):
        raise UserError(f"--model {model} is for other data; here it is one of {', '.join(variant.models)}")
    config = preset(variant, model, size or "tiny")
    return override(config, task.overrides)


def with_fields(config: Any, values: Mapping[str, object]) -> Any:
    """The configuration with those of the values that are given, each checked as in a file."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return override(config, [f"{name}={json.dumps(value)}" for name, value in given.items()])
    except (ConfigError, TypeError, ValueError) as error:
        raise UserError(str(error)) from None


def configured(task: Task, variant: Variant, values: dict[str, Any], sets: Sequence[str]) -> Any:
    """A preset or file, then the options, then --set; later values override earlier ones."""
    try:
        config = base_config(task, variant, values["model"], values["preset"], values["start"], values["config"])
        config = override(config, sets)
        if values["seed"] is not None:
            config = replace(config, seed=check_seed(values["seed"]))
        given = {f"training.{name}": values.get(name) for name in ("epochs", "steps", "minutes", "learning_rate")}
        config = with_fields(config, {**given, "metric": values.get("metric")})
        return override(config, values["set"])
    except (ConfigError, ValueError) as error:
        raise UserError(str(error)) from None


def train_command(task: Task, values: dict[str, Any]) -> None:
    """Build the configuration, train, print the result."""
    set_up(values["threads"])
    read_as(values["encoding"])
    sets, reader = task.own_options(values)
    source = Source.of(values["data"], values["columns"], **reader)
    task.check_source(source)
    shared = {one.name: reader[one.name] for one in task.options if one.everywhere and one.name in reader}
    valid = None if values["valid"] is None else replace(source, data=values["valid"], options=shared)
    variant = task.variant_for(source)
    task = task.of(variant)
    own = [f"{name}={one if isinstance(one, str) else json.dumps(one)}" for name, one in sets.items()]
    config, device, out = configured(task, variant, values, own), choose_device(values["device"]), values["out"]
    limits = task.limits(values["max_characters"], values["max_bad_share"], options=True)
    if is_no_folder(out):
        raise UserError(f"--out is {out}, which is a file; name a folder for the run")
    launched = Ranks.is_launched() or launch_id() is not None
    if (out / CONFIG).exists() and not launched and not values["overwrite"]:
        RunFolder.create(out)  # raises before the data is read: there is a run already
    if values["dry_run"]:
        costs = estimate(task, source, valid, config, limits, values["start"], device)
        crossed = values["folds"] is not None
        print_estimate(replace(costs, prepared=replace(costs.prepared, crossed=crossed)), config, task)
        return
    command = shlex.join(["sightline", *sys.argv[1:]])
    fresh = {"valid": valid, "limits": limits, "start": values["start"], "command": command}
    fresh["overwrite"] = values["overwrite"]
    if values["folds"] is not None:
        fresh["folds"] = _cross_validate(task, source, out, config, values["folds"], device, fresh)
    _train(task, source, out, config, device, Board(out) if values["tensorboard"] else None, fresh=fresh)


def _cross_validate(
    task: Task, source: Source, out: Path, config: Any, folds: int, device: str, fresh: Mapping[str, Any]
) -> dict[str, Any]:
    """The scores of a cross-validation, printed fold by fold."""
    from sightline.tasks.folds import cross_validate, lines_of

    if Ranks.is_launched():
        raise UserError("--folds is for one process; leave it out, or start without a launcher")

    def say(number: int, scores: dict[str, float]) -> None:
        shown = ", ".join(f"{name} {value:g}" for name, value in scores.items())
        print(f"fold {number + 1} of {folds}: {shown}", flush=True)

    options = {name: fresh[name] for name in ("valid", "limits", "start")}
    crossed = cross_validate(task, source, out, config, folds, say, device=device, **options)
    print(*lines_of(crossed, folds), sep="\n", flush=True)
    return crossed


def print_estimate(costs: Estimate, config: Any, task: Task) -> None:
    """Print what training would take."""
    for line in costs.prepared.lines():
        print(line)
    training = costs.training
    limits = [
        f"{getattr(training, name):g} {name}" for name in ("epochs", "steps", "minutes") if getattr(training, name)
    ]
    print(f"model   {config.model.kind}, {costs.parameters:,} parameters")
    print(f"data    {costs.prepared.output.counts(costs.prepared)}; {costs.steps_per_epoch:,} steps an epoch")
    print(
        f"time    {costs.seconds / 60:,.1f} minutes at most ({', '.join(limits)}); "
        f"{costs.seconds_per_epoch / 60:,.1f} minutes an epoch"
    )
    print(f"speed   {costs.tokens_per_second:,.0f} {task.counted} a second")
    if costs.memory is not None:
        print(f"memory  {costs.memory / 2**20:,.0f} MB")
    print(f"disk    {costs.disk / 2**20:,.0f} MB")
    print("nothing was kept: leave out --dry-run to train")


def resume_command(
    run: Path,
    verify: int | None,
    device: str,
    threads: int | None,
    tensorboard: bool,
    set: Sequence[str],
    epochs: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    learning_rate: float | None = None,
) -> None:
    """Resume from the last checkpoint; with ``verify``, check in copies that resuming is exact."""
    if verify is not None:
        from sightline.cli.verify import verify_command

        if set or tensorboard or any((epochs, steps, minutes, learning_rate)):
            raise UserError("--verify changes nothing in the run; leave out --set, --tensorboard and limits")
        verify_command(run, verify, threads, device)
        return
    set_up(threads)
    folder = RunFolder.open(run)
    task, about = task_of(run), folder.read_config()
    try:
        before = imported(task.variant_of(str(about.get("task"))).config).from_json(about["config"])
        limits: dict[str, Any] = {"epochs": epochs, "steps": steps, "minutes": minutes}
        config = before
        if any(one is not None for one in limits.values()):
            _check_limits(run, limits)
            config = replace(config, training=replace(config.training, **limits))
        config = with_fields(config, {"training.learning_rate": learning_rate})
        config = override(config, [_of_training(assignment) for assignment in set])
    except (ConfigError, KeyError, ValueError) as error:
        raise UserError(f"{run}: {error}") from None

    def write() -> None:
        if config != before:  # the next resume starts with this configuration
            folder.write_json(CONFIG, {**about, "config": config.to_json()})

    _train(task, None, run, config, choose_device(device), Board(run) if tensorboard else None, on_begin=write)


def _check_limits(run: Path, limits: Mapping[str, Any]) -> None:
    """Limits count from the beginning of the run: refuse one that is reached already."""
    paths = checkpoints(run)
    if not paths:
        return
    progress = read_progress(paths[-1])
    done = {"epochs": progress.epoch, "steps": progress.step, "minutes": progress.seconds / 60}
    for name, limit in limits.items():
        if limit is not None and limit <= done[name]:
            raise UserError(
                f"{run} has trained {done[name]:,.4g} {name} already, and --{name} counts from its beginning: "
                f"give more than {done[name]:,.4g}"
            )


def _of_training(assignment: str) -> str:
    """The field that may change when a run is resumed: one of the training, or the batch size."""
    name = assignment.partition("=")[0]
    return assignment if name in SIZES_OF_BATCHES else f"training.{assignment.removeprefix('training.')}"


def _train(
    task: Task, source: Source | None, out: Path, config: Any, device: str, board: Board | None, **options: Any
) -> None:
    display = Display(Console(), task.counted.split()[-1], board=board)
    if source is not None:
        options["fresh"]["on_items"] = display.items
    try:
        with display.progress, watched(display.preparing):
            trained = train_together(task, source, out, config, device=device, **display.listeners(), **options)
    except KeyboardInterrupt as stopped:
        code = 143 if isinstance(stopped, Terminated) else 130
        raise UserError(_kept(out), exit_code=code) from None
    if trained is None:
        return  # the first process prints the result
    outcome = trained[1]
    scores = ", ".join(f"{name} {value:g}" for name, value in outcome.scores.items())
    if outcome.verdict:
        display.remark(outcome.verdict)
    display.remark(f"ended after {outcome.reason}; {outcome.source}: {scores}\nrun     {out}\ncard    {out / CARD}")


def _kept(out: Path) -> str:
    """What an interrupted training leaves, and how to resume it."""
    if (out / "checkpoints").exists():
        return f"stopped, and saved; continue with: sightline resume {out}"
    if (out / CONFIG).exists():  # the data is prepared, and the model has its initial weights
        return f"stopped before the first step; the prepared data is kept; continue with: sightline resume {out}"
    return "stopped before training began; nothing was kept: give the same command again"
