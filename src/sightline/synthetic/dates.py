"""The demo's data: dates as people write them in many languages, and the day they mean, as ISO 8601.

Names and patterns are in ``dates.json``, which `benchmarks/make_dates.py` makes from Unicode CLDR (under the Unicode
licence), with some more that people use. Only what a reader can resolve without knowing the language is kept:

- years have four digits, so that a year cannot be taken for a day;
- the month is a word ("March", "3月", "tháng 3") that means that month in every language here in which it means any
  ("listopad" is October to Croats and November to Poles: such a word would be left out), or
- the form is of numbers only and the year comes first: 2021-03-04 is the 4th of March everywhere. Day before month or
  month before day (03/04/2021) is left out, rather than tagged with a locale that no one writes.

With two numbers and a word, or with the order fixed, one text can mean one day only. Days are Gregorian. Digits other
than 0-9 are used where people use them: Arabic, Persian, Hindi, full-width Japanese, and Chinese numerals.
"""

import functools
import json
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from sightline.errors import UserError

LANGUAGES = (
    *("ar", "bg", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hi", "hu", "id"),
    *("it", "ja", "ko", "nl", "pl", "ro", "ru", "sv", "tr", "uk", "vi", "zh"),
)
HELD_OUT = "pt"  # never in training: near enough to Spanish that something can be guessed, and not only copied
FIRST, LAST = date(1950, 1, 1), date(2050, 12, 31)

Pairs = list[tuple[str, str]]
Form = Callable[[date], str]

_DIGITS = {"ar": "٠١٢٣٤٥٦٧٨٩", "fa": "۰۱۲۳۴۵۶۷۸۹", "hi": "०१२३४५६७८९", "ja": "０１２３４５６７８９"}


class DateSplit(NamedTuple):
    """Pairs for training, for choosing and for the report. No calendar day is on two of the sides."""

    train: Pairs
    valid: Pairs
    test: Pairs


def make_dates(count: int, seed: int, languages: Sequence[str] | None = None) -> Pairs:
    """Pairs such as ``("12. März 2021", "2021-03-12")``: day, language and form are drawn evenly."""
    days = np.arange((LAST - FIRST).days + 1)
    return _draw(days, count, np.random.default_rng(seed), languages or LANGUAGES)


def split_dates(seed: int, train: int = 60_000, valid: int = 2_000, test: int = 2_000) -> DateSplit:
    """Eight tenths of the days are for training, one for validation and one for the test."""
    counts = (train, valid, test)
    drawn = [
        _draw(days, count, np.random.default_rng([seed, side]), LANGUAGES)
        for side, (days, count) in enumerate(zip(_split_days(seed), counts, strict=True))
    ]
    return DateSplit(*drawn)


def held_out_language(seed: int, count: int = 1_000) -> Pairs:
    """Test pairs in a language that is never in training, of the test days of the same seed.

    Some of its months ("abril", "agosto") are those of a language that is: a model can get those right.
    """
    return _draw(_split_days(seed)[2], count, np.random.default_rng([seed, 3]), (HELD_OUT,))


def _split_days(seed: int) -> list[np.ndarray]:
    days = np.random.default_rng(seed).permutation((LAST - FIRST).days + 1)
    return np.split(days, [len(days) * 8 // 10, len(days) * 9 // 10])


def _draw(days: np.ndarray, count: int, random: np.random.Generator, languages: Sequence[str]) -> Pairs:
    for language in languages:
        if language not in (*LANGUAGES, HELD_OUT):
            raise UserError(f"there are no dates in {language!r}; there is {', '.join((*LANGUAGES, HELD_OUT))}")
    forms = [forms_of(language) for language in languages]
    chosen_days = random.choice(days, count).tolist()
    chosen_languages = random.integers(len(languages), size=count).tolist()
    chosen_forms = random.random(count).tolist()
    pairs = []
    for offset, language, share in zip(chosen_days, chosen_languages, chosen_forms, strict=True):
        day = FIRST + timedelta(offset)
        form = forms[language][int(share * len(forms[language]))]
        pairs.append((form(day), day.isoformat()))
    return pairs


@functools.cache
def forms_of(language: str) -> tuple[Form, ...]:
    """Every way of writing a day in a language that a reader can resolve."""
    data = _languages()[language]
    forms: list[Form] = [functools.partial(_write, form, data["names"], language) for form in data["forms"]]
    if language in _DIGITS:
        table = str.maketrans("0123456789", _DIGITS[language])
        forms += [functools.partial(_with_digits, form, table) for form in forms]
    return tuple(forms)


@functools.cache
def _languages() -> dict[str, Any]:
    """Of each language its forms, as format strings, and the names of months (M, L) and days (E, c) in them."""
    file = resources.files("sightline.synthetic").joinpath("dates.json")
    return json.loads(file.read_text(encoding="utf-8"))["languages"]


def _write(form: str, names: dict[str, list[str]], language: str, day: date) -> str:
    words = {field: of[day.month - 1 if field[0] in "ML" else day.weekday()] for field, of in names.items()}
    ordinal = _ordinal(day.day, language)
    return form.format(**words, y=day.year, M=day.month, d=day.day, ordinal=ordinal, in_words=_chinese(day))


def _with_digits(form: Form, table: dict[int, int], day: date) -> str:
    return form(day).translate(table)


def _ordinal(number: int, language: str) -> str:
    if language == "fr":
        return "1er" if number == 1 else str(number)
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _chinese(day: date) -> str:
    year = "".join("〇一二三四五六七八九"[int(digit)] for digit in str(day.year))
    return f"{year}年{_chinese_number(day.month)}月{_chinese_number(day.day)}日"


def _chinese_number(number: int) -> str:
    tens, ones = divmod(number, 10)
    return ("", "十", "二十", "三十")[tens] + ("", *"一二三四五六七八九")[ones]
