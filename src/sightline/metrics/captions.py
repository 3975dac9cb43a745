"""BLEU-1 to BLEU-4 of captions against several references (Papineni et al. 2002), with and without the penalty.

Tables of captions differ in what they call BLEU. Xu et al. 2015 leave out the brevity penalty, others keep it; both are
here, by name. A word of the output counts as often as the reference that has it most often, and the length to reach is
that of the reference closest to the output (of two as close, the shorter): as in sacreBLEU and multi-bleu, to which a
test holds it. Nothing is smoothed: without any match of an order the score is 0. What people get wrong: full stops.
Where output and references are counted with them, BLEU-4 is higher by points; here only letters and digits are words.
"""

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float64

from sightline import __version__
from sightline.metrics.base import Metric, MetricScore, Statistics, by_name, mean_statistics, metric
from sightline.metrics.rouge_scores import common_length, ngrams
from sightline.metrics.texts import BleuTokeniser, bleu_tokeniser, by_sacrebleu, chrf, words_of

Order = Literal[1, 2, 3, 4]
References = Sequence[Sequence[str]]  # of each text, one or more
LONGEST = 4
WORDS = f"case:lc|tok:alnum,char-if-no-spaces|version:sightline-{__version__}"


def bleu_order(order: Order, brevity: bool = True) -> Metric[[Sequence[str], References]]:
    """BLEU with n-grams of up to ``order`` words, from 0 to 100; counted are matches, totals and both lengths."""
    if order not in range(1, LONGEST + 1):
        raise ValueError(f"order is {order}; it is one of 1, 2, 3 and 4")
    of_sums, penalty = partial(_bleu_of_sums, order=order, brevity=brevity), "closest" if brevity else "no"
    return Metric(
        f"bleu{order}" if brevity else f"bleu{order}_no_bp",
        lambda hypotheses, references: Statistics(bleu_rows(hypotheses, references), of_sums),
        lambda hypotheses, references: f"bleu|order:{order}|{counted(references)}|bp:{penalty}|smooth:none|{WORDS}",
    )


def bleu_rows(hypotheses: Sequence[str], references: References) -> Float64[np.ndarray, "texts counts"]:
    """What all eight scores are made of: they differ in what they make of the sums only."""
    check_references(hypotheses, references)
    rows = np.zeros((len(hypotheses), 2 * LONGEST + 2))
    for row, (text, several) in enumerate(zip(hypotheses, references, strict=True)):
        written = words_of(text)
        targets = [words_of(reference) for reference in several]
        for order in range(1, LONGEST + 1):
            counts, most = ngrams(written, order), Counter[tuple[str, ...]]()
            for words in targets:
                most |= ngrams(words, order)  # of each n-gram, as many as the reference that has most
            rows[row, order - 1] = (counts & most).total()
            rows[row, LONGEST + order - 1] = counts.total()
        lengths = [len(words) for words in targets]
        rows[row, -2:] = len(written), min(lengths, key=lambda length: (abs(length - len(written)), length))
    return rows


