"""Each sentence has one tree, and the tree has a tag for each word."""

import subprocess
import sys
from functools import cache
from itertools import product

import pytest

from sightline.synthetic.trees import RULES, WORDS, tree_pairs

PAIRS = list(tree_pairs(0, 2000, (3, 20)))


def trees_of(sentence):
    """All trees of a sentence, found by trying every rule on every stretch: nothing is shared with the generator."""
    words = sentence.split()

    @cache
    def of(symbol, start, end):
        if symbol in WORDS:
            return {symbol.split(":")[0]} if end - start == 1 and words[start] in WORDS[symbol] else set()
        inner = set().union(*(of_all(tuple(rule.split()), start, end) for rule in RULES[symbol]))
        label = symbol.split("/")[0]
        return {f"({label} {tree} )" for tree in inner} if label else inner

    @cache
    def of_all(symbols, start, end):
        if len(symbols) == 1:
            return of(symbols[0], start, end)
        cuts = range(start + 1, end - len(symbols) + 2)
        firsts = ((cut, of(symbols[0], start, cut)) for cut in cuts)
        joined = (product(some, of_all(symbols[1:], cut, end)) for cut, some in firsts if some)
        return {f"{one} {others}" for pairs in joined for one, others in pairs}

    return of("S", 0, len(words))


def test_trees_are_balanced_and_have_a_tag_for_each_word():
    labels, tags = {"S", "NP", "VP", "PP", "SBAR"}, {name.split(":")[0] for name in WORDS}
    for sentence, tree in PAIRS:
        depth, leaves = 0, []
        tokens = tree.split(" ")
        for place, token in enumerate(tokens):
            depth += token.startswith("(") - (token == ")")
            assert depth > 0 or place == len(tokens) - 1
            if token.startswith("("):
                assert token[1:] in labels
                assert tokens[place + 1] != ")"
            elif token != ")":
                leaves.append(token)
        assert depth == 0
        assert len(leaves) == len(sentence.split(" "))
        for word, tag in zip(sentence.split(" "), leaves, strict=True):
            assert tag in tags
            assert any(word in words for name, words in WORDS.items() if name.split(":")[0] == tag)


@pytest.mark.parametrize(("lengths", "count"), [((2, 12), 60), ((13, 20), 20), ((21, 30), 5)], ids=str)
def test_no_sentence_has_a_second_tree(lengths, count):
    for sentence, tree in tree_pairs(5, count, lengths):
        assert trees_of(sentence) == {tree}, sentence


@pytest.mark.parametrize(
    ("sentence", "tree"),
    [
        (
            "Anna saw the man with a telescope",
            "(S (NP NNP ) (VP VBD (NP DT NN ) (PP IN (NP DT NN ) ) ) )",
        ),
        (
            "Anna saw the man with a hat",
            "(S (NP NNP ) (VP VBD (NP (NP DT NN ) (PP IN (NP DT NN ) ) ) ) )",
        ),
        (
            "Anna hit the man that saw Ben with a stick",
            "(S (NP NNP ) (VP VBD (NP (NP DT NN ) (SBAR WDT (VP VBD (NP NNP ) ) ) ) (PP IN (NP DT NN ) ) ) )",
        ),
        (
            "Anna hit the man that saw Ben with a mirror",
            "(S (NP NNP ) (VP VBD (NP (NP DT NN ) (SBAR WDT (VP VBD (NP NNP ) (PP IN (NP DT NN ) ) ) ) ) ) )",
        ),
        ("Anna saw Ben and Clara", "(S (NP NNP ) (VP VBD (NP (NP NNP ) CC (NP NNP ) ) ) )"),
        (
            "Anna saw Ben and Clara slept",
            "(S (S (NP NNP ) (VP VBD (NP NNP ) ) ) CC (S (NP NNP ) (VP VBD ) ) )",
        ),
    ],
)
def test_words_decide_what_belongs_to_what(sentence, tree):
    assert trees_of(sentence) == {tree}


def test_lengths_are_in_the_range_and_sentences_differ():
    counts = [len(sentence.split(" ")) for sentence, _ in PAIRS]
    assert set(counts) == set(range(3, 21))
    assert max(map(counts.count, range(3, 21))) < 2 * min(map(counts.count, range(3, 21)))
    assert len({sentence for sentence, _ in PAIRS}) == len(PAIRS)
    assert {len(sentence.split()) for sentence, _ in tree_pairs(1, 200, (21, 30))} == set(range(21, 31))


def test_a_seed_gives_the_same_sentences():
    assert list(tree_pairs(0, 50, (3, 20))) == PAIRS[:50]
    assert list(tree_pairs(1, 50, (3, 20))) != PAIRS[:50]
    # Not by the order of a set, which differs from process to process.
    code = "from sightline.synthetic.trees import tree_pairs; print(list(tree_pairs(0, 20, (3, 20))))"
    code += "; import sys; assert 'torch' not in sys.modules"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == str(PAIRS[:20])


def test_where_there_are_too_few_sentences_some_come_twice():
    few = [sentence for sentence, _ in tree_pairs(0, 100, (2, 2))]
    assert len(few) == 100
    assert len(set(few)) == len(WORDS["NNP:name"]) * len(WORDS["VBD:move"])


@pytest.mark.parametrize("lengths", [(1, 1), (5, 4), (-3, 0)], ids=str)
def test_ranges_without_sentences_are_refused(lengths):
    with pytest.raises(ValueError, match=r"sentences have at least 2 words"):
        tree_pairs(0, 1, lengths)
