"""The configuration of `span`."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sightline.models.heads import SpanHead
from sightline.tasks.configs.base import TextTaskConfig, fitted_to_pairs
from sightline.text.tokeniser import TokeniserConfig


def _words() -> TokeniserConfig:
    return TokeniserConfig(method="bpe", vocab_size=8000)


@dataclass(frozen=True)
class SpanConfig(TextTaskConfig):
    """``max_length``: a longer question and text are read in windows of the text, which share ``overlap`` tokens.

    ``longest_answer`` is the most tokens of an answer.
    """

    tokeniser: TokeniserConfig = field(default_factory=_words)
    metric: Literal["f1", "exact"] = "f1"
    max_length: int = 384
    overlap: int = 128
    longest_answer: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlap < 0 or self.longest_answer < 1:
            raise ValueError(
                f"overlap is {self.overlap} and longest_answer {self.longest_answer}; at least 0 and at least 1"
            )

    def fitted(self, input: Any, output: Any, new: bool) -> "SpanConfig":
        return replace(self, model=fitted_to_pairs(self.model)) if new else self

    def build(self, input: Any, output: Any) -> SpanHead:
        return SpanHead(self.model.build(input.reader.words, input.reader.specials), self.dropout, none=True)
