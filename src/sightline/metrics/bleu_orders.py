"""BLEU-1 to BLEU-4 of captions against several references (Papineni et al. 2002), with and without the penalty.

Tables of captions differ in what they call BLEU. Xu et al. 2015 leave out the brevity penalty, others keep it; both are
here, by name. A word of the output counts as often as the reference that has it most often, and the length to reach is
that of the reference closest to the output (of two as close, the shorter): as in sacreBLEU and multi-bleu, to which a
test holds it. Nothing is smoothed: without any match of an order the score is 0. What people get wrong: full stops.
Where output and references are counted with them, BLEU-4 is higher by points; here only letters and digits are words.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
from jaxtyping import Float64

from sightline import __version__
from sightline.metrics.base import Metric, Statistics
from sightline.metrics.scripts import words_of

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
        wanted = [words_of(reference) for reference in several]
        for order in range(1, LONGEST + 1):
            found, most = ngrams(written, order), Counter[tuple[str, ...]]()
            for words in wanted:
                most |= ngrams(words, order)  # of each n-gram, as many as the reference that has most
            rows[row, order - 1] = (found & most).total()
            rows[row, LONGEST + order - 1] = found.total()
        lengths = [len(words) for words in wanted]
        rows[row, -2:] = len(written), min(lengths, key=lambda length: (abs(length - len(written)), length))
    return rows


def ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    """How often each run of so many words stands there."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


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
    found = np.where(some, np.exp(np.log(precisions).mean(axis=1)), 0.0)
    if brevity:
        written, wanted = sums[:, -2], sums[:, -1]
        found = found * np.where(written < wanted, np.exp(1 - wanted / np.maximum(written, 1)), 1.0)
    return 100 * found
