"""Numbers for words that a vocabulary does not have."""

import pytest

from sightline.text.copying import SourceWords, numbered_sources, numbered_targets
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.vocabulary import UNKNOWN

TEXTS = ["the cat sat on the mat .", "the dog sat (again) on the cat ."]


def words(**fields):
    return train_tokeniser(TEXTS, TokeniserConfig(method="words", vocab_size=30, min_frequency=1, **fields))


@pytest.fixture
def tokeniser():
    return words()


def test_a_word_has_the_number_of_its_first_place(tokeniser):
    size = tokeniser.words
    (source,) = numbered_sources(tokeniser, ["the Zorg met Quux . the Zorg sat on Quux ."])
    assert [source[1], source[2], source[3]] == [size + 1, size + 2, size + 3]
    assert [source[6], source[9]] == [size + 1, size + 3]
    assert max(source[:1] + source[4:6] + source[7:9]) < size


def test_a_target_has_the_numbers_of_its_source(tokeniser):
    size, source = tokeniser.words, "the Zorg sat on Quux ."
    ((first, second, third, fourth),) = numbered_targets(tokeniser, [source], ["Quux sat Blah Zorg"])
    assert (first, third, fourth) == (size + 4, UNKNOWN, size + 1)
    assert second == tokeniser.encode(["the sat"])[0][1]


def test_a_word_is_known_with_and_without_a_space_before_it(tokeniser):
    size = tokeniser.words
    (target,) = numbered_targets(tokeniser, ["the (Zorg) sat on Zorg"], ["the Zorg (Zorg)"])
    assert target[1] == target[3] == size + 2


def test_small_letters_are_compared_where_the_vocabulary_has_no_others():
    tokeniser = words(lower=True)
    source = "the Zorg sat"
    assert numbered_targets(tokeniser, [source], ["zorg ZORG"]) == [[tokeniser.words + 1] * 2]
    assert SourceWords(tokeniser, source).spell([tokeniser.words + 1]) == ["▁Zorg"]


def test_what_is_copied_is_spelled_as_the_source_spells_it(tokeniser):
    vocabulary = SourceWords(tokeniser, "the (Zorg) sat")
    assert vocabulary.spell([tokeniser.words + 2, UNKNOWN, *tokeniser.encode(["the"])[0]]) == ["Zorg", "<unk>", "▁the"]
    assert vocabulary.word(tokeniser.words + 100) is None


@pytest.mark.parametrize("method", ["bpe", "unigram"])
def test_pieces_need_no_numbers(method):
    tokeniser = train_tokeniser(TEXTS * 9, TokeniserConfig(method=method, vocab_size=400))
    texts = ["the Zorg sat on the mat ."]
    assert numbered_sources(tokeniser, texts) == tokeniser.encode(texts)


def test_unknown_characters_have_numbers():
    tokeniser = train_tokeniser(TEXTS, TokeniserConfig(method="characters", vocab_size=30))
    (source,) = numbered_sources(tokeniser, ["Ωcat Ω"])
    assert source[0] == source[-1] == tokeniser.words
    assert numbered_targets(tokeniser, ["Ωcat"], ["tΩ"])[0][1] == tokeniser.words
