"""The commands that use what was trained: predict, evaluate, compare, bench."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from sightline.cli.choices import BleuTokeniser, ImageMetric, LabelMetric, Metric, WordMetric
from sightline.tasks.table import IMAGES, task_of

if TYPE_CHECKING:
    from sightline.tasks.searching import SearchConfig

# Why an option means nothing for a run.
WRITERS = "does not write texts, and {} is for runs that do"
OF_TEXTS = "reads images, and {} is for runs that read texts"
LENGTHS = "reads images, and {} is about the length of source texts"
THRESHOLD = "has no threshold, and {} is for runs of classify and grid"
READING = ("pretrain", "tag", "span")  # tasks that `sightline.commands.reading` is for


def predict(
    run: tyro.conf.Positional[Path],
    input: str | None = None,  # noqa: A002 - the name of the option
    text: tuple[str, ...] = (),
    image: tuple[Path, ...] = (),
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
    threshold: float | None = None,
    engine: Literal["sightline", "ctranslate2", "onnx"] = "sightline",
    threads: int | None = None,
) -> None:
    """One prediction for each line of the input, in its order; an empty line gives an empty line.

    Args:
        run: The run folder.
        input: A text file, one input a line; - or nothing for a pipe. Two texts to classify together stand on one line,
            with a tab between them; the lines of a .jsonl file have a text, and text2. Of a run of tag: words with
            blanks between them (or words in a .jsonl file, or a word a line in a .conll file); of span: a question, a
            tab and a text (or question and text); of pretrain: texts with <mask> in them.
        text: Texts given here instead.
        image: Images, or folders of them, for a run that reads images; --input may be a table or a folder of them too.
        out: A file to write to instead of standard output; it is there when it is whole. Of a run of grid: a folder for
            masks, pictures and JSON.
        format: text, or jsonl with scores; to classify, with the probabilities of all labels. Text of tags is a word, a
            tab and its label a line.
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
        threshold: Of a run with several labels a text: how likely a label must be to be given; left out, as
            likely as was best on validation data.
        engine: What runs the model: ours, CTranslate2 (the fastest for Transformers) or onnxruntime. A run is converted
            on the spot; a folder that export wrote needs no run.
        threads: Processor threads; left out, PyTorch decides.
    """
    from sightline.commands.prediction import Lines, Wanted, predict_command
    from sightline.errors import UserError
    from sightline.tasks.searching import SearchConfig

    search = SearchConfig(
        beam, length_penalty, best, min_length, max_length, no_repeat, sample, temperature, top, mass, seed
    )
    task = task_of(run)
    if task in IMAGES:
        _refuse(run, {"--text": text}, OF_TEXTS, "name images with --image")
        _refuse(run, {"--engine": engine != "sightline", "--ensemble": ensemble, "--split": split}, OF_TEXTS)
        _predict_images(run, task, image, input, out, format == "jsonl", threshold, threads, search, prefix)
        return
    if task != "translate":
        _refuse(run, {"--engine": engine != "sightline"})
    if image:
        from sightline.training.folder import RunFolder

        RunFolder.open(run).read_config()  # says what is wrong with a folder that is no run
        raise UserError(f"{run} reads texts, and --image is for runs that read images; leave it out")
    if task == "classify":
        from sightline.commands.classifying import predict_command as classify_command

        written = {"--ensemble": ensemble, "--split": split, "--prefix": prefix, "--sample": sample, "--best": best > 1}
        _refuse(run, written)
        classify_command(run, input, text, out, format == "jsonl", batch_tokens, threshold, threads)
        return
    if task in READING:
        from sightline.commands.reading import predict_command as reading_command

        _refuse(run, {"--ensemble": ensemble, "--split": split, "--prefix": prefix, "--sample": sample})
        _refuse(run, {"--threshold": threshold is not None}, THRESHOLD)
        reading_command(run, input, text, out, format == "jsonl", batch_tokens, best, threads)
        return
    wanted = Wanted(search, prefix, split, keep_unknown, batch_tokens, as_json=format == "jsonl")
    predict_command(run, ensemble, Lines(input, text), wanted, out, threads, engine)


def _predict_images(
    run: Path,
    task: str,
    images: tuple[Path, ...],
    path: str | None,
    out: Path | None,
    as_json: bool,
    threshold: float | None,
    threads: int | None,
    search: "SearchConfig",
    prefix: str,
) -> None:
    if task == "caption":
        from sightline.commands.captioning import predict_command as caption_command

        _refuse(run, {"--threshold": threshold is not None}, THRESHOLD)
        caption_command(run, images, path, out, as_json, search, threads, prefix=prefix)
        return
    _refuse(run, {"--prefix": prefix, "--sample": search.sample, "--best": search.best > 1})
    if task == "grid":
        from sightline.commands.gridding import predict_command as grid_command

        grid_command(run, images, path, out, as_json, threshold, threads)
        return
    from sightline.commands.image_classifying import predict_command as label_command

    label_command(run, images, path, out, as_json, threshold, threads)


def evaluate(
    run: tyro.conf.Positional[Path],
    data: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, ...] | None = None,
    beam: int = 5,
    length_penalty: float = 1.0,
    bleu_tokenise: BleuTokeniser = "auto",
    by_length: tyro.conf.FlagCreatePairsOff[bool] = False,
    errors: Annotated[int, tyro.conf.arg(metavar="N")] = 0,
    out: Path | None = None,
    json: bool = False,
    threads: int | None = None,
) -> None:
    """Score a run: BLEU with its signature, chrF, exact match, tokenised BLEU, ROUGE, perplexity.

    A run that classifies: accuracy, macro-F1, a table of the labels, the confusion matrix, calibration, and the same of
    the linear models beside it; with and without the rows that stand in the training data. One of tag: F1 of spans or
    of labels, accuracy of words; of span: F1 and exact match; of pretrain: hidden words guessed, and perplexity. Of
    caption: BLEU-1 to 4, CIDEr, ROUGE-L, chrF against all captions of an image; of grid: precision, recall, F1 and
    average precision of cells, F1 of pixels within 0, 2 and 5 pixels.

    Args:
        run: The run folder.
        data: Pairs, in the same forms as for training.
        source: Instead of --data: the sources, one a line.
        target: Instead of --data: the targets, one a line.
        columns: The names of the two columns, where they are not source and target; to classify: TEXT LABEL, or TEXT
            TEXT2 LABEL.
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

    task = task_of(run)
    if task in IMAGES:
        _refuse(run, {"--source": source, "--target": target}, OF_TEXTS, "give the images with --data")
        _refuse(run, {"--by-length": by_length}, LENGTHS)
        _evaluate_images(run, task, data, columns, beam, length_penalty, json, threads, errors, out)
        return
    if task == "classify":
        from sightline.commands.classifying import evaluate_command as classify_command

        _refuse(run, {"--source": source, "--target": target, "--by-length": by_length})
        classify_command(run, data, columns, json, threads, errors=errors, out=out)
        return
    if task in READING:
        from sightline.commands.reading import evaluate_command as reading_command

        _refuse(run, {"--source": source, "--target": target, "--by-length": by_length})
        reading_command(run, data, columns, json, threads, errors=errors, out=out)
        return
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


