"""The demo's data: dates as people write them in many languages, and the day they mean, as ISO 8601.

Names and patterns are those of Unicode CLDR, through Babel, with some more that people use. Only what a reader can
resolve without knowing the language is kept, and that is seen to by construction:

- years have four digits, so that a year cannot be taken for a day;
- the month is a word ("March", "3月", "tháng 3") that means that month in every language here in which it means any
  ("listopad" is October to Croats and November to Poles: such a word would be left out), or
- the form is of numbers only and the year comes first: 2021-03-04 is the 4th of March everywhere. Day before month or
  month before day (03/04/2021) is left out, rather than tagged with a locale that no one writes.

With two numbers and a word, or with the order fixed, one text can mean one day only. Days are Gregorian. Digits other
than 0-9 are used where people use them: Arabic, Persian, Hindi, full-width Japanese, and Chinese numerals.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from babel import Locale
from babel.dates import format_date, tokenize_pattern

from sightline.errors import UserError

LANGUAGES = (
    *("ar", "bg", "cs", "da", "de", "el", "en", "es", "fa", "fi", "fr", "he", "hi", "hu", "id"),
    *("it", "ja", "ko", "nl", "pl", "ro", "ru", "sv", "tr", "uk", "vi", "zh"),
)
HELD_OUT = "pt"  # never in training: near enough to Spanish that something can be guessed, and not only copied
FIRST, LAST = date(1950, 1, 1), date(2050, 12, 31)

Pairs = list[tuple[str, str]]
Form = Callable[[date], str]

_SKELETONS = ("yMMMd", "yMMMMd", "yMMMEd", "yMMMMEEEEd", "yMd", "yMEd")
_AS_PEOPLE_WRITE = {
    "cs": ("EEEE, d. MMMM y",),
    "de": ("d. MMM y", "EEEE, 'den' d. MMMM y"),
    "en": ("d MMMM y", "d MMM y", "EEEE, d MMMM y", "EEE d MMM y", "MMMM d y", "MMM d y", "y-MM-dd", "y/MM/dd"),
    "es": ("d MMMM y", "EEEE d 'de' MMMM 'de' y", "d 'de' MMMM 'del' y"),
    "fi": ("EEEE d. MMMM y",),
    "fr": ("EEEE, d MMMM y", "'le' d MMMM y", "'le' EEEE d MMMM y"),
    "hu": ("y. MMMM d", "y.MM.dd."),
    "id": ("EEEE, d MMMM y",),
    "it": ("EEEE, d MMMM y",),
    "ja": ("y年MM月dd日", "y.M.d", "y-MM-dd"),
    "ko": ("y년 M월 d일", "y년M월d일", "y.MM.dd", "y-MM-dd"),
    "nl": ("EEEE, d MMMM y",),
    "pl": ("d MMMM y 'r.'", "EEEE d MMMM y"),
    "ru": ("d MMMM y", "EEEE, d MMMM y"),
    "sv": ("'den' d MMMM y",),
    "tr": ("d MMMM y, EEEE",),
    "uk": ("d MMMM y", "d MMMM y 'року'"),
    "vi": ("'ngày' d MMMM 'năm' y", "EEEE, 'ngày' d MMMM 'năm' y"),
    "zh": ("y年MM月dd日", "y-M-d", "y-MM-dd", "y.M.d", "y年M月d日 EEEE"),
}
_DIGITS = {"ar": "٠١٢٣٤٥٦٧٨٩", "fa": "۰۱۲۳۴۵۶۷۸۹", "hi": "०१२३४५६७८९", "ja": "０１２３４５６７８９"}
# Spaces that do not break are for the printer, and marks of direction for the screen: no one types them.
_TYPED = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u200e": None, "\u200f": None})


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
    locale = Locale.parse(language)
    patterns = [pattern.pattern for pattern in locale.date_formats.values()]
    patterns += [locale.datetime_skeletons[name].pattern for name in _SKELETONS if name in locale.datetime_skeletons]
    patterns += _AS_PEOPLE_WRITE.get(language, ())
    kept = [pattern for pattern in dict.fromkeys(patterns) if _is_clear(pattern, language)]
    forms: list[Form] = [functools.partial(_write, pattern, language) for pattern in kept]
    if language in _DIGITS:
        table = str.maketrans("0123456789", _DIGITS[language])
        forms += [functools.partial(_with_digits, form, table) for form in forms]
    forms += {"en": (_english_of, _english_ordinal, _english_american), "fr": (_french,), "zh": (_chinese,)}.get(
        language, ()
    )
    return tuple(forms)


def _write(pattern: str, language: str, day: date) -> str:
    return format_date(day, pattern, language).translate(_TYPED)


def _with_digits(form: Form, table: dict[int, int], day: date) -> str:
    return form(day).translate(table)


def _is_clear(pattern: str, language: str) -> bool:
    """Whether a pattern meets the rules at the top of this file."""
    fields = [value for _, value in tokenize_pattern(pattern) if isinstance(value, tuple)]  # the rest is plain text
    order = "".join("M" if name == "L" else name for name, _ in fields if name not in "Ec")
    widths = {"M" if name == "L" else name: (name, width) for name, width in fields}
    if sorted(order) != ["M", "d", "y"] or widths["y"][1] not in (1, 4):
        return False
    return order == "yMd" or _month_word_is_clear(*widths["M"], language)


def _month_word_is_clear(field: str, width: int, language: str) -> bool:
    if width not in (3, 4):
        return False
    names = _month_names(language, field, width)
    return all(_month_words()[word] == {month} and not word.isdecimal() for month, word in names.items())


def _month_names(language: str, field: str, width: int) -> dict[int, str]:
    names = Locale.parse(language).months["stand-alone" if field == "L" else "format"]
    return {
        month: name.strip(" .").casefold() for month, name in names["wide" if width == 4 else "abbreviated"].items()
    }


@functools.cache
def _month_words() -> dict[str, set[int]]:
    """What each word for a month means, in all the languages together."""
    meanings: dict[str, set[int]] = defaultdict(set)
    for language in (*LANGUAGES, HELD_OUT):
        for field in "ML":
            for width in (3, 4):
                for month, word in _month_names(language, field, width).items():
                    meanings[word].add(month)
    return dict(meanings)


def _ordinal(number: int) -> str:
    ending = "th" if number in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _english_of(day: date) -> str:
    return f"{_ordinal(day.day)} of {_write('MMMM y', 'en', day)}"


def _english_ordinal(day: date) -> str:
    return f"{_ordinal(day.day)} {_write('MMMM y', 'en', day)}"


def _english_american(day: date) -> str:
    return f"{_write('MMMM', 'en', day)} {_ordinal(day.day)}, {day.year}"


def _french(day: date) -> str:
    return f"{'1er' if day.day == 1 else day.day} {_write('MMMM y', 'fr', day)}"


def _chinese(day: date) -> str:
    year = "".join("〇一二三四五六七八九"[int(digit)] for digit in str(day.year))
    return f"{year}年{_chinese_number(day.month)}月{_chinese_number(day.day)}日"


def _chinese_number(number: int) -> str:
    tens, ones = divmod(number, 10)
    return ("", "十", "二十", "三十")[tens] + ("", *"一二三四五六七八九")[ones]
