"""Checking rows as they come: the good ones are passed on, the bad ones are counted, and too many are an error."""

import itertools
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from sightline.data.columns import TableRow
from sightline.data.tables import BAD_UTF8, ENCODING_RULE, NO_FILE, PATH_RULE
from sightline.errors import UserError

TOO_LONG, EMPTY_SIDE = "too long", "empty side"  # kinds of problem
SETTING = re.compile(rf"{TOO_LONG}: .*\((max_\w+)\)$")
PLACES = 20  # bad rows that are named
LABELS_SHARE = 20  # so many times fewer different targets than pairs are labels, it seems


class Lengths(Counter[int]):
    """How often each length is there."""

    @property
    def count(self) -> int:
        return self.total()

    @property
    def sum(self) -> int:
        return sum(length * count for length, count in self.items())

    def quantile(self, share: float) -> int:
        """The least length that at least this share of the lengths do not exceed."""
        least = share * self.count
        passed = itertools.accumulate(count for _, count in sorted(self.items()))
        return next(length for length, count in zip(sorted(self), passed, strict=True) if count >= least)

    def to_json(self) -> dict[str, float | int]:
        if not self:
            return {}
        mean, median, p95 = round(self.sum / self.count, 2), self.quantile(0.5), self.quantile(0.95)
        return {"min": min(self), "mean": mean, "median": median, "p95": p95, "max": max(self)}


@dataclass(frozen=True)
class RowLimits:
    """How long a row may be, and how many may be bad."""

    max_characters: int = 1000  # of either side
    max_bad_share: float = 0.01  # of all rows
    options: bool = False  # they were options of a command, and errors spell them so

    def __post_init__(self) -> None:
        if self.max_characters < 1:
            raise UserError(f"{self.spelled('max_characters')}: found {self.max_characters}; expected at least 1")
        if not 0 <= self.max_bad_share <= 1:
            raise UserError(
                f"{self.spelled('max_bad_share')}: found {self.max_bad_share}; expected a share from 0 to 1"
            )

    def spelled(self, name: str) -> str:
        """The name of a limit where it was set: on the command line or in Python."""
        return f"--{name.replace('_', '-')}" if self.options else name

    def too_many(self, bad: int, rows: int, kept: int) -> str | None:
        """Why so many bad rows are too many, and what to do; None where they are not."""
        if not kept:
            return "so that none is left; mend them"
        name = self.spelled("max_bad_share")
        advice = f"{bad / rows:.2%}, more than {name} = {self.max_bad_share:g}; mend them, or raise {name}"
        return advice if bad > self.max_bad_share * rows else None


def remedies(problems: Iterable[str]) -> list[str]:
    """What to do about problems that most rows have in common: where files are looked for, how text is read."""
    some = list(problems)
    rules = [PATH_RULE] if any(problem.endswith(NO_FILE) for problem in some) else []
    return rules + ([ENCODING_RULE] if any(BAD_UTF8 in problem for problem in some) else [])


@dataclass
class Report:
    """How many rows were kept and left out, and why. Reports of single tasks count more of the rows kept.

    Duplicates are kept: repeated rows may be meant.
    """

    kept: ClassVar[str] = "pairs"  # what JSON calls the number of rows kept
    again: ClassVar[str] = "rows were there before (kept)"
    measured: ClassVar[Mapping[str, str]] = {}  # lengths: their name in JSON -> in a line
    rows: int = 0
    pairs: int = 0  # rows kept
    left_out: Counter[str] = field(default_factory=Counter)  # kind of problem -> rows
    places: list[str] = field(default_factory=list)  # the first of them, as file:line: problem
    duplicates: int = 0
    documents: Any = field(default_factory=lambda: array("Q"))  # of each row kept, where the rows name them, by a hash
    in_validation: int = 0  # rows left out of training, because the validation data has their item or target
    split_by: str = ""  # what the validation rows were drawn by, where that is not single rows
    input: Any = None  # what read the items (`sightline.inputs.base.Input`), with what they are called

    def __post_init__(self) -> None:
        self.lengths = {name: Lengths() for name in self.measured}

    @property
    def bad(self) -> int:
        return self.left_out.total()

    @property
    def unnamed(self) -> int:
        """Bad rows that are not among the places."""
        return self.bad - len(self.places)

    def add(self, x: Any, y: Any) -> None:
        """Count an example that is kept."""

    def measure(self, *lengths: int) -> None:
        """Add to the lengths that are measured, in their order."""
        for of, length in zip(self.lengths.values(), lengths, strict=False):
            of[length] += 1

    def leave_out(self, kind: str, place: str, most: int) -> None:
        """Count a row that is left out; the first ``most`` are named. All that a damaged shard lost has one place."""
        self.left_out[kind] += 1
        if len(self.places) < most and (not self.places or self.places[-1] != place):
            self.places.append(place)

    def repeats(self, rows: int, different: int, items: int) -> None:
        """Note how many of the rows were there before, and how many items there are."""
        self.duplicates = rows - different

    def divided(self, left: int, targets: int | None) -> None:
        """Note how many rows are in no part of the split and, of pairs, how many different targets there are."""
        self.in_validation = left

    def divided_line(self) -> str:
        """Why rows are in no part of the split."""
        return "rows are left out of training, because their item is in the validation data"

    def check(self, source: Any) -> None:
        """Refuse data from which nothing can be learnt; called when all rows have been read."""

    def to_json(self) -> dict[str, Any]:
        left_out = {"left_out": dict(self.left_out.most_common()), "places": list(self.places)}
        lengths = {name: one.to_json() for name, one in self.lengths.items()}
        return {"rows": self.rows, self.kept: self.pairs, **left_out, "duplicates": self.duplicates, **lengths}

    def lines(self) -> list[str]:
        """A summary to read in a terminal."""
        lines = [self.heading()] if self.pairs else []
        for name, shown in self.measured.items():
            if lengths := self.lengths[name].to_json():
                lines.append(f"{shown}: " + ", ".join(f"{key} {value:,}" for key, value in lengths.items()))
        lines += self.more()
        if self.duplicates:
            lines.append(f"{self.duplicates:,} {self.again}")
        if self.in_validation:
            lines.append(f"{self.in_validation:,} {self.divided_line()}")
        return lines + self.behind() + ([self.split_by] if self.split_by else []) + self.left_out_lines()

    def heading(self) -> str:
        """The first line: how many there are."""
        return f"{self.pairs:,} of {self.rows:,} rows"

    def more(self) -> list[str]:
        """Lines between lengths and duplicates."""
        return []

    def behind(self) -> list[str]:
        """Lines behind the duplicates."""
        return []

    def left_out_lines(self) -> list[str]:
        """What was left out and why; nothing where nothing was."""
        if not self.bad:
            return []
        reasons = ", ".join(f"{kind} {count:,}" for kind, count in self.left_out.most_common())
        lines = [f"{self.bad:,} rows left out: {reasons}", *(f"  {place}" for place in self.places)]
        if self.unnamed > 0:
            lines.append(f"  and {self.unnamed:,} more")
        return lines + [f"  {rule}" for rule in remedies(self.places)]