def _evaluate_images(
    run: Path,
    task: str,
    data: str | None,
    columns: tuple[str, ...] | None,
    beam: int,
    length_penalty: float,
    as_json: bool,
    threads: int | None,
    errors: int,
    out: Path | None,
) -> None:
    if task == "caption":
        from sightline.commands.captioning import evaluate_command as caption_command

        caption_command(run, data, columns, beam, length_penalty, as_json, threads, errors=errors, out=out)
    elif task == "grid":
        from sightline.commands.gridding import evaluate_command as grid_command

        grid_command(run, data, columns, as_json, threads, errors=errors, out=out)
    else:
        from sightline.commands.image_classifying import evaluate_command as label_command

        label_command(run, data, columns, as_json, threads, errors=errors, out=out)


def compare(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN RUN ...")],
    data: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, ...] | None = None,
    metrics: tuple[Metric | LabelMetric | WordMetric | ImageMetric, ...] | None = None,
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
        columns: The names of the two columns, where they are not source and target; to classify: TEXT LABEL, or TEXT
            TEXT2 LABEL.
        metrics: What to compare; the first is also shown by the length of the source. Left out: bleu and chrf, of runs
            that classify accuracy and macro_f1, of those that give numbers pearson and spearman.
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
    from sightline.commands.comparing import check_metrics, compare_command

    task = task_of(runs[0]) if runs else ""
    if task in IMAGES:
        _refuse(runs[0], {"--source": source, "--target": target}, OF_TEXTS, "give the images with --data")
        if task == "caption":
            from sightline.commands.captioning import compare_command as caption_command

            caption_command(runs, data, columns, metrics, samples, seed, beam, length_penalty, out, json, threads)
            return
        from sightline.commands import gridding, image_classifying

        command = gridding.compare_command if task == "grid" else image_classifying.compare_command
        command(runs, data, columns, metrics, samples, seed, out, json, threads)
        return
    if task == "classify":
        from sightline.commands.classifying import compare_command as classify_command

        _refuse(runs[0], {"--source": source, "--target": target})
        classify_command(runs, data, columns, metrics, samples, seed, out, json, threads)
        return
    if task in READING:
        from sightline.errors import UserError

        raise UserError(
            f"{runs[0]} is a run of {task}, and compare is for texts, labels, captions and grids; evaluate each"
        )
    compare_command(
        runs,
        pair_files(data, source, target, columns),
        check_metrics(metrics),
        samples,
        seed,
        beam,
        length_penalty,
        None if bleu_tokenise == "auto" else bleu_tokenise,
        out,
        json,
        threads,
    )


def _refuse(run: Path, options: dict[str, object], why: str = WRITERS, advice: str = "leave it out") -> None:
    """Options that mean nothing for a run are refused, not passed over; ``why`` says what the run is, and they are."""
    from sightline.errors import UserError

    for name, value in options.items():
        if value:
            raise UserError(f"{run} {why.format(name)}; {advice}")


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
