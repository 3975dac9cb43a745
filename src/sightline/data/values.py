"""What stands in a question about a table, and which cells it names. What stands in cells: `sightline.data.cells`.

Nothing here imports torch.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from sightline.data.cells import (
    NOTE,
    NUMBER_WORDS,
    ROUND,
    Value,
    cell_value,
    column_order,
    column_values,
    compare_values,
    is_dated,
    list_items,
    order_value,
    plain_text,
)
from sightline.data.dates import MONTHS, dates_in

__all__ = ["QuestionNumber", "Value", "cell_matches", "cell_value", "column_order", "column_values", "compare_values"]
__all__ += ["order_value", "question_numbers", "question_words"]


MOST_CELL = 2_000  # characters of a cell that are looked up in a question
_POWERS = {"hundred": 1e2, "thousand": 1e3, "million": 1e6, "billion": 1e9}
_NAMES = "|".join(sorted([*NUMBER_WORDS, *_POWERS, "dozen", "twice"], key=len, reverse=True))
_IN_WORDS = re.compile(rf"\b(?:{_NAMES})\b(?:(?:[- ]| and )(?:{_NAMES})\b){{0,6}}")
_DIGITS = re.compile(
    r"(?<![\w.,])(?:[-+±] ?)?[$£€¥₹#]? ?\.?[0-9][0-9.,:]*(?: (?:[0-9]{3}(?![0-9])))*"
    r"(?:[-/][0-9]+)*"
    r"(?: ?(?:thousand|million|billion|trillion|lakh|crore|[ap]\.?m\b)\.?|[kmb]n?\b|st\b|nd\b|rd\b|th\b|%)?"
)
# One and first are numbers only where they are compared: not in "which one" and "the first year".
_COMPARED = re.compile(r"(?:at least|at most|than|exactly|only|over|under|below|above|least|fewer|to|of|with|just) $")
_PLACED = re.compile(r"(?:finish(?:ed|es|ing)?|rank(?:ed|s|ing)?|plac(?:ed|es|ing)|came|come|in|number) $")
_BEFORE_MONTH = re.compile(r"(?:in|during|of|since|after|before|until|for|from|to|and|or|by|through|month) $")
_MONTH = re.compile(rf"\b(?:{'|'.join(sorted(MONTHS, key=len, reverse=True))})\b")
_VERBS = frozenset({"may", "march", "mar", "sun", "sat"})
_CHINESE = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_STOPPED = """a an the of in on at to for from by with and or not no is are was were be been did do does has have had
how many much what which who whom whose when where why there their his her its it he she they this that these those than
more most less least fewer only all any each as after before during first last next previous same other name number
total list listed table chart one ones also into out over under up down per if so s"""
STOP_WORDS = frozenset(_STOPPED.split())


class QuestionNumber(NamedTuple):
    """A number or a date in a question, with its characters."""

    value: Value
    start: int
    end: int


def question_numbers(text: str) -> list[QuestionNumber]:
    """The numbers and dates of a question from the left: digits, words, ordinals, years, dates, months.

    Not numbers: one, where nothing is compared ("which one"), and first, where it is no place ("the first year").
    """
    plain = plain_text(text)
    if len(plain) != len(text):  # a letter whose small form is two
        plain = text.lower() if len(text.lower()) == len(text) else text
    taken = [QuestionNumber(Value(None, None, date, ()), *place) for date, *place in dates_in(plain)]
    taken += _free(_of_digits(plain), taken)
    taken += _free(_in_words(plain), taken)
    taken += _free(_months(plain), taken)
    return sorted(taken, key=lambda one: one.start)


def question_words(text: str) -> list[tuple[str, int, int]]:
    """The words, numbers and signs of a question, lower-cased, with their characters. Chinese characters and kana are
    words of one; ``'s`` is a word of its own."""
    return [(match[0].lower().replace("’", "'"), match.start(), match.end()) for match in _tokens().finditer(text)]


