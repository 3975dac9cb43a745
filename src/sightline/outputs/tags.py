"""A label for each word: names, parts of speech, segmentation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from sightline import metrics
from sightline.data.columns import text_problem
from sightline.data.labelled import LONGEST_LABEL
from sightline.data.tagged import TagReport
from sightline.errors import UserError
from sightline.explain.explanation import Choice, Explanation, OutputStep
from sightline.inputs.base import Input
from sightline.inputs.words import Cut, Words, WordsInput, cut_words, piece_places, words_of
from sightline.models.crf import Allowed, CrfTags, allowed_tags, best_sequence
from sightline.models.heads import NOTHING
from sightline.models.text_to_labels import Texts
from sightline.outputs.base import Output, ranked_scores
from sightline.outputs.encoder_maps import Axes, TextWindow, axis_of, read_maps
from sightline.outputs.label_scores import LABELS, UNSEEN, Labels
from sightline.outputs.reports import NUMBER, TEXT, class_table, listed, listed_counts, structure
from sightline.outputs.simple_baselines import usual_tags
from sightline.records import Tokens
from sightline.tasks.card import Wording, table_section
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.explain import LIKELIEST, ExplainOptions
from sightline.tasks.prepare import Prepared, Rows, Setting, unseen_line
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import BadValueError, Example, PredictOptions
from sightline.text.encoding import owners
from sightline.text.words import Place, TextOffsets
from sightline.training.folder import RunFolder
from sightline.training.steps import to_device

TagRows = Sequence[Sequence[str]]  # the tags of sentences

# -- explanations: each word with its tag, the attention of the tag, and which words it depends on


def _window(run: Run, part: Cut, whole: Cut, own: tuple[int, int], ids: list[int]) -> TextWindow:
    """A stretch of the sentence; the words ``own`` are explained in it."""
    numbers = range(part.first, part.behind)
    ends = [*part.places[1:], len(part.tokens) - 1]
    words = {word: list(range(*span)) for word, span in zip(numbers, zip(part.places, ends, strict=True), strict=True)}
    columns = [0] * len(part.tokens)
    for word, tokens in words.items():
        columns[tokens[0] : tokens[-1] + 1] = range(whole.places[word], whole.places[word] + len(tokens))
    columns[-1] = len(whole.tokens) - 1
    places = part.places[own[0] - part.first : own[1] - part.first]
    model: Any = run.model

    def measure(texts: Texts) -> Tensor:
        return torch.log_softmax(model.scores(texts).double(), dim=-1)[:, places, ids]

    texts = to_device(run.input.collate([part]), run.device)
    return TextWindow(texts, columns, places, range(*own), words, measure)


def _placed(reading: WordsInput, x: Words, whole: Cut) -> TextOffsets:
    """The tokens in the sentence, words with blanks between them."""
    places: list[Place | None] = [None]
    words, at = list[list[int]](), 0
    ends = [*whole.places[1:], len(whole.tokens) - 1]
    for word, first, behind in zip(x, whole.places, ends, strict=True):
        words.append(list(range(first, behind)))
        spans = piece_places(reading.reader, word)[: behind - first] or [(0, len(word))]
        places += [Place(0, at + start, at + end) for start, end in spans]
        at += len(word) + 1
    return TextOffsets((" ".join(x),), whole.tokens, [*places, None], words, [], 0)


def _step(names: tuple[str, ...], tag: str, label: int, log_probs: np.ndarray) -> OutputStep:
    order = np.argsort(-log_probs, kind="stable")[:LIKELIEST].tolist()
    likeliest = tuple(Choice(names[one], float(np.exp(log_probs[one]))) for one in order)
    return OutputStep(tag, float(np.exp(log_probs[label])), likeliest)


Tags = tuple[str, ...]


class TagPrediction(NamedTuple):
    """The words of a sentence, a label for each, and how likely each label is."""

    words: Words
    tags: tuple[str, ...]
    probabilities: tuple[float, ...]


TagsInput = Input[Words, Cut, Texts]
TagsExamples = Sequence[Example[Words, Tags]]
TagsEvaluation = Evaluation[Words, Tags, np.ndarray, TagPrediction]


class TagsOutput(Output[Words, Tags, Cut, Texts, np.ndarray, TagPrediction, PredictOptions | None]):
    """Tags of words. Raw outputs are log-probabilities, ``words classes``."""

    noun = "tags"
    unit = "nats a word"
    answer = structure(
        "Tagged",
        "The words of a text, a label for each, and how likely each label is.",
        words=listed(TEXT),
        tags=listed(TEXT),
        probabilities=listed(NUMBER),
    )

    labels: Labels

    def __init__(self, config: TaskConfig, labels: Labels | None = None, strict: bool = False) -> None:
        """``strict``: the training data keeps the rules of its scheme, so predictions do too."""
        super().__init__(config)
        self.labels, self.strict = cast("Labels", labels), strict  # labels are None until it is fitted

    @cached_property
    def allowed(self) -> Allowed | None:
        """Which tags may follow each other, where the training data keeps to a scheme."""
        return allowed_tags(self.labels.names) if self.strict else None

    @property
    def spans(self) -> bool:
        """Whether the labels mark spans (B-PER, I-PER), so that spans are counted."""
        return metrics.are_spans(self.labels.names)

    def read(self, cells: Mapping[str, object], x: Words) -> tuple[str, ...]:
        tags = words_of(cells.get("tags"), "labels")
        if len(x) != len(tags):
            raise BadValueError(f"lengths differ: found {len(x)} words and {len(tags)} labels, expected as many")
        if not all(x) or not all(tags):
            raise BadValueError("missing label: found an empty word or label, expected both")
        for tag in tags:
            if len(tag) > LONGEST_LABEL:
                raise BadValueError(f"label too long: found {len(tag):,} characters, expected at most {LONGEST_LABEL}")
            if (problem := text_problem(tag, "the labels")) is not None:
                raise BadValueError(problem)
        return tags

    def document(self, cells: Mapping[str, object]) -> str | None:
        document = cells.get("document")
        return None if document is None else str(document)

    def report(self) -> TagReport:
        return TagReport()

    def strata(self, y: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(y))

    def unpack(self, row: Sequence[object]) -> tuple[str, ...]:
        return tuple(cast("list[str]", row[0]))

    def fit(self, input: TagsInput, rows: Rows[Words, Tags], setting: Setting) -> tuple[TagsInput, "TagsOutput"]:
        assert isinstance(rows.report, TagReport)
        names = sorted(rows.report.labels)
        counts = tuple(rows.report.labels[name] for name in names)
        labels = Labels("one", tuple(names), counts, columns=setting.source.columns)
        spans = metrics.are_spans(labels.names)
        if self.config.metric == ("macro_f1" if spans else "span_f1"):
            there = "span_f1 and accuracy" if spans else "accuracy and macro_f1: no label begins with B-"
            raise UserError(f"metric is {self.config.metric}; of these labels there is {there}")
        return input.fit(rows, setting), TagsOutput(setting.config, labels, spans and self._keeps_rules(rows, labels))

    @staticmethod
    def _keeps_rules(rows: Rows[Words, Tags], labels: Labels) -> bool:
        """Whether at most a hundredth of the spans break the rules of the scheme; in IOB1 most begin with I."""
        allowed, broken, spans = allowed_tags(labels.names), 0, 0
        for _, tags in rows:
            broken += allowed.breaks([labels.index(tag) for tag in tags])
            spans += len(metrics.spans_of(tags))
        return broken <= spans / 100

    def encode(self, x: Words, y: tuple[str, ...], parts: Sequence[Cut]) -> Iterator[tuple[Cut, list[int]]]:
        """For each token the label of its word and one, or 0 where it is no first piece."""
        ids = [self.labels.index(tag) + 1 for tag in y]
        for part in parts:
            gold = [0] * len(part.tokens)
            for place, label in zip(part.places, ids[part.first : part.behind], strict=True):
                gold[place] = label
            yield part, gold

    def collate(self, targets: Sequence[np.ndarray], batch: Texts) -> Tensor:
        gold = np.full(tuple(batch.words.shape), NOTHING, np.int64)
        for row, labels in enumerate(targets):
            gold[row, : len(labels)] = labels.astype(np.int64) - 1
        return torch.from_numpy(gold)

    def counted(self, batch: tuple[object, ...]) -> int:
        """Words, each counted once however many pieces it has."""
        return int((cast("Tensor", batch[1]) != NOTHING).sum())

    def outputs(
        self, run: Run, xs: Sequence[Words], parts: Sequence[Cut], batch: Texts, options: PredictOptions | None
    ) -> list[np.ndarray]:
        logits = run.model.scores(batch).double()  # type: ignore[operator]
        of_words = [logits[row, part.places] for row, part in enumerate(parts)]
        model = run.model
        if isinstance(model, CrfTags):
            return [model.log_marginals(one).cpu().numpy() for one in of_words]
        return [torch.log_softmax(one, dim=-1).cpu().numpy() for one in of_words]

    def merge(self, x: Words, parts: Sequence[Cut], outputs: Sequence[np.ndarray]) -> np.ndarray:
        whole = np.zeros((len(x), self.labels.classes))
        kept = owners([(one.first, one.behind) for one in parts])
        for part, own, (start, end) in zip(parts, outputs, kept, strict=True):
            whole[start:end] = own[start - part.first : end - part.first]
        return whole

    def decide(self, x: Words, raw: np.ndarray, options: PredictOptions | None = None) -> TagPrediction:
        best = raw.argmax(axis=1) if self.allowed is None or not len(x) else best_sequence(raw, self.allowed)
        likely = np.exp(raw[np.arange(len(x)), best])
        return TagPrediction(x, tuple(self.labels.names[i] for i in best.tolist()), tuple(likely.tolist()))

    def validate(self, run: Run, raws: Sequence[np.ndarray], examples: TagsExamples) -> dict[str, float]:
        predictions = [self.decide(one.x, raw) for one, raw in zip(examples, raws, strict=True)]
        values = self.scores_of(self.statistics(run, examples, predictions, raws), None)
        first = self.config.metric or ("span_f1" if "span_f1" in values else "accuracy")
        if first not in values:
            raise UserError(f"metric is {first}; of these labels there is {', '.join(values)}")
        return ranked_scores(first, {"valid_loss": self._loss(raws, [one.y for one in examples])}, values)

    def _loss(self, raws: Sequence[np.ndarray], gold: TagRows) -> float:
        """−log p of the right label, over the words whose label training had."""
        total, count = 0.0, 0
        for rows, tags in zip(raws, gold, strict=True):
            ids = np.array([self.labels.index(tag) for tag in tags])
            known = np.flatnonzero(ids != UNSEEN)
            total, count = total - float(rows[known, ids[known]].sum()), count + len(known)
        return total / count if count else float("nan")

    def statistics(
        self, run: Run, examples: TagsExamples, predictions: Sequence[TagPrediction], raws: Sequence[np.ndarray]
    ) -> dict[str, metrics.Statistics]:
        """Token accuracy always; F1 of spans where all tags mark spans, else macro-F1 of labels. What training did not
        have counts as wrong."""
        predicted, gold = [one.tags for one in predictions], [one.y for one in examples]
        accuracy = {"accuracy": metrics.token_accuracy.statistics(predicted, gold)}
        if metrics.are_spans([*self.labels.names, *(tag for tags in gold for tag in tags)]):
            return {"span_f1": metrics.span_f1.statistics(predicted, gold), **accuracy}
        given, right, names = self._flat(predicted, gold)
        words = metrics.macro_f1.statistics(given, right, len(names))
        starts = np.cumsum([0, *map(len, gold)])[:-1]
        return {**accuracy, "macro_f1": replace(words, rows=np.add.reduceat(words.rows, starts, axis=0))}

    def _flat(self, predicted: TagRows, gold: TagRows) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
        """The classes of all words, predicted and right, and the names of the classes."""
        names = (*self.labels.names, *self.labels.unseen([tag for tags in gold for tag in tags]))
        place = {name: i for i, name in enumerate(names)}
        given, right = (np.array([place[tag] for tags in side for tag in tags]) for side in (predicted, gold))
        return given, right, names

    def _table(self, predicted: TagRows, gold: TagRows) -> list[metrics.OfClass]:
        if metrics.are_spans([*self.labels.names, *(tag for tags in gold for tag in tags)]):
            return metrics.span_table(predicted, gold)
        given, right, names = self._flat(predicted, gold)
        return metrics.per_class(metrics.confusion(given, right, len(names)), names)

    @property
    def compared(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("span_f1", "accuracy") if self.spans else ("accuracy", "macro_f1")

    def baseline_facts(self, input: TagsInput, rows: Rows[Words, Tags]) -> dict[str, object]:
        return usual_tags(rows)

    def baseline_predictions(
        self, run: Run, examples: TagsExamples, facts: Mapping[str, object]
    ) -> dict[str, list[TagPrediction]]:
        if not facts:
            return {}
        usual, other = cast("dict[str, str]", facts["words"]), cast("str", facts["any"])
        rows = [tuple(usual.get(word, other) for word in one.x) for one in examples]
        tagged = [TagPrediction(one.x, tags, (1.0,) * len(tags)) for one, tags in zip(examples, rows, strict=True)]
        return {"the usual tag of each word": tagged}

    def columns(self) -> tuple[str, ...] | None:
        return self.labels.columns

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        self.labels.save(RunFolder(folder))
        return {"strict_tags": self.strict}, [LABELS]

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: TagsInput) -> "TagsOutput":
        return cls(config, Labels.load(saved.path), saved.about.get("strict_tags") is True)

    def notes(self, prepared: Prepared[Words, Tags]) -> list[str]:
        return unseen_line(self.labels.unseen([tag for one in prepared.valid for tag in one.y]))

    def finished(self, evaluation: TagsEvaluation, scoring: object) -> TagsEvaluation:
        predicted, gold = [one.tags for one in evaluation.predictions], [one.y for one in evaluation.examples]
        parts = evaluation.run.input.encode([one.x for one in evaluation.examples])
        evaluation.extra.update(
            table=self._table(predicted, gold),
            unseen=self.labels.unseen([tag for tags in gold for tag in tags]),
            words=sum(map(len, gold)),
            in_stretches=sum(len(some) > 1 for some in parts),
        )
        return evaluation

    def scores_json(self, evaluation: TagsEvaluation) -> dict[str, object]:
        return {"words": evaluation.extra["words"], **evaluation.values}

    def summary(self, evaluation: TagsEvaluation) -> dict[str, object]:
        extra: Any = evaluation.extra
        unseen = {"unseen_labels": extra["unseen"]} if extra["unseen"] else {}
        table = [vars(one) for one in extra["table"]]
        return {**unseen, "per_label": table, "in_stretches": extra["in_stretches"]}

    def tables(self, evaluation: TagsEvaluation) -> list[Table | str]:
        extra: Any = evaluation.extra
        lines: list[Table | str] = []
        if extra["unseen"]:
            named = listed_counts(extra["unseen"])
            total = f"{sum(extra['unseen'].values()):,} of {extra['words']:,} words"
            lines.append(f"labels that training did not have, on {total}, counted as wrong: {named}")
        if self.spans and "span_f1" not in evaluation.values:
            lines.append("not all of these labels mark spans: words are counted, and no spans")
        if count := extra["in_stretches"]:
            longest = self.config.max_length
            lines.append(f"{count:,} sentences have more than {longest:,} tokens: they were read in stretches")
        first = "kind" if "span_f1" in evaluation.values else "label"
        return [*lines, class_table(extra["table"], first, "there")]

    def badness(self, evaluation: TagsEvaluation) -> list[float]:
        return [
            float(sum(a != b for a, b in zip(one.tags, example.y, strict=True)))
            for one, example in zip(evaluation.predictions, evaluation.examples, strict=True)
        ]

    def shown_error(self, row: Mapping[str, object]) -> str:
        triples = zip(*(cast("Tags", row[name]) for name in ("words", "tags", "prediction")), strict=True)
        return "\n" + "\n".join(
            f"   {word}\t{given}" + ("" if right == given else f"\tright is {right}") for word, right, given in triples
        )

    def card(self, run: Run, prepared: Prepared[Words, Tags], raws: Sequence[np.ndarray], folder: Path) -> Wording:
        predicted = [self.decide(one.x, raw).tags for one, raw in zip(prepared.valid, raws, strict=True)]
        table = self._table(predicted, [one.y for one in prepared.valid])
        first, counted = ("kind", "spans") if self.spans else ("label", "words")
        return Wording(
            "that gives each word a label",
            "sentences",
            "On validation data.",
            limits=(
                "It gives every word one of its labels, also where none of them is right.",
                "Where it looked is not why it decided: attention is a picture of the computation, not an explanation.",
            ),
            sections=tuple(table_section("Spans" if self.spans else "Labels", first, counted, table)),
        )

    def explain(self, run: Run, x: Words, options: ExplainOptions) -> Explanation:
        """Everything there is to show about the tags of a sentence; ``options.output`` is a tag to explain instead."""
        reading, model, labels = run.input, run.model, self.labels
        assert isinstance(reading, WordsInput)
        if not x:
            raise UserError("there is nothing to explain: the sentence has no words")
        if options.output is not None and options.output not in labels.names:
            raise UserError(f"{run.name} has no tag {options.output!r}; it has {', '.join(labels.names[:10])}")
        raw = cast("np.ndarray", run.raw([x], options=self.options({}))[0])
        tags = self.decide(x, raw).tags
        explained = tags if options.output is None else (options.output,) * len(x)
        ids = [labels.index(tag) for tag in explained]
        whole, parts = cut_words(reading.reader, [x], 1 << 30, 0)[0][0], reading.encode([x])[0]
        windows = [
            _window(run, part, whole, (start, end), ids[start:end])
            for part, (start, end) in zip(parts, owners([(one.first, one.behind) for one in parts]), strict=True)
        ]
        rows = Tokens(tuple(f"{word} {tag}" for word, tag in zip(x, explained, strict=True)))
        axes = Axes(rows, axis_of(reading.reader, _placed(reading, x, whole)), Tokens(x), "tag", "sentence")
        maps = read_maps(model, model.model, windows, axes, options)  # type: ignore[arg-type]
        notes = ["a row is a word with its tag: what its first piece attends to"] if maps.main is not None else []
        if len(parts) > 1:
            notes.append(f"the sentence has more than {reading.config.max_length:,} tokens: it was read in stretches")
        return maps.explanation(
            run,
            notes,
            input=" ".join(x),
            output=" ".join(f"{word}/{tag}" for word, tag in zip(x, tags, strict=True)),
            steps=tuple(_step(labels.names, *one) for one in zip(explained, ids, raw, strict=True)),
        )

    def line(self, x: Words, prediction: TagPrediction) -> str:
        return "".join(f"{word}\t{tag}\n" for word, tag in zip(prediction.words, prediction.tags, strict=True))

    def to_json(self, x: Words, prediction: TagPrediction) -> dict[str, object]:
        probabilities = [round(one, 6) for one in prediction.probabilities]
        return {"words": prediction.words, "tags": prediction.tags, "probabilities": probabilities}

    def label_names(self) -> list[str]:
        return list(self.labels.names)

    def row(self, example: Example[Words, Tags], prediction: TagPrediction) -> dict[str, object]:
        return {"words": example.x, "tags": example.y, "prediction": prediction.tags}
