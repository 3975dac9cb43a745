"""Word and character error rates of transcripts: substitutions, insertions and deletions by words of the reference.

The rate of a corpus is a ratio of sums, not a mean of the rates of its utterances, and it can be above 100: insertions
count too. Case and punctuation count unless ``normalise`` is given; many published rates leave them out, so compare
signatures. Of several shortest alignments, the one of rapidfuzz is taken, so that counts are those of jiwer.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64

from sightline import __version__
from sightline.metrics.base import Statistics, by_name, mean_statistics, metric
from sightline.metrics.texts import ALONE, CLEAN, count_letters

ErrorRate = Literal["wer", "cer", "sentence_error"]
EditKind = Literal["match", "substitution", "insertion", "deletion"]
KINDS: tuple[EditKind, ...] = ("substitution", "insertion", "deletion")


class Edit(NamedTuple):
    """A word of the reference and what was written for it; "" where there is none."""

    kind: EditKind
    reference: str
    prediction: str


def _signature(unit: str, normalise: bool) -> str:
    kept = "case:lc|punct:no" if normalise else "case:mixed|punct:yes"
    return f"nrefs:1|unit:{unit}|{kept}|version:sightline-{__version__}"


def _word_signature(hypotheses: Sequence[str], references: Sequence[str], normalise: bool = False) -> str:
    return _signature("character" if written_without_spaces(references) else "word", normalise)


def _character_signature(
    hypotheses: Sequence[str], references: Sequence[str], normalise: bool = False, spaces: bool = True
) -> str:
    return _signature(f"character{'' if spaces else ',no-spaces'}", normalise)


@metric(_word_signature)
def wer(hypotheses: Sequence[str], references: Sequence[str], normalise: bool = False) -> Statistics:
    """100 · (substitutions + insertions + deletions) ÷ words of the references.

    In scripts without spaces every character is a word, unless the references have spaces.
    """
    alone = written_without_spaces(references)
    return _rates(
        (words(reference, normalise, alone), words(hypothesis, normalise, alone))
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )


@metric(_character_signature)
def cer(
    hypotheses: Sequence[str], references: Sequence[str], normalise: bool = False, spaces: bool = True
) -> Statistics:
    """The same of characters. A space between words is one too, unless ``spaces`` is False."""
    between = " " if spaces else ""
    return _rates(
        (between.join(words(reference, normalise)), between.join(words(hypothesis, normalise)))
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    )


@metric(_word_signature)
def sentence_error(hypotheses: Sequence[str], references: Sequence[str], normalise: bool = False) -> Statistics:
    """The share of utterances with any error."""
    return mean_statistics(
        [100.0 * (words(a, normalise) != words(b, normalise)) for a, b in zip(hypotheses, references, strict=True)]
    )


ERROR_RATES = by_name(wer, cer, sentence_error)


def error_counts(statistics: Statistics) -> dict[str, int]:
    """The substitutions, insertions and deletions of all utterances, and the words (or characters) of references."""
    names = (*(f"{kind}s" for kind in KINDS), "words")
    return dict(zip(names, statistics.rows.sum(axis=0).astype(int).tolist(), strict=True))


def word_edits(
    reference: str, prediction: str, normalise: bool = False, without_spaces: bool | None = None
) -> list[Edit]:
    """The words of both texts, aligned. ``without_spaces``: each character is a word; None: by the reference."""
    alone = written_without_spaces([reference]) if without_spaces is None else without_spaces
    return edits(words(reference, normalise, alone), words(prediction, normalise, alone))


def word_errors(
    reference: str, prediction: str, normalise: bool = False, without_spaces: bool | None = None
) -> list[Edit]:
    """Those of `word_edits` that are errors."""
    return [one for one in word_edits(reference, prediction, normalise, without_spaces) if one.kind != "match"]


def written_without_spaces(references: Sequence[str]) -> bool:
    """Whether characters are words: the script has no spaces, and most references of several characters have none."""
    long = [text.split() for text in references if len(text.strip()) > 1]
    return 2 * sum(len(parts) > 1 for parts in long) <= len(long) and count_letters(references).mostly_without_spaces


def words(text: str, normalise: bool = False, alone: bool = False) -> list[str]:
    """The words as they are counted. ``alone``: each character of a script without spaces is one."""
    if normalise:  # an apostrophe within a word is a letter of it
        text = re.sub(r"(?<=\w)['’](?=\w)", "\u02bc", text).lower().translate(CLEAN)
    return (text.translate(ALONE) if alone else text).split()


def edits(reference: Sequence[str], prediction: Sequence[str]) -> list[Edit]:
    """A shortest way to make the prediction of the reference, in order."""
    first, last = _affixes(reference, prediction)
    steps = [Edit("match", word, word) for word in reference[:first]]
    place, other = first, first
    for kind in _kinds(reference[first : len(reference) - last], prediction[first : len(prediction) - last]):
        deleted, inserted = kind == "deletion", kind == "insertion"
        steps.append(Edit(kind, "" if inserted else reference[place], "" if deleted else prediction[other]))
        place, other = place + (not inserted), other + (not deleted)
    return steps + [Edit("match", word, word) for word in reference[len(reference) - last :]]


def _affixes(first: Sequence[str], second: Sequence[str]) -> tuple[int, int]:
    """How many words both begin with, and how many of the others both end with."""
    most = min(len(first), len(second))
    begin = next((place for place in range(most) if first[place] != second[place]), most)
    end = next((place for place in range(most - begin) if first[-1 - place] != second[-1 - place]), most - begin)
    return begin, end


def _kinds(reference: Sequence[str], prediction: Sequence[str]) -> list[EditKind]:
    """The kinds of all steps. A row of the table of distances is two integers (Myers 1999, Hyyrö 2003): their bit i
    is set where the distance of i + 1 words of the reference is one more, or one less, than that of i words."""
    places: dict[str, int] = {}
    for place, word in enumerate(reference):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(reference)) - 1
    more, less = whole, 0
    rows = [(more, less)]
    for word in prediction:
        matches = places.get(word, 0)
        diagonal = (((matches & more) + more) ^ more) | matches | less
        across_more = ((less | ~(diagonal | more)) << 1) | 1
        across_less = (diagonal & more) << 1
        more, less = (across_less | ~(diagonal | across_more)) & whole, across_more & diagonal & whole
        rows.append((more, less))
    kinds: list[EditKind] = []
    i, j = len(reference), len(prediction)
    while i and j:  # from the end: a deletion where it is shortest, an insertion only where nothing else is
        if rows[j][0] >> (i - 1) & 1:
            kinds.append("deletion")
            i -= 1
        elif rows[j - 1][1] >> (i - 1) & 1:
            kinds.append("insertion")
            j -= 1
        else:
            i, j = i - 1, j - 1
            kinds.append("match" if reference[i] == prediction[j] else "substitution")
    kinds += ["deletion"] * i
    kinds += ["insertion"] * j
    return kinds[::-1]


def _rates(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Statistics:
    """Of pairs of a reference and a hypothesis."""
    counts = []
    for reference, hypothesis in pairs:
        first, last = _affixes(reference, hypothesis)
        kinds = _kinds(reference[first : len(reference) - last], hypothesis[first : len(hypothesis) - last])
        counts.append((*map(kinds.count, KINDS), len(reference)))
    return Statistics(np.array(counts, dtype=np.float64).reshape(-1, 4), _rates_of_sums)


def _rates_of_sums(sums: Float64[np.ndarray, "sums counts"]) -> Float64[np.ndarray, " sums"]:
    return 100 * sums[:, :3].sum(axis=1) / np.maximum(sums[:, 3], 1)
