"""ROUGE (Lin 2004): shared n-grams, and the longest common subsequence. F1, the mean over texts.

People write "ROUGE-L" for two things. rougeL takes a text for one sequence; rougeLsum goes line by line, and a word of
the reference counts where any line of the output has it in common with the reference's line. On texts of one line they
are the same. People also report ROUGE with and without a stemmer, which differ by one to three points, and often do not
say which. On English, with and without it, these are the scores of Google's rouge-score; that one drops every letter
outside a to z, so that "café" is "caf" and a Chinese text is empty. Here words are whole in every script.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from sightline import __version__
from sightline.metrics.base import Metric, mean_statistics
from sightline.metrics.texts import words_of
from sightline.text.stemming import porter_stem

RougeKind = Literal["rouge1", "rouge2", "rougeL", "rougeLsum"]
_HOW: dict[str, str] = {"rouge1": "n:1", "rouge2": "n:2", "rougeL": "lcs:text", "rougeLsum": "lcs:lines"}


def rouge(kind: RougeKind, stem: bool = False) -> Metric[[Sequence[str], Sequence[str]]]:
    """The mean F1 of texts, from 0 to 100; ``stem``: of words without their endings (`porter_stem`)."""
    stemmer = "porter-nltk" if stem else "no"
    words = f"case:lc|tok:alnum,char-if-no-spaces|stem:{stemmer}|version:sightline-{__version__}"
    return Metric(
        f"{kind}_stem" if stem else kind,
        lambda hypotheses, references: mean_statistics(
            [rouge_f1(kind, a, b, stem) for a, b in zip(hypotheses, references, strict=True)]
        ),
        lambda hypotheses, references: f"nrefs:1|{_HOW[kind]}|f1:mean|{words}",
    )


def rouge_f1(kind: RougeKind, hypothesis: str, reference: str, stem: bool = False) -> float:
    """The F1 of one text, from 0 to 100; 0 where a side has nothing to share."""
    of = stemmed_words_of if stem else words_of
    if kind == "rougeLsum":
        lines, target_lines = ([of(line) for line in text.split("\n")] for text in (hypothesis, reference))
        return _f1(_shared_by_lines(lines, target_lines), sum(map(len, lines)), sum(map(len, target_lines)))
    words, targets = of(hypothesis), of(reference)
    if kind == "rougeL":
        return _f1(common_length(words, targets), len(words), len(targets))
    size = int(kind.removeprefix("rouge"))
    counts, target_counts = ngrams(words, size), ngrams(targets, size)
    return _f1((counts & target_counts).total(), counts.total(), target_counts.total())


def stemmed_words_of(text: str) -> list[str]:
    """The words of a text; English ones of more than three letters without their endings, as rouge-score cuts them."""
    return [porter_stem(word) if len(word) > 3 and word.isascii() else word for word in words_of(text)]


def ngrams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    """How often each run of so many words stands there."""
    return Counter(zip(*(words[start:] for start in range(order)), strict=False))


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence."""
    return len(first) - _subsequence_rows(first, second)[-1].bit_count()


def _f1(shared: int, count: int, targets: int) -> float:
    return 200.0 * shared / (count + targets) if shared else 0.0


def _subsequence_rows(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """The table of longest common subsequences, a row for each beginning of ``second``, as bits (Hyyrö 2004).

    Neighbours in a row differ by 0 or 1: bit i of a row is 0 where the i-th word of ``first`` adds one. A row of a
    thousand words takes four operations on one integer instead of a thousand steps.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(first)) - 1
    rows = [whole]
    for word in second:
        row = rows[-1]
        matches = row & places.get(word, 0)
        rows.append(((row + matches) | (row - matches)) & whole)
    return rows


def _common_places(first: Sequence[str], second: Sequence[str]) -> set[int]:
    """Where the words of one longest common subsequence stand in ``first``.

    Of several, rouge-score's: read from the end, words that match are taken, and a tie leaves out a word of ``first``.
    """
    rows = _subsequence_rows(first, second)
    places = set()
    i, j = len(first), len(second)
    while i and j:
        if first[i - 1] == second[j - 1]:
            i, j = i - 1, j - 1
            places.add(i)
        else:
            without_second = i - (rows[j - 1] & ((1 << i) - 1)).bit_count()
            without_first = i - 1 - (rows[j] & ((1 << i - 1) - 1)).bit_count()
            if without_second > without_first:
                j -= 1
            else:
                i -= 1
    return places


def _shared_by_lines(lines: Sequence[Sequence[str]], target_lines: Sequence[Sequence[str]]) -> int:
    """Words of the reference that some line of the output shares, none counted more often than the output has it."""
    left = Counter(word for line in lines for word in line)
    shared = 0
    for line in target_lines:
        places: set[int] = set()
        for other in lines:
            places |= _common_places(line, other)
        for place in places:
            if left[line[place]] > 0:
                left[line[place]] -= 1
                shared += 1
    return shared
