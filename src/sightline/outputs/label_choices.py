"""A predicted label as explanations show it, of a text or of an image: what is explained, and the other labels."""

from sightline.errors import UserError
from sightline.explain.explanation import Choice, Step
from sightline.outputs.labels import LabelPrediction
from sightline.outputs.labels_shown import NONE
from sightline.tasks.explain import LIKELIEST
from sightline.tasks.run import Run


def explained_label(run: Run, prediction: LabelPrediction, asked: str | None) -> str:
    """The label that the map is about: the one asked for, the one given, or the likeliest of several."""
    probs = prediction.probabilities
    if probs is None:
        if asked is not None:
            raise UserError(f"{run.name} gives a number, so there is no label to explain; leave it out")
        return ""
    if asked is not None and asked not in probs:
        names = ", ".join(map(repr, list(probs)[:10]))
        more = f" and {len(probs) - 10:,} more" if len(probs) > 10 else ""
        raise UserError(f"{run.name} knows no label {asked!r}; it knows {names}{more}")
    return asked if asked is not None else max(probs, key=probs.__getitem__)


def shown_label(prediction: LabelPrediction) -> str:
    """A label, several or a number as text."""
    if isinstance(prediction.label, float):
        return f"{prediction.label:.6g}"
    return prediction.label if isinstance(prediction.label, str) else ", ".join(prediction.label) or NONE


def ranked(prediction: LabelPrediction) -> tuple[Choice, ...]:
    """All labels, likeliest first; a number has none."""
    probs = prediction.probabilities or {}
    return tuple(Choice(name, prob) for name, prob in sorted(probs.items(), key=lambda one: -one[1]))


def label_steps(prediction: LabelPrediction, label: str) -> tuple[Step, ...]:
    """The one step in which a label is written; a number has none."""
    if prediction.probabilities is None:
        return ()
    return (Step(label, prediction.probabilities[label], ranked(prediction)[:LIKELIEST]),)


def other_labels(prediction: LabelPrediction) -> tuple[Choice, ...]:
    """The labels that were not given, likeliest first."""
    given = (prediction.label,) if isinstance(prediction.label, str) else prediction.label
    return () if isinstance(given, float) else tuple(one for one in ranked(prediction) if one.text not in given)
