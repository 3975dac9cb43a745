"""Made questions about made tables (`sightline.synthetic.tables`) as the rows of a source: ``made:tables``.

Options stand behind the name, as in ``made:tables:kinds=max_print+match_count:count=500:rows=5-12:columns=4-6:seed=1``.
"""

from collections.abc import Iterator
from typing import Any

from sightline.data.columns import TableRow
from sightline.data.made import SCORED_ROWS
from sightline.data.source import Source
from sightline.data.table_files import TableCell
from sightline.errors import UserError
from sightline.synthetic.made import COUNT, OPTIONS, PREFIX
from sightline.synthetic.tables import made_questions
from sightline.table import DataTable

NAME = "tables"
READ: dict[str, Any] = {
    "kinds": lambda name, text: tuple(one for one in text.replace(",", "+").split("+") if one),
    "count": OPTIONS["count"],
    "rows": OPTIONS["lengths"],
    "columns": OPTIONS["lengths"],
    "seed": OPTIONS["seed"],
}
TRAINED = 10**6  # is added to the seed of training data: data to score is drawn otherwise, by any seed


def read_options(text: str) -> dict[str, Any]:
    """What stands behind the name of made questions. Raises a `UserError`."""
    name, *parts = text.removeprefix(PREFIX).split(":")
    if name != NAME:
        raise UserError(f"there is no made data {name!r} of questions; there is {PREFIX}{NAME}")
    given: dict[str, Any] = {}
    for part in parts:
        key, _, value = part.partition("=")
        if not value or key not in READ:
            expected = ", ".join(f"{one}=…" for one in READ)
            raise UserError(f"{text}: found {part!r}; expected one of {expected}")
        given[key] = READ[key](key, value)
    return given


def made_question_rows(source: Source) -> Iterator[TableRow]:
    """A question, its table, the answer, the kind and the name of each; the same each time."""
    scored = bool(source.options.get("scored"))
    given = {"count": SCORED_ROWS if scored else COUNT, "seed": 1 if scored else 0, **read_options(str(source.data))}
    if (count := source.options.get("count")) is not None:
        given["count"] = READ["count"]("count", str(count))
    seed = given.pop("seed") + (0 if scored else TRAINED)
    ranges = {key: tuple(value) for key, value in given.items() if key in ("rows", "columns")}
    try:
        questions = made_questions(seed, given["count"], given.get("kinds"), **ranges)
        for number, one in enumerate(questions, start=1):
            table = TableCell(DataTable.of(one.header, one.rows, f"table {number}"))
            values = (one.question, table, list(one.answer), one.kind, str(number))
            yield TableRow(values, f"{PREFIX}{NAME}", number)
    except ValueError as error:
        raise UserError(f"{source.data}: {error}") from None
