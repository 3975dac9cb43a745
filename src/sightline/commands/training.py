"""Train and resume, with a display that lives."""

import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from sightline.commands.common import set_up
from sightline.config import ConfigError, override
from sightline.data.checking import Limits
from sightline.data.progress import watched
from sightline.data.tables import LINE_LIMIT
from sightline.errors import UserError
from sightline.files import is_no_folder
from sightline.machine import check_seed, choose_device
from sightline.tasks.card import CARD
from sightline.tasks.estimate import Estimate, estimate
from sightline.tasks.launching import train_together
from sightline.tasks.presets import read_config
from sightline.tasks.table import IMAGES, Task, task_named, task_of
from sightline.training.checkpoint import Progress as TrainingProgress
from sightline.training.folder import CONFIG, RunFolder
from sightline.training.ranks import Ranks
from sightline.training.steps import Event
from sightline.training.stopping import Terminated

# Characters; what is too long to be read whole is cut, or read in stretches.
LONGEST = {"summarise": 10_000} | dict.fromkeys(("classify", "tag", "span", "pretrain"), LINE_LIMIT)

SECONDS_SILENT = 5.0
SIZES_OF_BATCHES = ("batch", "batch_rows", "batch_tokens")
# Images are few, and each is a file of its own: one bad one in twenty may be passed over, by name.
BAD_SHARE = dict.fromkeys(IMAGES, 0.05)


@dataclass(frozen=True)
class Wanted:
    """What the options of `train` say of the configuration."""

    task: str = "translate"
    model: str | None = None
    preset: str | None = None
    config_file: Path | None = None
    start: Path | None = None
    metric: str | None = None
    limits: dict[str, float | int] = field(default_factory=dict)
    seed: int | None = None
    assignments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # of the task: as --set, and before the metric, which may depend on them

    def config(self) -> Any:
        """A preset, then the file, then the options, then --set: what comes later counts."""
        try:
            config = self._base(task_named(self.task))
            if self.task == "summarise":
                config = override(config, ["metric=rougeL"])
            config = override(config, self.options)
            if self.seed is not None:
                config = replace(config, seed=check_seed(self.seed))
            if self.metric is not None:
                config = override(config, [f"metric={self.metric}"])
            config = override(config, [f"training.{name}={value}" for name, value in self.limits.items()])
            config = override(config, self.assignments)
        except (ConfigError, ValueError) as error:
            raise UserError(str(error)) from None
        return config

    def _base(self, task: Task) -> Any:
        if self.config_file is not None:
            if self.model is not None or self.start is not None or self.preset is not None:
                raise UserError("--config says which model to train; leave out --model, --preset and --from")
            return read_config(self.config_file, task.config)
        if self.start is not None:
            if self.preset is not None:
                raise UserError(f"{self.start} has its size already; leave out --preset")
            config = task.go_on(self.start)
            if self.model not in (None, config.model.kind):
                raise UserError(f"{self.start} is a {config.model.kind}; what goes on from it cannot be a {self.model}")
            return config
        return task.preset(self.model, self.preset or "tiny")


def train_command(
    files: Any,
    valid: Any,
    out: Path,
    wanted: Wanted,
    *,
    device: str,
    threads: int | None,
    max_characters: int | None,
    max_bad_share: float | None,
    dry_run: bool,
    tensorboard: bool,
) -> None:
    """Build the configuration, train, say what came of it."""
    set_up(threads)
    config = wanted.config()
    chosen = choose_device(device)
    task = task_named(wanted.task)
    longest = max_characters or LONGEST.get(wanted.task, Limits().max_characters)
    share = BAD_SHARE.get(wanted.task, Limits().max_bad_share) if max_bad_share is None else max_bad_share
    limits = Limits(longest, share, options=True)
    if is_no_folder(out):
        raise UserError(f"--out is {out}, which is a file; name a folder for the run")
    if (out / CONFIG).exists() and not Ranks.is_launched():
        RunFolder.create(out)  # says that there is a run already, before the data is read
    if dry_run:
        print_estimate(estimate(files, valid, config, limits, wanted.start, chosen, wanted.task), config, task)
        return
    command = shlex.join(["sightline", *sys.argv[1:]])
    fresh = {"valid": valid, "limits": limits, "start": wanted.start, "command": command}
    _train(task, files, out, config, chosen, Board(out) if tensorboard else None, fresh=fresh)


