"""Made tables with questions in words and their answers: data for `ask`, one kind of question for each operation.

Every question has a table of its own. Columns are drawn from lists of names, so that the next table has others, in
another order. What a question needs stands in its words: columns are called by their names, rows by what stands in
their cells, and no answer depends on a choice between two rows that are equal. The same seed makes the same questions.
Nothing here imports torch.
"""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from sightline.synthetic.table_words import FORMS, KEYS, MONTHS, NAMES, NUMBERS, PHRASES, SORTS

LEAST_ROWS, LEAST_COLUMNS, MOST_COLUMNS, MOST_ROWS = 4, 4, 12, 500
_ARTICLE = re.compile(r"\ba (?=[aeiou])")
TRIES = 200  # tables drawn for a question before its kind is given up


class MadeQuestion(NamedTuple):
    """A question about a table, its answer and which operations it takes."""

    question: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    answer: tuple[str, ...]
    kind: str


class _Column(NamedTuple):
    """``sort`` is key (each cell once), word (few words, often), number, year or date. ``order`` sorts the cells."""

    name: str
    sort: str
    cells: list[str]
    order: list[float]


class _Drawn(NamedTuple):
    """What a question of a kind says: the phrase and what stands in its gaps; and the answer."""

    gaps: dict[str, str]
    answer: tuple[str, ...]
    sort: str = ""  # which phrases: those of numbers, years or dates


Draw = Callable[["_Table"], _Drawn | None]


