"""Train and resume, with a display that lives."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from sightline.commands.common import set_up
from sightline.config import ConfigError, override
from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.errors import UserError
from sightline.machine import check_seed
from sightline.models.text_to_text import TextToText, TextToTextConfig
from sightline.tasks.translate import Prepared, TranslateConfig, train_translate
from sightline.training.checkpoint import Progress as TrainingProgress
from sightline.training.folder import RunFolder
from sightline.training.loop import Event, TrainingConfig


def train_command(
    files: PairFiles,
    valid: PairFiles | None,
    out: Path,
    model: str,
    limits: dict[str, float | int | None],
    assignments: Sequence[str],
    seed: int,
    threads: int | None,
    max_bad_share: float | None,
    metric: str | None,
) -> None:
    """Build the configuration, train, say what came of it."""
    set_up(threads)
    try:
        config = TranslateConfig(model=TextToTextConfig.from_json(model), seed=check_seed(seed))
        training = {**config.training.to_json(), **{k: v for k, v in limits.items() if v is not None}}
        if not any(limits.values()):
            training["epochs"] = 30
        config = replace(config, training=TrainingConfig.from_json(training))
        if metric is not None:
            config = override(config, [f"metric={metric}"])
        config = override(config, assignments)
    except (ConfigError, ValueError) as error:
        raise UserError(str(error)) from None
    checks = Limits() if max_bad_share is None else Limits(max_bad_share=max_bad_share)
    _train(files, out, config, valid=valid, limits=checks)


def resume_command(run: Path, threads: int | None, assignments: Sequence[str]) -> None:
    """Go on from the last checkpoint."""
    set_up(threads)
    try:
        config = TranslateConfig.from_json(RunFolder.open(run).read_config()["config"])
        config = override(config, [f"training.{assignment}" for assignment in assignments])
    except (ConfigError, KeyError) as error:
        raise UserError(f"{run}: {error}") from None
    _train(None, run, config)


def _train(files: PairFiles | None, out: Path, config: TranslateConfig, **options: Any) -> None:
    console = Console()
    display = Display(console, config)
    try:
        with display.progress:
            _, outcome = train_translate(
                files,
                out,
                config,
                on_report=display.report,
                on_step=display.step,
                on_scores=display.scores,
                **options,
            )
    except KeyboardInterrupt:
        if (out / "checkpoints").exists():
            raise UserError(f"stopped, and saved; go on with: sightline resume {out}", exit_code=130) from None
        raise
    reached = ", ".join(f"{name} {value:g}" for name, value in outcome.scores.items())
    console.print(f"ended after {outcome.reason}; {outcome.source}: {reached}", highlight=False, markup=False)
    console.print(f"run     {out}", highlight=False, soft_wrap=True, markup=False)


class Display:
    """A line that lives: step, loss, speed, time left, best score."""

    def __init__(self, console: Console, config: TranslateConfig) -> None:
        self.console, self.config = console, config
        texts = ("{task.description}", "loss {task.fields[loss]:.3f}", "{task.fields[speed]:,.0f} tokens/s")
        columns = [TextColumn(text) for text in (*texts, "best {task.fields[best]}", "{task.fields[left]}")]
        self.progress = Progress(columns[0], BarColumn(bar_width=20), *columns[1:], console=console)
        self.task: Any = None

    def report(self, prepared: Prepared, model: TextToText) -> None:
        if prepared.report is not None:
            for line in prepared.report.lines():
                self.console.print(line, highlight=False, soft_wrap=True, markup=False)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        self.console.print(
            f"{len(prepared.corpus):,} pairs to train on, {len(prepared.valid):,} to validate; "
            f"{prepared.source.words:,} source and {prepared.target.words:,} target tokens; {parameters:,} parameters",
            highlight=False,
        )

    def step(self, event: Event) -> None:
        progress = event.progress
        if self.task is None:
            self.task = self.progress.add_task("", total=1.0, loss=0.0, speed=0.0, best="–", left="")
        share = self._share(progress)
        left = progress.seconds * (1 - share) / share if share else 0
        self.progress.update(
            self.task,
            completed=share,
            description=f"epoch {progress.epoch + 1} step {progress.step:,}",
            loss=event.loss,
            speed=event.tokens_per_second,
            best="–" if progress.best is None else f"{progress.best:.2f}",
            left=f"{left / 60:.0f} min left" if share else "",
        )

    def _share(self, progress: TrainingProgress) -> float:
        training = self.config.training
        shares = [
            progress.step / training.steps if training.steps else 0.0,
            progress.seconds / (60 * training.minutes) if training.minutes else 0.0,
            progress.epoch / training.epochs if training.epochs else 0.0,
        ]
        return min(1.0, max(shares))

    def scores(self, progress: TrainingProgress, scores: dict[str, float]) -> None:
        values = "  ".join(f"{name} {value:.2f}" for name, value in scores.items())
        best = "  best so far" if progress.since_best == 0 else ""
        minutes = progress.seconds / 60
        self.console.print(
            f"epoch {progress.epoch:>3}  step {progress.step:>6,}  {minutes:5.1f} min  {values}{best}", highlight=False
        )
