"""The stemmer against NLTK's, and ROUGE of stems against rouge-score."""

from pathlib import Path

import pytest

from sightline.metrics import rouge, rouge_f1
from sightline.text.stemming import porter_stem

# Words of this project's documents, words made of the suffixes of Porter's rules, his own examples and NLTK's table of
# irregular words, each with the stem that `nltk.stem.porter.PorterStemmer` (3.10.4) gives.
STEMS = Path(__file__).parents[1] / "fixtures" / "porter-stems.txt"


def test_stems_are_those_of_nltk():
    pairs = [line.split() for line in STEMS.read_text(encoding="utf-8").splitlines()]
    assert len(pairs) > 4000
    different = {word: (porter_stem(word), stem) for word, stem in pairs if porter_stem(word) != stem}
    assert not different


def test_the_examples_of_the_paper():
    stems = {"caresses": "caress", "plastered": "plaster", "hopping": "hop", "relational": "relat", "adoption": "adopt"}
    assert {word: porter_stem(word) for word in stems} == stems


# F1 of rouge-score 0.1.2 with its stemmer: hypothesis, reference, rouge1, rouge2, rougeL, rougeLsum
ROUGE_SCORE = [
    (
        "to committees fell companies buys said\n to profits committees relational to",
        "runs to agrees relational to buy committees agreed buying committees deciding Skies",
        52.173913,
        9.52381,
        34.782609,
        43.478261,
    ),
    (
        "Skies agrees buy agrees",
        "to agreed buy said\n 3 profits committees falling committee's 3",
        26.666667,
        15.384615,
        26.666667,
        26.666667,
    ),
    (
        "deciding decided 2000s committees buying 3 fell profits companies runs deciding Skies to 3",
        "agrees runs 3 news, agrees runs The decided",
        27.272727,
        0.0,
        27.272727,
        27.272727,
    ),
    ("relational", "agreed runs agreed agreed dying buying fell fell fell said\n", 0.0, 0.0, 0.0, 0.0),
    (
        "agreed running relational news, said\n decided happily agreed relational profits committee's profit "
        "deciding happily",
        "buys buy",
        0.0,
        0.0,
        0.0,
        0.0,
    ),
    (
        "runs dying company's said\n company's Skies profits runs agrees relational",
        "relational falling profit was relational buying buys buy",
        20.0,
        0.0,
        20.0,
        20.0,
    ),
    (
        "runs companies buying and. profit committee's Skies company's news, Skies",
        "news, and.",
        28.571429,
        0.0,
        14.285714,
        14.285714,
    ),
    (
        "profits deciding agrees said\n was deciding happily",
        "committees committee's running happily running agrees buys news, buying to running 2000s",
        20.0,
        0.0,
        10.0,
        20.0,
    ),
    (
        "happily buying runs to profit was The Skies profit buy buy 3 buy decided",
        "committee's runs agreed company's The decided",
        27.272727,
        0.0,
        27.272727,
        27.272727,
    ),
    (
        "relational happily buying decided falling news, profits happily",
        "relational 2000s fell and. running agrees dying was",
        12.5,
        0.0,
        12.5,
        12.5,
    ),
    (
        "falling buys happily falling 3 to buying ran ran",
        "agreed 2000s ran was ran ran runs was companies",
        22.222222,
        12.5,
        22.222222,
        22.222222,
    ),
    (
        "committee's The buying 2000s The agreed buying was 3 3",
        "runs fell agreed news, committees profit agreed buying runs running",
        28.571429,
        10.526316,
        28.571429,
        28.571429,
    ),
]


@pytest.mark.parametrize("case", ROUGE_SCORE, ids=range(len(ROUGE_SCORE)))
def test_rouge_of_stems_agrees_with_rouge_score(case):
    hypothesis, reference, *expected = case
    kinds = ("rouge1", "rouge2", "rougeL", "rougeLsum")
    assert [rouge_f1(kind, hypothesis, reference, stem=True) for kind in kinds] == pytest.approx(expected, abs=1e-5)


def test_with_a_stemmer_endings_do_not_count_and_the_signature_says_so():
    texts, references = ["profits fell", "café prices"], ["profit falls", "cafés price"]
    plain, stemmed = rouge("rouge1"), rouge("rouge1", stem=True)
    assert plain(texts, references).value == 0
    assert stemmed(texts, references).value == pytest.approx(50)
    assert (plain.name, stemmed.name) == ("rouge1", "rouge1_stem")
    assert "stem:no" in plain(texts, references).signature
    assert "stem:porter-nltk" in stemmed(texts, references).signature


def test_words_of_three_letters_and_of_other_scripts_stay():
    assert rouge_f1("rouge1", "gas", "ga", stem=True) == 0  # rouge-score stems longer words only
    assert rouge_f1("rouge1", "caches", "cache", stem=True) == 100
    assert rouge_f1("rouge1", "我们去北京", "我去北京吧", stem=True) == pytest.approx(80)
