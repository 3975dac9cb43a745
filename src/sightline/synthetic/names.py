"""Made messages that only copying can write: names that no vocabulary has, moved into other sentences.

For examples, tests and benchmarks. Every name is drawn anew, letter by letter; the same seed makes the same messages.
"""

import random

SENTENCES = (
    ("{a} met {b} in the town yesterday .", "{b} was met by {a} ."),
    ("the letter of {a} came to {b} today .", "{a} wrote to {b} ."),
    ("{a} and {b} are friends .", "friends : {b} , {a} ."),
    ("after {a} had called , {b} left the house .", "{b} left when {a} called ."),
    ("nobody but {a} has seen {a} with {b} .", "{a} saw {b} ."),
)
SYLLABLES = [first + vowel for first in "bdfgklmnprstvz" for vowel in "aeiou"]


def moved_names(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """So many messages, each with a short form."""
    draw = random.Random(seed)
    messages = []
    for _ in range(count):
        source, target = draw.choice(SENTENCES)
        a, b = ("".join(draw.choices(SYLLABLES, k=4)).capitalize() for _ in range(2))
        messages.append((source.format(a=a, b=b), target.format(a=a, b=b)))
    return messages