class _Table:
    """A table that is drawn, and choices from it."""

    def __init__(self, draws: random.Random, rows: int, columns: int) -> None:
        self.draws, self.size = draws, rows
        sorts = ["key", "word", "number", draws.choice(("number", "year", "date"))]
        sorts += draws.choices(("key", "word", "number", "year", "date"), (2, 3, 5, 1, 2), k=columns - 4)
        draws.shuffle(sorts)
        self.columns: list[_Column] = []
        for sort in sorts:
            self.columns.append(self._column(sort))

    def _column(self, sort: str) -> _Column:
        draws, size = self.draws, self.size
        used = {word for column in self.columns for word in column.name.lower().split()}
        free = [name for name in NAMES[sort] if not used & set(name.lower().split())]
        if not free:  # all names of this sort are there
            return self._column("number")
        name = draws.choice(free)
        if sort == "key":
            cells = _distinct(draws, KEYS[name], size)
            return _Column(name, sort, cells, [])
        if sort == "word":
            words = draws.sample(SORTS[name], draws.randint(2, min(6, len(SORTS[name]))))
            return _Column(name, sort, draws.choices(words, k=size), [])
        if sort == "number":
            least, most, form = NUMBERS[name]
            wide = max(most - least, 2 * size)
            order = [float(least + one) for one in draws.sample(range(wide + 1), size)]
            return _Column(name, sort, [_number(one, form) for one in order], order)
        if sort == "year":
            wide = max(80, size)
            order = [float(year) for year in draws.sample(range(2020 - wide, 2021), size)]
            return _Column(name, sort, [f"{one:.0f}" for one in order], order)
        form = draws.choice(FORMS)
        days = [(1950 + one // 336, one % 336 // 28 + 1, one % 28 + 1) for one in draws.sample(range(336 * 70), size)]
        cells = [form.format(y=y, m=m, d=d, month=MONTHS[m - 1], mon=MONTHS[m - 1][:3]) for y, m, d in days]
        return _Column(name, sort, cells, [y * 10_000.0 + m * 100 + d for y, m, d in days])

    def of(self, *sorts: str, but: Sequence[_Column] = ()) -> _Column:
        """Any column of these sorts."""
        return self.draws.choice([one for one in self.columns if one.sort in sorts and one not in but])

    def ordered(self) -> _Column:
        return self.of("number", "year", "date")

    def printed(self, *but: _Column) -> _Column:
        """A column to print: mostly names."""
        if self.draws.random() < 0.7:
            keys = [one for one in self.columns if one.sort == "key" and one not in but]
            if keys:
                return self.draws.choice(keys)
        return self.of("key", "word", "number", "year", "date", but=but)

    def word(self) -> tuple[_Column, str, list[int]]:
        """A column of words, one of its words, and the rows with it: some, and not all."""
        column = self.of("word")
        word = self.draws.choice(column.cells)
        return column, word, [row for row, cell in enumerate(column.cells) if cell == word]


def _distinct(draws: random.Random, parts: tuple[Sequence[str], ...], size: int) -> list[str]:
    """So many different names of a first and, if there is one, a second part. No name begins another."""
    names = list(parts[0]) if len(parts) == 1 else [f"{first} {second}" for first in parts[0] for second in parts[1]]
    if len(names) < size:  # a table longer than most
        names = [f"{name} {number}" for name in names for number in range(1, size // len(names) + 2)]
    return draws.sample(names, size)


def _number(value: float, form: str) -> str:
    """As the cells of a column are written: 12,467 or $12.50 or 45% or 171 km."""
    return form.format(value / 10 if ".1f" in form else value / 100 if ".2f" in form else int(value))


# Each kind of question: what it draws from a table.


def _asked(column: _Column, row: int) -> str:
    """A cell as a question says it: without its unit."""
    return column.cells[row].split(" ")[0] if column.sort == "number" else column.cells[row]


def _comparison(table: _Table, holds: Callable[[float, float], bool]) -> tuple[_Column, str, list[int]] | None:
    column = table.ordered()
    bound = table.draws.randrange(table.size)
    rows = [row for row, value in enumerate(column.order) if holds(value, column.order[bound])]
    return (column, _asked(column, bound), rows) if 0 < len(rows) < table.size else None


_HOLDS: dict[str, Callable[[float, float], bool]] = {
    "greater": lambda own, other: own > other,
    "less": lambda own, other: own < other,
    "at_least": lambda own, other: own >= other,
    "at_most": lambda own, other: own <= other,
}


def _cells(column: _Column, rows: Sequence[int]) -> tuple[str, ...]:
    return tuple(column.cells[row] for row in rows)


def _all_count(table: _Table) -> _Drawn:
    return _Drawn({}, (str(table.size),))


def _reset_count(table: _Table) -> _Drawn:
    column, word, _ = table.word()
    return _Drawn({"by": column.name, "word": word}, (str(table.size),))


def _all_print(table: _Table) -> _Drawn:
    column = table.of("key")
    return _Drawn({"out": column.name}, tuple(column.cells))


def _compared_count(holds: Callable[[float, float], bool]) -> Draw:
    def draw(table: _Table) -> _Drawn | None:
        comparison = _comparison(table, holds)
        if comparison is None:
            return None
        column, bound, rows = comparison
        return _Drawn({"by": column.name, "bound": bound}, (str(len(rows)),), column.sort)

    return draw


def _compared_print(holds: Callable[[float, float], bool]) -> Draw:
    def draw(table: _Table) -> _Drawn | None:
        comparison = _comparison(table, holds)
        if comparison is None or len(comparison[2]) > 6:
            return None
        column, bound, rows = comparison
        out = table.of("key")
        return _Drawn({"by": column.name, "bound": bound, "out": out.name}, _cells(out, rows), column.sort)

    return draw


def _extreme_print(best: Callable[..., float], step: int = 0) -> Draw:
    def draw(table: _Table) -> _Drawn | None:
        column = table.ordered()
        row = column.order.index(best(column.order)) + step
        if not 0 <= row < table.size:
            return None
        out = table.printed(column)
        return _Drawn({"by": column.name, "out": out.name}, (out.cells[row],), column.sort)

    return draw


def _end_print(row: int) -> Draw:
    def draw(table: _Table) -> _Drawn:
        out = table.printed()
        return _Drawn({"out": out.name}, (out.cells[row],))

    return draw


def _match_print(table: _Table) -> _Drawn:
    by = table.of("key", "key", "year")
    out, row = table.printed(by), table.draws.randrange(table.size)
    return _Drawn({"by": by.name, "word": by.cells[row], "out": out.name}, (out.cells[row],))


def _match_step_print(step: int) -> Draw:
    def draw(table: _Table) -> _Drawn:
        by = table.of("key")
        rows = range(max(0, -step), table.size - max(0, step))
        row = table.draws.choice(rows)
        out = by if table.draws.random() < 0.5 else table.printed(by)
        return _Drawn({"by": by.name, "word": by.cells[row], "out": out.name}, (out.cells[row + step],))

    return draw


def _match_count(table: _Table) -> _Drawn | None:
    column, word, rows = table.word()
    return _Drawn({"by": column.name, "word": word}, (str(len(rows)),)) if len(rows) < table.size else None


def _match_end_print(place: int) -> Draw:
    def draw(table: _Table) -> _Drawn | None:
        column, word, rows = table.word()
        if not 1 < len(rows) < table.size:
            return None
        out = table.printed(column)
        return _Drawn({"by": column.name, "word": word, "out": out.name}, (out.cells[rows[place]],))

    return draw


def _match_extreme_print(best: Callable[..., int]) -> Draw:
    def draw(table: _Table) -> _Drawn | None:
        column, word, rows = table.word()
        if not 1 < len(rows) < table.size:
            return None
        most = table.ordered()
        out = table.printed(column, most)
        row = best(rows, key=most.order.__getitem__)
        gaps = {"by": column.name, "word": word, "most": most.name, "out": out.name}
        return _Drawn(gaps, (out.cells[row],), most.sort)

    return draw


def _match_greater_count(table: _Table) -> _Drawn | None:
    column, word, rows = table.word()
    comparison = _comparison(table, _HOLDS["greater"])
    if comparison is None:
        return None
    most, bound, greater = comparison
    both = set(rows) & set(greater)
    if not 0 < len(both) < min(len(rows), len(greater)):
        return None
    gaps = {"by": column.name, "word": word, "most": most.name, "bound": bound}
    return _Drawn(gaps, (str(len(both)),), most.sort)


def _compared_end_print(holds: Callable[[float, float], bool], place: int) -> Draw:
    def draw(table: _Table) -> _Drawn | None:
        comparison = _comparison(table, holds)
        if comparison is None or len(comparison[2]) < 2:
            return None
        column, bound, rows = comparison
        out = table.printed(column)
        return _Drawn({"by": column.name, "bound": bound, "out": out.name}, (out.cells[rows[place]],), column.sort)

    return draw


def _most_frequent(table: _Table) -> _Drawn | None:
    column = table.of("word")
    (word, most), *others = Counter(column.cells).most_common()
    return None if not others or most == others[0][1] else _Drawn({"out": column.name}, (word,))


_KINDS: dict[str, Draw] = {
    "count": _all_count,
    "print": _all_print,
    "reset_count": _reset_count,
    "first_print": _end_print(0),
    "last_print": _end_print(-1),
    "max_print": _extreme_print(max),
    "min_print": _extreme_print(min),
    "most_frequent": _most_frequent,
    "match_print": _match_print,
    "match_count": _match_count,
    "match_previous_print": _match_step_print(-1),
    "match_next_print": _match_step_print(1),
    "match_first_print": _match_end_print(0),
    "match_last_print": _match_end_print(-1),
    "match_max_print": _match_extreme_print(max),
    "match_min_print": _match_extreme_print(min),
    "match_greater_count": _match_greater_count,
    **{f"{name}_count": _compared_count(holds) for name, holds in _HOLDS.items()},
    **{f"{name}_print": _compared_print(holds) for name, holds in _HOLDS.items()},
    "greater_first_print": _compared_end_print(_HOLDS["greater"], 0),
    "less_last_print": _compared_end_print(_HOLDS["less"], -1),
    "max_previous_print": _extreme_print(max, -1),
    "min_next_print": _extreme_print(min, 1),
}
KINDS: tuple[str, ...] = tuple(_KINDS)


def made_questions(
    seed: int,
    count: int,
    kinds: Sequence[str] | None = None,
    rows: tuple[int, int] = (5, 20),
    columns: tuple[int, int] = (4, 8),
) -> Iterator[MadeQuestion]:
    """So many questions, each kind as often as any other, in an order that is drawn. Both ends of ranges are included.

    Raises a `ValueError` for a kind that there is not, and for ranges outside of 4 to 500 rows and 4 to 12 columns.
    """
    kinds = KINDS if kinds is None else tuple(kinds)
    unknown = [kind for kind in kinds if kind not in _KINDS]
    if unknown or not kinds:
        raise ValueError(f"there is no kind {', '.join(unknown) or 'given'}; there is {', '.join(KINDS)}")
    for name, (least, most), bounds in (
        ("rows", rows, (LEAST_ROWS, MOST_ROWS)),
        ("columns", columns, (LEAST_COLUMNS, MOST_COLUMNS)),
    ):
        if not bounds[0] <= least <= most <= bounds[1]:
            raise ValueError(f"{name} is {least}-{most}; expected {bounds[0]} to {bounds[1]}, the smaller one first")
    return _made(random.Random(f"tables {seed}"), count, kinds, rows, columns)


def _made(
    draws: random.Random, count: int, kinds: Sequence[str], rows: tuple[int, int], columns: tuple[int, int]
) -> Iterator[MadeQuestion]:
    order: list[str] = []
    for _ in range(count):
        if not order:
            order = draws.sample(list(kinds), len(kinds))
        yield _one(draws, order.pop(), rows, columns)


def _one(draws: random.Random, kind: str, rows: tuple[int, int], columns: tuple[int, int]) -> MadeQuestion:
    for _ in range(TRIES):
        table = _Table(draws, draws.randint(*rows), draws.randint(*columns))
        drawn = _KINDS[kind](table)
        if drawn is not None:
            phrases = PHRASES[f"{kind}:{drawn.sort}" if f"{kind}:{drawn.sort}" in PHRASES else kind]
            gaps = {key: text.lower() if key in ("by", "out", "most") else text for key, text in drawn.gaps.items()}
            cells = zip(*(column.cells for column in table.columns), strict=True)
            question = _ARTICLE.sub("an ", draws.choice(phrases).format(**gaps))
            header = tuple(column.name for column in table.columns)
            return MadeQuestion(question, header, tuple(cells), drawn.answer, kind)
    raise ValueError(f"no question of the kind {kind} was found for {rows} rows; give more rows")
