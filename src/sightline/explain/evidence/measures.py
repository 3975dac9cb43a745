"""Measures of evidence: rank agreement, the cost of hiding columns, shifts, changed attention, rollout.

Agreement is Kendall's τ-b, as in Jain and Wallace 2019: of all pairs of columns, how many more have the same order
than the opposite one, without ties. What people get wrong: most weights of a row are nearly zero and their order is
chance, so a map can name the right column in every row and still not come near 1.

Costs are in nats: by how much the log-probability of a row falls. A cost of c makes the row exp(c) times less likely; a
negative cost makes it likelier.
"""

import time
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
    """τ-b of two measures of the same things; NaN where one of them is constant."""
    one, other = (np.sign(np.subtract.outer(v, v)) for v in (x, y))
    apart = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / apart if apart else float("nan")


def agreement(weights: Weights, worth: Weights) -> Float[np.ndarray, " t"]:
    """τ-b of each row, over the columns whose worth is known (not NaN); NaN for a row where either is constant."""
    taus = []
    for row, values in zip(weights, worth, strict=True):
        known = ~(np.isnan(row) | np.isnan(values))
        taus.append(kendall(row[known], values[known]))
    return np.array(taus, dtype=np.float64)


def chance_range(weights: Weights, worth: Weights) -> float:
    """Half of the 95 % interval of the mean τ of rows in random order, rows taken as independent.

    The variance of τ of n columns is 2(2n + 5) / 9n(n − 1) (Kendall 1938).
    """
    known = ~(np.isnan(weights) | np.isnan(worth))
    columns = known.sum(axis=1)[~np.isnan(agreement(weights, worth))].astype(np.float64)
    if not columns.size:
        return 1.0
    variance = 2 * (2 * columns + 5) / (9 * columns * (columns - 1))
    return min(1.0, 1.96 * float(np.sqrt(variance.sum())) / len(columns))


