"""Scores: against hand-computed values, sacreBLEU, values of Google's rouge-score, and plain transcriptions."""

import itertools
import random
import time
from typing import get_args

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from sightline import metrics as scores
from sightline.cli import parsers as commands
from sightline.config import override
from sightline.errors import UserError
from sightline.metrics import base as bootstrap
from sightline.metrics.rouge_scores import common_length
from sightline.metrics.texts import words_of
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.translate import TRANSLATE

pytestmark = pytest.mark.fast

POLICE = "police killed the gunman"
CHINESE = ["北京的冬天很冷。", "这是我们昨天买的2本书。", "他在の家商店门口等了很久。"]
JAPANESE = ["東京の冬は寒いです。", "これは昨日買った本です。"]
THAI = ["อากาศหนาวมาก", "ฉันซื้อหนังสือเมื่อวานนี้"]


def noisy(texts, kept, seed=0):
    """Every word is kept with a probability, or replaced or dropped."""
    draw = random.Random(seed)
    return [
        " ".join(word if draw.random() < kept else draw.choice(["", "x", "the"]) for word in text.split(" "))
        for text in texts
    ]


@pytest.fixture(scope="module")
def corpus():
    """References with punctuation, capitals, digits and short sentences, and three systems of rising quality."""
    draw = random.Random(5)
    words = ["The", "a", "cat,", "dog", "sat.", "on", "1,000", "mats", "and", "ran;", "(fast)", "House", "über", "it's"]
    references = [" ".join(draw.choices(words, k=draw.randint(1, 25))) for _ in range(120)]
    return references, [noisy(references, kept, seed) for seed, kept in enumerate((0.6, 0.62, 0.9))]


# ROUGE


