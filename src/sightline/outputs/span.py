"""An answer to a question: words of a text, or none where the text does not hold it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from sightline import metrics
from sightline.data.answers import AnswerReport, answers_in
from sightline.errors import UserError
from sightline.explain.evidence.subject import evaluating
from sightline.explain.explanation import Choice, Explanation, Highlights, OutputStep, Span
from sightline.inputs.base import Input
from sightline.inputs.question import NONE, Answers, Question, QuestionInput, Stretch, answer_tokens
from sightline.models.heads import SpanHead
from sightline.models.text_to_labels import Texts
from sightline.outputs.base import Output, ranked_scores
from sightline.outputs.encoder_maps import Axes, EncoderMaps, TextWindow, axis_of, read_maps, word_axis
from sightline.outputs.reports import NUMBER, PLACE, TEXT, structure
from sightline.outputs.simple_baselines import likely_sentence
from sightline.records import Tokens
from sightline.tasks.card import Wording
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.explain import LIKELIEST, ExplainOptions
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run, SavedRun
from sightline.tasks.task import Example, PredictOptions
from sightline.text.words import TextOffsets, to_whole_words, token_places, words_of_places
from sightline.training.steps import to_device

NOTHING = "no answer"  # what is shown where the text does not hold the answer
SHOWN = 300  # characters of a text that was wrong

# -- explanations: question and text with the answer marked, and the attention of its start and its end


def _explained(
    x: Question, parts: list[Stretch], prediction: "AnswerPrediction", best: Stretch | None, given: str | None
) -> tuple[Stretch, list[int]]:
    """The stretch to show, and the tokens that the two pointers point at."""
    answer, start = (prediction.answer, prediction.start) if given is None else (given, x[1].find(given))
    if given is not None and (not given.strip() or start == -1):
        raise UserError(f"{given!r:.60} is not in the text: what is explained must be words of it")
    tokens = answer_tokens(x[1], ((answer,), start or 0), parts[0].places) if answer else None
    if tokens is None:
        return best or parts[0], [NONE, NONE]
    held = [one for one in parts if one.first <= tokens[0] and tokens[1] < one.behind]
    if not held:
        raise UserError(f"{answer!r:.60} is longer than what the model reads at once")
    part = best if best in held else held[0]
    assert part is not None
    return part, [part.offset + token - part.first for token in tokens]


def _placed(reading: QuestionInput, x: Question, part: Stretch) -> TextOffsets:
    question, text = (token_places(reading.reader, one, number, 0, -1) for number, one in enumerate(x))
    places = [None, *question[: part.offset - 2], None, *text[part.first : part.behind], None]
    return TextOffsets(x, part.tokens, places, words_of_places(x, places), [], 0)


def _characters(x: Question, part: Stretch, places: list[int]) -> tuple[int, int]:
    """Of the answer in the text; none of them where there is no answer."""
    if places == [NONE, NONE]:
        return 0, 0
    first, last = (part.first + token - part.offset for token in places)
    return to_whole_words(x[1], part.places[first][0], part.places[last][1])


def _likeliest(run: Run, x: Question, part: Stretch, texts: Texts) -> tuple[Choice, ...]:
    """Other likely answers of this stretch, and that there is none, where the model may predict that."""
    model: Any = run.model
    with evaluating(model), torch.no_grad():
        logits = model.scores(texts).double()
    log_probs = torch.log_softmax(logits, dim=-1)[0]
    choices = {NOTHING: float(log_probs[:, NONE].sum().exp())} if run.output.unanswered else {}  # type: ignore[attr-defined]
    logits[:, :, NONE] = torch.finfo(logits.dtype).min
    for _ in range(min(LIKELIEST, part.behind - part.first)):
        first, last = SpanHead.best(logits, run.config.longest_answer)[0].tolist()
        probability = float((log_probs[0, first] + log_probs[1, last]).exp())
        start, end = _characters(x, part, [first, last])
        choices.setdefault(x[1][start:end].strip() or NOTHING, probability)
        logits[:, 0, first] = torch.finfo(logits.dtype).min  # the next one starts elsewhere
    return tuple(Choice(text, share) for text, share in sorted(choices.items(), key=lambda one: -one[1]))


def _spans(x: Question, placed: TextOffsets, maps: EncoderMaps, answer: tuple[int, int]) -> tuple[Span, ...]:
    """Words of both texts by the attention of the two pointers, on average (without attention, by what hiding them
    costs); those of the answer are marked."""
    weights: Any = maps.lost if maps.main is None else maps.main
    weights, spans = weights.mean(axis=0), []
    for number, word in enumerate(placed.words):
        at = placed.place_of(word)
        weight = weights[number] if maps.main is None else weights[word].sum()
        marked = at.part == 1 and at.start < answer[1] and answer[0] < at.end
        if at.start < at.end:
            text = x[at.part][at.start : at.end]
            spans.append(Span(at.start, at.end, text, float(weight), part=at.part, marked=marked or None))
    return tuple(spans)


class AnswerPrediction(NamedTuple):
    """The answer, its characters in the text (first, behind the last) and its probability.

    Where the text does not hold one, the answer is empty, and the probability is that of there being none.
    """

    answer: str
    start: int | None
    end: int | None
    probability: float


class Pointed(NamedTuple):
    """The likeliest span of a part, by the places of its tokens; of a whole text, by its characters, in whole words.

    ``log_prob`` is its, ``none`` that of there being no answer: of several parts, the least of them. ``nowhere``: in
    every part "none" is likelier. ``part`` is the one with the span, or None where there is no text.
    """

    start: int
    end: int
    log_prob: float
    none: float
    nowhere: bool = True
    part: Stretch | None = None


SpanInput = Input[Question, Stretch, Texts]
SpanExamples = Sequence[Example[Question, Answers]]
SpanEvaluation = Evaluation[Question, Answers, Pointed, AnswerPrediction]


class SpanOutput(Output[Question, Answers, Stretch, Texts, Pointed, AnswerPrediction, PredictOptions | None]):
    """Answers. ``unanswered``: the model may predict that the text does not hold the answer."""

    noun = "answers"
    unit = "nats a question"
    compared = ("f1", "exact")
    answer = structure(
        "Answer",
        "The answer, its characters in the text (first, behind the last) and its probability; it is empty where the "
        "text does not say.",
        question=TEXT,
        answer=TEXT,
        start=PLACE,
        end=PLACE,
        probability=NUMBER,
    )
    too_long = 0  # answers of more tokens than the model may give

    def __init__(self, config: TaskConfig, unanswered: bool = False) -> None:
        super().__init__(config)
        self.unanswered = unanswered

    def read(self, cells: Mapping[str, object], x: Question) -> Answers:
        return answers_in(x[1], cells.get("answer"), cells.get("start"))

    def report(self) -> AnswerReport:
        return AnswerReport()

    def strata(self, y: Answers) -> tuple[str, ...]:
        return ("answer" if y[0] else "none",)

    def pack(self, y: Answers) -> list[object]:
        return [*y]

    def unpack(self, row: Sequence[object]) -> Answers:
        answers, start = cast("tuple[list[str], int]", row)
        return tuple(answers), start

    def fit(self, input: SpanInput, rows: Rows[Question, Answers], setting: Setting) -> tuple[SpanInput, "SpanOutput"]:
        assert isinstance(rows.report, AnswerReport)
        return input.fit(rows, setting), SpanOutput(setting.config, bool(rows.report.unanswered))

    def encode(self, x: Question, y: Answers, parts: Sequence[Stretch]) -> Iterator[tuple[Stretch, list[int]]]:
        """Where the answer starts and ends in each part that holds all of it."""
        gold = answer_tokens(x[1], y, parts[0].places)
        self.too_long += gold is not None and gold[1] - gold[0] >= self.config.longest_answer
        for part in parts:
            held = gold is not None and part.first <= gold[0] and gold[1] < part.behind
            yield part, [part.offset + token - part.first for token in gold] if held and gold else [NONE, NONE]

    def collate(self, targets: Sequence[np.ndarray], batch: Texts) -> Tensor:
        return torch.from_numpy(np.stack([one.astype(np.int64) for one in targets]))

    def outputs(
        self, run: Run, xs: Sequence[Question], parts: Sequence[Stretch], batch: Texts, options: PredictOptions | None
    ) -> list[Pointed]:
        logits = run.model.scores(batch).float()  # type: ignore[operator]
        log_probs, inside = torch.log_softmax(logits, dim=-1), logits.clone()
        inside[:, :, NONE] = torch.finfo(logits.dtype).min
        places = SpanHead.best(inside, self.config.longest_answer)
        rows = torch.arange(len(places), device=places.device)
        likely = log_probs[rows, 0, places[:, 0]] + log_probs[rows, 1, places[:, 1]]
        none = log_probs[:, :, NONE].sum(dim=1)
        columns = (one.tolist() for one in (places[:, 0], places[:, 1], likely, none))
        return [Pointed(*one) for one in zip(*columns, strict=True)]

    def merge(self, x: Question, parts: Sequence[Stretch], outputs: Sequence[Pointed]) -> Pointed:
        if not parts[0].places:
            return Pointed(0, 0, -np.inf, 0.0)
        place = max(range(len(parts)), key=lambda i: outputs[i].log_prob)
        part, best = parts[place], outputs[place]
        first, last = (part.first + token - part.offset for token in best[:2])
        nowhere = all(one.none >= one.log_prob for one in outputs)
        none = min(0.0, *(one.none for one in outputs))
        start, end = to_whole_words(x[1], part.places[first][0], part.places[last][1])
        return Pointed(start, end, best.log_prob, none, nowhere, part)

    def decide(self, x: Question, raw: Pointed, options: PredictOptions | None = None) -> AnswerPrediction:
        if raw.part is None or (self.unanswered and raw.nowhere):
            return AnswerPrediction("", None, None, float(np.exp(raw.none)))
        answer, likely = x[1][raw.start : raw.end], float(np.exp(raw.log_prob))
        if not answer.strip():  # a blank is no answer
            return AnswerPrediction("", None, None, likely)
        start = raw.start + len(answer) - len(answer.lstrip())
        return AnswerPrediction(answer.strip(), start, start + len(answer.strip()), likely)

    def validate(self, run: Run, raws: Sequence[Pointed], examples: SpanExamples) -> dict[str, float]:
        """The metric that decides, then how unsure the model was, and the other metric."""
        predictions = [self.decide(one.x, raw) for one, raw in zip(examples, raws, strict=True)]
        values = self.scores_of(self.statistics(run, examples, predictions, raws), None)
        doubt = 1 - float(np.mean([one.probability for one in predictions]))
        return ranked_scores(self.config.metric, {"doubt": doubt}, values)

    def statistics(
        self, run: Run, examples: SpanExamples, predictions: Sequence[AnswerPrediction], raws: Sequence[Pointed]
    ) -> dict[str, metrics.Statistics]:
        """Exact match and F1 of words, as SQuAD counts them."""
        predicted, gold = [one.answer for one in predictions], [list(one.y[0]) for one in examples]
        return {
            "f1": metrics.answer_f1.statistics(predicted, gold),
            "exact": metrics.answer_exact.statistics(predicted, gold),
        }

    def baseline_predictions(
        self, run: Run, examples: SpanExamples, facts: Mapping[str, object]
    ) -> dict[str, list[AnswerPrediction]]:
        sentences = [likely_sentence(*one.x) for one in examples]
        answers = [AnswerPrediction(one, None, None, 1.0) for one in sentences]
        nothing = [AnswerPrediction("", None, None, 1.0)] * len(examples)
        return {"the sentence with most words of the question": answers, "no answer": nothing}

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        return {"unanswered": self.unanswered}, []

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig, input: SpanInput) -> "SpanOutput":
        return cls(config, saved.about.get("unanswered") is True)

    def notes(self, prepared: Prepared[Question, Answers]) -> list[str]:
        if not self.too_long:
            return []
        return [
            f"{self.too_long:,} answers have more tokens than an answer may have (longest_answer): the model cannot "
            "give them whole"
        ]

    def finished(self, evaluation: SpanEvaluation, scoring: object) -> SpanEvaluation:
        answered = [row for row, one in enumerate(evaluation.examples) if one.y[0]]
        if 0 < len(answered) < len(evaluation.examples):
            evaluation.extra.update(answered=self.scores_of(evaluation.statistics, answered), count=len(answered))
        parts = evaluation.run.input.encode([one.x for one in evaluation.examples])
        evaluation.extra["in_stretches"] = sum(len(some) > 1 for some in parts)
        return evaluation

    def summary(self, evaluation: SpanEvaluation) -> dict[str, object]:
        return {name: evaluation.extra[name] for name in ("answered", "in_stretches") if name in evaluation.extra}

    def score_table(self, evaluation: SpanEvaluation) -> Table:
        table, extra = super().score_table(evaluation), evaluation.extra
        if "answered" not in extra:
            return table
        answered = cast("dict[str, float]", extra["answered"])
        row = ("with an answer", *(f"{value:.2f}" for value in answered.values()), f"{extra['count']:,}")
        return Table(table.names, (table.rows[0], row, *table.rows[1:]))

    def tables(self, evaluation: SpanEvaluation) -> list[Table | str]:
        if not (count := evaluation.extra["in_stretches"]):
            return []
        return [f"{count:,} texts are longer than the model reads at once: they were read in stretches"]

    def badness(self, evaluation: SpanEvaluation) -> list[float]:
        """Wrong answers by how sure the model was of them."""
        exact = evaluation.statistics["exact"].of_each()
        pairs = zip(exact, evaluation.predictions, strict=True)
        return [0.0 if right else 1e-9 + one.probability for right, one in pairs]

    def shown_error(self, row: Mapping[str, object]) -> str:
        right = ", ".join(map(repr, cast("list[str]", row["answers"]))) or "that there is none"
        answer = f"{row['prediction']!r}, {row['probability']:.1%} sure; right is {right}"
        return f"{row['question']}\n   {answer}\n   {' '.join(str(row['text']).split())[:SHOWN]}"

    def card(self, run: Run, prepared: Prepared[Question, Answers], raws: Sequence[Pointed], folder: Path) -> Wording:
        always = "It points at words or at none" if self.unanswered else "It points at some words of any text"
        return Wording(
            "that finds the answer to a question in a text",
            "questions",
            "On validation data: F1 of words and exact match, as SQuAD counts them.",
            "texts it saw have at most {longest:,} characters.",
            (
                f"{always}; it cannot tell whether they are an answer.",
                "Where it looked is not why it answered: attention is a picture of the computation, not an "
                "explanation.",
            ),
        )

    def explain(self, run: Run, x: Question, options: ExplainOptions) -> Explanation:
        """Everything there is to show about one answer; ``options.output`` is other words of the text to explain."""
        reading = run.input
        assert isinstance(reading, QuestionInput)
        raw = cast("Pointed", run.raw([x], options=self.options({}))[0])
        prediction = self.decide(x, raw)
        parts = reading.encode([x])[0]
        part, places = _explained(x, parts, prediction, raw.part, options.output)
        texts = to_device(reading.collate([part]), run.device)
        model: Any = run.model

        def measure(some: Texts) -> Tensor:
            return torch.log_softmax(model.scores(some).double(), dim=-1)[:, [0, 1], places]

        placed = _placed(reading, x, part)
        words = dict(enumerate(placed.words))
        window = TextWindow(texts, range(len(part.tokens)), places, (0, 1), words, measure)
        axes = Axes(Tokens(("start", "end")), axis_of(reading.reader, placed), word_axis(placed), "pointer", "text")
        maps = read_maps(model, model.model, [window], axes, options)
        likeliest = _likeliest(run, x, part, texts)
        answer = prediction.answer if options.output is None else options.output
        with evaluating(model), torch.no_grad():
            start, end = measure(texts)[0].exp().tolist()
        notes = ["the pointers point at the first and at the last token of the answer"] if answer else []
        if not answer:
            notes.append("the model finds no answer in the text: both pointers point at the first token of all")
        if len(parts) > 1:
            notes.append(f"the text was read in {len(parts):,} stretches; what is shown is the one with the answer")
        spans = _spans(x, placed, maps, _characters(x, part, places))
        predicted = prediction.answer or NOTHING
        return maps.explanation(
            run,
            notes,
            input="\t".join(x),
            output=predicted,
            steps=(OutputStep("start", start), OutputStep("end", end)),
            alternatives=tuple(one for one in likeliest if one.text != predicted),
            highlights=Highlights(answer or NOTHING, start * end, likeliest, x, spans, read=len(spans)),
        )

    def line(self, x: Question, prediction: AnswerPrediction) -> str:
        return " ".join(prediction.answer.split())

    def to_json(self, x: Question, prediction: AnswerPrediction) -> dict[str, object]:
        return {"question": x[0], **prediction._asdict()}

    def row(self, example: Example[Question, Answers], prediction: AnswerPrediction) -> dict[str, object]:
        given, fields = {"question": example.x[0], "text": example.x[1]}, prediction._asdict()
        return {**given, "answers": list(example.y[0]), "prediction": fields.pop("answer"), **fields}
