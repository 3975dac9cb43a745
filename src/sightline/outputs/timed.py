"""Words with their times: as subtitles (SubRip, WebVTT), as a TextGrid of Praat, as rows of JSON.

Times that a model gives may overlap, go backwards or be no numbers. Everything here writes whole milliseconds, in
order, without overlap, and each word takes one at least.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sightline.metrics.texts import stands_alone

PAUSE = 0.7  # seconds of silence that end a subtitle
LONGEST = 359_000_000  # milliseconds: hours have two digits
_CONTROL = dict.fromkeys([*range(32), *range(127, 160)], " ")


class TimedWord(NamedTuple):
    """A word, where it starts and ends in seconds, and how sure the model is of it."""

    text: str
    start: float
    end: float
    confidence: float | None = None


class Cue(NamedTuple):
    """A subtitle: its text, of one line or two, and when it is shown, in seconds."""

    text: str
    start: float
    end: float


class _Span(NamedTuple):
    """A text, and its times in milliseconds."""

    text: str
    start: int
    end: int


def cues(
    words: Sequence[TimedWord], most_seconds: float = 6.0, most_characters: int = 84, pause: float = PAUSE
) -> list[Cue]:
    """Words as subtitles, cut at pauses. What is too long is cut at its longest pause, of equal ones the middle one.

    A text of more than half of ``most_characters`` has two lines. A word that is too long by itself is not cut.
    """
    spans = [one._replace(text=one.text.replace("\n", " ")) for one in _spans(words) if one.text]
    waiting, shown = [spans] if spans else [], []
    while waiting:
        some = waiting.pop()
        gaps = [after.start - before.end for before, after in itertools.pairwise(some)]
        too_long = (
            some[-1].end - some[0].start > 1000 * most_seconds
            or len(_joined([one.text for one in some])) > most_characters
        )
        if gaps and (too_long or max(gaps) >= 1000 * pause):
            cut = 1 + max(range(len(gaps)), key=lambda gap: (gaps[gap], -abs(2 * gap + 1 - len(gaps))))
            waiting += [some[cut:], some[:cut]]
        else:
            text = _in_lines([one.text for one in some], most_characters // 2)
            shown.append(Cue(text, some[0].start / 1000, some[-1].end / 1000))
    return shown


def to_srt(cues: Sequence[Cue | TimedWord]) -> str:
    """SubRip. It has no escapes: ``-->`` in a text is written as an arrow."""
    blocks = (
        f"{number}\n{_clock(one.start, ',')} --> {_clock(one.end, ',')}\n{one.text.replace('-->', '→')}\n"
        for number, one in enumerate(filter(_text, _spans(cues)), start=1)
    )
    return "\n".join(blocks)


def to_vtt(cues: Sequence[Cue | TimedWord]) -> str:
    """WebVTT."""
    escapes = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
    blocks = (
        f"\n{_clock(one.start, '.')} --> {_clock(one.end, '.')}\n{one.text.translate(escapes)}\n"
        for one in filter(_text, _spans(cues))
    )
    return "WEBVTT\n" + "".join(blocks)


def to_textgrid(
    words: Sequence[TimedWord], seconds: float, tiers: Mapping[str, Sequence[TimedWord]] | None = None
) -> str:
    """A TextGrid of Praat, in its long form: a tier of ``words``, then ``tiers`` of other units by their names.

    ``seconds`` is how long the recording is. Time without a word is an interval without a text.
    """
    named = {"words": words, **(tiers or {})}
    end = max([_milliseconds(seconds, 0), 1, *(_spans(some)[-1].start + 1 for some in named.values() if some)])
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", "xmin = 0", f"xmax = {_decimal(end)}"]
    lines += ["tiers? <exists>", f"size = {len(named)}", "item []:"]
    for number, (name, some) in enumerate(named.items(), start=1):
        intervals = _without_gaps([one._replace(end=min(one.end, end)) for one in _spans(some)], end)
        lines += [f"    item [{number}]:", '        class = "IntervalTier"', f"        name = {_quoted(name)}"]
        lines += ["        xmin = 0", f"        xmax = {_decimal(end)}", f"        intervals: size = {len(intervals)}"]
        for place, one in enumerate(intervals, start=1):
            lines += [f"        intervals [{place}]:", f"            xmin = {_decimal(one.start)}"]
            lines += [f"            xmax = {_decimal(one.end)}", f"            text = {_quoted(one.text)}"]
    return "\n".join(lines) + "\n"


def to_rows(words: Sequence[TimedWord]) -> list[dict[str, object]]:
    """Words as plain data: text, start and end in seconds, and the confidence where there is one."""
    rows: list[dict[str, object]] = []
    for word, one in zip(words, _spans(words), strict=True):
        rows.append({"word": one.text, "start": one.start / 1000, "end": one.end / 1000})
        if word.confidence is not None and math.isfinite(word.confidence):
            rows[-1]["confidence"] = round(word.confidence, 4)
    return rows


def to_jsonl(words: Sequence[TimedWord]) -> str:
    """A line of JSON for each word."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in to_rows(words))


