"""What the figures of `contract.py` share: what was asked for, and made data."""

import itertools
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Figures = Iterator[tuple[str, Any]]


class Options(NamedTuple):
    """What was asked for."""

    source: Path
    data: Path | None
    tasks: list[str]

    @property
    def package(self) -> Path:
        return self.source / "sightline"

    def wants(self, task: str) -> bool:
        return not self.tasks or task in self.tasks


# Made data


def write_table(path: Path, header: str, rows: Iterable[str]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in itertools.chain([header] if header else [], rows))
    return path


SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeiou"]


def made_texts(count: int, seed: int, least: int = 6, most: int = 12) -> Iterator[list[str]]:
    """Texts of words of two syllables; 3,600 words, and hardly two texts alike."""
    draw = random.Random(seed)
    words = [first + second for first in SYLLABLES for second in SYLLABLES]
    for _ in range(count):
        yield draw.choices(words, k=draw.randint(least, most))


def tags_of(words: list[str]) -> list[str]:
    """By a word's end; words that end in o are what the word before says: two rules that a model can learn."""
    own = [
        "AMBIGUOUS" if word[-1] == "o" else {"a": "NOUN", "e": "VERB", "i": "ADJ"}.get(word[-1], "O") for word in words
    ]
    before = ["O", *own]
    return [
        ("AFTER-NOUN" if before[i] == "NOUN" else "OTHER") if tag == "AMBIGUOUS" else tag for i, tag in enumerate(own)
    ]


def write_tagged(path: Path, count: int, seed: int) -> Path:
    rows = (f"{' '.join(words)}\t{' '.join(tags_of(words))}" for words in made_texts(count, seed))
    return write_table(path, "words\ttags", rows)


def write_labelled(path: Path, count: int, seed: int) -> Path:
    rows = (f"{' '.join(words)}\t{tags_of(words)[0]}" for words in made_texts(count, seed))
    return write_table(path, "text\tlabel", rows)


def write_pairs(path: Path, count: int, seed: int) -> Path:
    rows = (f"{' '.join(words)}\t{' '.join(reversed(words))}" for words in made_texts(count, seed, 2, 5))
    return write_table(path, "source\ttarget", rows)


def write_captioned(path: Path, count: int) -> Path:
    """Images of one colour each, and the name of the colour."""
    from PIL import Image

    colours = ("red", "green", "blue", "yellow")
    rows = []
    for number in range(count):
        colour = colours[number % len(colours)]
        Image.new("RGB", (32, 32 + number), colour).save(path.parent / f"{number}.png")
        rows += [f"{number}.png\tthis is a {colour} image", f"{number}.png\tall of it is {colour}"]
    return write_table(path, "image\tcaption", rows)
