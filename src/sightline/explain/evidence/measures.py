"""Does the order of the weights agree with the order of what the columns are worth by another measure?

Kendall's τ-b, as in Jain and Wallace 2019: of all pairs of columns, how many more stand in the same order than in the
opposite one, with ties taken out of the count. What people get wrong: most weights of a row are nearly zero and their
order is chance, so a map can name the right column in every row and still not come near 1.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from sightline.attention.tap import Look
from sightline.errors import UserError
from sightline.explain.capture import Change, Site, Trace, capture, cut, uniform
from sightline.explain.evidence.subject import Subject
from sightline.explain.explanation import HeadCost
from sightline.records import Record

Weights = Float[np.ndarray, "t s"]


def kendall(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> float:
    """τ-b of two measures of the same things; NaN where one of them tells nothing apart."""
    one, other = (np.sign(np.subtract.outer(v, v)) for v in (x, y))
    apart = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / apart if apart else float("nan")


def agreement(weights: Weights, worth: Weights) -> Float[np.ndarray, " t"]:
    """τ-b of each row, over the columns whose worth is known (not NaN); NaN for a row that says nothing."""
    taus = []
    for row, values in zip(weights, worth, strict=True):
        known = ~(np.isnan(row) | np.isnan(values))
        taus.append(kendall(row[known], values[known]))
    return np.array(taus, dtype=np.float64)


def mean_of_known(values: Float[np.ndarray, " t"]) -> float | None:
    """The mean without NaN; None where there is nothing else."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


# What it costs to hide columns: each alone, those that were looked at most, others at random.
#
# Costs are in nats: by how much the log-probability of the written row falls. A cost of c makes it exp(c) times less
# likely; below zero, it becomes likelier.


DRAWS = 8
MOST_ROWS = 64


def chosen_rows(rows: int, most: int = MOST_ROWS) -> list[int]:
    """All rows, or where there are more than ``most``, that many, evenly chosen from the first to the last."""
    if rows <= most:
        return list(range(rows))
    return np.linspace(0, rows - 1, most).round().astype(int).tolist()


