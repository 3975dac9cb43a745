"""Error rates: against jiwer on random texts, and by hand."""

import random

import jiwer
import numpy as np
import pytest

from sightline.metrics.base import LESS_IS_BETTER, paired_bootstrap
from sightline.metrics.error_rates import (
    ERROR_RATES,
    Edit,
    cer,
    error_counts,
    sentence_error,
    wer,
    word_edits,
    word_errors,
    written_without_spaces,
)

pytestmark = pytest.mark.fast


WORDS = ["the", "cat", "sat", "on", "a", "mat", "it's", "über"]


def random_texts(count, seed, most=14):
    """References, and what a poor recogniser made of them: many repeated words, so that many alignments tie."""
    draw = random.Random(seed)
    references, hypotheses = [], []
    for _ in range(count):
        reference = draw.choices(WORDS, k=draw.randint(1, most))
        hypothesis = []
        for word in reference:
            hypothesis += draw.choice([[word], [word], [], [draw.choice(WORDS)], [word, draw.choice(WORDS)]])
        if draw.random() < 0.2:
            draw.shuffle(hypothesis)
        references.append(" ".join(reference))
        hypotheses.append(" ".join(hypothesis))
    return references, hypotheses


def counted(output):
    kinds = {name: getattr(output, name) for name in ("substitutions", "insertions", "deletions")}
    return {**kinds, "words": output.substitutions + output.deletions + output.hits}


@pytest.mark.parametrize("seed", range(3))
def test_words_and_characters_are_counted_as_by_jiwer(seed):
    references, hypotheses = random_texts(400, seed)
    for rate, process, measure in (
        (wer, jiwer.process_words, jiwer.wer),
        (cer, jiwer.process_characters, jiwer.cer),
    ):
        assert rate(hypotheses, references).value == pytest.approx(100 * measure(references, hypotheses))
        statistics = rate.statistics(hypotheses, references)
        for row, (reference, hypothesis) in enumerate(zip(references, hypotheses, strict=True)):
            expected = counted(process(reference, hypothesis))
            assert dict(zip(expected, statistics.rows[row].astype(int).tolist(), strict=True)) == expected
        assert error_counts(statistics) == counted(process(references, hypotheses))


def test_the_alignment_is_that_of_jiwer():
    kinds = {"equal": "match", "substitute": "substitution", "insert": "insertion", "delete": "deletion"}
    references, hypotheses = random_texts(400, 7, most=9)
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        expected = []
        for chunk in jiwer.process_words(reference, hypothesis).alignments[0]:
            length = max(chunk.ref_end_idx - chunk.ref_start_idx, chunk.hyp_end_idx - chunk.hyp_start_idx)
            expected += [kinds[chunk.type]] * length
        edits = word_edits(reference, hypothesis)
        assert [one.kind for one in edits] == expected
        assert " ".join(one.reference for one in edits if one.reference) == reference
        assert " ".join(one.prediction for one in edits if one.prediction) == hypothesis


def test_errors_are_named_in_order():
    assert word_errors("turn the light on", "turn a light on now") == [
        Edit("substitution", "the", "a"),
        Edit("insertion", "", "now"),
    ]
    assert word_errors("a b", "b") == [Edit("deletion", "a", "")]
    assert word_errors("你好吗", "你很吗") == [Edit("substitution", "好", "很")]
    assert word_errors("", "") == []


def test_empty_texts_count_as_by_jiwer():
    for references, hypotheses in ((["a b", "c"], ["", ""]), (["a", ""], ["a", "x y"]), ([""], [""]), ([""], ["x y"])):
        assert wer(hypotheses, references).value == pytest.approx(100 * jiwer.wer(references, hypotheses))
        assert cer(hypotheses, references).value == pytest.approx(100 * jiwer.cer(references, hypotheses))
    assert wer([], []).value == 0.0


def test_a_sentence_with_any_error_is_wrong():
    assert sentence_error(["a b", "a  b ", "a", "A b"], ["a b"] * 4).value == 50.0
    assert sentence_error(["A, b!"], ["a b"], normalise=True).value == 0.0


def test_characters_of_chinese_are_words_unless_it_is_spaced():
    assert wer(["北京很冷"], ["北京不冷"]).value == 25.0
    assert "unit:character" in wer(["北京很冷"], ["北京不冷"]).signature
    assert wer(["北京 很 冷"], ["北京 不 冷"]).value == pytest.approx(100 / 3)
    mixed = wer.statistics(["我很爱Java", "他很好"], ["我很爱Perl", "他很好"])
    assert list(error_counts(mixed).values()) == [1, 0, 0, 7]
    pinyin = wer(["ni3 hao2"], ["ni3 hao3"])
    assert pinyin.value == 50.0
    assert "unit:word" in pinyin.signature
    assert written_without_spaces(["你", "好"])
    assert not written_without_spaces(["hello"])


def test_case_and_punctuation_count_unless_normalised_and_the_signature_says_so():
    hypotheses, references = ["it's a cat, isn’t it"], ["It's a cat. Isn't it?"]
    assert error_counts(wer.statistics(hypotheses, references))["substitutions"] == 4
    assert wer(hypotheses, references, normalise=True).value == 0.0
    assert cer(hypotheses, references, normalise=True).value == 0.0
    assert wer(hypotheses, references).signature.startswith("nrefs:1|unit:word|case:mixed|punct:yes|version:sightline-")
    assert "|case:lc|punct:no|" in wer(hypotheses, references, normalise=True).signature
    assert cer(["ab c"], ["a bc"]).value == 50.0
    assert cer(["ab c"], ["a bc"], spaces=False).value == 0.0
    assert "unit:character,no-spaces" in cer(["ab c"], ["a bc"], spaces=False).signature


def test_counts_of_utterances_add_up_for_parts_and_resamples():
    references, hypotheses = random_texts(60, 3)
    statistics = wer.statistics(hypotheses, references)
    part = list(range(0, 60, 2))
    expected = jiwer.wer([references[row] for row in part], [hypotheses[row] for row in part])
    assert statistics.score(part) == pytest.approx(100 * expected)
    first, second = paired_bootstrap([statistics, wer.statistics(references, references)], samples=100)
    assert first.interval[0] < first.value < first.interval[1]
    assert (second.value, second.p) == (0.0, pytest.approx(1 / 101))
    assert len(statistics.of_each()) == 60


def test_a_long_utterance_is_aligned_without_a_table_of_numbers():
    draw = np.random.default_rng(0)
    reference = " ".join(map(str, draw.integers(50, size=3000)))
    hypothesis = " ".join(map(str, draw.integers(50, size=2500)))
    assert wer([hypothesis], [reference]).value == pytest.approx(100 * jiwer.wer(reference, hypothesis))


def test_of_error_rates_less_is_better():
    assert ERROR_RATES.keys() <= LESS_IS_BETTER
