"""Made recordings: groups of letters in Morse code, of different speed and tone, with the time of every letter.

Letters are drawn at random, as in groups that people learn Morse code with: a model cannot guess them from each other.

For examples and tests: nothing has to be fetched, and because the time of each letter is known, it can be measured
whether a model attends to it. A dash is as long as three dots, the pause in a letter as one, between letters as three
and between words as seven (ITU-R M.1677). The same seed makes the same recordings.
"""

from dataclasses import dataclass

import numpy as np

RATE = 8000
CODE = {
    "a": ".-", "b": "-...", "c": "-.-.", "d": "-..", "e": ".", "f": "..-.", "g": "--.", "h": "....", "i": "..",
    "j": ".---", "k": "-.-", "l": ".-..", "m": "--", "n": "-.", "o": "---", "p": ".--.", "q": "--.-", "r": ".-.",
    "s": "...", "t": "-", "u": "..-", "v": "...-", "w": ".--", "x": "-..-", "y": "-.--", "z": "--..",
}  # fmt: skip
LETTERS = "etianmsurwdkgo"  # of three signs at most, with which people begin to learn


@dataclass(frozen=True, eq=False)
class Sent:
    """A recording, what was sent, and from when to when each letter is, in seconds (spaces have none)."""

    samples: np.ndarray
    text: str
    times: tuple[tuple[float, float], ...]


def made_morse(count: int, seed: int = 0, most_words: int = 2) -> list[Sent]:
    """So many recordings of one to ``most_words`` groups of two to four letters each."""
    draw = np.random.default_rng(seed)
    return [_sent(draw, most_words) for _ in range(count)]


def _sent(draw: np.random.Generator, most_words: int) -> Sent:
    groups = ("".join(draw.choice(list(LETTERS), draw.integers(2, 5))) for _ in range(draw.integers(1, most_words + 1)))
    text, dot, tone = " ".join(groups), draw.uniform(0.026, 0.034), draw.uniform(500, 900)
    keys, times, now = list[tuple[float, float]](), list[tuple[float, float]](), 0.1
    for letter in text:
        if letter == " ":
            now += 4 * dot  # beside the three behind the letter
            continue
        start = now
        for sign in CODE[letter]:
            length = (3 if sign == "-" else 1) * dot * draw.uniform(0.85, 1.15)
            keys.append((now, now + length))
            now += length + dot * draw.uniform(0.85, 1.15)
        times.append((start, keys[-1][1]))
        now += 2 * dot
    clock = np.arange(round((now + 0.1) * RATE)) / RATE
    envelope = np.zeros(len(clock))
    for start, end in keys:
        envelope[(clock >= start) & (clock < end)] = 1.0
    edge = np.hanning(81)  # ten milliseconds: a key that is hit does not click
    envelope = np.convolve(envelope, edge / edge.sum(), mode="same")
    noise = draw.normal(0, draw.uniform(0.003, 0.03), len(clock))
    samples = 0.4 * envelope * np.sin(2 * np.pi * tone * clock) + noise
    return Sent(samples.astype(np.float32), text, tuple(times))
