"""What stands in the cells of a table: numbers, dates, pairs and lists.

A number is found wherever it stands in a cell: ``SR-192`` is 192, ``Top 2`` is 2. A cell that is a date beyond a year
has no number: the day of 5 March is none. Nothing here imports torch.

What people get wrong: the sign of −3.2; ``No. 496``, which is not 0.496; ``1:13.2`` and ``58.9``, which are seconds;
``March 5, 2010``, which is not 52,010; ``$1.5 million`` beside ``$900,000``; 2004–05, which ends in 2005.
"""

import math
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from sightline.data.dates import Date, date_of, day_order

READ = 1_000  # characters of a cell in which numbers are looked for
MOST_ITEMS = 1_000  # of a list in a cell

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
CARDINALS = {word: float(number) for number, word in enumerate(_SMALL.split())}
CARDINALS |= {word: 10.0 * number for number, word in enumerate(_TENS.split(), start=2)}
ORDINALS = {word: float(number) for number, word in enumerate(_ORDINALS.split(), start=1)}
NUMBER_WORDS = CARDINALS | ORDINALS


class Value(NamedTuple):
    """What a cell holds. ``second`` is the number behind the first, as in 3–2; ``date`` is year, month and day, each or
    None; ``items`` are those of a list, without their remarks, or none."""

    number: float | None
    second: float | None
    date: Date | None
    items: tuple[str, ...]


NOTHING = Value(None, None, None, ())
# Each of them is one character, so that places in the text remain.
_SAME = {ord(one): " " for one in "\xa0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000"}
_SAME |= (
    {ord(one): "-" for one in "‐‑‒–—―−﹣－"} | {ord(one): "'" for one in "’‘ʼ`´′"} | {ord(one): '"' for one in "“”„″"}
)
_SAME |= {0xFF10 + digit: str(digit) for digit in range(10)}
_NUMBER = re.compile(
    r"(?:(?<![^\s(])(?P<sign>[-+]) ?)?(?P<money>[$£€¥₹] ?)?(?:"
    r"(?P<groups>[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?(?![0-9])"  # 12,467.5
    r"|[0-9]{1,3}(?: [0-9]{3})+(?:\.[0-9]+)?(?![0-9])"  # 12 467
    r"|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9]))"  # 12,34,567
    r"|(?P<dots>[0-9]{1,3}(?:\.[0-9]{3}){2,}(?![0-9]))"  # 12.467.000
    r"|(?P<comma>(?<![0-9],)[0-9]+,[0-9]{1,2}(?![0-9]|,[0-9]))"  # 14,3
    r"|(?P<plain>(?<![a-z.])\.[0-9]+(?![0-9])|[0-9]+[½¼¾⅓⅔]|[½¼¾⅓⅔]|[0-9]+(?:\.[0-9]+)?))"
    r"(?: ?(?P<times>thousand|million|billion|trillion|lakh|crore|万|萬|亿|億)(?![a-z])"
    r"| ?(?P<short>[kmb]n?|mln)(?![a-z0-9]))?"
)
_TIMES = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12, "lakh": 1e5, "crore": 1e7, "mln": 1e6}
_TIMES |= {"mn": 1e6, "bn": 1e9, "万": 1e4, "萬": 1e4, "亿": 1e8, "億": 1e8, "k": 1e3, "m": 1e6, "b": 1e9}
_FRACTIONS = {"½": 1 / 2, "¼": 1 / 4, "¾": 3 / 4, "⅓": 1 / 3, "⅔": 2 / 3}
_TIME = re.compile(
    r"(?P<sign>(?<![^\s(])[-+] ?)?(?<![0-9:.])(?P<a>[0-9]{1,3}):(?P<b>[0-5][0-9])(?::(?P<c>[0-5][0-9]))?"
    r"(?P<f>[.,][0-9]{1,3})?(?![0-9:])(?: ?(?P<half>[ap])\.?m\b)?"
)
_PLACE = re.compile(
    r"(?P<d>[0-9]{1,3}(?:\.[0-9]{1,8})?) ?[°º] ?(?:(?P<m>[0-9]{1,2}(?:\.[0-9]{1,8})?)')? ?"
    r"(?:(?P<s>[0-9]{1,2}(?:\.[0-9]{1,8})?)(?:\"|''))? ?(?P<side>[nsew])\b"
)
_LONG = re.compile(
    r"(?P<a>[0-9]{1,4}) ?(?P<unit>ft|feet|foot|years?|hours?|h|lb)\b\.?,? ?(?:and )?(?P<b>[0-9.]{1,6}) ?[a-z]"
)
_PARTS = {"f": 12, "y": 365.25, "h": 60, "l": 16}
_SEASON = re.compile(r"([12][0-9])([0-9]{2}) ?[-/] ?([0-9]{2})(?![0-9-]|/)")
_POWER = re.compile(r"(?<=\bkm)[23]\b|(?<=[0-9] m)[23]\b|(?<=[0-9]m)[23]\b|(?<=[0-9] ft)[23]\b|(?<=[0-9] mi)[23]\b")
NOTE = re.compile(r"\[[^][]{0,40}\]")
_MARKS = " *†‡#^§¶•♦♠↑↓~\t\r"
ROUND = re.compile(r"\([^()]{0,200}\)")


