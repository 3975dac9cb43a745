"""An answer to a question: words of a text, or that the text does not say."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline import metrics as scores
from sightline.data.answers import AnswerReport, answers_in
from sightline.explain.explanation import Explanation
from sightline.inputs.base import Input
from sightline.inputs.question import NONE, Answers, Question, QuestionInput, Stretch, answer_tokens
from sightline.models.heads import SpanHead
from sightline.models.text_to_labels import Texts
from sightline.outputs.answer_schema import NUMBER, PLACE, TEXT, structure
from sightline.outputs.base import Output
from sightline.tasks.card import Wording
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.loading import Saved
from sightline.tasks.prepare import Prepared, Rows, Setting
from sightline.tasks.run import Run
from sightline.tasks.task import Example
from sightline.text.texts import TextReader
from sightline.text.tokenise import train_tokeniser

SHOWN = 300  # characters of a text that was wrong


class AnswerPrediction(NamedTuple):
    """The answer, its characters in the text (first, behind the last) and its probability.

    Where the text does not say, the answer is empty, and the probability is that of there being none.
    """

    answer: str
    start: int | None
    end: int | None
    probability: float


class Pointed(NamedTuple):
    """The likeliest span of a part, by the places of its tokens; of a whole text, by its characters.

    ``log_prob`` is its, ``none`` that of there being no answer: of several parts, the least of them. ``nowhere``: every
    part rather says that it has none. ``part`` is the one with the span, or None where there is no text.
    """

    start: int
    end: int
    log_prob: float
    none: float
    nowhere: bool = True
    part: Stretch | None = None


class SpanOutput(Output):
    """Answers. ``unanswered``: the model may say that the text does not hold the answer."""

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

    def __init__(self, config: Any, unanswered: bool = False) -> None:
        super().__init__(config)
        self.unanswered = unanswered

    def read(self, cells: Mapping[str, Any], x: Question) -> Answers:
        return answers_in(x[1], cells.get("answer"), cells.get("start"))

    def report(self) -> AnswerReport:
        return AnswerReport()

    def strata(self, y: Answers) -> tuple[str, ...]:
        return ("answer" if y[0] else "none",)

    def pack(self, y: Answers) -> list[Any]:
        return [*y]

    def unpack(self, row: Sequence[Any]) -> Answers:
        answers, start = row
        return tuple(answers), start

    def fit(self, input: Input, rows: Rows, setting: Setting) -> tuple[Input, Output]:
        assert isinstance(input, QuestionInput)
        assert isinstance(rows.report, AnswerReport)
        if setting.start is not None:
            reader = setting.start.reader
        else:
            reader = TextReader(train_tokeniser(rows.texts(lambda one: one.x), setting.config.tokeniser))
        return input.fitted(reader), SpanOutput(setting.config, bool(rows.report.unanswered))

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
        self, run: Run, xs: Sequence[Any], parts: Sequence[Stretch], batch: Texts, options: Any
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
        return Pointed(part.places[first][0], part.places[last][1], best.log_prob, none, nowhere, part)

    def decide(self, x: Question, raw: Pointed, options: Any = None) -> AnswerPrediction:
        if raw.part is None or (self.unanswered and raw.nowhere):
            return AnswerPrediction("", None, None, float(np.exp(raw.none)))
        answer, likely = x[1][raw.start : raw.end], float(np.exp(raw.log_prob))
        if not answer.strip():  # a blank is no answer
            return AnswerPrediction("", None, None, likely)
        start = raw.start + len(answer) - len(answer.lstrip())
        return AnswerPrediction(answer.strip(), start, start + len(answer.strip()), likely)

    def validate(self, run: Run, raws: Sequence[Pointed], examples: Sequence[Example]) -> dict[str, float]:
        """The metric that decides, then how unsure the model was, and the other metric."""
        predictions = [self.decide(one.x, raw) for one, raw in zip(examples, raws, strict=True)]
        values = self.scores_of(self.statistics(run, examples, predictions, raws), None)
        doubt = 1 - float(np.mean([one.probability for one in predictions]))
        ordered = {self.config.metric: values[self.config.metric], "doubt": doubt}
        return {name: round(value, 4) for name, value in (ordered | values).items()}

    def statistics(
        self, run: Run, examples: Sequence[Example], predictions: Sequence[AnswerPrediction], raws: Sequence[Any]
    ) -> dict[str, scores.Statistics]:
        """Exact match and F1 of words, as SQuAD counts them."""
        predicted, gold = [one.answer for one in predictions], [list(one.y[0]) for one in examples]
        return {
            "f1": scores.answer_f1.statistics(predicted, gold),
            "exact": scores.answer_exact.statistics(predicted, gold),
        }

    def save(self, folder: Path) -> tuple[dict[str, Any], list[str]]:
        return {"unanswered": self.unanswered}, []

    @classmethod
    def load(cls, saved: Saved, config: Any, input: Input) -> "SpanOutput":
        return cls(config, saved.about.get("unanswered") is True)

    def notes(self, prepared: Prepared) -> list[str]:
        if not self.too_long:
            return []
        return [
            f"{self.too_long:,} answers have more tokens than an answer may have (longest_answer): the model cannot "
            "give them whole"
        ]

    def finished(self, evaluation: Evaluation, scoring: Any) -> Evaluation:
        answered = [row for row, one in enumerate(evaluation.examples) if one.y[0]]
        if 0 < len(answered) < len(evaluation.examples):
            evaluation.extra.update(answered=self.scores_of(evaluation.statistics, answered), count=len(answered))
        parts = evaluation.run.input.encode([one.x for one in evaluation.examples])
        evaluation.extra["in_stretches"] = sum(len(some) > 1 for some in parts)
        return evaluation

    def summary(self, evaluation: Evaluation) -> dict[str, Any]:
        return {name: evaluation.extra[name] for name in ("answered", "in_stretches") if name in evaluation.extra}

    def score_table(self, evaluation: Evaluation) -> Table:
        table, extra = super().score_table(evaluation), evaluation.extra
        if "answered" not in extra:
            return table
        values = (f"{value:.2f}" for value in extra["answered"].values())
        row = ("with an answer", *values, f"{extra['count']:,}")
        return Table(table.names, (table.rows[0], row, *table.rows[1:]))

    def tables(self, evaluation: Evaluation) -> list[Table | str]:
        count = evaluation.extra["in_stretches"]
        return (
            [f"{count:,} texts are longer than the model reads at once: they were read in stretches"] if count else []
        )

    def badness(self, evaluation: Evaluation) -> list[float]:
        """Wrong answers by how sure the model was of them."""
        exact = evaluation.statistics["exact"].of_each()
        pairs = zip(exact, evaluation.predictions, strict=True)
        return [0.0 if right else 1e-9 + one.probability for right, one in pairs]

    def shown_error(self, row: Mapping[str, Any]) -> str:
        right = ", ".join(map(repr, row["answers"])) or "that there is none"
        said = f"{row['prediction']!r}, {row['probability']:.1%} sure; right is {right}"
        return f"{row['question']}\n   {said}\n   {' '.join(row['text'].split())[:SHOWN]}"

    def card(self, run: Run, prepared: Prepared, raws: Sequence[Any], folder: Path) -> Wording:
        always = "It points at words or at none" if self.unanswered else "It points at some words of any text"
        return Wording(
            "that finds the answer to a question in a text",
            "questions",
            "On validation data: F1 of words and exact match, as SQuAD counts them.",
            "texts it saw have at most {longest:,} characters.",
            (
                f"{always}; whether they are an answer, it does not know.",
                "Where it looked is not why it answered: attention is a picture of the computation, not an "
                "explanation.",
            ),
        )

    def explain(self, run: Run, x: Question, options: Any) -> Explanation:
        from sightline.outputs.span_explain import explain_answer

        return explain_answer(run, x, options)

    def line(self, x: Question, prediction: AnswerPrediction) -> str:
        return " ".join(prediction.answer.split())

    def to_json(self, x: Question, prediction: AnswerPrediction) -> dict[str, Any]:
        return {"question": x[0], **prediction._asdict()}

    def row(self, example: Example, prediction: AnswerPrediction) -> dict[str, Any]:
        given = {"question": example.x[0], "text": example.x[1], "answers": list(example.y[0])}
        answer, start, end, probability = prediction
        return given | {"prediction": answer, "start": start, "end": end, "probability": probability}
