"""Dates as people write them, in cells and in questions. Nothing here imports torch."""

import re

Date = tuple[int | None, int | None, int | None]  # year, month, day

_MONTHS = "january february march april may june july august september october november december"
MONTHS = {name: number for number, name in enumerate(_MONTHS.split(), start=1)}
MONTHS |= {name[:3]: number for name, number in MONTHS.items()} | {"sept": 9}
# The longest names first: "mar" must not take the beginning of "march".
_MONTH = f"(?:{'|'.join(sorted(MONTHS, key=len, reverse=True))})\\b\\.?"
_DAY = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)?(?![0-9:.,]*[0-9])"
_DAY_COMMA = r"(?:3[01]|[12][0-9]|0?[1-9])(?:st|nd|rd|th)?(?![0-9])"
_YEAR = r"(?:1[0-9]{3}|20[0-9]{2})(?![0-9]|[.,][0-9])"
_WEEKDAY = r"(?:(?:mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b\.?,? ?)?"
_TO = r" ?(?:[-/&]|and|to|until) ?"
_FORMS = [
    # March 5, 2010; March 5; March 5–7, 2010; March 5 – April 2, 2010 begins on March 5
    rf"(?P<m>{_MONTH}) (?P<d>{_DAY_COMMA})(?!/)"
    rf"(?:{_TO}(?:{_MONTH} )?{_DAY_COMMA})?(?:,? ?(?P<y>{_YEAR}))?",
    # 5 March 2010; the 5th of March; 5–7 March 2010
    rf"(?:the )?(?P<d>{_DAY_COMMA})\.?(?:{_TO}{_DAY_COMMA}\.?)?(?:-| ?of | )?(?P<m>{_MONTH})"
    rf"(?:[-,]? ?(?P<y>{_YEAR})|-(?P<z>[0-9]{{2}})(?![0-9]))?",
    rf"(?P<m>{_MONTH}),?[- ]?(?P<y>{_YEAR})",  # March 2010
    rf"(?P<y>{_YEAR}),?[- ](?P<m>{_MONTH})(?:[- ](?P<d>{_DAY}))?",  # 2010 March 5
    r"(?P<y>[12][0-9]{3})(?P<s>[-/.])(?P<m>1[0-2]|0?[1-9])(?P=s)(?P<d>3[01]|[12][0-9]|0?[1-9])(?![0-9])",  # 2010-03-05
    r"(?P<a>[0-3]?[0-9])(?P<s>[-/.])(?P<b>[0-3]?[0-9])(?P=s)(?P<y>[12][0-9]{3}|[0-9]{2})(?![0-9]|[-/.][0-9])",
    r"(?P<y>[12][0-9]{3}) ?年 ?(?:(?P<m>1[0-2]|0?[1-9]) ?月 ?(?:(?P<d>3[01]|[12][0-9]|0?[1-9]) ?[日号])?)?",
    r"(?P<m>1[0-2]|0?[1-9]) ?月 ?(?P<d>3[01]|[12][0-9]|0?[1-9]) ?[日号]",
]
_COMPILED = [re.compile(_WEEKDAY + form) for form in _FORMS]
_IN_TEXT = [re.compile(r"(?<![\w.,/-])" + form) for form in _FORMS]
_ONLY_MONTH = re.compile(rf"(?:early |mid[- ]|late )?(?P<m>{_MONTH})")
_HINT = re.compile(rf"{_MONTH}|[0-9][-/.][0-9]+[-/.][0-9]|[年月]")
# What may stand behind the date of a cell: a range, a time, a remark.
_BEHIND = re.compile(r" *(?:$|[-(;/,*&|]|to\b|until\b|at\b|[0-9]{1,2}:)")
LONGEST = 100  # characters of a cell that is a date


def date_of(text: str, day_first: bool | None = None) -> Date | None:
    """The date that a cell begins with, if it is one as a whole or has a range, a time or a remark behind it.

    ``text`` is lower-cased, its blanks are single, its dashes hyphens. ``day_first``: whether 3/4/2010 is in April; a
    cell of its own is read as in America, unless its first number can be no month.
    """
    if len(text) > LONGEST or _HINT.search(text) is None:
        return None
    for form in _COMPILED:
        match = form.match(text)
        if match and _BEHIND.match(text, match.end()):
            date = _checked(match, day_first)
            if date is not None:
                return date
    only = _ONLY_MONTH.fullmatch(text)
    return (None, MONTHS[only["m"].rstrip(".")], None) if only else None


def dates_in(text: str) -> list[tuple[Date, int, int]]:
    """All dates in a text of which more than the year is given, with their characters; the text is as for `date_of`."""
    if _HINT.search(text) is None:
        return []
    matches = [one for form in _IN_TEXT for one in form.finditer(text)]
    dates: list[tuple[Date, int, int]] = []
    for one in sorted(matches, key=lambda match: (match.start(), -match.end())):
        date = _checked(one, None)
        if date is not None and (not dates or one.start() >= dates[-1][2]):
            dates.append((date, one.start(), one.end()))
    return dates


def day_order(texts: list[str]) -> bool | None:
    """Whether the first number of 3/4/2010 is the day in these cells: yes, no, or nothing tells."""
    first = second = False
    for text in texts:
        match = _COMPILED[5].match(text) if len(text) <= LONGEST else None
        if match and match["s"] != ".":
            first, second = first or int(match["a"]) > 12, second or int(match["b"]) > 12
    return first if first != second else None


def _checked(match: re.Match[str], day_first: bool | None) -> Date | None:
    fields = match.groupdict()
    year = int(fields["y"]) if fields.get("y") else _full(int(fields["z"])) if fields.get("z") else None
    if fields.get("a"):
        first, second = int(fields["a"]), int(fields["b"])
        swapped = fields["s"] == "." if day_first is None else day_first
        day, month = (first, second) if (swapped or first > 12) and second <= 12 else (second, first)
        if len(fields["y"]) == 2 and year is not None:
            year = _full(year)
    else:
        name, days = fields["m"], fields.get("d")
        if name is None:
            return None  # a year alone
        month = MONTHS[name.rstrip(".")] if name[0].isalpha() else int(name)
        day = int(days.rstrip("stndrh")) if days else None  # type: ignore[assignment]
    if not 1 <= month <= 12 or (day is not None and not 1 <= day <= _days(month)):
        return None
    return year, month, day


def _full(year: int) -> int:
    """A year of two digits: of this century up to 30."""
    return year + (2000 if year <= 30 else 1900)


def _days(month: int) -> int:
    return 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31
