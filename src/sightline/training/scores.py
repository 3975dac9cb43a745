"""Scores of text against references. Every score says how it was computed, so that two tables can be compared."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A number from 0 to 100 and how it came about."""

    value: float
    signature: str = ""


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenise: str | None = None) -> Score:
    """sacreBLEU with its signature. ``tokenise`` is sacreBLEU's own: 13a unless given, 'zh' for Chinese."""
    from sacrebleu.metrics import BLEU

    # "force": text that looks tokenised already is scored as it is, without a warning between the lines of a table.
    metric = BLEU(tokenize=tokenise, force=True) if tokenise else BLEU(force=True)
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(found.score, str(metric.get_signature()))


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU of text that is tokenised already, lower-cased: the number in old tables (multi-bleu)."""
    from sacrebleu.metrics import BLEU

    metric = BLEU(tokenize="none", lowercase=True, force=True)
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(found.score, str(metric.get_signature()))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return Score(found.score, str(metric.get_signature()))


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The share of outputs that are the reference, character by character."""
    if not references:
        return Score(0.0)
    return Score(100 * sum(a == b for a, b in zip(hypotheses, references, strict=True)) / len(references))
