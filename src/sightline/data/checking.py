"""Checking rows on their way: the good ones go on as pairs, the bad ones are counted, and too many of them stop it."""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sightline.data.columns import Cells
from sightline.data.hashes import Distinct, HashSet, hash_of
from sightline.data.reading import Row
from sightline.errors import UserError

__all__ = ["Checked", "CheckedPairs", "Distinct", "HashSet", "Lengths", "Limits", "Report", "hash_of"]
TOO_LONG, EMPTY_SIDE = "too long", "empty side"  # the kinds of problem that are found here and not in reading
_EXACT = 1024  # lengths below it have a bin each; above, bins widen with the length
_LONGEST = (1 << 31) - 1


class Lengths:
    """Statistics of lengths in a histogram of fixed size: exact below 1,024, within 0.2 % above."""

    def __init__(self) -> None:
        self.count = self.total = self.longest = 0
        self.shortest = _LONGEST
        self._bins = array("Q", [0]) * (_bin_of(_LONGEST) + 1)

    def add(self, length: int) -> None:
        self.count += 1
        self.total += length
        if length < self.shortest:
            self.shortest = length
        if length > self.longest:
            self.longest = length
        self._bins[_bin_of(min(length, _LONGEST))] += 1

    def quantile(self, share: float) -> int:
        """The least length that at least this share of the lengths do not exceed."""
        passed = 0
        for index, count in enumerate(self._bins):
            passed += count
            if count and passed >= share * self.count:
                return max(self.shortest, _least_of(index))
        return 0

    def to_json(self) -> dict[str, float | int]:
        if not self.count:
            return {}
        return {
            "min": self.shortest,
            "mean": round(self.total / self.count, 2),
            "median": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "max": self.longest,
        }


def _bin_of(length: int) -> int:
    """Each doubling above 1,024 has 512 bins."""
    if length < _EXACT:
        return length
    shift = length.bit_length() - _EXACT.bit_length() + 1
    return _EXACT + (shift - 1) * 512 + (length >> shift) - 512


def _least_of(index: int) -> int:
    if index < _EXACT:
        return index
    shift, within = divmod(index - _EXACT, 512)
    return (within + 512) << (shift + 1)


@dataclass(frozen=True)
class Limits:
    """What a row may be, and how many may not be. Both ``max_bad_share`` and ``max_bad_rows`` (if given) must hold."""

    max_characters: int = 1000  # of either side
    max_bad_share: float = 0.01  # of all rows
    max_bad_rows: int | None = None
    options: bool = False  # they were options of a command, and errors spell them so

    def __post_init__(self) -> None:
        if self.max_characters < 1:
            raise UserError(f"{self.spelled('max_characters')}: found {self.max_characters}; expected at least 1")
        if not 0 <= self.max_bad_share <= 1:
            raise UserError(
                f"{self.spelled('max_bad_share')}: found {self.max_bad_share}; expected a share from 0 to 1"
            )
        if self.max_bad_rows is not None and self.max_bad_rows < 0:
            raise UserError(f"max_bad_rows: found {self.max_bad_rows}; expected 0 or more")

    def spelled(self, name: str) -> str:
        """What whoever set this limit calls it."""
        return f"--{name.replace('_', '-')}" if self.options else name


