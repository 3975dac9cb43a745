"""Scores of captions against several references: held to sacreBLEU, and to numbers worked out by hand."""

import math
import random

import pytest
from sacrebleu.metrics import BLEU, CHRF

from sightline.metrics import paired_bootstrap
from sightline.metrics.captions import (
    CAPTION_METRICS,
    bleu_order,
    bleu_several,
    chrf_several,
    cider,
    cider_of_each,
    exact_several,
    rouge_l,
)
from sightline.metrics.texts import words_of

WORDS = ["a", "the", "dog", "cat", "runs", "jumps", "over", "on", "grass", "red", "ball", "Two", "men", ",", "."]


def made(seed=0, count=40):
    """Captions made of few words, so that n-grams match; one to five references each, some much longer."""
    draw = random.Random(seed)

    def text():
        return " ".join(draw.choices(WORDS, k=draw.randint(3, 14)))

    hypotheses = [text() for _ in range(count)]
    references = [[text() for _ in range(draw.randint(1, 5))] for _ in range(count)]
    for row in range(0, count, 4):
        references[row][0] = hypotheses[row] + " today"
    return hypotheses, references


def streams(references):
    most = max(map(len, references))
    return [[some[place] if place < len(some) else None for some in references] for place in range(most)]


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_bleu_is_sacrebleus_with_and_without_the_penalty(order, seed):
    hypotheses, references = made(seed)
    joined = [" ".join(words_of(text)) for text in hypotheses]
    wanted = [[" ".join(words_of(text)) for text in some] for some in references]
    metric = BLEU(tokenize="none", max_ngram_order=order, smooth_method="none", force=True)
    theirs = metric.corpus_score(joined, streams(wanted))
    assert theirs.bp < 1  # else both are the same
    assert bleu_order(order)(hypotheses, references).value == pytest.approx(theirs.score)
    without = bleu_order(order, brevity=False)(hypotheses, references)
    assert without.value == pytest.approx(theirs.score / theirs.bp)
    assert "bp:no" in without.signature
    assert "nrefs:1-5" in without.signature
    assert "tok:alnum" in without.signature


def test_the_closest_reference_counts_and_of_two_as_close_the_shorter():
    rows = bleu_order(1).statistics(["one two three four"], [["a b", "a b c", "a b c d e", "a b c d e f"]]).rows
    assert rows[0, -2:].tolist() == [4, 3]


def test_full_stops_and_case_are_no_words():
    assert bleu_order(4)(["a man rides a horse"], [["A man rides a horse ."]]).value == pytest.approx(100)
    assert bleu_several(["a man rides a horse"], [["A man rides a horse ."]]).value < 100


def test_nothing_in_common_is_zero():
    for name, metric in CAPTION_METRICS.items():
        assert metric(["xx yy", ""], [["zz ww"], ["a b", "c d"]]).value == 0, name


def test_chinese_is_scored_by_characters():
    found = bleu_order(2)(["红色圆形在左"], [["红色圆形在右", "圆形在左"]])
    assert found.value == pytest.approx(100)
    assert CAPTION_METRICS["exact"](["红色圆形"], [["红色方形", "红色圆形。"]]).value == 100


def test_references_are_lists_and_none_is_empty():
    with pytest.raises(ValueError, match="lists of texts"):
        bleu_order(1)(["a"], ["a"])
    with pytest.raises(ValueError, match="no reference"):
        bleu_order(1)(["a"], [[]])
    with pytest.raises(ValueError, match="2 texts against references of 1"):
        cider("cider_d")(["a", "b"], [["a"]])


def test_cider_by_hand():
    hypotheses, references = ["a red ball", "a red box"], [["a red ball"], ["a blue box"]]
    # "a" stands in the references of both images and has no weight; nothing has four words.
    # First image: red and ball, a red and red ball, a red ball all match: (1 + 1 + 1 + 0) / 4.
    # Second: of two words with equal weight one matches: (1/2 + 0 + 0 + 0) / 4.
    assert cider_of_each("cider_d", hypotheses, references) == pytest.approx([750, 125])
    assert cider_of_each("cider", hypotheses, references) == pytest.approx([750, 125])
    assert cider("cider_d")(hypotheses, references).value == pytest.approx(437.5)


def test_cider_is_the_mean_over_references():
    one = cider_of_each("cider_d", ["a red ball", "x"], [["a red ball", "some green tree"], ["a y"]])[0]
    assert one == pytest.approx(375)


def test_cider_d_does_not_pay_for_repeating_and_length():
    references = [["a red ball"], ["a blue box"]]
    fair, padded = (cider_of_each("cider_d", [text, "x"], references)[0] for text in ("ball red", "ball red x x x x x"))
    length = math.sqrt(1 + 1 + 25) / math.sqrt(2)  # red, ball and five times x against red and ball, all of one weight
    assert padded == pytest.approx(fair / length * math.exp(-(4**2) / 72) / math.exp(-(1**2) / 72))
    repeated = cider_of_each("cider", ["ball ball", "x"], references)[0]
    assert cider_of_each("cider_d", ["ball ball", "x"], references)[0] < 0.6 * repeated


def test_rouge_l_takes_the_best_precision_and_the_best_recall():
    # precision 3/4 by "a dog runs", recall 1 by "dog"
    found = rouge_l(["a dog runs fast"], [["a dog runs away home now"], ["dog"]][0:1])
    assert found.value == pytest.approx(100 * (1 + 1.44) * 0.75 * 0.5 / (0.5 + 1.44 * 0.75))
    both = rouge_l(["a dog runs fast"], [["a dog runs away home now", "dog"]])
    assert both.value == pytest.approx(100 * (1 + 1.44) * 0.75 * 1.0 / (1.0 + 1.44 * 0.75))


def test_chrf_is_sacrebleus_and_its_counts_give_the_same():
    hypotheses, references = made(2)
    theirs = CHRF(lowercase=True).corpus_score(hypotheses, streams(references)).score
    assert chrf_several(hypotheses, references).value == pytest.approx(theirs)
    assert chrf_several.statistics(hypotheses, references).score() == pytest.approx(theirs)
    assert "case:lc" in chrf_several(hypotheses, references).signature


def test_exact_is_one_of_the_references():
    references = [["A dog .", "a cat"], ["a dog"]]
    assert exact_several(["a cat", "a cat"], references).value == 50


@pytest.mark.parametrize("name", list(CAPTION_METRICS))
def test_counts_add_up_to_the_score_of_every_metric(name):
    hypotheses, references = made(3)
    statistics = CAPTION_METRICS[name].statistics(hypotheses, references)
    assert statistics.score() == pytest.approx(CAPTION_METRICS[name](hypotheses, references).value)
    assert len(statistics.of_each()) == len(hypotheses)
    first, second = paired_bootstrap([statistics, statistics], samples=20)
    assert first.interval[0] <= first.value <= first.interval[1]
    assert second.difference == 0
