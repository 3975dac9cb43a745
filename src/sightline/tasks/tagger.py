"""A trained model that gives each word a label: predict, score, save and load."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from sightline.config import Config
from sightline.data.checking import Limits
from sightline.data.tagged import CheckedSentences, Sentence, TaggedFile, TagReport, read_tagged
from sightline.data.texts import TextReader
from sightline.errors import UserError
from sightline.interop.pretrained_tokens import PretrainedTokeniser
from sightline.tasks.classifier import (
    BATCH_TOKENS,
    TOKENISER,
    about_reader,
    load_labeller,
    load_reader,
    text_batches,
    to_texts,
)
from sightline.tasks.classify_data import in_training
from sightline.tasks.labels import UNSEEN, Labels
from sightline.tasks.loading import Saved
from sightline.tasks.starting import TAG
from sightline.tasks.windows import owners, windows
from sightline.training import scores
from sightline.training.folder import MODEL, RunFolder, save_tensors

TagMetric = Literal["span_f1", "accuracy", "macro_f1"]
OVERLAP = 64  # tokens that two stretches of a long sentence share


class TagPrediction(NamedTuple):
    """The words of a sentence, a label for each, and how likely each label is."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]


class Cut(NamedTuple):
    """Part of a sentence as a model reads it: its tokens with start and end, and where the first piece of each word is.

    ``first`` and ``behind`` are its words.
    """

    tokens: list[int]
    places: list[int]
    first: int
    behind: int


