"""Word alignment: links, symmetrising and error rates against transcriptions, words against the text, and a model that
is known to read backwards."""

import itertools
import random

import numpy as np
import pytest

from sightline.align.aligning import sides_of
from sightline.align.links import (
    AlignmentScore,
    GoldLinks,
    agreement_of,
    all_agreements,
    all_error_rates,
    best_columns,
    links_of,
    parse_links,
    pharaoh,
    score,
    symmetrised,
)
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.transformer import TransformerConfig
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.text.words import covered_words, cutting_of, word_spans

pytestmark = pytest.mark.fast

MODELS = {
    "rnnsearch": RNNSearchConfig(16, 16, dropout=0.1),
    "luong": LuongConfig(16, 16, 16, layers=2, dropout=0.1),
    "transformer": TransformerConfig(16, 2, 32, 2, 3, dropout=0.1, tied="none"),
}
TEXTS = ["the old dog sleeps", "a dog and the cat", "cats sleep, dogs dream"] * 20
HAN = "一二三四五六七八"


def random_links(generator, sources, targets, count):
    return frozenset((generator.randrange(sources), generator.randrange(targets)) for _ in range(count))


# From weights to links


def test_each_row_links_to_its_largest_column():
    weights = np.array([[0.2, 0.5, 0.1], [0.0, 0.0, 0.0], [0.4, 0.1, 0.45]])
    assert links_of(best_columns(weights)) == {(1, 0), (2, 2)}
    assert links_of(best_columns(weights, threshold=0.45)) == {(1, 0)}
    assert best_columns(np.zeros((2, 0))).shape == (2, 0)
    together = best_columns(np.stack([weights, weights[::-1]]))
    assert links_of(together[1]) == {(2, 0), (1, 2)}


def by_the_book(forward, backward, shape, final):
    """Koehn's pseudocode on matrices, cell by cell."""
    f, b = np.zeros(shape, bool), np.zeros(shape, bool)
    for matrix, links in ((f, forward), (b, backward)):
        for source, target in links:
            matrix[target, source] = True
    a, union = f & b, f | b
    steps = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    before = -1
    while before != a.sum():
        before = a.sum()
        for (t, s), (dt, ds) in itertools.product(np.ndindex(shape), steps):
            u, v = t + dt, s + ds
            if a[t, s] and 0 <= u < shape[0] and 0 <= v < shape[1] and union[u, v]:
                a[u, v] |= not (a[u].any() and a[:, v].any())
    for matrix in (f, b) if final else ():
        for t, s in np.ndindex(shape):
            covered = a[t].any(), a[:, s].any()
            a[t, s] |= matrix[t, s] and not (any(covered) if final == "and" else all(covered))
    return links_of(a)


def test_symmetrising_is_that_of_the_book():
    generator = random.Random(0)
    seen = set()
    for _ in range(120):
        sources, targets = generator.randint(1, 9), generator.randint(1, 9)
        forward, backward = (random_links(generator, sources, targets, generator.randint(0, 12)) for _ in range(2))
        assert symmetrised(forward, backward, "intersection") == forward & backward
        assert symmetrised(forward, backward, "union") == forward | backward
        sizes = []
        for how, final in (("grow-diag", ""), ("grow-diag-final", "or"), ("grow-diag-final-and", "and")):
            found = symmetrised(forward, backward, how)
            assert found == by_the_book(forward, backward, (targets, sources), final), (forward, backward, how)
            sizes.append(len(found))
        seen.add(tuple(np.sign(np.diff([sizes[0], sizes[2], sizes[1]]))))
    assert (1, 1) in seen  # the three are not one and the same


def test_growing_goes_on_from_what_it_added():
    forward = frozenset({(0, 0), (1, 1), (2, 2), (5, 5)})
    backward = frozenset({(0, 0), (5, 6)})
    assert symmetrised(forward, backward, "grow-diag") == {(0, 0), (1, 1), (2, 2)}
    assert symmetrised(forward, backward, "grow-diag-final-and") == {(0, 0), (1, 1), (2, 2), (5, 5)}
    assert symmetrised(forward, backward, "grow-diag-final") == {(0, 0), (1, 1), (2, 2), (5, 5), (5, 6)}


# How far from gold


def test_the_error_rate_by_hand():
    gold = GoldLinks(frozenset({(0, 0), (1, 1)}), frozenset({(1, 2)}))
    assert gold.possible == {(0, 0), (1, 1), (1, 2)}
    found = score(frozenset({(0, 0), (1, 2), (3, 3)}), gold)
    # 3 found, 2 sure; found and sure 1, found and possible 2
    assert found == AlignmentScore(3, 2, 1, 2)
    assert found.error_rate == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert (found.precision, found.recall) == (pytest.approx(2 / 3), pytest.approx(1 / 2))
    assert found.f1 == pytest.approx(2 * (2 / 3) * (1 / 2) / (2 / 3 + 1 / 2))
    twice = found + score(gold.sure, gold)
    assert (twice.found, twice.error_rate) == (5, pytest.approx(1 - (3 + 4) / (5 + 4)))
    assert AlignmentScore().error_rate == AlignmentScore().precision == AlignmentScore().f1 == 0.0
    assert found.to_json()["error_rate"] == found.error_rate