def cell_value(text: str, day_first: bool | None = None) -> Value:
    """What a cell holds. ``day_first`` tells whether 3/4/2010 is in April; `column_values` finds that out."""
    return _cell_value(text, day_first) if len(text) <= 200 else _read(text, day_first)


def column_values(texts: Sequence[str]) -> list[Value]:
    """What the cells of a column hold. If one of them is 23/4/2010, then 3/4/2010 is in April."""
    day_first = day_order([plain_text(text) for text in texts if text[:1].isdigit() and len(text) < 100])
    return [cell_value(text, day_first) for text in texts]


def order_value(value: Value) -> float | None:
    """A cell as one number to sort by: its date if that is more than a year, else its number."""
    return _date_order(value.date) if value.date and is_dated(value) else value.number


def column_order(values: Sequence[Value]) -> list[float | None]:
    """The cells of a column as numbers to sort by: either all of them dates or all of them numbers. They are dates if
    there is a date beyond a year, and if at least as many cells have a date or a year as have another number."""
    dated = sum(value.date is not None for value in values)
    others = sum(value.date is None and value.number is not None for value in values)
    if dated >= others and any(map(is_dated, values)):
        return [_date_order(value.date) if value.date else None for value in values]
    return [value.number for value in values]


def compare_values(cell: Value, asked: Value) -> int | None:
    """Whether a cell is less (−1), equal (0) or greater (1) than a number of a question, or None: not comparable. Dates
    are compared in the fields that the question gives: 5 March 2010 is equal to 2010, and to March."""
    if is_dated(cell) or is_dated(asked):
        if cell.date is None or asked.date is None:
            return None
        pairs = [(own, other) for own, other in zip(cell.date, asked.date, strict=True) if other is not None]
        if any(own is None for own, _ in pairs):
            # A year against a day of that year: neither before nor behind it, and not the same.
            years = (cell.date[0], asked.date[0])
            return None if None in years or years[0] == years[1] else (1 if years[0] > years[1] else -1)  # type: ignore[operator]
        own, other = ([pair[i] or 0 for pair in pairs] for i in range(2))
        return (own > other) - (own < other)
    if cell.number is None or asked.number is None:
        return None
    return 0 if math.isclose(cell.number, asked.number, rel_tol=1e-12) else 1 if cell.number > asked.number else -1


def is_dated(value: Value) -> bool:
    return value.date is not None and value.date[1:] != (None, None)


def _date_order(date: Date) -> float:
    year, month, day = (field or 0 for field in date)
    return year * 10_000.0 + month * 100 + day


def plain_text(text: str) -> str:
    """Lower-cased, with blanks, dashes, quotes and digits of one kind; as long as the text, but for a few letters."""
    return text.translate(_SAME).lower()


@lru_cache(maxsize=50_000)
def _cell_value(text: str, day_first: bool | None) -> Value:
    return _read(text, day_first)


def _read(text: str, day_first: bool | None) -> Value:
    if text.isdecimal() and text.isascii() and len(text) < 16:  # most numbers of most tables
        year = (int(text), None, None) if len(text) == 4 and "1000" <= text <= "2100" else None
        return Value(float(text), None, year, ())
    text = text.translate(_SAME)
    lower = text.lower().strip().replace("\ufeff", "")
    bare = (NOTE.sub("", lower) if "[" in lower else lower).strip(_MARKS)
    items = list_items(text)
    if not any(map(str.isdigit, bare[:READ])) and len(bare) > 20:
        return Value(None, None, None, items) if items else NOTHING
    if bare in NUMBER_WORDS:
        return Value(NUMBER_WORDS[bare], None, None, ())
    head = " ".join(bare[:READ].split())
    without = ROUND.sub("", head).strip(_MARKS) if "(" in head else head
    date = date_of(without, day_first) or (date_of(head, day_first) if without != head else None)
    if date is not None:
        if date[1] is None:  # 2010年
            return Value(float(date[0] or 0), None, date, ())
        return Value(None, None, date, items if "\n" in text or ";" in text else ())
    lines = bare[:READ].replace("\n", " ; ") if "\n" in bare else bare[:READ]
    numbers = numbers_in(" ".join(lines.split()) or lower[:READ])
    first, second = next(numbers, None), next(numbers, None)
    return Value(first, second, _year(without, first), items)


