"""From images and labels to a trained model: one label for each image, several, or a number."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sightline.config import Config
from sightline.data.checking import Limits
from sightline.data.labelled import LabelKind
from sightline.layers.image import ImageEncoder, ImageEncoderConfig, default_encoder
from sightline.models.image_to_labels import ImageToLabels, ImageToLabelsConfig
from sightline.models.writer import Loss
from sightline.tasks.caption_inputs import OnImages
from sightline.tasks.card import ABOUT, CURVES, describe
from sightline.tasks.checks import check_counts, check_seed, check_shares
from sightline.tasks.classify_checks import check_kind, check_label_options
from sightline.tasks.classify_scores import METRICS_OF, LabelMetric, fit, score_values, truth_of
from sightline.tasks.image_classifier import (
    ImageClassifier,
    load_image_classifier,
    save_image_classifier,
    shape_of,
)
from sightline.tasks.image_data import ImageLabelFile, LabelledImage, PreparedImages, images_before, prepare_images
from sightline.tasks.image_encoding import ENCODER, new_encoder, places_of
from sightline.tasks.image_finish import finish
from sightline.tasks.image_scores import held_out
from sightline.tasks.image_sources import AT_ONCE
from sightline.tasks.labels import LABELS
from sightline.tasks.running import building, timed_validation, train_by_seed, validated_rows
from sightline.tasks.table import Trial
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import Outcome, TrainingConfig
from sightline.view.curves import draw_curves

AVERAGED = 512  # images that say what a place looks like on average


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=8, averaged=3, weight_decay=0.01)


@dataclass(frozen=True)
class ImageClassifyConfig(Config):
    """Everything that decides a run, apart from the data.

    ``encoder`` makes annotations of an image. ``metric`` left out is macro-F1, or for numbers Pearson's correlation.
    ``class_weights`` balanced: each label counts alike in training, however few examples it has. ``mirrored``: an
    encoder that learns sees half of the images turned left to right, anew in each epoch; of labels that know left from
    right, leave it out.
    """

    model: ImageToLabelsConfig = field(default_factory=ImageToLabelsConfig)
    encoder: ImageEncoderConfig = field(default_factory=default_encoder)
    training: TrainingConfig = field(default_factory=_training)
    labels: LabelKind = "one"
    metric: LabelMetric | None = None
    class_weights: Literal["none", "balanced"] = "none"
    smoothing: float = 0.0
    mirrored: bool = True
    batch_rows: int = 32
    valid_share: float = 0.1
    validated: int = 5000
    seed: int = 0
    family: ClassVar[str] = "task"

    def __post_init__(self) -> None:
        check_counts(self, "batch_rows", "validated")
        check_seed(self.seed)
        check_shares(self, "smoothing")
        check_label_options(self, "an image")

    @property
    def decisive(self) -> str:
        """The metric that decides which checkpoint is best."""
        return self.metric or METRICS_OF[self.labels][0]


class ImageClassifyLesson:
    """Batches, loss and score for the training loop. A row is written as its complement where it is mirrored."""

    def __init__(self, prepared: PreparedImages, config: ImageClassifyConfig) -> None:
        self.prepared, self.config = prepared, config
        rows = validated_rows(len(prepared.valid), config.validated, config.seed)
        self.valid = [prepared.valid[row] for row in rows]
        self._truth = truth_of(prepared.labels, [one.label for one in self.valid])

    def epoch(self, number: int) -> list[np.ndarray]:
        random = np.random.default_rng([self.config.seed, number])
        order = random.permutation(len(self.prepared.train))
        if self.config.mirrored and not self.config.encoder.frozen:
            order = np.where(random.random(len(order)) < 0.5, ~order, order)
        return [order[start : start + self.config.batch_rows] for start in range(0, len(order), self.config.batch_rows)]

    def batch(self, handle: np.ndarray) -> tuple[Tensor, Tensor]:
        rows = np.where(handle < 0, ~handle, handle)
        chosen = [self.prepared.train[row] for row in rows.tolist()]
        source = self.prepared.inputs.rows([one.row for one in chosen])
        turned = handle < 0
        if turned.any():
            source[turned] = source[turned][:, :, ::-1]
        return torch.from_numpy(source), self._golden(chosen)

    def _golden(self, chosen: list[LabelledImage]) -> Tensor:
        labels = self.prepared.labels
        gold = labels.gold([one.label for one in chosen])
        return torch.from_numpy(gold.astype(np.float32) if labels.kind == "several" else gold)

    def tokens(self, batch: tuple[Tensor, Tensor]) -> int:
        """The loss is of images."""
        return len(batch[1])

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
        return model.loss(*batch)  # type: ignore[operator]

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides, the loss, and the other metrics."""
        logits = self.logits(model, self.valid)
        return score_values(logits, self._truth, self.prepared.labels, self.config.decisive)

    @torch.inference_mode()
    def mean_place(self, model: ImageToLabels) -> Tensor:
        """What a place of the training images looks like on average, of at most some hundred of them."""
        rows = np.random.default_rng(self.config.seed).permutation(len(self.prepared.train))[:AVERAGED]
        total = torch.zeros(model.places.size, dtype=torch.double)
        for start in range(0, len(rows), AT_ONCE):
            chosen = [self.prepared.train[row].row for row in rows[start : start + AT_ONCE].tolist()]
            source = torch.from_numpy(self.prepared.inputs.rows(chosen)).to(model.blank.device)
            total += model.see(source).double().mean(dim=1).sum(dim=0).cpu()
        return (total / len(rows)).to(model.blank)

    def logits(self, model: nn.Module, images: list[LabelledImage]) -> np.ndarray:
        """Of images of the run's own data, some at a time."""
        assert isinstance(model, ImageToLabels)
        classifier = ImageClassifier(model, self.prepared.labels, self.config.encoder)
        parts = [images[start : start + AT_ONCE] for start in range(0, len(images), AT_ONCE)]
        found = [
            classifier.scores_of_source(torch.from_numpy(self.prepared.inputs.rows([one.row for one in part])))
            for part in parts
        ]
        return np.concatenate(found)


