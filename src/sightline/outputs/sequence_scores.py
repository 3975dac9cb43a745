"""Scores of written texts: every metric with how it was computed, and the perplexity of the references."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from sightline import metrics as scores
from sightline.metrics import BleuTokeniser, Metric, Score, Statistics
from sightline.outputs.base import Output
from sightline.tasks.evaluate import Evaluation, Table
from sightline.tasks.run import Run
from sightline.tasks.task import Example


class Scoring(NamedTuple):
    """How to score: BLEU's tokeniser, and whether to print scores by the length of the source."""

    bleu_tokenise: BleuTokeniser | None = None
    by_length: bool = False


class SequenceScores(Output):
    """The part of a sequence output that scores. ``each`` are the metrics of a single text, by the first of which the
    worst are chosen."""

    compared: ClassVar[tuple[str, ...]] = ("bleu", "chrf")
    scoring = Scoring()
    each: ClassVar[tuple[str, ...]] = ("chrf", "exact", "rouge1", "rouge2", "rougeL")
    item_name: ClassVar[str] = "source"  # what an item is called in JSON

    def metrics(self, references: Sequence[Any]) -> Mapping[str, Metric[...]]:
        """The metrics of texts against these references."""
        if any("\n" in reference for reference in references):
            return {**scores.METRICS, "rougeLsum": scores.rouge("rougeLsum")}
        return scores.METRICS

    def reference(self, y: Any) -> Any:
        """A target as metrics take it: a text, or several."""
        return y

    def arguments(self, metric: str, references: Sequence[Any]) -> tuple[Any, ...]:
        """What a metric takes besides texts and references."""
        if metric != "bleu":
            return ()
        # Found once, from all references: a part of them must not choose another.
        return (self.scoring.bleu_tokenise or scores.bleu_tokeniser(references),)

    def scoring_options(self, given: dict[str, Any]) -> tuple[Scoring, dict[str, Any]]:
        own = {name: value for name, value in given.items() if name in Scoring._fields}
        return Scoring(**own), {name: value for name, value in given.items() if name not in own}

    def scored_by(self, scoring: Scoring) -> "SequenceScores":
        same = copy.copy(self)
        same.scoring = scoring
        return same

    def validate(self, run: Run, raws: Sequence[Any], examples: Sequence[Example]) -> dict[str, float]:
        """The metric of the outputs, and the perplexity of the targets."""
        texts, references = [raw.predictions[0].text for raw in raws], [self.reference(one.y) for one in examples]
        name = self.config.metric
        value = self.metrics(references)[name](texts, references).value
        return {name: round(value, 3), "perplexity": round(perplexity(raws), 3)}

    def statistics(
        self, run: Run, examples: Sequence[Example], predictions: Sequence[Any], raws: Sequence[Any]
    ) -> dict[str, Statistics]:
        texts, references = [one.text for one in predictions], [self.reference(one.y) for one in examples]
        return {
            name: metric.statistics(texts, references, *self.arguments(name, references))
            for name, metric in self.metrics(references).items()
        }

    def finished(self, evaluation: Evaluation, scoring: Scoring) -> Evaluation:
        texts = [one.text for one in evaluation.predictions]
        references = [self.reference(one.y) for one in evaluation.examples]
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

    def scores_json(self, evaluation: Evaluation) -> dict[str, Any]:
        signatures = evaluation.extra["signatures"]
        signed = {name: vars(Score(evaluation.values[name], one)) for name, one in signatures.items()}
        return {"perplexity": evaluation.values["perplexity"], **signed}

    def score_table(self, evaluation: Evaluation) -> Table:
        signatures = {**evaluation.extra["signatures"], "perplexity": "per target token"}
        digits = {"perplexity": 3}
        rows = (
            (self.metric_name(name), f"{evaluation.values[name]:.{digits.get(name, 2)}f}", how)
            for name, how in signatures.items()
        )
        return Table(("metric", "score", "how"), tuple(rows))

    def tables(self, evaluation: Evaluation) -> list[Table | str]:
        count = len(evaluation.examples)
        return [f"{count:,} {evaluation.run.task.rows}, {count / evaluation.seconds:.1f} a second"]

    def compared_extra(
        self, metric: str, examples: Sequence[Example], systems: Mapping[str, Statistics], draw: tuple[int, int]
    ) -> dict[str, Any]:
        references = [self.reference(one.y) for one in examples]
        # How a metric computes does not depend on the text, once its arguments are chosen: one pair tells.
        given = [self.targets(examples[0].y)[0]], references[:1], *self.arguments(metric, references)
        return {"signature": self.metrics(references)[metric](*given).signature}

    def targets(self, y: Any, training: bool = False) -> Sequence[str]:
        """The texts of a target: those that are learnt and scored, or those whose loss is measured in training."""
        return (y,)

    def row(self, example: Example, prediction: Any) -> dict[str, Any]:
        item = example.x if isinstance(example.x, str) else str(example.x)
        return {self.item_name: item, "prediction": prediction.text, "reference": self.reference(example.y)}

    def scored_row(self, evaluation: Evaluation, number: int) -> dict[str, Any]:
        prediction = evaluation.predictions[number]
        searched = {"log_prob": prediction.log_prob, "score": prediction.score}
        each = {name: values[number] for name, values in evaluation.extra["each"].items()}
        return {**self.row(evaluation.examples[number], prediction), **searched, **each}

    def badness(self, evaluation: Evaluation) -> list[float]:
        return [101 - value for value in evaluation.extra["each"][self.each[0]]]  # right ones come last, and are shown

    def shown_error(self, row: Mapping[str, Any]) -> str:
        texts = (f"   {name:<10}  {row[name]}" for name in (self.item_name, "prediction", "reference"))
        return "\n".join((f"chrF {row['chrf']:.1f}", *texts))


def perplexity(raws: Sequence[Any]) -> float:
    """exp of the mean loss of a target token, without smoothing."""
    total, tokens = (sum(getattr(raw, name) for raw in raws) for name in ("loss", "tokens"))
    return math.exp(min(total / max(tokens, 1), 700))
