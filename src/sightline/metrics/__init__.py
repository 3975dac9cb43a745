"""Scores of text, labels, tags and numbers. Every score says how it was computed, so that two tables compare."""

from typing import Literal

from sightline.metrics.answers import answer_exact, answer_f1, answer_words
from sightline.metrics.base import Metric, Score, Statistics, by_name
from sightline.metrics.bootstrap import Resampled, paired_bootstrap
from sightline.metrics.calibration import (
    Bin,
    adaptive_ece,
    as_two_classes,
    brier,
    ece,
    fit_temperature,
    nll,
    probabilities,
    reliability_bins,
)
from sightline.metrics.labels import (
    OfClass,
    accuracy,
    best_threshold,
    confusion,
    labels_over,
    macro_f1,
    micro_f1,
    per_class,
    several_macro_f1,
    several_per_class,
    subset_accuracy,
)
from sightline.metrics.lengths import EDGES, Bucket, buckets_by_length
from sightline.metrics.matching import bleu, chrf, exact_match, tokenised_bleu
from sightline.metrics.numbers import mae, pearson, rmse, spearman
from sightline.metrics.rouge import rouge, rouge_f1
from sightline.metrics.scripts import BleuTokeniser, bleu_tokeniser
from sightline.metrics.spans import are_spans, span_f1, span_table, spans_of, token_accuracy

TextMetric = Literal["bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"]
METRICS = by_name(bleu, chrf, exact_match, tokenised_bleu, rouge("rouge1"), rouge("rouge2"), rouge("rougeL"))
