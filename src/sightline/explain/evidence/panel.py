"""Believe it? The numbers beside a map, each with one plain sentence, and never a single score for all.

Attention weights do not say why an output was written: other weights may give the same output (Jain and Wallace 2019),
and whether that matters depends on the question (Wiegreffe and Pinter 2019). So there is no yes or no here.
"""

from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Float

from sightline.errors import UserError
from sightline.explain.evidence import sentences
from sightline.explain.evidence.measures import (
    DRAWS,
    MOST_ROWS,
    agreement,
    chance_range,
    chosen_rows,
    head_costs_within,
    leave_one_out,
    mean_of_known,
    moved,
    removal,
    uniform_cost,
)
from sightline.explain.evidence.subject import Subject
from sightline.explain.explanation import Belief, Finding
from sightline.records import Record, Tokens

Weights = Float[np.ndarray, "t s"]
Map = np.ndarray | Record | Sequence[Record]
HEAD_SECONDS = 20  # each head takes a pass of the model: a large language model has a thousand


def believe(
    subject: Subject,
    weights: Map,
    *,
    about: str | None = None,
    names: Collection[str] | None = None,
    special: Sequence[int] | None = None,
    heads: bool = True,
    shift: int = 0,
    k: int | None = None,
    draws: int = DRAWS,
    most_rows: int = MOST_ROWS,
    seed: int = 0,
) -> Belief:
    """The findings about a map of this subject: its own, or any other of the same shape.

    Several records are averaged. ``names`` are the attentions that are made uniform (those of the records; of a plain
    array, all that attend to the columns; empty where the weights are not those of attention); ``special`` are the
    places of special columns (those of the records' axis; else those that are never hidden). ``shift`` moves the map's
    rows first, as `choose_shift` measured. With ``heads`` every head of the model is ablated in turn, those of the last
    layers first, for `HEAD_SECONDS`. ``k`` columns are hidden together (a tenth unless given).
    """
    matrix, records = _matrix(weights, subject)
    placed = moved(matrix, shift)
    mapped = [row for row in range(subject.rows) if not np.isnan(placed[row]).any() and placed[row].sum() > 0]
    if not mapped:
        raise UserError("the map has no row with any weight in it")
    rows = [mapped[i] for i in chosen_rows(len(mapped), most_rows)]
    chosen = placed[rows]
    alone = leave_one_out(subject, rows)
    if names is None and records:
        names = tuple(dict.fromkeys(record.name for record in records))
    measured = f"{len(rows)} of {subject.rows} rows measured" if len(rows) < subject.rows else "every row measured"
    costs, left_out = head_costs_within([subject], None, HEAD_SECONDS) if heads else ((), 0)
    if left_out:
        measured += f", the last {len(costs):,} of {len(costs) + left_out:,} heads ablated (in {HEAD_SECONDS} seconds)"
    attends = names is None or bool(names)
    spreads = spread(subject, chosen, _special(subject, records) if special is None else special)
    uniform = [sentences.made_uniform(subject, uniform_cost(subject, names))] if attends else []
    return Belief(
        about=f"{about or _title(records)}, {measured}",
        rows=len(rows),
        findings=(
            *(spreads if attends else spreads[:1]),
            *agreements(subject, chosen, rows, alone)[: 2 if attends else 1],
            sentences.removed(subject, removal(subject, chosen, rows, k=k, draws=draws, seed=seed, alone=alone)),
            *uniform,
        ),
        heads=costs,
    )


def spread(subject: Subject, weights: Weights, special: Sequence[int]) -> list[Finding]:
    """The entropy of the rows, and their weight on special columns and on the first."""
    shares = weights / weights.sum(axis=1, keepdims=True)
    columns = shares.shape[1]
    entropy = None
    if columns > 1:
        logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
        entropy = max(0.0, float(-(shares * logs).sum(axis=1).mean() / np.log(columns)))  # rounding may give less
    places = sorted(set(special))
    return [
        sentences.entropy(subject, entropy),
        sentences.special(float(shares[:, places].sum(axis=1).mean()), len(places), columns),
        sentences.first(subject, float(shares[:, 0].mean()), columns),
    ]


def agreements(subject: Subject, weights: Weights, rows: Sequence[int], alone: Weights) -> list[Finding]:
    """Rank correlation of the rows with what hiding costs and with |gradient × input|, both over hideable columns."""
    gradients = subject.gradient_times_input(rows).double().abs().cpu().numpy()
    gradients[:, ~subject.hideable] = np.nan
    return [
        sentence(subject, mean_of_known(agreement(weights, worth)), chance_range(weights, worth))
        for sentence, worth in ((sentences.leave_one_out, alone), (sentences.gradient, gradients))
    ]


def _matrix(weights: Map, subject: Subject) -> tuple[Weights, list[Record]]:
    if isinstance(weights, np.ndarray):
        matrix, records = weights, []
    else:
        records = [weights] if isinstance(weights, Record) else list(weights)
        if not records:
            raise UserError("there is no map to measure: no records were given")
        matrix = np.mean([record.matrix() for record in records], axis=0)
    if matrix.shape != (subject.rows, subject.columns):
        raise UserError(
            f"the map has shape {matrix.shape}; there are {subject.rows} rows and {subject.columns} columns"
        )
    return matrix.astype(np.float64), records


def _special(subject: Subject, records: list[Record]) -> list[int]:
    axis = records[0].columns if records else None
    if isinstance(axis, Tokens) and axis.special:
        return list(axis.special)
    return np.flatnonzero(~subject.hideable).tolist()


def _title(records: list[Record]) -> str:
    names = {record.name for record in records}
    if len(records) == 1:
        return f"{records[0].name}, head {records[0].head + 1}"
    if len(names) == 1:
        return f"{records[0].name}, mean of {len(records)} heads"
    return f"mean of {len(records)} heads of {len(names)} attentions" if records else "the map"