def cell_matches(cells: Sequence[Sequence[str]], question: str) -> list[list[bool]]:
    """Which cells the question names: rows × columns.

    A cell is named if its text stands in the question as whole words, with or without what is in brackets, or if one
    item of its list does; or if it is a number or a date that the question has. In a column without such a cell, those
    cells are named that share the most words with the question (of as many, the rarest in the column), except words
    that stand in more than half of its cells.
    """
    asked = _Question(question)
    columns = [asked.column([row[column] for row in cells]) for column in range(len(cells[0]) if cells else 0)]
    return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in cells]


def _free(numbers: Iterator[QuestionNumber], taken: list[QuestionNumber]) -> list[QuestionNumber]:
    """Those that begin in none that is there already. A question with very many numbers keeps the first of them."""
    places = {place for one in taken[:1000] for place in range(one.start, one.end)}
    return [one for one, _ in zip(numbers, range(1000), strict=False) if one.start not in places]


def _of_digits(text: str) -> Iterator[QuestionNumber]:
    for match in _DIGITS.finditer(text):
        words = match[0].rstrip(".,:")
        value = cell_value(words.strip())
        if value.number is not None or value.date is not None:
            skipped = len(words) - len(words.lstrip())
            yield QuestionNumber(value._replace(items=()), match.start() + skipped, match.start() + len(words))


def _in_words(text: str) -> Iterator[QuestionNumber]:
    for match in _IN_WORDS.finditer(text):
        words = re.split(r"[- ]+(?:and )?", match[0])
        before = text[max(0, match.start() - 20) : match.start()]
        if words == ["one"] and not (_COMPARED.search(before) or text.startswith(" or more", match.end())):
            continue
        if words == ["first"] and not (_PLACED.search(before) or text.startswith(" place", match.end())):
            continue
        number = _words_number(words)
        if number is not None:
            yield QuestionNumber(Value(number, None, None, ()), match.start(), match.end())


def _words_number(words: list[str]) -> float | None:
    """Twenty-five, two hundred and six, twenty-first; None where the words are not one number (two three)."""
    total = part = 0.0
    for place, word in enumerate(words):
        if word in _POWERS:
            part = (part or 1) * _POWERS[word]
            if word != "hundred":
                total, part = total + part, 0.0
        elif word in ("dozen", "twice"):
            part = (part or 1) * 12 if word == "dozen" else 2.0
        else:
            value = NUMBER_WORDS[word]
            if place and part % 100 and not (part % 100 >= 20 and part % 10 == 0 and value < 10):
                return None
            part += value
    return total + part


def _months(text: str) -> Iterator[QuestionNumber]:
    for match in _MONTH.finditer(text):
        before = text[max(0, match.start() - 12) : match.start()]
        if (match[0] not in _VERBS and len(match[0]) > 3) or _BEFORE_MONTH.search(before):
            yield QuestionNumber(Value(None, None, (None, MONTHS[match[0]], None), ()), match.start(), match.end())


@cache
def _tokens() -> re.Pattern[str]:
    marks = "".join(
        re.escape(chr(code)) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)) in ("Mn", "Mc")
    )
    letter = f"(?:(?![{_CHINESE}])[^\\W\\d_][{marks}]*)"
    number = r"[0-9]+(?:[.,:][0-9]+)*|\d+"
    return re.compile(f"[{_CHINESE}]|{number}|['’]s\\b|{letter}+(?:['’](?!s\\b){letter}+)*|\\S")


_WORDS_OF = re.compile(f"[{_CHINESE}]|[0-9]+(?:[.,:][0-9]+)*|(?:(?![{_CHINESE}])\\w)+")
_ASCII_WORDS = re.compile(r"[0-9]+(?:[.,:][0-9]+)*|[a-z_]\w*", re.ASCII)
_POSSESSIVE = re.compile(r"['’]s?\b")
_MARKED = dict.fromkeys(code for code in range(0x300, 0x370))
_STARTS = frozenset("0123456789.-+±−–$£€¥₹#½")
_NUMBER_CELL = re.compile(
    r"[-+±−–]?[$£€¥₹#]? ?[0-9½.][0-9.,:\s]*(?:%|st|nd|rd|th)?"
    r"(?:\s?(?:km|m|cm|mm|mi|ft|kg|g|t|lbs?|mph|km/h|kw|mw|hp|s|sec|min|million|billion|thousand|years?|points?|pts"
    r"|goals?|laps?|miles|feet|met(?:re|er)s|hours?|days?|[ap]\.?m\.?))?(?:\s?(?:\[[^][]{0,20}\]|[*†‡=.]))?",
    re.IGNORECASE,
)