def train_image_classify(
    files: ImageLabelFile | None,
    out: Path,
    config: ImageClassifyConfig,
    *,
    valid: ImageLabelFile | None = None,
    limits: Limits | None = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Callable[[PreparedImages, nn.Module], None] = lambda prepared, model: None,
    on_images: OnImages | None = None,
    **listeners: Any,
) -> tuple[ImageClassifier, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None.

    ``start`` is an earlier run of this task, whose encoder and weights the new run begins with; its labels may be
    others. ``on_images`` hears how the reading of the images goes on.
    """
    earlier = None if start is None else load_image_classifier(start)[0]
    if files is None:
        before, _ = load_image_classifier(out)
        folder = RunFolder.open(out)
        prepared = images_before(folder.path, before.labels, before.encoder or config.encoder.build())
    else:
        check_kind(files.labels, config.labels)
        encoder = new_encoder(config, earlier)
        with RunFolder.creating(out) as folder:
            prepared = _prepare(files, valid, config, encoder, folder.path, limits, device, on_images)
            build_model(config, prepared, earlier)  # what cannot be built is said now, while nothing stands yet
    lesson = ImageClassifyLesson(prepared, config)
    model = build_model(config, prepared, earlier)
    frozen = prepared.encoder if config.encoder.frozen else None
    classifier = ImageClassifier(model, prepared.labels, config.encoder, frozen, name=str(out), run=out)
    if files is not None:
        speed = {"images_per_second": prepared.images_per_second}
        folder.write_json(ABOUT, describe(prepared, files, valid, start, command) | speed)
        save_image_classifier(folder, classifier, config, "untrained")
    on_report(prepared, model)
    outcome = train_by_seed(model, lesson, config.training, config.seed, folder, device, listeners)
    model.blank.copy_(lesson.mean_place(model))
    logits = lesson.logits(model, prepared.valid)
    known, examples = held_out(classifier, prepared.valid, logits)
    fit(known, examples)
    classifier.temperature, classifier.threshold = known.temperature, known.threshold
    save_image_classifier(folder, classifier, config, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    unit = "squared error" if prepared.labels.kind == "number" else "nats an image"
    draw_curves(folder.metrics(), folder.path / CURVES, unit)
    finish(folder, config, classifier, prepared, logits, outcome)
    folder.seal([CONFIG, MODEL, LABELS, METRICS, *([ENCODER] if frozen is not None else [])])
    return classifier, outcome


def build_model(
    config: ImageClassifyConfig, prepared: PreparedImages, earlier: ImageClassifier | None
) -> ImageToLabels:
    """A new model by the seed, or one that begins with the weights of an earlier run; new labels are learnt anew."""
    with building(config.seed, going_on=earlier is not None):
        learning = None if config.encoder.frozen else prepared.encoder
        balanced = config.class_weights == "balanced"
        shape = shape_of(prepared.labels, balanced=balanced, smoothing=config.smoothing)
        model = config.model.build(places_of(config.encoder, prepared.encoder), shape, learning)
        if earlier is not None:
            weights = earlier.model.state_dict()
            if earlier.labels.names != prepared.labels.names or earlier.labels.kind != prepared.labels.kind:
                own = model.state_dict()
                weights |= {name: own[name] for name in own if name.startswith("output.")}
            model.load_state_dict(weights)
    return model


def _prepare(
    files: ImageLabelFile,
    valid: ImageLabelFile | None,
    config: ImageClassifyConfig,
    encoder: ImageEncoder,
    folder: Path,
    limits: Limits | None,
    device: str = "cpu",
    on_images: OnImages | None = None,
) -> PreparedImages:
    return prepare_images(
        files,
        valid,
        config.encoder,
        encoder,
        folder,
        valid_share=config.valid_share,
        seed=config.seed,
        limits=limits or Limits(),
        device=device,
        on_images=on_images,
    )


def image_classify_trial(
    files: ImageLabelFile,
    valid: ImageLabelFile | None,
    config: ImageClassifyConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What training a classifier of images would begin with."""
    check_kind(files.labels, config.labels)
    earlier = None if start is None else load_image_classifier(start)[0]
    prepared = _prepare(files, valid, config, new_encoder(config, earlier), folder, limits)
    lesson = ImageClassifyLesson(prepared, config)
    model = build_model(config, prepared, earlier)
    return Trial(prepared, lesson, model, timed_validation(lesson, model))
