"""Whether an answer to a question about a table is right, by the official rules of WikiTableQuestions.

An answer is a set of items. It is right if it has as many items as the right one, and if each item of the right one is
equal to one of it. Two items are equal if their normalised texts are, or their numbers to 1e-6, or their dates in all
fields. A year alone is a number. What people get wrong: exact strings, which miss ``1,000`` for ``1000``; lists instead
of sets, which count an item twice.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

from sightline.metrics.base import Statistics, mean_statistics, metric

_QUOTES = {ord(one): "'" for one in "‘’´`"} | {ord(one): '"' for one in "“”"}
_DASHES = {ord(one): "-" for one in "‐‑‒–—−"}
_SAME = _QUOTES | _DASHES
_MARKS = frozenset("•♦†‡*#+")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?", re.IGNORECASE)
_DATE = re.compile(r"(xx|xxxx|[0-9]{1,4})-(xx|[0-9]{1,2})-(xx|[0-9]{1,2})")
_COMMAS = re.compile(r",(?=[0-9]{3})")
_TOLERANCE = 1e-6
_LONGEST_NUMBER = 400


class Item(NamedTuple):
    """One item of an answer: its normalised text and, if it is one, its number or its date."""

    text: str
    number: float | None = None
    date: tuple[int, int, int] | None = None  # −1 where a field is not given


def normalise_answer(text: str) -> str:
    """The text that is compared: without accents, with plain quotes and dashes, without marks of footnotes, remarks in
    brackets at the end, outer quotes and a final full stop; lower-cased, blanks single."""
    text = "".join(one for one in unicodedata.normalize("NFKD", text) if unicodedata.category(one) != "Mn")
    text = text.translate(_SAME)
    while True:
        before, text = text, _without_remarks(text.strip())
        if len(text) > 1 and text[0] == '"' == text[-1] and '"' not in text[1:-1]:
            text = text[1:-1]
        if text == before:
            break
    text = text.removesuffix(".")
    return " ".join(text.lower().split())


def _without_remarks(text: str) -> str:
    """Without marks of footnotes, [..] and (..) at the end, in any order; of what stands first, nothing is left out.
    No character is looked at twice, so that a hostile text takes no longer than a plain one."""
    end = len(text)
    while end > 1:
        last, start = text[end - 1], end - 1
        if last == "]":
            start = text.find("[", text.rfind("]", 0, end - 1) + 1, end)
        elif last == ")":
            start = text.find(" (", text.rfind(")", 0, end - 1) + 1, end)
        elif last not in _MARKS and not last.isspace():
            break
        if start <= 0:
            break
        end = start
    return text[:end].rstrip()


def read_item(text: str, target: bool = False) -> Item:
    """An item with its number or date. Commas are read in the right answer only: the official right answers are
    numbers, not texts."""
    normal, stripped = normalise_answer(text), text.strip()
    bare = _COMMAS.sub("", stripped) if target else stripped
    if len(bare) <= _LONGEST_NUMBER and _NUMBER.fullmatch(bare) and math.isfinite(float(bare)):
        return Item(normal, float(bare))
    match = _DATE.fullmatch(stripped.lower())
    if match is None:
        return Item(normal)
    year, month, day = (-1 if field.startswith("x") else int(field) for field in match.groups())
    if (year, month, day) == (-1, -1, -1) or not (month == -1 or 1 <= month <= 12) or not (day == -1 or 1 <= day <= 31):
        return Item(normal)
    if month == day == -1:
        return Item(normal, float(year))
    return Item(normal, None, (year, month, day))


def equal_items(target: str | Item, predicted: str | Item) -> bool:
    """Whether one item is the other."""
    own = target if isinstance(target, Item) else read_item(target, target=True)
    other = predicted if isinstance(predicted, Item) else read_item(predicted)
    if own.text == other.text:
        return True
    if own.number is not None and other.number is not None:
        return abs(own.number - other.number) < _TOLERANCE
    return own.date is not None and own.date == other.date


def same_denotation(targets: Sequence[str], predicted: Sequence[str]) -> bool:
    """Whether an answer of several items is right."""
    if isinstance(targets, str) or isinstance(predicted, str):
        raise TypeError("an answer is a list of items")
    own, others = _distinct(targets, True), _distinct(predicted, False)
    return len(own) == len(others) and all(any(equal_items(one, other) for other in others) for one in own)


def _distinct(texts: Sequence[str], target: bool) -> list[Item]:
    distinct: dict[object, Item] = {}
    for item in (read_item(text, target) for text in texts):
        is_text = item.number is None and item.date is None
        distinct[item.text if is_text else (item.number, item.date)] = item
    return list(distinct.values())


@metric("denotation|wikitablequestions")
def denotation(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Statistics:
    """The share of questions with the right answer."""
    return mean_statistics([100.0 * same_denotation(right, one) for one, right in zip(predicted, gold, strict=True)])
