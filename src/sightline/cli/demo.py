"""`sightline demo`: dates as people write them in many languages, turned into ISO 8601 by a small RNNsearch model.

The data is generated with Babel and split by calendar day, so that no date of the test was seen in any language; one
language is kept out of training. The result is an ordinary run folder.
"""

import math
import shutil
import time
from pathlib import Path
from typing import cast

from rich.console import Console

from sightline.cli.display import Display
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.files import check_writable, write_text
from sightline.kernels.allocator import keep_memory
from sightline.machine import check_seed, set_threads
from sightline.metrics import exact_match
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.outputs.searched import Prediction
from sightline.synthetic.dates import held_out_language, split_dates
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.run import Run
from sightline.tasks.train import train_task
from sightline.tasks.translate import TRANSLATE
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.folder import CHECKSUMS, CONFIG, RunFolder
from sightline.training.loop import TrainingConfig

MARK = "demo.txt"  # a folder with this file is an earlier demo, and may be overwritten
FEWEST_PAIRS, MOST_PAIRS = 1000, 1_000_000
Pairs = list[tuple[str, str]]


def demo_config(steps: int, minutes: float, seed: int) -> TranslateConfig:
    """A character model that learns the task in about a minute on two cores."""
    return TranslateConfig(
        model=RNNSearchConfig(embedding_size=64, size=128, dropout=0.0),
        tokeniser=TokeniserConfig(method="characters", vocab_size=1000),
        training=TrainingConfig(learning_rate=4e-3, warmup=200, steps=steps, minutes=minutes),
        smoothing=0.0,
        metric="exact",
        seed=seed,
    )


def run_demo(out: Path, pairs: int, steps: int, minutes: float, seed: int, threads: int | None) -> float:
    """Train, score on unseen days and on an unseen language, show examples, draw one."""
    started = time.perf_counter()
    if steps < 1:
        raise UserError(f"--steps is {steps}; it must be at least 1")
    if not FEWEST_PAIRS <= pairs <= MOST_PAIRS:
        raise UserError(f"--pairs is {pairs}; it must be at least {FEWEST_PAIRS:,} and at most {MOST_PAIRS:,}")
    if not minutes > 0:
        raise UserError(f"--minutes is {minutes:g}; it must be above 0")
    keep_memory()
    set_threads(threads)
    check_seed(seed)
    _clear(out)
    check_writable(out)
    write_text(out / MARK, "Made by `sightline demo`, which overwrites this folder each time.\n")
    held_back = min(2000, pairs // 10)
    train, valid, test = split_dates(seed, train=pairs, valid=held_back, test=held_back)
    unseen = held_out_language(seed, count=held_back // 2)
    parts = {"train": train, "valid": valid, "test": test, "unseen_language": unseen}
    files = {name: _write_pairs(out / "dates" / f"{name}.tsv", pairs) for name, pairs in parts.items()}
    console = Console()
    config = demo_config(steps, minutes, seed)
    display = Display(console)
    with display.progress:
        run, outcome = train_task(
            TRANSLATE,
            Source.of(files["train"]),
            out,
            config,
            valid=Source.of(files["valid"]),
            on_step=display.step,
            on_scores=display.scores,
        )
    trained = outcome.progress.seconds
    score = _score(run, test)
    other = _score(run, unseen)
    folder = RunFolder(out)
    folder.add_metrics(step=outcome.progress.step, data="test", exact_match=score)
    folder.add_metrics(step=outcome.progress.step, data="unseen language", exact_match=other)
    folder.seal(list(folder.read_json(CHECKSUMS)))
    picture, page = draw(run, test, out)
    show(console, run, test)
    total = time.perf_counter() - started
    lines = [
        f"exact match {_one_decimal(score)} %  on {len(test):,} days never seen in training",
        f"            {_one_decimal(other)} %  on Portuguese, a language never seen in training",
        f"run         {out}",
        f"picture     {picture}",
        f"page        {page}  (open it in a browser: every attention map, step by step, and whether to believe it)",
        f"time        {total:.0f} s, of which training {trained:.0f} s",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True, markup=False)
    return score


def _one_decimal(score: float) -> str:
    """Rounded down: 99.95 is not 100."""
    return f"{math.floor(10 * score) / 10:.1f}"


def _clear(out: Path) -> None:
    """Remove an earlier demo; refuse anything else."""
    if (out / MARK).exists():
        shutil.rmtree(out)
    elif (out / CONFIG).exists():
        raise UserError(f"{out} holds a run that is not the demo's; choose another folder with --out")


def _write_pairs(path: Path, pairs: Pairs) -> Path:
    return write_text(path, "source\ttarget\n" + "".join(f"{source}\t{target}\n" for source, target in pairs))


def _score(run: Run, pairs: Pairs) -> float:
    written = run.predict([source for source, _ in pairs], beam=1, max_length=20)
    predictions = [one.text for one in cast("list[Prediction]", written)]
    return exact_match(predictions, [target for _, target in pairs]).value


def show(console: Console, run: Run, pairs: Pairs, count: int = 5) -> None:
    """Print a few dates with their predictions, and the targets of wrong ones."""
    chosen = [pair for pair in pairs if not pair[0][:4].isdigit()][:count]
    predictions = cast("list[Prediction]", run.predict([a for a, _ in chosen]))
    for (source, target), prediction in zip(chosen, predictions, strict=True):
        note = "" if prediction.text == target else f"  (should be {target})"
        console.print(f"  {source}  →  {prediction.text}{note}", highlight=False, markup=False)


def draw(run: Run, pairs: Pairs, out: Path) -> tuple[Path, Path]:
    """Save the explanation of one date: a picture, the page, and plain data."""
    source = next((a for a, _ in pairs if a.isascii() and len(a) > 20 and not a[:4].isdigit()), pairs[0][0])
    explanation = run.explain(source)
    explanation.save(out / "explanation.json")
    return explanation.save(out / "attention.png"), explanation.save(out / "page.html")
