"""Scores of text against references. Every score says how it was computed, so that two tables can be compared."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from sightline.training.scores.base import Score, Statistics
from sightline.training.scores.bootstrap import Resampled, paired_bootstrap
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
from sightline.training.scores.rouge import rouge, rouge_f1, rouge_statistics
from sightline.training.scores.scripts import BleuTokeniser, bleu_tokeniser

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

__all__ = [
    "EDGES",
    "METRICS",
    "STATISTICS",
    "BleuTokeniser",
    "Bucket",
    "Metric",
    "Resampled",
    "Score",
    "Statistics",
    "bleu",
    "bleu_tokeniser",
    "buckets_by_length",
    "chrf",
    "exact_match",
    "paired_bootstrap",
    "rouge",
    "rouge_f1",
    "sentence_chrf",
    "tokenised_bleu",
]


def sentence_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """chrF of each text by itself: finds the worst ones, and unlike BLEU means something on a single sentence."""
    return chrf_statistics(hypotheses, references).of_each()
