"""The `sightline` command. Nothing here imports torch: `--help` must answer at once."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import tyro

from sightline import __version__
from sightline.errors import MachineError, SightlineError, UserError

DESCRIPTION = """Train attention models on your own data and see what they attend to.

Start with: sightline demo
"""

Metric = Literal["bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"]
BleuTokeniser = Literal["auto", "13a", "zh", "char", "intl", "none"]
Device = Literal["auto", "cpu", "cuda"]


def demo(
    out: Path = Path("runs/demo"),
    pairs: int = 60_000,
    steps: int = 350,
    minutes: float = 2.0,
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


def predict(
    run: tyro.conf.Positional[Path],
    input: str | None = None,  # noqa: A002 - the name of the option
    text: tuple[str, ...] = (),
    out: Path | None = None,
    format: Literal["text", "jsonl"] = "text",  # noqa: A002 - the name of the option
    ensemble: tuple[Path, ...] = (),
    split: tyro.conf.FlagCreatePairsOff[bool] = False,
    beam: int = 5,
    length_penalty: float = 1.0,
    best: int = 1,
    min_length: int = 0,
    max_length: int | None = None,
    no_repeat: int = 0,
    prefix: str = "",
    keep_unknown: tyro.conf.FlagCreatePairsOff[bool] = False,
    sample: tyro.conf.FlagCreatePairsOff[bool] = False,
    temperature: float = 1.0,
    top: int | None = None,
    mass: float = 1.0,
    seed: int = 0,
    batch_tokens: int = 4096,
    threads: int | None = None,
) -> None:
    """One prediction for each line of the input, in its order; an empty line gives an empty line.

    Args:
        run: The run folder.
        input: A text file, one input a line; - or nothing for a pipe.
        text: Texts given here instead.
        out: A file to write to instead of standard output; it is there when it is whole.
        format: text, or jsonl with scores.
        ensemble: More runs, with the same target vocabulary: at each step the mean of all probabilities counts.
        split: Cut each line into sentences, predict these and put them together again; for long texts.
        beam: How many hypotheses to keep; 1 is greedy.
        length_penalty: Scores are divided by length to this power; more favours longer outputs.
        best: How many outputs for each line, likeliest first; more than one with --format jsonl only.
        min_length: The fewest tokens of an output.
        max_length: The most tokens of an output; left out, three times the source and twenty.
        no_repeat: No run of this many tokens twice in an output; 0 allows all.
        prefix: What every output begins with, as tokens: end it where a word ends, without a space.
        keep_unknown: Leave <unk> where a vocabulary of words lacks a word, instead of copying from the source.
        sample: Draw outputs at random instead of searching for the likeliest.
        temperature: With --sample: below 1 likelier outputs, above 1 stranger ones.
        top: With --sample: draw from this many of the likeliest tokens.
        mass: With --sample: draw from the likeliest tokens that have this much probability together.
        seed: With --sample: the same seed and input give the same outputs.
        batch_tokens: How many tokens are in work at once; less takes less memory.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.commands.prediction import Lines, Wanted, predict_command
    from sightline.tasks.searching import SearchConfig

    search = SearchConfig(
        beam, length_penalty, best, min_length, max_length, no_repeat, sample, temperature, top, mass, seed
    )
    wanted = Wanted(search, prefix, split, keep_unknown, batch_tokens, as_json=format == "jsonl")
    predict_command(run, ensemble, Lines(input, text), wanted, out, threads)