def test_many_at_once_are_as_one_by_one():
    generator = random.Random(1)
    ways = [random_links(generator, 6, 5, generator.randint(0, 8)) for _ in range(7)]
    sure, possible = random_links(generator, 6, 5, 5), random_links(generator, 6, 5, 5)

    def cells(links):
        matrix = np.zeros((5, 6), bool)
        for source, target in links:
            matrix[target, source] = True
        return matrix.ravel()

    flat = np.stack([cells(way) for way in ways])
    rates = all_error_rates(flat, cells(sure), cells(possible))
    np.testing.assert_allclose(rates, [score(way, GoldLinks(sure, possible)).error_rate for way in ways])
    agreements = all_agreements(flat, flat[:3])
    np.testing.assert_allclose(agreements, [[agreement_of(a, b).f1 for b in ways[:3]] for a in ways], atol=1e-6)


def test_links_are_read_as_they_are_written():
    assert pharaoh([(2, 1), (0, 0), (10, 3)]) == "0-0 2-1 10-3"
    assert parse_links(" 0-0  2p1 10-3\n") == GoldLinks(frozenset({(0, 0), (10, 3)}), frozenset({(2, 1)}))
    assert parse_links("") == GoldLinks(frozenset(), frozenset())
    for wrong in ("0", "0-", "-1-2", "0:0", "a-b", "0-0,1-1", "0-12345678"):
        with pytest.raises(ValueError, match="expected links such as"):
            parse_links(wrong)


# Words


def test_words_are_what_python_splits():
    generator = random.Random(2)
    for _ in range(200):
        text = "".join(generator.choice("ab \t\u00a0\u3000é.\x1c界") for _ in range(generator.randint(0, 20)))
        assert [text[start:end] for start, end in word_spans(text)] == text.split()


def test_scripts_without_spaces_are_cut_at_characters():
    text = "他说OK2。 是 吗"
    assert [text[a:b] for a, b in word_spans(text, "characters")] == ["他", "说", "OK2", "。", "是", "吗"]
    assert cutting_of(["我们今天去看电影。", "他说 OK"]) == "characters"
    assert cutting_of(["我们 今天 去 看 电影 。"]) == "spaces"
    assert cutting_of(["a sentence", "with 一 word"]) == "spaces"
    assert cutting_of(["antidisestablishment一二"]) == "spaces"
    assert cutting_of([]) == "spaces"


@pytest.mark.parametrize(
    "config",
    [
        TokeniserConfig(vocab_size=400),
        TokeniserConfig(vocab_size=400, lower=True),
        TokeniserConfig("unigram", vocab_size=400),
        TokeniserConfig("characters", vocab_size=40),
        TokeniserConfig("words", vocab_size=40),
    ],
    ids=lambda config: config.method + "-lower" * config.lower,
)
@pytest.mark.parametrize("cutting", ["spaces", "characters"])
def test_pieces_map_back_to_the_words_exactly(config, cutting):
    """Also where the tokeniser changes the text: capitals, characters it never saw, blanks of all kinds."""
    tokeniser = train_tokeniser(TEXTS, config)
    for text in ("  The  DOG,  sleeps\t", "İstanbul 🐕🐕 dog", "dogs\u00a0sleep\x1ca cat", "", " ", "我们 sleep 今天"):
        (side,) = sides_of(tokeniser, [text], cutting)
        spans = word_spans(text, cutting)
        assert side.words == tuple(text[a:b] for a, b in spans)
        covered = {word for _, word, _ in side.covered}
        assert covered == set(range(len(spans)))  # no word is lost
        pieces = [span for _, span in tokeniser.pieces(text)]
        assert len(pieces) == len(side.ids)
        shares = np.zeros(len(pieces))
        for piece, word, share in side.covered:
            shares[piece] += share
            assert pieces[piece][0] < spans[word][1]
            assert spans[word][0] < pieces[piece][1]
        blank = np.array([not text[a:b].strip() for a, b in pieces], dtype=float)
        np.testing.assert_allclose(shares, 1 - blank)


def test_a_piece_over_two_words_is_shared_by_its_letters():
    assert covered_words([(0, 3), (3, 4)], [(0, 1), (1, 3)]) == [
        (0, 0, pytest.approx(1 / 3)),
        (0, 1, pytest.approx(2 / 3)),
    ]
