"""Words with times: what is written is read back by small parsers that know the formats only."""

import html
import itertools
import json
import math
import random
import re
import subprocess
import sys

import pytest

from sightline.outputs.timed import Cue, TimedWord, cues, to_jsonl, to_rows, to_srt, to_textgrid, to_vtt

pytestmark = pytest.mark.fast

WORDS = [TimedWord("turn", 0.31, 0.6, 0.91), TimedWord("it", 0.6, 0.75), TimedWord("off", 2.0, 2.4004, 1.0)]
HOSTILE = [
    TimedWord('say "x" & <b>--></b>', -3.0, 0.5),
    TimedWord("back\n\nwards\x00", 0.4, 0.2),
    TimedWord("no", math.nan, math.inf),
    TimedWord("", 0.6, 0.7),
    TimedWord("\ud800lone", 0.6, 50.0),
    TimedWord("late", 1e9, 2e9, math.nan),
]


def seconds_of(clock, point):
    hours, minutes, seconds, rest = re.fullmatch(rf"(\d\d):(\d\d):(\d\d){re.escape(point)}(\d{{3}})", clock).groups()
    assert int(minutes) < 60
    assert int(seconds) < 60
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds) + int(rest) / 1000


def read_srt(text):
    blocks = [block.split("\n") for block in text.strip("\n").split("\n\n")] if text else []
    assert [int(block[0]) for block in blocks] == list(range(1, len(blocks) + 1))
    read = []
    for _, times, *lines in blocks:
        start, end = times.split(" --> ")
        assert lines
        assert all(line and "-->" not in line for line in lines)
        read.append(("\n".join(lines), seconds_of(start, ","), seconds_of(end, ",")))
    return read


def read_vtt(text):
    header, *blocks = text.removesuffix("\n").split("\n\n")
    assert header == "WEBVTT"
    read = []
    for times, *lines in (block.split("\n") for block in blocks):
        start, end = times.split(" --> ")
        assert all(line and "-->" not in line and "<" not in line for line in lines)
        assert all(re.fullmatch(r"([^&]|&(amp|lt|gt);)*", line) for line in lines)
        read.append((html.unescape("\n".join(lines)), seconds_of(start, "."), seconds_of(end, ".")))
    return read


def read_textgrid(text):
    """The tiers; everything in its place and in its order."""
    flat = re.findall(r'^ *(\w[\w ]*) = ("(?:[^"]|"")*"|[\d.]+)$', text, re.MULTILINE)
    assert flat[:3] == [("File type", '"ooTextFile"'), ("Object class", '"TextGrid"'), ("xmin", "0")]
    end = float(dict(flat[:4])["xmax"])
    tiers, place = {}, 5
    while place < len(flat):
        assert flat[place] == ("class", '"IntervalTier"')
        name = flat[place + 1][1]
        assert flat[place + 2] == ("xmin", "0")
        assert float(flat[place + 3][1]) == end
        place += 4
        intervals = []
        while place < len(flat) and flat[place][0] == "xmin":
            keys = [key for key, _ in flat[place : place + 3]]
            assert keys == ["xmin", "xmax", "text"]
            start, stop, label = (value for _, value in flat[place : place + 3])
            intervals.append((label[1:-1].replace('""', '"'), float(start), float(stop)))
            place += 3
        tiers[name[1:-1].replace('""', '"')] = intervals
        assert f"intervals: size = {len(intervals)}" in text
    assert f"size = {len(tiers)}\n" in text
    return tiers, end


def assert_in_order(read):
    last = 0.0
    for _, start, end in read:
        assert last <= start < end
        last = end


def test_words_are_subtitles_cut_at_pauses():
    shown = cues(WORDS)
    assert shown == [Cue("turn it", 0.31, 0.75), Cue("off", 2.0, 2.4)]
    assert to_srt(shown) == "1\n00:00:00,310 --> 00:00:00,750\nturn it\n\n2\n00:00:02,000 --> 00:00:02,400\noff\n"
    assert to_vtt(shown) == ("WEBVTT\n\n00:00:00.310 --> 00:00:00.750\nturn it\n\n00:00:02.000 --> 00:00:02.400\noff\n")
    assert read_srt(to_srt(shown)) == read_vtt(to_vtt(shown)) == [tuple(one) for one in shown]
    assert to_srt([Cue("late", 3725.0005, 3726.9)]).splitlines()[1] == "01:02:05,000 --> 01:02:06,900"


