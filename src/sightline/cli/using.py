"""The commands that use what was trained: predict, evaluate, compare, bench."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from sightline.cli.choices import BleuTokeniser, Metric


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


def bench(
    run: tyro.conf.Positional[Path],
    seconds: float = 5.0,
    json: bool = False,
    threads: int | None = None,
) -> None:
    """How fast a run trains and predicts on this machine, how much memory it takes, and where its time goes.

    The run itself stays as it is. Leave the machine alone meanwhile: anything beside it makes the figures worse.

    Args:
        run: The run folder, with its data.
        seconds: About how long to measure each kind of work.
        json: Print JSON instead of tables.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.commands.benching import bench_command

    bench_command(run, seconds, json, threads)
