"""Hidden words: the shares, the seeds, what is never hidden; and the model that learns from them."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sightline.data.store import write_corpus
from sightline.errors import UserError
from sightline.models.encoder import EncoderConfig
from sightline.models.masked import MaskedWords
from sightline.models.text_to_labels import Texts
from sightline.text.masking import MaskedBlocks, MaskingConfig, hide_words, special_ids
from sightline.vocabulary import END, MASK, PADDING, START, Specials

pytestmark = pytest.mark.fast

OURS = Specials(mask=MASK)
WORDS = 60


def corpus(tmp_path, texts):
    return write_corpus(tmp_path / "corpus", [(text, []) for text in texts])


def numbers(count=40, seed=0):
    """Texts in which every token says which text it is from and where it stands: 5, 6, 7, …"""
    random = np.random.default_rng(seed)
    return [random.integers(5, WORDS, random.integers(1, 30)).tolist() for _ in range(count)]


def within(found, count, share):
    """Five deviations of a binomial: once in two million."""
    return abs(found - count * share) < 5 * math.sqrt(count * share * (1 - share))


def test_the_shares_are_the_paper_s():
    words = np.random.default_rng(3).integers(5, 5000, (400, 200))
    ordinary = np.arange(5, 5000)
    found = hide_words(words, MASK, ordinary, special_ids(OURS), np.random.default_rng(0), MaskingConfig())
    count = len(found.places)
    assert within(count, words.size, 0.15)
    there = found.words.reshape(-1)[found.places]
    assert within((there == MASK).sum(), count, 0.8)
    kept = there == found.gold
    assert within(kept.sum(), count, 0.1 + 0.1 / len(ordinary))
    replaced = there[(there != MASK) & ~kept]
    assert within(len(replaced), count, 0.1)
    assert len(set(replaced.tolist())) > 600, "drawn from all words"
    assert (found.gold == words.reshape(-1)[found.places]).all()
    untouched = np.ones(words.size, bool)
    untouched[found.places] = False
    assert (found.words.reshape(-1)[untouched] == words.reshape(-1)[untouched]).all()
    # Each place and each column as often as any other.
    columns = np.bincount(found.places % 200, minlength=200)
    assert all(within(one, 400, 0.15) for one in columns)


def test_special_tokens_are_never_hidden_nor_drawn():
    random = np.random.default_rng(0)
    words = random.integers(0, 9, (300, 40))
    special = special_ids(Specials(padding=1, unknown=3, start=0, end=2, mask=8))
    assert special == [0, 1, 2, 3, 8]
    found = hide_words(words, 8, np.arange(4, 8), special, random, MaskingConfig(masked=0.1, replaced=0.9))
    assert len(found.places) > 500
    assert not np.isin(found.gold, special).any()
    there = found.words.reshape(-1)[found.places]
    assert set(there.tolist()) == {4, 5, 6, 7, 8}
    nothing = hide_words(np.full((2, 3), 2), 8, np.arange(4, 8), special, random, MaskingConfig())
    assert len(nothing.places) == 0
    for _ in range(50):  # one word alone: always asked for
        assert len(hide_words(np.array([[0, 5, 2]]), 8, np.arange(4, 8), special, random, MaskingConfig()).places) == 1


@pytest.mark.parametrize("pairs", [False, True])
def test_masks_follow_seed_epoch_and_batch(tmp_path, pairs):
    texts = corpus(tmp_path, numbers())

    def batches(seed, epoch):
        config = MaskingConfig(length=16, pairs=pairs)
        lesson = MaskedBlocks(texts, WORDS, OURS, config, rows=4, seed=seed)
        handles = lesson.epoch(epoch)
        assert len(handles) == len(lesson)
        return [lesson.batch(handle) for handle in reversed(handles)]  # in any order

    def same(one, other):
        pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
        return all(np.array_equal(a, b) for a, b in pairs)

    first = batches(0, 3)
    assert same(first, batches(0, 3))
    assert not same(first, batches(0, 4))
    assert not same(first, batches(1, 3))
    assert len({one.places.tobytes() for one in first}) > 1


def restored(batch):
    words = batch.words.copy().reshape(-1)
    words[batch.places] = batch.gold
    return words.reshape(batch.words.shape)


def test_blocks_hold_every_word_once_in_an_epoch(tmp_path):
    texts = numbers()
    lesson = MaskedBlocks(corpus(tmp_path, texts), WORDS, OURS, MaskingConfig(length=16), rows=5)
    stream = [token for text in texts for token in [*text, END]]
    starts = set()
    for epoch in range(3):
        seen = []
        for handle in lesson.epoch(epoch):
            batch = restored(lesson.batch(handle))
            assert batch.shape[1] <= 16
            for row in batch:
                row = row[row != PADDING]
                assert row[0] == START
                assert row[-1] == END
                assert START not in row[1:]
                inside = row[1:-1].tolist()
                # A piece of the stream, perhaps around its end; an END at its own end is the block's.
                around = stream + stream
                assert any(around[at : at + len(inside)] == inside for at in range(len(stream)))
                seen += [token for token in inside if token != END]
        assert len(seen) >= sum(map(len, texts)) - 16, "all but what does not fill a block"
        starts.add(tuple(restored(lesson.batch(lesson.epoch(epoch)[0]))[0][:4].tolist()))
    assert len(starts) == 3


def test_one_short_text_is_a_block_of_its_own(tmp_path):
    lesson = MaskedBlocks(corpus(tmp_path, [[7, 8, 9]]), WORDS, OURS, MaskingConfig(length=16), rows=5)
    (handle,) = lesson.epoch(0)
    row = restored(lesson.batch(handle))[0]
    assert sorted(row[(row > 4)].tolist()) == [7, 8, 9]


def test_half_of_the_pairs_follow_each_other(tmp_path):
    # Token n of text t is 100 t + n: what comes behind what can be read off.
    texts = [[100 * text + place + 100 for place in range(40)] for text in range(300)]
    config = MaskingConfig(length=23, pairs=True)
    lesson = MaskedBlocks(corpus(tmp_path, texts), 40_000, OURS, config, rows=16)
    follows, count = 0, 0
    for handle in lesson.epoch(0):
        made = lesson.batch(handle)
        for row, parts, following in zip(restored(made), made.parts, made.follows, strict=True):
            length = int((row != PADDING).sum())
            ends = np.flatnonzero(row == END)
            assert row[0] == START
            assert ends.tolist() == [ends[0], length - 1]
            assert (parts == ((np.arange(len(row)) > ends[0]) & (np.arange(len(row)) < length))).all()
            is_next = row[ends[0] + 1] == row[ends[0] - 1] + 1
            assert is_next == following
            follows, count = follows + following, count + 1
    assert count == 600
    assert within(follows, count, 0.5)


def test_what_cannot_be_learnt_from_is_refused(tmp_path):
    texts = corpus(tmp_path, [[5], [6]])
    with pytest.raises(UserError, match="no token for the mask"):
        MaskedBlocks(texts, WORDS, Specials(), MaskingConfig(), 4)
    with pytest.raises(UserError, match="leave pairs out"):
        MaskedBlocks(texts, WORDS, OURS, MaskingConfig(pairs=True), 4)
    with pytest.raises(UserError, match="no text"):
        MaskedBlocks(write_corpus(tmp_path / "empty", [([], [])]), WORDS, OURS, MaskingConfig(), 4)
    for wrong in ({"share": 0.0}, {"masked": 0.9, "replaced": 0.2}, {"length": 7}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            MaskingConfig(**wrong)


def model(pairs=False, **options):
    config = EncoderConfig(size=32, heads=4, feed_forward=64, layers=2, dropout=0.0, **options)
    return MaskedWords(config.build(WORDS, OURS), pairs)


@pytest.mark.parametrize("pairs", [False, True])
def test_the_loss_is_that_of_the_hidden_places(pairs):
    masked = model(pairs).double()
    words = torch.randint(5, WORDS, (3, 7))
    words[1, 4:] = PADDING
    places, gold = torch.tensor([2, 8, 15, 16]), torch.tensor([5, 6, 7, 8])
    follows = torch.tensor([True, False, True]) if pairs else None
    loss = masked.loss(Texts(words), places, gold, follows)
    logits = masked.logits(Texts(words), places)
    annotations = masked.encoder.annotate(Texts(words)).reshape(21, -1)[places]
    by_hand = masked.normalise(F.gelu(masked.transform(annotations))) @ masked.encoder.embedding.weight.T + masked.bias
    torch.testing.assert_close(logits, by_hand)
    expected = F.cross_entropy(logits, gold, reduction="sum")
    if pairs:
        scores = masked.follow(masked.encoder.features(Texts(words)))
        expected = expected + 4 * F.cross_entropy(scores, follows.long())
    torch.testing.assert_close(loss.total, expected)
    assert loss.tokens == 4


def test_at_first_it_knows_nothing_and_then_it_learns(tmp_path):
    """Every text is one word again and again: a hidden one can be known from its neighbours, and only from them."""
    texts = [[5 + text % 20] * 30 for text in range(60)]
    lesson = MaskedBlocks(corpus(tmp_path, texts), WORDS, OURS, MaskingConfig(length=12), rows=24)
    masked = model()
    optimiser = torch.optim.AdamW(masked.parameters(), lr=5e-3)
    losses = []
    for epoch in range(4):
        for handle in lesson.epoch(epoch):
            words, places, gold = (torch.from_numpy(part) for part in lesson.batch(handle)[:3])
            loss = masked.loss(Texts(words), places, gold)
            optimiser.zero_grad()
            (loss.total / loss.tokens).backward()
            optimiser.step()
            losses.append(loss.total.item() / loss.tokens)
    assert losses[0] == pytest.approx(math.log(WORDS), abs=0.7)
    assert np.mean(losses[-5:]) < 0.6 * math.log(20), "the words alone are worth log 20"
