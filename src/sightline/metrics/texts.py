"""Which scripts a text is written in: those without spaces are counted, and scored, character by character."""

import bisect
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from jaxtyping import Float64

from sightline.errors import UserError
from sightline.metrics.base import MetricScore, Statistics, mean_statistics, metric

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU, CHRF

BleuTokeniser = Literal["13a", "zh", "char", "intl", "none"]

_HAN = ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF),
        (0x20000, 0x3FFFF))  # fmt: skip
_KANA = ((0x3040, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F))
# Thai and Lao, Burmese, Khmer. Korean and Tibetan mark the ends of words or syllables, and are not here.
_SOUTH_EAST = ((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F))


def _is_in(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def stands_alone(character: str) -> bool:
    """Whether a character is of a script that has no spaces between words."""
    return any(_is_in(ord(character), ranges) for ranges in (_HAN, _KANA, _SOUTH_EAST))


class _WordTable(dict[int, str]):
    """For `str.translate`: what is no letter, digit or mark becomes a space, and some characters stand alone."""

    def __init__(self, *, clean: bool, alone: bool) -> None:
        super().__init__()
        self.clean, self.alone = clean, alone

    def __missing__(self, code: int) -> str:
        character = chr(code)
        # A mark belongs to its letter: without it, Hindi would fall apart at every vowel.
        if self.clean and unicodedata.category(character)[0] not in "LNM":
            replacement = " "
        elif self.alone and stands_alone(character):
            replacement = f" {character} "
        else:
            replacement = character
        self[code] = replacement
        return replacement


_WORD_TABLE = _WordTable(clean=True, alone=True)
CLEAN, ALONE = _WordTable(clean=True, alone=False), _WordTable(clean=False, alone=True)


def words_of(text: str) -> list[str]:
    """Lower-cased runs of letters and digits; in scripts without spaces, every character."""
    return text.lower().translate(_WORD_TABLE).split()


@dataclass(frozen=True)
class Letters:
    """How many letters there are of which scripts."""

    total: int
    han: int
    kana: int
    south_east: int

    @property
    def mostly_without_spaces(self) -> bool:
        return 2 * (self.han + self.kana + self.south_east) > self.total


def count_letters(texts: Iterable[str]) -> Letters:
    """Digits and punctuation say nothing of a script and are not counted."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    letters = {ord(one): count for one, count in counts.items() if unicodedata.category(one)[0] == "L"}
    han, kana, south_east = (
        sum(count for code, count in letters.items() if _is_in(code, ranges)) for ranges in (_HAN, _KANA, _SOUTH_EAST)
    )
    return Letters(sum(letters.values()), han, kana, south_east)


def bleu_tokeniser(references: Iterable[str]) -> BleuTokeniser:
    """sacreBLEU's tokeniser for the script of the references: zh for Chinese, char for Japanese, Thai and their like.

    13a splits at spaces, and takes a Chinese sentence for a word or two: BLEU is then close to 0, whatever the model.
    """
    letters = count_letters(references)
    if not letters.mostly_without_spaces:
        return "13a"
    # Japanese has kana in every sentence; in Chinese a stray one (の in a name of a shop) makes no Japanese.
    chinese = letters.han > letters.south_east and letters.kana * 20 < letters.han
    return "zh" if chinese else "char"


# BLEU and chrF with sacreBLEU, and exact match.


_BLEU_ORDER, _CHRF_ORDER, _CHRF_BETA = 4, 6, 2  # sacreBLEU's defaults


def by_sacrebleu(metric: "BLEU | CHRF", hypotheses: Sequence[str], streams: Any) -> MetricScore:
    """sacreBLEU's own score of a corpus, with its signature; ``streams`` are the first references, the second ones…"""
    scored = metric.corpus_score(list(hypotheses), [list(stream) for stream in streams])
    return MetricScore(scored.score, str(metric.get_signature()))


def _bleu_score(
    hypotheses: Sequence[str], references: Sequence[str], tokenise: BleuTokeniser | None = None
) -> MetricScore:
    return by_sacrebleu(_bleu(tokenise or bleu_tokeniser(references)), hypotheses, [references])


def _chrf_score(hypotheses: Sequence[str], references: Sequence[str]) -> MetricScore:
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
            counts, targets = (
                Counter([text[i : i + order] for i in range(len(text) - order + 1)]) for text in (hypothesis, reference)
            )
            matches = sum(min(count, targets[ngram]) for ngram, count in counts.items() if ngram in targets)
            rows[row, order - 1] = counts.total(), targets.total(), matches
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
        scored = metric.sentence_score(hypothesis, [reference])
        rows[row] = [*scored.counts, *scored.totals, scored.sys_len, scored.ref_len]
    return Statistics(rows, _bleu_of_sums)


def _bleu_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    from sacrebleu.metrics import BLEU

    scores = []
    for row in sums.round().astype(int).tolist():
        counts, totals, (length, target_length) = row[:_BLEU_ORDER], row[_BLEU_ORDER:-2], row[-2:]
        scores.append(BLEU.compute_bleu(counts, totals, length, target_length, smooth_method="exp").score)
    return np.array(scores, dtype=np.float64)


def _chrf_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    """Precision and recall are means over the orders that both sides have, as in sacreBLEU since its second version."""
    counts, targets, matches = np.moveaxis(sums.reshape(len(sums), _CHRF_ORDER, 3), -1, 0)
    there = (counts > 0) & (targets > 0)
    orders = np.maximum(there.sum(axis=1), 1)
    precision = np.where(there, matches / np.maximum(counts, 1), 0).sum(axis=1) / orders
    recall = np.where(there, matches / np.maximum(targets, 1), 0).sum(axis=1) / orders
    weighed = _CHRF_BETA**2 * precision + recall
    return 100 * (1 + _CHRF_BETA**2) * precision * recall / np.where(weighed > 0, weighed, 1)


# Scores by the length of the source: models without attention fall off where sentences get long.


EDGES = (1, 10, 15, 20, 30)


@dataclass(frozen=True)
class Bucket:
    """Texts of about one length, by their row. ``most`` is None where there is no end."""

    unit: str  # words, or characters in scripts without spaces
    least: int
    most: int | None
    rows: list[int]

    @property
    def label(self) -> str:
        if self.most is None:
            return f"{self.least}+"
        return str(self.least) if self.most == self.least else f"{self.least}–{self.most}"


def buckets_by_length(sources: Sequence[str], edges: Sequence[int] = EDGES) -> list[Bucket]:
    """From the shortest to the longest; those without a text are left out. ``edges`` are where buckets begin."""
    if list(edges) != sorted(set(edges)) or not edges:
        raise ValueError(f"edges are {list(edges)}; expected one or more, each above the one before")
    by_character = count_letters(sources).mostly_without_spaces
    rows: list[list[int]] = [[] for _ in edges]
    for row, source in enumerate(sources):
        parts = source.split()
        length = sum(map(len, parts)) if by_character else len(parts)
        rows[max(0, bisect.bisect_right(edges, length) - 1)].append(row)  # what is shorter still is with the shortest
    ends = [*(edge - 1 for edge in edges[1:]), None]
    unit = "characters" if by_character else "words"
    return [Bucket(unit, *bucket) for bucket in zip(edges, ends, rows, strict=True) if bucket[2]]
