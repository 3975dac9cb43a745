"""Made data (`sightline.synthetic.made`) as the rows of a source."""

from collections.abc import Iterator
from dataclasses import replace

from sightline.data.columns import TableRow
from sightline.data.source import Source
from sightline.synthetic.made import OPTIONS, PREFIX, MadeData

SCORED_ROWS = 500  # unless another number is given


def made_of(source: Source) -> MadeData:
    """The made data that a source names, with the options beside it. Where it is to be scored (``scored``), others are
    drawn than those of training data, by any seed."""
    given = {name: source.options.get(name) for name in OPTIONS}
    if source.options.get("scored"):
        made = replace(MadeData.read(str(source.data)), count=SCORED_ROWS, seed=1, scored=True)
        return made.changed(str(source.data), given)
    return MadeData.read(str(source.data), **given)


def made_rows(source: Source) -> Iterator[TableRow]:
    """The rows of made data."""
    made = made_of(source)
    return (TableRow(row, f"{PREFIX}{made.name}", number) for number, row in enumerate(made.rows(), start=1))
