"""A trained model from text to labels: predict, score, save and load."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from sightline.config import Config
from sightline.data.labelled import Example, Label, LabelledFile
from sightline.data.texts import Text, TextReader
from sightline.data.tokenise import Tokeniser
from sightline.errors import UserError
from sightline.interop.pretrained_tokens import PretrainedTokeniser
from sightline.layers.lora import LoraConfig, add_lora, merge_lora
from sightline.models.heads import Labeller, Objective, build_labeller
from sightline.models.text_to_labels import TextModel, TextModelConfig, Texts
from sightline.inputs.text import TOKENISER, about_reader, load_reader, to_texts
from sightline.tasks.labels import Labels
from sightline.tasks.loading import Saved
from sightline.training import scores as measures
from sightline.training.folder import MODEL, RunFolder, save_tensors
from sightline.vocabulary import MASK, Specials

if TYPE_CHECKING:
    from sightline.explanation import Explanation
    from sightline.tasks.classify_scores import LabelEvaluation

L = TypeVar("L", bound=Labeller)

TASK = "classify"
BATCH_TOKENS = 16_384
THRESHOLD = 0.5  # of several labels, those at least as likely are given
HIERARCHICAL = "han"
ATTENDS_TO_ALL = "encoder"  # its cost grows with the square of the length: it reads no more than it was trained on


class LabelPrediction(NamedTuple):
    """A label (several, or a number), its probability, and those of all labels; calibrated on validation data.

    Of several labels, the probability is that of the most doubtful decision. A number has none.
    """

    label: Label
    probability: float | None = None
    probabilities: dict[str, float] | None = None


class Classifier:
    """A model with its tokeniser and its labels.

    ``name`` is what errors call it: the folder it comes from, which is ``run`` if there is one. ``longest``: texts of
    more tokens lose their middle. ``temperature`` makes the model as sure as it is right; ``threshold`` is how likely
    one of several labels must be to be given. Both are found on validation data.
    """

    def __init__(
        self,
        model: nn.Module,
        reader: TextReader,
        labels: Labels,
        name: str = "the model",
        *,
        temperature: float = 1.0,
        threshold: float = THRESHOLD,
        longest: int | None = None,
        run: Path | None = None,
    ) -> None:
        self.model, self.reader, self.labels, self.name = model, reader, labels, name
        self.temperature, self.threshold, self.longest, self.run = temperature, threshold, longest, run

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def least_margin(self) -> float:
        """The logit that the threshold is."""
        share = min(max(self.threshold, 1e-12), 1 - 1e-12)
        return self.temperature * math.log(share / (1 - share))

    def predict(
        self, texts: Sequence[Text], *, batch_tokens: int = BATCH_TOKENS, threshold: float | None = None
    ) -> list[LabelPrediction]:
        """The label of each text, in the order of the texts; a pair of texts is a tuple of two."""
        return self.read_scores(self.scores(texts, batch_tokens=batch_tokens), threshold)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Of each label, from logits; after the temperature."""
        if self.labels.kind == "several":
            logits, _ = measures.as_two_classes(scores, np.zeros(scores.shape))
            return measures.probabilities(logits, self.temperature)[:, 1].reshape(scores.shape)
        return measures.probabilities(scores, self.temperature)

    def read_scores(self, scores: np.ndarray, threshold: float | None = None) -> list[LabelPrediction]:
        """What `scores` mean."""
        names, kind = self.labels.names, self.labels.kind
        if kind == "number":
            return [LabelPrediction(float(value)) for value in scores]
        rows = [dict(zip(names, row, strict=True)) for row in self.probabilities(scores).tolist()]
        if kind == "one":
            best = [names[i] for i in scores.argmax(axis=1).tolist()]
            return [LabelPrediction(name, row[name], row) for name, row in zip(best, rows, strict=True)]
        found, wanted = [], self.threshold if threshold is None else threshold
        for row in rows:
            chosen = tuple(name for name, share in row.items() if share >= wanted)
            least = min((max(share, 1 - share) for share in row.values()), default=1.0)
            found.append(LabelPrediction(chosen, least, row))
        return found

    def scores(
        self,
        texts: Sequence[Text],
        *,
        batch_tokens: int = BATCH_TOKENS,
        on_predicted: Callable[[int], None] = lambda count: None,
    ) -> np.ndarray:
        """Logits of each text (``texts classes``), or its number; before the temperature."""
        return self.scores_of(self.reader.read(texts, self.longest).rows, batch_tokens, on_predicted)

    def cut(self, texts: Sequence[Text]) -> int:
        """How many of these texts are longer than the model reads."""
        return 0 if self.longest is None else self.reader.read(texts, self.longest).cut

    @torch.inference_mode()
    def scores_of(
        self,
        rows: Sequence[Sequence[int]],
        batch_tokens: int = BATCH_TOKENS,
        on_predicted: Callable[[int], None] = lambda count: None,
    ) -> np.ndarray:
        """The same, of texts that were read already."""
        if batch_tokens < 1:
            raise UserError(f"batch_tokens is {batch_tokens}; it must be at least 1")
        shape = (len(rows),) if self.labels.kind == "number" else (len(rows), self.labels.classes)
        found = np.zeros(shape)
        in_training = self.model.training
        self.model.eval()
        try:
            for chosen in text_batches([len(row) for row in rows], batch_tokens):
                texts = to_texts(*self.reader.pad([rows[i] for i in chosen]), self.device)
                found[chosen] = self.model.scores(texts).double().cpu().numpy()  # type: ignore[operator]
                on_predicted(len(chosen))
        finally:
            self.model.train(in_training)
        return found

    def evaluate(self, data: str | Path | Sequence[Example], **options: Any) -> "LabelEvaluation":
        """Every score on labelled texts: a file, or examples. Options as for `classify_scores.evaluate`."""
        from sightline.tasks.classify_scores import evaluate, read_examples

        if isinstance(data, str | Path):
            data = read_examples(self.file_of(str(data)))[0]
        return evaluate(self, data, **options)

    def explain(self, text: Text, label: str | None = None, **options: Any) -> "Explanation":
        """Which words and sentences the model looked at while it gave the label, or for the one asked about.

        Options are ``top`` and ``measure`` of `sightline.tasks.explaining.Wanted`. The explanation shows itself in a
        notebook, its `save` writes pictures and pages, and its ``highlights`` are spans of the text.
        """
        from sightline.tasks.classify_explaining import explain_label
        from sightline.tasks.explaining import Wanted

        return explain_label(self, text, Wanted(label, **options))

    def file_of(self, data: str, columns: tuple[str, ...] | None = None) -> LabelledFile:
        """A file whose labels are written as those of the training data."""
        labels = self.labels
        return LabelledFile(data, columns or labels.columns, labels.kind, labels.separator)


