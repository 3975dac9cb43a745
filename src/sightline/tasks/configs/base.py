"""What the configurations of all tasks have in common, and those of tasks whose models read texts."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from sightline.config import Config
from sightline.models.encoder import EncoderConfig
from sightline.models.text_to_labels import TextModelConfig
from sightline.nn.lora import LoraConfig, add_lora
from sightline.outputs.base import Output
from sightline.text.tokeniser import TokeniserConfig
from sightline.training.loop import TrainingConfig

if TYPE_CHECKING:
    from sightline.inputs.base import Input

# Sizes of the text models that several tasks declare, as plain fields: no model is imported to list them.


ATTENTIVE = {
    "tiny": {},
    "small": {"embedding_size": 200, "size": 256},
    "base": {"embedding_size": 300, "size": 512, "layers": 2},
}
# Layers as the translating Transformer has them: its encoder can begin with the weights.
ENCODER = {
    "tiny": {},
    "small": {"size": 256, "heads": 4, "feed_forward": 1024, "layers": 4},
    "base": {"size": 512, "heads": 8, "feed_forward": 2048, "layers": 6},
}
HAN: dict[str, dict[str, int]] = {"tiny": {}, "small": {}, "base": {}}
RATES = {"tiny": 1e-3, "small": 7e-4, "base": 4e-4}
LOUD = 1.0  # the deviation of word vectors where one word decides, not the sum of many
# Every text of pre-training asks for many words, and labels for one thing: steps may be larger, and many small ones
# learn faster.
READING_RATES = {"tiny": 3e-3, "small": 1.5e-3, "base": 5e-4}
READING_TOKENS = {"tiny": 2048, "small": 4096, "base": 8192}


def text_training() -> TrainingConfig:
    """How models of texts are trained unless their task says otherwise."""
    return TrainingConfig(learning_rate=1e-3, warmup=200, patience=5, averaged=3)


@dataclass(frozen=True)
class TaskConfig(Config):
    """What decides a run, apart from the data. A task adds its fields, and says how its model is built."""

    training: TrainingConfig = field(default_factory=TrainingConfig)
    valid_share: float = 0.1
    validated: int = 2000
    seed: int = 0
    family: ClassVar[str] = "task"
    counts: ClassVar[tuple[str, ...]] = ()  # fields that are at least 1
    shares: ClassVar[tuple[str, ...]] = ()  # fields from 0 to below 1, or None

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

    def source_options(self) -> dict[str, Any]:
        """Options of the reader that the configuration decides."""
        return {}

    def build(self, input: "Input", output: "Output") -> nn.Module:
        """The model for a fitted input and output."""
        raise TypeError(f"{type(self).__name__} says no model to build")

    def fitted(self, input: "Input", output: "Output", new: bool) -> "TaskConfig":
        """As the data needs it; ``new``: there is no earlier run whose model must be kept."""
        return self


@dataclass(frozen=True)
class TextTaskConfig(TaskConfig):
    """What decides a run of a task whose model reads texts.

    ``longest`` is how many tokens are read at once. ``lora``: of a model that began with an earlier one, only small
    products learn (`sightline.nn.lora`).
    """

    model: TextModelConfig = field(default_factory=EncoderConfig)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    training: TrainingConfig = field(default_factory=text_training)
    dropout: float | None = None
    lora: LoraConfig | None = None
    longest: int = 512
    batch_tokens: int = 4096
    batch_rows: int = 32
    counts: ClassVar[tuple[str, ...]] = ("batch_tokens", "batch_rows")
    shares: ClassVar[tuple[str, ...]] = ("dropout",)
    documents: ClassVar[bool] = False  # whether a model of documents (han) can be used
    tuned_longest: ClassVar[int | None] = None  # at most so many tokens of a model that is fine-tuned

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < 8:
            raise ValueError(f"longest is {self.longest}; it must be at least 8")
        if self.model.kind == "han" and not self.documents:
            raise ValueError("a model of documents (han) has nothing to say of single words; use attentive or encoder")
        if getattr(self.model, "positions", None) == "learned" and self.longest > self.model.longest:  # type: ignore[attr-defined]
            raise ValueError(f"longest is {self.longest}; the model has positions for {self.model.longest}")  # type: ignore[attr-defined]

    def adapt(self, model: nn.Module) -> None:
        """With ``lora``, let only small products beside the text model's matrices learn, what pools, and the head."""
        if self.lora is not None:
            inner: Any = model.model
            pools = [module for name, module in inner.named_children() if name in ("pool", "pooler", "pooling")]
            add_lora(inner, self.lora, pools)

    def before_loading(self, model: nn.Module, tensors: dict[str, Tensor]) -> None:
        """Weights of a training with LoRA that has not ended have its products apart."""
        if any(".parametrizations." in name for name in tensors):
            self.adapt(model)


def fitted_to_pairs(model: TextModelConfig) -> TextModelConfig:
    """A model that tells the two texts of a pair apart, where it can and does not yet."""
    for name, value in {"pairs": True, "parts": 2}.items():
        if getattr(model, name, value) in (False, 0):
            return replace(model, **{name: value})
    return model
