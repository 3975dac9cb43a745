"""What a search gives of an item, and the options of predicting a sequence of tokens."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sightline.decoding.options import SearchConfig
from sightline.decoding.search import Step
from sightline.errors import UserError
from sightline.metrics import BleuTokeniser
from sightline.state import State
from sightline.tasks.task import PredictOptions
from sightline.text.sentences import joining_space
from sightline.vocabulary import UNKNOWN

SMALL = 1 << 19  # multiplications in the output layer, for all hypotheses of a step


class Prediction(NamedTuple):
    """A text, its log-probability, the score that it was ranked by, and the tokens that it was written with.

    ``others`` are the next best ones, where ``best`` is above 1; ``more`` are other fields for JSON.
    """

    text: str
    log_prob: float
    score: float
    tokens: tuple[int, ...] = ()
    others: tuple["Prediction", ...] | None = None
    more: Mapping[str, object] | None = None

    @property
    def all(self) -> list["Prediction"]:
        """With the next best ones, the likeliest first."""
        return [self._replace(others=None), *(self.others or ())]


class Searched(NamedTuple):
    """The best outputs of an item, likeliest first; the loss of its targets, if given, and how many tokens that is."""

    predictions: list[Prediction]
    loss: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class SequenceOptions(SearchConfig, PredictOptions):
    """How to search (`SearchConfig`), and what every output must begin with.

    A ``prefix`` (or one for each item) is forced as the tokeniser cuts it, so it should end where a word ends, without
    a space: the next word brings its own. ``split`` reads texts sentence by sentence. ``keep_unknown``: what a
    vocabulary of words cannot write stays ``<unk>``; else it is copied from the source. ``batch_tokens`` bounds memory:
    tokens of sources × hypotheses that are searched together. ``going`` is called before every step: an exception that
    it raises ends the search.
    """

    prefix: str = ""
    prefixes: Sequence[str] | None = None
    split: bool = False
    keep_unknown: bool = False
    going: Callable[[], None] | None = field(default=None, compare=False)
    targets: Sequence[Sequence[str]] | None = field(default=None, repr=False, metadata={"internal": True})

    def __post_init__(self) -> None:
        SearchConfig.__post_init__(self)
        PredictOptions.__post_init__(self)
        if self.split and self.best > 1:
            raise UserError("best above 1 and split do not go together: every sentence has outputs of its own")
        if self.split and (self.prefix or self.prefixes):
            raise UserError("prefix and split do not go together: a text has several sentences")

    def drawing(self, device: torch.device) -> torch.Generator:
        """The generator of samples: one for all batches of a call, so that they differ."""
        kept: dict[torch.device, torch.Generator] = self.__dict__.setdefault("_drawing", {})
        if device not in kept:
            kept[device] = self.generator(device)
        return kept[device]


def is_small(model: nn.Module, hypotheses: int) -> bool:
    """Whether a step is so little work that one thread does it best: its largest product is the output layer."""
    weight = getattr(getattr(model, "output", None), "weight", None)
    return weight is not None and weight.device.type == "cpu" and hypotheses * weight.numel() < SMALL


def conditioned(step: Step[State], going: Callable[[], None] | None, unknown: bool) -> Step[State]:
    """A step of search that calls ``going`` first, and without ``unknown`` never writes the unknown word."""

    def conditioned_step(tokens: Tensor, state: State) -> tuple[Tensor, State]:
        if going is not None:
            going()
        log_probs, state = step(tokens, state)
        if not unknown:
            log_probs[:, UNKNOWN] = -math.inf
        return log_probs, state

    return conditioned_step


def joined(sentences: Sequence[tuple[Searched, str]]) -> Searched:
    """Sentences and the blanks behind them as one text; log-probabilities and scores are added."""
    text, best = "", [one.predictions[0] for one, _ in sentences]
    for number, (one, (_, blank)) in enumerate(zip(best, sentences, strict=True), start=1):
        text += one.text + (blank or (joining_space(one.text) if number < len(sentences) else ""))
    log_prob, score = (sum((getattr(one, name) for one in best), 0.0) for name in ("log_prob", "score"))
    return Searched([Prediction(text, log_prob, score)])


class Scoring(NamedTuple):
    """How to score: BLEU's tokeniser, and whether to print scores by the length of the source."""

    bleu_tokenise: BleuTokeniser | None = None
    by_length: bool = False


def perplexity(raws: Sequence[Any]) -> float:
    """exp of the mean loss of a target token, without smoothing."""
    total, tokens = (sum(getattr(raw, name) for raw in raws) for name in ("loss", "tokens"))
    return math.exp(min(total / max(tokens, 1), 700))