def evaluate(
    run: tyro.conf.Positional[Path],
    data: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, str] | None = None,
    beam: int = 5,
    length_penalty: float = 1.0,
    bleu_tokenise: BleuTokeniser = "auto",
    by_length: tyro.conf.FlagCreatePairsOff[bool] = False,
    errors: Annotated[int, tyro.conf.arg(metavar="N")] = 0,
    out: Path | None = None,
    json: bool = False,
    threads: int | None = None,
) -> None:
    """Score a run on pairs: BLEU with its signature, chrF, exact match, tokenised BLEU, ROUGE, perplexity.

    Args:
        run: The run folder.
        data: Pairs, in the same forms as for training.
        source: Instead of --data: the sources, one a line.
        target: Instead of --data: the targets, one a line.
        columns: The names of the two columns, where they are not source and target.
        beam: How many hypotheses to keep; 1 is greedy.
        length_penalty: Scores are divided by length to this power.
        bleu_tokenise: sacreBLEU's tokeniser. auto: zh for Chinese, char for Japanese, Thai and their like, else 13a.
        by_length: Also a table of scores by the length of the source.
        errors: Also show this many of the worst predictions, by chrF.
        out: A .jsonl file for every prediction with its source, reference and scores.
        json: Print JSON instead of a table.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.commands.common import pair_files
    from sightline.commands.evaluation import evaluate_command

    evaluate_command(
        run,
        pair_files(data, source, target, columns),
        beam,
        length_penalty,
        json,
        threads,
        bleu_tokenise=None if bleu_tokenise == "auto" else bleu_tokenise,
        by_length=by_length,
        errors=errors,
        out=out,
    )


def compare(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN RUN ...")],
    data: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, str] | None = None,
    metrics: tuple[Metric, ...] = ("bleu", "chrf"),
    samples: int = 1000,
    seed: int = 0,
    beam: int = 5,
    length_penalty: float = 1.0,
    bleu_tokenise: BleuTokeniser = "auto",
    out: Path | None = None,
    json: bool = False,
    threads: int | None = None,
) -> None:
    """Score several runs on the same pairs, and say whether they differ by more than chance (paired bootstrap).

    Args:
        runs: Two or more run folders; each is compared with the first.
        data: Pairs, in the same forms as for training.
        source: Instead of --data: the sources, one a line.
        target: Instead of --data: the targets, one a line.
        columns: The names of the two columns, where they are not source and target.
        metrics: What to compare; the first is also shown by the length of the source.
        samples: How often the pairs are drawn anew.
        seed: The same seed draws the same pairs.
        beam: How many hypotheses to keep; 1 is greedy.
        length_penalty: Scores are divided by length to this power.
        bleu_tokenise: sacreBLEU's tokeniser. auto: zh for Chinese, char for Japanese, Thai and their like, else 13a.
        out: A .png, .svg or .pdf for a picture of the scores by length.
        json: Print JSON instead of tables.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.commands.common import pair_files
    from sightline.commands.comparing import compare_command

    compare_command(
        runs,
        pair_files(data, source, target, columns),
        metrics,
        samples,
        seed,
        beam,
        length_penalty,
        None if bleu_tokenise == "auto" else bleu_tokenise,
        out,
        json,
        threads,
    )


def mechanisms(json: bool = False) -> None:
    """List every score, normaliser and mechanism there is, built in and installed.

    Args:
        json: Print JSON instead of a table.
    """
    from sightline.catalogue import print_catalogue

    print_catalogue(json)


def check(
    mechanism: tyro.conf.Positional[str],
    normaliser: str | None = None,
    heads: Annotated[int, tyro.conf.arg(metavar="N")] = 1,
    seed: int = 0,
    output: Literal["table", "json"] = "table",
) -> None:
    """Hold a mechanism to the laws of the contract: padding, masks, caches, gradients, and so on.

    Args:
        mechanism: A mechanism or a score by name (see `sightline mechanisms`), or a .json file with its configuration.
        normaliser: What turns scores into weights; left out, the mechanism's own default.
        heads: With more than one, the mechanism is wrapped in multi-head attention.
        seed: The numbers it is tried on.
        output: A table for people or JSON for programs.
    """
    from sightline.catalogue import check_mechanism

    sys.exit(check_mechanism(mechanism, normaliser, heads, seed, output))


COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "compare": compare,
    "predict": predict,
    "mechanisms": mechanisms,
    "check": check,
}


def main() -> None:
    """Run the command; turn errors into one sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows no "…" still gets its help
            stream.reconfigure(errors="replace")
    if sys.argv[1:] in (["--version"], ["-V"]):
        print(f"sightline {__version__}")
        return
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS, prog="sightline", description=DESCRIPTION, sort_subcommands=False
        )
    except KeyboardInterrupt:
        print("sightline: stopped", file=sys.stderr)
        sys.exit(130)
    except SightlineError as error:
        print(f"sightline: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except FileNotFoundError as error:
        print(f"sightline: there is no {error.filename}", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"sightline: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(MachineError.exit_code)