def print_estimate(found: Estimate, config: Any, task: Task) -> None:
    """What training would take."""
    for line in found.prepared.lines():
        print(line)
    training = found.training
    limits = [
        f"{getattr(training, name):g} {name}" for name in ("epochs", "steps", "minutes") if getattr(training, name)
    ]
    print(f"model   {config.model.kind}, {found.parameters:,} parameters")
    print(
        f"data    {len(found.prepared.corpus):,} {task.rows} to train on, {len(found.prepared.valid):,} to validate; "
        f"{found.steps_per_epoch:,} steps an epoch"
    )
    print(
        f"time    {found.seconds / 60:,.1f} minutes at most ({', '.join(limits)}); "
        f"{found.seconds_per_epoch / 60:,.1f} minutes an epoch"
    )
    print(f"speed   {found.tokens_per_second:,.0f} {task.counted} a second")
    if found.memory is not None:
        print(f"memory  {found.memory / 2**20:,.0f} MB")
    print(f"disk    {found.disk / 2**20:,.0f} MB")
    print("nothing was kept: leave out --dry-run to train")


def resume_command(run: Path, threads: int | None, assignments: Sequence[str], device: str, tensorboard: bool) -> None:
    """Go on from the last checkpoint."""
    set_up(threads)
    task = task_named(task_of(run))
    folder = RunFolder.open(run)
    about = folder.read_config()
    try:
        before = task.config.from_json(about["config"])
        config = override(before, [_of_training(assignment) for assignment in assignments])
    except (ConfigError, KeyError) as error:
        raise UserError(f"{run}: {error}") from None

    def write() -> None:
        if config != before:  # whoever goes on next, goes on with this
            folder.write_json(CONFIG, {**about, "config": config.to_json()})

    _train(task, None, run, config, choose_device(device), Board(run) if tensorboard else None, on_begin=write)


def _of_training(assignment: str) -> str:
    """What may change while a run goes on: how it is trained, and how large its batches are."""
    name = assignment.partition("=")[0]
    return assignment if name in SIZES_OF_BATCHES else f"training.{assignment.removeprefix('training.')}"


def _train(task: Task, files: Any, out: Path, config: Any, device: str, board: "Board | None", **options: Any) -> None:
    console = Console()
    display = Display(console, task.counted.split()[-1])
    if task.sees_images and files is not None:
        options["fresh"]["on_images"] = display.images

    def on_step(event: Event) -> None:
        display.step(event)
        if board is not None:
            board.step(event)

    def on_scores(progress: TrainingProgress, scores: dict[str, float]) -> None:
        display.scores(progress, scores)
        if board is not None:
            board.scores(progress, scores)

    try:
        with display.progress, watched(display.preparing):
            found = train_together(
                task,
                files,
                out,
                config,
                device=device,
                on_report=display.report,
                on_step=on_step,
                on_scores=on_scores,
                on_remark=display.remark,
                **options,
            )
    except KeyboardInterrupt as stopped:
        code = 143 if isinstance(stopped, Terminated) else 130
        raise UserError(_kept(out), exit_code=code) from None
    if found is None:
        return  # the first process tells
    _, outcome = found
    reached = ", ".join(f"{name} {value:g}" for name, value in outcome.scores.items())
    lines = [f"ended after {outcome.reason}; {outcome.source}: {reached}", f"run     {out}", f"card    {out / CARD}"]
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)


