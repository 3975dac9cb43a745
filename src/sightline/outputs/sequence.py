"""A sequence of tokens that is searched for: translations, summaries, captions, transcripts.

The model is a `sightline.models.writer.Writer`; it reads what the input collates. A subclass may override: ``targets``
(the texts of a target), ``metrics`` and ``each`` (its scores), ``tokeniser_file`` and ``words_field``, ``item_name``
(the name of an item in JSON). A configuration with the field ``max_length`` bounds every output by it.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from sightline import metrics
from sightline.data.batches import TARGET_EXTRA
from sightline.data.checking import PairReport, Report, RowLimits
from sightline.decoding.options import pad
from sightline.decoding.search import Hypothesis
from sightline.errors import UserError
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Explanation
from sightline.inputs.base import Input
from sightline.inputs.text import check_length, resegmented, side_of
from sightline.machine import one_thread
from sightline.metrics import Metric, MetricScore, Statistics
from sightline.outputs.base import Output
from sightline.outputs.copied import copied_words, without_penalty
from sightline.outputs.reports import NUMBER, TEXT, listed, structure
from sightline.outputs.searched import (
    Prediction,
    Scoring,
    Searched,
    SequenceOptions,
    conditioned,
    is_small,
    joined,
    perplexity,
)
from sightline.outputs.unknown import written_out
from sightline.state import select
from sightline.tasks.card import Wording
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.missing import count_missing
from sightline.tasks.prepare import VOCABULARY_ROWS, Prepared, RowBatches, Rows, Setting, SomeRows
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import Batch, Divided, Example, Part, X, Y
from sightline.text.copying import SourceWords, words_of
from sightline.text.sentences import split_sentences
from sightline.text.tokeniser import Tokeniser, train_tokeniser
from sightline.training.loop import BatchLoss
from sightline.training.steps import to_device
from sightline.vocabulary import END, PADDING, START, UNKNOWN

BATCH_TOKENS = 4096
SCORED_ROWS = 64  # targets whose loss is computed at once
WARNED = RowLimits().max_characters  # a longer text works, but not well

SequenceEvaluation = Evaluation[X, Y, Searched, Prediction]


class SequenceOutput(Output[X, Y, Part, Batch, Searched, Prediction, SequenceOptions]):
    """Texts, written with a tokeniser. Raw outputs are `Searched`.

    ``shift`` is by how many rows maps are moved when they are shown (`sightline.outputs.sequence_explain`). The first
    of the metrics ``each`` chooses the worst predictions.
    """

    noun = "texts"
    searches = True
    sized_targets = True
    freezes = True
    calibrates = False
    predict_options = SequenceOptions
    tokeniser_file: ClassVar[str] = "target.json"
    words_field: ClassVar[str] = "target_words"
    written: ClassVar[str] = "output"  # the name of the output in titles of maps
    spelled: ClassVar[bool] = False  # single characters are letters of words, put together in maps
    compared: ClassVar[tuple[str, ...]] = ("bleu", "chrf")
    scoring = Scoring()
    each: ClassVar[tuple[str, ...]] = ("chrf", "exact", "rouge1", "rouge2", "rougeL")  # of a single text
    item_name: ClassVar[str] = "source"  # the name of an item in JSON
    answer = listed(
        structure("Output", "An output.", text=TEXT, log_prob=NUMBER, score=NUMBER),
        "The best outputs, likeliest first, with their log-probabilities and the scores that they were ranked by.",
    )

    tokeniser: Tokeniser

    def __init__(
        self, config: TaskConfig, tokeniser: Tokeniser | None = None, shift: int = 0, remarks: Sequence[str] = ()
    ) -> None:
        super().__init__(config)
        self.tokeniser = cast("Tokeniser", tokeniser)  # None until it is fitted
        self.shift, self.remarks = shift, tuple(remarks)

    # -- reading and storing

    def read(self, cells: Mapping[str, object], x: X) -> Y:
        return cast("Y", side_of(cells, "target"))

    def check(self, y: Y, limits: RowLimits) -> None:
        check_length(len(cast("str", y)), "the target", limits)

    def report(self) -> Report:
        return PairReport()

    def fit(
        self, input: Input[X, Part, Batch], rows: Rows[X, Y], setting: Setting
    ) -> tuple[Input[X, Part, Batch], "SequenceOutput[X, Y, Part, Batch]"]:
        """A vocabulary of its own, or that of the earlier run; the input is fitted by itself."""
        if setting.start is None:
            learning = rows.limited(VOCABULARY_ROWS, setting.config.seed)
            texts = learning.texts(lambda one: self.targets(one.y))
            tokeniser, remarks = train_tokeniser(texts, setting.config.tokeniser), learnt_lines(learning, rows)
        else:
            tokeniser = setting.start.run.output.tokeniser
            remarks = count_missing(tokeniser, (text for one in rows for text in self.targets(one.y))).lines()
        return input.fit(rows, setting), self.fitted(tokeniser, remarks)

    def fitted(self, tokeniser: Tokeniser, remarks: Sequence[str] = ()) -> "SequenceOutput[X, Y, Part, Batch]":
        """The same with a vocabulary, and remarks on it."""
        return type(self)(self.config, tokeniser, remarks=remarks)

    def encode(self, x: X, y: Y, parts: Sequence[Part]) -> Iterator[tuple[Part, list[int]]]:
        for tokens in self.tokeniser.encode(list(self.targets(y))):
            yield from ((part, tokens) for part in parts[:1])

    def collate(self, targets: Sequence[np.ndarray], batch: Batch) -> Tensor:
        """Targets between `START` and `END`, padded behind."""
        collated = np.full((len(targets), max(map(len, targets)) + TARGET_EXTRA), PADDING, np.int64)
        collated[:, 0] = START
        for row, tokens in enumerate(targets):
            collated[row, 1 : 1 + len(tokens)] = tokens
            collated[row, 1 + len(tokens)] = END
        return torch.from_numpy(collated)

    def batches(self, prepared: Prepared[X, Y], config: TaskConfig) -> RowBatches:
        return (ResegmentedBatches if config.tokeniser.dropout else RowBatches)(prepared, config)

    def loss(self, model: nn.Module, batch: tuple[object, ...], step: int) -> BatchLoss:
        training, learner = self.config.training, cast("Any", model)
        if training.coverage_after is None or step < training.coverage_after:
            return learner.loss(*batch, smoothing=self.config.smoothing)
        return learner.loss(*batch, smoothing=self.config.smoothing, coverage=training.coverage_weight)

    def counted(self, batch: tuple[object, ...]) -> int:
        return int((cast("Tensor", batch[1])[:, 1:] != PADDING).sum())

    # -- predicting

    def validation_options(self) -> SequenceOptions:
        return SequenceOptions(beam=1)

    def trial_options(self, examples: Sequence[Example[X, Y]]) -> SequenceOptions:
        """An untrained model writes no end: it is stopped where the targets end."""
        texts = [text for one in examples for text in self.targets(one.y)]
        longest = max(map(len, self.tokeniser.encode(texts)), default=1)
        return self.with_targets(SequenceOptions(beam=1, max_length=max(1, longest)), examples, training=True)

    def with_targets(
        self, options: SequenceOptions, examples: Sequence[Example[X, Y]], training: bool = False
    ) -> SequenceOptions:
        return replace(options, targets=[self.targets(one.y, training) for one in examples])

    def options_of(self, options: SequenceOptions, numbers: Sequence[int], items: int) -> SequenceOptions:
        if options.prefixes is None and options.targets is None:
            return options
        if options.prefixes is not None and len(options.prefixes) != items:
            raise UserError(f"prefixes has {len(options.prefixes)} entries; expected {items}, one for each text")
        prefixes = None if options.prefixes is None else [options.prefixes[number] for number in numbers]
        targets = None if options.targets is None else [options.targets[number] for number in numbers]
        own = replace(options, prefixes=prefixes, targets=targets)
        own.__dict__["_drawing"] = options.__dict__.setdefault("_drawing", {})
        return own

    def block_options(self, options: SequenceOptions, block: int) -> SequenceOptions:
        """Each block of lines has a seed of its own, so that samples differ."""
        return replace(options, seed=(options.seed + block) % 2**63)

    def cost(self, size: int, options: SequenceOptions) -> int:
        return options.width * (size + 8)

    def budget(self, input: Input[X, Part, Batch], options: SequenceOptions) -> int:
        return options.batch_tokens or BATCH_TOKENS

    def divided(self, xs: Sequence[X], options: SequenceOptions) -> Divided[X, Searched, SequenceOptions] | None:
        """Texts of any length, sentence by sentence; the blanks between sentences are kept."""
        if options is None or not options.split:
            return None
        documents = [split_sentences(x) for x in cast("Sequence[str]", xs)]

        def join(raws: Sequence[Searched]) -> list[Searched]:
            coming = iter(raws)
            return [joined([(next(coming), blank) for _, blank in document]) for document in documents]

        sentences = [sentence for document in documents for sentence, _ in document]
        return Divided(cast("list[X]", sentences), replace(options, split=False), join)

    def outputs(
        self, run: Run, xs: Sequence[X], parts: Sequence[Part], batch: Batch, options: SequenceOptions
    ) -> list[Searched]:
        with one_thread() if is_small(run.model, len(parts) * options.width) else nullcontext():
            forced = self.forced(options, xs)
            beams = self.search(run, [run.input.size(part) for part in parts], batch, options, forced)
        texts = iter(self._texts(run, xs, beams, batch, options))
        targets = options.targets
        losses = [(0.0, 0)] * len(beams) if targets is None else self._losses(run, xs, batch, targets)
        return [
            Searched([Prediction(next(texts), one.log_prob, one.score, tuple(one.tokens)) for one in beam], *loss)
            for beam, loss in zip(beams, losses, strict=True)
        ]

    def search(
        self, run: Run, sizes: Sequence[int], batch: Batch, options: SequenceOptions, forced: Sequence[Sequence[int]]
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for a batch of items of these sizes, which begin with the ``forced`` tokens."""
        model: Any = run.model
        if options.coverage and not getattr(model, "looks", False):
            raise UserError(f"coverage is of attention from a text to a text, which {run.name} does not have")
        step, state = model.searching(batch, options.coverage) if options.coverage else model.searching(batch)
        # An unknown word is written only where a word of the source can be copied instead.
        step = conditioned(step, options.going, unknown=hasattr(run.input, "attended"))
        beams = self.limited(options).find(step, state, sizes, forced, options.drawing(run.device))
        return without_penalty(model, batch, beams) if options.coverage else beams

    def forced(self, options: SequenceOptions, xs: Sequence[X]) -> list[list[int]]:
        """The tokens that the output of each item begins with."""
        prefixes = self._prefixes(options, len(xs))
        given = any(prefix != "" for prefix in prefixes)
        return self.tokens_of(xs, prefixes) if given else [[] for _ in prefixes]

    def tokens_of(self, xs: Sequence[X], texts: Sequence[str]) -> list[list[int]]:
        """Texts as tokens, each written for an item."""
        return self.tokeniser.encode(list(texts))

    def vocabulary_for(self, x: X) -> Tokeniser | SourceWords:
        """What spells the tokens that are written for an item."""
        return self.tokeniser

    def limited(self, options: SequenceOptions) -> SequenceOptions:
        """With the limit of the configuration, where it has one: not every item has a length to go by."""
        max_length = getattr(self.config, "max_length", None)
        if max_length is None or options.max_length is not None:
            return options
        return replace(options, max_length=max(max_length, options.min_length))

    def _prefixes(self, options: SequenceOptions, count: int) -> list[str]:
        return [options.prefix] * count if options.prefixes is None else list(options.prefixes)

    def _texts(
        self, run: Run, xs: Sequence[X], beams: Sequence[Sequence[Hypothesis]], batch: Batch, options: SequenceOptions
    ) -> list[str]:
        """The texts of all hypotheses, with words of the source instead of unknown ones, or of the prefix."""
        beams, copied = copied_words([self.vocabulary_for(x) for x in xs], beams, self.tokeniser.words)
        rows = [row for row, beam in enumerate(beams) for _ in beam]
        tokens = [one.tokens for beam in beams for one in beam]
        texts = self.tokeniser.decode(tokens)
        unknown = [place for place, some in enumerate(tokens) if UNKNOWN in some]
        if not self.tokeniser.of_words or options.keep_unknown:
            unknown = [place for place in unknown if copied[place]]
            for place in unknown:
                texts[place] = written_out(self.tokeniser, tokens[place], copied[place])
            return texts
        if not unknown:
            return texts
        owners = [rows[place] for place in unknown]
        chosen = select(batch, torch.tensor(owners, device=run.device))
        attended = run.input.attended(run.model, chosen, [xs[row] for row in owners], [tokens[i] for i in unknown])  # type: ignore[attr-defined]
        prefixes = self._prefixes(options, len(xs))
        for place, row, words in zip(unknown, owners, attended, strict=True):
            given = words_of(self.tokeniser, prefixes[row])
            attended_to = dict(enumerate([*given, *words[len(given) :]]))
            places = [number for number, token in enumerate(tokens[place]) if token == UNKNOWN]
            known = {number: word for number in places if (word := attended_to.get(number)) is not None}
            texts[place] = written_out(self.tokeniser, tokens[place], {**known, **copied[place]})
        return texts

    def perplexity(self, run: Run, examples: Sequence[Example[X, Y]]) -> float:
        """exp of the mean loss of a target token, without any search."""
        scored = []
        with evaluating(run.model):
            for start in range(0, len(examples), SCORED_ROWS):
                parts = run.encode([one.x for one in examples[start : start + SCORED_ROWS]])
                some = [(own[0], one) for own, one in zip(parts, examples[start:], strict=False) if own]
                batch = to_device(run.input.collate([part for part, _ in some]), run.device)
                losses = self._losses(run, [one.x for _, one in some], batch, [self.targets(one.y) for _, one in some])
                scored += [Searched([], *loss) for loss in losses]
        return perplexity(scored)

    def _losses(
        self, run: Run, xs: Sequence[X], batch: Batch, targets: Sequence[Sequence[str]]
    ) -> list[tuple[float, int]]:
        """Of the targets of each item: the loss without smoothing, summed over their tokens, and how many tokens."""
        rows = [row for row, texts in enumerate(targets) for _ in texts]
        ids = self.tokens_of([xs[row] for row in rows], [text for texts in targets for text in texts])
        order = sorted(range(len(ids)), key=lambda place: len(ids[place]))
        losses, counts = [0.0] * len(targets), [0] * len(targets)
        for start in range(0, len(order), SCORED_ROWS):
            part = order[start : start + SCORED_ROWS]
            target = pad([[START, *ids[place], END] for place in part]).to(run.device)
            owners = [rows[place] for place in part]
            source = select(batch, torch.tensor(owners, device=run.device))
            loss = run.model.loss(source, target)  # type: ignore[operator]
            # The sum is over all of them. An item's share is by its tokens; the mean over items does not depend on it.
            for place, row in zip(part, owners, strict=True):
                tokens = len(ids[place]) + 1
                losses[row] += float(loss.total) * tokens / loss.tokens
                counts[row] += tokens
        return list(zip(losses, counts, strict=True))

    def merge(self, x: X, parts: Sequence[Part], outputs: Sequence[Searched]) -> Searched:
        return outputs[0] if outputs else Searched([Prediction("", 0.0, 0.0)])

    def decide(self, x: X, raw: Searched, options: SequenceOptions | None = None) -> Prediction:
        first, *others = raw.predictions
        return first if options is None or options.best == 1 else first._replace(others=tuple(others))

    def benched(self) -> dict[str, dict[str, object]]:
        return {"greedy": {"beam": 1}, "beam 5": {"beam": 5}}

    def ensemble(self, runs: Sequence[Run]) -> Run:
        from sightline.tasks.ensemble import ensemble

        return ensemble(runs)

    # -- scores

    def metrics(self, references: Sequence[Y]) -> Mapping[str, Metric[...]]:
        """The metrics of texts against these references."""
        if any("\n" in reference for reference in cast("Sequence[str]", references)):
            return {**metrics.METRICS, "rougeLsum": metrics.rouge("rougeLsum")}
        return metrics.METRICS

    def arguments(self, metric: str, references: Sequence[Y]) -> tuple[object, ...]:
        """What a metric takes besides texts and references."""
        if metric != "bleu":
            return ()
        # Chosen once, from all references: a part of them must not choose another.
        return (self.scoring.bleu_tokenise or metrics.bleu_tokeniser(cast("Sequence[str]", references)),)

    def scoring_options(self, given: dict[str, object]) -> tuple[Scoring, dict[str, object]]:
        own: dict[str, Any] = {name: value for name, value in given.items() if name in Scoring._fields}
        return Scoring(**own), {name: value for name, value in given.items() if name not in own}

    def scored_by(self, scoring: object) -> "SequenceOutput[X, Y, Part, Batch]":
        same = copy.copy(self)
        same.scoring = cast("Scoring", scoring)
        return same

    def validate(self, run: Run, raws: Sequence[Searched], examples: Sequence[Example[X, Y]]) -> dict[str, float]:
        """The metric of the outputs, and the perplexity of the targets."""
        texts, references = [raw.predictions[0].text for raw in raws], [one.y for one in examples]
        name = self.config.metric
        value = self.metrics(references)[name](texts, references).value
        return {name: round(value, 3), "perplexity": round(perplexity(raws), 3)}

    def statistics(
        self, run: Run, examples: Sequence[Example[X, Y]], predictions: Sequence[Prediction], raws: Sequence[Searched]
    ) -> dict[str, Statistics]:
        texts, references = [one.text for one in predictions], [one.y for one in examples]
        return {
            name: metric.statistics(texts, references, *self.arguments(name, references))
            for name, metric in self.metrics(references).items()
        }

    def finished(self, evaluation: SequenceEvaluation[X, Y], scoring: object) -> SequenceEvaluation[X, Y]:
        texts, references = [one.text for one in evaluation.predictions], [one.y for one in evaluation.examples]
        signatures = {}
        for name, metric in self.metrics(references).items():
            given = (texts, references, *self.arguments(name, references))
            if metric.scored is not None:
                evaluation.values[name], signatures[name] = vars(metric(*given)).values()
            else:
                signatures[name] = metric.signature(*given)
        evaluation.values["perplexity"] = perplexity(evaluation.raws)
        each = {name: evaluation.statistics[name].of_each() for name in self.each}
        evaluation.extra.update(signatures=signatures, each=each)
        return evaluation

    def scores_json(self, evaluation: SequenceEvaluation[X, Y]) -> dict[str, object]:
        signatures = cast("dict[str, str]", evaluation.extra["signatures"])
        signed = {name: vars(MetricScore(evaluation.values[name], one)) for name, one in signatures.items()}
        return {"perplexity": evaluation.values["perplexity"], **signed}

    def score_table(self, evaluation: SequenceEvaluation[X, Y]) -> Table:
        signatures = {**cast("dict[str, str]", evaluation.extra["signatures"]), "perplexity": "per target token"}
        digits = {"perplexity": 3}
        rows = (
            (self.metric_name(name), f"{evaluation.values[name]:.{digits.get(name, 2)}f}", signature)
            for name, signature in signatures.items()
        )
        return Table(("metric", "score", "how"), tuple(rows))

    def tables(self, evaluation: SequenceEvaluation[X, Y]) -> list[Table | str]:
        count = len(evaluation.examples)
        return [f"{count:,} {evaluation.run.task.rows}, {count / evaluation.seconds:.1f} a second"]

    def comparison_fields(
        self, metric: str, examples: Sequence[Example[X, Y]], systems: Mapping[str, Statistics], draw: tuple[int, int]
    ) -> dict[str, object]:
        return {"signature": self.signature(metric, examples)}

    def signature(self, metric: str, examples: Sequence[Example[X, Y]]) -> str:
        """How a metric of these examples is computed: it does not depend on the text, once the arguments are chosen."""
        references = [one.y for one in examples]
        given = [self.targets(examples[0].y)[0]], references[:1], *self.arguments(metric, references)
        return self.metrics(references)[metric](*given).signature

    def targets(self, y: Y, training: bool = False) -> Sequence[str]:
        """The texts of a target: those that are learnt and scored, or those whose loss is measured in training."""
        return (cast("str", y),)

    def row(self, example: Example[X, Y], prediction: Prediction) -> dict[str, object]:
        return {self.item_name: str(example.x), "prediction": prediction.text, "reference": example.y}

    def scored_row(self, evaluation: SequenceEvaluation[X, Y], number: int) -> dict[str, object]:
        prediction = evaluation.predictions[number]
        searched = {"log_prob": prediction.log_prob, "score": prediction.score}
        of_each = cast("dict[str, list[float]]", evaluation.extra["each"])
        each = {name: values[number] for name, values in of_each.items()}
        return {**self.row(evaluation.examples[number], prediction), **searched, **each}

    def badness(self, evaluation: SequenceEvaluation[X, Y]) -> list[float]:
        each = cast("dict[str, list[float]]", evaluation.extra["each"])
        return [101 - value for value in each[self.each[0]]]  # right ones come last, and are shown

    def shown_error(self, row: Mapping[str, object]) -> str:
        texts = (f"   {name:<10}  {row[name]}" for name in (self.item_name, "prediction", "reference"))
        return "\n".join((f"{self.paper_name(self.each[0])} {row[self.each[0]]:.1f}", *texts))

    # -- saving, explaining, for people

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        self.tokeniser.save(folder / self.tokeniser_file)
        return {"shift": self.shift, self.words_field: self.tokeniser.words}, [self.tokeniser_file]

    @classmethod
    def load(
        cls, saved: SavedRun, config: TaskConfig, input: Input[X, Part, Batch]
    ) -> "SequenceOutput[X, Y, Part, Batch]":
        with saved.reading():
            shift = saved.about.get("shift", 0)  # runs of earlier versions have none
            if shift not in (-1, 0, 1):
                raise ValueError(f"shift is {shift!r}; it is -1, 0 or 1")
        tokeniser = saved.vocabulary(cls.tokeniser_file, cls.words_field, config.tokeniser.dropout)
        return cls(config, tokeniser, shift)

    def open(self, input: Input[X, Part, Batch], setting: Setting) -> object:
        self.tokeniser.dropout = setting.config.tokeniser.dropout
        return super().open(input, setting)

    def explain(self, run: Run, x: X, options: ExplainOptions) -> Explanation:
        from sightline.outputs.sequence_explain import explain_sequence

        return explain_sequence(run, x, options)

    def notes(self, prepared: Prepared[X, Y]) -> list[str]:
        return list(self.remarks)

    def summary_of_fit(self) -> str:
        return f"{self.tokeniser.words:,} target tokens"

    def card(self, run: Run, prepared: Prepared[X, Y], raws: Sequence[Searched], folder: Path) -> Wording:
        return Wording(f"from {run.input.noun} to text", run.task.rows)

    def check_written(self, options: SequenceOptions, as_json: bool) -> None:
        if options.best > 1 and not as_json:
            several = f"several {self.written}s of one {self.item_name}"
            raise UserError(f"--best above 1 gives {several}; write them with --format jsonl")

    def line(self, x: X, prediction: Prediction) -> str:
        return prediction.text.replace("\n", " ")

    def to_json(self, x: X, prediction: Prediction) -> dict[str, object]:
        item = {self.item_name: str(x)}
        if prediction.others is not None:
            return {**item, "predictions": self.served(x, prediction)}
        return {**item, "prediction": prediction.text, "log_prob": prediction.log_prob, "score": prediction.score}

    def served(self, x: X, prediction: Prediction) -> list[dict[str, object]]:
        return [{"text": one.text, "log_prob": one.log_prob, "score": one.score} for one in prediction.all]


class ResegmentedBatches(RowBatches):
    """Batches whose texts are in other pieces each time (BPE dropout); inputs without pieces stay as they are."""

    def batch(self, handle: Any) -> tuple[Any, Any]:
        parts, targets = self.rows(handle)
        batch = self.input.collate(self.input.resegmented(parts) if hasattr(self.input, "resegmented") else parts)
        return batch, self.output.collate(resegmented(self.output.tokeniser, targets), batch)  # type: ignore[attr-defined]


def learnt_lines(learning: SomeRows, rows: SomeRows) -> list[str]:
    """Whether a vocabulary was learnt from a part of the data."""
    if learning is rows:
        return []
    return [f"the vocabulary is learnt from {learning.count:,} of the pairs, drawn at random"]
