"""Scores of text, labels, tags and numbers. Every score says how it was computed, so that two tables compare."""

from typing import Literal

from sightline.metrics.base import Metric, MetricScore, Resampled, Statistics, by_name, paired_bootstrap
from sightline.metrics.calibration import (
    Bin,
    as_two_classes,
    brier,
    ece,
    fit_temperature,
    nll,
    probabilities,
    reliability_bins,
)
from sightline.metrics.denotations import denotation, equal_items, normalise_answer, same_denotation
from sightline.metrics.error_rates import Edit, cer, error_counts, sentence_error, wer, word_edits, word_errors
from sightline.metrics.labels import (
    OfClass,
    accuracy,
    best_threshold,
    confusion,
    macro_f1,
    mae,
    micro_f1,
    pearson,
    per_class,
    rmse,
    several_macro_f1,
    several_per_class,
    spearman,
    subset_accuracy,
)
from sightline.metrics.rouge_scores import rouge, rouge_f1
from sightline.metrics.spans import (
    answer_exact,
    answer_f1,
    answer_words,
    are_spans,
    span_f1,
    span_table,
    spans_of,
    token_accuracy,
)
from sightline.metrics.texts import (
    EDGES,
    BleuTokeniser,
    Bucket,
    bleu,
    bleu_tokeniser,
    buckets_by_length,
    chrf,
    exact_match,
    tokenised_bleu,
)

__all__ = ["METRICS", "Metric", "MetricScore", "Resampled", "Statistics", "TextMetric", "accuracy"]
__all__ += ["answer_exact", "answer_f1", "best_threshold", "bleu", "brier", "chrf", "confusion", "ece"]
__all__ += ["denotation", "equal_items", "normalise_answer", "same_denotation"]
__all__ += ["exact_match", "fit_temperature", "macro_f1", "mae", "micro_f1", "nll", "paired_bootstrap"]
__all__ += ["pearson", "per_class", "rmse", "rouge", "span_f1", "spearman", "subset_accuracy", "token_accuracy"]
__all__ += ["cer", "error_counts", "sentence_error", "tokenised_bleu", "wer", "word_edits", "word_errors"]

TextMetric = Literal["bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"]
METRICS = by_name(bleu, chrf, exact_match, tokenised_bleu, rouge("rouge1"), rouge("rouge2"), rouge("rougeL"))
