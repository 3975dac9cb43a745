"""Records prepared for a picture: subwords merged into words, rows shifted, heads averaged; and the texts of labels."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from sightline.records import Axis, Record, Slots, Tokens, TopK

# --- The text of a label.

LONGEST = 24  # characters of a text that are shown
BLANK = "␣"  # shown instead of blanks alone
# They would change the direction of the text around them; a label shows them as numbers.
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def shown(text: str, longest: int = LONGEST) -> str:
    """A text as a label: never empty, nothing that breaks a file, and at most ``longest`` characters.

    Blanks alone are ␣, control characters their symbols (␀), invalid characters �, and invisible ones their numbers.
    """
    if len(text) > longest:
        end = (longest - 1) // 2
        text = f"{text[: longest - 1 - end]}…{text[len(text) - end :]}"
    text = text.strip(" ")
    if not text:
        return BLANK
    if all(unseen(character) for character in text):
        return "".join(map(_number, text))
    text = "".join(map(_seen, text))
    # a combining mark at the start gets the dotted circle as its base
    return f"◌{text}" if unicodedata.category(text[0]) in ("Mn", "Me", "Mc") else text


def _seen(character: str) -> str:
    code, category = ord(character), unicodedata.category(character)
    if code < 0x20 or code == 0x7F:
        return "␡" if code == 0x7F else chr(0x2400 + code)
    if category in ("Cc", "Cs") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF:
        return "�"
    if category in ("Zl", "Zp"):
        return "␤"
    return _number(character) if character in _TURNS else character


def unseen(character: str) -> bool:
    """Whether a character is invisible and only changes others: a joiner, a mark of direction."""
    return unicodedata.category(character) == "Cf" or 0xFE00 <= ord(character) <= 0xFE0F


def _number(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def right_to_left(text: str) -> bool:
    """Whether most letters of a text are written from right to left."""
    kinds = [unicodedata.bidirectional(character) for character in text]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


# --- Records prepared for a picture.

SPACE = "▁"  # the blank before a word in subword vocabularies
_BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")  # a character without a piece of its own


@dataclass(frozen=True)
class _Grouping:
    """Tokens in groups: ``group_of`` gives for each place of the old axis its place on the new one."""

    axis: Axis
    group_of: np.ndarray


def merge_words(record: Record) -> Record:
    """The same map of words: weights of a word's columns are added, weights of its rows are averaged.

    Special tokens stay separate. An axis without known words stays as it is. Scores are dropped: a sum of weights has
    no score.
    """
    rows, columns = _grouped(record.rows), _grouped(record.columns)
    weights: np.ndarray | TopK
    if isinstance(record.weights, TopK):
        weights = _merge_largest(record.weights, rows, columns)
    else:
        weights = _merge_all(record.weights, rows, columns)
    return replace(record, rows=rows.axis, columns=columns.axis, weights=weights, scores=None)


def shifted(record: Record, rows: int) -> Record:
    """The map moved down by ``rows`` (up if negative): row r shows what row r − rows had, or nothing.

    For decoders that attend to a word one step before or after they write it.
    """
    if rows == 0:
        return record
    count = len(record.rows)
    source = np.arange(count) - rows
    empty = (source < 0) | (source >= count)
    source = np.where(empty, 0, source)
    weights: np.ndarray | TopK
    if isinstance(record.weights, TopK):
        places, values = record.weights.places[source], record.weights.weights[source]
        places[empty], values[empty] = -1, 0.0
        weights = TopK(places, values, record.weights.columns)
    else:
        weights = record.weights[source]
        weights[empty] = 0.0
    return replace(record, weights=weights, scores=None)


def mean_record(records: Sequence[Record]) -> Record:
    """The mean of several maps over the same rows and columns. A layer or head that they do not share becomes −1."""
    if not records:
        raise ValueError("there is no record to take the mean of")
    first = records[0]
    if any((one.rows, one.columns) != (first.rows, first.columns) for one in records):
        raise ValueError("the mean of records needs the same rows and columns in each of them")
    if len(records) == 1:
        return replace(first, scores=None)
    # one after the other, so that only two whole maps are in memory at once
    total = reduce(np.add, (one.matrix() for one in records), np.zeros((len(first.rows), len(first.columns))))
    return Record(
        name=first.name if len({one.name for one in records}) == 1 else "mean",
        layer=first.layer if len({one.layer for one in records}) == 1 else -1,
        head=first.head if len({one.head for one in records}) == 1 else -1,
        rows=first.rows,
        columns=first.columns,
        weights=(total / len(records)).astype(np.float32),
    )


LEAST = 0.01  # a weight that makes a slot worth showing


def without_empty(records: Sequence[Record]) -> list[Record]:
    """The maps without the slots behind the last one that has a weight, where fewer than half have one.

    Only named slots are left out, the same ones of every map; their name then says how many.
    """
    axes = {one.columns for one in records}
    axis = axes.pop() if len(axes) == 1 else None
    if not isinstance(axis, Slots) or not axis.name:
        return list(records)
    highest = np.max([one.matrix().max(axis=0, initial=0.0) for one in records], axis=0)
    shown = int(np.flatnonzero(highest >= LEAST).max(initial=-1)) + 1
    if not 0 < shown < len(axis) / 2:
        return list(records)
    name = f"{axis.name} ({len(axis) - shown:,} more have no weight of {LEAST})"
    columns = Slots(shown, name)
    return [replace(one, columns=columns, weights=one.matrix()[:, :shown], scores=None) for one in records]


def places_of_words(axis: Axis) -> np.ndarray:
    """For each place of an axis its place on that of `merge_words`."""
    return _grouped(axis).group_of


def _grouped(axis: Axis) -> _Grouping:
    if not isinstance(axis, Tokens) or axis.words is None:
        return _Grouping(axis, np.arange(len(axis)))
    special = set(axis.special)
    groups: list[list[int]] = []
    for place, word in enumerate(axis.words):
        if place > 0 and word == axis.words[place - 1] and not {place, place - 1} & special:
            groups[-1].append(place)
        else:
            groups.append([place])
    texts = tuple(_word([axis.texts[place] for place in group], group[0] in special) for group in groups)
    kept = tuple(number for number, group in enumerate(groups) if group[0] in special)
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return _Grouping(Tokens(texts, tuple(range(len(groups))), kept, axis.name), group_of)


def _word(pieces: Sequence[str], special: bool) -> str:
    if special:
        return pieces[0]
    # "##" and "@@" mark where a word continues, in vocabularies that do not mark where it begins
    parts = [piece.removeprefix("##") if place else piece for place, piece in enumerate(pieces)]
    parts = [part.removesuffix("@@") if place < len(parts) - 1 else part for place, part in enumerate(parts)]
    text = _BYTES.sub(_from_bytes, "".join(parts)).replace(SPACE, " ").strip()
    return text or BLANK


def _from_bytes(match: re.Match[str]) -> str:
    return bytes(int(one, 16) for one in re.findall("[0-9A-F]{2}(?=>)", match[0])).decode("utf-8", "replace")


def _merge_all(weights: np.ndarray, rows: _Grouping, columns: _Grouping) -> np.ndarray:
    added = np.zeros((len(columns.axis), len(weights)), dtype=weights.dtype)
    np.add.at(added, columns.group_of, weights.T)
    merged = np.zeros((len(rows.axis), len(columns.axis)), dtype=weights.dtype)
    np.add.at(merged, rows.group_of, added.T)
    return merged / np.bincount(rows.group_of, minlength=len(rows.axis))[:, None].astype(weights.dtype)


def _merge_largest(top: TopK, rows: _Grouping, columns: _Grouping) -> TopK:
    """Row by row, so that memory stays linear in the length."""
    merged_rows: list[tuple[np.ndarray, np.ndarray]] = []
    for number in range(len(rows.axis)):
        own = np.flatnonzero(rows.group_of == number)
        places, values = top.places[own], top.weights[own]
        kept = places >= 0
        merged = np.zeros(len(columns.axis), dtype=values.dtype)
        np.add.at(merged, columns.group_of[places[kept]], values[kept])
        some = np.unique(columns.group_of[places[kept]])
        some = some[np.argsort(-merged[some], kind="stable")]
        merged_rows.append((some, merged[some] / max(len(own), 1)))
    most = max((len(some) for some, _ in merged_rows), default=0)
    places = np.full((len(merged_rows), most), -1, dtype=np.int32)
    weights = np.zeros((len(merged_rows), most), dtype=top.weights.dtype)
    for number, (some, values) in enumerate(merged_rows):
        places[number, : len(some)], weights[number, : len(some)] = some, values
    return TopK(places, weights, len(columns.axis))
