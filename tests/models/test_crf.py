"""Sequences of tags against the enumeration of all of them."""

import itertools

import numpy as np
import pytest
import torch

from sightline.models.attentive import AttentiveConfig
from sightline.models.crf import CrfTags, allowed_tags, best_sequence
from sightline.models.heads import NOTHING
from sightline.models.text_to_labels import Texts

SCHEMES = {
    "IOB2": ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"],
    "BIOES": ["B-X", "E-X", "I-X", "O", "S-X"],
    "BMES": ["B", "E", "M", "S"],
}


def follows_rules(tags, ends):
    """A second reading of the rules, word by word."""
    kind = None
    for tag in tags:
        letter = tag[0]
        if letter in "IMEL" and kind != tag[2:]:
            return False
        if ends and kind is not None and letter not in "IMEL":
            return False
        kind = tag[2:] if letter in "BIM" else None
    return not (ends and kind is not None)


@pytest.mark.parametrize("names", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("words", [1, 2, 4])
def test_the_best_allowed_sequence_is_that_of_all_sequences(names, words):
    allowed, ends = allowed_tags(names), "E" in {name[0] for name in names}
    every = list(itertools.product(range(len(names)), repeat=words))
    legal = [tags for tags in every if follows_rules([names[tag] for tag in tags], ends)]
    assert [tags for tags in every if not allowed.breaks(tags)] == legal
    for seed in range(5):
        scores = np.random.default_rng(seed).normal(size=(words, len(names)))
        best = max(legal, key=lambda tags: sum(scores[place, tag] for place, tag in enumerate(tags)))
        assert tuple(best_sequence(scores, allowed)) == best


def test_where_no_sequence_is_allowed_each_word_has_its_best_tag():
    assert best_sequence(np.array([[0.0, 1.0]]), allowed_tags(["B", "E"])).tolist() == [1]


@pytest.mark.unchecked_shapes
def test_loss_and_marginals_are_those_of_all_sequences():
    torch.manual_seed(0)
    classes = 3
    model = CrfTags(AttentiveConfig().build(20), classes, dropout=0.0).eval()
    torch.nn.init.normal_(model.transitions)
    texts = Texts(torch.randint(4, 20, (2, 6)))
    gold = torch.full((2, 6), NOTHING)  # words of several pieces: only the first has a tag
    gold[0, [1, 2, 4]], gold[1, [1, 3]] = torch.tensor([0, 2, 1]), torch.tensor([1, 1])
    logits, expected = model.scores(texts), 0.0
    for row in range(2):
        places = (gold[row] != NOTHING).nonzero().flatten()
        own, right = logits[row, places], tuple(gold[row, places].tolist())
        sums = {}
        for tags in itertools.product(range(classes), repeat=len(places)):
            pairs = sum(model.transitions[one, other] for one, other in itertools.pairwise(tags))
            sums[tags] = sum(own[place, tag] for place, tag in enumerate(tags)) + pairs
        whole = torch.logsumexp(torch.stack(list(sums.values())), dim=0)
        expected += whole - sums[right]
        marginals = model.log_marginals(own)
        for place, tag in itertools.product(range(len(places)), range(classes)):
            share = torch.logsumexp(torch.stack([one for tags, one in sums.items() if tags[place] == tag]), dim=0)
            torch.testing.assert_close(marginals[place, tag], share - whole, atol=1e-5, rtol=1e-5)
    loss = model.loss(texts, gold)
    assert loss.tokens == 5
    torch.testing.assert_close(loss.total, expected, atol=1e-4, rtol=1e-5)
