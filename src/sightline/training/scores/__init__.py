"""Scores of text, labels, tags and numbers. Every score says how it was computed, so that two tables compare."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from sightline.training.scores.answers import (
    answer_exact,
    answer_exact_statistics,
    answer_f1,
    answer_f1_statistics,
    answer_words,
)
from sightline.training.scores.base import Score, Statistics
from sightline.training.scores.bootstrap import Resampled, paired_bootstrap
from sightline.training.scores.calibration import (
    Bin,
    adaptive_ece,
    as_two_classes,
    brier,
    brier_statistics,
    ece,
    ece_statistics,
    fit_temperature,
    nll,
    nll_statistics,
    probabilities,
    reliability_bins,
)
from sightline.training.scores.labels import (
    OfClass,
    accuracy,
    accuracy_statistics,
    best_threshold,
    confusion,
    labels_over,
    macro_f1,
    macro_f1_statistics,
    micro_f1,
    micro_f1_statistics,
    per_class,
    several_macro_f1,
    several_macro_f1_statistics,
    several_per_class,
    subset_accuracy,
    subset_statistics,
)
from sightline.training.scores.lengths import EDGES, Bucket, buckets_by_length
from sightline.training.scores.matching import (
    bleu,
    bleu_statistics,
    chrf,
    chrf_statistics,
    exact_match,
    exact_statistics,
    tokenised_bleu,
    tokenised_bleu_statistics,
)
from sightline.training.scores.numbers import (
    mae,
    mae_statistics,
    pearson,
    pearson_statistics,
    rmse,
    rmse_statistics,
    spearman,
    spearman_statistics,
)
from sightline.training.scores.rouge import rouge, rouge_f1, rouge_statistics
from sightline.training.scores.scripts import BleuTokeniser, bleu_tokeniser
from sightline.training.scores.spans import (
    are_spans,
    span_f1,
    span_f1_statistics,
    span_table,
    spans_of,
    token_accuracy,
    token_accuracy_statistics,
)

Metric = Literal["bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"]
METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], Score]] = {
    "bleu": bleu,
    "chrf": chrf,
    "exact": exact_match,
    "tokenised_bleu": tokenised_bleu,
    "rouge1": partial(rouge, "rouge1"),
    "rouge2": partial(rouge, "rouge2"),
    "rougeL": partial(rouge, "rougeL"),
}
# The same metrics as counts of each text, which add up to the score of any part or resample of a corpus.
STATISTICS: dict[str, Callable[[Sequence[str], Sequence[str]], Statistics]] = {
    "bleu": bleu_statistics,
    "chrf": chrf_statistics,
    "exact": exact_statistics,
    "tokenised_bleu": tokenised_bleu_statistics,
    "rouge1": partial(rouge_statistics, "rouge1"),
    "rouge2": partial(rouge_statistics, "rouge2"),
    "rougeL": partial(rouge_statistics, "rougeL"),
}
# Scores of which less is better.
LESS_IS_BETTER = frozenset({"adaptive_ece", "brier", "ece", "mae", "nll", "rmse"})

__all__ = [
    "EDGES",
    "LESS_IS_BETTER",
    "METRICS",
    "STATISTICS",
    "Bin",
    "BleuTokeniser",
    "Bucket",
    "Metric",
    "OfClass",
    "Resampled",
    "Score",
    "Statistics",
    "accuracy",
    "accuracy_statistics",
    "adaptive_ece",
    "answer_exact",
    "answer_exact_statistics",
    "answer_f1",
    "answer_f1_statistics",
    "answer_words",
    "are_spans",
    "as_two_classes",
    "best_threshold",
    "bleu",
    "bleu_tokeniser",
    "brier",
    "brier_statistics",
    "buckets_by_length",
    "chrf",
    "confusion",
    "ece",
    "ece_statistics",
    "exact_match",
    "fit_temperature",
    "labels_over",
    "macro_f1",
    "macro_f1_statistics",
    "mae",
    "mae_statistics",
    "micro_f1",
    "micro_f1_statistics",
    "nll",
    "nll_statistics",
    "paired_bootstrap",
    "pearson",
    "pearson_statistics",
    "per_class",
    "probabilities",
    "reliability_bins",
    "rmse",
    "rmse_statistics",
    "rouge",
    "rouge_f1",
    "sentence_chrf",
    "several_macro_f1",
    "several_macro_f1_statistics",
    "several_per_class",
    "span_f1",
    "span_f1_statistics",
    "span_table",
    "spans_of",
    "spearman",
    "spearman_statistics",
    "subset_accuracy",
    "subset_statistics",
    "token_accuracy",
    "token_accuracy_statistics",
    "tokenised_bleu",
]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each text by itself: finds the worst ones, and unlike BLEU means something on a single sentence."""
    return chrf_statistics(hypotheses, references).of_each()
