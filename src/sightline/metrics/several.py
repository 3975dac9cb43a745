"""Scores of captions against several references: ROUGE-L, chrF and exact match, and all metrics of captions by name."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sightline.metrics.base import Score, Statistics, by_name, mean_statistics, metric
from sightline.metrics.bleu_orders import WORDS, Order, References, bleu_order, check_references, counted
from sightline.metrics.cider import cider
from sightline.metrics.matching import by_sacrebleu, chrf
from sightline.metrics.rouge import common_length
from sightline.metrics.scripts import BleuTokeniser, bleu_tokeniser, words_of

BETA = 1.2  # of ROUGE-L: recall counts a little more than precision

CaptionMetric = Literal[
    "bleu1", "bleu2", "bleu3", "bleu4", "bleu1_no_bp", "bleu2_no_bp", "bleu3_no_bp", "bleu4_no_bp",
    "cider_d", "cider", "rougeL", "chrf", "exact",
]  # fmt: skip


@metric(lambda hypotheses, references: f"rougeL|{counted(references)}|best:each|beta:{BETA}|{WORDS}", name="rougeL")
def rouge_l(hypotheses: Sequence[str], references: References) -> Statistics:
    """ROUGE-L of captions: the longest common subsequence with the reference that shares most, the mean over texts.

    As tables of captions have it, and other than of summaries: precision and recall are each the best over the
    references, and the F-score of the two has β = 1.2.
    """
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


def _chrf_score(hypotheses: Sequence[str], references: References) -> Score:
    from sacrebleu.metrics import CHRF

    check_references(hypotheses, references)
    return by_sacrebleu(CHRF(lowercase=True), hypotheses, _streams(references))


@metric(name="chrf", scored=_chrf_score)
def chrf_several(hypotheses: Sequence[str], references: References) -> Statistics:
    """sacreBLEU's chrF2, lower-cased; of several references each text takes the one that is most like it."""
    check_references(hypotheses, references)
    lowered = [text.lower() for text in hypotheses]
    pairs = [(row, reference.lower()) for row, several in enumerate(references) for reference in several]
    all_of = chrf.statistics([lowered[row] for row, _ in pairs], [reference for _, reference in pairs])
    best: dict[int, tuple[float, int]] = {}
    for place, ((row, _), value) in enumerate(zip(pairs, all_of.of_each(), strict=True)):
        if row not in best or value > best[row][0]:
            best[row] = value, place
    chosen = [best[row][1] for row in range(len(references))]
    return Statistics(all_of.rows[np.array(chosen, dtype=np.intp)], all_of.scores_of_sums)


@metric(lambda hypotheses, references: f"{counted(references)}|{WORDS}", name="exact")
def exact_several(hypotheses: Sequence[str], references: References) -> Statistics:
    """The share of outputs that have the words of one of their references, in order."""
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
    return by_sacrebleu(BLEU(tokenize=tokenise, lowercase=True, force=True), hypotheses, _streams(references))


def _streams(references: References) -> list[list[str | None]]:
    """The first references of all texts, then the second ones and so on; None, which sacreBLEU leaves out, where a text
    has fewer."""
    most = max(map(len, references), default=0)
    return [[several[place] if place < len(several) else None for several in references] for place in range(most)]


_ORDERS: tuple[Order, ...] = (1, 2, 3, 4)
_BLEUS = [bleu_order(order, brevity) for brevity in (True, False) for order in _ORDERS]
CAPTION_METRICS = by_name(*_BLEUS, cider("cider_d"), cider("cider"), rouge_l, chrf_several, exact_several)
