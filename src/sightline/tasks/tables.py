"""Tables that the evaluations of several outputs print."""

from collections.abc import Sequence

from sightline.tasks.evaluate import Table
from sightline.training.scores import OfClass


def class_table(rows: Sequence[OfClass], first: str, there: str) -> Table:
    """Precision and recall of each class; ``there`` is how often each label is right."""
    names = (first, "precision", "recall", "F1", there, "given")
    return Table(names, tuple(_class_row(one) for one in rows))


def _class_row(one: OfClass) -> tuple[str, ...]:
    shares = ("–" if share is None else f"{share:.1f}" for share in (one.precision, one.recall, one.f1))
    return (one.name, *shares, f"{one.support:,}", f"{one.said:,}")
