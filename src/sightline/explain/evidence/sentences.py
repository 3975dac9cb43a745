"""The findings in words. Each states what was measured and what followed, never that one caused the other.

The reader of a sentence may see attention for the first time: every number comes with its scale and with a reference.
"""

import math

from sightline.explain.evidence.measures import Removal
from sightline.explain.evidence.subject import AT_MOST, Subject
from sightline.explain.explanation import Finding


def entropy(subject: Subject, share: float | None) -> Finding:
    column = subject.column_name
    if share is None:
        text = f"There is only one {column}, so there is nothing that {_weights(subject)} could spread over."
    else:
        few = "very few" if share < 0.25 else "some" if share < 0.75 else "nearly all"
        text = (
            f"{_weights(subject).capitalize()} falls on {few} {column}s: the entropy of the weights is {share:z.0%} of "
            f"the maximum, where 100% is the same weight on every {column} and 0% is all weight on one."
        )
    return Finding("entropy", "Spread of the weights", share, 1.0, text)


def special(share: float, count: int, columns: int) -> Finding:
    if count:
        text = (
            f"{share:z.0%} of the attention weight is on special tokens such as the end; uniform attention would put "
            f"{count / columns:.0%} there. Such weight is often unused (an attention sink)."
        )
    else:
        text = "There are no special tokens here that could get attention."
    return Finding("special", "Weight on special tokens", share, count / columns, text)


def first(subject: Subject, share: float, columns: int) -> Finding:
    text = (
        f"{share:z.0%} of the attention weight is on the first {subject.column_name}; uniform attention would put "
        f"{1 / columns:.0%} there. A first position with weight in every row is often an attention sink."
    )
    return Finding("first", "Weight on the first position", share, 1 / columns, text)


def leave_one_out(subject: Subject, tau: float | None, chance: float) -> Finding:
    text = _order(subject, tau, chance, f"by what hiding each of them alone costs the {subject.row_name}")
    return Finding("leave_one_out", "Agreement with leave-one-out", tau, 0.0, text)


def gradient(subject: Subject, tau: float | None, chance: float) -> Finding:
    what = f"by how strongly the {subject.row_name} responds to a small change (gradient × input)"
    text = _order(subject, tau, chance, what)
    return Finding("gradient", "Agreement with gradient × input", tau, 0.0, text)


def removed(subject: Subject, removal: Removal | None) -> Finding:
    title, column = "Hiding the highest weights", subject.column_name
    if removal is None:
        text = f"There are too few {column}s to hide those with the highest {_weight(subject)}s and others to compare."
        return Finding("removal", title, None, None, text)
    one = removal.k == 1
    most = f"the {column} with the highest" if one else f"the {removal.k} {column}s with the highest"
    others = "another one, chosen at random," if one else f"{removal.k} others, chosen at random,"
    text = (
        f"With {most} {_weight(subject)} hidden, {_effect(subject, removal.highest)}; with {others} hidden, "
        f"{_effect(subject, removal.others)}."
    )
    return Finding("removal", title, removal.highest, removal.others, text)


def made_uniform(subject: Subject, cost: float) -> Finding:
    text = (
        f"With uniform attention over every {subject.column_name}, {_effect(subject, cost)}; a cost near 0 means that "
        "the output hardly depends on these weights."
    )
    return Finding("uniform", "Uniform attention", cost, 0.0, text)


def _weight(subject: Subject) -> str:
    return getattr(subject, "weight_name", "attention weight")


def _weights(subject: Subject) -> str:
    return _weight(subject).removesuffix(" weight")


def _effect(subject: Subject, cost: float) -> str:
    """What a cost means for a row; in nats unless the subject has a scale of its own."""
    own = getattr(subject, "effect", None)
    return f"a {subject.row_name} becomes {_likelier(cost)} ({cost:z.2f} nats)" if own is None else own(cost)


AGREEMENT = ((0.6, "strong"), (0.3, "moderate"), (0.0, "weak"))  # the least |τ|, and its word


def _order(subject: Subject, tau: float | None, chance: float, what: str) -> str:
    """The agreement of two rankings, with the interval that random orders have."""
    both = f"{subject.column_name}s by {_weight(subject)} and {what}"
    if tau is None:
        return f"Ranking {both} is not possible here: one of the two values is the same for all of them."
    if abs(tau) <= chance:
        kind = "no clear agreement"
    else:
        degree = next(word for least, word in AGREEMENT if abs(tau) >= least)
        kind = f"{degree} {'agreement' if tau > 0 else 'disagreement'}"
    return (
        f"Ranking {both} gives {kind}: {tau:z.2f}, where 1 is the same order and -1 is the opposite; random orders are "
        f"within ±{chance:.2f} in 95 of 100 cases."
    )


def _likelier(cost: float) -> str:
    """What a cost in nats means for a probability."""
    if abs(cost) < 0.01:
        return "no less likely"
    factor = math.exp(min(abs(cost), AT_MOST))
    times = f"{factor:.2f}" if factor < 1.995 else f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"
    times = "more than a million" if abs(cost) > AT_MOST else times
    return f"{times} times {'less' if cost > 0 else 'more'} likely"
