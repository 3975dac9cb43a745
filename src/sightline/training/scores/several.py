"""Scores of captions against several references: ROUGE-L, chrF and exact match, and all metrics of captions by name."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np

from sightline.training.scores.base import Score, Statistics, mean_statistics
from sightline.training.scores.bleu_orders import (
    WORDS,
    Order,
    References,
    bleu_order,
    bleu_order_statistics,
    check_references,
    counted,
)
from sightline.training.scores.cider import cider, cider_statistics
from sightline.training.scores.matching import chrf_statistics
from sightline.training.scores.rouge import common_length
from sightline.training.scores.scripts import BleuTokeniser, bleu_tokeniser, words_of

BETA = 1.2  # of ROUGE-L: recall counts a little more than precision

CaptionMetric = Literal[
    "bleu1", "bleu2", "bleu3", "bleu4", "bleu1_no_bp", "bleu2_no_bp", "bleu3_no_bp", "bleu4_no_bp",
    "cider_d", "cider", "rougeL", "chrf", "exact",
]  # fmt: skip


def rouge_l(hypotheses: Sequence[str], references: References) -> Score:
    """ROUGE-L of captions: the longest common subsequence with the reference that shares most, the mean over texts.

    As tables of captions have it, and other than of summaries: precision and recall are each the best over the
    references, and the F-score of the two has β = 1.2.
    """
    signature = f"rougeL|{counted(references)}|best:each|beta:{BETA}|{WORDS}"
    return Score(rouge_l_statistics(hypotheses, references).score(), signature)


def rouge_l_statistics(hypotheses: Sequence[str], references: References) -> Statistics:
    check_references(hypotheses, references)
    return mean_statistics([_rouge_l(*both) for both in zip(hypotheses, references, strict=True)])


def _rouge_l(hypothesis: str, references: Sequence[str]) -> float:
    written = words_of(hypothesis)
    wanted = [words_of(reference) for reference in references]
    common = [common_length(written, words) for words in wanted]
    precision = max(common) / max(len(written), 1)
    recall = max(shared / max(len(words), 1) for shared, words in zip(common, wanted, strict=True))
    if not precision:
        return 0.0
    return 100 * (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def chrf_several(hypotheses: Sequence[str], references: References) -> Score:
    """sacreBLEU's chrF2, lower-cased; of several references each text takes the one that is most like it."""
    from sacrebleu.metrics import CHRF

    check_references(hypotheses, references)
    metric = CHRF(lowercase=True)
    found = metric.corpus_score(list(hypotheses), _streams(references))
    return Score(found.score, str(metric.get_signature()))


def chrf_several_statistics(hypotheses: Sequence[str], references: References) -> Statistics:
    """The counts of the reference that is most like each text."""
    check_references(hypotheses, references)
    lowered = [text.lower() for text in hypotheses]
    pairs = [(row, reference.lower()) for row, several in enumerate(references) for reference in several]
    all_of = chrf_statistics([lowered[row] for row, _ in pairs], [reference for _, reference in pairs])
    best: dict[int, tuple[float, int]] = {}
    for place, ((row, _), value) in enumerate(zip(pairs, all_of.of_each(), strict=True)):
        if row not in best or value > best[row][0]:
            best[row] = value, place
    chosen = [best[row][1] for row in range(len(references))]
    return Statistics(all_of.rows[np.array(chosen, dtype=np.intp)], all_of.scores_of_sums)


def exact_several(hypotheses: Sequence[str], references: References) -> Score:
    """The share of outputs that have the words of one of their references, in order."""
    return Score(exact_several_statistics(hypotheses, references).score(), f"{counted(references)}|{WORDS}")


def exact_several_statistics(hypotheses: Sequence[str], references: References) -> Statistics:
    check_references(hypotheses, references)
    return mean_statistics(
        [
            100.0 * (words_of(text) in [words_of(reference) for reference in several])
            for text, several in zip(hypotheses, references, strict=True)
        ]
    )


def bleu_several(hypotheses: Sequence[str], references: References, tokenise: BleuTokeniser | None = None) -> Score:
    """sacreBLEU against several references, lower-cased, punctuation counted, with its signature."""
    from sacrebleu.metrics import BLEU

    check_references(hypotheses, references)
    tokenise = tokenise or bleu_tokeniser(reference for several in references for reference in several)
    metric = BLEU(tokenize=tokenise, lowercase=True, force=True)
    found = metric.corpus_score(list(hypotheses), _streams(references))
    return Score(found.score, str(metric.get_signature()))


def _streams(references: References) -> Any:
    """The first references of all texts, then the second ones and so on; None, which sacreBLEU leaves out, where a text
    has fewer."""
    most = max(map(len, references), default=0)
    return [[several[place] if place < len(several) else None for several in references] for place in range(most)]


_ORDERS: tuple[Order, ...] = (1, 2, 3, 4)
CAPTION_METRICS: dict[str, Callable[[Sequence[str], References], Score]] = {
    **{f"bleu{order}": partial(bleu_order, order) for order in _ORDERS},
    **{f"bleu{order}_no_bp": partial(bleu_order, order, brevity=False) for order in _ORDERS},
    "cider_d": partial(cider, "cider_d"),
    "cider": partial(cider, "cider"),
    "rougeL": rouge_l,
    "chrf": chrf_several,
    "exact": exact_several,
}
CAPTION_STATISTICS: dict[str, Callable[[Sequence[str], References], Statistics]] = {
    **{f"bleu{order}": partial(bleu_order_statistics, order) for order in _ORDERS},
    **{f"bleu{order}_no_bp": partial(bleu_order_statistics, order, brevity=False) for order in _ORDERS},
    "cider_d": partial(cider_statistics, "cider_d"),
    "cider": partial(cider_statistics, "cider"),
    "rougeL": rouge_l_statistics,
    "chrf": chrf_several_statistics,
    "exact": exact_several_statistics,
}
