"""The configuration of `pretrain`."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sightline.models.encoder import Encoder, EncoderConfig
from sightline.models.masked import MaskedWords
from sightline.tasks.configs.base import TextTaskConfig, fitted_to_pairs
from sightline.text.masking import MaskingConfig
from sightline.training.loop import TrainingConfig


def _training() -> TrainingConfig:
    return TrainingConfig(learning_rate=1e-3, warmup=1000, weight_decay=0.01, patience=10, averaged=3)


@dataclass(frozen=True)
class PretrainConfig(TextTaskConfig):
    """``next_sentence`` also trains whether one piece of text follows another.

    ``paragraphs``: lines of a .txt file up to an empty line are one text. ``validated`` counts blocks of text.
    ``latent``: word vectors are initialised by latent semantic analysis (`baselines.linear`) instead of at random, if
    there are enough texts and words.
    """

    training: TrainingConfig = field(default_factory=_training)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    next_sentence: bool = False
    paragraphs: bool = False
    latent: bool = True
    valid_share: float = 0.02
    validated: int = 500
    documents: ClassVar[bool] = True  # refused below, like every model that is not an encoder

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.model, EncoderConfig):
            raise ValueError(f"pre-training needs an encoder, but model is {self.model.kind!r}; leave it out")
        if self.lora is not None:
            raise ValueError("lora is for fine-tuning after pre-training; leave it out")
        if self.masking.pairs:
            raise ValueError("masking.pairs is true; set next_sentence=true instead, which makes pairs")
        if self.model.positions == "learned" and self.masking.length > self.model.max_length:
            raise ValueError(
                f"masking.length is {self.masking.length}; the model has positions for {self.model.max_length}"
            )

    @property
    def hiding(self) -> MaskingConfig:
        """How words are masked, in pairs of texts or not."""
        return replace(self.masking, pairs=self.next_sentence)

    @property
    def blocks_at_once(self) -> int:
        """Blocks in a batch."""
        return max(1, min(self.batch_rows, self.batch_tokens // self.masking.length))

    def source_options(self) -> dict[str, Any]:
        return {"paragraphs": self.paragraphs, "pipe_ending": ".txt"}

    def fitted(self, input: Any, output: Any, new: bool) -> "PretrainConfig":
        return replace(self, model=fitted_to_pairs(self.model)) if new and self.next_sentence else self

    def build(self, input: Any, output: Any) -> MaskedWords:
        encoder = self.model.build(input.reader.words, input.reader.specials)
        assert isinstance(encoder, Encoder)
        return MaskedWords(encoder, pairs=self.next_sentence)
