"""The base of every task's configuration, and of those of tasks whose models read texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from sightline.config import Config
from sightline.models.encoder import EncoderConfig
from sightline.models.text_to_labels import TextModelConfig
from sightline.nn.lora import LoraConfig, add_lora
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig

if TYPE_CHECKING:
    from sightline.data.source import Source
    from sightline.inputs.base import SomeInput
    from sightline.outputs.base import SomeOutput


WHOLE_TEXTS = ("han", "nb_svm")  # models whose cost grows with the length of a text: nothing is cut


def text_training() -> TrainingConfig:
    """The default training of text models."""
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=5, averaged=3)


@dataclass(frozen=True)
class TaskConfig(Config):
    """The configuration of a run. A task adds its fields, and defines how its model is built."""

    training: TrainingConfig = field(default_factory=TrainingConfig)
    valid_share: float = 0.1
    validated: int = 2000
    seed: int = 0
    family: ClassVar[str] = "task"
    counts: ClassVar[tuple[str, ...]] = ()  # fields that are at least 1
    shares: ClassVar[tuple[str, ...]] = ()  # fields from 0 to below 1, or None
    covers: ClassVar[bool] = False  # whether there is a loss of coverage

    if TYPE_CHECKING:  # the fields that tasks add

        def __getattr__(self, name: str) -> Any: ...

    def __post_init__(self) -> None:
        for name in (*self.counts, "validated"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in self.shares:
            value = getattr(self, name)
            if not (value is None or 0 <= value < 1):
                raise ValueError(f"{name} is {value}; it must be at least 0 and below 1")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed is {self.seed}; it must be at least 0 and below 2^63")
        if self.training.coverage_after is not None and not self.covers:
            raise ValueError("training.coverage_after is for translate and summarise; leave it out")

    @property
    def copies(self) -> bool:
        """Whether the model can copy words of its source."""
        return bool(getattr(getattr(self, "model", None), "copying", False))

    def source_options(self) -> dict[str, object]:
        """Options of the data's reader that the configuration sets."""
        return {}

    def for_source(self, source: "Source") -> "TaskConfig":
        """The configuration as options of the data's reader need it."""
        return self

    def build(self, input: "SomeInput", output: "SomeOutput") -> nn.Module:
        """The model for a fitted input and output."""
        raise TypeError(f"{type(self).__name__} does not define how to build a model")

    def fitted(self, input: "SomeInput", output: "SomeOutput", new: bool) -> "TaskConfig":
        """The configuration as the data needs it; ``new``: there is no earlier run whose model must be kept."""
        return self

    def adapt(self, model: nn.Module) -> None:
        """Change a model before it is trained (LoRA)."""

    def before_loading(self, model: nn.Module, tensors: dict[str, Tensor]) -> None:
        """Change a model before saved weights are loaded into it."""


@dataclass(frozen=True)
class TextTaskConfig(TaskConfig):
    """The configuration of a task whose model reads texts.

    ``max_length`` is how many tokens are read at once. ``lora``: of a model that starts from an earlier one, train
    only low-rank updates (`sightline.nn.lora`).
    """

    model: TextModelConfig = field(default_factory=EncoderConfig)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    training: TrainingConfig = field(default_factory=text_training)
    dropout: float | None = None
    lora: LoraConfig | None = None
    max_length: int = 512
    batch_tokens: int = 4096
    batch_rows: int = 32
    counts: ClassVar[tuple[str, ...]] = ("batch_tokens", "batch_rows")
    shares: ClassVar[tuple[str, ...]] = ("dropout",)
    documents: ClassVar[bool] = False  # whether a document model (han) can be used
    renamed: ClassVar[Mapping[str, str]] = {"longest": "max_length"}
    tuned_longest: ClassVar[int | None] = None  # at most so many tokens of a model that is fine-tuned

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < 8:
            raise ValueError(f"max_length is {self.max_length}; it must be at least 8")
        if self.model.kind in WHOLE_TEXTS and not self.documents:
            kind = self.model.kind
            raise ValueError(f"{kind} reads whole texts and has no output for single words; use attentive or encoder")
        positions = self.model.max_length if getattr(self.model, "positions", None) == "learned" else None  # type: ignore[attr-defined]
        if positions is not None and self.max_length > positions:
            raise ValueError(f"max_length is {self.max_length}; the model has positions for {positions}")

    def adapt(self, model: nn.Module) -> None:
        """With ``lora``, train only low-rank updates of the text model's matrices, its pooling, and the head."""
        if self.lora is not None:
            inner: Any = model.model
            pools = [module for name, module in inner.named_children() if name in ("pool", "pooler", "pooling")]
            add_lora(inner, self.lora, pools)

    def before_loading(self, model: nn.Module, tensors: dict[str, Tensor]) -> None:
        """Weights of an unfinished training with LoRA hold the low-rank factors separately."""
        if any(".parametrizations." in name for name in tensors):
            self.adapt(model)


def fitted_to_pairs(model: TextModelConfig) -> TextModelConfig:
    """The model with segment ids or separate readings for the two texts of a pair, where it supports them."""
    for name, value in {"pairs": True, "parts": 2}.items():
        if getattr(model, name, value) in (False, 0):
            return replace(model, **{name: value})
    return model
