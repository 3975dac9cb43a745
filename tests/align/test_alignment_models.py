"""From models to word alignments: whose weights are read, where, and how that is chosen."""

import numpy as np
import pytest
import torch

import runs
from aligned_models import backwards, reversal  # noqa: F401 - pytest finds the fixtures here
from sightline.align import aligning, choosing
from sightline.align.aligning import Aligner, MapSelector, attentions_to_source, sides_of, weights_of_words
from sightline.align.choosing import align, choose
from sightline.align.links import (
    GoldLinks,
    pharaoh,
)
from sightline.errors import UserError
from sightline.explain.capture import capture
from sightline.models.grammar import GrammarConfig
from sightline.models.luong import LuongConfig
from sightline.models.rnnsearch import RNNSearchConfig
from sightline.models.seq2seq import Seq2SeqConfig
from sightline.models.transformer import TransformerConfig
from sightline.text.tokeniser import TokeniserConfig, train_tokeniser
from sightline.vocabulary import END, START

MODELS = {
    "rnnsearch": RNNSearchConfig(16, 16, dropout=0.1),
    "luong": LuongConfig(16, 16, 16, layers=2, dropout=0.1),
    "grammar": GrammarConfig(16, 16, 16, layers=2, dropout=0.1),
    "transformer": TransformerConfig(16, 2, 32, 2, 3, dropout=0.1, tied="none"),
}
TEXTS = ["the old dog sleeps", "a dog and the cat", "cats sleep, dogs dream"] * 20


def random_links(generator, sources, targets, count):
    return frozenset((generator.randrange(sources), generator.randrange(targets)) for _ in range(count))


# From models to weights


def make(config, name="made", **tokenising):
    torch.manual_seed(0)
    tokeniser = train_tokeniser(TEXTS, TokeniserConfig(vocab_size=400, **tokenising))
    model = config.build(tokeniser.words, tokeniser.words)
    for parameter in model.parameters():
        parameter.data *= 2  # an untrained model looks everywhere alike
    return runs.translator(model, tokeniser, tokeniser, name)


PAIRS = [("the old dogs dream", "a catsleep"), ("dog", "cat and the dreamdogs sleep"), ("a b", "the cat")]


@pytest.mark.parametrize("kind", MODELS)
def test_weights_are_those_of_one_pair_alone_summed_by_hand(kind):
    translator = make(MODELS[kind])
    model = translator.model.train()  # and it stays so
    sides = [sides_of(translator.input.tokeniser, list(texts), "spaces") for texts in zip(*PAIRS, strict=True)]
    places = attentions_to_source(translator).selectors()
    assert len(places) == (3 * 3 * 3 if kind == "transformer" else 3)
    found = dict(weights_of_words(translator, *sides, places))
    assert model.training
    model.eval()
    to_words = []
    for number, (source, target) in enumerate(zip(*sides, strict=True)):
        with torch.no_grad(), capture(model) as trace:
            model.logits(torch.tensor([[*source.ids, END]]), torch.tensor([[START, *target.ids]]))
        for index, place in enumerate(places):
            weights = trace[place.name].weights[0].numpy()
            weights = weights.mean(axis=0) if place.head is None else weights[place.head]
            expected = np.zeros((len(target.words), len(source.words)))
            for word in range(len(target.words)):
                rows = [piece - place.shift for piece, owner, _ in target.covered if owner == word]
                rows = [row for row in rows if row >= 0]
                for piece, owner, _ in source.covered:
                    expected[word, owner] += np.mean([weights[row, piece] for row in rows]) if rows else 0
            np.testing.assert_allclose(found[number][index], expected, atol=1e-5)
            to_words.append(expected.sum() / len(target.words))
    assert 0 < min(to_words) < 0.99  # the end has its share, and is no word


