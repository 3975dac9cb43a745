"""Scores of answers that stand in a text: exact match and F1 of words, as SQuAD counts them (Rajpurkar et al. 2016).

Answers are compared without capitals, without punctuation (which is taken out, not made a space: U.S. is us) and
without the English articles a, an, the; blanks count as one. For English that is SQuAD's own rule. Two things are
added: punctuation of every script is taken out, and in scripts without spaces each character is a word.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from sightline.metrics.base import Statistics, mean_statistics, metric
from sightline.metrics.scripts import count_letters, words_of

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_SIGNS = frozenset("$+<=>^`|~")  # ASCII signs that Unicode does not call punctuation, and SQuAD does


def answer_words(text: str) -> list[str]:
    """The words of an answer that are compared."""
    bare = "".join(one for one in text.lower() if one not in _SIGNS and unicodedata.category(one)[0] != "P")
    words = _ARTICLES.sub(" ", bare).split()
    return [
        part for word in words for part in (words_of(word) if count_letters([word]).mostly_without_spaces else [word])
    ]


@metric("exact|squad")
def answer_exact(said: Sequence[str], gold: Sequence[Sequence[str]]) -> Statistics:
    """The share of answers that are one of the right ones."""
    return mean_statistics(
        [
            100.0 * any(answer_words(one) == answer_words(right) for right in rights)
            for one, rights in zip(said, map(_some, gold), strict=True)
        ]
    )


@metric("f1|squad")
def answer_f1(said: Sequence[str], gold: Sequence[Sequence[str]]) -> Statistics:
    """The mean over texts of the F1 of words, against the right answer that is nearest."""
    return mean_statistics(
        [
            100.0 * max(_f1(answer_words(one), answer_words(right)) for right in rights)
            for one, rights in zip(said, map(_some, gold), strict=True)
        ]
    )


def _f1(said: list[str], gold: list[str]) -> float:
    """Where one of the two has no words (no answer), both must."""
    if not said or not gold:
        return float(said == gold)
    shared = (Counter(said) & Counter(gold)).total()
    return 2 * shared / (len(said) + len(gold))


def _some(rights: Sequence[str]) -> Sequence[str]:
    if isinstance(rights, str):
        raise TypeError("each gold entry is a list of right answers")
    return rights or [""]  # no answer is right
