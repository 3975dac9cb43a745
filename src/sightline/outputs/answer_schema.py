"""What answers of the server look like, as JSON schemas: plain data that outputs put together of these."""

from typing import Any

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