def test_the_pass_ends_where_nothing_more_is_needed(monkeypatch):
    translator = make(MODELS["transformer"])
    ran = []
    for number, layer in enumerate(translator.model.decoder):
        layer.feed_forward.register_forward_hook(lambda *_, number=number: ran.append(number))
    sides = [sides_of(translator.input.tokeniser, list(texts), "spaces") for texts in zip(*PAIRS, strict=True)]
    known = attentions_to_source(translator)
    monkeypatch.setattr(aligning, "attentions_to_source", lambda _: known)
    ran.clear()
    early = dict(weights_of_words(translator, *sides, [MapSelector("decoder.1.cross", 1, 0)]))
    assert set(ran) == {0}
    both = dict(
        weights_of_words(
            translator, *sides, [MapSelector("decoder.1.cross", 1, 0), MapSelector("decoder.2.cross", None, 0)]
        )
    )
    assert set(ran) == {0, 1}
    for number, weights in both.items():
        np.testing.assert_allclose(weights[0], early[number][0], atol=1e-6)


def test_small_batches_change_nothing(monkeypatch):
    translator = make(MODELS["rnnsearch"])
    aligner = Aligner(translator, MapSelector("decoder.attention", None, 0))
    pairs = [(f"{'dog ' * n}sleeps", f"a {'cat ' * (9 - n)}") for n in range(9)] + [("", "a"), ("a", " "), ("", "")]
    whole = aligner.align(pairs)
    monkeypatch.setattr(aligning, "BATCH_TOKENS", 1)
    alone = aligner.align(pairs)
    assert [one.links for one in alone] == [one.links for one in whole]
    assert [one.target for one in whole] == [tuple(target.split()) for _, target in pairs]
    assert [one.links for one in whole[-3:]] == [(), (), ()]
    monkeypatch.setattr(aligning, "LONGEST", 8)
    short = aligner.align(pairs)
    lengths = [map(len, translator.input.tokeniser.encode(list(side))) for side in zip(*pairs[:9], strict=True)]
    assert [one is None for one in short[:9]] == [max(both) > 8 for both in zip(*lengths, strict=True)]
    assert len({one is None for one in short[:9]}) == 2


def test_places_are_read_and_checked():
    place = MapSelector.parse("decoder.2.cross:mean:-1")
    assert place == MapSelector("decoder.2.cross", None, -1)
    assert MapSelector.parse(str(MapSelector("a", 3, 1))) == MapSelector("a", 3, 1)
    for wrong in ("", "a", "a:1", "a:x:0", ":1:0", "a:1:2", "a:-1:0"):
        with pytest.raises(UserError, match="NAME:HEAD:SHIFT"):
            MapSelector.parse(wrong)
    translator = make(MODELS["transformer"])
    with pytest.raises(UserError, match=r"there is decoder\.0\.cross"):
        Aligner(translator, MapSelector("decoder.cross", None, 0)).align(PAIRS)
    with pytest.raises(UserError, match="2 heads"):
        Aligner(translator, MapSelector("decoder.0.cross", 2, 0)).align(PAIRS)
    with pytest.raises(UserError, match="no attention"):
        align(make(Seq2SeqConfig(8, 8, 8)), ["a"], ["b"])


# Choosing


@pytest.mark.parametrize("by", ["gold", "agreement", "hiding"])
def test_a_model_that_reads_backwards_is_aligned_without_a_fault(backwards, reversal, by):
    sources, targets, gold = reversal
    options = {"gold": {"gold": gold[:10]}, "agreement": {"reverse": backwards}, "hiding": {}}[by]
    found = backwards.align(sources, targets, **options)
    assert found.chosen.by == by
    assert found.chosen.selector == MapSelector("decoder.attention", None, 0)
    assert found.cuttings == ("characters", "characters")
    assert found.score(gold).error_rate <= 0.02
    assert found.alignments[0].pharaoh == pharaoh(gold[0].sure)
    assert by in ("gold", "hiding") or found.agreement.f1 > 0.98
    assert str(found.chosen.selector) in str(found.chosen)
    moved = align(backwards, sources, targets, use="decoder.attention:mean:1")
    assert moved.chosen.by == "given"
    assert moved.score(gold).error_rate > 0.5


def test_gold_chooses_what_is_nearest_to_it(backwards, reversal):
    """Gold that is one word late wants a map that is moved by one."""
    sources, targets, gold = reversal
    late = [frozenset((source, target + 1) for source, target in one.sure if source > 0) for one in gold]
    late = [GoldLinks(links, links) for links in late]
    chosen = choose(
        backwards, list(zip(sources, targets, strict=True)), gold=late, cuttings=("characters", "characters")
    )
    assert chosen.selector.shift == 1
    assert chosen.score < 0.05
    with pytest.raises(UserError, match="gold for 3 pairs"):
        choose(backwards, list(zip(sources, targets, strict=True)), gold=gold[:3])


