"""What new data holds that an earlier run's vocabulary cannot write."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from sightline.text.tokeniser import Tokeniser


@dataclass(frozen=True)
class Missing:
    """What new targets hold that an earlier run's vocabulary cannot write, the most frequent by name."""

    unit: str  # words or characters
    total: int
    unwritable: int
    examples: tuple[tuple[str, int], ...]

    def lines(self) -> list[str]:
        if not self.unwritable:
            return [f"the vocabulary of the earlier run can write all {self.unit} of the new targets"]
        named = ", ".join(f"{unit} ({count:,})" for unit, count in self.examples)
        return [
            f"the vocabulary of the earlier run has nothing for {self.unwritable:,} of {self.total:,} {self.unit} of "
            f"the new targets: {named}"
        ]


def count_missing(tokeniser: Tokeniser, texts: Iterator[str], named: int = 10) -> Missing:
    """Words of a vocabulary of words, characters of any other. Only different ones are held in memory."""
    of_words = tokeniser.of_words
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text.split() if of_words else text.replace(" ", ""))
    units = list(counts)
    writable = tokeniser.writable(units)
    unwritable = {unit: counts[unit] for unit, known in zip(units, writable, strict=True) if not known}
    examples = sorted(unwritable.items(), key=lambda item: (-item[1], item[0]))[:named]
    return Missing("words" if of_words else "characters", counts.total(), sum(unwritable.values()), tuple(examples))