@pytest.mark.parametrize(
    ("kind", "hypothesis", "reference", "expected"),
    [
        # Lin 2004, section 3: both share the bigram "the gunman", but only one keeps the order of its words.
        ("rouge2", "police kill the gunman", POLICE, 100 / 3),
        ("rouge2", "the gunman kill police", POLICE, 100 / 3),
        ("rougeL", "police kill the gunman", POLICE, 75.0),
        ("rougeL", "the gunman kill police", POLICE, 50.0),
        # clipped: the reference has "the" twice only, so that three words of 4 and 7 are shared
        ("rouge1", "the the the cat", "cat on the mat by the door", 200 * 3 / 11),
        ("rouge1", "Don't STOP_now!", "don t stop now", 100.0),
        ("rouge1", "", "a", 0.0),
        ("rouge1", "a", "...", 0.0),
        ("rouge2", "a", "a", 0.0),
        # Lin 2004, section 3.2: w1 w2 w3 w4 w5 against two lines whose subsequences are w1 w2 and w1 w3 w5
        ("rougeLsum", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", "w1 w2 w3 w4 w5", 200 * 4 / 15),
        ("rougeL", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5", "w1 w2 w3 w4 w5", 200 * 4 / 15),
        ("rougeL", "c d\na b", "a b\nc d", 50.0),
        ("rougeLsum", "c d\na b", "a b\nc d", 100.0),
        ("rouge1", "我们去北京", "我去北京吧", 80.0),
        ("rouge2", "我们去北京", "我去北京吧", 50.0),
    ],
)
def test_rouge_by_hand(kind, hypothesis, reference, expected):
    assert scores.rouge_f1(kind, hypothesis, reference) == pytest.approx(expected)


def test_rouge_is_the_mean_of_texts_and_says_how():
    found = scores.rouge("rougeL")(["police kill the gunman", "the gunman kill police"], [POLICE, POLICE])
    assert found.value == pytest.approx(62.5)
    for part in ("lcs:text", "case:lc", "stem:no", "tok:alnum,char-if-no-spaces", "f1:mean"):
        assert part in found.signature
    signatures = {scores.rouge(kind)(["a"], ["a"]).signature for kind in ("rouge1", "rouge2", "rougeL", "rougeLsum")}
    assert len(signatures) == 4


# F1 of rouge-score 0.1.2 without its stemmer: hypothesis, reference, rouge1, rouge2, rougeL, rougeLsum
ROUGE_SCORE = [
    (
        "and don't was - slow. red It's then said:",
        "and don't was re-read - slow. red It's then said:",
        (0.90909091, 0.80000000, 0.90909091, 0.90909091),
    ),
    (
        "... red re-read he - red don't and it",
        "... red 2024 re-read he - red don't and it it",
        (0.90000000, 0.77777778, 0.90000000, 0.90000000),
    ),
    (
        "Cat THE mat it on said: re-read house Cat",
        "Cat THE on mat it Cat on said: re-read house Cat he",
        (0.86956522, 0.66666667, 0.86956522, 0.86956522),
    ),
    (
        "... he 2024 2024 big THE",
        "... he 2024 Cat of 2024 big Cat THE",
        (0.76923077, 0.36363636, 0.76923077, 0.76923077),
    ),
    (
        "of -\non slow. cat dog re-read on ... slow.",
        "2024 it it it dog said:\nhouse he ... mat THE\nand sat It's Cat - he slow. then house - sat",
        (0.20689655, 0.00000000, 0.13793103, 0.20689655),
    ),
    (
        "\nhe and re-read house x2 he\n- a ran 2024 dog re-read don't THE mat big",
        "and It's fast, THE x2\nfast, mat under_score it -",
        (0.27586207, 0.00000000, 0.20689655, 0.27586207),
    ),
    (
        "don't THE red ...\nx2 don't ran ran of house a then slow.\n2024 slow.",
        "house THE slow. a house mat ...\nit",
        (0.34782609, 0.00000000, 0.17391304, 0.26086957),
    ),
    (
        "2024 re-read 'No!' re-read of\nre-read x2 ...\nsaid: the",
        "and it ran dog ... x2 big sat ran\nhe ... on mat fast, big 2024 and",
        (0.14814815, 0.00000000, 0.07407407, 0.14814815),
    ),
    (
        "'No!' big fast, was slow. a ran he dog fast,\nCat ... mat big It's was red 'No!' don't",
        "the 'No!' on\n- Cat house red and re-read\nhouse x2 'No!' 'No!' red said: dog slow. ran of",
        (0.35897436, 0.00000000, 0.20512821, 0.30769231),
    ),
    (
        "big ran Cat\n2024 mat said: THE x2 big of Cat the x2 'No!' of",
        "of on\nCat\nhe big don't said: of ...\n\nsat ... fast, dog and then then under_score dog",
        (0.30303030, 0.00000000, 0.18181818, 0.24242424),
    ),
    (
        "THE big x2 don't and\nthen 2024\nsat\nIt's dog was a then mat on x2 big the re-read then said: was",
        "Cat big he and\nand - - re-read was mat and\non ... it red\nwas 'No!' house house\nwas 'No!' dog ... It's",
        (0.46808511, 0.08888889, 0.25531915, 0.38297872),
    ),
]


@pytest.mark.parametrize("case", ROUGE_SCORE, ids=range(len(ROUGE_SCORE)))
def test_rouge_agrees_with_rouge_score(case):
    hypothesis, reference, expected = case
    found = [scores.rouge_f1(kind, hypothesis, reference) for kind in ("rouge1", "rouge2", "rougeL", "rougeLsum")]
    assert found == pytest.approx([100 * value for value in expected], abs=1e-6)


def plain_table(first, second):
    """The longest common subsequence as textbooks compute it."""
    table = np.zeros((len(first) + 1, len(second) + 1), dtype=int)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1, j + 1] = table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
    return table[-1, -1]


def test_the_longest_common_subsequence_is_the_tables():
    draw = random.Random(0)
    for letters in ("ab", "abcdef", "abcdefghijklmnopqrstuvwxyz"):
        for _ in range(60):
            first, second = (draw.choices(letters, k=draw.choice([0, 1, 5, 40, 90])) for _ in range(2))
            assert common_length(first, second) == plain_table(first, second)


def test_long_texts_are_quick():
    """Two texts of a thousand words are a table of a million cells, which takes tenths of a second."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices([str(i) for i in range(300)], k=1000)) for _ in range(41)]
    started = time.process_time()
    for first, second in itertools.pairwise(texts):
        scores.rouge_f1("rougeL", first, second)
    assert time.process_time() - started < 2


def test_words_are_whole_in_every_script():
    assert words_of("Ça coûte 3,50 €, l'été_dernier") == ["ça", "coûte", "3", "50", "l", "été", "dernier"]
    assert words_of("हिन्दी में") == ["हिन्दी", "में"], "vowel signs and viramas belong to their letters"
    assert words_of("한국어 문장") == ["한국어", "문장"]
    assert words_of("用Python写3个ファイル。") == ["用", "python", "写", "3", "个", "フ", "ァ", "イ", "ル"]
    assert words_of("อากาศ") == list("อากาศ")


# BLEU and chrF


@pytest.mark.parametrize(
    ("references", "expected"),
    [
        (["A house.", "Ein Haus."], "13a"),
        (["2024-08-27", "1999"], "13a"),
        ([""], "13a"),
        (["한국어 문장입니다"], "13a"),
        (["日本 means Japan, as every reader of this sentence knows"], "13a"),
        (CHINESE, "zh"),
        (["用 PyTorch 写的程序在北京运行得很快"], "zh"),
        (JAPANESE, "char"),
        (["カタカナ"], "char"),
        (THAI, "char"),
        (["ខ្ញុំស្រឡាញ់ភាសាខ្មែរ"], "char"),
        (["ຂ້ອຍຮັກພາສາລາວ"], "char"),
        (["ကျွန်တော်မြန်မာစာ"], "char"),
    ],
)
def test_the_script_of_the_references_chooses_the_tokeniser(references, expected):
    assert scores.bleu_tokeniser(references) == expected
    assert f"tok:{expected}|" in scores.bleu(references, references).signature


@pytest.mark.parametrize("given", get_args(scores.BleuTokeniser))
def test_a_tokeniser_can_be_given(given):
    hypotheses = ["北京的冬天不冷。", "这是我昨天买的2本书。", "他在门口等了很久。"]
    expected = BLEU(tokenize=given).corpus_score(hypotheses, [CHINESE])
    found = scores.bleu(hypotheses, CHINESE, given)
    assert found.value == expected.score
    assert f"tok:{given}|" in found.signature
    assert scores.bleu.statistics(hypotheses, CHINESE, tokenise=given).score() == pytest.approx(expected.score)


def test_chinese_is_not_one_word():
    hypotheses = ["北京的冬天不冷。", "这是我昨天买的2本书。", "他在门口等了很久。"]
    assert scores.bleu(hypotheses, CHINESE).value > 30
    assert scores.bleu(hypotheses, CHINESE, "13a").value < 5


def test_an_unknown_tokeniser_is_named():
    with pytest.raises((UserError, TypeError), match="klingon"):  # under the tests' type checks it is a TypeError
        scores.bleu(["a"], ["a"], "klingon")


def reference_scores(name, hypotheses, references):
    """sacreBLEU's own numbers, and plain means for the rest."""
    metrics = {"bleu": BLEU(), "tokenised_bleu": BLEU(tokenize="none", lowercase=True), "chrf": CHRF()}
    if name in metrics:
        return metrics[name].corpus_score(hypotheses, [references]).score
    if name == "exact":
        return 100 * np.mean([a == b for a, b in zip(hypotheses, references, strict=True)])
    return np.mean([scores.rouge_f1(name, a, b) for a, b in zip(hypotheses, references, strict=True)])


@pytest.mark.parametrize("name", scores.METRICS)
def test_counts_add_up_to_the_score_of_any_part(corpus, name):
    references, systems = corpus
    for hypotheses in systems:
        metric = scores.METRICS[name]
        statistics = metric.statistics(hypotheses, references)
        whole = reference_scores(name, hypotheses, references)
        assert metric(hypotheses, references).value == pytest.approx(whole)
        assert metric(hypotheses, references).signature == metric.signature(hypotheses, references)
        assert statistics.score() == pytest.approx(whole)
        for chosen in ([3], [1, 5, 7], list(range(0, 120, 2)), [4, 4, 4, 9]):
            part = [hypotheses[row] for row in chosen], [references[row] for row in chosen]
            assert statistics.score(chosen) == pytest.approx(reference_scores(name, *part))


def test_sentence_chrf_is_sacrebleus(corpus):
    references, systems = corpus
    hypotheses = [*systems[0], "", "a b", "  ", "ab", "cat", "猫很小"]
    references = [*references, "a", "ab", "x", "abcdefgh", "abcdefgh", "猫不小。"]
    expected = [CHRF().sentence_score(a, [b]).score for a, b in zip(hypotheses, references, strict=True)]
    assert scores.chrf.statistics(hypotheses, references).of_each() == pytest.approx(expected)


def test_long_outputs_for_short_references_count_as_in_sacrebleu():
    """Where a reference has no n-grams of an order, those of the output are not held against it."""
    hypotheses, references = ["abcdefghij", "abcdxfgh"], ["ab", "abcdefgh"]
    expected = CHRF().corpus_score(hypotheses, [references]).score
    assert scores.METRICS["chrf"].statistics(hypotheses, references).score() == pytest.approx(expected)


# By length


def test_buckets_by_length():
    sources = [" ".join("w" * count) for count in (9, 10, 1, 31, 14, 300, 30, 2)]
    found = {bucket.label: bucket.rows for bucket in scores.buckets_by_length(sources)}
    assert found == {"1–9": [0, 2, 7], "10–14": [1, 4], "30+": [3, 5, 6]}, "empty ones are left out"
    assert {bucket.unit for bucket in scores.buckets_by_length(sources)} == {"words"}
    given = scores.buckets_by_length(sources, edges=(5, 6, 100))
    assert [(one.label, len(one.rows)) for one in given] == [("5", 2), ("6–99", 5), ("100+", 1)]
    with pytest.raises(ValueError, match="each above the one before"):
        scores.buckets_by_length(sources, edges=(5, 5))


def test_scripts_without_spaces_are_counted_by_character():
    (bucket,) = scores.buckets_by_length(["北京的 冬天很冷", "我们去买十本书吧", "天很冷"], edges=(1, 9))
    assert (bucket.unit, bucket.label, bucket.rows) == ("characters", "1–8", [0, 1, 2])


# Paired bootstrap


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU()), ("chrf", CHRF())])
def test_resamples_are_scores_of_resampled_text(corpus, name, metric):
    """The long way: draw sentences, score their text with sacreBLEU, look at the quantiles and the signs."""
    references, systems = corpus
    drawn = np.random.default_rng(3).integers(len(references), size=(40, len(references))).tolist()
    plain = np.array(
        [
            [metric.corpus_score([texts[i] for i in rows], [[references[i] for i in rows]]).score for rows in drawn]
            for texts in systems[:2]
        ]
    )
    statistics = [scores.METRICS[name].statistics(texts, references) for texts in systems[:2]]
    first, second = scores.paired_bootstrap(statistics, samples=40, seed=3)
    for one, values, texts in zip((first, second), plain, systems, strict=False):
        assert one.interval == pytest.approx(np.quantile(values, [0.025, 0.975]))
        assert one.value == pytest.approx(metric.corpus_score(texts, [references]).score)
    assert (first.difference, first.p) == (None, None)
    assert second.difference == pytest.approx(second.value - first.value)
    worse = plain[0] >= plain[1] if second.value > first.value else plain[0] <= plain[1]
    assert 0 < worse.sum() < 40, "two systems so near that resamples disagree"
    assert second.p == pytest.approx((worse.sum() + 1) / 41)