class Planted:
    """Maps that are made up: what each run looks at in every place, and what hiding says."""

    def __init__(self, monkeypatch, maps, hidden):
        self.maps, self.hidden = maps, hidden
        monkeypatch.setattr(choosing, "weights_of_words", self.weights)
        monkeypatch.setattr(choosing._Direction, "_costs", lambda run, s, t: self.cells(hidden(run.turned), s, t) * 1.0)

    def weights(self, translator, sources, targets, places):
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            maps = [self.cells(self.maps(translator.name, place), source, target) for place in places]
            yield row, np.stack(maps).astype(np.float32)

    @staticmethod
    def cells(column, source, target):
        rows, columns = len(target.words), len(source.words)
        matrix = np.zeros((rows, columns), dtype=bool)
        for row in range(rows):
            matrix[row, min(max(column(row, columns), 0), columns - 1)] = True
        return matrix


def test_two_maps_that_are_wrong_alike_do_not_win(monkeypatch):
    """Moved by one both ways, two maps agree without a fault: hiding tells which shift is the right one."""
    forward, backward = (make(MODELS["transformer"], name) for name in ("forward", "backward"))

    def maps(name, place):
        if (place.name, place.head) == ("decoder.1.cross", 0 if name == "forward" else 1):
            return lambda row, columns: (row + place.shift) % columns  # all three agree with one of the others
        return lambda row, columns: (row * 7 + len(place.name)) % columns if row % 2 else 0

    Planted(monkeypatch, maps, lambda turned: lambda row, columns: (row + (-1 if turned else 1)) % columns)
    pairs = [("a b c d e f", "f e d c b a"), ("a b c", "a b c")] * 3
    chosen = choose(forward, pairs, reverse=backward)
    assert (chosen.selector, chosen.reverse) == (
        MapSelector("decoder.1.cross", 0, 1),
        MapSelector("decoder.1.cross", 1, -1),
    )
    assert (chosen.by, chosen.score, chosen.pairs) == ("agreement", pytest.approx(1.0), 6)
    alone = choose(forward, pairs)
    assert (alone.selector, alone.by) == (MapSelector("decoder.1.cross", 0, 1), "hiding")
    held = choose(forward, pairs, reverse=backward, use=MapSelector("decoder.0.cross", None, 0))
    assert held.selector == MapSelector("decoder.0.cross", None, 0)


def test_gold_is_turned_for_the_other_direction(monkeypatch):
    """Source word j + 1 belongs to target word j: the one run must look a word ahead, the other a word back."""
    forward, backward = make(MODELS["rnnsearch"]), make(MODELS["rnnsearch"])
    Planted(monkeypatch, lambda name, place: lambda row, columns: row + place.shift, lambda turned: None)
    gold = [GoldLinks(frozenset((place + 1, place) for place in range(4)), frozenset())] * 2
    chosen = choose(forward, [("a b c d e", "a b c d")] * 2, reverse=backward, gold=gold)
    assert (chosen.selector.shift, chosen.reverse.shift, chosen.by) == (1, -1, "gold")
    assert (chosen.score, chosen.reverse_score) == (0.0, pytest.approx(1 - 8 / 9))  # source word 0 has a link too many


def test_of_equal_places_the_runs_own_shift_is_read(monkeypatch):
    translator = make(MODELS["rnnsearch"])
    Planted(monkeypatch, lambda name, place: lambda row, columns: 0, lambda turned: lambda row, columns: row)
    assert choose(translator, PAIRS).selector.shift == 0
    translator.output.shift = -1
    assert choose(translator, PAIRS).selector.shift == -1


def test_there_must_be_something_to_choose_by():
    with pytest.raises(UserError, match="no pair to choose by"):
        align(make(MODELS["rnnsearch"]), ["", " "], ["a", ""])
    with pytest.raises(UserError, match="of the same length"):
        align(make(MODELS["rnnsearch"]), ["a"], [])
    with pytest.raises(UserError, match="threshold"):
        align(make(MODELS["rnnsearch"]), ["a"], ["a"], threshold=1.0)