def default_k(hideable: int) -> int:
    """A tenth of what can be hidden, and at least one."""
    return max(1, hideable // 10)


def leave_one_out(subject: Subject, rows: Sequence[int]) -> Float[np.ndarray, "t s"]:
    """The cost, for each of the rows, of hiding each column alone; NaN for columns that are never hidden."""
    places = np.flatnonzero(subject.hideable)
    hidden = np.zeros((len(places), subject.columns), dtype=bool)
    hidden[np.arange(len(places)), places] = True
    costs = np.full((len(rows), subject.columns), np.nan)
    if len(places):
        found = _log_probs(subject, ~hidden)[:, rows]
        costs[:, places] = (whole(subject, rows) - found).T
    return costs


def whole(subject: Subject, rows: Sequence[int]) -> Float[np.ndarray, " t"]:
    """The log-probability of each of the rows when nothing is hidden."""
    return _log_probs(subject, np.ones((1, subject.columns), dtype=bool))[0, rows]


@dataclass(frozen=True)
class Removal:
    """Cost of a row, on average, of hiding its ``k`` most looked-at columns, and of k of the others at random."""

    k: int
    looked_at: float
    others: float

    @property
    def ratio(self) -> float:
        """How many times as much; not a number to trust where ``others`` is near zero or below."""
        return self.looked_at / self.others if self.others else float("inf")


def removal(
    subject: Subject,
    weights: Float[np.ndarray, "t s"],
    rows: Sequence[int],
    *,
    k: int | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    alone: Float[np.ndarray, "t s"] | None = None,
) -> Removal | None:
    """Hide what each row looked at most, and as many others (Serrano and Smith 2019 compare with others too).

    ``weights`` has one row for each of ``rows``. For k = 1 the costs of hiding each column ``alone`` are all there is
    to know (made here unless given) and nothing is drawn; else ``draws`` sets of others for each row, from ``seed``.
    None where there are not k others to hide.
    """
    places = np.flatnonzero(subject.hideable)
    k = default_k(len(places)) if k is None else k
    if k < 1:
        raise UserError(f"k is {k}; at least one column must be hidden")
    if len(places) < 2 * k:
        return None
    random = np.random.default_rng(seed)
    # Shuffled first, so that of equal weights (zeros, with sparse attention) none is preferred for its place.
    shuffled = random.permutation(places)
    order = shuffled[np.argsort(-weights[:, shuffled], axis=1, kind="stable")]
    top, rest = order[:, :k], order[:, k:]
    if k == 1:
        alone = leave_one_out(subject, rows) if alone is None else alone
        looked_at, others = (np.take_along_axis(alone, some, axis=1).mean() for some in (top, rest))
        return Removal(k, float(looked_at), float(others))
    before = whole(subject, rows)
    looked_at = before - _own_log_probs(subject, top, rows)
    costs = [before - _own_log_probs(subject, random.permuted(rest, axis=1)[:, :k], rows) for _ in range(draws)]
    return Removal(k, float(looked_at.mean()), float(np.mean(costs)))


def _own_log_probs(subject: Subject, hidden: np.ndarray, rows: Sequence[int]) -> Float[np.ndarray, " t"]:
    """The log-probability of each row in its own variant of the input."""
    keep = np.ones((len(rows), subject.columns), dtype=bool)
    np.put_along_axis(keep, hidden, False, axis=1)
    return _log_probs(subject, keep)[np.arange(len(rows)), rows]


def _log_probs(subject: Subject, keep: Bool[np.ndarray, "n s"]) -> Float[np.ndarray, "n t"]:
    return subject.log_probs(torch.from_numpy(keep)).double().cpu().numpy()


# Some decoders look at a word one row before or after they write it. Which row a map's row belongs to is measured.


SHIFTS = (-1, 0, 1)
CLEARLY = 0.1  # of τ: less than that is no reason to show something else than what was computed
FEWEST_ROWS = 6  # fewer agree by chance


def moved(weights: Float[np.ndarray, "t s"], shift: int) -> Float[np.ndarray, "t s"]:
    """The rows moved down by ``shift`` (up, below zero); a row that nothing moved to is NaN."""
    found = np.full(weights.shape, np.nan)
    rows = np.arange(len(weights))
    to = rows + shift
    inside = (to >= 0) & (to < len(weights))
    found[to[inside]] = weights[rows[inside]]
    return found


def choose_shift(
    subjects: Sequence[Subject], weights_of: Callable[[Subject], Float[np.ndarray, "t s"]], most_rows: int = 64
) -> int:
    """How far the rows of a run's maps should be moved down: −1, 0 or 1.

    The shift whose maps agree best with leave-one-out, row by row over a few inputs. Away from 0 only where it is
    clearly better: by `CLEARLY` on average, and by three standard errors of the rows' differences. The first and
    the last row of an input have no map in some shift and do not count; of a long input the first ``most_rows`` do.
    """
    taus: list[np.ndarray] = []
    for subject in subjects:
        rows = list(range(1, min(subject.rows - 1, most_rows + 1)))
        if not rows:
            continue
        costs, weights = leave_one_out(subject, rows), weights_of(subject)
        taus.append(np.stack([agreement(moved(weights, shift)[rows], costs) for shift in SHIFTS]))
    if not taus:
        return 0
    together = np.concatenate(taus, axis=1)
    together = together[:, ~np.isnan(together).any(axis=0)]
    if together.shape[1] < FEWEST_ROWS:
        return 0
    best = int(together.mean(axis=1).argmax())
    gains = together[best] - together[SHIFTS.index(0)]
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    return SHIFTS[best] if gains.mean() >= max(CLEARLY, 3 * error) else 0


# What is lost when attention is changed: made uniform, or one head cut (Michel et al. 2019).


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


# Attention rollout (Abnar and Zuidema 2020): self-attention followed through the layers, back to the input.
#
# Half of what a position holds behind a layer came past the attention, along the residual path: Ã = ½A + ½I, with rows
# that sum to one, and R_l = Ã_l R_{l−1}. What people get wrong: it is bookkeeping of weights, not of what the values
# hold, and the half is a guess; it is one more map to look at, with no more claim to be believed than the others.


def rollout(matrices: Sequence[Float[np.ndarray, "t t"]]) -> list[Float[np.ndarray, "t t"]]:
    """Of the layers' attention, heads averaged, first layer first: where each layer's positions looked in the input."""
    found: list[np.ndarray] = []
    for matrix in matrices:
        mixed = 0.5 * matrix.astype(np.float64) + 0.5 * np.eye(len(matrix))
        mixed /= mixed.sum(axis=1, keepdims=True)
        found.append(mixed @ found[-1] if found else mixed)
    return found


def rollout_records(records: Sequence[Record], name: str = "encoder.rollout") -> list[Record]:
    """Records of the self-attention of a stack of layers → one record for each layer: ``encoder.rollout.0`` and so on.

    The layers come in the order in which their names first occur.
    """
    layers: dict[str, list[Record]] = {}
    for record in records:
        if record.rows != record.columns:
            raise ValueError(
                f"{record.name} looks from {len(record.rows)} rows at {len(record.columns)} other columns; a rollout "
                f"is of self-attention"
            )
        layers.setdefault(record.name, []).append(record)
    means = [np.mean([head.matrix() for head in heads], axis=0) for heads in layers.values()]
    return [
        Record(f"{name}.{layer}", layer, 0, heads[0].rows, heads[0].columns, matrix.astype(np.float32))
        for layer, (heads, matrix) in enumerate(zip(layers.values(), rollout(means), strict=True))
    ]