@pytest.mark.parametrize("seed", range(20))
def test_subtitles_are_short_and_lose_no_word(seed):
    draw = random.Random(seed)
    words, time = [], 0.0
    for number in range(draw.randint(1, 120)):
        time += draw.choice([0.0, 0.0, 0.05, 0.3, 1.5])
        words.append(TimedWord(f"w{number}" * draw.randint(1, 4), time, time := time + draw.uniform(0.05, 0.5)))
    shown = cues(words, most_seconds=4.0, most_characters=50)
    assert " ".join(one.text for one in shown).split() == [word.text for word in words]
    for one in shown:
        assert one.end - one.start <= 4.0 + 1e-9
        assert len(one.text) <= 50
        assert len(one.text.split("\n")) == (2 if len(one.text) > 25 else 1)
    assert_in_order(read_srt(to_srt(shown)))
    assert [text for text, _, _ in read_vtt(to_vtt(shown))] == [one.text for one in shown]


def test_what_has_no_pause_is_cut_in_the_middle_and_chinese_has_no_spaces():
    words = [
        TimedWord(character, place / 2, place / 2 + 0.5) for place, character in enumerate("今天天气很好我们去公园")
    ]
    assert [one.text for one in cues(words, most_seconds=3.0)] == ["今天天气很", "好我们去公园"]
    assert cues([TimedWord("我", 0, 1), TimedWord("love", 1, 2), TimedWord("你", 2, 3)])[0].text == "我 love 你"
    long = [TimedWord("extraordinarily" * 9, 0.0, 20.0)]
    assert [one.text for one in cues(long)] == [long[0].text]  # a word is not cut


@pytest.mark.parametrize("words", [WORDS, HOSTILE, HOSTILE[::-1], []], ids=["plain", "hostile", "backwards", "none"])
def test_any_words_are_written_in_order_and_escaped(words):
    for shown in (cues(words), words):
        assert_in_order(read_srt(to_srt(shown)))
        assert_in_order(read_vtt(to_vtt(shown)))
    tiers, end = read_textgrid(to_textgrid(words, 3.0, {'letters "x"': words[:2]}))
    assert list(tiers) == ["words", 'letters "x"']
    for intervals in tiers.values():
        assert_in_order(intervals)
        assert intervals[0][1] == 0.0
        assert intervals[-1][2] == end
        assert all(one[2] == other[1] for one, other in itertools.pairwise(intervals))
    assert end == (3.0 if words in (WORDS, []) else pytest.approx(359_000, abs=1))
    rows = [json.loads(line) for line in to_jsonl(words).splitlines()]
    assert len(rows) == len(words)
    assert_in_order([(row["word"], row["start"], row["end"]) for row in rows])


def test_escapes_are_those_of_the_formats():
    hostile = HOSTILE[:1]
    assert read_vtt(to_vtt(hostile))[0][0] == 'say "x" & <b>--></b>'
    assert read_srt(to_srt(hostile))[0][0] == 'say "x" & <b>→</b>'
    assert read_textgrid(to_textgrid(hostile, 1.0))[0]["words"][0] == ('say "x" & <b>--></b>', 0.0, 0.5)
    assert '"say ""x"" &' in to_textgrid(hostile, 1.0)


def test_an_empty_transcript_is_an_empty_file():
    assert cues([]) == []
    assert to_srt([]) == ""
    assert to_vtt([]) == "WEBVTT\n"
    assert to_rows([]) == []
    assert read_textgrid(to_textgrid([], 2.5)) == ({"words": [("", 0.0, 2.5)]}, 2.5)
    assert read_textgrid(to_textgrid([], 0.0))[1] > 0


def test_overlapping_words_end_where_the_next_starts():
    words = [TimedWord("a", 0.0, 2.0), TimedWord("b", 1.0, 3.0), TimedWord("c", 1.0, 1.5)]
    assert [(row["start"], row["end"]) for row in to_rows(words)] == [(0.0, 1.0), (1.0, 1.001), (1.001, 1.5)]


def test_rows_have_the_confidence_where_there_is_one():
    assert to_rows(WORDS)[0] == {"word": "turn", "start": 0.31, "end": 0.6, "confidence": 0.91}
    assert "confidence" not in to_rows(WORDS)[1]
    assert "confidence" not in to_rows(HOSTILE)[-1]


def test_a_word_that_ends_behind_the_recording_ends_with_it():
    tiers, end = read_textgrid(to_textgrid([TimedWord("a", 0.5, 1.004)], 1.0))
    assert (tiers["words"], end) == ([("", 0.0, 0.5), ("a", 0.5, 1.0)], 1.0)


def test_writing_times_needs_no_torch():
    code = "import sys; import sightline.outputs.timed; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
