"""What is shown of a large table: the rows and columns that matter to a program, and how many are left out between."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sightline.asked import AskedTable, importance


@dataclass(frozen=True)
class Gap:
    """Rows or columns that are left out: how many there are in the whole table, and the places of those known."""

    count: int
    places: range


Part = int | Gap


def excerpt_rows(table: AskedTable, most: int) -> tuple[Part, ...]:
    """At most ``most`` rows and gaps: printed rows first, then those that passes selected, each with its neighbours."""
    count = len(table.rows)
    if count > most or table.total > count:
        order = np.argsort(-importance(count, table.passes, table.cells), kind="stable")
        printed = {row for row, _ in table.cells}
        candidates = [int(row) for row in order if row in printed]
        candidates += [row + by for row in map(int, order[:most]) for by in (0, -1, 1) if 0 <= row + by < count]
        return with_gaps(_while_they_fit(table, candidates, most), table.numbers, table.total)
    return tuple(range(count))


def _while_they_fit(table: AskedTable, candidates: Sequence[int], most: int) -> list[int]:
    """A gap of one row is filled, for its mark is as large."""
    kept = list[int]()
    for row in dict.fromkeys(candidates):
        more = _filled(sorted({*kept, row}))
        if kept and len(with_gaps(more, table.numbers, table.total)) > most:
            break
        kept = more
    return kept


def _filled(places: Sequence[int]) -> list[int]:
    return sorted({*places, *(one + 1 for one, other in pairwise(places) if other == one + 2)})


def excerpt_columns(table: AskedTable, most: int) -> tuple[Part, ...]:
    """About ``most`` columns: those of which cells are printed, those that passes chose, likely ones, the first."""
    count = len(table.header)
    kept = np.argsort(-column_importance(table), kind="stable")[: max(most, 1)]
    return with_gaps(_filled(sorted(map(int, kept))), range(count), count)


def column_importance(table: AskedTable) -> np.ndarray:
    interest = np.zeros(len(table.header))
    for one in table.passes:
        interest += 0.1 * one.column_probs
        if one.column >= 0:
            interest[one.column] += 1.0
    for column in {column for _, column in table.cells}:
        interest[column] += 4.0
    interest[:1] += 0.05  # it often names the row
    return interest


def with_gaps(places: Sequence[int], numbers: Sequence[int], total: int) -> tuple[Part, ...]:
    """Places, with a gap where numbers are left out between them, before the first or behind the last."""
    parts: list[Part] = []
    before, known = -1, 0
    for place in places:
        if numbers[place] > before + 1:
            parts.append(Gap(numbers[place] - before - 1, range(known, place)))
        parts.append(place)
        before, known = numbers[place], place + 1
    if total > before + 1:
        parts.append(Gap(total - before - 1, range(known, len(numbers))))
    return tuple(parts)


def gap_text(gap: Gap, rows: np.ndarray | None = None) -> str:
    """How many rows are left out, and how many of them are selected, where that is known."""
    text = f"… {gap.count:,} {'row' if gap.count == 1 else 'rows'}"
    if rows is None or len(gap.places) < gap.count:
        return text
    count = int((rows[gap.places.start : gap.places.stop] >= 0.5).sum())
    return f"{text}, {count:,} selected" if count else text
