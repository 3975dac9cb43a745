"""CIDEr (Vedantam, Zitnick and Parikh 2015): what a caption has in common with what most people wrote of the image.

N-grams count by tf-idf: those that people write of every image say little. The score of an image is the mean over its
references, and over n from 1 to 4, of the cosine of the two vectors. CIDEr-D, which tables of captions mean by CIDEr,
counts no n-gram more often than the reference has it and multiplies by a Gaussian of the difference in length (σ = 6
words), so that repeating words does not pay. The idf is that of the references being scored: scores on different images
do not compare, and with a single image there are none (every idf is 0). Values are those of the common implementation
(with its factor of 10) times 100, so that 57.5 here is the 0.575 of some tables. No stemming, as there.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from sightline.metrics.base import Metric, mean_statistics
from sightline.metrics.bleu_orders import WORDS, References, check_references, counted, ngrams
from sightline.metrics.scripts import words_of

Variant = Literal["cider", "cider_d"]
LONGEST, SIGMA, SCALE = 4, 6.0, 10.0
_Counts = list[Counter[tuple[str, ...]]]  # of each order
_Vector = dict[tuple[str, ...], float]


def cider(variant: Variant) -> Metric[[Sequence[str], References]]:
    """The mean over images; not bounded by 100.

    A resample keeps the idf of all images, which moves its score very little.
    """
    how = f"{variant.replace('_', '-')}|n:1-4|{'clip:yes|sigma:6' if variant == 'cider_d' else 'clip:no'}"
    return Metric(
        variant,
        lambda hypotheses, references: mean_statistics(cider_of_each(variant, hypotheses, references)),
        lambda hypotheses, references: f"{how}|{counted(references)}|idf:these references|stem:no|{WORDS}",
    )


def cider_of_each(variant: Variant, hypotheses: Sequence[str], references: References) -> list[float]:
    """The score of every image."""
    if variant not in ("cider", "cider_d"):
        raise ValueError(f"variant is {variant!r}; it is cider or cider_d")
    check_references(hypotheses, references)
    wanted = [[_counts(words_of(reference)) for reference in several] for several in references]
    images: Counter[tuple[str, ...]] = Counter()  # how many images have an n-gram in any of their references
    for several in wanted:
        images.update({ngram for one in several for order in one for ngram in order})
    total = math.log(max(len(wanted), 1))

    def vectors(counts: _Counts) -> list[_Vector]:
        return [
            {ngram: count * (total - math.log(max(images[ngram], 1))) for ngram, count in order.items()}
            for order in counts
        ]

    found = []
    for text, several in zip(hypotheses, wanted, strict=True):
        counts = _counts(words_of(text))
        written = vectors(counts)
        shared = [_likeness(variant, counts, written, one, vectors(one)) for one in several]
        found.append(100 * SCALE * sum(shared) / len(shared))
    return found


def _counts(words: Sequence[str]) -> _Counts:
    return [ngrams(words, order) for order in range(1, LONGEST + 1)]


def _likeness(
    variant: Variant, counts: _Counts, written: list[_Vector], reference: _Counts, wanted: list[_Vector]
) -> float:
    """Of one reference: the mean over the orders."""
    clipped = variant == "cider_d"
    total = 0.0
    for ours, theirs in zip(written, wanted, strict=True):
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
