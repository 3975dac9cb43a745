"""An explanation: everything to show about one input, as plain data.

A task makes it (`run.explain(x)`), `sightline.view` draws it and `sightline.explain.evidence` measures it. Needs NumPy
only; survives a round trip through JSON.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from sightline.asked import AskedTable
from sightline.files import write_text
from sightline.picture import Labelling, Picture
from sightline.recording import Recording
from sightline.records import Record


@dataclass(frozen=True)
class Choice:
    """A possible output, and its probability."""

    text: str
    probability: float


@dataclass(frozen=True)
class Copied:
    """Whether a token was written or copied from the source.

    ``gate`` is p, the probability that the model gives to writing; ``share`` how much of the token's probability comes
    from copying; ``place`` the column that it is copied from most, None where the source does not have it.
    """

    gate: float
    share: float
    place: int | None = None

    @property
    def from_source(self) -> bool:
        """Whether it was copied rather than written: copying gives at least half of its probability."""
        return self.share >= 0.5


@dataclass(frozen=True)
class OutputStep:
    """One row: the written token, its probability, and the likeliest choices there, best first; and where a model can
    copy, whether it did."""

    written: str
    probability: float
    likeliest: tuple[Choice, ...] = ()
    copied: Copied | None = None


Unit = Literal["weight", "sum of weights", "nats", "squared deviations", "share"]


@dataclass(frozen=True)
class Stack:
    """The layers of one kind of attention, first layer first: those of an encoder, or those from target to source.

    ``kind``: ``cross``-attention, ``self``-attention, ``causal`` self-attention, or a ``pool`` of a sequence into one
    row. ``layers`` are what the layers are called, where they have names and not only numbers. ``unit`` is what a
    number of its maps is: a weight is at most 1, a sum of weights may be more; costs have units of their own.
    """

    title: str
    kind: Literal["cross", "self", "causal", "pool"]
    names: tuple[str, ...]
    layers: tuple[str, ...] = ()
    unit: Unit = "weight"

    def layer(self, name: str) -> str:
        """What the layer of this attention is called; empty where there is only one."""
        place, count = self.names.index(name), len(self.names)
        numbered = f"layer {place + 1} of {count}" if count > 1 else ""
        return self.layers[place] if self.layers else numbered


@dataclass(frozen=True, eq=False)
class Calculation:
    """The vectors of one record: ``values``, ``queries`` and weighted sums (``contexts``).

    Of ``size`` numbers in a value only the first few are kept, the same ones in values and contexts, so that
    weights · values = contexts can be checked by hand.
    """

    name: str
    head: int
    values: np.ndarray  # columns, n
    queries: np.ndarray  # rows, m
    contexts: np.ndarray  # rows, n
    size: int


@dataclass(frozen=True)
class Finding:
    """One number about a map, a reference for it, and one plain sentence."""

    key: str
    title: str
    value: float | None
    reference: float | None
    sentence: str


@dataclass(frozen=True)
class HeadCost:
    """The cost of ablating this head: for a decoder, how much the loss of a token grows."""

    name: str
    head: int
    cost: float


@dataclass(frozen=True)
class Belief:
    """Evidence about a map: findings, never a single score.

    ``about`` names the map, ``rows`` is how many of its rows were measured.
    """

    about: str
    rows: int
    findings: tuple[Finding, ...]
    heads: tuple[HeadCost, ...] = ()


@dataclass(frozen=True)
class Span:
    """A part of a text, from character ``start`` up to ``end``, and its weight.

    Where sentences have weights too, a word has the number of its ``sentence`` and its weight ``in_sentence``; its
    ``weight`` is that times the sentence's. ``part`` is the number of its text in a pair; ``marked``: it is part of the
    answer.
    """

    start: int
    end: int
    text: str
    weight: float
    in_sentence: float | None = None
    sentence: int | None = None
    part: int | None = None
    marked: bool | None = None


@dataclass(frozen=True)
class Highlights:
    """The weights of the words of a text (of two, for a pair) for a predicted label, or for an answer in the text.

    ``probabilities`` are those of the labels, likeliest first; ``probability`` is that of ``label``, which the map is
    about; a number has neither. Words are in the order of the text; of very many ``read`` words, only those with the
    largest weights are kept. ``sentences`` are given if the model weighs them. ``unit`` contribution: weights are what
    words add to the score of the label, below 0 where they speak against it.
    """

    label: str
    probability: float | None
    probabilities: tuple[Choice, ...]
    texts: tuple[str, ...]
    words: tuple[Span, ...]
    sentences: tuple[Span, ...] = ()
    read: int = 0
    unit: Literal["weight", "contribution"] = "weight"

    def to_json(self) -> dict[str, object]:
        data = {name: getattr(self, name) for name in ("label", "probability", "read")}
        data |= {} if self.unit == "weight" else {"unit": self.unit}
        data["probabilities"] = {one.text: one.probability for one in self.probabilities}
        data["texts"] = list(self.texts)
        for name in ("words", "sentences"):
            spans = [asdict(one) for one in getattr(self, name)]
            data[name] = [{key: value for key, value in one.items() if value is not None} for one in spans]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Highlights":
        fields: Any = data
        return cls(
            fields["label"],
            fields["probability"],
            tuple(Choice(text, probability) for text, probability in fields["probabilities"].items()),
            tuple(fields["texts"]),
            words=tuple(Span(**one) for one in fields["words"]),
            sentences=tuple(Span(**one) for one in fields["sentences"]),
            read=fields["read"],
            unit=fields.get("unit", "weight"),
        )


@dataclass(frozen=True, eq=False)
class Explanation:
    """One input, the model's output, and its attention.

    ``shift`` is by how many rows the maps are moved down when they are shown, because this model attends to a word
    before or after it writes that word. ``highlights`` are those of a classifier. ``image`` is the image of records
    whose columns are a `Grid`; ``cells`` are labels for the cells of a grid over it. ``recording`` is the sound or clip
    of records whose columns are `Frames`. ``table`` is a table with the program that answered a question about it.
    """

    title: str
    task: str
    input: str
    output: str
    records: tuple[Record, ...]
    stacks: tuple[Stack, ...]
    steps: tuple[OutputStep, ...] = ()
    calculations: tuple[Calculation, ...] = ()
    alternatives: tuple[Choice, ...] = ()
    belief: Belief | None = None
    shift: int = 0
    notes: tuple[str, ...] = ()
    highlights: Highlights | None = None
    image: Picture | None = None
    cells: Labelling | None = None
    recording: Recording | None = None
    table: AskedTable | None = None

    def __post_init__(self) -> None:
        known = {record.name for record in self.records}
        missing = [name for stack in self.stacks for name in stack.names if name not in known]
        if missing:
            raise ValueError(f"no record is named {missing[0]!r}; there is {', '.join(sorted(known)) or 'none'}")

    def of(self, name: str) -> list[Record]:
        """The records of one attention, head by head."""
        return [record for record in self.records if record.name == name]

    def save(self, path: str | Path, **options: object) -> Path:
        """Write it in the format of the ending: .png, .svg, .pdf or .gif (with the options of
        `sightline.view.drawing.draw`), .html for the page, .json for the plain data."""
        path = Path(path)
        if path.suffix.lower() == ".html":
            from sightline.view.page import write_page

            return write_page([self], path)
        if path.suffix.lower() == ".json":
            return write_text(path, json.dumps(self.to_json(), ensure_ascii=False, allow_nan=False))
        from sightline.view.drawing import draw

        return cast("Callable[..., Path]", draw)(self, path, **options)

    def _repr_html_(self) -> str:
        """The page in a notebook."""
        from sightline.view.page import fragment

        return fragment(self)

    def to_json(self) -> dict[str, object]:
        """A dictionary that `json` can write."""
        data = {name: getattr(self, name) for name in ("title", "task", "input", "output", "shift", "notes")}
        data["records"] = [record.to_json() for record in self.records]
        for name in ("stacks", "steps", "alternatives"):
            data[name] = [asdict(one) for one in getattr(self, name)]
        data["calculations"] = [_calculation_to_json(one) for one in self.calculations]
        data["belief"] = None if self.belief is None else asdict(self.belief)
        for name in ("highlights", "image", "cells", "recording", "table"):
            if getattr(self, name) is not None:
                data[name] = getattr(self, name).to_json()
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Explanation":
        fields: Any = data
        return cls(
            **{name: fields[name] for name in ("title", "task", "input", "output", "shift")},
            notes=tuple(fields["notes"]),
            records=tuple(map(Record.from_json, fields["records"])),
            stacks=tuple(
                Stack(
                    one["title"],
                    one["kind"],
                    tuple(one["names"]),
                    tuple(one.get("layers", ())),
                    one.get("unit", "weight"),
                )
                for one in fields["stacks"]
            ),
            steps=tuple(
                OutputStep(one["written"], one["probability"], _choices(one["likeliest"]), _copied(one.get("copied")))
                for one in fields["steps"]
            ),
            alternatives=_choices(fields["alternatives"]),
            calculations=tuple(map(_calculation, fields["calculations"])),
            belief=None if fields["belief"] is None else _belief(fields["belief"]),
            highlights=Highlights.from_json(fields["highlights"]) if fields.get("highlights") else None,
            image=Picture.from_json(fields["image"]) if fields.get("image") else None,
            cells=Labelling.from_json(fields["cells"]) if fields.get("cells") else None,
            recording=Recording.from_json(fields["recording"]) if fields.get("recording") else None,
            table=AskedTable.from_json(fields["table"]) if fields.get("table") else None,
        )


def _copied(data: Mapping[str, Any] | None) -> Copied | None:
    return None if data is None else Copied(data["gate"], data["share"], data["place"])


def _choices(data: Any) -> tuple[Choice, ...]:
    return tuple(Choice(**one) for one in data)


def _calculation_to_json(one: Calculation) -> dict[str, Any]:
    vectors = {side: getattr(one, side).tolist() for side in ("values", "queries", "contexts")}
    return {"name": one.name, "head": one.head, "size": one.size, **vectors}


def _calculation(data: Mapping[str, Any]) -> Calculation:
    vectors = {side: np.array(data[side], dtype=np.float32) for side in ("values", "queries", "contexts")}
    return Calculation(data["name"], data["head"], size=data["size"], **vectors)


def _belief(data: Mapping[str, Any]) -> Belief:
    findings = tuple(Finding(**one) for one in data["findings"])
    return Belief(data["about"], data["rows"], findings, tuple(HeadCost(**one) for one in data["heads"]))