def cut_words(reader: TextReader, sentences: Sequence[Sequence[str]], longest: int, overlap: int) -> list[list[Cut]]:
    """Sentences of words as stretches of at most ``longest`` tokens.

    Each word is cut into pieces by itself, as it would be inside a text, so that it is known which pieces are its own.
    """
    tokeniser, specials = reader.tokeniser, reader.specials
    # Byte-level vocabularies have one piece for a word behind a space and another for it at the very beginning.
    space = " " if isinstance(tokeniser, PretrainedTokeniser) and tokeniser.of_bytes else ""
    room = longest - 2
    pieces = tokeniser.encode([space + word for words in sentences for word in words])
    found, done = [], 0
    for words in sentences:
        # A word that the tokeniser makes nothing of still has a label.
        own = [one[:room] or [specials.unknown] for one in pieces[done : done + len(words)]]
        done += len(words)
        cuts = []
        for first, behind in windows([len(one) for one in own], room, min(overlap, room // 2)):
            tokens, places = [specials.start], list[int]()
            for one in own[first:behind]:
                places.append(len(tokens))
                tokens += one
            cuts.append(Cut([*tokens, specials.end], places, first, behind))
        found.append(cuts)
    return found


class Tagger:
    """A model with its tokeniser and its labels. Sentences of more than ``longest`` tokens are read in stretches."""

    def __init__(
        self,
        model: nn.Module,
        reader: TextReader,
        labels: Labels,
        longest: int,
        name: str = "the model",
        run: Path | None = None,
    ) -> None:
        self.model, self.reader, self.labels, self.longest = model, reader, labels, longest
        self.name, self.run = name, run

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def spans(self) -> bool:
        """Whether the labels mark spans (B-PER, I-PER), so that spans are counted."""
        return scores.are_spans(self.labels.names)

    def predict(self, sentences: Sequence[str | Sequence[str]], **options: Any) -> list[TagPrediction]:
        """A label for each word of each sentence; words of a text are what stands between blanks."""
        if isinstance(sentences, str):
            raise UserError("sentences is one text; expected a list of sentences")
        split = [tuple(one.split() if isinstance(one, str) else one) for one in sentences]
        return [
            self._read(words, chances) for words, chances in zip(split, self.chances(split, **options), strict=True)
        ]

    def _read(self, words: tuple[str, ...], chances: np.ndarray) -> TagPrediction:
        best = chances.argmax(axis=1)
        likely = np.exp(chances[np.arange(len(words)), best])
        return TagPrediction(words, tuple(self.labels.names[i] for i in best.tolist()), tuple(likely.tolist()))

    @torch.inference_mode()
    def chances(
        self,
        sentences: Sequence[Sequence[str]],
        *,
        batch_tokens: int = BATCH_TOKENS,
        on_predicted: Callable[[int], None] = lambda count: None,
    ) -> list[np.ndarray]:
        """The logarithm of the probability of each label, for each word of each sentence (``words classes``)."""
        if batch_tokens < 1:
            raise UserError(f"batch_tokens is {batch_tokens}; it must be at least 1")
        found = [np.zeros((len(words), self.labels.classes)) for words in sentences]
        cut = cut_words(self.reader, sentences, self.longest, OVERLAP)
        jobs = [
            (sentence, one, owned)
            for sentence, cuts in enumerate(cut)
            for one, owned in zip(cuts, owners([(each.first, each.behind) for each in cuts]), strict=True)
        ]
        in_training_mode = self.model.training
        self.model.eval()
        try:
            for chosen in text_batches([len(one.tokens) for _, one, _ in jobs], batch_tokens):
                texts = to_texts(*self.reader.pad([jobs[i][1].tokens for i in chosen]), self.device)
                logits = torch.log_softmax(self.model.scores(texts).double(), dim=-1).cpu().numpy()  # type: ignore[operator]
                for row, job in enumerate(chosen):
                    sentence, one, (start, end) = jobs[job]
                    places = one.places[start - one.first : end - one.first]
                    found[sentence][start:end] = logits[row, places]
                on_predicted(sum(jobs[job][1].first == 0 for job in chosen))
        finally:
            self.model.train(in_training_mode)
        return found

    def too_long(self, sentences: Sequence[Sequence[str]]) -> int:
        """How many sentences are read in stretches."""
        return sum(len(cuts) > 1 for cuts in cut_words(self.reader, sentences, self.longest, OVERLAP))

    def evaluate(self, data: str | Path | Sequence[Sentence], **options: Any) -> "TagEvaluation":
        """Every score on labelled sentences: a file, or the sentences."""
        if isinstance(data, str | Path):
            data = read_sentences(TaggedFile(str(data)))[0]
        return evaluate(self, data, **options)


def read_sentences(files: TaggedFile, limits: Limits | None = None) -> tuple[list[Sentence], TagReport]:
    """The good sentences of a file, and what was left out."""
    reading = CheckedSentences(read_tagged(files), limits)
    return list(reading), reading.report


class TagValues(NamedTuple):
    """Scores, of spans where the tags mark them, and the table of labels or kinds of spans."""

    values: dict[str, float]
    table: list[scores.OfClass]


def measure(labels: Labels, said: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> TagValues:
    """Token accuracy always; F1 of spans where all tags mark spans, else macro-F1 of labels. What training did not have
    counts as wrong."""
    values = {"accuracy": scores.token_accuracy(said, gold).value}
    if scores.are_spans([*labels.names, *(tag for tags in gold for tag in tags)]):
        return TagValues({"span_f1": scores.span_f1(said, gold).value, **values}, scores.span_table(said, gold))
    names = [*labels.names, *labels.unseen([tag for tags in gold for tag in tags])]
    place = {name: i for i, name in enumerate(names)}
    flat_said, flat_gold = (np.array([place[tag] for tags in side for tag in tags]) for side in (said, gold))
    values["macro_f1"] = scores.macro_f1(flat_said, flat_gold, len(names)).value
    return TagValues(values, scores.per_class(scores.confusion(flat_said, flat_gold, len(names)), tuple(names)))


def mean_loss(labels: Labels, chances: Sequence[np.ndarray], gold: Sequence[Sequence[str]]) -> float:
    """−log p of the right label, over the words whose label training had."""
    total, count = 0.0, 0
    for rows, tags in zip(chances, gold, strict=True):
        ids = np.array([labels.index(tag) for tag in tags])
        known = np.flatnonzero(ids != UNSEEN)
        total, count = total - float(rows[known, ids[known]].sum()), count + len(known)
    return total / count if count else float("nan")


@dataclass(frozen=True)
class TagEvaluation:
    """Predictions for sentences, and every score of them. ``without``: of sentences that training did not have."""

    sentences: list[Sentence]
    predictions: list[TagPrediction]
    values: dict[str, float]
    table: list[scores.OfClass]
    unseen: dict[str, int]
    seen: int | None
    without: dict[str, float] | None
    too_long: int
    seconds: float

    @property
    def words(self) -> int:
        return sum(len(sentence.words) for sentence in self.sentences)

    def worst(self, count: int) -> list[dict[str, Any]]:
        """The sentences with the most words wrong."""
        wrong = [
            sum(a != b for a, b in zip(one.tags, sentence.tags, strict=True))
            for one, sentence in zip(self.predictions, self.sentences, strict=True)
        ]
        order = sorted((row for row, errors in enumerate(wrong) if errors), key=lambda row: -wrong[row])
        return [self._row(row) for row in order[:count]]

    def _row(self, row: int) -> dict[str, Any]:
        sentence, found = self.sentences[row], self.predictions[row]
        return {"words": sentence.words, "tags": sentence.tags, "prediction": found.tags}

    def rows(self) -> list[dict[str, Any]]:
        """Every sentence with its prediction."""
        return [self._row(row) for row in range(len(self.sentences))]

    def to_json(self, errors: int = 0) -> dict[str, Any]:
        """Everything but the predictions; with ``errors``, that many of the worst."""
        found: dict[str, Any] = {"sentences": len(self.sentences), "words": self.words, **self.values}
        if self.seen is not None:
            found["in_training"] = self.seen
        if self.without is not None:
            found["without_training_sentences"] = self.without
        if self.unseen:
            found["unseen_labels"] = self.unseen
        found |= {"per_label": [vars(one) for one in self.table], "in_stretches": self.too_long}
        return found | ({"errors": self.worst(errors)} if errors else {})


def evaluate(
    tagger: Tagger, sentences: Sequence[Sentence], *, on_predicted: Callable[[int], None] = lambda count: None
) -> TagEvaluation:
    """Every score of a model on sentences, with and without those that it was trained on."""
    if not sentences:
        raise UserError("there is no sentence to score; expected at least one")
    started = time.perf_counter()
    words = [sentence.words for sentence in sentences]
    found = tagger.predict(words, on_predicted=on_predicted)
    seconds = time.perf_counter() - started
    said, gold = [one.tags for one in found], [sentence.tags for sentence in sentences]
    measured = measure(tagger.labels, said, gold)
    flags = None if tagger.run is None else in_training(tagger.run, [one.as_example() for one in sentences])
    without = None
    if flags is not None and flags.any() and not flags.all():
        rows = np.flatnonzero(~flags).tolist()
        without = measure(tagger.labels, [said[row] for row in rows], [gold[row] for row in rows]).values
    return TagEvaluation(
        list(sentences),
        found,
        measured.values,
        measured.table,
        tagger.labels.unseen([tag for tags in gold for tag in tags]),
        None if flags is None else int(flags.sum()),
        without,
        tagger.too_long(words),
        seconds,
    )


def save_tagger(folder: RunFolder, tagger: Tagger, config: Config, weights: str) -> None:
    """Everything that `load_tagger` needs."""
    save_tensors(folder.path / MODEL, dict(tagger.model.state_dict()))
    tagger.reader.tokeniser.save(folder.path / TOKENISER)
    tagger.labels.save(folder)
    about = {"task": TAG, "weights": weights, **about_reader(tagger.reader)}
    folder.write_config({**about, "config": config.to_json()})


def load_tagger(path: Path) -> tuple[Tagger, dict[str, Any]]:
    """A trained model from its run folder, checked file by file; or as it was at one of the run's checkpoints."""
    from sightline.tasks.tag import TagConfig

    saved = Saved.open(path, TAG)
    data = saved.about
    labels, reader = Labels.load(saved.path), load_reader(saved.path, data)
    with saved.reading():
        config = TagConfig.from_json(data["config"])
    model = load_labeller(saved, lambda: config.build(labels, reader), config.lora)
    return Tagger(model, reader, labels, config.longest, saved.name, saved.path), data
