"""What one trained model and several together can do: predict, give the best few, translate documents."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sightline.data.sentences import joining_space, split_sentences
from sightline.data.tokenise import Tokeniser
from sightline.errors import UserError
from sightline.machine import one_thread
from sightline.models.text_to_text import TextToText
from sightline.outputs.sequence import BATCH_TOKENS
from sightline.outputs.sequence_search import SMALL, Prediction, asking
from sightline.search import ensemble
from sightline.tasks.searching import SearchConfig, pad
from sightline.tasks.unknown import Word, attended_words, words_of, written_out
from sightline.vocabulary import END, UNKNOWN


class Member(NamedTuple):
    """A model with its tokenisers, and the name it goes by in errors."""

    model: TextToText
    source: Tokeniser
    target: Tokeniser
    name: str


class Predictor(ABC):
    """Texts in, texts out, by the models of its members. Each reads the source with its own tokeniser."""

    @property
    @abstractmethod
    def members(self) -> tuple[Member, ...]:
        """The models, which all write with one vocabulary."""

    def predict(
        self,
        texts: Sequence[str],
        *,
        prefixes: Sequence[str] | None = None,
        batch_tokens: int = BATCH_TOKENS,
        keep_unknown: bool = False,
        **options: Any,
    ) -> list[Prediction]:
        """The best output of each text, in the order of the texts. An empty text gives an empty output.

        Options are the fields of `SearchConfig`, such as ``beam`` and ``max_length``; the rest is `search`'s.
        """
        config = SearchConfig(**options)
        found = self.search(texts, config, prefixes=prefixes, batch_tokens=batch_tokens, keep_unknown=keep_unknown)
        return [some[0] for some in found]

    def predict_best(
        self,
        texts: Sequence[str],
        best: int,
        *,
        prefixes: Sequence[str] | None = None,
        batch_tokens: int = BATCH_TOKENS,
        keep_unknown: bool = False,
        **options: Any,
    ) -> list[list[Prediction]]:
        """The ``best`` outputs of each text (fewer where there are not so many), likeliest first; else as `predict`."""
        config = SearchConfig(best=best, **options)
        return self.search(texts, config, prefixes=prefixes, batch_tokens=batch_tokens, keep_unknown=keep_unknown)

    def predict_documents(
        self,
        texts: Sequence[str],
        *,
        batch_tokens: int = BATCH_TOKENS,
        keep_unknown: bool = False,
        going: Callable[[], None] | None = None,
        **options: Any,
    ) -> list[Prediction]:
        """Texts of any length, sentence by sentence; what stood between the sentences stands there again.

        The log-probability and the score of a text are the sums of its sentences'. Options as for `predict`.
        """
        documents = [split_sentences(text) for text in texts]
        sentences = [sentence for document in documents for sentence, _ in document]
        config = SearchConfig(**options)
        searched = self.search(sentences, config, batch_tokens=batch_tokens, keep_unknown=keep_unknown, going=going)
        found = iter(some[0] for some in searched)
        return [_joined([(next(found), blank) for _, blank in document]) for document in documents]

    @torch.inference_mode()
    def search(
        self,
        texts: Sequence[str],
        config: SearchConfig,
        *,
        prefixes: Sequence[str] | None = None,
        batch_tokens: int = BATCH_TOKENS,
        keep_unknown: bool = False,
        going: Callable[[], None] | None = None,
    ) -> list[list[Prediction]]:
        """The best outputs of each text, likeliest first.

        ``prefixes``, one for each text, are what the outputs begin with. Their tokens are forced as the target's
        tokeniser cuts them, so a prefix should end where a word ends, without a space: the next word brings its own.
        ``batch_tokens`` bounds memory: tokens of sources × hypotheses that are in work together, or one text alone.
        ``keep_unknown``: what a vocabulary of words cannot write stays ``<unk>``; else it is copied from the source.
        ``going`` is called before every step: what it raises ends the search.
        """
        if isinstance(texts, str):
            raise UserError("texts is one text; expected a list of texts")
        if batch_tokens < 1:
            raise UserError(f"batch_tokens is {batch_tokens}; it must be at least 1")
        prefixes = [""] * len(texts) if prefixes is None else prefixes
        if len(prefixes) != len(texts):
            raise UserError(f"prefixes has {len(prefixes)} entries; expected {len(texts)}, one for each text")
        encoded = list(zip(*(member.source.encode(list(texts)) for member in self.members), strict=True))
        tasks = [_Task(*parts) for parts in zip(texts, prefixes, encoded, strict=True)]
        found = [[Prediction("", 0.0, 0.0)] for _ in tasks]
        generator = config.generator(next(self.members[0].model.parameters()).device)
        with evaluating([member.model for member in self.members]):
            for chosen in source_batches([task.length for task in tasks], config.width, batch_tokens):
                with one_thread() if self._is_small(len(chosen) * config.width) else nullcontext():
                    outputs = self._search_batch([tasks[i] for i in chosen], config, generator, keep_unknown, going)
                for i, some in zip(chosen, outputs, strict=True):
                    found[i] = some
        return found

    def _is_small(self, hypotheses: int) -> bool:
        """Whether a step is so little work that one thread does it best: its largest product is the output layer."""
        weight = self.members[0].model.output.weight
        return weight.device.type == "cpu" and hypotheses * weight.numel() < SMALL

    def _search_batch(
        self,
        tasks: list["_Task"],
        config: SearchConfig,
        generator: torch.Generator,
        keep_unknown: bool,
        going: Callable[[], None] | None,
    ) -> list[list[Prediction]]:
        steps, states = [], []
        for member, sources in zip(self.members, zip(*(task.sources for task in tasks), strict=True), strict=True):
            step, state = member.model.searching(_source(sources, generator.device))
            steps.append(step)
            states.append(state)
        alone = len(steps) == 1  # the mean of one is itself, and takes time
        step, state = (steps[0], states[0]) if alone else (ensemble(steps), tuple(states))
        if going is not None:
            step = asking(step, going)
        target = self.members[0].target
        prefixes = [task.prefix for task in tasks]
        forced = [[] for _ in prefixes] if all(prefix == "" for prefix in prefixes) else target.encode(prefixes)
        found = config.find(step, state, [task.length for task in tasks], forced, generator)
        rows = [row for row, some in enumerate(found) for _ in some]
        hypotheses = [one for some in found for one in some]
        texts = target.decode([one.tokens for one in hypotheses])
        if target.of_words and not keep_unknown:
            unknown = [i for i, one in enumerate(hypotheses) if UNKNOWN in one.tokens]
            outputs = [hypotheses[i].tokens for i in unknown]
            for i, text in zip(unknown, self._copied(outputs, [tasks[rows[i]] for i in unknown]), strict=True):
                texts[i] = text
        reading = iter(texts)
        return [
            [Prediction(next(reading), one.log_prob, one.score, tuple(one.tokens)) for one in some] for some in found
        ]

    def _copied(self, outputs: list[list[int]], tasks: list["_Task"]) -> list[str]:
        """Outputs with words of their sources in the place of unknown ones, or of their prefixes inside those."""
        if not outputs:
            return []
        target = self.members[0].target
        attended: list[list[Word | None]] = [[] for _ in outputs]
        for member, sources in zip(self.members, zip(*(task.sources for task in tasks), strict=True), strict=True):
            if member.source.of_words and not any(attended):  # the first model that looks at its source decides
                words = [words_of(member.source, task.text) for task in tasks]
                begun = member.model.begin(_source(sources, next(member.model.parameters()).device))
                attended = attended_words(member.model, outputs, begun, words)
        texts = []
        for task, tokens, found in zip(tasks, outputs, attended, strict=True):
            given = words_of(target, task.prefix)
            copied = dict(enumerate([*given, *found[len(given) :]]))
            unknown = [place for place, token in enumerate(tokens) if token == UNKNOWN]
            chosen = {place: word for place in unknown if (word := copied.get(place)) is not None}
            texts.append(written_out(target, tokens, chosen))
        return texts


def _source(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Sources as models read them: with their ends, padded."""
    return pad([[*tokens, END] for tokens in rows]).to(device)


