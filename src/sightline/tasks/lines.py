"""Lines of input as items: fields of JSON lines."""

import json
from collections.abc import Sequence
from typing import Any

from sightline.errors import UserError


def fields_of(line: str, number: int, names: Sequence[Sequence[str]]) -> list[Any]:
    """One field of a line of JSON by each list of names."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"line {number:,} is not JSON: {error}") from None
    there = found if isinstance(found, dict) else {}
    chosen = [next((name for name in some if name in there), None) for some in names]
    if None in chosen:
        expected = ", ".join(repr(some[0]) for some in names)
        raise UserError(
            f"line {number:,}: found the fields {', '.join(map(repr, there)) or 'none'}; expected {expected}"
        )
    return [there[name] for name in chosen]
