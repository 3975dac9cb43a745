"""Records made ready to be looked at: subwords put together into words, rows moved, heads averaged."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from sightline.records import Axis, Record, Tokens, TopK

# What a picture shows of a user's text.


LONGEST = 24  # characters of a text that are shown
BLANK = "␣"  # what is shown of blanks alone
# They would turn the text around them; a label shows that they are there.
_TURNS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def shown(text: str, longest: int = LONGEST) -> str:
    """What a picture shows of a text: never nothing, nothing that breaks a file, and no more than fits.

    Blanks alone are ␣, control characters their signs (␀), what is no character at all �, and what cannot be seen is
    written as its number.
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
    # a mark that stands on the letter before it gets the dotted circle to stand on
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
    """Whether a character only changes others and has no shape of its own: a joiner, a mark of direction."""
    return unicodedata.category(character) == "Cf" or 0xFE00 <= ord(character) <= 0xFE0F


def _number(character: str) -> str:
    return f"⟨U+{ord(character):04X}⟩"


def right_to_left(text: str) -> bool:
    """Whether a text runs from right to left: whether most of its letters do."""
    kinds = [unicodedata.bidirectional(character) for character in text]
    return sum(kind in ("R", "AL") for kind in kinds) > sum(kind == "L" for kind in kinds)


SPACE = "▁"  # how subword vocabularies write the blank before a word
_BYTES = re.compile(r"(?:<0x[0-9A-F]{2}>)+")  # how they write a character that has no piece of its own


@dataclass(frozen=True)
class _Grouping:
    """Which tokens stand together: ``group_of`` says for each place of the old axis its place on the new one."""

    axis: Axis
    group_of: np.ndarray


def merge_words(record: Record) -> Record:
    """The same map of words: what a word's tokens were given is added up, what they looked at is averaged.

    Special tokens stay on their own. An axis of which no words are known stays as it is. Scores are left out: a sum of
    weights has no score.
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

    For decoders that look at a word one step before or after they write it.
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


def _grouped(axis: Axis) -> _Grouping:
    if not isinstance(axis, Tokens) or axis.words is None:
        return _Grouping(axis, np.arange(len(axis)))
    special = set(axis.special)
    groups: list[list[int]] = []
    for place, word in enumerate(axis.words):
        goes_on = place > 0 and word == axis.words[place - 1] and not {place, place - 1} & special
        if goes_on:
            groups[-1].append(place)
        else:
            groups.append([place])
    texts = tuple(_word([axis.texts[place] for place in group], group[0] in special) for group in groups)
    kept = tuple(number for number, group in enumerate(groups) if group[0] in special)
    group_of = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return _Grouping(Tokens(texts, tuple(range(len(groups))), kept), group_of)


def _word(pieces: Sequence[str], special: bool) -> str:
    if special:
        return pieces[0]
    # "##" and "@@" are the marks of vocabularies that write where a word goes on instead of where it begins
    parts = [piece.removeprefix("##") if place else piece for place, piece in enumerate(pieces)]
    parts = [part.removesuffix("@@") if place < len(parts) - 1 else part for place, part in enumerate(parts)]
    text = _BYTES.sub(_from_bytes, "".join(parts)).replace(SPACE, " ").strip()
    return text or BLANK


def _from_bytes(found: re.Match[str]) -> str:
    return bytes(int(one, 16) for one in re.findall("[0-9A-F]{2}(?=>)", found[0])).decode("utf-8", "replace")


def _merge_all(weights: np.ndarray, rows: _Grouping, columns: _Grouping) -> np.ndarray:
    added = np.zeros((len(columns.axis), len(weights)), dtype=weights.dtype)
    np.add.at(added, columns.group_of, weights.T)
    merged = np.zeros((len(rows.axis), len(columns.axis)), dtype=weights.dtype)
    np.add.at(merged, rows.group_of, added.T)
    return merged / np.bincount(rows.group_of, minlength=len(rows.axis))[:, None].astype(weights.dtype)


def _merge_largest(top: TopK, rows: _Grouping, columns: _Grouping) -> TopK:
    """Row by row, so that memory stays linear in the length."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for number in range(len(rows.axis)):
        own = np.flatnonzero(rows.group_of == number)
        places, values = top.places[own], top.weights[own]
        kept = places >= 0
        merged = np.zeros(len(columns.axis), dtype=values.dtype)
        np.add.at(merged, columns.group_of[places[kept]], values[kept])
        some = np.unique(columns.group_of[places[kept]])
        some = some[np.argsort(-merged[some], kind="stable")]
        found.append((some, merged[some] / max(len(own), 1)))
    most = max((len(some) for some, _ in found), default=0)
    places = np.full((len(found), most), -1, dtype=np.int32)
    weights = np.zeros((len(found), most), dtype=top.weights.dtype)
    for number, (some, values) in enumerate(found):
        places[number, : len(some)], weights[number, : len(some)] = some, values
    return TopK(places, weights, len(columns.axis))