def test_sacrebleu_finds_the_same(corpus, monkeypatch):
    """Its own paired bootstrap draws other samples and shifts its p another way: near is enough."""
    references, systems = corpus
    monkeypatch.setenv("SACREBLEU_SEED", "11")
    named = [(str(place), texts) for place, texts in enumerate(systems)]
    test = PairedTest(named, {"BLEU": BLEU(references=[references])}, None, test_type="bs", n_samples=2000)
    theirs = test()[1]["BLEU"]
    statistics = [scores.METRICS["bleu"].statistics(texts, references) for texts in systems]
    ours = scores.paired_bootstrap(statistics, samples=2000)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.value == pytest.approx(other.score)
        assert (mine.interval[1] - mine.interval[0]) / 2 == pytest.approx(other.ci, rel=0.1)
    assert ours[1].p == pytest.approx(theirs[1].p_value, abs=0.08)
    assert ours[1].p > 0.02
    assert ours[2].p == theirs[2].p_value == 1 / 2001


def test_a_system_does_not_differ_from_itself(corpus):
    references, systems = corpus
    one = scores.METRICS["chrf"].statistics(systems[0], references)
    assert scores.paired_bootstrap([one, one])[1].p == 1
    assert scores.paired_bootstrap([one, one])[1].difference == 0