def _words_of(text: str) -> list[str]:
    """The words that are compared: lower-cased, without signs, accents and the ending of the genitive."""
    if text.isascii():
        folded, pattern = text.lower(), _ASCII_WORDS
    else:
        folded, pattern = unicodedata.normalize("NFKD", text).translate(_MARKED).lower(), _WORDS_OF
    if "'" in folded or "’" in folded:
        folded = _POSSESSIVE.sub("", folded)
    words = pattern.findall(folded)
    return [word.replace(",", "") for word in words] if "," in folded else words


class _Question:
    """A question as it is looked up for each cell."""

    def __init__(self, text: str) -> None:
        self.words = _words_of(text)
        self.places: dict[str, list[int]] = {}
        for place, word in enumerate(self.words):
            self.places.setdefault(word, []).append(place)
        self.all = frozenset(self.words)
        self.content = frozenset(
            word for word in self.words if word not in STOP_WORDS and (len(word) > 1 or not word.isascii())
        )
        self.values = [one.value for one in question_numbers(text)]
        self.numbers = frozenset(_rounded(value.number) for value in self.values if value.number is not None)
        self.dates = [value for value in self.values if value.date is not None]
        # What stands in every cell with one of these dates, as far as that can be told.
        years = [str(value.date[0])[-2:] if value.date and value.date[0] else "" for value in self.dates]
        self.hints = tuple(dict.fromkeys(years))

    def column(self, texts: Sequence[str]) -> list[bool]:
        named: dict[str, bool] = {}
        shared: dict[str, frozenset[str]] = {}
        for text in texts:
            if text not in named:
                cell = text if len(text) <= MOST_CELL else text[:MOST_CELL]
                words = _words_of(cell)
                named[text] = (not self.all.isdisjoint(words) and self.names(cell, words)) or self.has_value(cell)
                shared[text] = self.content.intersection(words)
        if any(named.values()):
            return [named[text] for text in texts]
        counts = Counter(word for text in texts for word in shared[text])
        kept = frozenset(word for word, count in counts.items() if 2 * count <= len(texts))
        if not kept:
            return [False] * len(texts)
        scores = {
            text: (len(own & kept), -sum(counts[word] for word in own & kept))
            for text, own in shared.items()
            if not own.isdisjoint(kept)
        }
        best = max(scores.values())
        return [scores.get(text) == best for text in texts]

    def names(self, text: str, words: list[str]) -> bool:
        if self.holds(words):
            return True
        if ("(" in text or "[" in text) and self.holds(_words_of(NOTE.sub(" ", ROUND.sub(" ", text)))):
            return True
        if not ("," in text or "\n" in text or ";" in text):
            return False
        items = list_items(text)
        return any(self.holds(_words_of(item)) or self.holds(_words_of(ROUND.sub(" ", item))) for item in items)

    def holds(self, words: list[str]) -> bool:
        """Whether these words stand in the question side by side, and are more than a stop word or one character."""
        if not words or words[0] not in self.places or (len(words) == 1 and words[0] in STOP_WORDS):
            return False
        if len(words) == 1 and len(words[0]) < 2 and words[0].isascii():
            return False
        size = len(words)
        return any(self.words[place : place + size] == words for place in self.places[words[0]])

    def has_value(self, text: str) -> bool:
        if not self.values or len(text) > 100:
            return False
        if text.isdecimal():
            return float(text) in self.numbers
        for hint in self.hints:
            if hint in text:
                value = cell_value(text)
                if is_dated(value) and any(compare_values(value, asked) == 0 for asked in self.dates):
                    return True
                break
        if not self.numbers or text[:1] not in _STARTS or _NUMBER_CELL.fullmatch(text) is None:
            return False
        number = cell_value(text).number
        return number is not None and _rounded(number) in self.numbers


def _rounded(number: float) -> float:
    return float(f"{number:.12g}")
