"""Inputs of made data by its name, for predicting and viewing: drawn block by block, without their targets."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from sightline.data.made_names import names_with, read_name
from sightline.data.source import Source
from sightline.errors import UserError
from sightline.synthetic.made import PREFIX
from sightline.tasks.prepare import table_of
from sightline.tasks.task import BadValueError

if TYPE_CHECKING:
    from sightline.tasks.run import Run


def made_items(run: "Run", name: str, count: int | None = None) -> Iterator[list[Any]]:
    """Blocks of the inputs that `evaluate` scores by this name; ``count`` where the name does not say how many.

    Raises a `UserError` where the run cannot read them.
    """
    made, own = read_name(name), run.task.made
    if made.inputs != own:
        reads = f"it reads {', '.join(names_with(own))}" if own else "no made data is for such a run"
        raise UserError(f"{run.name}, a run of {run.task.name}, does not read {name}; {reads}")
    columns = run.variant.columns or run.task.columns
    given = {**run.output.source_options(), "scored": True, "count": made.count or count}
    source = Source.of(name, run.output.columns(), **given)
    rows, names = table_of(source, run.task, columns), [one.name for one in columns]
    step, is_first = run.input.at_once, True
    while some := list(islice(rows, step)):
        values = [row.values for row in run.input.stage_scored(some)]
        items = [run.input.read(dict(zip(names, one, strict=False))) for one in values]
        if is_first:
            _check(run, items[0], name)
        is_first = False
        yield items


def _check(run: "Run", item: Any, name: str) -> None:
    """Whether a run can read an item: the others are as this one."""
    (parts,) = run.input.encode([item])
    wrong = next((one for one in parts if isinstance(one, BadValueError)), None)
    if wrong is not None:
        trained = getattr(run.config, "made", "")
        hint = f"; {run.name} was trained on {PREFIX}{trained}" if trained else ""
        raise UserError(f"{name}: {wrong}{hint}")