def check_references(hypotheses: Sequence[str], references: References) -> None:
    """As many lists of references as texts, and none of them empty."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} texts against references of {len(references)}")
    if any(isinstance(several, str) for several in references):
        raise ValueError("references are lists of texts, one list for each text")
    if not all(references):
        raise ValueError("a text has no reference; expected at least one")


def counted(references: References) -> str:
    """How many references there are of each text, as signatures say it."""
    least, most = min(map(len, references), default=0), max(map(len, references), default=0)
    return f"nrefs:{least}" if least == most else f"nrefs:{least}-{most}"


def _bleu_of_sums(sums: Float64[np.ndarray, "sums counts"], order: int, brevity: bool) -> Float64[np.ndarray, " sums"]:
    matches, totals = sums[:, :order], sums[:, LONGEST : LONGEST + order]
    some = (matches > 0).all(axis=1)
    precisions = np.where(matches > 0, matches, 1) / np.maximum(totals, 1)
    scores = np.where(some, np.exp(np.log(precisions).mean(axis=1)), 0.0)
    if brevity:
        written, length = sums[:, -2], sums[:, -1]
        scores = scores * np.where(written < length, np.exp(1 - length / np.maximum(written, 1)), 1.0)
    return 100 * scores


# CIDEr (Vedantam, Zitnick and Parikh 2015): what a caption has in common with what most people wrote of the image.
#
# N-grams count by tf-idf: those that people write of every image say little. The score of an image is the mean over its
# references, and over n from 1 to 4, of the cosine of the two vectors. CIDEr-D, which tables of captions mean by CIDEr,
# counts no n-gram more often than the reference has it and multiplies by a Gaussian of the difference in length (σ = 6
# words), so that repeating words does not pay. The idf is that of the references being scored: scores on different
# images do not compare, and with a single image there are none (every idf is 0). Values are those of the common
# implementation (with its factor of 10) times 100, so that 57.5 here is the 0.575 of some tables. No stemming, as
# there.


Variant = Literal["cider", "cider_d"]
SIGMA, SCALE = 6.0, 10.0
_Counts = list[Counter[tuple[str, ...]]]  # of each order
_Vector = dict[tuple[str, ...], float]


def cider(variant: Variant) -> Metric[[Sequence[str], References]]:
    """The mean over images; not bounded by 100.

    A resample keeps the idf of all images, which moves its score very little.
    """
    options = f"{variant.replace('_', '-')}|n:1-4|{'clip:yes|sigma:6' if variant == 'cider_d' else 'clip:no'}"
    return Metric(
        variant,
        lambda hypotheses, references: mean_statistics(cider_of_each(variant, hypotheses, references)),
        lambda hypotheses, references: f"{options}|{counted(references)}|idf:these references|stem:no|{WORDS}",
    )


def cider_of_each(variant: Variant, hypotheses: Sequence[str], references: References) -> list[float]:
    """The score of every image."""
    if variant not in ("cider", "cider_d"):
        raise ValueError(f"variant is {variant!r}; it is cider or cider_d")
    check_references(hypotheses, references)
    targets = [[_counts(words_of(reference)) for reference in several] for several in references]
    images: Counter[tuple[str, ...]] = Counter()  # how many images have an n-gram in any of their references
    for several in targets:
        images.update({ngram for one in several for order in one for ngram in order})
    total = math.log(max(len(targets), 1))

    def vectors(counts: _Counts) -> list[_Vector]:
        return [
            {ngram: count * (total - math.log(max(images[ngram], 1))) for ngram, count in order.items()}
            for order in counts
        ]

    scores = []
    for text, several in zip(hypotheses, targets, strict=True):
        counts = _counts(words_of(text))
        written = vectors(counts)
        shared = [_likeness(variant, counts, written, one, vectors(one)) for one in several]
        scores.append(100 * SCALE * sum(shared) / len(shared))
    return scores


def _counts(words: Sequence[str]) -> _Counts:
    return [ngrams(words, order) for order in range(1, LONGEST + 1)]


def _likeness(
    variant: Variant, counts: _Counts, written: list[_Vector], reference: _Counts, target: list[_Vector]
) -> float:
    """Of one reference: the mean over the orders."""
    clipped = variant == "cider_d"
    total = 0.0
    for ours, theirs in zip(written, target, strict=True):
        lengths = _length(ours) * _length(theirs)
        if lengths:
            products = (
                (min(value, theirs[ngram]) if clipped else value) * theirs[ngram]
                for ngram, value in ours.items()
                if ngram in theirs
            )
            total += sum(products) / lengths
    apart = counts[0].total() - reference[0].total()
    return total / LONGEST * (math.exp(-(apart**2) / (2 * SIGMA**2)) if clipped else 1.0)


def _length(vector: _Vector) -> float:
    return math.sqrt(sum(value * value for value in vector.values()))


# Scores of captions against several references: ROUGE-L, chrF and exact match, and all metrics of captions by name.


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
    targets = [words_of(reference) for reference in references]
    common = [common_length(written, words) for words in targets]
    precision = max(common) / max(len(written), 1)
    recall = max(shared / max(len(words), 1) for shared, words in zip(common, targets, strict=True))
    if not precision:
        return 0.0
    return 100 * (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _chrf_score(hypotheses: Sequence[str], references: References) -> MetricScore:
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


def bleu_several(
    hypotheses: Sequence[str], references: References, tokenise: BleuTokeniser | None = None
) -> MetricScore:
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