def text_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Texts of like length together, the longest first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        rows = max(1, batch_tokens // lengths[order[start]])
        yield order[start : start + rows]
        start += rows


OBJECTIVES: dict[str, Objective] = {"one": "one_label", "several": "several_labels", "number": "number"}


def build_head(
    labels: Labels, model: TextModel, *, balanced: bool = False, smoothing: float = 0.0, dropout: float | None = None
) -> Labeller:
    """The head for these labels. ``balanced``: each class counts alike, however few examples it has."""
    weights = None
    if balanced:
        total, counts = sum(labels.counts), [max(count, 1) for count in labels.counts]
        weights = [total / (labels.classes * count) for count in counts]
    return build_labeller(
        OBJECTIVES[labels.kind],
        model,
        labels.classes,
        weights=weights,
        smoothing=smoothing,
        mean=labels.mean,
        spread=labels.spread,
        dropout=dropout,
    )


def adapt(model: Labeller, config: LoraConfig) -> None:
    """Let only small products beside the text model's matrices learn, and what pools, and the output layer."""
    pools = [module for name, module in model.model.named_children() if name in ("pool", "pooler", "pooling")]
    add_lora(model.model, config, pools)


def prediction_limit(model: TextModelConfig, longest: int | None) -> int | None:
    """How many tokens of a text are read at prediction: all, unless the cost grows with the square of them."""
    return longest if model.kind == ATTENDS_TO_ALL else None


def save_classifier(folder: RunFolder, classifier: Classifier, config: Config, weights: str) -> None:
    """Everything that `load_classifier` needs."""
    save_tensors(folder.path / MODEL, dict(classifier.model.state_dict()))
    classifier.reader.tokeniser.save(folder.path / TOKENISER)
    classifier.labels.save(folder)
    fitted = {"temperature": classifier.temperature, "threshold": classifier.threshold}
    about = {"task": TASK, "weights": weights, **fitted, **about_reader(classifier.reader)}
    folder.write_config({**about, "config": config.to_json()})


def load_classifier(path: Path) -> tuple[Classifier, dict[str, Any]]:
    """A trained model from its run folder, checked file by file; or as it was at one of the run's checkpoints."""
    from sightline.tasks.classify import ClassifyConfig

    saved = Saved.open(path, TASK)
    data = saved.about
    labels = Labels.load(saved.path)
    reader = load_reader(saved.path, data, labels.pairs)
    with saved.reading():
        config = ClassifyConfig.from_json(data["config"])
        temperature, threshold = float(data.get("temperature", 1.0)), float(data.get("threshold", THRESHOLD))
        if not (0 < temperature < 1e6 and 0 <= threshold <= 1):
            raise ValueError(f"temperature is {temperature!r} and threshold {threshold!r}")
    model = load_labeller(saved, lambda: config.build(labels, reader), config.lora)
    longest = prediction_limit(config.model, config.longest)
    fitted: dict[str, Any] = {"temperature": temperature, "threshold": threshold}
    return Classifier(model, reader, labels, saved.name, **fitted, longest=longest, run=saved.path), data


def load_labeller(saved: Saved, build: Callable[[], L], lora: LoraConfig | None) -> L:
    """A model with a head and its weights; of a training with LoRA that has not ended, the products merged."""

    def adapted(model: L, tensors: dict[str, Tensor]) -> None:
        if lora is not None and any(".parametrizations." in name for name in tensors):
            adapt(model, lora)

    model = saved.model(build, adapted)
    merge_lora(model)
    return model