class _Task(NamedTuple):
    """A text to translate: as it is, with what the output must begin with, and as the tokens of each member."""

    text: str
    prefix: str
    sources: tuple[list[int], ...]

    @property
    def length(self) -> int:
        return max(map(len, self.sources))


def source_batches(lengths: Sequence[int], width: int, batch_tokens: int) -> Iterator[list[int]]:
    """Texts of one length together, the longest first: a batch is as long as its longest. Empty ones are left out."""
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        rows = max(1, batch_tokens // (width * (lengths[order[start]] + 8)))
        yield order[start : start + rows]
        start += rows


@contextmanager
def evaluating(models: Sequence[TextToText]) -> Iterator[None]:
    """Without dropout, and as before afterwards."""
    in_training = [model for model in models if model.training]  # the others need no walk over all of their parts
    for model in in_training:
        model.eval()
    try:
        yield
    finally:
        for model in in_training:
            model.train()


def _joined(sentences: Sequence[tuple[Prediction, str]]) -> Prediction:
    """Sentences and the blanks behind them as one text."""
    text = ""
    for number, (sentence, blank) in enumerate(sentences, start=1):
        text += sentence.text + (blank or (joining_space(sentence.text) if number < len(sentences) else ""))
    log_prob, score = (sum((getattr(one, name) for one, _ in sentences), 0.0) for name in ("log_prob", "score"))
    return Prediction(text, log_prob, score)


class Ensemble(Predictor):
    """Predicts as `Translator` does. The models may differ in everything but the vocabulary they write with."""

    def __init__(self, translators: Sequence[Predictor]) -> None:
        self._members = tuple(member for translator in translators for member in translator.members)
        if not self._members:
            raise UserError("an ensemble needs at least one model")
        first, *others = self._members
        for other in others:
            if not first.target.same_as(other.target):
                raise UserError(
                    f"{first.name} and {other.name} write with different vocabularies; models of an ensemble must be "
                    f"trained with the same tokeniser, as `sightline train --from {first.name}` does"
                )

    @property
    def members(self) -> tuple[Member, ...]:
        return self._members
