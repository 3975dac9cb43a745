"""Made data by name: ``made:copy`` with options behind it, as in ``made:copy:lengths=1-20:count=5000``.

Sequences that classic papers learn, drawn by a seed: no file is needed, and there are always more of them. Every kind
has ``lengths``, a number or a range; which other options it has, `MADE` tells. Nothing here imports torch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from sightline.errors import UserError

PREFIX = "made:"
COUNT = 5_000  # rows, unless another number is given
MOST_ROWS, LONGEST, WIDEST = 1_000_000, 10_000, 1_024
VECTORS, POSITIONS = ("features", "target"), ("features", "positions")


class Range(NamedTuple):
    """From the least to the most, both included."""

    least: int
    most: int

    def draw(self, draws: np.random.Generator) -> int:
        return int(draws.integers(self.least, self.most + 1))

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


Draw = Callable[["MadeData", np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class MadeData:
    """What to draw. ``width`` is the number of bits, or of numbers, in a vector; ``repeats`` those of repeat-copy."""

    name: str
    lengths: Range
    width: int
    count: int = COUNT
    repeats: Range = field(default=Range(1, 10))
    seed: int = 0

    @classmethod
    def read(cls, text: str, **options: object) -> "MadeData":
        """What ``made:NAME:option=value`` says; ``options`` are given beside it. Raises a `UserError`."""
        name, *parts = text.removeprefix(PREFIX).split(":")
        if name not in MADE:
            raise UserError(f"there is no made data {name!r}; there is {', '.join(MADE)}")
        given: dict[str, object] = {}
        for part in parts:
            key, equals, own_value = part.partition("=")
            if not equals or key not in OPTIONS:
                raise UserError(f"{text}: found {part!r}; expected one of {', '.join(f'{one}=…' for one in OPTIONS)}")
            given[key] = own_value
        given |= {key: value for key, value in options.items() if value is not None}
        own = MADE[name].default(name)
        for key, value in given.items():
            if key not in OPTIONS:
                raise UserError(f"made data has no option {key!r}; it has {', '.join(OPTIONS)}")
            own = replace(own, **{key: OPTIONS[key](key, str(value))})
        return own

    def __str__(self) -> str:
        """What `read` reads, without the number of rows."""
        default = MADE[self.name].default(self.name)
        names = [key for key in OPTIONS if key != "count" and getattr(self, key) != getattr(default, key)]
        return ":".join([self.name, *(f"{key}={getattr(self, key)}" for key in names)])

    @property
    def columns(self) -> tuple[str, str]:
        return MADE[self.name].columns

    def rows(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All rows, the same each time."""
        draws = np.random.default_rng([self.seed, *map(ord, self.name)])
        return (self.draw(draws, self.lengths.draw(draws)) for _ in range(self.count))

    def draw(self, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
        """An input and its target."""
        return MADE[self.name].draw(self, draws, length)


def _range(name: str, text: str) -> Range:
    least, dash, most = text.partition("-")
    try:
        made = Range(int(least), int(most if dash else least))
    except ValueError:
        raise UserError(f"{name} is {text!r}; expected a number or a range, such as 1-20") from None
    if not 1 <= made.least <= made.most <= LONGEST:
        raise UserError(f"{name} is {text!r}; expected numbers from 1 to {LONGEST:,}, the smaller one first")
    return made


def _number(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise UserError(f"{name} is {text!r}; expected a whole number") from None
        if not least <= value <= most:
            raise UserError(f"{name} is {value:,}; expected {least:,} to {most:,}")
        return value

    return read


OPTIONS: dict[str, Callable[[str, str], Any]] = {
    "lengths": _range,
    "width": _number(1, WIDEST),
    "count": _number(1, MOST_ROWS),
    "repeats": _range,
    "seed": _number(0, 2**31),
}


def copy(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of bits, then a mark on a channel of its own; the same vectors come out."""
    bits = draws.integers(0, 2, (length, made.width))
    x = np.zeros((length + 1, made.width + 1), np.float32)
    x[:length, :-1], x[length, -1] = bits, 1
    return x, bits.astype(np.float32)


def repeat_copy(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """As `copy`; the mark is the number of repeats, with mean 0 and deviation 1 for 1 to 10."""
    repeats = made.repeats.draw(draws)
    bits = draws.integers(0, 2, (length, made.width))
    x = np.zeros((length + 1, made.width + 2), np.float32)
    x[:length, :-2], x[length, -2:] = bits, (1, (repeats - 5.5) / np.sqrt(8.25))
    return x, np.tile(bits, (repeats, 1)).astype(np.float32)


def associative_recall(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Items of three vectors, a mark before each; one of them is asked for, and the one behind it comes out."""
    length = max(2, length)
    items = draws.integers(0, 2, (length, 3, made.width))
    asked = int(draws.integers(0, length - 1))
    x = np.zeros((4 * length + 5, made.width + 2), np.float32)
    for number, item in enumerate((*items, items[asked])):
        mark = -2 if number < length else -1
        x[4 * number, mark], x[4 * number + 1 : 4 * number + 4, :-2] = 1, item
    x[-1, -1] = 1
    return x, items[asked + 1].astype(np.float32)


def priority_sort(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors with a priority from −1 to 1; four fifths of them come out, those of the highest priority first."""
    bits, priority = draws.integers(0, 2, (length, made.width)), draws.uniform(-1, 1, length)
    x = np.zeros((length + 1, made.width + 2), np.float32)
    x[:length, :-2], x[:length, -2], x[length, -1] = bits, priority, 1
    return x, bits[np.argsort(-priority, kind="stable")[: max(1, length * 4 // 5)]].astype(np.float32)


def dynamic_ngrams(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Bits, each drawn with a probability that the five before it choose from a table; the next one comes out."""
    table, history = draws.beta(0.5, 0.5, 32), draws.integers(0, 2, 5).tolist()
    uniform = draws.random(length + 1)
    for number in range(length + 1):
        place = int("".join(map(str, history[-5:])), 2)
        history.append(int(uniform[number] < table[place]))
    bits = np.array(history[5:], np.float32)[:, None]
    return bits[:-1], bits[1:]


def parity(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """One vector of −1 and 1 in ``length`` places, 0 elsewhere; 1 comes out where the number of 1 is odd."""
    length = min(length, made.width)
    x = np.zeros((1, made.width), np.float32)
    x[0, draws.permutation(made.width)[:length]] = 2 * draws.integers(0, 2, length) - 1
    return x, np.array([[(x == 1).sum() % 2]], np.float32)


GATES = np.array(  # NOR, XOR, AND, NAND, OR, XNOR, a, b, not a implies b, a implies b: by a and b
    [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1],
     [1, 1, 0, 1], [1, 0, 1, 1]]
)  # fmt: skip


def logic(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """At each step two bits and up to ``width`` gates, each of the last two bits; the last bit comes out. At later
    steps the first bit is the answer before, which is not shown."""
    x, y = np.zeros((length, 2 + 10 * made.width), np.float32), np.zeros((length, 1), np.float32)
    last = 0
    for step in range(length):
        first, second = draws.integers(0, 2, 2).tolist() if step == 0 else (last, int(draws.integers(0, 2)))
        x[step, :2] = (first if step == 0 else 0, second)
        for place in range(int(draws.integers(1, made.width + 1))):
            gate = int(draws.integers(0, 10))
            x[step, 2 + 10 * place + gate] = 1
            first, second = second, int(GATES[gate, 2 * first + second])
        last = second
        y[step] = last
    return x, y


def addition(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """At each step a number of up to ``width`` digits; the sum so far comes out, digit by digit, each one of ten or
    none."""
    x, y = np.zeros((length, 10 * made.width), np.float32), np.zeros((length, 11 * (made.width + 1)), np.float32)
    total = 0
    for step in range(length):
        digits = draws.integers(0, 10, int(draws.integers(1, made.width + 1)))
        x[step, 10 * np.arange(len(digits)) + digits] = 1
        total = (total + int("".join(map(str, digits)))) % 10 ** (made.width + 1)
        shown = [int(one) for one in str(total)]
        shown = [10] * (made.width + 1 - len(shown)) + shown
        y[step, 11 * np.arange(made.width + 1) + np.array(shown)] = 1
    return x, y


def sort(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers from 0 to 1; their places from the smallest to the largest come out."""
    x = _in_16_bits(draws.random((length, 1)))
    return x, np.argsort(x[:, 0], kind="stable")


def convex_hull(made: MadeData, draws: np.random.Generator, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in a square; the places of those of their hull come out, counter-clockwise from the first of them."""
    x = _in_16_bits(draws.random((max(3, length), 2)))
    return x, hull(x)


def _in_16_bits(x: np.ndarray) -> np.ndarray:
    """Numbers as they are stored for training: the order of two that are nearly equal must not be lost there."""
    return x.astype(np.float16).astype(np.float32)


def hull(points: np.ndarray) -> np.ndarray:
    """The places of the points of a convex hull, counter-clockwise, the one that stands first of all first (Andrew's
    monotone chain)."""
    order = np.lexsort((points[:, 1], points[:, 0])).tolist()

    def chain(places: list[int]) -> list[int]:
        own: list[int] = []
        for place in places:
            while len(own) > 1 and _turn(points[own[-2]], points[own[-1]], points[place]) <= 0:
                own.pop()
            own.append(place)
        return own[:-1]

    around = chain(order) + chain(order[::-1])
    start = around.index(min(around))
    return np.array(around[start:] + around[:start])


def _turn(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


@dataclass(frozen=True)
class MadeKind:
    """A kind of made data: how one is drawn, its lengths and width unless others are given, its columns."""

    draw: Draw
    lengths: Range
    width: int = 8
    columns: tuple[str, str] = VECTORS

    def default(self, name: str) -> MadeData:
        return MadeData(name, self.lengths, self.width)


MADE: Mapping[str, MadeKind] = {
    "copy": MadeKind(copy, Range(1, 20)),
    "repeat-copy": MadeKind(repeat_copy, Range(1, 10)),
    "associative-recall": MadeKind(associative_recall, Range(2, 6), 6),
    "priority-sort": MadeKind(priority_sort, Range(20, 20)),
    "dynamic-ngrams": MadeKind(dynamic_ngrams, Range(200, 200), 1),
    "parity": MadeKind(parity, Range(1, 64), 64),
    "logic": MadeKind(logic, Range(1, 10), 10),
    "addition": MadeKind(addition, Range(5, 5), 5),
    "sort": MadeKind(sort, Range(5, 10), 1, POSITIONS),
    "convex-hull": MadeKind(convex_hull, Range(5, 10), 2, POSITIONS),
}


def is_made(data: str | None) -> bool:
    """Whether data is named as made data is."""
    return data is not None and data.startswith(PREFIX)
