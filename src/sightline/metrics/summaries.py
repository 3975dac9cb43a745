"""What summaries are made of, held against their sources: copied, new, repeated, and not supported by the source.

A score against references does not say whether a summary is true. A number or a name that the source does not have is
the mistake that matters most and that is easiest to check. References have some too: whoever wrote them knew more than
the text. So all of this is counted for the references as well (`sightline.outputs.summaries`), and only the difference
says something of a model.

All shares are of sums over the texts, in percent, so that a part of the texts and a resample have them too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64

from sightline import __version__
from sightline.data.cells import NUMBER_WORDS
from sightline.data.values import question_numbers
from sightline.metrics.base import Metric, Statistics, by_name
from sightline.metrics.rouge_scores import ngrams
from sightline.metrics.texts import ALONE, words_of
from sightline.text.sentences import split_sentences

Texts = Sequence[str]
NAMED_SHARE = 0.5  # of words with a capital, behind the first of a sentence: from here on capitals mark no names
_MARKS = "\"'“”‘’«»‹›„()[]{}<>.,;:!?…*_-–—/\\|#@&%$£€¥"
_ENDINGS = ("'s", "’s", "'", "’")


class Share(NamedTuple):
    """How many n-grams or words of a text have a property, and how many there are."""

    having: int
    total: int


def novel(summary: str, source: str, order: int) -> Share:
    """The n-grams of a summary that its source does not have."""
    own, there = ngrams(words_of(summary), order), ngrams(words_of(source), order)
    return Share(sum(count for one, count in own.items() if one not in there), own.total())


def repeated(summary: str, source: str, order: int) -> Share:
    """The n-grams of a summary that stand in it before."""
    own = ngrams(words_of(summary), order)
    return Share(own.total() - len(own), own.total())


def copied(summary: str, source: str) -> Share:
    """The words of a summary that stand in its source."""
    new, total = novel(summary, source, 1)
    return Share(total - new, total)


def unsupported(summary: str, source: str, names: bool = True) -> Share:
    """The numbers of a summary, and its ``names``, that its source does not have."""
    return Share(len(not_in_source(summary, source, names)), sum(1 for _ in _stated(summary, names)))


def not_in_source(summary: str, source: str, names: bool = True) -> list[str]:
    """The numbers and ``names`` of a summary that its source does not have, as the summary writes them.

    A number is in the source by its text or by its value: 1,000 and 1000, 5 and five. A name is a word with a capital
    that is not the first of a sentence; it is compared without regard to capitals.
    """
    support = _support(source)
    return [text for text, value in _stated(summary, names) if not support.has(text, value)]


def marks_names(texts: Iterable[str]) -> bool:
    """Whether words with a capital are names in such texts: there are some, and they are not most words."""
    capitals = words = 0
    for text in texts:
        for word, first in _words(text):
            if not first and len(word) > 1 and word[0].isalpha():
                words += 1
                capitals += word[0].isupper()
    return 0 < capitals <= NAMED_SHARE * words


def made_statistics(summaries: Texts, sources: Texts, names: bool) -> dict[str, Statistics]:
    """Every share by its name. ``names``: capitals mark names (`marks_names`)."""
    given = {"unsupported": (names,)}
    return {name: one.statistics(summaries, sources, *given.get(name, ())) for name, one in MADE_METRICS.items()}


def _words(text: str) -> Iterator[tuple[str, bool]]:
    """The words between blanks without marks around them, and whether each is the first of its sentence."""
    for sentence, _ in split_sentences(text):
        first = True
        for written in sentence.split():
            word = written.strip(_MARKS)
            if word:
                yield word, first
                first = False
            elif set(written) & set(".!?"):  # a full stop that stands alone, as in text cut into tokens
                first = True


def _stated(text: str, names: bool) -> Iterator[tuple[str, float | None]]:
    """Numbers and dates with their values (a date has none), then names."""
    apart = text.translate(ALONE)
    for one in question_numbers(apart):
        written = apart[one.start : one.end].strip()
        if one.value.number is not None or any(map(str.isdigit, written)):  # not the name of a month alone
            yield written, one.value.number
    if names:
        for word, first in _words(text):
            if not first and len(word) > 1 and word[0].isupper():
                yield _bare(word), None


class _Support(NamedTuple):
    """What a source has: its words in small letters, between blanks and between all marks, and its numbers."""

    words: frozenset[str]
    parts: frozenset[str]
    numbers: frozenset[float]

    def has(self, text: str, value: float | None) -> bool:
        if value is not None and _rounded(value) in self.numbers:
            return True
        if self.words.issuperset(_bare(one) for one in text.lower().split()):
            return True
        return not any(map(str.isdigit, text)) and self.parts.issuperset(words_of(text))


def _rounded(number: float) -> float:
    return float(f"{number:.12g}")


def _bare(word: str) -> str:
    """Without marks around it and without the ending of the genitive."""
    word = word.strip(_MARKS)
    return next((word.removesuffix(one) for one in _ENDINGS if word.endswith(one)), word)


@lru_cache(maxsize=4096)
def _support(source: str) -> _Support:
    apart = source.translate(ALONE)
    words = frozenset(_bare(word) for word in apart.lower().split())
    numbers = {NUMBER_WORDS[word] for word in words if word in NUMBER_WORDS}
    for one in question_numbers(apart):
        numbers.update(value for value in (one.value.number, one.value.second) if value is not None)
    return _Support(words, frozenset(words_of(source)), frozenset(map(_rounded, numbers)))


def _shares(counts: Sequence[Share]) -> Statistics:
    return Statistics(np.array(counts, np.float64).reshape(-1, 2), _percent)


def _percent(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return 100 * sums[:, 0] / np.maximum(sums[:, 1], 1)


def _made(name: str, count: Callable[..., Share], of: str) -> Metric[...]:
    """A metric of summaries and their sources, of which the references know nothing."""

    def statistics(summaries: Texts, sources: Texts, *options: object) -> Statistics:
        return _shares([count(a, b, *options) for a, b in zip(summaries, sources, strict=True)])

    def signature(summaries: Texts, sources: Texts, *options: object) -> str:
        return f"share of {of}|case:lc|tok:alnum,char-if-no-spaces|version:sightline-{__version__}"

    return Metric(name, statistics, signature)


MADE_METRICS = by_name(
    *(_made(f"novel_{order}", partial(novel, order=order), f"{order}-grams") for order in (1, 2, 3)),
    *(_made(f"repeated_{order}", partial(repeated, order=order), f"{order}-grams") for order in (2, 3)),
    _made("copied", copied, "words"),
    _made("unsupported", unsupported, "numbers and names"),
)