def test_the_seed_decides_and_the_memory_does_not(corpus, monkeypatch):
    references, systems = corpus
    statistics = [scores.METRICS["rougeL"].statistics(texts, references) for texts in systems]
    before = scores.paired_bootstrap(statistics, samples=50, seed=1)
    assert before != scores.paired_bootstrap(statistics, samples=50, seed=2)
    monkeypatch.setattr(bootstrap, "_AT_ONCE", 7 * len(references))
    after = scores.paired_bootstrap(statistics, samples=50, seed=1)
    for one, other in zip(before, after, strict=True):
        assert one.interval == pytest.approx(other.interval)
        assert one.p == other.p


def test_systems_must_have_the_same_texts(corpus):
    references, systems = corpus
    whole, part = (scores.METRICS["exact"].statistics(systems[0][:count], references[:count]) for count in (9, 5))
    with pytest.raises(ValueError, match="same texts"):
        scores.paired_bootstrap([whole, part])


# The tables of metrics


def test_every_table_has_the_same_metrics():
    names = list(get_args(scores.TextMetric))
    assert names == ["bleu", "chrf", "exact", "tokenised_bleu", "rouge1", "rouge2", "rougeL"]
    assert list(scores.METRICS) == list(TRANSLATE.metrics) == names
    assert ("auto", *get_args(scores.BleuTokeniser)) == commands.BLEU.choices
    for name in names:
        assert override(TranslateConfig(), [f"metric={name}"]).metric == name


def test_no_text_at_all_is_no_error_for_exact_match():
    assert scores.exact_match([], []).value == 0
