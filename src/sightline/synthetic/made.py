"""Made data by name: ``made:copy`` with options behind it, as in ``made:copy:lengths=1-20:count=5000``.

Sequences that classic papers learn, drawn by a seed: no file is needed, and there are always more of them. Every kind
has ``lengths``, a number or a range; which other options it has, `MADE` tells. Nothing here imports torch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from sightline.errors import UserError
from sightline.synthetic.trees import tree_pairs

PREFIX = "made:"
COUNT = 5_000  # rows, unless another number is given
MOST_ROWS, LONGEST, WIDEST = 1_000_000, 10_000, 1_024
MOST_NUMBERS = 10_000_000  # in a sequence
VECTORS, POSITIONS, SYMBOLS = ("features", "target"), ("features", "positions"), ("source", "target")


class Range(NamedTuple):
    """From the least to the most, both included."""

    least: int
    most: int

    def draw(self, draws: np.random.Generator) -> int:
        return int(draws.integers(self.least, self.most + 1))

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least}-{self.most}"


Drawn = tuple[np.ndarray, np.ndarray | list[np.ndarray]]  # inputs of one length, and their targets
Draw = Callable[["MadeData", np.random.Generator, int, int], Drawn]


@dataclass(frozen=True)
class MadeData:
    """What to draw. ``width`` is the number of bits, or of numbers, in a vector; ``repeats`` those of repeat-copy."""

    name: str
    lengths: Range
    width: int
    count: int = COUNT
    repeats: Range = field(default=Range(1, 10))
    seed: int = 0
    scored: bool = False  # drawn to be scored: others than those of training, by any seed

    @classmethod
    def read(cls, text: str, **options: object) -> "MadeData":
        """What ``made:NAME:option=value`` says; ``options`` are given beside it. Raises a `UserError`."""
        name = text.removeprefix(PREFIX).split(":")[0]
        if name not in MADE:
            raise UserError(f"there is no made data {name!r}; there is {', '.join(MADE)}")
        return MADE[name].default(name).changed(text, options)

    def changed(self, text: str, options: Mapping[str, object]) -> "MadeData":
        """With the options behind the name, and with those beside it."""
        given: dict[str, object] = {}
        for part in text.removeprefix(PREFIX).split(":")[1:]:
            key, _, value = part.partition("=")
            if not value or key not in OPTIONS:
                raise UserError(f"{text}: found {part!r}; expected one of {', '.join(f'{one}=…' for one in OPTIONS)}")
            given[key] = value
        given |= {key: value for key, value in options.items() if value is not None}
        if "repeats" in given and self.name != "repeat-copy":
            raise UserError(f"repeats is an option of {PREFIX}repeat-copy alone; {PREFIX}{self.name} has none")
        own = self
        for key, chosen in given.items():
            own = replace(own, **{key: OPTIONS[key](key, str(chosen))})
        return own.checked()

    def checked(self) -> "MadeData":
        """Refuse what would take too long to draw, or too much memory."""
        kind = MADE[self.name]
        if self.lengths.most > kind.longest:
            raise UserError(f"lengths is {self.lengths}; of {PREFIX}{self.name} it is at most {kind.longest:,}")
        if self.width > kind.widest:
            raise UserError(f"width is {self.width}; of {PREFIX}{self.name} it is at most {kind.widest:,}")
        repeats = self.repeats.most if self.name == "repeat-copy" else 1
        if self.lengths.most * repeats * self.width > MOST_NUMBERS:
            raise UserError(f"{PREFIX}{self}: a sequence has more than {MOST_NUMBERS:,} numbers; make it shorter")
        return self

    def __str__(self) -> str:
        """What `read` reads, without the number of rows."""
        default = MADE[self.name].default(self.name)
        names = [key for key in OPTIONS if key != "count" and getattr(self, key) != getattr(default, key)]
        return ":".join([self.name, *(f"{key}={getattr(self, key)}" for key in names)])

    def longest(self) -> "MadeData":
        """The same with the longest sequences alone."""
        lengths, repeats = (Range(one.most, one.most) for one in (self.lengths, self.repeats))
        return replace(self, lengths=lengths, repeats=repeats)

    @property
    def columns(self) -> tuple[str, str]:
        return MADE[self.name].columns

    def rows(self) -> Iterator[tuple[object, object]]:
        """All rows, the same each time: arrays, or symbols in a text."""
        if self.columns == SYMBOLS:
            try:
                yield from tree_pairs(self.seed + (0 if self.scored else 10**6), self.count, self.lengths)
            except ValueError as error:
                raise UserError(f"{PREFIX}{self}: {error}") from None
            return
        draws = np.random.default_rng([self.seed, *([] if self.scored else [1]), *map(ord, self.name)])
        for _ in range(self.count):
            x, y = self.draw(draws, 1)
            yield x[0], y[0]

    def draw(self, draws: np.random.Generator, count: int) -> Drawn:
        """So many inputs of one length, and their targets."""
        draw = MADE[self.name].draw
        assert draw is not None, f"{self.name} is not drawn by the batch"
        return draw(self, draws, self.lengths.draw(draws), count)


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


def copy(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """Vectors of bits, then a mark on a channel of its own; the same vectors come out."""
    bits = draws.integers(0, 2, (count, length, made.width)).astype(np.float32)
    x = np.zeros((count, length + 1, made.width + 1), np.float32)
    x[:, :length, :-1], x[:, length, -1] = bits, 1
    return x, bits


def repeat_copy(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """As `copy`; the mark is the number of repeats, with mean 0 and deviation 1 for 1 to 10."""
    repeats = made.repeats.draw(draws)
    bits = draws.integers(0, 2, (count, length, made.width)).astype(np.float32)
    x = np.zeros((count, length + 1, made.width + 2), np.float32)
    x[:, :length, :-2], x[:, length, -2:] = bits, (1, (repeats - 5.5) / np.sqrt(8.25))
    return x, np.tile(bits, (1, repeats, 1))


def associative_recall(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """Items of three vectors, a mark before each; one of them is asked for, and the one behind it comes out."""
    length, rows = max(2, length), np.arange(count)
    items = draws.integers(0, 2, (count, length, 3, made.width)).astype(np.float32)
    asked = draws.integers(0, length - 1, count)
    shown = np.concatenate([items, items[rows, asked][:, None]], axis=1)
    x = np.zeros((count, length + 1, 4, made.width + 2), np.float32)
    x[:, :, 1:, :-2] = shown
    x[:, :-1, 0, -2], x[:, -1, 0, -1] = 1, 1
    end = np.zeros((count, 1, made.width + 2), np.float32)
    end[..., -1] = 1
    return np.concatenate([x.reshape(count, -1, made.width + 2), end], axis=1), items[rows, asked + 1]


def priority_sort(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """Vectors with a priority from −1 to 1; four fifths of them come out, those of the highest priority first."""
    bits = draws.integers(0, 2, (count, length, made.width)).astype(np.float32)
    priority = draws.uniform(-1, 1, (count, length)).astype(np.float32)
    x = np.zeros((count, length + 1, made.width + 2), np.float32)
    x[:, :length, :-2], x[:, :length, -2], x[:, length, -1] = bits, priority, 1
    best = np.argsort(-priority, axis=1, kind="stable")[:, : max(1, length * 4 // 5)]
    return x, np.take_along_axis(bits, best[..., None], axis=1)


def dynamic_ngrams(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """Bits, each drawn with a probability that the five before it choose from a table; the next one comes out."""
    table, rows = draws.beta(0.5, 0.5, (count, 32)), np.arange(count)
    place, uniform = draws.integers(0, 32, count), draws.random((length + 1, count))
    bits = np.zeros((count, length + 1, 1), np.float32)
    for step in range(length + 1):
        bit = uniform[step] < table[rows, place]
        bits[:, step, 0], place = bit, (2 * place + bit) % 32
    return bits[:, :-1], bits[:, 1:]


def parity(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """One vector of −1 and 1 in so many of its first places, 0 behind them; 1 comes out where the number of 1 is odd.
    Every vector of a batch has a number of places of its own."""
    places = np.broadcast_to(np.arange(made.width), (count, made.width))
    return _parity(made, draws, length, places)


def scattered_parity(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """As `parity`, with the numbers anywhere in the vector: every place is trained, however few numbers there are."""
    return _parity(made, draws, length, np.argsort(draws.random((count, made.width)), axis=1))


def _parity(made: MadeData, draws: np.random.Generator, length: int, order: np.ndarray) -> Drawn:
    least, most = (min(one, made.width) for one in made.lengths)
    count = len(order)
    lengths = draws.integers(least, most + 1, (count, 1)) if count > 1 else np.full((1, 1), min(length, made.width))
    x = np.where(order < lengths, 2.0 * draws.integers(0, 2, order.shape) - 1, 0.0).astype(np.float32)
    return x[:, None], ((x == 1).sum(axis=1) % 2).astype(np.float32)[:, None, None]


GATES = np.array(  # NOR, XOR, AND, NAND, OR, XNOR, a, b, not a implies b, a implies b: by a and b
    [[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1],
     [1, 1, 0, 1], [1, 0, 1, 1]]
)  # fmt: skip


def logic(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """At each step two bits and up to ``width`` gates, each of the last two bits; the last bit comes out. At later
    steps the first bit is the answer before, which is not shown."""
    x, y = np.zeros((count, length, 2 + 10 * made.width), np.float32), np.zeros((count, length, 1), np.float32)
    rows, last = np.arange(count), np.zeros(count, np.int64)
    for step in range(length):
        first, second = draws.integers(0, 2, (2, count))
        x[:, step, 0], x[:, step, 1] = first if step == 0 else 0, second
        first = first if step == 0 else last
        gates, most = draws.integers(0, 10, (made.width, count)), draws.integers(1, made.width + 1, count)
        for place, gate in enumerate(gates):
            there = place < most
            x[rows, step, 2 + 10 * place + gate] = there
            moved = GATES[gate, 2 * first + second]
            first, second = np.where(there, second, first), np.where(there, moved, second)
        last = second
        y[:, step, 0] = last
    return x, y


def addition(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """At each step a number of up to ``width`` digits; the sum so far comes out, digit by digit, each one of ten or
    none."""
    wide, rows = made.width + 1, np.arange(count)
    x, y = np.zeros((count, length, 10 * made.width), np.float32), np.zeros((count, length, 11 * wide), np.float32)
    total = np.zeros(count, np.int64)
    for step in range(length):
        digits, most = draws.integers(0, 10, (made.width, count)), draws.integers(1, wide, count)
        value = np.zeros(count, np.int64)
        for place, digit in enumerate(digits):
            there = place < most
            x[rows, step, 10 * place + digit] = there
            value = np.where(there, 10 * value + digit, value)
        total = (total + value) % 10**wide
        for place in range(wide):
            rest = total // 10 ** (wide - 1 - place)
            shown = np.where((rest > 0) | (place == wide - 1), rest % 10, 10)
            y[rows, step, 11 * place + shown] = 1
    return x, y


def sort(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """Numbers from 0 to 1; their places from the smallest to the largest come out."""
    x = _in_16_bits(draws.random((count, length, 1)))
    return x, np.argsort(x[..., 0], axis=1, kind="stable")


def convex_hull(made: MadeData, draws: np.random.Generator, length: int, count: int) -> Drawn:
    """Points in a square; the places of those of their hull come out, counter-clockwise from the first of them."""
    x = _in_16_bits(draws.random((count, max(3, length), 2)))
    return x, [hull(points) for points in x]


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

    draw: Draw | None
    lengths: Range
    width: int = 8
    columns: tuple[str, str] = VECTORS
    longest: int = LONGEST
    widest: int = WIDEST

    def default(self, name: str) -> MadeData:
        return MadeData(name, self.lengths, self.width)


MADE: Mapping[str, MadeKind] = {
    "copy": MadeKind(copy, Range(1, 20)),
    "repeat-copy": MadeKind(repeat_copy, Range(1, 10)),
    "associative-recall": MadeKind(associative_recall, Range(2, 6), 6),
    "priority-sort": MadeKind(priority_sort, Range(20, 20)),
    "dynamic-ngrams": MadeKind(dynamic_ngrams, Range(200, 200), 1),
    "parity": MadeKind(parity, Range(1, 64), 64),
    "scattered-parity": MadeKind(scattered_parity, Range(1, 64), 64),
    "logic": MadeKind(logic, Range(1, 10), 10),
    "addition": MadeKind(addition, Range(5, 5), 5, widest=17),
    "sort": MadeKind(sort, Range(5, 10), 1, POSITIONS),
    "convex-hull": MadeKind(convex_hull, Range(5, 10), 2, POSITIONS),
    "trees": MadeKind(None, Range(3, 20), 1, SYMBOLS, longest=50),
}


def is_made(data: str | None, columns: tuple[str, str] | None = None) -> bool:
    """Whether data is named as made data is; with ``columns``, whether it has these."""
    if data is None or not data.startswith(PREFIX):
        return False
    return columns is None or MadeData.read(data).columns == columns
