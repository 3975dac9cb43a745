"""What the commands on trained models do. The command line names them; this module may import torch."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from sightline.config import ConfigError, override
from sightline.data.checking import Limits
from sightline.data.reading import PairFiles
from sightline.errors import UserError
from sightline.machine import check_seed, set_threads
from sightline.models.text_to_text import TextToText, TextToTextConfig
from sightline.tasks.translate import METRICS_BY_NAME, Prepared, TranslateConfig, checked, train_translate
from sightline.tasks.translator import Translator, load_translator
from sightline.training.allocator import keep_memory
from sightline.training.checkpoint import Progress as TrainingProgress
from sightline.training.folder import CHECKSUMS, RunFolder
from sightline.training.loop import Event, TrainingConfig


def pair_files(data: str | None, source: str | None, target: str | None, columns: tuple[str, str] | None) -> PairFiles:
    """The files of pairs that the options name."""
    if (data is None) == (source is None and target is None):
        raise UserError("give either --data FILE, or --source FILE and --target FILE")
    options: dict[str, Any] = {} if columns is None else {"columns": columns}
    if data is not None:
        return PairFiles(data=data, **options)
    if source is None or target is None:
        raise UserError("--source and --target go together: one sentence a line, as many lines in both")
    return PairFiles(source=source, target=target)


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
    _set_up(threads)
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
    _set_up(threads)
    try:
        config = TranslateConfig.from_json(RunFolder.open(run).read_config()["config"])
        config = override(config, [f"training.{assignment}" for assignment in assignments])
    except (ConfigError, KeyError) as error:
        raise UserError(f"{run}: {error}") from None
    _train(None, run, config)


def _set_up(threads: int | None) -> None:
    keep_memory()
    set_threads(threads)


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


def predict_command(
    run: Path,
    input: str | None,  # noqa: A002 - the name of the option
    texts: Sequence[str],
    beam: int,
    length_penalty: float,
    output: str,
    threads: int | None,
) -> None:
    """One prediction a line, in the order of the input; an empty line gives an empty line."""
    _set_up(threads)
    if beam < 1:
        raise UserError(f"--beam is {beam}; it must be at least 1")
    if input is not None and texts:
        raise UserError("give --input or --text, not both")
    translator = _load(run)
    lines = iter(texts) if texts else _lines(input or "-")
    waiting: list[str] = []
    for line in lines:
        waiting.append(line)
        if len(waiting) == 512:  # enough to sort by length, few enough to stream
            _write_predictions(translator, waiting, beam, length_penalty, output)
            waiting = []
    if waiting:
        _write_predictions(translator, waiting, beam, length_penalty, output)


def _write_predictions(translator: Translator, texts: list[str], beam: int, penalty: float, output: str) -> None:
    for text, found in zip(texts, translator.predict(texts, beam=beam, length_penalty=penalty), strict=True):
        if output == "jsonl":
            data = {"source": text, "prediction": found.text, "log_prob": found.log_prob, "score": found.score}
            print(json.dumps(data, ensure_ascii=False))
        else:
            print(found.text.replace("\n", " "))
    sys.stdout.flush()


def _lines(path: str) -> Iterator[str]:
    name = "standard input" if path == "-" else path
    if path != "-" and not Path(path).is_file():
        raise UserError(f"there is no file {path}")
    with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield line.decode("utf-8").rstrip("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise UserError(
                    f"{name}, line {number}: byte {error.start} is 0x{byte:02x}, which is not UTF-8"
                ) from None


def evaluate_command(
    run: Path, files: PairFiles, beam: int, length_penalty: float, as_json: bool, threads: int | None
) -> None:
    """Every metric on the pairs, with how it was computed."""
    _set_up(threads)
    translator = _load(run)
    pairs = list(checked(files, Limits())[0]())
    started = time.perf_counter()
    sources, references = [a for a, _ in pairs], [b for _, b in pairs]
    found = [one.text for one in translator.predict(sources, beam=beam, length_penalty=length_penalty)]
    seconds = time.perf_counter() - started
    scores = {name: metric(found, references) for name, metric in METRICS_BY_NAME.items()}
    perplexity = translator.perplexity(pairs)
    if as_json:
        values = {name: {"value": score.value, "signature": score.signature} for name, score in scores.items()}
        print(json.dumps({"pairs": len(pairs), "perplexity": perplexity, **values}, indent=2))
        return
    table = Table("metric", "score", "how", box=None, padding=(0, 2, 0, 0))
    for name, score in scores.items():
        table.add_row(name.replace("_", " "), f"{score.value:.2f}", score.signature)
    table.add_row("perplexity", f"{perplexity:.3f}", "per target token")
    Console().print(table)
    print(f"{len(pairs):,} pairs, {len(pairs) / seconds:.1f} a second")


def _load(run: Path) -> Translator:
    translator, _ = load_translator(run)
    if not (run / CHECKSUMS).exists():
        print(f"sightline: the training of {run} has not ended; these are its best weights so far", file=sys.stderr)
    return translator
