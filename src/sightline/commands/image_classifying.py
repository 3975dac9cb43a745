"""Train, predict, evaluate, compare and view, for runs that classify images."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from sightline.commands.classifying import label_fields, print_comparison, print_details, print_wrong, written_label
from sightline.commands.common import say_unfinished, set_up
from sightline.commands.comparing import check_runs
from sightline.commands.evaluation import console, plain_table
from sightline.commands.images import (
    bad_line,
    check_image_options,
    check_images,
    image_eye,
    image_paths,
    one_line,
    write_lines,
)
from sightline.commands.scoring import (
    check_rows_wanted,
    given_data,
    print_json,
    refuse_picture,
    say_left_out,
    spaced,
    write_rows,
)
from sightline.data.labelled import LabelKind
from sightline.errors import UserError
from sightline.explanation import Explanation
from sightline.machine import check_seed
from sightline.tasks.classify_scores import LabelMetric
from sightline.tasks.explaining import Wanted
from sightline.tasks.image_classifier import ImageClassifier, load_image_classifier
from sightline.tasks.image_data import ImageLabelFile
from sightline.tasks.image_explaining import explain_image
from sightline.tasks.image_presets import MODELS
from sightline.tasks.image_scores import ImageEvaluation, compare_images, evaluate_images, image_file

DATA = "--data: a table with the columns image and label, or a folder with a folder of images for each label"


def check_train_options(others: Mapping[str, object], metric: str | None, model: str | None) -> None:
    """Options of another task are refused, not passed over."""
    check_image_options("classifying images", others, metric, get_args(LabelMetric), "labels")
    if model is not None and model not in MODELS:
        raise UserError(f"--model {model} does not classify images; choose {' or '.join(MODELS)}")


def training_files(
    data: str | None,
    valid: str | None,
    columns: tuple[str, ...] | None,
    labels: LabelKind | None,
    separator: str | None,
    features: Path | None = None,
) -> tuple[ImageLabelFile, ImageLabelFile | None, tuple[str, ...]]:
    """The files that the options name, and what they say of the configuration."""
    found = given_data(data, DATA)
    kind: LabelKind = labels or ("several" if separator is not None else "one")
    options = () if kind == "one" and labels is None else (f"labels={kind}",)
    files = ImageLabelFile(found, columns, kind, separator, features)
    return files, None if valid is None else ImageLabelFile(valid, columns, kind, separator), options


def load_run(run: Path) -> ImageClassifier:
    """A trained model, with a word on standard error when its training has not ended."""
    classifier, about = load_image_classifier(run)
    say_unfinished(run, about)
    return classifier


def predict_command(
    run: Path,
    images: Sequence[str | Path],
    path: str | None,
    out: Path | None,
    as_json: bool,
    threshold: float | None,
    threads: int | None,
) -> None:
    """A line for each image, in order: its path, a tab and its label; with JSON the probabilities of all labels.

    An image that cannot be read keeps its line, without a label, and is named on standard error.
    """
    set_up(threads)
    if out is not None and out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    if threshold is not None and not 0 <= threshold <= 1:
        raise UserError(f"--threshold is {threshold}; it is a probability, from 0 to 1")
    paths = image_paths(images, path)
    check_images(paths, "classify")
    classifier = load_run(run)

    def say(part: Sequence[Path], number: int, bad: dict[str, str]) -> Iterator[str]:
        return _lines(classifier, part, as_json, threshold, bad)

    write_lines(paths, out, say)


def _lines(
    classifier: ImageClassifier, paths: Sequence[Path], as_json: bool, threshold: float | None, bad: dict[str, str]
) -> Iterator[str]:
    scores, problems = classifier.try_scores(paths)
    for number, (path, found) in enumerate(zip(paths, classifier.read_scores(scores, threshold), strict=True)):
        if number in problems:
            bad[str(path)] = problems[number]
            yield bad_line(path, problems[number], as_json)
        elif as_json:
            yield json.dumps({"image": str(path), **label_fields(found)}, ensure_ascii=False)
        else:
            yield f"{one_line(path)}\t{written_label(found, classifier)}"


def evaluate_command(
    run: Path,
    data: str | None,
    columns: tuple[str, ...] | None,
    as_json: bool,
    threads: int | None,
    *,
    errors: int = 0,
    out: Path | None = None,
) -> None:
    """Every score on the images, label by label."""
    set_up(threads)
    given = given_data(data, DATA)
    check_rows_wanted(errors, out)
    classifier = load_run(run)
    found = evaluate_images(classifier, image_file(classifier, given, columns), on_report=say_left_out)
    write_rows(found.rows(), out)
    if as_json:
        print_json(found.to_json(errors))
        return
    _print_evaluation(found)
    print_wrong(found.worst(errors))


def _print_evaluation(found: ImageEvaluation) -> None:
    total = len(found.examples)
    seen = 0 if found.seen is None else int(found.seen.sum())
    table = plain_table("", *map(spaced, found.values), "images")
    table.add_row("this model", *(f"{value:.2f}" for value in found.values.values()), f"{total:,}")
    if found.without is not None:
        table.add_row(
            "without images of its own data", *(f"{one:.2f}" for one in found.without.values()), f"{total - seen:,}"
        )
    console().print(table)
    if seen:
        print(f"{seen:,} of {total:,} images stand in the run's own data: scores on them flatter")
    if found.unseen:
        labels = ", ".join(f"{name!r} ({count:,})" for name, count in itertools.islice(found.unseen.items(), 10))
        print(
            f"labels that training did not have, in {found.unseen_rows():,} of {total:,} rows, count as wrong: {labels}"
        )
    print_details(found, "images")


def compare_command(
    runs: Sequence[Path],
    data: str | None,
    columns: tuple[str, ...] | None,
    metrics: Sequence[str] | None,
    samples: int,
    seed: int,
    out: Path | None,
    as_json: bool,
    threads: int | None,
) -> None:
    """Score, interval, difference to the first run and its p-value."""
    set_up(threads)
    check_seed(seed)
    check_runs(runs, ("accuracy",) if metrics is None else metrics, samples)
    given = given_data(data, DATA)
    refuse_picture(out, "images have none")
    classifiers = {str(run): load_run(run) for run in runs}
    first = next(iter(classifiers.values()))
    found = compare_images(classifiers, image_file(first, given, columns), metrics=metrics, samples=samples, seed=seed)
    if as_json:
        print_json(found.to_json())
        return
    print_comparison(found)


def image_classifying_eye(run: Path, wanted: Wanted) -> Callable[[Any], Explanation]:
    """What explains an image, for `sightline view`."""
    classifier = load_run(run)
    return image_eye(run, lambda image: explain_image(classifier, image, wanted))
