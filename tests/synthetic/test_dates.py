"""A text means one day, whoever reads it, and no day of the test was seen in training."""

import importlib.util
import json
import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from sightline.errors import UserError
from sightline.synthetic.dates import (
    FIRST,
    HELD_OUT,
    LANGUAGES,
    LAST,
    forms_of,
    held_out_language,
    make_dates,
    split_dates,
)

ROOT = Path(__file__).parents[2]
ALL = (*LANGUAGES, HELD_OUT)


@pytest.fixture(scope="module")
def split():
    return split_dates(0, train=20_000)


@pytest.mark.slow
def test_no_text_means_two_days():
    meanings = {}
    for text, day in [*make_dates(100_000, seed=1), *make_dates(5_000, seed=2, languages=[HELD_OUT])]:
        assert meanings.setdefault(text, day) == day, text
    assert len(meanings) > 90_000


def test_no_text_means_two_days_of_one_year():
    """Every form of every language on every day of a year: whatever is ambiguous would show here, not by luck."""
    meanings = {}
    for language in ALL:
        for form in forms_of(language):
            for offset in range(366):
                day = date(2024, 1, 1) + timedelta(offset)
                assert meanings.setdefault(form(day), day) == day, form(day)


@pytest.mark.parametrize("language", ALL)
def test_the_year_has_four_digits_and_numbers_alone_begin_with_it(language):
    day = date(2004, 11, 9)
    forms = forms_of(language)
    assert len(forms) >= 2
    for form in forms:
        text = form(day)
        numbers = [int(number) for number in re.findall(r"\d+", text)]  # \d and int know the digits of all scripts
        if "二〇〇四年" in text:
            continue
        assert 2004 in numbers, text
        if not re.search(r"[^\W\d_]", text):
            assert numbers == [2004, 11, 9], text


def test_what_is_written_is_what_babel_writes():
    dates = pytest.importorskip("babel.dates")
    day = date(2021, 3, 4)
    for language in ("de", "ru", "tr", "ko", "hi"):
        texts = {form(day) for form in forms_of(language)}
        assert dates.format_date(day, "long", language).replace("\u202f", " ") in texts
        assert dates.format_date(day, "full", language).replace("\u202f", " ") in texts


def test_the_file_holds_what_babel_has():
    babel = pytest.importorskip("babel")
    spec = importlib.util.spec_from_file_location("make_dates", ROOT / "benchmarks/make_dates.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    content = json.loads(maker.FILE.read_text(encoding="utf-8"))
    if content["babel"] != babel.__version__:
        pytest.skip("another version of Babel has other data of CLDR")
    assert content == maker.make()


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "3rd of March 2021"),
        ("en", "March 3rd, 2021"),
        ("en", "2021-03-03"),
        ("zh", "二〇二一年三月三日"),
        ("zh", "2021年3月3日星期三"),
        ("ja", "２０２１年３月３日"),
        ("hi", "३ मार्च २०२१"),
        ("hu", "2021. március 3."),
        ("vi", "ngày 3 tháng 3 năm 2021"),
    ],
)
def test_forms_that_people_use(language, text):
    assert text in {form(date(2021, 3, 3)) for form in forms_of(language)}


def test_numbers_in_words():
    days = {1: "一", 10: "十", 11: "十一", 20: "二十", 21: "二十一", 31: "三十一"}
    for number, word in days.items():
        assert f"二〇二一年十二月{word}日" in {form(date(2021, 12, number)) for form in forms_of("zh")}
    ordinals = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 31: "31st"}
    for number, word in ordinals.items():
        assert f"{word} of May 2021" in {form(date(2021, 5, number)) for form in forms_of("en")}


def test_what_cannot_be_resolved_is_left_out():
    day = date(2021, 3, 4)
    texts = {form(day) for language in ALL for form in forms_of(language)}
    assert not texts & {"3/4/21", "3/4/2021", "04.03.2021", "4.3.2021", "04/03/2021", "04.03.21"}
    assert not any("\u00a0" in text or "\u202f" in text or "\u200f" in text for text in texts)


def test_many_languages_and_years():
    assert len(LANGUAGES) >= 20
    assert {"zh", "ja", "ko", "ru", "ar", "de", "fr", "es", "it", "pl", "tr", "fi", "hu", "vi", "hi"} <= set(LANGUAGES)
    days = [day for _, day in make_dates(20_000, seed=0)]
    assert FIRST.isoformat() <= min(days) < "1951"
    assert "2050" < max(days) <= LAST.isoformat()


def test_the_seed_decides():
    assert make_dates(100, seed=3) == make_dates(100, seed=3)
    assert make_dates(100, seed=3) != make_dates(100, seed=4)
    assert split_dates(1, 50, 5, 5) == split_dates(1, 50, 5, 5)


def test_no_day_is_on_two_sides(split):
    train, valid, test = ({day for _, day in side} for side in split)
    assert not train & valid
    assert not train & test
    assert not valid & test
    assert [len(side) for side in split] == [20_000, 2_000, 2_000]


def test_the_held_out_language_is_not_in_training(split):
    held_out = held_out_language(0, 500)
    assert HELD_OUT not in LANGUAGES
    assert not {day for _, day in held_out} & {day for _, day in [*split.train, *split.valid]}
    assert any("março" in text for text, _ in held_out)
    assert not any("março" in text for text, _ in split.train)


def test_a_language_that_is_not_there():
    with pytest.raises(UserError, match="'tlh'"):
        make_dates(1, 0, ["tlh"])
