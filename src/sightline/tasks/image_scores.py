"""How good models from images to labels are: the scores of texts, on images."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from sightline.data.checking import Limits
from sightline.data.labelled import Example
from sightline.errors import UserError
from sightline.tasks.classify_scores import LabelComparison, LabelEvaluation, compare, evaluate, values_of
from sightline.tasks.image_classifier import Held, ImageClassifier
from sightline.tasks.image_data import (
    ImageLabelFile,
    ImageLabelReport,
    LabelledImage,
    check_rows,
    read_rows,
    with_separator,
)

LIMITS = Limits(max_bad_share=0.5)  # a score is of all images; only what no model could read is left out


class ImageEvaluation(LabelEvaluation):
    """Predictions for images, and every score of them."""

    def _row(self, row: int) -> dict[str, Any]:
        found = super()._row(row)
        return {"image": found.pop("text"), **found}

    def to_json(self, errors: int = 0) -> dict[str, Any]:
        found = super().to_json(errors)
        found.pop("cut")
        if "without_training_texts" in found:
            found["without_training_images"] = found.pop("without_training_texts")
        return {"images": found.pop("texts"), **found}


def image_file(classifier: ImageClassifier, data: str, columns: tuple[str, ...] | None = None) -> ImageLabelFile:
    """A file whose labels are written as those of the training data."""
    labels = classifier.labels
    given = columns or (labels.columns if data != "-" else None)
    return ImageLabelFile(data, given, labels.kind, labels.separator)


def scored_images(
    classifier: ImageClassifier,
    files: ImageLabelFile,
    limits: Limits = LIMITS,
    on_predicted: Callable[[int], None] = lambda count: None,
    on_rows: Callable[[int], None] = lambda count: None,
) -> tuple[list[LabelledImage], Held, ImageLabelReport]:
    """The good images of a file and their logits; ``on_rows`` hears how many images there are before they are read."""
    rows = read_rows(files)
    files = with_separator(files, rows)
    every = {key: row.image for row, key in rows if row.problem is None}
    on_rows(len(every))
    logits, bad = classifier.try_scores(list(every.values()), on_predicted=on_predicted)
    keys = list(every)
    found, report = check_rows(rows, {keys[number]: reason for number, reason in bad.items()}, files, limits)
    held = {str(image): logits[number] for number, image in enumerate(every.values())}
    return [one._replace(image=every[one.key]) for one in found], Held(classifier, held), report


def evaluate_images(
    classifier: ImageClassifier,
    files: ImageLabelFile,
    *,
    limits: Limits = LIMITS,
    on_predicted: Callable[[int], None] = lambda count: None,
    on_rows: Callable[[int], None] = lambda count: None,
    on_report: Callable[[ImageLabelReport], None] = lambda report: None,
) -> ImageEvaluation:
    """Every score of a model on images; with and without those that it was trained on."""
    started = time.perf_counter()
    images, held, report = scored_images(classifier, files, limits, on_predicted, on_rows)
    seconds = time.perf_counter() - started
    on_report(report)
    examples = [Example(str(one.image), None, one.label) for one in images]
    found = evaluate(held, examples, floors=False)
    seen = classifier.seen(one.key for one in images)
    if seen is not None:
        others = None if not seen.any() or seen.all() else values_of(found.said, found.truth, ~seen)
        found = replace(found, seen=seen, without=others)
    values = {field.name: getattr(found, field.name) for field in fields(found)}
    return ImageEvaluation(**{**values, "seconds": seconds})


def compare_images(
    classifiers: Mapping[str, ImageClassifier],
    files: ImageLabelFile,
    *,
    metrics: Sequence[str] | None = None,
    samples: int = 1000,
    seed: int = 0,
    on_predicted: Callable[[int], None] = lambda count: None,
) -> LabelComparison:
    """Several models on the same images: paired bootstrap of each metric."""
    held: dict[str, Held] = {}
    examples: list[Example] = []
    for name, one in classifiers.items():
        if one.labels.kind != files.labels:
            raise UserError(f"{name} gives labels of the kind {one.labels.kind!r}, others {files.labels!r}")
        images, held[name], _ = scored_images(one, files, LIMITS, on_predicted)
        examples = [Example(str(image.image), None, image.label) for image in images]
    return compare(held, examples, metrics=metrics, samples=samples, seed=seed)


def held_out(
    classifier: ImageClassifier, images: Sequence[LabelledImage], logits: np.ndarray
) -> tuple[Held, list[Example]]:
    """Images whose logits are known, as `classify_scores.fit` takes them; two rows may be of one image."""
    names = [str(number) for number in range(len(images))]
    examples = [Example(name, None, one.label) for name, one in zip(names, images, strict=True)]
    return Held(classifier, dict(zip(names, logits, strict=True))), examples
