"""Which rows are for training and which for validation, and what they share, for any input and output."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sightline.data.checking import Report
from sightline.data.disk import hash_of
from sightline.data.splitting import (
    BLOCKS,
    LEAST_DOCUMENTS,
    Overlap,
    choose_groups,
    choose_keys,
    count_known,
    fold_keys,
    key_of,
    label_order,
    overlap_of_hashes,
    split_hashes,
    strata_of_numbers,
)
from sightline.data.spool import Marks, Spool
from sightline.errors import UserError

if TYPE_CHECKING:
    from sightline.inputs.base import Input
    from sightline.outputs.base import Output

Hashes = tuple[np.ndarray, np.ndarray, Any]  # of every row: its own, its item's with the seed's key, its target's


def row_hashes(spool: Spool, input: "Input", output: "Output", seed: int) -> Hashes:
    """Of every row: its hash, that of its item as it splits (with the seed's key), and of pairs that of the target."""
    key = key_of(seed)
    if output.pair_split:
        return spool.hashes(key)
    whole, items = spool.numbers(_row_hash, lambda row: hash_of(input.identity(input.unpack(row)[0]), key))
    return whole, items, None


def _row_hash(row: Sequence[Any]) -> int:
    return hash_of(json.dumps(row, ensure_ascii=False))


def split_rows(
    spool: Spool,
    hashes: Hashes,
    input: "Input",
    output: "Output",
    share: float,
    report: Report,
    what: str,
    seed: int,
    fold: tuple[int, int] | None = None,
) -> tuple[Marks, Marks]:
    """Marks of the training rows and of the validation rows: an item is on one side only. ``what`` rows are called.

    Where rows name their documents, validation gets whole documents, and training leaves out items that are there too:
    neighbours share names and words, so single rows drawn from running text would score too high. ``fold``: validation
    gets that part of the rows (`fold_keys`).
    """
    _, items, targets = hashes
    of_documents = len(report.documents) == spool.count > 1
    if fold is not None:
        units = np.array(report.documents, np.uint64) if of_documents else np.array(items)
        if of_documents and len(np.unique(units)) < max(LEAST_DOCUMENTS, 2 * fold[1]):
            blocks = max(BLOCKS, 2 * fold[1])
            units = (np.arange(spool.count) * blocks // spool.count).astype(np.uint64)
        apart = np.isin(units, fold_keys(units, _strata(spool, input, output), fold, what))
        left = ~(apart | np.isin(items, np.array(items)[apart]))
        if output.pair_split:
            left &= ~np.isin(targets, np.array(targets)[apart])
        if not left.any():
            shared = "targets" if output.pair_split else "items"
            raise UserError(
                f"fold {fold[0] + 1} of {fold[1]} leaves no {what} to train on, because all {what} outside it have "
                f"{shared} that are in it too; give {what} with more different {shared}"
            )
        return spool.mark(lambda start, end: left[start:end]), spool.mark(lambda start, end: apart[start:end])
    if of_documents:
        apart, split_by = choose_groups(np.array(report.documents, np.uint64), share, seed, what)
        left = ~np.isin(items, np.unique(items[np.flatnonzero(apart)]))
        if 2 * left.sum() > len(left):  # else the same few items are everywhere, and documents mean little
            report.split_by = split_by
            return spool.mark(lambda start, end: left[start:end]), spool.mark(lambda start, end: apart[start:end])
    if output.pair_split:
        split = split_hashes(items, targets, share)
        return spool.mark(split.train), spool.mark(split.valid)
    try:
        chosen = choose_keys(items, _strata(spool, input, output), share, what, output.least_split)
    except UserError as error:
        raise output.cannot_split(error, report) from None
    return (
        spool.mark(lambda start, end: ~np.isin(items[start:end], chosen)),
        spool.mark(lambda start, end: np.isin(items[start:end], chosen)),
    )


def _strata(spool: Spool, input: "Input", output: "Output") -> np.ndarray:
    """A number for each row; rows with one number are split in like shares."""

    def of(row: Sequence[Any]) -> tuple[str, ...] | float:
        return output.strata(output.unpack(input.unpack(row)[1]))

    first = of(next(iter(spool.rows())))
    if isinstance(first, float):
        return strata_of_numbers(spool.numbers(of, kind=np.float64)[0])
    counts: Counter[str] = Counter()
    for row in spool.rows():
        counts.update(of(row))  # type: ignore[arg-type]
    order = label_order(counts)
    return spool.numbers(lambda row: min((order[name] for name in of(row)), default=-1), kind=np.int64)[0]  # type: ignore[union-attr]


def overlap_with(
    hashes: Hashes, valid: Sequence[Sequence[Any]], input: "Input", output: "Output", seed: int
) -> Overlap:
    """How much of the given validation data is in the training data."""
    whole, items, targets = hashes
    key = key_of(seed)
    if output.pair_split:
        return overlap_of_hashes((items, targets), [(row[0], row[1]) for row in valid], key)
    of_items = np.array([hash_of(input.identity(input.unpack(row)[0]), key) for row in valid], np.uint64)
    known_items = count_known(of_items, items)
    if input.by_item:
        return Overlap(len(valid), known_items, known_items)
    return Overlap(len(valid), count_known(np.array([_row_hash(row) for row in valid], np.uint64), whole), known_items)
