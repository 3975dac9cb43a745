"""BLEU and chrF with sacreBLEU, and exact match."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from jaxtyping import Float64

from sightline.errors import UserError
from sightline.metrics.base import Score, Statistics, mean_statistics, metric
from sightline.metrics.scripts import BleuTokeniser, bleu_tokeniser

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU, CHRF

_BLEU_ORDER, _CHRF_ORDER, _CHRF_BETA = 4, 6, 2  # sacreBLEU's defaults


def by_sacrebleu(metric: "BLEU | CHRF", hypotheses: Sequence[str], streams: Any) -> Score:
    """sacreBLEU's own score of a corpus, with its signature; ``streams`` are the first references, the second ones…"""
    found = metric.corpus_score(list(hypotheses), [list(stream) for stream in streams])
    return Score(found.score, str(metric.get_signature()))


def _bleu_score(hypotheses: Sequence[str], references: Sequence[str], tokenise: BleuTokeniser | None = None) -> Score:
    return by_sacrebleu(_bleu(tokenise or bleu_tokeniser(references)), hypotheses, [references])


def _chrf_score(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    from sacrebleu.metrics import CHRF

    return by_sacrebleu(CHRF(), hypotheses, [references])


@metric(scored=_bleu_score)
def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenise: BleuTokeniser | None = None) -> Statistics:
    """sacreBLEU with its signature. ``tokenise`` is sacreBLEU's own; None finds it by the script of the references.

    Counted are matches and totals of n-grams, and both lengths: BLEU is made of their sums, not of scores of sentences.
    """
    return _counted_by(_bleu(tokenise or bleu_tokeniser(references), sentences=True), hypotheses, references)


@metric(scored=lambda hypotheses, references: by_sacrebleu(_bleu("none", lowercase=True), hypotheses, [references]))
def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    """BLEU of text that is tokenised already, lower-cased: the number in old tables (multi-bleu)."""
    return _counted_by(_bleu("none", lowercase=True, sentences=True), hypotheses, references)


@metric(name="exact")
def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    """The share of outputs that are the reference, character by character."""
    return mean_statistics([100.0 * (a == b) for a, b in zip(hypotheses, references, strict=True)])


@metric(scored=_chrf_score)
def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    """sacreBLEU's chrF2: F-score of character n-grams, spaces left out (Popović 2015).

    Counted are, for each order, n-grams of the hypothesis, of the reference, and those that match.
    """
    rows = np.zeros((len(references), _CHRF_ORDER, 3))
    for row, texts in enumerate(zip(hypotheses, references, strict=True)):
        # sacreBLEU leaves out what Python takes for white space, within a text as at its ends
        hypothesis, reference = ("".join(text.split()) for text in texts)
        for order in range(1, min(_CHRF_ORDER, len(reference)) + 1):
            found, wanted = (
                Counter([text[i : i + order] for i in range(len(text) - order + 1)]) for text in (hypothesis, reference)
            )
            matches = sum(min(count, wanted[ngram]) for ngram, count in found.items() if ngram in wanted)
            rows[row, order - 1] = found.total(), wanted.total(), matches
    return Statistics(rows.reshape(len(references), -1), _chrf_of_sums)


def _bleu(tokenise: BleuTokeniser, *, lowercase: bool = False, sentences: bool = False) -> "BLEU":
    from sacrebleu.metrics import BLEU

    if tokenise not in get_args(BleuTokeniser):
        raise UserError(f"tokenise is {tokenise!r}; expected one of {', '.join(get_args(BleuTokeniser))}")
    # "force": text that looks tokenised already is scored as it is, without a warning between the lines of a table.
    return BLEU(tokenize=tokenise, lowercase=lowercase, force=True, effective_order=sentences)


def _counted_by(metric: "BLEU", hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
    rows = np.zeros((len(references), 2 * _BLEU_ORDER + 2))
    for row, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        found = metric.sentence_score(hypothesis, [reference])
        rows[row] = [*found.counts, *found.totals, found.sys_len, found.ref_len]
    return Statistics(rows, _bleu_of_sums)


def _bleu_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    from sacrebleu.metrics import BLEU

    found = []
    for row in sums.round().astype(int).tolist():
        counts, totals, (length, wanted) = row[:_BLEU_ORDER], row[_BLEU_ORDER:-2], row[-2:]
        found.append(BLEU.compute_bleu(counts, totals, length, wanted, smooth_method="exp").score)
    return np.array(found, dtype=np.float64)


def _chrf_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    """Precision and recall are means over the orders that both sides have, as in sacreBLEU since its second version."""
    found, wanted, matches = np.moveaxis(sums.reshape(len(sums), _CHRF_ORDER, 3), -1, 0)
    there = (found > 0) & (wanted > 0)
    orders = np.maximum(there.sum(axis=1), 1)
    precision = np.where(there, matches / np.maximum(found, 1), 0).sum(axis=1) / orders
    recall = np.where(there, matches / np.maximum(wanted, 1), 0).sum(axis=1) / orders
    weighed = _CHRF_BETA**2 * precision + recall
    return 100 * (1 + _CHRF_BETA**2) * precision * recall / np.where(weighed > 0, weighed, 1)
