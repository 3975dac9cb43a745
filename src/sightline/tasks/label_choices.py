"""A predicted label as explanations show it, of a text or of an image: what is explained, and the other labels."""

from sightline.errors import UserError
from sightline.explanation import Choice, Step
from sightline.tasks.classifier import Classifier, LabelPrediction
from sightline.tasks.explaining import LIKELIEST

NONE = "none of the labels"


def explained_label(classifier: Classifier, found: LabelPrediction, wanted: str | None) -> str:
    """The label that the map is about: the one asked for, the one given, or the likeliest of several."""
    if found.probabilities is None:
        if wanted is not None:
            raise UserError(f"{classifier.name} gives a number, so there is no label to explain; leave it out")
        return ""
    if wanted is not None and wanted not in found.probabilities:
        names = ", ".join(map(repr, classifier.labels.names[:10]))
        more = f" and {classifier.labels.classes - 10:,} more" if classifier.labels.classes > 10 else ""
        raise UserError(f"{classifier.name} knows no label {wanted!r}; it knows {names}{more}")
    return wanted if wanted is not None else max(found.probabilities, key=found.probabilities.__getitem__)


def said(found: LabelPrediction) -> str:
    """A label, several or a number as text."""
    if isinstance(found.label, float):
        return f"{found.label:.6g}"
    return found.label if isinstance(found.label, str) else ", ".join(found.label) or NONE


def ranked(found: LabelPrediction) -> tuple[Choice, ...]:
    """All labels, likeliest first; a number has none."""
    chances = found.probabilities or {}
    return tuple(Choice(name, share) for name, share in sorted(chances.items(), key=lambda one: -one[1]))


def label_steps(found: LabelPrediction, label: str) -> tuple[Step, ...]:
    """The one step in which a label is written; a number has none."""
    if found.probabilities is None:
        return ()
    return (Step(label, found.probabilities[label], ranked(found)[:LIKELIEST]),)


def other_labels(found: LabelPrediction) -> tuple[Choice, ...]:
    """The labels that were not given, likeliest first."""
    given = (found.label,) if isinstance(found.label, str) else found.label
    return () if isinstance(given, float) else tuple(one for one in ranked(found) if one.text not in given)
