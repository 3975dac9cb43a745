"""The operations on the rows of a table of the Neural Programmer (Neelakantan et al. 2017), soft and hard in one.

Every operation takes the probability with which each row is selected and gives another one. Where all probabilities are
0 or 1, what comes out is what a program would select; nothing has to be written twice.

What people get wrong: `first`, `last`, `max` and `min` of a soft selection are not an argmax. The row is reached with
the probability that no row before it (in the order of the rows, or of the numbers) was taken: s_i Π (1 − s_k).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.models.asking import OPERATIONS, TableBatch

COMPARISONS = ("greater", "less", "at_least", "at_most")
COUNT, PRINT = OPERATIONS.index("count"), OPERATIONS.index("print")
SELECTING = tuple(i for i, name in enumerate(OPERATIONS) if name not in ("count", "print"))
NEAR = 1e-5  # shares of equal counts that differ by rounding alone


class PreparedTable(NamedTuple):
    """What does not change from pass to pass: rows in the order of each column's numbers, and what compares how."""

    there: Float[Tensor, "b r"]
    ranked: Float[Tensor, "b c r"]
    falling: Int[Tensor, "b c r"]
    rising: Int[Tensor, "b c r"]
    compared: Float[Tensor, "b k n c r"]
    matches: Float[Tensor, "b c r"]
    entries: Int[Tensor, "b c r"]


def prepare_table(batch: TableBatch, dtype: torch.dtype) -> PreparedTable:
    """Of rows with equal numbers, the first in the table comes first, in both orders."""
    ranks = batch.ranks.transpose(1, 2)
    signs = batch.signs.transpose(2, 3)
    comparable = signs.abs() <= 1
    kept = (signs == 1, signs == -1, (signs >= 0) & comparable, (signs <= 0) & comparable)
    return PreparedTable(
        batch.rows_there.to(dtype),
        (ranks > 0).to(dtype),
        torch.argsort(-ranks, dim=-1, stable=True),
        torch.argsort(ranks, dim=-1, stable=True),
        torch.stack(kept, dim=1).to(dtype),
        batch.matches.transpose(1, 2).to(dtype),
        batch.entries.transpose(1, 2),
    )


def first_of(select: Float[Tensor, "*b r"]) -> Float[Tensor, "*b r"]:
    """The first selected row: each with the probability that none before it is selected."""
    free = torch.cumprod(1 - select, dim=-1)
    before = torch.cat((torch.ones_like(free[..., :1]), free[..., :-1]), dim=-1)
    return select * before


def last_of(select: Float[Tensor, "*b r"]) -> Float[Tensor, "*b r"]:
    return first_of(select.flip(-1)).flip(-1)


def extreme_of(
    select: Float[Tensor, "b r"], order: Int[Tensor, "b c r"], ranked: Float[Tensor, "b c r"]
) -> Float[Tensor, "b c r"]:
    """For each column, the selected row that comes first in its order; rows without a number are passed over."""
    able = select.unsqueeze(1) * ranked
    taken = first_of(torch.gather(able, 2, order))
    return torch.zeros_like(able).scatter(2, order, taken)


def most_frequent_of(select: Float[Tensor, "b r"], entries: Int[Tensor, "b c r"]) -> Float[Tensor, "b c r"]:
    """For each column, the selected rows with the entry that most selected rows have; all of them where several do."""
    held = (entries >= 0).to(select.dtype)
    at = entries.clamp(min=0)
    weight = select.unsqueeze(1) * held
    counts = torch.zeros_like(weight).scatter_add(2, at, weight)
    own = torch.gather(counts, 2, at) * held
    most = counts.amax(dim=2, keepdim=True)
    return weight * ((own >= most * (1 - NEAR)) & (own > 0)).to(select.dtype)


def moved(select: Float[Tensor, "b r"], by: int) -> Float[Tensor, "b r"]:
    """Selected rows moved down by one (``by`` is 1) or up (−1); what leaves the table is gone."""
    nothing = torch.zeros_like(select[:, :1])
    return torch.cat((nothing, select[:, :-1]) if by > 0 else (select[:, 1:], nothing), dim=1)


def rows_behind(
    table: PreparedTable,
    select: Float[Tensor, "b r"],
    operations: Float[Tensor, "b o"],
    columns: Float[Tensor, "b c"],
    numbers: Float[Tensor, "b k n"],
    narrows: bool,
) -> Float[Tensor, "b r"]:
    """The selection behind a pass: the mean of all operations on all columns, weighed by their probabilities.

    ``numbers``: for each comparison, the weights of the question's numbers. ``narrows``: comparisons and `match` keep
    of the rows that are selected; without it they select anew, as in the published code. `count` and `print` leave the
    selection as it is.
    """

    def over_columns(rows: Float[Tensor, "b c r"]) -> Float[Tensor, "b r"]:
        return torch.einsum("bc,bcr->br", columns, rows)

    kept = select if narrows else table.there
    compared = torch.einsum("bkn,bkncr,bc->bkr", numbers, table.compared, columns) * kept.unsqueeze(1)
    results = {
        "count": select,
        "previous": moved(select, -1),
        "next": moved(select, 1),
        "first": first_of(select),
        "last": last_of(select),
        "most_frequent": over_columns(most_frequent_of(kept, table.entries)),
        **{name: compared[:, number] for number, name in enumerate(COMPARISONS)},
        "max": over_columns(extreme_of(select, table.falling, table.ranked)),
        "min": over_columns(extreme_of(select, table.rising, table.ranked)),
        "match": over_columns(table.matches) * kept,
        "reset": table.there,
        "print": select,
    }
    stacked = torch.stack([results[name] for name in OPERATIONS], dim=1)
    return torch.einsum("bo,bor->br", operations, stacked) * table.there


def one_hot(probs: Float[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    """The likeliest choice alone; of equal ones, the first."""
    return torch.zeros_like(probs).scatter(-1, probs.argmax(dim=-1, keepdim=True), 1.0)


def masked_probs(logits: Float[Tensor, "*b n"], there: Bool[Tensor, "*b n"]) -> Float[Tensor, "*b n"]:
    """Softmax over what is there; zeros where nothing is."""
    probs = torch.softmax(logits.masked_fill(~there, torch.finfo(logits.dtype).min), dim=-1)
    return probs * there.to(logits.dtype)