def _kept(out: Path) -> str:
    """What an interrupted training leaves, and how to go on."""
    if (out / "checkpoints").exists():
        return f"stopped, and saved; go on with: sightline resume {out}"
    if (out / CONFIG).exists():  # the data is prepared, and the model is the one that training begins with
        return f"stopped before the first step; what was prepared is kept; begin with: sightline resume {out}"
    return "stopped before training began; there is nothing to go on with yet: give the same command again"


class Board:
    """Writes for TensorBoard what the display shows."""

    def __init__(self, run: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs a package: pip install 'sightline[tensorboard]'") from None
        self.folder, self.open_writer = run / "tensorboard", SummaryWriter
        self.writer: Any = None

    def _open(self) -> Any:
        # At the first step, not before: a run that does not come to be leaves no folder.
        if self.writer is None:
            self.writer = self.open_writer(str(self.folder))
        return self.writer

    def step(self, event: Event) -> None:
        writer = self._open()
        writer.add_scalar("train/loss", event.loss, event.progress.step)
        writer.add_scalar("train/tokens_per_second", event.tokens_per_second, event.progress.step)

    def scores(self, progress: TrainingProgress, scores: dict[str, float]) -> None:
        writer = self._open()
        for name, value in scores.items():
            writer.add_scalar(f"valid/{name}", value, progress.step)
        writer.flush()


class Display:
    """A line that lives: step, loss, speed, time left, best score."""

    def __init__(self, console: Console, counted: str = "tokens") -> None:
        self.console, self.last_said = console, time.monotonic()
        texts = ("{task.description}", "loss {task.fields[loss]:.3f}", f"{{task.fields[speed]:,.0f}} {counted}/s")
        columns = [TextColumn(text) for text in (*texts, "{task.fields[best]}", "{task.fields[left]}")]
        self.progress = Progress(columns[0], BarColumn(bar_width=20), *columns[1:], console=console)
        self.task: Any = None

    def report(self, prepared: Any, model: Any) -> None:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        for line in (*prepared.lines(), f"{prepared.summary()}; {parameters:,} parameters"):
            self.console.print(line, highlight=False, soft_wrap=True, markup=False)

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        """How the preparing of a large corpus goes on."""
        now = time.monotonic()
        if self.console.is_terminal and now - self.last_said > SECONDS_SILENT:
            self.last_said = now
            self.remark(f"{stage}: {done:,}" + (f" of {total:,}" if total else "") + " rows")

    def images(self, done: int, total: int, per_second: float) -> None:
        """How the reading of images goes on: a line now and then, since it comes before the bar."""
        now = time.monotonic()
        if done == total or now - self.last_said > SECONDS_SILENT:
            self.last_said = now
            self.remark(f"{done:,} of {total:,} images gone through, {per_second:.0f} a second")

    def remark(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def step(self, event: Event) -> None:
        progress = event.progress
        if self.task is None:
            self.task = self.progress.add_task("", total=1.0, loss=0.0, speed=0.0, best="", left="")
        share = event.share
        left = progress.seconds * (1 - share) / share if share else 0
        self.progress.update(
            self.task,
            completed=share,
            description=f"epoch {progress.epoch + 1} step {progress.step:,}",
            loss=event.loss,
            speed=event.tokens_per_second,
            best=_best(progress),
            left=f"{left / 60:.0f} min left" if share else "",
        )

    def scores(self, progress: TrainingProgress, scores: dict[str, float]) -> None:
        values = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        best = "  best so far" if progress.since_best == 0 else ""
        place = f"epoch {progress.epoch + bool(progress.batch):>3}  step {progress.step:>6,}"
        line = f"{place}  {progress.seconds / 60:5.1f} min  {values}{best}"
        self.console.print(line, highlight=False, soft_wrap=True)
        if self.task is not None:
            self.progress.update(self.task, best=_best(progress))


def _best(progress: TrainingProgress) -> str:
    """The best score so far; nothing before the first validation."""
    return "" if progress.best is None else f"best {progress.best:.2f}"
