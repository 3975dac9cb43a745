"""What answers of the server look like, as JSON schemas: plain data that outputs put together of these."""

import json
from collections.abc import Sequence
from typing import Any

from sightline.errors import UserError
from sightline.metrics import OfClass
from sightline.tasks.evaluate import Evaluation, Table

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


# Lines of input as items: fields of JSON lines.


def object_of(line: str, number: int) -> dict[str, Any]:
    """An object in a line of JSON."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"line {number:,} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"line {number:,}: expected an object of JSON with named fields")
    return found


def fields_of(line: str, number: int, names: Sequence[Sequence[str]]) -> list[Any]:
    """One field of a line of JSON by each list of names."""
    there = object_of(line, number)
    chosen = [name for some in names for name in [one for one in some if one in there][:1]]
    if len(chosen) < len(names):
        expected = ", ".join(repr(some[0]) for some in names)
        raise UserError(
            f"line {number:,}: found the fields {', '.join(map(repr, there)) or 'none'}; expected {expected}"
        )
    return [there[name] for name in chosen]


# Tables that the evaluations of several outputs print.


def class_table(rows: Sequence[OfClass], first: str, there: str) -> Table:
    """Precision and recall of each class; ``there`` is how often each label is right."""
    names = (first, "precision", "recall", "F1", there, "given")
    return Table(names, tuple(_class_row(one) for one in rows))


def _class_row(one: OfClass) -> tuple[str, ...]:
    shares = ("–" if share is None else f"{share:.1f}" for share in (one.precision, one.recall, one.f1))
    return (one.name, *shares, f"{one.support:,}", f"{one.said:,}")


def score_table(evaluation: Evaluation) -> Table:
    """Every score in a row: of all examples, and of those that the run was not trained on."""
    rows = {"all": (evaluation.values, len(evaluation.examples))}
    if evaluation.without is not None and evaluation.seen is not None:
        rows["not in the training data"] = (evaluation.without, int((~evaluation.seen).sum()))
    names = ("", *(name.replace("_", " ") for name in evaluation.values), evaluation.run.task.rows)
    return Table(
        names,
        tuple(
            (name, *(f"{one:.2f}" for one in values.values()), f"{count:,}") for name, (values, count) in rows.items()
        ),
    )
