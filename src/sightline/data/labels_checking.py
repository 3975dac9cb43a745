"""Checking labelled rows on their way, what was found of their labels, and labels that cannot be learnt from."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sightline.data.checking import Report
from sightline.data.labelled import Label, LabelKind
from sightline.data.source import Source
from sightline.errors import UserError

NAMED = 20  # labels named in a report
MOST_LABELS = 100_000  # different ones; more are texts or numbers
RARE = 0.05  # a label with a smaller share of the rows makes accuracy say little


@dataclass
class LabelReport(Report):
    """What was found: as of pairs (``pairs`` are the rows kept), and of the labels."""

    measured: ClassVar[Mapping[str, str]] = {"characters": "characters", "second_characters": "of the second text"}
    what: ClassVar[str] = "texts"  # that have the labels, unless the input says something else
    kind: LabelKind = "one"
    labels: Counter[str] = field(default_factory=Counter)
    empty: int = 0
    contradicting: int = 0  # texts that stood before with another label
    without: int = 0  # rows that none of several labels is right for
    least: float = float("inf")
    most: float = float("-inf")
    mean: float = 0.0
    squares: float = 0.0  # of the distances to the mean, summed (Welford's way: large numbers lose nothing)

    @property
    def spread(self) -> float:
        """The standard deviation of numbers."""
        return math.sqrt(self.squares / self.pairs) if self.pairs else 0.0

    @property
    def noun(self) -> str:
        """What has the labels."""
        return self.what if self.input is None else self.input.noun

    def add(self, x: Any, y: Any) -> None:
        """Count an item that is kept, and its label."""
        texts = self.input.texts(x)
        self.measure(*map(len, texts))
        self.empty += bool(texts) and not "".join(texts).strip()
        self.add_label(y)
        if len(self.labels) > MOST_LABELS:
            self.check()

    def repeats(self, rows: int, different: int, items: int) -> None:
        self.duplicates, self.contradicting = rows - different, different - items

    def add_label(self, label: Label) -> None:
        if isinstance(label, float):
            self.least, self.most = min(self.least, label), max(self.most, label)
            before, self.mean = self.mean, self.mean + (label - self.mean) / self.pairs
            self.squares += (label - before) * (label - self.mean)
        elif isinstance(label, str):
            self.labels[label] += 1
        else:
            self.labels.update(label)
            self.without += not label

    def to_json(self) -> dict[str, Any]:
        found = {name: value for name, value in super().to_json().items() if value != {} or name not in self.measured}
        found[self.noun] = found.pop("pairs")
        if "characters" in found:
            found["empty"] = self.empty
        found |= {"contradicting": self.contradicting, "kind": self.kind}
        if self.kind == "number":
            numbers = {"min": self.least, "mean": self.mean, "max": self.most, "deviation": self.spread}
            return found | {"numbers": numbers}
        return found | {"labels": dict(self.labels.most_common())}

    def heading(self) -> str:
        return f"{self.pairs:,} {self.noun} of {self.rows:,} rows"

    def more(self) -> list[str]:
        return self.label_lines() + ([f"{self.empty:,} texts are empty (kept)"] if self.empty else [])

    @property
    def again(self) -> str:  # type: ignore[override]
        return f"{self.noun} were there before with the same label (kept)"

    def behind(self) -> list[str]:
        other = f"{self.contradicting:,} {self.noun} were there before with another label (kept)"
        return [other] if self.contradicting else []

    def label_lines(self) -> list[str]:
        """How the labels are spread."""
        if self.kind == "number":
            return [
                f"numbers: min {self.least:g}, mean {self.mean:.4g}, max {self.most:g}, deviation {self.spread:.4g}"
            ]
        ranked = self.labels.most_common()
        lines = [shares(self.labels, self.pairs)]
        if self.without:
            lines.append(f"{self.without:,} {self.noun} have none of the labels")
        single = [name for name, count in ranked if count == 1]
        if single:
            named = ", ".join(map(repr, single[:NAMED])) + (" ..." if len(single) > NAMED else "")
            lines.append(f"with one example each, which training takes: {named}; no score says how well they are known")
        if self.kind == "one" and len(ranked) > 1 and ranked[-1][1] < RARE * self.pairs / max(1, len(ranked) / 2):
            lines.append(
                f"the labels are skewed: always answering {ranked[0][0]!r} is right in "
                f"{ranked[0][1] / self.pairs:.1%} of the rows, so judge by macro-F1 and the table of labels"
            )
        return lines

    def check(self, source: Source | str | None = None) -> None:
        """Refuse labels from which nothing can be learnt."""
        columns = getattr(source, "columns", None)
        column = f"the column {columns[-1]!r}" if columns else source if isinstance(source, str) else "the label column"
        if self.kind == "number":
            if self.least == self.most:
                raise UserError(f"all {self.pairs:,} rows have the number {self.least:g}; there is nothing to learn")
            return
        different = len(self.labels)
        if different > 2 and 2 * different > self.pairs:
            raise UserError(self._too_many_labels(column))
        if self.kind == "one" and different == 1:
            (only,) = self.labels
            raise UserError(
                f"all {self.pairs:,} rows have the label {only!r}; expected at least two labels to tell apart"
            )
        if not different:
            raise UserError(f"none of the {self.pairs:,} rows has a label; expected labels in {column}")

    def _too_many_labels(self, column: str) -> str:
        examples = ", ".join(repr(name if len(name) <= 30 else name[:29] + "…") for name in list(self.labels)[:3])
        found = f"{column} has {len(self.labels):,} different labels in {self.pairs:,} rows ({examples})"
        if all(map(_is_number, list(self.labels)[:1000])):
            return f"{found}, as numbers have: learn them with --labels number, or name the columns with --columns"
        first = self.noun.removesuffix("s").upper()
        return f"{found}, as texts have: is it the wrong column? Name the columns with --columns {first} LABEL"


def shares(labels: Counter[str], total: int) -> str:
    """How many there are of each label, in a line."""
    ranked = labels.most_common()
    named = ", ".join(f"{name} {count:,} ({count / max(total, 1):.1%})" for name, count in ranked[:NAMED])
    more = f" and {len(ranked) - NAMED:,} more, down to {ranked[-1][1]:,}" if len(ranked) > NAMED else ""
    return f"{len(ranked):,} labels: {named}{more}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
