"""Train, predict, evaluate, compare and view, for runs that classify images."""

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from sightline.commands.captioning import image_paths, say_bad
from sightline.commands.classifying import print_comparison, print_confusion, print_labels, shown_label
from sightline.commands.common import say_unfinished, set_up, writing
from sightline.commands.comparing import check_runs
from sightline.commands.evaluation import check_ending, console, plain_table, predicting
from sightline.data.labelled import LabelKind
from sightline.errors import UserError
from sightline.explanation import Explanation
from sightline.files import whole_file
from sightline.machine import check_seed
from sightline.tasks.classifier import LabelPrediction
from sightline.tasks.classify_scores import LabelMetric
from sightline.tasks.explaining import Wanted
from sightline.tasks.image_classifier import AT_ONCE, ImageClassifier, load_image_classifier
from sightline.tasks.image_data import ImageLabelFile, ImageLabelReport
from sightline.tasks.image_presets import MODELS
from sightline.tasks.image_scores import ImageEvaluation, compare_images, evaluate_images, image_file

FORMS = "a table with the columns image and label, or a folder with a folder of images for each label"
MOST_SHOWN = 12  # labels in a confusion matrix on a terminal


def check_train_options(others: Mapping[str, object], metric: str | None, model: str | None) -> None:
    """Options of another task are refused, not passed over."""
    for name, value in others.items():
        if value:
            raise UserError(f"{name} is not an option of classifying images; leave it out")
    if metric is not None and metric not in get_args(LabelMetric):
        raise UserError(f"--metric {metric} is not one of labels; it is one of {', '.join(get_args(LabelMetric))}")
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
    if data is None:
        raise UserError(f"give --data: {FORMS}")
    kind: LabelKind = labels or ("several" if separator is not None else "one")
    options = () if kind == "one" and labels is None else (f"labels={kind}",)
    files = ImageLabelFile(data, columns, kind, separator, features)
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
    if not paths:
        raise UserError("there is no image to classify: name images or folders with --image, or a list with --input")
    classifier = load_run(run)
    bad: dict[str, str] = {}
    with writing(out) as stream, predicting(len(paths)) as advance:
        for start in range(0, len(paths), AT_ONCE):
            part = paths[start : start + AT_ONCE]
            for line in _lines(classifier, part, as_json, threshold, bad):
                print(line, file=stream)
            stream.flush()
            advance(len(part))
    say_bad(bad)
    if len(bad) == len(paths):
        raise UserError("none of the images could be read")


def _lines(
    classifier: ImageClassifier, paths: Sequence[Path], as_json: bool, threshold: float | None, bad: dict[str, str]
) -> Iterator[str]:
    scores, problems = classifier.try_scores(paths)
    for number, (path, found) in enumerate(zip(paths, classifier.read_scores(scores, threshold), strict=True)):
        if number in problems:
            bad[str(path)] = problems[number]
            problem = {"image": str(path), "problem": problems[number]}
            yield json.dumps(problem, ensure_ascii=False) if as_json else f"{_one_line(path)}\t"
        elif as_json:
            yield json.dumps(_fields(path, found), ensure_ascii=False)
        else:
            yield f"{_one_line(path)}\t{_written(found, classifier)}"


def _fields(path: Path, found: LabelPrediction) -> dict[str, Any]:
    data: dict[str, Any] = {"image": str(path), "label": found.label}
    if found.probabilities is not None:
        data |= {"probability": found.probability, "probabilities": found.probabilities}
    return data


def _written(found: LabelPrediction, classifier: ImageClassifier) -> str:
    if isinstance(found.label, tuple):
        return (classifier.labels.separator or "|").join(found.label)
    return f"{found.label:.6g}" if isinstance(found.label, float) else found.label


def _one_line(path: Path) -> str:
    """A path that keeps to its line, whatever its name."""
    return str(path).replace("\t", " ").replace("\n", " ").replace("\r", " ")


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
    if data is None:
        raise UserError(f"give --data: {FORMS}")
    if errors < 0:
        raise UserError(f"--errors is {errors}; it must be at least 0")
    if out is not None:
        check_ending(out, (".jsonl",))
    classifier = load_run(run)
    found = evaluate_images(classifier, image_file(classifier, data, columns), on_report=_say_left_out)
    if out is not None:
        with whole_file(out) as part, part.open("w", encoding="utf-8") as file:
            for row in found.rows():
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
    if as_json:
        print(json.dumps(found.to_json(errors), indent=2, ensure_ascii=False))
        return
    _print_evaluation(found)
    for number, error in enumerate(found.worst(errors), start=1):
        sure = f", {error['probability']:.1%} sure" if "probability" in error else ""
        print(f"\n{number}. {shown_label(error['prediction'])}{sure}; right is {shown_label(error['label'])}")
        print(f"   image  {error['image']}")


def _say_left_out(report: ImageLabelReport) -> None:
    for line in report.left_out_lines():
        print(f"sightline: {line}", file=sys.stderr)


def _print_evaluation(found: ImageEvaluation) -> None:
    total = len(found.examples)
    seen = 0 if found.seen is None else int(found.seen.sum())
    table = plain_table("", *(name.replace("_", " ") for name in found.values), "images")
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
    if found.calibration is not None:
        one = found.calibration
        print(
            f"calibration error {one.ece_before:.2f} % before the temperature ({one.temperature:.3f}), {one.ece:.2f} % "
            f"after; Brier score {one.brier:.4f}"
        )
    if found.table:
        print_labels(found)
    if found.confusion is not None and len(found.truth.names) <= MOST_SHOWN:
        print_confusion(found)
    print(f"{total:,} images, {total / max(found.seconds, 1e-9):.1f} a second")


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
    if data is None:
        raise UserError(f"give --data: {FORMS}")
    if out is not None:
        raise UserError("--out draws scores by the length of the source; images have none")
    classifiers = {str(run): load_run(run) for run in runs}
    first = next(iter(classifiers.values()))
    found = compare_images(classifiers, image_file(first, data, columns), metrics=metrics, samples=samples, seed=seed)
    if as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
        return
    print_comparison(found)


def image_classifying_eye(run: Path, wanted: Wanted) -> Callable[[Any], Explanation]:
    """What explains an image, for `sightline view`."""
    classifier = load_run(run)

    def look(image: Any) -> Explanation:
        if not isinstance(image, str | Path):
            raise UserError(f"{run} reads images; name one with --image")
        return classifier.explain(Path(image), wanted.output, top=wanted.top, measure=wanted.measure)

    return look
