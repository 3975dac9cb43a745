"""The labels of a run: their names in order, or the numbers they stand for, and how their files write them."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np

from sightline.data.labelled import Label, LabelKind
from sightline.data.labels_checking import MOST_LABELS, LabelReport
from sightline.errors import UserError
from sightline.training.folder import RunFolder

LABELS = "labels.json"
UNSEEN = -1  # the class of a label that training did not have


@dataclass(frozen=True)
class Labels:
    """What a head's outputs mean.

    ``names`` are the classes in order, ``counts`` how often training had each. A number is learnt as (number − mean) /
    spread. ``pairs``: two texts are read. ``columns`` and ``separator`` are those of the training data.
    """

    kind: LabelKind = "one"
    names: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    pairs: bool = False
    columns: tuple[str, ...] | None = None
    separator: str | None = None
    mean: float = 0.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(LabelKind):
            raise ValueError(f"kind is {self.kind!r}; it is one of {', '.join(get_args(LabelKind))}")
        if self.kind != "number" and not 1 <= len(self.names) <= MOST_LABELS:
            raise ValueError(f"found {len(self.names):,} names of labels")
        if len(set(self.names)) != len(self.names) or not all(isinstance(name, str) and name for name in self.names):
            raise ValueError("a name of a label is empty, there twice, or no text")
        if len(self.counts) != len(self.names) or not all(type(count) is int and count >= 0 for count in self.counts):
            raise ValueError("there is not one count for each label")
        if type(self.pairs) is not bool or not (self.separator is None or isinstance(self.separator, str)):
            raise ValueError(f"pairs is {self.pairs!r} and separator {self.separator!r}")
        columns = self.columns
        if columns is not None and (not columns or not all(isinstance(one, str) and one for one in columns)):
            raise ValueError(f"columns is {columns!r}")
        if not (math.isfinite(self.mean) and math.isfinite(self.spread) and self.spread > 0):
            raise ValueError(f"mean and spread are {self.mean!r} and {self.spread!r}")

    @property
    def classes(self) -> int:
        """How many outputs a head has."""
        return 1 if self.kind == "number" else len(self.names)

    def index(self, name: str) -> int:
        """The class of a label, or `UNSEEN`."""
        return self._places.get(name, UNSEEN)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def ids(self, label: Label) -> list[int]:
        """The classes of a label as a list; those that training did not have are left out. Of a number, none."""
        if isinstance(label, float):
            return []
        names = (label,) if isinstance(label, str) else label
        return [place for name in names if (place := self.index(name)) != UNSEEN]

    def gold(self, labels: Sequence[Label]) -> np.ndarray:
        """What scores are computed against: classes (or `UNSEEN`), rows of zeros and ones, or numbers."""
        if self.kind == "number":
            return np.array(labels, dtype=np.float64)
        if self.kind == "one":
            return np.array([self.index(str(label)) for label in labels], dtype=np.int64)
        found = np.zeros((len(labels), len(self.names)), dtype=np.int64)
        for row, label in enumerate(labels):
            found[row, self.ids(label)] = 1
        return found

    def unseen(self, labels: Sequence[Label]) -> dict[str, int]:
        """Labels that training did not have, and how many rows have them."""
        found: dict[str, int] = {}
        for label in labels:
            for name in () if isinstance(label, float) else (label,) if isinstance(label, str) else label:
                if self.index(name) == UNSEEN:
                    found[name] = found.get(name, 0) + 1
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def save(self, folder: RunFolder) -> None:
        folder.write_json(LABELS, {**asdict(self), "names": list(self.names), "counts": list(self.counts)})

    @classmethod
    def load(cls, path: Path) -> "Labels":
        """Read a run folder's labels, which may be a stranger's."""
        data = RunFolder(path).read_json(LABELS)
        try:
            if not isinstance(data, dict):
                raise ValueError("it holds no fields")
            known = {field.name for field in fields(cls)}
            return cls(**{name: _read(name, value) for name, value in data.items() if name in known})
        except (TypeError, ValueError) as error:
            raise UserError(f"{path / LABELS} is damaged: {error}") from None


def _read(name: str, value: Any) -> Any:
    if name in ("names", "counts", "columns"):
        if not (value is None or isinstance(value, list)):
            raise ValueError(f"{name} is no list")
        return None if value is None else tuple(value)
    return float(value) if name in ("mean", "spread") else value


def labels_of(report: LabelReport, pairs: bool, columns: tuple[str, ...] | None, separator: str | None) -> Labels:
    """The labels that training found; numbers as names come in the order of numbers."""
    given: dict[str, Any] = {"kind": report.kind, "pairs": pairs, "columns": columns, "separator": separator}
    if report.kind == "number":
        if not math.isfinite(report.spread) or not math.isfinite(report.mean):
            raise UserError("the numbers are too far apart for their mean and spread to be computed; scale them")
        return Labels(**given, mean=report.mean, spread=report.spread or 1.0)
    names = sorted(report.labels, key=_order)
    return Labels(**given, names=tuple(names), counts=tuple(report.labels[name] for name in names))


def _order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        return 1, 0.0, name
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)
