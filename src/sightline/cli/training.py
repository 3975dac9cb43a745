"""The commands that train: demo, train, resume."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from sightline.cli.choices import Device, Metric


def demo(
    out: Path = Path("runs/demo"),
    pairs: int = 60_000,
    steps: int = 350,
    minutes: float = 6.0,
    seed: int = 0,
    threads: int | None = None,
) -> None:
    """Train a model that reads dates in 27 languages, score it on unseen days and draw what it looks at.

    Dates as people write them (27 sierpnia 2024, 2028年12月31日, 9 августа 1969) become ISO 8601. The data is made
    here, split by calendar day, and one language is kept out of training. What comes out is an ordinary run folder:
    try `sightline predict runs/demo --text "3. Mai 2021"` afterwards.

    Args:
        out: The run folder; an earlier demo there is made anew.
        pairs: How many dates to train on.
        steps: Training steps.
        minutes: Training stops after this long, even with fewer steps.
        seed: The same seed gives the same data and, with as many threads, the same model.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.demo import run_demo

    run_demo(out, pairs, steps, minutes, seed, threads)


def train(
    task: tyro.conf.Positional[Literal["translate", "summarise"]],
    out: Path,
    data: str | None = None,
    valid: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, str] | None = None,
    model: Literal["transformer", "rnnsearch", "luong", "seq2seq"] | None = None,
    preset: Literal["tiny", "small", "base"] | None = None,
    start: Annotated[Path | None, tyro.conf.arg(name="from")] = None,
    metric: Metric | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    minutes: float | None = None,
    dry_run: tyro.conf.FlagCreatePairsOff[bool] = False,
    seed: int | None = None,
    device: Device = "auto",
    threads: int | None = None,
    max_characters: int | None = None,
    max_bad_share: float | None = None,
    tensorboard: tyro.conf.FlagCreatePairsOff[bool] = False,
    config: Path | None = None,
    set: tuple[str, ...] = (),  # noqa: A002 - the name of the option
) -> None:
    """Train a model on a file of pairs. Ctrl-C saves; `sightline resume RUN` goes on.

    Args:
        task: translate: any text to any other text (languages, spellings, dates). summarise: the same, and ROUGE-L
            decides which checkpoint is best.
        out: The run folder to make.
        data: Pairs as .tsv, .csv, .jsonl or .parquet, gzip or not, with the columns source and target; - for a pipe.
        valid: Pairs to validate on, in the same form. Left out, a part of the data is kept apart.
        source: Instead of --data: the sources, one a line.
        target: Instead of --data: the targets, one a line.
        columns: The names of the two columns, where they are not source and target.
        model: transformer (the default), rnnsearch (Bahdanau), luong, or seq2seq (one context vector: the baseline).
        preset: The size: tiny (the default) for a laptop and some ten thousand pairs, small, or base as in papers.
        start: A run to go on from with new data: its model, weights and vocabulary are kept.
        metric: What decides which checkpoint is best; bleu unless given.
        epochs: How often to go through the data. Without any limit: 30, and more where the data is small.
        steps: How many updates.
        minutes: How long.
        dry_run: Prepare the data, train a few batches, say how long, how much memory and disk; keep nothing.
        seed: The same seed, data and threads give the same model; 0 unless given.
        device: auto takes a graphics card where there is one.
        threads: Processor threads; left out, PyTorch decides.
        max_characters: A side longer than this makes a row unusable; 1,000 unless given, and 10,000 for summaries.
        max_bad_share: The share of rows that may be unusable before training refuses to start.
        tensorboard: Write RUN/tensorboard too.
        config: A file of the configuration's fields, such as the config.json of another run.
        set: Any field of the configuration: --set model.size=256 training.learning_rate=0.001 tokeniser.words=4000
    """
    from sightline.commands.common import pair_files
    from sightline.commands.training import Wanted, train_command

    files = pair_files(data, source, target, columns)
    valid_files = None if valid is None else pair_files(valid, None, None, columns)
    given = {"epochs": epochs, "steps": steps, "minutes": minutes}
    limits = {name: value for name, value in given.items() if value is not None}
    wanted = Wanted(task, model, preset, config, start, metric, limits, seed, set)
    train_command(
        files,
        valid_files,
        out,
        wanted,
        device=device,
        threads=threads,
        max_characters=max_characters,
        max_bad_share=max_bad_share,
        dry_run=dry_run,
        tensorboard=tensorboard,
    )


def resume(
    run: tyro.conf.Positional[Path],
    device: Device = "auto",
    threads: int | None = None,
    tensorboard: tyro.conf.FlagCreatePairsOff[bool] = False,
    set: tuple[str, ...] = (),  # noqa: A002 - the name of the option
) -> None:
    """Go on with a run from its last checkpoint.

    Args:
        run: The run folder.
        device: auto takes a graphics card where there is one.
        threads: Processor threads; left out, PyTorch decides.
        tensorboard: Write RUN/tensorboard too.
        set: Fields of the training to change: --set epochs=60
    """
    from sightline.commands.training import resume_command

    resume_command(run, threads, set, device, tensorboard)
