"""What a training shows: a live line on the terminal, and TensorBoard."""

import time
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from sightline.errors import UserError
from sightline.training.checkpoint import Progress as TrainingProgress
from sightline.training.steps import Event

SECONDS_SILENT = 5.0


class Board:
    """Writes the values of the display for TensorBoard."""

    def __init__(self, run: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError("--tensorboard needs a package: pip install 'sightline[tensorboard]'") from None
        self.folder, self.open_writer = run / "tensorboard", SummaryWriter

    @cached_property
    def writer(self) -> Any:
        """Opened at the first step: a run that fails before leaves no folder."""
        return self.open_writer(str(self.folder))

    def step(self, event: Event) -> None:
        self.writer.add_scalar("train/loss", event.loss, event.progress.step)
        self.writer.add_scalar("train/tokens_per_second", event.tokens_per_second, event.progress.step)

    def scores(self, progress: TrainingProgress, scores: dict[str, float]) -> None:
        for name, value in scores.items():
            self.writer.add_scalar(f"valid/{name}", value, progress.step)
        self.writer.flush()


class Display:
    """A live line: step, loss, speed, time left, best score."""

    def __init__(self, console: Console, counted: str = "tokens", board: Board | None = None) -> None:
        self.console, self.board, self.last_remark = console, board, time.monotonic()
        texts = ("{task.description}", "loss {task.fields[loss]:.3f}", f"{{task.fields[speed]:,.0f}} {counted}/s")
        columns = [TextColumn(text) for text in (*texts, "{task.fields[best]}", "{task.fields[left]}")]
        self.progress = Progress(columns[0], BarColumn(bar_width=20), *columns[1:], console=console)
        self.task: Any = None

    def listeners(self) -> dict[str, Any]:
        """What `sightline.tasks.train.train_task` calls."""
        return {"on_report": self.report, "on_step": self.step, "on_scores": self.scores, "on_remark": self.remark}

    def report(self, prepared: Any, model: Any) -> None:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        for line in (*prepared.lines(), f"{prepared.summary()}; {parameters:,} parameters"):
            self.remark(line)

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        """Progress in preparing a large corpus."""
        if self.console.is_terminal and self._silent():
            self.remark(f"{stage}: {done:,}" + (f" of {total:,}" if total else "") + " rows")

    def items(self, done: int, total: int, per_second: float) -> None:
        """Progress in reading files: a line now and then, before the bar."""
        if done == total or self._silent():
            self.remark(f"{done:,} of {total:,} files read, {per_second:.0f} per second")

    def _silent(self) -> bool:
        return time.monotonic() - self.last_remark > SECONDS_SILENT

    def remark(self, text: str) -> None:
        self.last_remark = time.monotonic()
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def step(self, event: Event) -> None:
        if self.board is not None:
            self.board.step(event)
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
        self.remark(f"{place}  {progress.seconds / 60:5.1f} min  {values}{best}")
        if self.board is not None:
            self.board.scores(progress, scores)
        if self.task is not None:
            self.progress.update(self.task, best=_best(progress))


def _best(progress: TrainingProgress) -> str:
    """The best score so far; empty before the first validation."""
    return "" if progress.best is None else f"best {progress.best:.2f}"
