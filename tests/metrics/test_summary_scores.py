"""What summaries are made of: by hand, and sums that any part of the texts and any resample can be made of."""

from collections import Counter

import numpy as np
import pytest

from sightline.metrics import paired_bootstrap
from sightline.metrics.summaries import (
    MADE_METRICS,
    copied,
    made_statistics,
    marks_names,
    not_in_source,
    novel,
    repeated,
    unsupported,
)

SOURCE = (
    "The council of Oslo paid 1,000 crowns on 3 May, half of 2.5 million. Five guests from Franco-German towns came."
)


def plain_ngrams(words, order):
    return [tuple(words[start : start + order]) for start in range(len(words) - order + 1)]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_novel_and_repeated_ngrams_as_they_are_defined(order):
    draw = np.random.default_rng(order)
    for _ in range(30):
        source, summary = (draw.choice(list("abcde"), size=draw.integers(1, 12)).tolist() for _ in range(2))
        own, there = plain_ngrams(summary, order), plain_ngrams(source, order)
        texts = " ".join(summary), " ".join(source)
        assert novel(*texts, order) == (sum(one not in there for one in own), len(own))
        assert repeated(*texts, order) == (sum(one in own[:place] for place, one in enumerate(own)), len(own))
        assert sum(Counter(own).values()) == repeated(*texts, order).total


def test_copied_words():
    assert copied("Oslo paid two crowns", SOURCE) == (3, 4)
    assert copied("", SOURCE) == (0, 0)


@pytest.mark.parametrize(
    ("summary", "missing"),
    [
        ("council of Oslo pays 1000 crowns", []),  # by value
        ("council pays 1,000.00 crowns", []),
        ("guests were 5 and crowns 2,500,000", []),  # in words, and with a power of ten
        ("a council of Bergen paid 12.4 crowns", ["12.4", "Bergen"]),
        ("the Oslo's council met German guests", []),  # the genitive, and a part of a word with a hyphen
        ("Bergen paid. Trondheim paid too.", []),  # the first of a sentence may have its capital from there
        ("it was on 4 May", ["4 May"]),
        ("it was on 3 May 1999", ["3 May 1999"]),
        ("a may be, in May", []),
        ("paid 100", ["100"]),  # 1,000 is not 1 and 000
        ("paid 000", ["000"]),
        ("", []),
    ],
)
def test_numbers_and_names_that_the_source_does_not_have(summary, missing):
    assert not_in_source(summary, SOURCE) == missing
    assert unsupported(summary, SOURCE).having == len(missing)


def test_numbers_without_spaces_around_them():
    assert not_in_source("他卖了12辆车和7匹马", "他卖了12辆车") == ["7"]


def test_ordinals_in_words_support_numbers():
    assert not_in_source("net of 1 st qtr and 4 th", "in the first quarter") == ["4"]


def test_without_names_there_are_numbers_only():
    assert not_in_source("a council of Bergen paid 12.4", SOURCE, names=False) == ["12.4"]


def test_when_capitals_mark_names():
    assert marks_names(["The town of Oslo paid"])
    assert not marks_names(["the town of oslo paid"])
    assert not marks_names(["THE TOWN OF OSLO PAID", "Town Of Oslo Pays"])
    assert not marks_names(["Town of many things"])
    assert not marks_names([])


def test_shares_of_a_part_and_of_resamples():
    summaries = ["Oslo paid 7", "Oslo paid 3 and Oslo paid 3", "crowns of Rome"]
    statistics = made_statistics(summaries, [SOURCE] * 3, names=True)
    assert list(statistics) == list(MADE_METRICS)
    for name, one in statistics.items():
        for rows in ([0], [0, 1], [1, 2]):
            some = made_statistics([summaries[row] for row in rows], [SOURCE] * len(rows), names=True)[name]
            assert one.score(rows) == pytest.approx(some.score())
    assert statistics["copied"].score() + statistics["novel_1"].score() == pytest.approx(100)
    assert statistics["unsupported"].score() == pytest.approx(100 * 2 / 5)  # 7 and Rome of 7, 3, Oslo, 3, Rome
    assert statistics["repeated_2"].score() == pytest.approx(100 * 2 / 10)
    resampled = paired_bootstrap(
        [statistics["unsupported"], made_statistics(["a"] * 3, [SOURCE] * 3, True)["unsupported"]]
    )
    assert resampled[0].value == pytest.approx(40)
    assert resampled[1].difference == pytest.approx(-40)
