"""A record of attention: plain data that a viewer, a file or another program can use without any model.

Rows are queries (one attention row each), columns are what they attend to. This module needs NumPy only.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Tokens:
    """Words, subwords or characters, in order.

    ``words``, where known, is the number of each token's word, counted from 0 without a gap: tokens of one word have
    the same number. ``special`` are the places of tokens that are not in the text, such as the end. ``name`` is what
    one of them is called beside a map, such as "step"; it may be empty.
    """

    texts: tuple[str, ...]
    words: tuple[int, ...] | None = None
    special: tuple[int, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if self.words is not None and len(self.words) != len(self.texts):
            raise ValueError(f"words has {len(self.words)} entries; expected {len(self.texts)}, one for each token")
        if any(not 0 <= place < len(self.texts) for place in self.special):
            raise ValueError(f"special is {self.special}; there are {len(self.texts)} tokens")

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Grid:
    """Places in an image or a grid, row by row."""

    height: int
    width: int

    def __len__(self) -> int:
        return self.height * self.width


@dataclass(frozen=True)
class Frames:
    """Frames of sound, each ``seconds`` long."""

    count: int
    seconds: float

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Slots:
    """Slots of a memory, or positions without further information.

    ``name`` is what one of them is called beside a map, such as "slot": then they are counted from 1. It may be empty.
    """

    count: int
    name: str = ""

    def __len__(self) -> int:
        return self.count


@dataclass(frozen=True)
class Cells:
    """Cells of a table, column by column."""

    columns: tuple[str, ...]
    rows: int

    def __len__(self) -> int:
        return len(self.columns) * self.rows


Axis = Tokens | Grid | Frames | Slots | Cells


def called(axis: Axis, otherwise: str) -> str:
    """What one place of an axis is called: its own name, where it has one."""
    return getattr(axis, "name", "") or otherwise


_AXES: dict[str, type[Axis]] = {kind.__name__: kind for kind in (Tokens, Grid, Frames, Slots, Cells)}


@dataclass(frozen=True)
class TopK:
    """The ``k`` largest weights of each row and their columns. The rest is not kept."""

    places: np.ndarray  # rows, k: int32, -1 where a row has fewer
    weights: np.ndarray  # rows, k: float32
    columns: int

    def __post_init__(self) -> None:
        if self.places.shape != self.weights.shape or self.places.ndim != 2:
            raise ValueError(
                f"places has shape {self.places.shape} and weights {self.weights.shape}; both are rows × k"
            )
        if self.places.size and not -1 <= self.places.min() <= self.places.max() < self.columns:
            raise ValueError(
                f"places lie between {self.places.min()} and {self.places.max()}; there are {self.columns}"
            )

    @classmethod
    def of(cls, weights: np.ndarray, k: int) -> "TopK":
        """The largest of a whole matrix."""
        places = np.argsort(-weights, axis=1, kind="stable")[:, :k].astype(np.int32)
        return cls(places, np.take_along_axis(weights, places, axis=1), weights.shape[1])

    def dense(self) -> np.ndarray:
        """Rows × columns with zeros for weights that were not kept. It may be large."""
        full = np.zeros((len(self.places), self.columns), dtype=self.weights.dtype)
        kept = self.places >= 0
        full[np.nonzero(kept)[0], self.places[kept]] = self.weights[kept]
        return full


@dataclass(frozen=True, eq=False)
class Record:
    """The attention of one head on one example."""

    name: str
    layer: int
    head: int
    rows: Axis
    columns: Axis
    weights: np.ndarray | TopK
    scores: np.ndarray | None = None

    def __post_init__(self) -> None:
        shape = (len(self.rows), len(self.columns))
        kept = self.weights
        own = (len(kept.places), kept.columns) if isinstance(kept, TopK) else kept.shape
        if own != shape:
            raise ValueError(f"{self.name}: weights has shape {own}; the axes have {shape[0]} rows, {shape[1]} columns")
        if self.scores is not None and self.scores.shape != shape:
            raise ValueError(f"{self.name}: scores has shape {self.scores.shape}; expected {shape}")

    def matrix(self) -> np.ndarray:
        """Rows × columns."""
        return self.weights.dense() if isinstance(self.weights, TopK) else self.weights

    def to_json(self) -> dict[str, object]:
        """A dictionary that `json` can write. JSON has no NaN or infinity: a score of −inf (masked) becomes None."""
        data: dict[str, object] = {"name": self.name, "layer": self.layer, "head": self.head}
        for side in ("rows", "columns"):
            axis = getattr(self, side)
            own = {field: value for field, value in asdict(axis).items() if field != "name" or value}
            data[side] = {"kind": type(axis).__name__, **own}
        if isinstance(self.weights, TopK):
            data["weights"] = {
                "places": self.weights.places.tolist(),
                "weights": _finite(self.weights.weights),
                "columns": self.weights.columns,
            }
        else:
            data["weights"] = _finite(self.weights)
        if self.scores is not None:
            data["scores"] = _finite(self.scores)
        return data

    @classmethod
    def from_json(cls, record: Mapping[str, object]) -> "Record":
        data: Mapping[str, Any] = record
        rows, columns = _axis(data["rows"]), _axis(data["columns"])
        weights: np.ndarray | TopK
        if isinstance(data["weights"], dict):
            top = data["weights"]
            places = np.array(top["places"], dtype=np.int32).reshape(len(rows), -1)
            weights = TopK(places, _array(top["weights"], places.shape, np.nan), top["columns"])
        else:
            weights = _array(data["weights"], (len(rows), len(columns)), np.nan)
        scores = None
        if data.get("scores") is not None:
            scores = _array(data["scores"], (len(rows), len(columns)), -np.inf)
        return cls(data["name"], data["layer"], data["head"], rows, columns, weights, scores)


def _finite(values: np.ndarray) -> list[list[float | None]]:
    return [[x if math.isfinite(x) else None for x in row] for row in values.tolist()]


def _array(rows: list[list[float | None]], shape: tuple[int, ...], missing: float) -> np.ndarray:
    flat = [missing if x is None else x for row in rows for x in row]
    return np.array(flat, dtype=np.float32).reshape(shape)  # also where there are no rows


def _axis(data: dict[str, Any]) -> Axis:
    kind = _AXES[data["kind"]]
    values = {field.name: data[field.name] for field in fields(kind) if field.name in data}
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    return kind(**given)
