"""What stands in cells and questions, and which cells a question names."""

import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.data.values import (
    Value,
    cell_matches,
    cell_value,
    column_order,
    column_values,
    compare_values,
    order_value,
    question_numbers,
    question_words,
)

CELLS = {  # number, second number, date
    "12,467": (12467, None, None),
    "12 467": (12467, None, None),
    "12,34,567": (1234567, None, None),
    "14,3 t": (14.3, None, None),
    "1.234.567": (1234567, None, None),
    "$1.5 million": (1.5e6, None, None),
    "$3m": (3e6, None, None),
    "3m": (3, None, None),
    "3–2": (3, 2, None),
    "W 15-12": (15, 12, None),
    "33–7–1": (33, 7, None),
    "45%": (45, None, None),
    "1st": (1, None, None),
    "Fourth": (4, None, None),
    ".438": (0.438, None, None),
    "5½": (5.5, None, None),
    "−3.2": (-3.2, None, None),
    "(-3)": (-3, None, None),
    "?-2012": (2012, None, None),
    "SR-192": (192, None, None),
    "No. 496": (496, None, None),
    "b.1958": (1958, None, None),
    "171\xa0km": (171, None, None),
    "47 km2": (47, None, None),
    "1976 (UK)": (1976, None, (1976, None, None)),
    "1,500 [1]": (1500, None, None),
    "[53]": (53, None, None),
    "718\n787": (718, 787, None),
    "4–6, 1–6": (4, 6, None),
    "2:05.3": (125.3, None, None),
    "1:02:03": (3723, None, None),
    "+1:26.5": (86.5, None, None),
    "8:30 PM": (20.5 * 3600, None, None),
    "12:05 a.m.": (300, None, None),
    "3:1": (3, 1, None),
    "5 ft 6 in": (5.5, None, None),
    "60°30′N 26°45′W": (60.5, -26.75, None),
    "2004–05": (2004, 2005, None),
    "1999-00": (1999, 2000, None),
    "1999-2000": (1999, 2000, None),
    "2010": (2010, None, (2010, None, None)),
    "March 5, 2010": (None, None, (2010, 3, 5)),
    "5 Mar 2010": (None, None, (2010, 3, 5)),
    "5th of March, 2010*": (None, None, (2010, 3, 5)),
    "Friday, March 5": (None, None, (None, 3, 5)),
    "2010-03-05": (None, None, (2010, 3, 5)),
    "3/5/2010": (None, None, (2010, 3, 5)),
    "24/7/2008": (None, None, (2008, 7, 24)),
    "24.07.2008": (None, None, (2008, 7, 24)),
    "03/08/01": (None, None, (2001, 3, 8)),
    "March 2010": (None, None, (2010, 3, None)),
    "Sept. 3": (None, None, (None, 9, 3)),
    "May": (None, None, (None, 5, None)),
    "August 17–19, 2001": (None, None, (2001, 8, 17)),
    "June 11, 1994 (age\xa020)": (None, None, (1994, 6, 11)),
    "8-May-75": (None, None, (1975, 5, 8)),
    "BMW M3": (3, None, None),
    "MiG-23BN": (23, None, None),
    "2010年3月5日": (None, None, (2010, 3, 5)),
    "": (None, None, None),
    "n/a": (None, None, None),
    "–": (None, None, None),
    "Bergen": (None, None, None),
    "9" * 400: (None, None, None),
}


@pytest.mark.parametrize("text", CELLS)
def test_a_cell_has_its_number_and_its_date(text: str) -> None:
    number, second, date = CELLS[text]
    value = cell_value(text)
    assert value.number == pytest.approx(number)
    assert value.second == pytest.approx(second)
    assert value.date == date


def test_lists_have_items() -> None:
    assert cell_value("a, b (x, y), c[1]").items == ("a", "b (x, y)", "c")
    assert cell_value("a, x\nb").items == ("a, x", "b")
    assert cell_value("a; b").items == ("a", "b")
    assert cell_value("March 5, 2010").items == cell_value("12,467").items == cell_value("a").items == ()


def test_a_column_is_sorted_by_dates_or_by_numbers() -> None:
    dates = column_values(["March 5, 2010", "2009", "1 January 2011", "n/a"])
    assert column_order(dates) == [20100305, 20090000, 20110101, None]
    assert column_order(column_values(["12", "May", "7", "-1"])) == [12, None, 7, -1]
    assert order_value(dates[0]) == 20100305
    assert order_value(dates[1]) == 2009
    # One day above 12 tells what the others are.
    assert [value.date for value in column_values(["3/4/2010", "23/4/2010"])] == [(2010, 4, 3), (2010, 4, 23)]
    assert column_values(["3/4/2010", "3/23/2010"])[0].date == (2010, 3, 4)


def test_values_are_compared_in_the_fields_of_the_question() -> None:
    day, year, month = (cell_value(text) for text in ("March 5, 2010", "2010", "March"))
    assert [compare_values(day, asked) for asked in (year, month, cell_value("2009"), cell_value("2011"))] == [
        0,
        0,
        1,
        -1,
    ]
    assert compare_values(year, day) is None
    assert compare_values(year, cell_value("March 5, 2011")) == -1
    assert compare_values(cell_value("7"), cell_value("12")) == -1
    assert compare_values(cell_value("x"), cell_value("12")) is None


def found(question: str) -> list[tuple[str, object]]:
    return [
        (question[one.start : one.end], one.value.number if one.value.number is not None else one.value.date)
        for one in question_numbers(question)
    ]