def _text(one: _Span) -> str:
    return one.text


def _milliseconds(seconds: float, otherwise: int) -> int:
    return min(max(round(1000 * seconds), 0), LONGEST) if math.isfinite(seconds) else otherwise


def _spans(words: "Sequence[TimedWord | Cue]") -> list[_Span]:
    """The texts on a line each as they were, with times in order: a word ends where the next one starts, or before."""
    starts: list[int] = []
    for one in words:
        least = starts[-1] + 1 if starts else 0
        starts.append(max(_milliseconds(one.start, least), least))
    ends = [max(_milliseconds(one.end, 0), start + 1) for one, start in zip(words, starts, strict=True)]
    ends[:-1] = map(min, ends[:-1], starts[1:])
    return [_Span(_plain(one.text), start, end) for one, start, end in zip(words, starts, ends, strict=True)]


def _plain(text: str) -> str:
    """Lines without control characters, empty lines, and spaces that are too many."""
    lines = (" ".join(line.translate(_CONTROL).split()) for line in text.splitlines())
    return "\n".join(filter(None, lines)).encode("utf-8", "replace").decode("utf-8")


def _joined(texts: Sequence[str]) -> str:
    """The words as a text: with spaces, but not between characters of scripts without them."""
    joined = ""
    for text in filter(None, texts):
        joined += " " if joined and not (stands_alone(joined[-1]) and stands_alone(text[0])) else ""
        joined += text
    return joined


def _in_lines(texts: Sequence[str], most: int) -> str:
    """The words on one line, or where that is too long on two that are about as long."""
    line = _joined(texts)
    if len(line) <= most or len(texts) < 2:
        return line
    places = range(1, len(texts))
    middle = min(places, key=lambda place: abs(len(_joined(texts[:place])) - len(_joined(texts[place:]))))
    return f"{_joined(texts[:middle])}\n{_joined(texts[middle:])}"


def _clock(time: int, point: str) -> str:
    seconds, rest = divmod(time, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{rest:03}"


def _decimal(time: int) -> str:
    return f"{time // 1000}.{time % 1000:03}"


def _quoted(text: str) -> str:
    return '"{}"'.format(_plain(text).replace("\n", " ").replace('"', '""'))


def _without_gaps(spans: Sequence[_Span], end: int) -> list[_Span]:
    """Intervals from 0 to the end, with empty ones where there is no word."""
    filled: list[_Span] = []
    for one in spans:
        before = filled[-1].end if filled else 0
        filled += [_Span("", before, one.start)] if one.start > before else []
        filled.append(one)
    last = filled[-1].end if filled else 0
    return filled + ([_Span("", last, end)] if end > last else [])