@dataclass
class Report:
    """What was found. Lengths, ``duplicates`` (seen before) and ``identical`` (source is target) are of kept pairs.

    Duplicates are kept: to say a thing twice may be what the data means.
    """

    rows: int = 0
    pairs: int = 0
    left_out: Counter[str] = field(default_factory=Counter)  # kind of problem -> rows
    places: list[str] = field(default_factory=list)  # the first of them, as file:line: problem
    duplicates: int = 0
    identical: int = 0
    source_characters: Lengths = field(default_factory=Lengths)
    target_characters: Lengths = field(default_factory=Lengths)
    input: Any = None  # what read the items (`sightline.tasks.task.Input`): it knows what they are called

    @property
    def bad(self) -> int:
        return self.left_out.total()

    def add(self, x: Any, y: Any) -> None:
        """Count a pair that is kept."""
        self.source_characters.add(len(x))
        self.target_characters.add(len(y))
        self.identical += x == y

    def leave_out(self, kind: str, place: str, most: int) -> None:
        """Count a row that is left out; the first ``most`` are named. All that a damaged shard lost has one place."""
        self.left_out[kind] += 1
        if len(self.places) < most and (not self.places or self.places[-1] != place):
            self.places.append(place)

    def repeats(self, rows: int, different: int, items: int) -> None:
        """Note how many of the rows were there before, and how many items there are."""
        self.duplicates = rows - different

    def check(self, source: Any) -> None:
        """Refuse data from which nothing can be learnt; called when all rows have been read."""

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "pairs": self.pairs,
            "left_out": dict(self.left_out.most_common()),
            "places": list(self.places),
            "duplicates": self.duplicates,
            "identical": self.identical,
            "source_characters": self.source_characters.to_json(),
            "target_characters": self.target_characters.to_json(),
        }

    def lines(self) -> list[str]:
        """A summary to read in a terminal."""
        lines = [f"{self.pairs:,} pairs of {self.rows:,} rows"]
        for side, lengths in (("source", self.source_characters), ("target", self.target_characters)):
            if found := lengths.to_json():
                lines.append(f"{side} characters: " + ", ".join(f"{name} {value:,}" for name, value in found.items()))
        if self.duplicates:
            lines.append(f"{self.duplicates:,} pairs were there before (kept)")
        if self.identical:
            lines.append(f"{self.identical:,} pairs have the same source and target (kept)")
        return lines + self.left_out_lines()

    def left_out_lines(self) -> list[str]:
        """What was left out and why; nothing where nothing was."""
        if not self.bad:
            return []
        reasons = ", ".join(f"{kind} {count:,}" for kind, count in self.left_out.most_common())
        lines = [f"{self.bad:,} rows left out: {reasons}", *(f"  {place}" for place in self.places)]
        if self.bad > len(self.places):
            lines.append(f"  and {self.bad - len(self.places):,} more")
        return lines


@dataclass
class RowReport(Report):
    """What was found of rows of any kind: only how many they are."""

    def add(self, x: Any, y: Any) -> None:
        pass

    def to_json(self) -> dict[str, Any]:
        return {name: one for name, one in super().to_json().items() if not name.endswith(("characters", "identical"))}

    def lines(self) -> list[str]:
        repeated = [f"{self.duplicates:,} rows were there before (kept)"] if self.duplicates else []
        return [f"{self.pairs:,} of {self.rows:,} rows", *repeated, *self.left_out_lines()]


Kept = TypeVar("Kept")
SomeReport = TypeVar("SomeReport", bound=Report)


class Checked(Iterator[Kept], Generic[Kept, SomeReport]):
    """The good rows of a file, once. ``report`` fills on the way and is whole at the end.

    Raises a `UserError` as soon as ``max_bad_rows`` is passed, and at the end if ``max_bad_share`` is or nothing is
    left: the share of a stream is known at its end only.
    """

    expected = "pairs of sentences"
    _kept: Iterator[Kept]

    def __init__(self, report: SomeReport, limits: Limits, places: int = 20) -> None:
        self.report, self.limits = report, limits
        self._places = places

    def __next__(self) -> Kept:
        return next(self._kept)

    def _leave_out(self, file: str, line: int, problem: str) -> None:
        # Where a folder says it there is no line, and the file may be what the problem is about: named once.
        place = f"{file}:{line}: {problem}" if line else f"{file}: {problem.replace(f'{file}: ', '', 1)}"
        self.report.leave_out(problem.partition(":")[0], place, self._places)
        if self.limits.max_bad_rows is not None and self.report.bad > self.limits.max_bad_rows:
            raise self._too_many()

    def _too_many(self) -> UserError:
        report, limits = self.report, self.limits
        if not report.rows:
            return UserError(f"there are no rows; expected {self.expected}")
        first = "; ".join(report.places[:3]) + ("; and so on" if report.bad > 3 else "")
        bad = f"{report.bad:,} of {report.rows:,} rows are bad ({first})"
        if limits.max_bad_rows is not None and report.bad > limits.max_bad_rows:
            bad = f"{report.bad:,} of the first {report.rows:,} rows are bad ({first})"
            advice = f"more than max_bad_rows = {limits.max_bad_rows:,}; mend them, or raise max_bad_rows"
        elif not report.pairs:
            advice = "so that none is left; mend them"
        else:
            share, name = report.bad / report.rows, limits.spelled("max_bad_share")
            advice = f"{share:.2%}, more than {name} = {limits.max_bad_share:g}; mend them, or raise {name}"
        if report.left_out.most_common(1)[0][0] == TOO_LONG:
            name = limits.spelled("max_characters")
            advice += f", or raise {name} (now {limits.max_characters:,}), because most are too long"
        return UserError(f"{bad}, {advice}")


