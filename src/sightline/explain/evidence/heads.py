"""What is lost when attention is changed: made uniform, or one head cut (Michel et al. 2019)."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from sightline.attention.tap import Look
from sightline.explain.capture import Change, Site, Trace, capture, cut, uniform
from sightline.explain.evidence.subject import Subject
from sightline.explain.explanation import HeadCost


def attentions(subject: Subject) -> dict[str, int]:
    """The names of the attentions that run on this input, in order, and how many heads each has."""
    return _heads(_read(subject, None)[0])


def uniform_cost(subject: Subject, names: Collection[str] | None = None) -> float:
    """Nats that a row loses, on average, when these attentions (or all that look at the columns) are made uniform."""
    trace, before = _read(subject, None)
    looking = [name for name in trace.names if subject.looks_at_columns(name)]
    chosen = looking if names is None else list(names)
    missing = [name for name in chosen if name not in trace.names]
    if missing or not chosen:
        wanted = f"attention named {missing[0]!r} ran" if missing else "attention looks at the columns"
        raise ValueError(f"no {wanted}; there is {', '.join(trace.names) or 'none'}")

    def change(site: Site, look: Look) -> Tensor:
        return uniform(site, look) if site.name in chosen else look.weights

    return before - _read(subject, change)[1]


def head_costs(subjects: Sequence[Subject], names: Collection[str] | None = None) -> tuple[HeadCost, ...]:
    """What the loss of a row grows by when a head reads nothing, the costliest head first.

    Of all attentions unless ``names`` are given; the mean over all rows of all the subjects. What people get wrong: a
    head that can be cut at no cost may still do something that another head does as well.
    """
    total: dict[tuple[str, int], float] = {}
    rows = sum(subject.rows for subject in subjects)
    for subject in subjects:
        trace, before = _read(subject, None)
        for name, heads in _heads(trace).items():
            if names is not None and name not in names:
                continue
            for head in range(heads):
                cost = (before - _read(subject, cut(name, head))[1]) * subject.rows
                total[name, head] = total.get((name, head), 0.0) + cost
    costs = [HeadCost(name, head, cost / rows) for (name, head), cost in total.items()]
    return tuple(sorted(costs, key=lambda one: -one.cost))


def _heads(trace: Trace) -> dict[str, int]:
    return {name: trace[name].largest[0].shape[1] for name in trace.names}


def _read(subject: Subject, change: Change | None) -> tuple[Trace, float]:
    """The mean log-probability of a row, with attention changed."""
    keep = torch.ones(1, subject.columns, dtype=torch.bool)
    # Only the changes count here. Keeping one weight of each row, in blocks, bounds memory on long inputs.
    with capture(subject.model, top=1, change=change) as trace:
        log_probs = subject.log_probs(keep)
    return trace, float(log_probs.double().mean())
