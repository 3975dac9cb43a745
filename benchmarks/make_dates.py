"""Write `src/sightline/synthetic/dates.json`: how dates are written in the languages of the demo.

    python benchmarks/make_dates.py

Names and patterns are those of Unicode CLDR, through Babel, with some more that people use. CLDR is under the Unicode
licence. A pattern is kept where a reader can resolve it without knowing the language; `sightline.synthetic.dates` gives
the rules. The file holds the patterns as Python format strings, and the names that they need.
"""

import functools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import babel
from babel import Locale
from babel.dates import tokenize_pattern

from sightline.synthetic.dates import HELD_OUT, LANGUAGES

FILE = Path(__file__).parents[1] / "src/sightline/synthetic/dates.json"
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
# The fields `ordinal` and `in_words` are made by `sightline.synthetic.dates`.
_MORE_FORMS = {
    "en": ("{ordinal} of {MMMM} {y}", "{ordinal} {MMMM} {y}", "{MMMM} {ordinal}, {y}"),
    "fr": ("{ordinal} {MMMM} {y}",),
    "zh": ("{in_words}",),
}
# Spaces that do not break are for the printer, and marks of direction for the screen: no one types them.
_TYPED = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u200e": None, "\u200f": None})


def make() -> dict[str, Any]:
    """The content of the file."""
    return {"babel": babel.__version__, "languages": {name: _language(name) for name in (*LANGUAGES, HELD_OUT)}}


def _language(language: str) -> dict[str, Any]:
    locale = Locale.parse(language)
    patterns = [pattern.pattern for pattern in locale.date_formats.values()]
    patterns += [locale.datetime_skeletons[name].pattern for name in _SKELETONS if name in locale.datetime_skeletons]
    patterns += _AS_PEOPLE_WRITE.get(language, ())
    kept = [pattern for pattern in dict.fromkeys(patterns) if _is_clear(pattern, language)]
    forms = [_form(pattern) for pattern in kept] + list(_MORE_FORMS.get(language, ()))
    names = {
        field: [text.translate(_TYPED) for _, text in sorted(_names(locale, field).items())]
        for field in ("MMM", "MMMM", "LLL", "LLLL", "EEE", "EEEE", "ccc", "cccc")
        if any(f"{{{field}}}" in form for form in forms)
    }
    return {"forms": forms, "names": names}


def _form(pattern: str) -> str:
    """A pattern of CLDR as a format string: a field in braces."""
    form = ""
    for _, value in tokenize_pattern(pattern):
        if not isinstance(value, tuple):
            form += value.replace("{", "{{").replace("}", "}}")
            continue
        name, width = value
        if name in "Md" and width < 3:
            form += f"{{{name}:02}}" if width == 2 else f"{{{name}}}"
        else:
            form += "{y}" if name == "y" else f"{{{name * max(3, width)}}}"
    return form.translate(_TYPED)


def _names(locale: Locale, field: str) -> dict[int, str]:
    names = locale.months if field[0] in "ML" else locale.days
    return names["stand-alone" if field[0] in "Lc" else "format"]["wide" if len(field) == 4 else "abbreviated"]


def _is_clear(pattern: str, language: str) -> bool:
    """Whether a pattern meets the rules of `sightline.synthetic.dates`."""
    fields = [value for _, value in tokenize_pattern(pattern) if isinstance(value, tuple)]  # the rest is plain text
    order = "".join("M" if name == "L" else name for name, _ in fields if name not in "Ec")
    widths = {"M" if name == "L" else name: (name, width) for name, width in fields}
    if sorted(order) != ["M", "d", "y"] or widths["y"][1] not in (1, 4):
        return False
    return order == "yMd" or _month_word_is_clear(*widths["M"], language)


def _month_word_is_clear(field: str, width: int, language: str) -> bool:
    if width not in (3, 4):
        return False
    names = _month_names(language, field * width)
    return all(_month_words()[word] == {month} and not word.isdecimal() for month, word in names.items())


def _month_names(language: str, field: str) -> dict[int, str]:
    return {month: name.strip(" .").casefold() for month, name in _names(Locale.parse(language), field).items()}


@functools.cache
def _month_words() -> dict[str, set[int]]:
    """The months that each word means, in all the languages together."""
    meanings: dict[str, set[int]] = defaultdict(set)
    for language in (*LANGUAGES, HELD_OUT):
        for field in ("MMM", "MMMM", "LLL", "LLLL"):
            for month, word in _month_names(language, field).items():
                meanings[word].add(month)
    return dict(meanings)


def main() -> None:
    content = make()
    lines = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(one, ensure_ascii=False)}" for name, one in content["languages"].items()
    )
    FILE.write_text(f'{{"babel": "{content["babel"]}", "languages": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