def _year(text: str, number: float | None) -> Date | None:
    if number is None or not 1000 <= number <= 2100 or len(text) != 4 or not text.isdecimal():
        return None
    return int(number), None, None


def numbers_in(text: str) -> Iterator[float]:
    """The numbers of a text from the left. The text is lower-cased, its dashes are hyphens."""
    place = 0
    if "°" in text or "º" in text:
        for side in _PLACE.finditer(text):
            degrees = sum(float(side[key] or 0) / size for key, size in (("d", 1), ("m", 60), ("s", 3600)))
            yield -degrees if side["side"] in "sw" else degrees
            place = -1
        if place < 0:
            return
    if "m" in text or "f" in text:
        text = _POWER.sub("", text)
    season = _SEASON.match(text)
    if season and int(season[2]) + 1 == int(season[3]) % 100 + 100 * (season[2] == "99"):
        yield float(season[1] + season[2])
        yield float(season[1] + season[2]) + 1
        place = season.end()
    while match := _NUMBER.search(text, place):
        time = _TIME.match(text, match.start()) if ":" in text else None
        if time:
            yield _seconds(time)
            place = time.end()
            continue
        long = _LONG.match(text, match.start())
        if long and long["b"].count(".") <= 1 and long["b"] != ".":
            yield float(long["a"]) + float(long["b"]) / _PARTS[long["unit"][0]]
            place = long.end()
            continue
        number = _number(match, text)
        place = match.end()
        if number is not None:
            yield number


def _seconds(time: re.Match[str]) -> float:
    """A time of day or a duration; minutes and seconds where there are two numbers, unless a.m. or p.m. is behind."""
    first, second, third = (int(time[key] or 0) for key in "abc")
    rest = float("0." + time["f"][1:]) if time["f"] else 0.0
    if time["half"]:
        first, second, third = first % 12 + 12 * (time["half"] == "p"), second, third
        return 3600.0 * first + 60 * second + third
    value = 3600.0 * first + 60 * second + third + rest if time["c"] else 60.0 * first + second + rest
    return -value if time["sign"] and time["sign"][0] == "-" else value


def _number(match: re.Match[str], text: str) -> float | None:
    if match["plain"]:
        digits = match["plain"]
        part = _FRACTIONS.get(digits[-1], 0.0)
        value = (float(digits[:-1] or 0) if part else float(digits)) + part
    elif match["comma"]:
        value = float(match["comma"].replace(",", "."))
    else:
        value = float((match["groups"] or match["dots"].replace(".", "")).replace(",", "").replace(" ", ""))
    if match["times"]:
        value *= _TIMES[match["times"]]
    elif match["short"] and match["money"]:
        value *= _TIMES[match["short"][0]]
    if match["sign"] == "-" and not (text[: match.start()].rstrip()[-1:].isdigit() or text[match.start() + 1] == " "):
        value = -value
    return value if math.isfinite(value) else None


def list_items(text: str) -> tuple[str, ...]:
    """The items of a list, if a cell is one: by lines, else by semicolons, else by commas outside brackets."""
    text = text[: 100 * READ]
    if "\n" in text.strip():
        parts = text.split("\n", MOST_ITEMS)
    elif ";" in text:
        parts = text.split(";", MOST_ITEMS)
    elif ", " in text or ("," in text and not any(map(str.isdigit, text[:READ]))):
        parts = list(_outside_brackets(text))
    else:
        return ()
    parts = [(NOTE.sub("", part) if "[" in part else part).strip(_MARKS) for part in parts]
    kept = tuple(part for part in parts if part)
    return kept if len(kept) > 1 else ()


def _outside_brackets(text: str) -> Iterator[str]:
    start = depth = 0
    for match in re.finditer(r"[(),]", text):
        if match[0] == ",":
            if depth == 0:
                yield text[start : match.start()]
                start = match.end()
        else:
            depth = max(0, depth + (1 if match[0] == "(" else -1))
    yield text[start:]
