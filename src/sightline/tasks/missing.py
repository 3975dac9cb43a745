"""Words or characters of new data that the vocabulary of an earlier run cannot write."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sightline.text.tokeniser import Tokeniser


@dataclass(frozen=True)
class Missing:
    """Units of new targets that the vocabulary of an earlier run cannot write; ``examples`` are the most frequent."""

    unit: str  # words or characters
    total: int
    unwritable: int
    examples: tuple[tuple[str, int], ...]

    def lines(self) -> list[str]:
        if not self.unwritable:
            return [f"the vocabulary of the earlier run can write all {self.unit} of the new targets"]
        named = ", ".join(f"{unit} ({count:,})" for unit, count in self.examples)
        return [
            f"the vocabulary of the earlier run cannot write {self.unwritable:,} of {self.total:,} {self.unit} of "
            f"the new targets: {named}"
        ]


def count_missing(tokeniser: Tokeniser, texts: Iterator[str], named: int = 10) -> Missing:
    """Count words for a vocabulary of words, characters for any other. Memory grows with the distinct ones only."""
    of_words = tokeniser.of_words
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split() if of_words else text.replace(" ", ""))
    units = list(counts)
    writable = tokeniser.writable(units)
    unwritable = {unit: counts[unit] for unit, known in zip(units, writable, strict=True) if not known}
    examples = sorted(unwritable.items(), key=lambda item: (-item[1], item[0]))[:named]
    return Missing("words" if of_words else "characters", counts.total(), sum(unwritable.values()), tuple(examples))
