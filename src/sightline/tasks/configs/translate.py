"""The configuration of `translate`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sightline.metrics import TextMetric
from sightline.models.text_to_text import TextToText, TextToTextConfig
from sightline.models.transformer import TransformerConfig
from sightline.tasks.configs.base import TaskConfig
from sightline.text.tokeniser import TokeniserConfig

WITHOUT_LOOK = ("seq2seq", "universal_transformer")  # models that give no weights to copy with


@dataclass(frozen=True)
class TranslateConfig(TaskConfig):
    """The configuration of a run. ``smoothing`` is label smoothing of the target tokens in training."""

    model: TextToTextConfig = field(default_factory=TransformerConfig)
    tokeniser: TokeniserConfig = field(default_factory=TokeniserConfig)
    batch_tokens: int = 4096
    smoothing: float = 0.1
    metric: TextMetric = "bleu"
    valid_share: float = 0.05
    validated: int = 500
    covers: ClassVar[bool] = True
    counts: ClassVar[tuple[str, ...]] = ("batch_tokens",)
    shares: ClassVar[tuple[str, ...]] = ("smoothing",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if getattr(self.model, "tied", None) == "all" and not self.tokeniser.joint:
            raise ValueError(
                "a model with embeddings tied on both sides needs one vocabulary for both; with tokeniser.joint=false "
                "also set model.tied=output"
            )
        if self.model.copying and not self.tokeniser.joint:
            raise ValueError("copying needs one vocabulary for both sides; leave out tokeniser.joint=false")
        if self.training.coverage_after is not None and self.model.kind in WITHOUT_LOOK:
            raise ValueError(
                f"coverage is of attention to the source, which {self.model.kind} does not give: leave it out"
            )

    def build(self, input: Any, output: Any) -> TextToText:
        return self.model.build(input.tokeniser.words, output.tokeniser.words)
