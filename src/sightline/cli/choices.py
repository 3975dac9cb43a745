"""What several commands let you choose from."""

from typing import Literal

Metric = Literal["bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"]
LabelMetric = Literal["macro_f1", "accuracy", "micro_f1", "pearson", "spearman", "rmse"]
CaptionMetric = Literal[
    "bleu1", "bleu2", "bleu3", "bleu4", "bleu1_no_bp", "bleu2_no_bp", "bleu3_no_bp", "bleu4_no_bp", "cider_d", "cider"
]  # fmt: skip
BleuTokeniser = Literal["auto", "13a", "zh", "char", "intl", "none"]
Device = Literal["auto", "cpu", "cuda"]
