"""Text is cut into sentences where people would cut it, and nothing of it is lost."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.text.sentences import joining_space, split_sentences

pytestmark = pytest.mark.fast

# A bar stands where a sentence ends; the blanks behind it stay.
CASES = {
    "plain": "He came.| She left!| Why?| Nobody knows.",
    "several signs": "Really?!| Yes!!!| Well...| Good.",
    "titles": "Dr. Smith and Mrs. Jones met Prof. Lee.| They talked.",
    "Latin abbreviations": "Fruit, e.g. apples, i.e. Malus.| It costs 5 p.m. prices.",
    "an abbreviation at the end": "Apples, pears, etc.| The rest is gone.",
    "countries": "He lives in the U.S.| He likes it.",
    "a country inside": "The U.S. Government said no.",
    "German abbreviations": "Das gilt z.B. für Dr. Müller bzw. Frau Maier.| Es gilt auch sonst.",
    "German abbreviations with spaces": "Das gilt z. B. nicht, d. h. Sie gehen.",
    "ordinals": "Am 3. Mai kam er.| Im 19. Jahrhundert war es anders.",
    "kings": "Ludwig XIV. Sonnenkönig genannt.| Karl V. regierte lange.",
    "years": "Das war 2010.| Dann kam er.",
    "a small number at the end": "She is 12.| He is 10.",
    "initials": "J. R. R. Tolkien wrote it.| J. De Vries read it.",
    "decimals": "Pi is 3.14.| It is not 3,2.",
    "addresses": "See www.example.com for more.| Or do not.",
    "numbers": "No. 5 is alive.| No.| I stay.",
    "an enumeration": "1. The first.| 2. The second.",
    "closing quotes": 'He said "Stop."| Then he left.',
    "closing brackets": "(It was late.)| She slept.",
    "speech that goes on": '"Go!" she said.| "Why?" asked he.',
    "German quotes": "„Nein.“| Er blieb.| »Doch!«| Sie ging.",
    "French quotes": "« Bonjour ! »| Il partit.| « Non ? » dit-il.",
    "Spanish": "¿Qué?| ¡No!| Está bien.",
    "a brand": "Yahoo! is a company.",
    "Chinese": "你好。|我是王！|你是谁？",
    "Chinese quotes": "他说：“好。”|我走了。",
    "a Chinese ellipsis inside": "我……我不知道。|真的。",
    "Chinese with narrow signs": "你好!|你是谁?|我是王.",
    "Japanese": "今日は雨だ。|明日は晴れる！？|本当。",
    "Japanese quotes": "「はい。」|彼は笑った。|『本だ。』|彼女は言った。",
    "Japanese speech that goes on": "「はい。」と言った。|次。",
    "wide decimals": "３．５です。|次．|そう",
    "Hindi and Arabic": "यह है।| वह है।| هل هذا؟| نعم.",
    "Russian": "Он живёт в г. Москва.| Она тоже.",
    "lines": "A headline\n\n|A text.|  Two spaces.\n|\tThe end",
    "no sign at all": "nothing to see here",
}


@pytest.mark.parametrize("case", CASES)
def test_sentences(case):
    marked = CASES[case]
    text = marked.replace("|", "")
    found = split_sentences(text)
    assert "".join(sentence + blank for sentence, blank in found) == text
    assert [sentence for sentence, _ in found] == [part.strip() for part in marked.split("|")]


def test_blanks_are_kept():
    assert split_sentences("") == []
    assert split_sentences(" \n ") == [("", " \n ")]
    assert split_sentences("  Yes.\r\n\r\nNo. ") == [("", "  "), ("Yes.", "\r\n\r\n"), ("No.", " ")]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="aBé3我は。！．…」”“»\"'( .!?\n\u00a0z", max_size=40))
def test_nothing_is_lost(text):
    found = split_sentences(text)
    assert "".join(sentence + blank for sentence, blank in found) == text
    assert all(sentence == sentence.strip() and not blank.strip() for sentence, blank in found)
    assert all(sentence for sentence, _ in found[1:])


@pytest.mark.parametrize("piece", ["J. ", ". ", '." ', "。」", " ", "…", "(", "a", "! »"])
def test_time_grows_with_the_length_only(piece):
    started = time.process_time()
    split_sentences(piece * 10_000)
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    ("before", "space"),
    [("Yes.", " "), ("好。", ""), ("他说：“好。”", ""), ("「はい」", ""), ('"Yes."', " "), ("", "")],
)
def test_a_space_goes_where_the_script_writes_one(before, space):
    assert joining_space(before) == space
