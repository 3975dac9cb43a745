"""What several commands let you choose from."""

from typing import Literal

Metric = Literal["bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"]
LabelMetric = Literal["macro_f1", "accuracy", "micro_f1", "pearson", "spearman", "rmse"]
WordMetric = Literal["span_f1", "f1"]  # of tags and of answers
BleuTokeniser = Literal["auto", "13a", "zh", "char", "intl", "none"]
Device = Literal["auto", "cpu", "cuda"]
