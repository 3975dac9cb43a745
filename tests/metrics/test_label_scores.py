"""Scores of labels, numbers, tags and answers, and calibration: against formulas written out and small known cases."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.metrics import (
    accuracy,
    answer_exact,
    answer_f1,
    answer_words,
    are_spans,
    as_two_classes,
    best_threshold,
    brier,
    confusion,
    ece,
    fit_temperature,
    macro_f1,
    mae,
    micro_f1,
    nll,
    paired_bootstrap,
    pearson,
    per_class,
    probabilities,
    reliability_bins,
    rmse,
    several_macro_f1,
    several_per_class,
    span_f1,
    span_table,
    spans_of,
    spearman,
    subset_accuracy,
    token_accuracy,
)

pytestmark = pytest.mark.fast


def numbers(*values):
    return np.array(values)


GOLD, SAID = numbers(0, 0, 0, 0, 1, 1, 2, 2), numbers(0, 0, 0, 1, 1, 2, 2, 0)


def f1_by_hand(said, gold, one):
    hits = sum(a == b == one for a, b in zip(said, gold, strict=True))
    precision, recall = hits / max(sum(said == one), 1), hits / max(sum(gold == one), 1)
    return 2 * precision * recall / (precision + recall) if hits else 0.0


# One label


def test_accuracy_and_macro_f1_of_a_small_case():
    assert accuracy(SAID, GOLD).value == pytest.approx(100 * 5 / 8)
    by_hand = [f1_by_hand(SAID, GOLD, one) for one in range(3)]
    assert by_hand == pytest.approx([0.75, 0.5, 0.5])
    assert macro_f1(SAID, GOLD, 3).value == pytest.approx(100 * sum(by_hand) / 3)


def test_macro_f1_leaves_out_classes_that_are_in_neither_and_counts_those_only_said():
    assert macro_f1(SAID, GOLD, 9).value == pytest.approx(macro_f1(SAID, GOLD, 3).value)
    said = numbers(0, 0, 0, 1)
    assert macro_f1(said, numbers(0, 0, 0, 0), 5).value == pytest.approx(100 * (6 / 7 + 0) / 2)


def test_never_naming_a_rare_class_is_accurate_and_has_half_the_macro_f1():
    gold = (np.arange(200) < 2).astype(int)
    said = np.zeros(200, dtype=int)
    assert accuracy(said, gold).value == 99
    assert macro_f1(said, gold, 2).value == pytest.approx(50 * 2 * 198 / (198 + 200))


def test_rows_of_the_confusion_matrix_are_gold_and_columns_what_was_said():
    matrix = confusion(SAID, GOLD, 4)
    assert matrix.tolist() == [[3, 1, 0, 0], [0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]]
    table = per_class(matrix, list("abcd"))
    assert (table[0].precision, table[0].recall, table[0].f1) == (75.0, 75.0, 75.0)
    assert [(one.name, one.support, one.said) for one in table] == [("a", 4, 4), ("b", 2, 2), ("c", 2, 2), ("d", 0, 0)]
    assert (table[3].precision, table[3].recall, table[3].f1) == (None, None, None)


def test_a_class_only_in_gold_has_no_precision_but_an_f1_of_0():
    table = per_class(confusion(numbers(0, 0), numbers(0, 1), 2), ["seen", "unseen"])
    assert (table[1].precision, table[1].recall, table[1].f1) == (None, 0.0, 0.0)


@pytest.mark.parametrize("labels", [numbers(0, 3), numbers(-1, 0)])
def test_labels_outside_of_the_classes_are_refused(labels):
    for score in (confusion, macro_f1):
        with pytest.raises(ValueError, match="expected 0 to 2"):
            score(numbers(0, 0), labels, 3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30), st.data())
def test_statistics_of_a_part_are_the_score_of_that_part(pairs, data):
    said, gold = (np.array(side) for side in zip(*pairs, strict=True))
    part = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1))  # with repetitions, as a resample has
    here = np.array(part)
    of_part = macro_f1.statistics(said, gold, 4).score(part)
    seen = sorted({*said[here].tolist(), *gold[here].tolist()})
    by_hand = [f1_by_hand(said[here], gold[here], one) for one in seen]
    assert of_part == pytest.approx(100 * sum(by_hand) / len(by_hand))
    assert accuracy.statistics(said, gold).score(part) == pytest.approx(100 * float((said[here] == gold[here]).mean()))


def test_the_bootstrap_tells_a_better_labeller_from_one_that_is_as_good():
    draw = np.random.default_rng(1)
    gold = draw.integers(3, size=400)
    worse, better, other = (np.where(draw.random(400) < share, gold, (gold + 1) % 3) for share in (0.7, 0.85, 0.7))
    found = paired_bootstrap([macro_f1.statistics(one, gold, 3) for one in (worse, better, other)], samples=300)
    assert found[1].difference > 8
    assert found[1].p < 0.02 < found[2].p


# Several labels

SETS_SAID = numbers([1, 1, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]).astype(bool)
SETS_GOLD = numbers([1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 1, 0]).astype(bool)


def test_scores_of_several_labels():
    assert micro_f1(SETS_SAID, SETS_GOLD).value == pytest.approx(100 * 2 * 3 / (4 + 4))
    # the third label is in neither: left out
    assert several_macro_f1(SETS_SAID, SETS_GOLD).value == pytest.approx(100 * (1 + 0.5) / 2)
    assert subset_accuracy(SETS_SAID, SETS_GOLD).value == 50
    assert [one.f1 for one in several_per_class(SETS_SAID, SETS_GOLD, list("abc"))] == [100.0, 50.0, None]
    nothing = np.zeros((2, 3), dtype=bool)
    assert micro_f1(nothing, nothing).value == 0
    assert subset_accuracy(nothing, nothing).value == 100
    assert micro_f1.statistics(SETS_SAID, SETS_GOLD).score([0]) == pytest.approx(100 * 2 / 3)


def test_the_threshold_is_met_from_above_and_the_best_one_is_found():
    shares = numbers([0.9, 0.5], [0.4, 0.1])
    gold = numbers([True, True], [True, False])
    assert best_threshold(shares, gold) == pytest.approx(0.25)
    draw = np.random.default_rng(0)
    shares, gold = draw.random((50, 4)).round(1), draw.random((50, 4)) < 0.4
    every = [micro_f1(shares >= one, gold).value for one in np.arange(0.0, 1.2, 0.05)]
    assert micro_f1(shares >= best_threshold(shares, gold), gold).value == pytest.approx(max(every))


# Numbers


def test_correlations_and_errors_by_their_formulas():
    draw = np.random.default_rng(0)
    gold = draw.normal(size=50)
    said = gold + draw.normal(size=50)
    expected = np.corrcoef(said, gold)[0, 1]
    assert pearson(said, gold).value == pytest.approx(100 * expected)
    assert pearson(said * 1e200 + 1e202, gold - 1e6).value == pytest.approx(100 * expected, abs=0.5)
    assert pearson(-said, gold).value == pytest.approx(-100 * expected)
    assert rmse(said, gold).value == pytest.approx(math.sqrt(np.mean((said - gold) ** 2)))
    assert mae(said, gold).value == pytest.approx(np.mean(np.abs(said - gold)))
    part = [0, 3, 3, 7, 9, 11]
    assert pearson.statistics(said, gold).score(part) == pytest.approx(100 * np.corrcoef(said[part], gold[part])[0, 1])


def test_spearman_gives_equal_numbers_the_mean_of_their_ranks():
    assert spearman(numbers(1.0, 10, 100, 1000), numbers(1.0, 2, 3, 4)).value == pytest.approx(100)
    # ranks 1.5 1.5 3 4 against 1 2 3.5 3.5
    expected = np.corrcoef([1.5, 1.5, 3, 4], [1, 2, 3.5, 3.5])[0, 1]
    assert spearman(numbers(0.0, 0.0, 1.0, 5.0), numbers(1.0, 2.0, 9.0, 9.0)).value == pytest.approx(100 * expected)


def test_the_same_number_everywhere_is_related_to_nothing():
    assert pearson(np.full(5, 0.1), np.arange(5.0)).value == 0
    assert spearman(np.arange(5.0), np.full(5, 7.0)).value == 0
    with pytest.raises(ValueError, match="finite"):
        pearson(numbers(1.0, math.nan), numbers(1.0, 2.0))


# Tags


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", []),
        ("B-P I-P O", [(0, 2, "P")]),
        ("I-P I-P B-P I-L", [(0, 2, "P"), (2, 3, "P"), (3, 4, "L")]),  # IOB1
        ("B-P B-P", [(0, 1, "P"), (1, 2, "P")]),
        ("B-P I-P E-P S-L O E-P", [(0, 3, "P"), (3, 4, "L"), (5, 6, "P")]),  # BIOES
        ("B-P E-P I-P E-P", [(0, 2, "P"), (2, 4, "P")]),
        ("S-P I-P", [(0, 1, "P"), (1, 2, "P")]),
        ("U-P B-P L-P", [(0, 1, "P"), (1, 3, "P")]),  # BILOU
        ("B M E S B E", [(0, 3, ""), (3, 4, ""), (4, 6, "")]),  # words of Chinese
        ("B-A-B I-A-B", [(0, 2, "A-B")]),
    ],
)
def test_spans_of_every_scheme(tags, spans):
    assert spans_of(tags.split()) == spans


def conlleval(tags):
    """Its rules, as a table over neighbours: where a span ends, and where one begins."""
    found, start = [], 0
    before = ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        now = (tag[0], tag[2:])
        (a, kind_a), (b, kind_b) = before, now
        pairs = {"BB", "BS", "BO", "IB", "IS", "IO"}
        ends = a + b in pairs or a in "ES" or (a != "O" and kind_a != kind_b)
        begins = b in "BS" or a + b in {"EE", "EI", "SE", "SI", "OE", "OI"} or (b != "O" and kind_a != kind_b)
        if ends and a != "O":
            found.append((start, place, kind_a))
        if begins:
            start = place
        before = now
    return found


def test_every_sequence_of_four_tags_is_read_as_conlleval_reads_it():
    tags = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in "PL")]
    for sequence in product(tags, repeat=4):
        assert spans_of(sequence) == conlleval(sequence), sequence


def test_a_span_counts_where_both_ends_and_the_kind_are_right():
    gold = [["B-P", "I-P", "O", "B-L"], ["O", "O"], ["B-P", "O"]]
    said = [["B-P", "I-P", "O", "B-P"], ["B-L", "O"], ["B-P", "I-P"]]
    assert span_f1(said, gold).value == pytest.approx(100 * 2 * 1 / (4 + 3))
    assert span_f1.statistics(said, gold).score([0]) == 50
    assert token_accuracy(said, gold).value == pytest.approx(100 * 5 / 8)
    table = {one.name: one for one in span_table(said, gold)}
    assert list(table) == ["P", "L"]
    assert (table["P"].precision, table["P"].recall) == (pytest.approx(100 / 3), 50)
    assert (table["L"].precision, table["L"].recall, table["L"].f1) == (0, 0, 0)
    assert span_f1(gold, gold).value == 100
    with pytest.raises(ValueError, match="1 tags for a text of 2 words"):
        span_f1([["O"]], [["O", "O"]])


def test_parts_of_speech_are_no_spans():
    assert are_spans(["O", "B-PER", "I-PER"])
    assert not are_spans(["NOUN", "VERB"])
    assert not are_spans(["O", "O"])
    with pytest.raises(ValueError, match="'NOUN' is no tag"):
        spans_of(["NOUN"])


# Answers


def test_answers_are_compared_as_squad_does():
    assert answer_words("The  U.S. Army's $5") == ["us", "armys", "5"]
    assert answer_words("“北京”大学。") == ["北", "京", "大", "学"]
    said = ["the Eiffel tower!", "in Paris, France", "", "x"]
    gold = [["Eiffel Tower"], ["Paris", "Paris France"], [], [""]]
    assert answer_exact(said, gold).value == 50
    assert answer_f1(said, gold).value == pytest.approx(100 * (1 + 2 * 2 / 5 + 1 + 0) / 4)
    assert answer_f1(["a cat cat"], [["cat dog"]]).value == pytest.approx(100 * 2 * 1 / 4)


# Calibration


def test_calibration_scores_by_their_formulas():
    shares = numbers([0.7, 0.2, 0.1], [0.25, 0.7, 0.05], [0.0, 0.0, 1.0])
    gold = numbers(0, 0, 2)
    assert nll(np.log(shares + 1e-30), gold).value == pytest.approx(-(math.log(0.7) + math.log(0.25)) / 3, abs=1e-6)
    first, second = 0.3**2 + 0.2**2 + 0.1**2, 0.75**2 + 0.7**2 + 0.05**2
    assert brier(shares, gold).value == pytest.approx((first + second) / 3)
    # two texts in the bin of 0.7, half of them right; one in the last, right
    assert ece(shares, gold).value == pytest.approx(100 * (2 * abs(0.7 - 0.5) + 0) / 3)
    assert ece.statistics(shares, gold).score([0]) == pytest.approx(30)


def test_bins_hold_their_upper_end_and_all_texts():
    shares = np.array([[one, 1 - one] for one in (0.6, 0.61, 1.0, 0.999, 0.8)])
    bins = reliability_bins(shares, numbers(0, 1, 0, 0, 0), bins=5)
    assert [one.count for one in bins] == [0, 0, 1, 2, 2]
    assert bins[2].confidence == pytest.approx(0.6)
    assert (bins[3].low, bins[3].high, bins[3].accuracy) == (0.6, 0.8, 0.5)


def test_ece_is_what_the_bins_say_and_small_where_the_model_knows_itself():
    draw = np.random.default_rng(0)
    shares = probabilities(draw.normal(size=(5000, 4)) * 2)
    gold = np.array([draw.choice(4, p=row) for row in shares])
    bins = reliability_bins(shares, gold)
    by_hand = sum(one.count / 5000 * abs(one.confidence - one.accuracy) for one in bins)
    assert ece(shares, gold).value == pytest.approx(100 * by_hand)
    assert ece(shares, gold).value < 2.5
    always_wrong = (shares.argmax(axis=1) + 1) % 4
    assert ece(shares, always_wrong).value == pytest.approx(100 * shares.max(axis=1).mean())


@pytest.mark.parametrize("wanted", [0.4, 1.0, 3.0])
def test_the_temperature_that_made_the_labels_is_found(wanted):
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(6000, 5)) * 2
    gold = np.array([draw.choice(5, p=row) for row in probabilities(logits, wanted)])
    found = fit_temperature(logits, gold)
    assert found == pytest.approx(wanted, rel=0.06)
    # no temperature near it is better, and answers are the same
    assert all(nll(logits, gold, found).value <= nll(logits, gold, found * by).value for by in (0.98, 1.02))
    assert (probabilities(logits, found).argmax(axis=1) == logits.argmax(axis=1)).all()


def test_the_temperature_stays_within_bounds_whatever_the_logits():
    logits = numbers([5.0, 0.0], [3.0, 1.0])
    assert fit_temperature(logits, numbers(0, 0)) == 1.0  # all right: no minimum
    assert fit_temperature(np.zeros((0, 2)), np.zeros(0, dtype=int)) == 1.0
    assert fit_temperature(logits, numbers(1, 1)) == pytest.approx(20)  # all wrong: the hotter the better
    assert fit_temperature(logits * 1e6, numbers(0, 1)) == pytest.approx(20)
    assert fit_temperature(numbers([1e-3, 0.0]).repeat(100, axis=0), (np.arange(100) < 1).astype(int)) == pytest.approx(
        0.05
    )
    with pytest.raises(ValueError, match="finite"):
        fit_temperature(numbers([math.inf, 0.0]), numbers(0))


def test_several_labels_are_decisions_of_two_classes():
    logits = numbers([2.0, -1.0], [0.0, 3.0])
    shares = probabilities(logits, 2.0, several=True)
    assert shares == pytest.approx(1 / (1 + np.exp(-logits / 2)))
    two, gold = as_two_classes(logits, numbers([1, 0], [0, 1]))
    assert probabilities(two, 2.0)[:, 1] == pytest.approx(shares.ravel())
    assert gold.tolist() == [1, 0, 0, 1]
    assert probabilities(numbers([1e5, -1e5]), several=True).tolist() == [[1.0, 0.0]]
