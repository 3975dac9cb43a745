"""The options of `Run.explain` that every output takes, and an explanation that any output can give."""

from dataclasses import dataclass
from typing import Any

from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.explain.explanation import Explanation, Stack
from sightline.records import Record, Slots

LIKELIEST = 5  # candidates shown for each step
WHOLE = 1 << 24  # weights of all heads together; above this number only the largest of each row are kept
LARGEST = 64
TITLES = {"pool": "From the output to the input", "self": "Inside the input", "cross": "From the output to the input"}


@dataclass(frozen=True)
class ExplainOptions:
    """The model's own output is explained unless ``output`` is given.

    ``alternatives`` is how many other outputs of the beam to list. ``top`` keeps that many weights of each row; by
    default, all are kept unless the input is long. ``shift`` is the run's own by default. ``measure`` also measures
    whether to believe the map (`sightline.explain.evidence`), which takes many more passes than the map itself.
    """

    output: str | None = None
    beam: int = 5
    alternatives: int = 3
    top: int | None = None
    shift: int | None = None
    measure: bool = True

    def __post_init__(self) -> None:
        if self.top is not None and self.top < 1:
            raise UserError(f"top is {self.top}; it must be at least 1")
        if self.beam < 1 or self.alternatives < 0:
            raise UserError("beam must be at least 1 and alternatives at least 0")


def explain_attention(run: Any, x: Any, options: ExplainOptions) -> Explanation:
    """Every attention map of a model for one item: what any output can show of any model."""
    chosen = run.output.options({})
    parts = run.encode([x])
    with capture(run.model, top=options.top) as trace:
        (raw,) = run.raw([x], parts=parts, options=chosen)
    if not trace.names:
        raise UserError(f"{run.name} has no attention: there is nothing to view")
    axis = run.input.axis(x, parts[0][0])
    records, kinds = list[Record](), dict[str, list[str]]()
    for name in trace.names:
        attention_map = trace[name]
        rows, columns = (
            axis if axis is not None and len(axis) == size else Slots(size)
            for size in (attention_map.rows, attention_map.columns)
        )
        kind = "pool" if len(rows) == 1 else "self" if len(rows) == len(columns) else "cross"
        kinds.setdefault(kind, []).append(name)
        records += attention_map.records(rows=rows, columns=columns)
    return Explanation(
        run.config.model.kind,
        run.task.name,
        run.input.label(x),
        run.output.line(x, run.output.decide(x, raw, chosen)),
        tuple(records),
        tuple(Stack(TITLES[kind], kind, tuple(names)) for kind, names in kinds.items()),  # type: ignore[arg-type]
    )
