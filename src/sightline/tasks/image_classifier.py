"""A trained model from images to labels: predict, score, explain, save and load."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sightline.config import Config
from sightline.data.images import LIMITS, ImageLimits
from sightline.errors import UserError
from sightline.evidence.subject import evaluating
from sightline.layers.image import ImageEncoder, ImageEncoderConfig
from sightline.models.image_to_labels import ImageLabelsShape, ImageToLabels
from sightline.models.image_to_text import Places
from sightline.tasks.classifier import THRESHOLD, Classifier, LabelPrediction
from sightline.tasks.image_encoding import load_encoder, places_of, save_encoder
from sightline.tasks.image_sources import AT_ONCE, SeesImages, Source, check_several, named, read_some
from sightline.tasks.labels import Labels
from sightline.tasks.loading import Saved
from sightline.training.folder import MODEL, RunFolder, save_tensors

if TYPE_CHECKING:
    from sightline.explanation import Explanation

TASK = "classify_images"


class ImageClassifier(SeesImages, Classifier):
    """A model with its labels, and how images come to it; what scores mean is as for texts."""

    model: ImageToLabels

    def __init__(  # the base's would ask for a reader of texts
        self,
        model: ImageToLabels,
        labels: Labels,
        how: ImageEncoderConfig,
        encoder: ImageEncoder | None = None,
        *,
        temperature: float = 1.0,
        threshold: float = THRESHOLD,
        name: str = "the model",
        run: Path | None = None,
    ) -> None:
        self.model, self.labels, self.how, self.encoder = model, labels, how, encoder
        self.temperature, self.threshold, self.name, self.run = temperature, threshold, name, run
        self.longest = None

    def predict(self, images: Sequence[Source], *, threshold: float | None = None) -> list[LabelPrediction]:  # type: ignore[override]
        """The label of each image, in their order; one that cannot be read is an error that names it."""
        check_several(images)
        return self.read_scores(self.scores(images), threshold)

    def scores(  # type: ignore[override]
        self, images: Sequence[Source], *, on_predicted: Callable[[int], None] = lambda count: None
    ) -> np.ndarray:
        """Logits of each image (``images classes``), or its number; before the temperature."""
        found, bad = self.try_scores(images, on_predicted=on_predicted)
        for number, reason in bad.items():
            raise UserError(f"{named(images[number], number)} cannot be used: {reason}")
        return found

    def try_scores(
        self,
        images: Sequence[Source],
        *,
        limits: ImageLimits = LIMITS,
        on_predicted: Callable[[int], None] = lambda count: None,
    ) -> tuple[np.ndarray, dict[int, str]]:
        """The same, and what is wrong with images that cannot be used; their rows are zeros."""
        found, bad = self._empty(len(images)), dict[int, str]()
        done = 0
        for some in read_some(images, self.how, limits=limits):
            bad |= some.bad
            if some.numbers:
                found[some.numbers] = self.scores_of_source(self.source_of(some.pixels))
            passed = max([*some.numbers, *some.bad], default=-1) + 1
            on_predicted(passed - done)
            done = passed
        return found, bad

    @torch.inference_mode()
    def scores_of_source(self, source: Tensor) -> np.ndarray:
        """Logits or numbers of what the model is given."""
        with evaluating(self.model):
            found = [self.model.scores(part.to(self.device)).double().cpu().numpy() for part in source.split(AT_ONCE)]
        return np.concatenate(found) if found else self._empty(0)

    def cut(self, texts: Sequence[Any]) -> int:
        """No image is longer than the model reads."""
        return 0

    def explain(self, image: Source, label: str | None = None, **options: Any) -> "Explanation":  # type: ignore[override]
        """Where the model looked in the image while it gave the label, or for the one asked about.

        Options are ``top`` and ``measure`` of `sightline.tasks.explaining.Wanted`.
        """
        from sightline.tasks.explaining import Wanted
        from sightline.tasks.image_explaining import explain_image

        return explain_image(self, image, Wanted(label, **options))

    def evaluate(self, data: str | Path, **options: Any) -> Any:  # type: ignore[override]
        """Every score on labelled images: a table or a folder. Options as for `image_scores.evaluate_images`."""
        from sightline.tasks.image_scores import evaluate_images, image_file

        return evaluate_images(self, image_file(self, str(data)), **options)

    def _empty(self, count: int) -> np.ndarray:
        return np.zeros(count if self.labels.kind == "number" else (count, self.labels.classes))


class Held(ImageClassifier):
    """A classifier whose scores are known already, by what the images are called."""

    def __init__(self, of: ImageClassifier, scores: Mapping[str, np.ndarray]) -> None:
        super().__init__(of.model, of.labels, of.how, of.encoder, temperature=of.temperature, threshold=of.threshold)
        self.name, self.held = of.name, scores

    def scores(self, images: Sequence[Source], **_: Any) -> np.ndarray:  # type: ignore[override]
        rows = [self.held[str(image)] for image in images]
        return np.stack(rows) if rows else self._empty(0)


def shape_of(labels: Labels, *, balanced: bool = False, smoothing: float = 0.0) -> ImageLabelsShape:
    """What the model writes for these labels. ``balanced``: each class counts alike, however few examples it has."""
    weights = None
    if balanced:
        total, counts = sum(labels.counts), [max(count, 1) for count in labels.counts]
        weights = tuple(total / (labels.classes * count) for count in counts)
    return ImageLabelsShape(labels.kind, labels.classes, weights, smoothing, labels.mean, labels.spread)


def save_image_classifier(folder: RunFolder, classifier: ImageClassifier, config: Config, weights: str) -> None:
    """Everything that `load_image_classifier` needs; the encoder too, so that a run needs no package it came from."""
    save_tensors(folder.path / MODEL, dict(classifier.model.state_dict()))
    save_encoder(folder, classifier.encoder)
    classifier.labels.save(folder)
    fitted = {"temperature": classifier.temperature, "threshold": classifier.threshold}
    about = {"task": TASK, "weights": weights, **fitted, "places": list(classifier.model.places)}
    folder.write_config({**about, "config": config.to_json()})


def load_image_classifier(path: Path) -> tuple[ImageClassifier, dict[str, Any]]:
    """A trained model from its run folder, checked file by file; or as it was at one of the run's checkpoints."""
    from sightline.tasks.image_classify import ImageClassifyConfig

    saved = Saved.open(path, TASK)
    labels = Labels.load(saved.path)
    with saved.reading():
        config = ImageClassifyConfig.from_json(saved.about["config"])
        places = Places(*saved.about["places"])
        if not all(type(one) is int and 0 < one < 1 << 20 for one in places):
            raise ValueError(f"places is {list(places)}")
        fitted = {name: float(saved.about[name]) for name in ("temperature", "threshold")}
        if not (0 < fitted["temperature"] < 1e6 and 0 <= fitted["threshold"] <= 1):
            raise ValueError(f"temperature is {fitted['temperature']!r} and threshold {fitted['threshold']!r}")
    how = config.encoder

    def build() -> ImageToLabels:
        learning = None if how.frozen else how.build()
        return config.model.build(places, shape_of(labels), learning)

    model = saved.model(build)
    encoder = load_encoder(saved, how)
    with saved.reading():
        made_by: Any = encoder or model.encoder
        if places_of(how, made_by) != places:
            raise ValueError(f"{places} do not fit the encoder")
    found = ImageClassifier(model, labels, how, encoder, **fitted, name=saved.name, run=saved.path)
    return found, saved.about
