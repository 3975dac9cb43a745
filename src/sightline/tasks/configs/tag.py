"""The configuration of `tag`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from sightline.models.attentive import AttentiveConfig
from sightline.models.crf import CrfTags
from sightline.models.heads import Labeller, build_labeller
from sightline.models.text_to_labels import TextModelConfig
from sightline.nn.annotating import LOUD
from sightline.tasks.configs.base import TextTaskConfig
from sightline.text.tokeniser import TokeniserConfig


def _attentive() -> TextModelConfig:
    return AttentiveConfig(init_std=LOUD)


def _pieces() -> TokeniserConfig:
    # Capitals and endings are informative: names, parts of speech.
    return TokeniserConfig(method="bpe", vocab_size=8000)


@dataclass(frozen=True)
class TagConfig(TextTaskConfig):
    """``metric`` is by default F1 of spans if labels mark them (B-PER, I-PER), else the accuracy of words.

    ``max_length``: longer sentences are read in windows. ``smoothing`` is label smoothing in training. ``crf``: scores
    of neighbouring tags are learnt too (`sightline.models.crf`).
    """

    model: TextModelConfig = field(default_factory=_attentive)
    tokeniser: TokeniserConfig = field(default_factory=_pieces)
    metric: Literal["span_f1", "accuracy", "macro_f1"] | None = None
    smoothing: float = 0.0
    crf: bool = False
    shares: ClassVar[tuple[str, ...]] = ("dropout", "smoothing")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.crf and self.smoothing:
            raise ValueError("a CRF has no label smoothing; set smoothing=0 or crf=false")

    def build(self, input: Any, output: Any) -> Labeller:
        model = self.model.build(input.reader.words, input.reader.specials)
        if self.crf:
            return CrfTags(model, output.labels.classes, self.dropout)
        return build_labeller("tag_each", model, output.labels.classes, smoothing=self.smoothing, dropout=self.dropout)
