"""From a file of texts and labels to a trained model: one label for each text, several, or a number."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sightline.config import Config
from sightline.data.batches import BatchRows
from sightline.data.checking import Limits
from sightline.data.labelled import LabelKind, LabelledFile
from sightline.data.labels_checking import TEXT_LIMITS
from sightline.data.texts import TextReader
from sightline.data.tokenise import TokeniserConfig
from sightline.errors import UserError
from sightline.layers.lora import LoraConfig, merge_lora
from sightline.models.attentive import AttentiveConfig
from sightline.models.heads import Labeller
from sightline.models.text_to_labels import TextModelConfig, Texts
from sightline.tasks.card import ABOUT, CURVES, describe
from sightline.tasks.checks import check_counts, check_seed
from sightline.tasks.classifier import (
    HIERARCHICAL,
    TOKENISER,
    Classifier,
    adapt,
    build_head,
    load_classifier,
    prediction_limit,
    save_classifier,
    to_texts,
)
from sightline.tasks.classify_checks import check_kind, check_label_options
from sightline.tasks.classify_data import PreparedTexts, TextPreparation, prepare_texts, prepared_before
from sightline.tasks.classify_finish import finish
from sightline.tasks.classify_scores import METRICS_OF, LabelMetric, fit, score_values, truth_of
from sightline.tasks.floors import fit_floors
from sightline.tasks.labels import LABELS, Labels
from sightline.tasks.lessons import TextLesson
from sightline.tasks.running import building, timed_validation, train_by_seed
from sightline.tasks.starting import Start, read_start
from sightline.tasks.table import Trial
from sightline.training.folder import CONFIG, METRICS, MODEL, RunFolder
from sightline.training.loop import Outcome, TrainingConfig
from sightline.view.curves import draw_curves


def _words() -> TokeniserConfig:
    # Words, lower-cased; in scripts that write without spaces, characters: what highlights can be read of.
    return TokeniserConfig(method="words", words=30_000, lower=True)


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=5, averaged=3)


@dataclass(frozen=True)
class ClassifyConfig(Config):
    """Everything that decides a run, apart from the data.

    ``longest``: texts of more tokens lose their middle in training (documents of `han` do not). ``metric`` left out is
    macro-F1, or for numbers Pearson's correlation. ``class_weights`` balanced: each label counts alike in training,
    however few examples it has. ``dropout`` is that before the output layer; left out, the model's own. ``lora``: of a
    model that began with an earlier one, only small products learn (`sightline.layers.lora`).
    """

    model: TextModelConfig = field(default_factory=AttentiveConfig)
    tokeniser: TokeniserConfig = field(default_factory=_words)
    training: TrainingConfig = field(default_factory=_training)
    labels: LabelKind = "one"
    metric: LabelMetric | None = None
    class_weights: Literal["none", "balanced"] = "none"
    smoothing: float = 0.0
    dropout: float | None = None
    lora: LoraConfig | None = None
    longest: int = 512
    batch_tokens: int = 8192
    batch_rows: int = 32
    valid_share: float = 0.1
    validated: int = 5000
    floors: bool = True
    seed: int = 0
    family: ClassVar[str] = "task"

    def __post_init__(self) -> None:
        check_counts(self, "batch_tokens", "batch_rows", "validated")
        if self.longest < 8:
            raise ValueError(f"longest is {self.longest}; it must be at least 8")
        check_seed(self.seed)
        if not 0 <= self.smoothing < 1 or not (self.dropout is None or 0 <= self.dropout < 1):
            raise ValueError(f"smoothing and dropout are {self.smoothing} and {self.dropout}; at least 0 and below 1")
        check_label_options(self, "a text")
        if getattr(self.model, "positions", None) == "learned" and self.longest > self.model.longest:  # type: ignore[attr-defined]
            raise ValueError(f"longest is {self.longest}; the model has positions for {self.model.longest}")  # type: ignore[attr-defined]

    @property
    def decisive(self) -> str:
        """The metric that decides which checkpoint is best."""
        return self.metric or METRICS_OF[self.labels][0]

    def fitted(self, pairs: bool, new: bool) -> "ClassifyConfig":
        """With a model that tells the two texts of a pair apart, where there are pairs and the model is new."""
        for name, value in {"pairs": True, "parts": 2}.items() if pairs and new else ():
            if getattr(self.model, name, value) in (False, 0):
                return replace(self, model=replace(self.model, **{name: value}))
        return self

    @property
    def sentences(self) -> bool:
        return self.model.kind == HIERARCHICAL

    def build(self, labels: Labels, reader: TextReader) -> Labeller:
        """The model with its head."""
        model = self.model.build(reader.words, reader.specials)
        balanced = self.class_weights == "balanced"
        return build_head(labels, model, balanced=balanced, smoothing=self.smoothing, dropout=self.dropout)


class ClassifyLesson(TextLesson[PreparedTexts, ClassifyConfig]):
    """Batches, loss and score for the training loop."""

    def __init__(self, prepared: PreparedTexts, config: ClassifyConfig) -> None:
        super().__init__(prepared, config)
        limit = prediction_limit(config.model, config.longest)
        self._read = prepared.reader.read([example.texts for example in self.valid], limit).rows
        self._truth = truth_of(prepared.labels, [example.label for example in self.valid])

    def batch(self, handle: BatchRows) -> tuple[Texts, Tensor]:
        prepared = self.prepared
        texts, classes = zip(*(prepared.corpus[row] for row in handle.tolist()), strict=True)
        return to_texts(*prepared.reader.pad(texts)), self._golden(np.asarray(handle), classes)

    def _golden(self, handle: np.ndarray, classes: tuple[np.ndarray, ...]) -> Tensor:
        labels = self.prepared.labels
        if self.prepared.numbers is not None:
            return torch.from_numpy(self.prepared.numbers[handle])
        if labels.kind == "one":
            return torch.from_numpy(np.concatenate(classes).astype(np.int64))
        found = np.zeros((len(classes), labels.classes), dtype=np.float32)
        for row, ids in enumerate(classes):
            found[row, ids] = 1
        return torch.from_numpy(found)

    def tokens(self, batch: tuple[Texts, Tensor]) -> int:
        """The loss is of texts, not of their tokens."""
        return len(batch[1])

    def validate(self, model: nn.Module) -> dict[str, float]:
        """The metric that decides, the loss, and the other metrics."""
        classifier = Classifier(model, self.prepared.reader, self.prepared.labels)
        logits = classifier.scores_of(self._read)
        return score_values(logits, self._truth, self.prepared.labels, self.config.decisive)


def train_classify(
    files: LabelledFile | None,
    out: Path,
    config: ClassifyConfig,
    *,
    valid: LabelledFile | None = None,
    limits: Limits | None = None,
    start: Path | None = None,
    device: str = "cpu",
    command: str = "",
    on_report: Callable[[PreparedTexts, nn.Module], None] = lambda prepared, model: None,
    **listeners: Any,
) -> tuple[Classifier, Outcome]:
    """Train a new run in ``out``, or go on with the one that is there when ``files`` is None.

    ``start`` is an earlier run, of this task or of pre-training, or a Hugging Face folder, whose vocabulary and weights
    the new run begins with.
    """
    earlier = None if start is None else read_start(start)
    if files is None:
        before, about = load_classifier(out)
        config = replace(config, model=ClassifyConfig.from_json(about["config"]).model)  # fitted to pairs, or not
        folder = RunFolder.open(out)
        prepared = prepared_before(folder.path, before.reader, before.labels)
    else:
        prepared, config, folder = _prepare_new(files, valid, out, config, limits, earlier, on_report)
    lesson = ClassifyLesson(prepared, config)
    model = build_model(config, prepared, earlier)
    limit = prediction_limit(config.model, config.longest)
    classifier = Classifier(model, prepared.reader, prepared.labels, str(out), longest=limit, run=out)
    if files is None:
        on_report(prepared, model)
    else:
        folder.write_json(ABOUT, describe(prepared, files, valid, start, command))
        save_classifier(folder, classifier, config, "untrained")
    outcome = train_by_seed(model, lesson, config.training, config.seed, folder, device, listeners)
    merge_lora(model)
    held_out = fit(classifier, prepared.valid)
    save_classifier(folder, classifier, config, outcome.source)
    folder.add_metrics(step=outcome.progress.step, final=True, weights=outcome.source, **outcome.scores)
    unit = "squared error" if prepared.labels.kind == "number" else "nats a text"
    draw_curves(folder.metrics(), folder.path / CURVES, unit)
    sealed = finish(folder, config, classifier, prepared, held_out, outcome)
    folder.seal([CONFIG, MODEL, TOKENISER, LABELS, METRICS, *sealed])
    return classifier, outcome


def preparation(config: ClassifyConfig, limits: Limits | None, earlier: Start | None) -> TextPreparation:
    """How the data of a run is prepared: with the vocabulary of what it begins with."""
    if earlier is not None:
        earlier.check_vocabulary(config.tokeniser)
    elif config.lora is not None:
        raise UserError("lora adapts what was learnt before, and there is nothing here; say with --from what to adapt")
    return TextPreparation(
        config.tokeniser,
        config.valid_share,
        config.seed,
        None if config.sentences else config.longest,
        config.sentences,
        limits or TEXT_LIMITS,
        None if earlier is None else earlier.reader,
    )


def _fit_floors(prepared: PreparedTexts, config: ClassifyConfig, folder: RunFolder) -> None:
    """Now, while the texts are there; the run keeps them, so that every evaluation can show them."""
    assert prepared.training is not None
    texts, given = [], []
    for example in prepared.training():
        texts.append(example.texts)
        given.append(example.label)
    labels = prepared.labels
    fit_floors(texts, labels.gold(given), labels.kind, labels.classes, config.seed).save(folder.path)


def build_model(config: ClassifyConfig, prepared: PreparedTexts, earlier: Start | None) -> Labeller:
    """A new model by the seed, or one that begins with the weights of an earlier run."""
    with building(config.seed):
        model = config.build(prepared.labels, prepared.reader)
        if earlier is not None:
            earlier.put_into(model, prepared.labels)
        if config.lora is not None:
            adapt(model, config.lora)
    return model


def _prepare_new(
    files: LabelledFile,
    valid: LabelledFile | None,
    out: Path,
    config: ClassifyConfig,
    limits: Limits | None,
    earlier: Start | None,
    on_report: Callable[[PreparedTexts, nn.Module], None],
) -> tuple[PreparedTexts, ClassifyConfig, RunFolder]:
    check_kind(files.labels, config.labels)
    how = preparation(config, limits, earlier)
    with RunFolder.creating(out) as folder:
        prepared = prepare_texts(files, valid, how, folder.path)
        config = config.fitted(prepared.labels.pairs, earlier is None)
        _check_pairs(config, prepared)
        model = build_model(config, prepared, earlier)  # what cannot be built is said now, while nothing stands yet
        on_report(prepared, model)
        if config.floors:
            _fit_floors(prepared, config, folder)
        return prepared, config, folder


def _check_pairs(config: ClassifyConfig, prepared: PreparedTexts) -> None:
    if getattr(config.model, "pairs", False) and not prepared.labels.pairs:
        raise UserError("the model reads pairs of texts, and the data has one text a row")


def classify_trial(
    files: LabelledFile,
    valid: LabelledFile | None,
    config: ClassifyConfig,
    limits: Limits | None,
    start: Path | None,
    folder: Path,
) -> Trial:
    """What training a classifier would begin with."""
    check_kind(files.labels, config.labels)
    earlier = None if start is None else read_start(start)
    prepared = prepare_texts(files, valid, preparation(config, limits, earlier), folder)
    config = config.fitted(prepared.labels.pairs, earlier is None)
    _check_pairs(config, prepared)
    lesson = ClassifyLesson(prepared, config)
    model = build_model(config, prepared, earlier)
    return Trial(prepared, lesson, model, timed_validation(lesson, model))
