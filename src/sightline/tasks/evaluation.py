"""How good runs are on pairs, by length, sentence by sentence, and against each other. Nothing here prints."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sightline.errors import UserError
from sightline.tasks.predictor import Prediction, Predictor
from sightline.tasks.translator import Translator
from sightline.training import scores
from sightline.training.scores import BleuTokeniser, Bucket, Resampled, Score, Statistics, TextMetric

AT_ONCE = 512  # enough to sort by length, few enough that a bar moves


@dataclass(frozen=True)
class LengthScores:
    """Scores of the pairs whose sources are about equally long."""

    bucket: Bucket
    values: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        bucket = self.bucket
        found = {"unit": bucket.unit, "least": bucket.least, "most": bucket.most, "pairs": len(bucket.rows)}
        return {**found, **self.values}


@dataclass(frozen=True)
class Evaluation:
    """Predictions for pairs, and every score of them. ``sentences`` is the chrF of each prediction by itself."""

    pairs: list[tuple[str, str]]
    predictions: list[Prediction]
    scores: dict[str, Score]
    perplexity: float
    by_length: list[LengthScores]
    sentences: list[float]
    seconds: float  # of predicting

    def worst(self, count: int) -> list[dict[str, Any]]:
        """The predictions with the lowest chrF, the worst first."""
        rows = sorted(range(len(self.pairs)), key=lambda row: self.sentences[row])[:count]
        return [self._texts(row) | {"chrf": self.sentences[row]} for row in rows]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Every pair with its prediction, what the search gave it, and its scores."""
        found, references = [one.text for one in self.predictions], [reference for _, reference in self.pairs]
        names = ("exact", "rouge1", "rouge2", "rougeL")
        of_each = {
            "chrf": self.sentences,
            **{name: scores.METRICS[name].statistics(found, references).of_each() for name in names},
        }
        for row, prediction in enumerate(self.predictions):
            searched = {"log_prob": prediction.log_prob, "score": prediction.score}
            yield self._texts(row) | searched | {name: values[row] for name, values in of_each.items()}

    def to_json(self, errors: int = 0) -> dict[str, Any]:
        """Everything but the predictions; with ``errors``, that many of the worst."""
        found: dict[str, Any] = {"pairs": len(self.pairs), "perplexity": self.perplexity}
        found |= {name: {"value": one.value, "signature": one.signature} for name, one in self.scores.items()}
        found["by_length"] = [one.to_json() for one in self.by_length]
        return found | ({"errors": self.worst(errors)} if errors else {})

    def _texts(self, row: int) -> dict[str, str]:
        source, reference = self.pairs[row]
        return {"source": source, "prediction": self.predictions[row].text, "reference": reference}


@dataclass(frozen=True)
class Comparison:
    """Systems on the same pairs. ``found`` is by metric, then by system; differences are to the first system."""

    pairs: int
    samples: int
    seed: int
    signatures: dict[str, str]
    found: dict[str, dict[str, Resampled]]
    by_length: dict[str, list[LengthScores]]  # by metric; the values are by system

    def to_json(self) -> dict[str, Any]:
        metrics = {
            metric: {
                "signature": self.signatures[metric],
                "runs": {
                    name: {"value": one.value, "interval": one.interval, "difference": one.difference, "p": one.p}
                    for name, one in runs.items()
                },
                "by_length": [
                    {key: value for key, value in part.to_json().items() if key not in part.values}
                    | {"runs": part.values}
                    for part in self.by_length[metric]
                ],
            }
            for metric, runs in self.found.items()
        }
        return {"pairs": self.pairs, "samples": self.samples, "seed": self.seed, "metrics": metrics}


def predict_all(
    predictor: Predictor,
    sources: Sequence[str],
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    on_predicted: Callable[[int], None] = lambda count: None,
) -> list[Prediction]:
    """A prediction for each source; ``on_predicted`` hears after every few hundred how many there were."""
    found: list[Prediction] = []
    for start in range(0, len(sources), AT_ONCE):
        part = sources[start : start + AT_ONCE]
        found += predictor.predict(part, beam=beam, length_penalty=length_penalty)
        on_predicted(len(part))
    return found


