"""Tables that the evaluations of several outputs print."""

from collections.abc import Sequence

from sightline.metrics import OfClass
from sightline.tasks.evaluate import Evaluation, Table


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