def test_questions_have_numbers() -> None:
    assert found("more than 3 of 12,467, in 2004?") == [("3", 3), ("12,467", 12467), ("2004", 2004)]
    assert found("at least twenty-five or two hundred and six") == [("twenty-five", 25), ("two hundred and six", 206)]
    assert found("after March 5, 2010 or the 3rd?") == [("March 5, 2010", (2010, 3, 5)), ("3rd", 3)]
    assert found("above -3.5, under $1.5 million") == [("-3.5", -3.5), ("$1.5 million", 1.5e6)]
    assert found("which one may come, and who was the first?") == []
    assert found("more than one in may, twelfth") == [("one", 1), ("may", (None, 5, None)), ("twelfth", 12)]


def test_questions_have_words() -> None:
    text = "Which of John's 12,467 wins in 北京 weren't O'Brien's? हिन्दी"
    words = question_words(text)
    assert [word for word, _, _ in words] == (
        ["which", "of", "john", "'s", "12,467", "wins", "in", "北", "京", "weren't", "o'brien", "'s", "?", "हिन्दी"]
    )
    assert all(text[start:end].lower() == word for word, start, end in words)


def rows_named(cells: list[str], question: str) -> list[int]:
    return [row for row, (named,) in enumerate(cell_matches([[cell] for cell in cells], question)) if named]


def test_cells_match_what_a_question_names() -> None:
    assert rows_named(["Norway", "Peru", "Norway (A)", "Nor"], "when did norway win?") == [0, 2]
    assert rows_named(["São Paulo", "Lima"], "the sao paulo game") == [0]
    assert rows_named(["a, Peru", "Chile\nCuba", "Lima"], "did chile or peru win?") == [0, 1]
    assert rows_named(["3", "3rd", "30", "3 Doors", "3.0"], "more than 3 wins") == [0, 1, 4]
    assert rows_named(["1,000", "1000 [2]", "999"], "exactly 1000") == [0, 1]
    assert rows_named(["March 5, 2010", "5 March 2011", "2010-04-01"], "in 2010?") == [0, 2]
    assert rows_named(["March 5, 2010", "5 March 2010", "2010-03-06"], "on 5 March 2010?") == [0, 1]
    assert rows_named(["the", "of", "x"], "the first of them with x") == []  # stop words and single letters
    assert rows_named(["北京", "上海"], "北京的人口") == [0]


def test_without_such_a_cell_those_match_that_share_most_words() -> None:
    lakes = ["Lake Van Tuz", "Lake Van", "Lake Palas", "Lake Sis", "Lake Ro"]
    assert rows_named(lakes, "is the van called tuz a lake") == [0]
    assert rows_named(lakes, "is it a lake") == []  # in more than half of the cells
    assert rows_named(["John Berg", "John Lund", "Anna Holm", "Ann Ho"], "john or holm?") == [2]  # the rarer one


def test_empty_tables_match_nothing() -> None:
    assert cell_matches([], "x") == []
    assert cell_matches([[], []], "x") == [[], []]
    assert cell_matches([["a", ""]], "") == [[False, False]]


QUICK = """
import random, time
from sightline.data.values import cell_matches
draw = random.Random(0).randint
def row(i):
    date = f"March {draw(1, 28)}, {draw(1950, 2010)}"
    words = "abcdefgh"[draw(0, 7)] * 3
    return [f"{words} {draw(0, 9999)}", str(draw(0, 10**6)), date, f"é{i}", f"{i}–{i + 1}", f"x{i}, y{i}",
            f"{i / 7:.2f}", "word", f"Name of {i} [1]", f"${i:,} (UK)"]
question = "which of aaa and bbb has more than 5 in March 1980 or 1234?"
for rows, columns in ((50, 8), (10_000, 10)):
    cells, times = [row(i)[:columns] for i in range(rows)], []
    cell_matches([["x"]], question)
    start = time.process_time()
    cell_matches(cells, question)
    print(time.process_time() - start)
"""


def test_matching_is_quick() -> None:
    """In a process of its own: the checks of shapes under pytest take longer than what they check."""
    done = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, check=True)
    small, large = map(float, done.stdout.split())
    assert small < 0.005 * 3  # three times: a busy machine
    assert large < 1 * 3


HOSTILE = ["1,", "1 000 ", "(", "[", "a, ", "1:", "5 march ", "two ", "1/", "°1'", "\n"]


@pytest.mark.parametrize("part", HOSTILE)
def test_hostile_texts_take_no_longer(part: str) -> None:
    text = part * (100_000 // len(part))
    start = time.process_time()
    cell_value(text)
    cell_matches([[text]], text)
    question_numbers(text)
    question_words(text)
    assert time.process_time() - start < 2


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=60), st.text(alphabet="0123456789.,:-/–° '\"()[]$%½abmarchJuneé北\n", max_size=60))
def test_nothing_is_refused(free: str, near: str) -> None:
    for text in (free, near):
        value = cell_value(text)
        assert isinstance(value, Value)
        assert value == cell_value(text)
        for one in question_numbers(text):
            assert 0 <= one.start < one.end <= len(text)
        for word, start, end in question_words(text):
            assert word
            assert text[start:end].lower().replace("’", "'") == word
    named = cell_matches([[free, near], [near, free]], free + " " + near)
    assert [len(row) for row in named] == [2, 2]
