"""The commands that train: demo, train, resume."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from sightline.cli.choices import Device, ImageMetric, LabelMetric, Metric, TrainedModel, WordMetric


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
    task: tyro.conf.Positional[
        Literal["translate", "summarise", "classify", "tag", "span", "pretrain", "caption", "grid"]
    ],
    out: Path,
    data: str | None = None,
    valid: str | None = None,
    source: str | None = None,
    target: str | None = None,
    columns: tuple[str, ...] | None = None,
    labels: Literal["one", "several", "number"] | None = None,
    separator: str | None = None,
    model: TrainedModel | None = None,
    preset: Literal["tiny", "small", "base"] | None = None,
    start: Annotated[Path | None, tyro.conf.arg(name="from")] = None,
    metric: Metric | LabelMetric | WordMetric | ImageMetric | None = None,
    no_floors: tyro.conf.FlagCreatePairsOff[bool] = False,
    features: Path | None = None,
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
    """Train a model on pairs of texts, texts and labels, or images. Ctrl-C saves; `sightline resume RUN` goes on.

    Args:
        task: translate: any text to any other text (languages, spellings, dates). summarise: the same, and ROUGE-L
            decides which checkpoint is best. classify: a text, or two, or an image, to a label, several labels, or a
            number. tag: a label for each word. span: where in a text the answer to a question stands. pretrain: an
            encoder that learns from plain text, for the others to begin with (--from). caption: an image to a sentence.
            grid: a label for every cell of an image.
        out: The run folder to make.
        data: Pairs as .tsv, .csv, .jsonl or .parquet, gzip or not, with the columns source and target; - for a pipe.
            To classify, the columns are text and label, or text, text2 and label. For tag: a word, a tab and its label
            a line, an empty line behind a sentence, or the columns words and tags. For span: question, text, answer,
            and start where it is known. For pretrain: a .txt file, a text a line, or the column text. For caption: a
            table with the columns image and caption, or a folder of images with a .txt file beside each. For grid: the
            columns image and mask, or folders images and masks. To classify images: the columns image and label, or a
            folder with a folder for each label.
        valid: Data to validate on, in the same form. Left out, a part of the data is kept apart.
        source: Instead of --data: the sources, one a line.
        target: Instead of --data: the targets, one a line.
        columns: The names of the two columns, where they are not source and target; to classify: TEXT LABEL, or TEXT
            TEXT2 LABEL; for tag: WORDS TAGS; for span: QUESTION TEXT ANSWER (START); for pretrain: TEXT.
        labels: To classify: one label a text (the default), several (a list, or a cell with a separator), or a number.
        separator: What stands between several labels in a cell; left out, it is looked for.
        model: transformer (the default), rnnsearch (Bahdanau), luong, or seq2seq (one context vector: the baseline). To
            classify: attentive (the default), han (words, sentences, documents), or encoder (self-attention). For tag:
            attentive (the default) or encoder; for span: encoder (the default) or attentive; for pretrain: encoder. For
            caption: show_attend_tell (the default) or transformer; for grid: at_once (the default), sequential or
            single (each cell alone: the floor).
        preset: The size: tiny (the default) for a laptop and some ten thousand pairs, small, or base as in papers.
        start: A run to go on from with new data: its model, weights and vocabulary are kept. Also the run of a
            pre-training, whose encoder each of the tasks can begin with; and, but to translate, a Hugging Face folder
            (BERT, RoBERTa, DistilBERT, MiniLM).
        metric: What decides which checkpoint is best; bleu, macro_f1 or (for numbers) pearson unless given. Of
            tags span_f1 (accuracy where they mark no spans), of answers f1.
        no_floors: To classify: leave out the linear models on words and n-grams that the score is held against.
        features: For images: a folder that keeps what a frozen encoder makes of them, for other runs with the same.
        epochs: How often to go through the data. Without any limit: 30, and more where the data is small.
        steps: How many updates.
        minutes: How long.
        dry_run: Prepare the data, train a few batches, say how long, how much memory and disk; keep nothing.
        seed: The same seed, data and threads give the same model; 0 unless given.
        device: auto takes a graphics card where there is one.
        threads: Processor threads; left out, PyTorch decides.
        max_characters: A side longer than this makes a row unusable; 1,000 unless given, and 10,000 for summaries.
        max_bad_share: The share of rows that may be unusable before training refuses to start; 0.01 unless given, and
            0.05 for images.
        tensorboard: Write RUN/tensorboard too.
        config: A file of the configuration's fields, such as the config.json of another run.
        set: Any field of the configuration: --set model.size=256 training.learning_rate=0.001 tokeniser.words=4000
    """
    from sightline.commands.common import pair_files
    from sightline.commands.training import Wanted, train_command
    from sightline.data.image_tables import is_image_data

    files: object
    valid_files: object
    options: tuple[str, ...] = ()
    trained: str = task
    others: dict[str, object] = {"--source": source, "--target": target}
    labelling: dict[str, object] = {"--labels": labels, "--separator": separator, "--no-floors": no_floors}
    if task == "caption":
        from sightline.commands.captioning import check_train_options as check_caption
        from sightline.commands.captioning import training_files as caption_files

        check_caption(others | labelling, metric, model)
        files, valid_files = caption_files(data, valid, columns, features)
    elif task == "grid":
        from sightline.commands.gridding import check_train_options as check_grid
        from sightline.commands.gridding import training_files as grid_files

        check_grid(others | labelling | {"--features": features}, metric, model)
        files, valid_files = grid_files(data, valid, columns)
    elif task == "classify" and data is not None and is_image_data(data, columns):
        from sightline.commands.image_classifying import check_train_options as check_images
        from sightline.commands.image_classifying import training_files as labelled_images

        trained = "classify_images"
        check_images(others | {"--no-floors": no_floors}, metric, model)
        files, valid_files, options = labelled_images(data, valid, columns, labels, separator, features)
    elif task == "classify":
        from sightline.commands.classifying import check_train_options, training_files

        check_train_options(source, target, metric, model)
        _refuse_features(features)
        files, valid_files, options = training_files(data, valid, columns, labels, separator, no_floors)
    elif task in ("tag", "span", "pretrain"):
        from sightline.commands.reading import training_files as reading_files

        _refuse_features(features)
        files, valid_files = reading_files(task, data, valid, columns, others | labelling, metric, model)
    else:
        _check_pairs(labels, separator, no_floors, metric, model)
        _refuse_features(features)
        files = pair_files(data, source, target, columns)
        valid_files = None if valid is None else pair_files(valid, None, None, columns)
    given = {"epochs": epochs, "steps": steps, "minutes": minutes}
    limits = {name: value for name, value in given.items() if value is not None}
    wanted = Wanted(trained, model, preset, config, start, metric, limits, seed, set, options)
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


def _refuse_features(features: Path | None) -> None:
    from sightline.errors import UserError

    if features is not None:
        raise UserError("--features is for images; leave it out")


def _check_pairs(
    labels: str | None, separator: str | None, no_floors: bool, metric: str | None, model: str | None
) -> None:
    """Options of another task are refused, not passed over."""
    from typing import get_args

    from sightline.errors import UserError

    given = {"--labels": labels, "--separator": separator, "--no-floors": no_floors or None}
    for name, value in given.items():
        if value is not None:
            raise UserError(f"{name} is an option of classify; leave it out, or train classify")
    if metric in get_args(LabelMetric):
        raise UserError(f"--metric {metric} is one of classify; here it is one of {', '.join(get_args(Metric))}")
    if metric is not None and metric not in get_args(Metric):
        raise UserError(f"--metric {metric} is of another task; here it is one of {', '.join(get_args(Metric))}")
    if model in ("attentive", "han", "encoder"):
        raise UserError(f"--model {model} is one of classify; leave it out, or train classify")
    if model is not None and model not in ("transformer", "rnnsearch", "luong", "seq2seq"):
        raise UserError(f"--model {model} is of another task; here it is transformer, rnnsearch, luong or seq2seq")


def resume(
    run: tyro.conf.Positional[Path],
    verify: int | None = None,
    device: Device = "auto",
    threads: int | None = None,
    tensorboard: tyro.conf.FlagCreatePairsOff[bool] = False,
    set: tuple[str, ...] = (),  # noqa: A002 - the name of the option
) -> None:
    """Go on with a run from its last good checkpoint, at the place in the data where it stands.

    Args:
        run: The run folder.
        verify: Prove instead that going on changes nothing: train so many steps in a copy, killed a few times, and in
            another one without a break; every parameter must be equal. The run itself stays as it is.
        device: auto takes a graphics card where there is one.
        threads: Processor threads; left out, PyTorch decides.
        tensorboard: Write RUN/tensorboard too.
        set: Fields of the training to change, or the size of batches: --set epochs=60 batch_tokens=4096
    """
    from sightline.errors import UserError

    if verify is not None:
        from sightline.commands.verifying import verify_command

        if set or tensorboard:
            raise UserError("--verify changes nothing in the run; leave out --set and --tensorboard")
        verify_command(run, verify, threads, device)
        return
    from sightline.commands.training import resume_command

    resume_command(run, threads, set, device, tensorboard)