def mean_of_known(values: Float[np.ndarray, " t"]) -> float | None:
    """The mean without NaN; None where there is nothing else."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


# --- The cost of hiding columns: each alone, those with the highest weights, others at random.

DRAWS = 8
MOST_ROWS = 64


def chosen_rows(rows: int, most: int = MOST_ROWS) -> list[int]:
    """All rows, or where there are more than ``most``, that many, evenly chosen from the first to the last."""
    if rows <= most:
        return list(range(rows))
    return np.linspace(0, rows - 1, most).round().astype(int).tolist()


def leave_one_out(subject: Subject, rows: Sequence[int]) -> Float[np.ndarray, "t s"]:
    """The cost, for each of the rows, of hiding each column alone; NaN for columns that are never hidden."""
    places = np.flatnonzero(subject.hideable)
    hidden = np.zeros((len(places), subject.columns), dtype=bool)
    hidden[np.arange(len(places)), places] = True
    costs = np.full((len(rows), subject.columns), np.nan)
    if len(places):
        costs[:, places] = (whole(subject, rows) - _log_probs(subject, ~hidden)[:, rows]).T
    return costs


def whole(subject: Subject, rows: Sequence[int]) -> Float[np.ndarray, " t"]:
    """The log-probability of each of the rows when nothing is hidden."""
    return _log_probs(subject, np.ones((1, subject.columns), dtype=bool))[0, rows]


@dataclass(frozen=True)
class Removal:
    """Mean cost of a row of hiding its ``k`` columns with the ``highest`` weights, and of k ``others`` at random."""

    k: int
    highest: float
    others: float


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
    """Hide the columns with the highest weights of each row, and as many others (as Serrano and Smith 2019 do).

    ``weights`` has one row for each of ``rows``. For k = 1 the costs of hiding each column ``alone`` are enough
    (computed here unless given) and nothing is drawn; else ``draws`` sets of others are drawn for each row.
    None where there are not k others to hide.
    """
    places = np.flatnonzero(subject.hideable)
    k = max(1, len(places) // 10) if k is None else k
    if k < 1:
        raise UserError(f"k is {k}; at least one column must be hidden")
    if len(places) < 2 * k:
        return None
    random = np.random.default_rng(seed)
    # Shuffled first, so that among equal weights (zeros, with sparse attention) no position is preferred.
    shuffled = random.permutation(places)
    order = shuffled[np.argsort(-weights[:, shuffled], axis=1, kind="stable")]
    top, rest = order[:, :k], order[:, k:]
    if k == 1:
        alone = leave_one_out(subject, rows) if alone is None else alone
        highest, others = (np.take_along_axis(alone, some, axis=1).mean() for some in (top, rest))
        return Removal(k, float(highest), float(others))
    before = whole(subject, rows)
    highest = before - _own_log_probs(subject, top, rows)
    costs = [before - _own_log_probs(subject, random.permuted(rest, axis=1)[:, :k], rows) for _ in range(draws)]
    return Removal(k, float(highest.mean()), float(np.mean(costs)))


def _own_log_probs(subject: Subject, hidden: np.ndarray, rows: Sequence[int]) -> Float[np.ndarray, " t"]:
    """The log-probability of each row in its own variant of the input."""
    keep = np.ones((len(rows), subject.columns), dtype=bool)
    np.put_along_axis(keep, hidden, False, axis=1)
    return _log_probs(subject, keep)[np.arange(len(rows)), rows]


def _log_probs(subject: Subject, keep: Bool[np.ndarray, "n s"]) -> Float[np.ndarray, "n t"]:
    return subject.log_probs(torch.from_numpy(keep)).double().cpu().numpy()


# --- Shifts: some decoders attend to a word one row before or after they write it. The shift is measured.

SHIFTS = (-1, 0, 1)
CLEARLY = 0.1  # of τ: a smaller gain is no reason to show another map than the computed one
FEWEST_ROWS = 6  # fewer may agree by chance


def moved(weights: Float[np.ndarray, "t s"], shift: int) -> Float[np.ndarray, "t s"]:
    """The rows moved down by ``shift`` (up, below zero); a row that nothing moved to is NaN."""
    source = np.arange(len(weights)) - shift
    inside = (source >= 0) & (source < len(weights))
    return np.where(inside[:, None], weights[np.where(inside, source, 0)], np.nan)


def choose_shift(
    subjects: Sequence[Subject], weights_of: Callable[[Subject], Float[np.ndarray, "t s"]], most_rows: int = 64
) -> int:
    """How far the rows of a run's maps should be moved down: −1, 0 or 1.

    The shift whose maps agree best with leave-one-out, row by row over a few inputs. A shift other than 0 must be
    clearly better: by `CLEARLY` on average, and by three standard errors of the rows' differences. The first and the
    last row of an input have no map in some shift and do not count; of a long input the first ``most_rows`` count.
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


# --- The cost of changed attention: made uniform, or one head ablated (Michel et al. 2019).


def attentions(subject: Subject) -> dict[str, int]:
    """The names of the attentions that run on this input, in order, and how many heads each has."""
    return _heads(_read(subject, None)[0])


def uniform_cost(subject: Subject, names: Collection[str] | None = None) -> float:
    """Nats that a row loses, on average, when these attentions (or all that attend to the columns) are made uniform."""
    trace, before = _read(subject, None)
    chosen = [name for name in trace.names if subject.attends_to_columns(name)] if names is None else list(names)
    missing = [name for name in chosen if name not in trace.names]
    if missing or not chosen:
        problem = f"attention named {missing[0]!r} ran" if missing else "attention attends to the columns"
        raise ValueError(f"no {problem}; there is {', '.join(trace.names) or 'none'}")

    def change(site: Site, look: Look) -> Tensor:
        return uniform(site, look) if site.name in chosen else look.weights

    return before - _read(subject, change)[1]


