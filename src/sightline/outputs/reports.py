"""What several outputs share: JSON schemas of the server's answers, lines of input, tables of evaluations."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from sightline.errors import UserError
from sightline.metrics import OfClass
from sightline.tasks.evaluate import Table
from sightline.training.folder import RunFolder

TEXT: dict[str, Any] = {"type": "string"}
COUNT: dict[str, Any] = {"type": "integer"}
PLACE: dict[str, Any] = {"type": ["integer", "null"]}
NUMBER: dict[str, Any] = {"type": ["number", "null"]}  # null is what JSON has for a number that is not finite


def listed(items: dict[str, Any], description: str = "") -> dict[str, Any]:
    """A list of such."""
    return {"type": "array", "items": items, **({"description": description} if description else {})}


def structure(title: str, description: str, **fields: dict[str, Any]) -> dict[str, Any]:
    """An object with these fields."""
    names = list(fields)
    return {"title": title, "description": description, "type": "object", "properties": fields, "required": names}


def object_of(line: str, number: int) -> dict[str, Any]:
    """An object in a line of JSON."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"line {number:,} is not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UserError(f"line {number:,}: expected an object of JSON with named fields")
    return fields


def fields_of(line: str, number: int, names: Sequence[Sequence[str]]) -> list[Any]:
    """One field of a line of JSON by each list of names."""
    data = object_of(line, number)
    chosen = [name for some in names for name in [one for one in some if one in data][:1]]
    if len(chosen) < len(names):
        there, expected = ", ".join(map(repr, data)) or "none", ", ".join(repr(some[0]) for some in names)
        raise UserError(f"line {number:,}: found the fields {there}; expected {expected}")
    return [data[name] for name in chosen]


def read_record(kind: Any, folder: Path, name: str) -> Any:
    """A dataclass from a JSON file of a run folder of unknown origin; its ``__post_init__`` checks the fields."""
    data = RunFolder(folder).read_json(name)
    try:
        known = {one.name for one in fields(kind)}
        given = {field: value for field, value in data.items() if field in known}
        return kind(**{field: tuple(value) if isinstance(value, list) else value for field, value in given.items()})
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(f"{folder / name} is damaged: {error}") from None


def class_table(rows: Sequence[OfClass], first: str, there: str) -> Table:
    """Precision and recall of each class; ``there`` is the title of how often each label is right."""

    def cells(one: OfClass) -> tuple[str, ...]:
        shares = ("–" if share is None else f"{share:.1f}" for share in (one.precision, one.recall, one.f1))
        return (one.name, *shares, f"{one.support:,}", f"{one.said:,}")

    return Table((first, "precision", "recall", "F1", there, "given"), tuple(map(cells, rows)))


def listed_counts(counts: Mapping[str, int]) -> str:
    """Labels with how often each occurs, the first ten of many."""
    more = f" and {len(counts) - 10:,} more" if len(counts) > 10 else ""
    return ", ".join(f"{name!r} ({count:,})" for name, count in islice(counts.items(), 10)) + more
