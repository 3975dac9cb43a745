"""What a Python program or a line gives to a trained run: one item or several, blanks, sentences without spaces."""

import logging
from pathlib import Path

import pytest

import sightline
from sightline.data.checking import PairReport
from sightline.data.tagged import TagReport
from sightline.errors import UserError

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


def run_of(name):
    return sightline.load(RUNS / name / "run")


@pytest.mark.parametrize("name", ["translate", "summarise", "classify-text", "tag", "pretrain"])
def test_a_text_of_blanks_is_an_empty_text(name):
    run = run_of(name)
    empty, blanks = (run.input.encode([run.input.item(text)])[0] for text in ("", " \t\u3000 "))
    assert empty == blanks
    pair = run_of("classify-pair")
    assert pair.input.encode([("", "a")]) == pair.input.encode([("  ", "a")])


@pytest.mark.parametrize(
    ("name", "item", "reason"),
    [
        ("translate", ["a", "b"], "expected one text, .*found a list"),
        ("translate", 3, "expected one text, .*found a number"),
        ("summarise", ("a",), "expected one text"),
        ("classify-text", ["a", "b"], "expected one text, .*found a list"),
        ("classify-pair", "a", "expected a pair of texts"),
        ("classify-pair", ["a", "b", "c"], "expected a pair of texts"),
        ("pretrain", ["a"], "expected one text"),
        ("tag", ["a", 3], "expected a sentence"),
        ("span", ["a", "b", "c"], "expected a question and a text"),
        ("ask", ["a", "b", "c"], "expected a question and a table"),
    ],
)
def test_several_items_are_not_explained_as_one(name, item, reason):
    run = run_of(name)
    with pytest.raises(UserError, match=reason):
        run.explain(item, measure=False)
    with pytest.raises(UserError, match=reason):
        run.predict([item])


def test_a_sentence_without_spaces_is_said_to_be_one_word(caplog):
    run = run_of("tag")
    with caplog.at_level(logging.WARNING):
        for text in ("谢谢", "今天 天气 很 好 , 我们 去 公园", "a plain sentence", "Übergrößenträgerinnen"):
            run.input.item(text)
        assert not caplog.records
        for text in ("今天天气很好我们去公园吧", "明天天气也很好我们再去公园"):
            run.input.item(text)
    assert ["put spaces between words" in record.getMessage() for record in caplog.records] == [True]
    report = TagReport(input=run.input)
    report.add(("今天天气很好我们去公园吧",), ("O",))
    report.add(tuple("今天天气很好我们去公园吧"), ("O",) * 12)
    assert report.more()[1].startswith("1 sentences are written without spaces")


def test_pairs_that_the_split_leaves_out_are_said():
    report = PairReport(rows=50, pairs=50)
    report.divided(23, 2)
    lines = "\n".join(report.lines())
    assert "23 pairs are left out of training, because their target is in the validation data" in lines
    assert "only 2 different targets: if they are labels, use `sightline train classify`" in lines
    assert report.to_json()["target_in_validation"] == 23