def head_costs(subjects: Sequence[Subject], names: Collection[str] | None = None) -> tuple[HeadCost, ...]:
    """By how much the loss of a row grows when a head is ablated, the costliest head first.

    Of all attentions unless ``names`` are given; the mean over all rows of all the subjects. What people get wrong: a
    head that can be ablated at no cost may still do something that another head does as well.
    """
    return head_costs_within(subjects, names, seconds=None)[0]


def head_costs_within(
    subjects: Sequence[Subject], names: Collection[str] | None, seconds: int | None
) -> tuple[tuple[HeadCost, ...], int]:
    """The same, and the number of heads that were left out: each head takes a pass.

    Attentions nearest to the output are first; after so many seconds no other is begun.
    """
    begun = time.monotonic()
    before = [_read(subject, None) for subject in subjects]
    rows = sum(subject.rows for subject in subjects)
    heads = {name: count for trace, _ in before for name, count in _heads(trace).items()}
    chosen = [name for name in heads if names is None or name in names]
    costs: dict[str, list[HeadCost]] = {}
    for name in reversed(chosen):
        if costs and seconds is not None and time.monotonic() - begun > seconds:
            break
        costs[name] = []
        for head in range(heads[name]):
            cost = sum(
                (log_prob - _read(subject, cut(name, head))[1]) * subject.rows
                for subject, (trace, log_prob) in zip(subjects, before, strict=True)
                if name in trace.names
            )
            costs[name].append(HeadCost(name, head, cost / rows))
    measured = [one for name in chosen for one in costs.get(name, ())]
    left_out = sum(heads[name] for name in chosen) - len(measured)
    return tuple(sorted(measured, key=lambda one: -one.cost)), left_out


def _heads(trace: Trace) -> dict[str, int]:
    return {name: trace[name].largest[0].shape[1] for name in trace.names}


def _read(subject: Subject, change: Change | None) -> tuple[Trace, float]:
    """The mean log-probability of a row, with attention changed."""
    keep = torch.ones(1, subject.columns, dtype=torch.bool)
    # Only the change matters here. Keeping one weight of each row, in blocks, bounds memory on long inputs.
    with capture(subject.model, top=1, change=change) as trace:
        log_probs = subject.log_probs(keep)
    return trace, float(log_probs.double().mean())


# --- Attention rollout (Abnar and Zuidema 2020): self-attention multiplied through the layers, back to the input.
#
# Half of the state of a position after a layer came along the residual path: Ã = ½A + ½I, with rows that sum to one,
# and R_l = Ã_l R_{l−1}. What people get wrong: it multiplies weights and ignores the values, and the half is a guess;
# it is one more map, no more reliable than the others.


def rollout(matrices: Sequence[Float[np.ndarray, "t t"]]) -> list[Float[np.ndarray, "t t"]]:
    """Of the layers' attention, heads averaged, first layer first: each layer's attention to the input."""
    rolled: list[np.ndarray] = []
    for matrix in matrices:
        mixed = 0.5 * matrix.astype(np.float64) + 0.5 * np.eye(len(matrix))
        mixed /= mixed.sum(axis=1, keepdims=True)
        rolled.append(mixed @ rolled[-1] if rolled else mixed)
    return rolled


def rollout_records(records: Sequence[Record], name: str = "encoder.rollout") -> list[Record]:
    """Records of the self-attention of a stack of layers → one record for each layer: ``encoder.rollout.0`` and so on.

    The layers come in the order in which their names first occur.
    """
    layers: dict[str, list[Record]] = {}
    for record in records:
        if record.rows != record.columns:
            raise ValueError(
                f"{record.name} attends from {len(record.rows)} rows to {len(record.columns)} other columns; a rollout "
                f"needs self-attention"
            )
        layers.setdefault(record.name, []).append(record)
    means = [np.mean([head.matrix() for head in heads], axis=0) for heads in layers.values()]
    return [
        Record(f"{name}.{layer}", layer, 0, heads[0].rows, heads[0].columns, matrix.astype(np.float32))
        for layer, (heads, matrix) in enumerate(zip(layers.values(), rollout(means), strict=True))
    ]