def evaluate(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    bleu_tokenise: BleuTokeniser | None = None,
    by_length: Sequence[TextMetric] = ("bleu", "chrf"),
    edges: Sequence[int] = scores.EDGES,
    on_predicted: Callable[[int], None] = lambda count: None,
) -> Evaluation:
    """Every metric of a model on pairs; those of ``by_length`` also by the length of the source."""
    sources, references = _sides(pairs)
    started = time.perf_counter()
    predictions = predict_all(translator, sources, beam=beam, length_penalty=length_penalty, on_predicted=on_predicted)
    seconds = time.perf_counter() - started
    texts = [one.text for one in predictions]
    # Found once, from all references: a bucket of a few sentences must not choose another.
    tokenise = bleu_tokenise or scores.bleu_tokeniser(references)
    found = {name: _score(name, texts, references, tokenise) for name in scores.METRICS}
    if any("\n" in reference for reference in references):
        found["rougeLsum"] = scores.rouge("rougeLsum")(texts, references)
    statistics = {name: _statistics(name, texts, references, tokenise) for name in dict.fromkeys((*by_length, "chrf"))}
    lengths = [
        LengthScores(bucket, {name: statistics[name].score(bucket.rows) for name in dict.fromkeys(by_length)})
        for bucket in scores.buckets_by_length(sources, edges)
    ]
    return Evaluation(
        list(pairs),
        predictions,
        found,
        translator.perplexity(pairs),
        lengths,
        statistics["chrf"].of_each(),
        seconds,
    )


def compare(
    predictors: Mapping[str, Predictor],
    pairs: Sequence[tuple[str, str]],
    *,
    beam: int = 5,
    length_penalty: float = 1.0,
    on_predicted: Callable[[int], None] = lambda count: None,
    **options: Any,
) -> Comparison:
    """Several models on the same pairs; ``options`` are those of `compare_predictions`."""
    sources, references = _sides(pairs)
    search: dict[str, Any] = {"beam": beam, "length_penalty": length_penalty, "on_predicted": on_predicted}
    texts = {
        name: [one.text for one in predict_all(predictor, sources, **search)] for name, predictor in predictors.items()
    }
    return compare_predictions(texts, sources, references, **options)


def compare_predictions(
    systems: Mapping[str, Sequence[str]],
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[TextMetric] = ("bleu", "chrf"),
    samples: int = 1000,
    seed: int = 0,
    bleu_tokenise: BleuTokeniser | None = None,
    edges: Sequence[int] = scores.EDGES,
) -> Comparison:
    """Outputs of several systems, by name: paired bootstrap of each metric, and scores by the length of the source."""
    if len(systems) < 2:
        raise UserError(f"there is {len(systems)} to compare; expected two or more")
    tokenise = bleu_tokenise or scores.bleu_tokeniser(references)
    buckets = scores.buckets_by_length(sources, edges)
    signatures: dict[str, str] = {}
    found: dict[str, dict[str, Resampled]] = {}
    by_length: dict[str, list[LengthScores]] = {}
    for metric in dict.fromkeys(metrics):
        statistics = {name: _statistics(metric, texts, references, tokenise) for name, texts in systems.items()}
        resampled = scores.paired_bootstrap(list(statistics.values()), samples, seed)
        # How a metric computes does not depend on the text, once the tokeniser is chosen: one pair tells.
        signatures[metric] = _score(metric, references[:1], references[:1], tokenise).signature
        found[metric] = dict(zip(systems, resampled, strict=True))
        by_length[metric] = [
            LengthScores(bucket, {name: one.score(bucket.rows) for name, one in statistics.items()})
            for bucket in buckets
        ]
    return Comparison(len(references), samples, seed, signatures, found, by_length)


def _sides(pairs: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    if not pairs:
        raise UserError("there is no pair to score; expected at least one")
    return [source for source, _ in pairs], [reference for _, reference in pairs]


def _score(metric: str, texts: Sequence[str], references: Sequence[str], tokenise: BleuTokeniser) -> Score:
    if metric == "bleu":
        return scores.bleu(texts, references, tokenise)
    return scores.METRICS[metric](texts, references)


def _statistics(metric: str, texts: Sequence[str], references: Sequence[str], tokenise: BleuTokeniser) -> Statistics:
    if metric == "bleu":
        return scores.bleu.statistics(texts, references, tokenise)
    return scores.METRICS[metric].statistics(texts, references)
