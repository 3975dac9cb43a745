"""Lines of input as items: fields of JSON lines."""

import json
from collections.abc import Sequence
from typing import Any

from sightline.errors import UserError


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