class CheckedExamples(Checked[Kept, SomeReport]):
    """The good rows of a table. ``read`` makes an example of a row's values, or raises a `ValueError` that says what is
    wrong; the report counts each with its ``add``. Whether too many are bad is known at the end."""

    def __init__(
        self,
        rows: "Iterable[Cells]",
        read: Callable[[tuple[Any, ...]], Kept],
        report: SomeReport,
        limits: Limits,
        expected: str,
        places: int = 20,
    ) -> None:
        super().__init__(report, limits, places)
        self.expected = expected
        self._kept = self._check(rows, read)

    def _check(self, rows: "Iterable[Cells]", read: Callable[[tuple[Any, ...]], Kept]) -> Iterator[Kept]:
        report = self.report
        for values, file, line, problem in rows:
            report.rows += 1
            if problem is None:
                try:
                    example = read(values)
                except ValueError as error:
                    problem = str(error)
            if problem is not None:
                self._leave_out(file, line, problem)
                continue
            report.pairs += 1
            report.add(*example)  # type: ignore[misc]
            yield example
        if not report.pairs or report.bad > self.limits.max_bad_share * report.rows:
            raise self._too_many()


def pair_hash(source: str, target: str) -> int:
    """What pairs that are the same have in common. NUL stands in no good row."""
    return hash_of(f"{source}\0{target}")


class CheckedPairs(Checked[tuple[str, str], Report]):
    """The good pairs of some rows. Without ``duplicates`` it is not counted how many were there before."""

    def __init__(
        self, rows: Iterable[Row], limits: Limits | None = None, *, places: int = 20, duplicates: bool = True
    ) -> None:
        super().__init__(Report(), limits or Limits(), places)
        self._duplicates = duplicates
        self._kept = self._check(rows)

    def _check(self, rows: Iterable[Row]) -> Iterator[tuple[str, str]]:
        report, seen = self.report, Distinct()
        for row in rows:
            report.rows += 1
            problem = row.problem or self._problem(row)
            if problem is not None:
                self._leave_out(row.file, row.line, problem)
                continue
            source, target = row.source, row.target
            report.pairs += 1
            report.source_characters.add(len(source))
            report.target_characters.add(len(target))
            report.identical += source == target
            if self._duplicates:
                seen.add(pair_hash(source, target))
            yield source, target
        report.duplicates = seen.count - seen.different()
        if not report.pairs or report.bad > self.limits.max_bad_share * report.rows:
            raise self._too_many()

    def _problem(self, row: Row) -> str | None:
        for side, text in (("source", row.source), ("target", row.target)):
            if not text.strip():
                return f"{EMPTY_SIDE}: found no text in the {side}, expected a sentence"
            if len(text) > self.limits.max_characters:
                most = self.limits.max_characters
                return f"{TOO_LONG}: found {len(text):,} characters in the {side}, expected at most {most:,}"
        return None