@dataclass
class PairReport(Report):
    """The report on pairs of texts; ``identical`` are those whose source is their target."""

    again: ClassVar[str] = "pairs were there before (kept)"
    measured: ClassVar[Mapping[str, str]] = {
        "source_characters": "source characters",
        "target_characters": "target characters",
    }
    identical: int = 0
    targets: int | None = None  # different ones

    def divided(self, left: int, targets: int | None) -> None:
        self.in_validation, self.targets = left, targets

    def divided_line(self) -> str:
        return "pairs are left out of training, because their target is in the validation data"

    def add(self, x: Any, y: Any) -> None:
        self.measure(len(x), len(y))
        self.identical += x == y

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "identical": self.identical, "target_in_validation": self.in_validation}

    def heading(self) -> str:
        return f"{self.pairs:,} pairs of {self.rows:,} rows"

    def behind(self) -> list[str]:
        lines = [f"{self.identical:,} pairs have the same source and target (kept)"] if self.identical else []
        if self.targets is not None and LABELS_SHARE * self.targets < self.pairs:
            lines.append(
                f"there are only {self.targets:,} different targets: if they are labels, use `sightline train classify`"
            )
        return lines


Kept = TypeVar("Kept")
SomeReport = TypeVar("SomeReport", bound=Report)


@dataclass(frozen=True)
class Checked(Generic[Kept, SomeReport]):
    """The good rows of some data, once. ``report`` fills on the way and is whole at the end.

    ``read`` makes an example of a row's values, or raises a `ValueError` that says what is wrong; the report counts
    each with its ``add``. Raises a `UserError` at the end if too many rows are bad or nothing is left: the share of a
    stream is known at its end only.
    """

    rows: Iterable[TableRow]
    read: Callable[[tuple[Any, ...]], Kept]
    report: SomeReport
    limits: RowLimits
    expected: str

    def __iter__(self) -> Iterator[Kept]:
        report = self.report
        for values, file, line, problem in self.rows:
            report.rows += 1
            if problem is None:
                try:
                    example = self.read(values)
                except ValueError as error:
                    problem = str(error)
            if problem is not None:
                # A row of a folder has no line, and the problem may name the file: it is named once.
                place = f"{file}:{line}: {problem}" if line else f"{file}: {problem.replace(f'{file}: ', '', 1)}"
                report.leave_out(problem.partition(":")[0], place, PLACES)
                continue
            report.pairs += 1
            report.add(*example)  # type: ignore[misc]
            yield example
        if not report.rows:
            raise UserError(f"there are no rows; expected {self.expected}")
        if (advice := self.limits.too_many(report.bad, report.rows, report.pairs)) is None:
            return
        first = "; ".join(report.places[:3]) + ("; and so on" if report.bad > 3 else "")
        if report.left_out.most_common(1)[0][0] == TOO_LONG:
            advice += f", or raise {self._limit(report.places)}, because most are too long"
        advice = "; ".join([advice, *remedies(report.places)])
        raise UserError(f"{report.bad:,} of {report.rows:,} rows are bad ({first}), {advice}")

    def _limit(self, problems: Iterable[str]) -> str:
        """The limit that is to be raised: the setting that a problem names in brackets, or that of texts."""
        named = next((setting[1] for one in problems if (setting := SETTING.search(one))), None)
        if named is not None:
            return f"{named} (--set {named}=N)" if self.limits.options else named
        return f"{self.limits.spelled('max_characters')} (now {self.limits.max_characters:,})"
