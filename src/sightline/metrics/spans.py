"""Scores of tags: spans found and tokens right.

A tag is O, or the letter of a scheme, a hyphen and the kind of thing: B-PER. The scheme need not be named: a span
begins at B (or S, U: a span of one word), and also at I, E, L or M where no span of that kind is open: behind O, behind
E, L, S or U, or behind another kind. It ends before the next one begins, before O, and behind E, L, S and U.
That is the rule of conlleval, and of seqeval unless it is told to be strict, with M as another I; it reads IOB1, IOB2,
BIOES, BILOU and BMES alike. A letter alone (B M E S of Chinese words) is a span of a kind without a name.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sightline.metrics.base import Statistics, mean_statistics, metric
from sightline.metrics.labels import OfClass, class_rows, f1_of_sums
from sightline.metrics.texts import count_letters, words_of

Span = tuple[int, int, str]  # the first word, the word behind the last, the kind
_TAG = re.compile(r"O|[BIESLUM](?:-.*)?", re.DOTALL)
_ALONE, _LAST = frozenset("SU"), frozenset("ELSU")


def are_spans(tags: Sequence[str]) -> bool:
    """Whether these tags mark spans: otherwise (parts of speech) only tokens can be counted."""
    return all(map(_TAG.fullmatch, tags)) and any(tag.startswith("B") for tag in tags)


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of a sequence of tags."""
    spans: list[Span] = []
    start, open_kind = 0, None  # None: no span is open
    for place, tag in enumerate(tags):
        letter, kind = tag[:1], tag[2:]
        if _TAG.fullmatch(tag) is None:
            raise ValueError(f"{tag!r} is no tag of a span; expected O, or one of B I E S L U M and the kind: B-PER")
        begins = letter == "B" or letter in _ALONE or (letter != "O" and kind != open_kind)
        if open_kind is not None and (begins or letter == "O"):
            spans.append((start, place, open_kind))
        if begins:
            start = place
        open_kind = None if letter == "O" else kind
        if letter in _LAST:
            spans.append((start, place + 1, kind))
            open_kind = None
    return spans if open_kind is None else [*spans, (start, len(tags), open_kind)]


@metric("spans|micro|scheme:any")
def span_f1(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Statistics:
    """F1 of spans: a span counts where its first word, its last word and its kind are right."""
    rows = np.zeros((len(gold), 3))
    for row, (of_predicted, of_gold) in enumerate(zip(predicted, gold, strict=True)):
        predicted_spans, gold_spans = set(_checked(of_predicted, of_gold)), set(spans_of(of_gold))
        rows[row] = len(predicted_spans & gold_spans), len(predicted_spans), len(gold_spans)
    return Statistics(rows, f1_of_sums)


def span_table(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> list[OfClass]:
    """Precision, recall and F1 of each kind of span, the most frequent first."""
    hits, all_predicted, all_gold = Counter[str](), Counter[str](), Counter[str]()
    for of_predicted, of_gold in zip(predicted, gold, strict=True):
        predicted_spans, gold_spans = set(_checked(of_predicted, of_gold)), set(spans_of(of_gold))
        both = predicted_spans & gold_spans
        for counter, spans in ((hits, both), (all_predicted, predicted_spans), (all_gold, gold_spans)):
            counter.update(kind for _, _, kind in spans)
    kinds = sorted({*all_predicted, *all_gold}, key=lambda kind: (-all_gold[kind], kind))
    counts = np.array([[counter[kind] for kind in kinds] for counter in (hits, all_predicted, all_gold)], np.int64)
    return class_rows(kinds, *counts)


@metric("tokens")
def token_accuracy(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Statistics:
    """The share of tokens with the right tag, all texts together."""
    rows = np.zeros((len(gold), 2))
    for row, (of_predicted, of_gold) in enumerate(zip(predicted, gold, strict=True)):
        rows[row] = sum(a == b for a, b in zip(of_predicted, of_gold, strict=True)), len(of_gold)
    return Statistics(rows, lambda sums: 100 * sums[:, 0] / np.maximum(sums[:, 1], 1))


def _checked(predicted: Sequence[str], gold: Sequence[str]) -> list[Span]:
    if len(predicted) != len(gold):
        raise ValueError(f"{len(predicted)} tags for a text of {len(gold)} words")
    return spans_of(predicted)


# Scores of answers that stand in a text: exact match and F1 of words, as SQuAD counts them (Rajpurkar et al. 2016).
#
# Answers are compared without capitals, without punctuation (which is taken out, not made a space: U.S. is us) and
# without the English articles a, an, the; blanks count as one. For English that is SQuAD's own rule. Two things are
# added: punctuation of every script is taken out, and in scripts without spaces each character is a word.


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
def answer_exact(predicted: Sequence[str], gold: Sequence[Sequence[str]]) -> Statistics:
    """The share of answers that are one of the right ones."""
    return mean_statistics(
        [
            100.0 * any(answer_words(one) == answer_words(right) for right in rights)
            for one, rights in zip(predicted, map(_some, gold), strict=True)
        ]
    )


@metric("f1|squad")
def answer_f1(predicted: Sequence[str], gold: Sequence[Sequence[str]]) -> Statistics:
    """The mean over texts of the F1 of words, against the right answer that is nearest."""
    return mean_statistics(
        [
            100.0 * max(_f1(answer_words(one), answer_words(right)) for right in rights)
            for one, rights in zip(predicted, map(_some, gold), strict=True)
        ]
    )


def _f1(predicted: list[str], gold: list[str]) -> float:
    """Where one of the two has no words (no answer), both must."""
    if not predicted or not gold:
        return float(predicted == gold)
    shared = (Counter(predicted) & Counter(gold)).total()
    return 2 * shared / (len(predicted) + len(gold))


def _some(rights: Sequence[str]) -> Sequence[str]:
    if isinstance(rights, str):
        raise TypeError("each gold entry is a list of right answers")
    return rights or [""]  # no answer is right
