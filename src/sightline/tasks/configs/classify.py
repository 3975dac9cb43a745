"""The configuration of `classify` for texts, and the fields that all configurations of labels share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from sightline.data.labelled import LabelKind
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.models.attentive import AttentiveConfig
from sightline.models.heads import Labeller, Objective, build_labeller
from sightline.models.nb_svm import NBSVM, NBSVMConfig
from sightline.models.text_to_labels import TextModelConfig
from sightline.outputs.label_scores import Labels
from sightline.tasks.configs.base import TextTaskConfig, fitted_to_pairs
from sightline.text.tokeniser import TokeniserConfig

LabelMetric = Literal["macro_f1", "accuracy", "micro_f1", "pearson", "spearman", "rmse"]
# The metrics that may choose the best checkpoint; the first is the default.
METRICS_OF: dict[str, tuple[str, ...]] = {
    "one": ("macro_f1", "accuracy"),
    "several": ("macro_f1", "micro_f1", "accuracy"),
    "number": ("pearson", "spearman"),
}
OBJECTIVES: dict[str, Objective] = {"one": "one_label", "several": "several_labels", "number": "number"}


class LabelChoices:
    """The fields that every configuration of labels has, and their checks."""

    labels: LabelKind
    metric: LabelMetric | None
    class_weights: Literal["none", "balanced"]
    smoothing: float

    @property
    def decisive(self) -> str:
        """The metric that decides which checkpoint is best."""
        return self.metric or METRICS_OF[self.labels][0]

    def check_labels(self, item: str) -> None:
        """Check that metric, weights and smoothing fit the kind of labels; ``item`` is the noun in the error."""
        if self.metric is not None and self.metric not in METRICS_OF[self.labels]:
            expected = ", ".join(METRICS_OF[self.labels])
            raise ValueError(f"metric is {self.metric}; with labels={self.labels} it is one of {expected}")
        if (self.labels == "number" and self.class_weights != "none") or (self.labels != "one" and self.smoothing):
            raise ValueError(f"class_weights are for labels, and smoothing for one label {item} (labels=one)")

    def for_source(self, source: Source) -> Any:
        """A separator implies several labels; with numbers it is refused."""
        separator = source.options.get("separator")
        if separator is None or (separator and self.labels == "several"):
            return self
        if self.labels == "number" or not separator:
            raise UserError(f"the separator {separator!r} is for several labels; give --labels several")
        try:
            return replace(self, labels="several")  # type: ignore[type-var]
        except ValueError as error:
            raise UserError(str(error)) from None

    def weights_of(self, labels: Labels) -> tuple[float, ...] | None:
        """The weight of each class; with ``class_weights`` balanced, all classes have the same total weight."""
        if self.class_weights == "none":
            return None
        total, counts = sum(labels.counts), [max(count, 1) for count in labels.counts]
        return tuple(total / (labels.classes * count) for count in counts)


def _words() -> TokeniserConfig:
    # Words in lower case, characters in scripts without spaces: units that readable highlights need.
    return TokeniserConfig(method="words", vocab_size=30_000, lower=True)


@dataclass(frozen=True)
class ClassifyConfig(LabelChoices, TextTaskConfig):
    """The configuration of a run.

    ``max_length``: the middle of longer texts is cut in training (except for `han`). ``metric`` is macro-F1 by default,
    for numbers Pearson's correlation. ``class_weights`` balanced: all labels have the same total weight in training.
    ``dropout`` is that before the output layer, by default the model's own. ``baselines``: train linear models too.
    """

    model: TextModelConfig = field(default_factory=AttentiveConfig)
    tokeniser: TokeniserConfig = field(default_factory=_words)
    labels: LabelKind = "one"
    metric: LabelMetric | None = None
    class_weights: Literal["none", "balanced"] = "none"
    smoothing: float = 0.0
    batch_tokens: int = 8192
    validated: int = 5000
    baselines: bool = True
    shares: ClassVar[tuple[str, ...]] = ("dropout", "smoothing")
    documents: ClassVar[bool] = True
    renamed: ClassVar[Mapping[str, str]] = {**TextTaskConfig.renamed, "floors": "baselines"}
    tuned_longest: ClassVar[int] = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_labels("a text")
        if isinstance(self.model, NBSVMConfig):
            if self.labels == "number":
                raise ValueError("nb_svm gives labels, not numbers; for numbers use attentive, han or encoder")
            if self.class_weights != "none" or self.smoothing or self.dropout or self.lora is not None:
                raise ValueError("nb_svm is solved, not trained: it has no class_weights, smoothing, dropout or lora")

    def fitted(self, input: Any, output: Any, new: bool) -> "ClassifyConfig":
        config = replace(self, model=fitted_to_pairs(self.model)) if output.labels.pairs and new else self
        if getattr(config.model, "pairs", False) and not output.labels.pairs:
            raise UserError("the model reads pairs of texts, and the data has one text a row")
        return config

    def before_loading(self, model: nn.Module, tensors: dict[str, Tensor]) -> None:
        super().before_loading(model, tensors)
        if isinstance(model, NBSVM):
            model.make_room(tensors)

    def build(self, input: Any, output: Any) -> Labeller | NBSVM:
        labels: Labels = output.labels
        if isinstance(self.model, NBSVMConfig):
            return self.model.build_for(input.reader.words, labels.classes, input.reader.specials)
        return build_labeller(
            OBJECTIVES[labels.kind],
            self.model.build(input.reader.words, input.reader.specials),
            labels.classes,
            weights=self.weights_of(labels),
            smoothing=self.smoothing,
            mean=labels.mean,
            spread=labels.spread,
            dropout=self.dropout,
        )
