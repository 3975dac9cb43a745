"""The findings in words. Each says what was looked at and what followed, never that one was the reason of the other.

A sentence that stands beside a map is read by someone who sees attention for the first time: no symbol without what its
ends mean, and always what to hold the number against.
"""

import math

from sightline.explain.evidence.measures import Removal
from sightline.explain.evidence.subject import LabelSubject, NumberSubject, Subject
from sightline.explain.explanation import Finding

AT_MOST = math.log(1e6)


def entropy(subject: Subject, share: float | None) -> Finding:
    if share is None:
        text = f"There is only one {subject.column_name} to look at, so nothing to spread over."
    else:
        who = "The model" if isinstance(subject, LabelSubject) else f"Each {subject.row_name}"
        text = (
            f"{who} looked at {_few(share)} {subject.column_name}s: the spread of the weights is {share:z.0%} of the "
            "largest there can be, where 100% is the same weight on everything and 0% all of it on one "
            f"{subject.column_name}."
        )
    return Finding("entropy", "Spread of the weights", share, 1.0, text)


def special(share: float, count: int, columns: int) -> Finding:
    if count:
        text = (
            f"{share:z.0%} of the weight is on special tokens such as the end, where an even spread would put "
            f"{count / columns:.0%}; weight there is often parked rather than used to look at something."
        )
    else:
        text = "There are no special tokens to look at here."
    return Finding("special", "Weight on special tokens", share, count / columns, text)


def first(subject: Subject, share: float, columns: int) -> Finding:
    text = (
        f"{share:z.0%} of the weight is on the first {subject.column_name}, where an even spread would put "
        f"{1 / columns:.0%}; a first place that every row looks at is often a place to park weight."
    )
    return Finding("first", "Weight on the first place", share, 1 / columns, text)


def leave_one_out(subject: Subject, tau: float | None) -> Finding:
    what = f"by what hiding each of them, alone, costs the {subject.row_name}"
    return Finding("leave_one_out", "Agreement with hiding one", tau, 0.0, _order(subject, tau, what))


def gradient(subject: Subject, tau: float | None) -> Finding:
    what = f"by how strongly the {subject.row_name} responds to a small change of each (gradient × input)"
    return Finding("gradient", "Agreement with gradient × input", tau, 0.0, _order(subject, tau, what))


def removed(subject: Subject, found: Removal | None) -> Finding:
    title = "Hiding what was looked at most"
    if found is None:
        text = f"There are too few {subject.column_name}s to hide some that were looked at most and others to compare."
        return Finding("removal", title, None, None, text)
    one = found.k == 1
    most = f"the {subject.column_name} it looked at most" if one else f"the {found.k} it looked at most"
    others = "another one, chosen at random," if one else f"{found.k} others, chosen at random,"
    if isinstance(subject, LabelSubject):
        text = (
            f"With {most} hidden, {_becomes(subject, found.looked_at)}; with {others} hidden, "
            f"{_becomes(subject, found.others)}."
        )
        return Finding("removal", title, found.looked_at, found.others, text)
    text = (
        f"With {most} hidden, a {subject.row_name} becomes {_likelier(found.looked_at)} ({found.looked_at:z.2f} nats); "
        f"with {others} hidden, {_likelier(found.others)} ({found.others:z.2f} nats)."
    )
    return Finding("removal", title, found.looked_at, found.others, text)


def made_uniform(subject: Subject, cost: float) -> Finding:
    title = "Looking at everything alike"
    if isinstance(subject, LabelSubject):
        text = (
            f"Made to look at every {subject.column_name} alike, {_becomes(subject, cost)}; a cost near 0 says that "
            f"the {subject.row_name} is the same wherever the model looks."
        )
        return Finding("uniform", title, cost, 0.0, text)
    text = (
        f"Made to look at every {subject.column_name} alike, the model finds a {subject.row_name} {_likelier(cost)} "
        f"({cost:z.2f} nats); a cost near 0 says that it writes the same wherever it looks."
    )
    return Finding("uniform", title, cost, 0.0, text)


def _becomes(subject: LabelSubject, cost: float) -> str:
    """What a cost makes of a label's probability, or of a number."""
    if isinstance(subject, NumberSubject):
        return f"the number {subject.before:.4g} changes by {cost:.3g}"
    after = min(subject.before * math.exp(min(-cost, AT_MOST)), 1.0)
    return f"the label's probability goes from {_percent(subject.before)} to {_percent(after)} ({cost:z.2f} nats)"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or share == 0 else "less than 0.1%"


def _few(share: float) -> str:
    if share < 0.25:
        return "very few"
    return "some" if share < 0.75 else "nearly all"


def _order(subject: Subject, tau: float | None, what: str) -> str:
    both = f"{subject.column_name}s by how much they were looked at and {what}"
    if tau is None:
        return f"Ordering {both} says nothing here: one of the two tells none of them apart."
    if tau >= 0.2:
        kind = "much the same order" if tau >= 0.6 else "a similar order"
    else:
        kind = "opposite orders" if tau <= -0.2 else "orders that have little to do with each other"
    return f"Ordering {both} gives {kind}: {tau:z.2f}, where 1 is the same order, 0 chance and -1 the opposite."


def _likelier(cost: float) -> str:
    """What a cost in nats makes of a probability."""
    if abs(cost) < 0.01:
        return "no less likely"
    if abs(cost) > AT_MOST:
        return f"more than a million times {'less' if cost > 0 else 'more'} likely"
    return f"{_times(math.exp(abs(cost)))} times {'less' if cost > 0 else 'more'} likely"


def _times(factor: float) -> str:
    return f"{factor:.2f}" if factor < 1.995 else f"{factor:.1f}" if factor < 9.95 else f"{factor:,.0f}"
