"""Heads against torch's own losses and formulas written out."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from sightline.models.attentive import AttentiveConfig
from sightline.models.heads import (
    NOTHING,
    Labeller,
    Number,
    OneLabel,
    SeveralLabels,
    SpanHead,
    TagEach,
    build_labeller,
)
from sightline.models.text_to_labels import Texts
from sightline.vocabulary import END, START

pytestmark = pytest.mark.fast

WORDS = 20
CONFIG = AttentiveConfig("gru", 8, 8, dropout=0.0, word_dropout=0.0)


@pytest.fixture
def model():
    return CONFIG.build(WORDS)


@pytest.fixture
def texts():
    return Texts(torch.tensor([[START, 5, 6, 7, END], [START, 8, END, 0, 0], [START, 9, 10, END, 0]]))


def log_softmax(scores: Tensor) -> np.ndarray:
    found = scores.detach().double().numpy()
    return found - np.log(np.exp(found).sum(axis=-1, keepdims=True))


def test_one_label(model, texts):
    head = OneLabel(model, 4)
    gold = torch.tensor([3, 0, 1])
    scores = head.scores(texts)
    loss = head.loss(texts, gold)
    expected = -log_softmax(scores)[np.arange(3), gold.numpy()].sum()
    assert loss.tokens == 3
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)


def test_class_weights_and_unknown_labels(model, texts):
    weights = [0.5, 2.0, 1.0, 3.0]
    head = OneLabel(model, 4, weights)
    gold = torch.tensor([3, NOTHING, 1])
    logs = log_softmax(head.scores(texts))
    loss = head.loss(texts, gold)
    assert loss.tokens == 2
    assert loss.total.item() == pytest.approx(-3.0 * logs[0, 3] - 2.0 * logs[2, 1], rel=1e-5)
    assert not any("weights" in name for name in head.state_dict())


def test_smoothing(model, texts):
    head = OneLabel(model, 4, smoothing=0.2)
    gold = torch.tensor([3, 0, 1])
    logs = log_softmax(head.scores(texts))
    expected = -(0.8 * logs[np.arange(3), gold.numpy()] + 0.2 * logs.mean(axis=-1)).sum()
    assert head.loss(texts, gold).total.item() == pytest.approx(expected, rel=1e-5)


def test_several_labels(model, texts):
    gold = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    for weights in (None, [3.0, 1.0]):
        head = SeveralLabels(model, 2, weights)
        p = 1 / (1 + np.exp(-head.scores(texts).detach().double().numpy()))
        there = np.array(weights or [1.0, 1.0]) * gold.numpy() * np.log(p)
        expected = -(there + (1 - gold.numpy()) * np.log(1 - p)).sum()
        loss = head.loss(texts, gold)
        assert loss.tokens == 3
        assert loss.total.item() == pytest.approx(expected, rel=1e-5)


def test_a_number_in_its_units(model, texts):
    head = Number(model, mean=1e9, spread=0.5)
    gold = torch.tensor([1e9 + 1, 1e9, 1e9 - 0.25], dtype=torch.float64)
    scores = head.scores(texts)
    assert scores.shape == (3,)
    assert (scores - 1e9).abs().max() > 0
    expected = (((scores - gold) / 0.5) ** 2).sum()
    torch.testing.assert_close(head.loss(texts, gold).total.double(), expected, rtol=1e-5, atol=1e-6)
    for mean, spread in ((0.0, 0.0), (float("nan"), 1.0), (0.0, float("inf"))):
        with pytest.raises(ValueError, match="spread"):
            Number(model, mean, spread)


def test_tags(model, texts):
    head = TagEach(model, 3, weights=[1.0, 2.0, 1.0])
    gold = torch.full((3, 5), NOTHING)
    gold[0, 1], gold[0, 2], gold[2, 1] = 2, 1, 0
    scores = head.scores(texts)
    assert scores.shape == (3, 5, 3)
    logs = log_softmax(scores)
    loss = head.loss(texts, gold)
    assert loss.tokens == 3
    assert loss.total.item() == pytest.approx(-(logs[0, 1, 2] + 2 * logs[0, 2, 1] + logs[2, 1, 0]), rel=1e-5)


def pair() -> Texts:
    words = torch.tensor([[START, 5, END, 6, 7, 8, END], [START, 9, 10, END, 11, END, 0]])
    parts = torch.tensor([[0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0]])
    return Texts(words, parts)


def test_spans_stand_in_the_second_text_only(model):
    head = SpanHead(model)
    scores = head.scores(pair())
    assert scores.shape == (2, 2, 7)
    p = scores.softmax(dim=-1)
    assert ((p > 0).nonzero()[:, 2].unique()).tolist() == [3, 4, 5]
    torch.testing.assert_close(p[0, :, 3:6].sum(dim=-1), torch.ones(2))
    assert (p[1, :, 4] == 1).all()
    gold = torch.tensor([[3, 5], [4, 4]])
    loss = head.loss(pair(), gold)
    expected = -(p[0, 0, 3].log() + p[0, 1, 5].log())
    assert loss.tokens == 2
    torch.testing.assert_close(loss.total, expected)
    lost = head.loss(pair(), torch.tensor([[3, 5], [4, NOTHING]]))
    assert lost.tokens == 1
    torch.testing.assert_close(lost.total, expected)
    with pytest.raises(ValueError, match="no parts"):
        head.scores(Texts(pair().words))


@pytest.mark.parametrize("longest", [1, 2, 4, 30])
def test_the_best_span_is_the_best_of_all(longest):
    scores = torch.randn(40, 2, 9)
    logs = F.log_softmax(scores, dim=-1)
    found = SpanHead.best(scores, longest)
    for one, places in zip(logs, found.tolist(), strict=True):
        pairs = [(i, j) for i in range(9) for j in range(i, min(9, i + longest))]
        assert tuple(places) == max(pairs, key=lambda pair: float(one[0, pair[0]] + one[1, pair[1]]))


def test_empty_texts_have_finite_losses(model):
    nothing = Texts(torch.zeros(2, 4, dtype=torch.long), torch.zeros(2, 4, dtype=torch.long))
    for head, gold in (
        (OneLabel(model, 2), torch.tensor([0, 1])),
        (SeveralLabels(model, 2), torch.zeros(2, 2)),
        (Number(model, 0.0, 1.0), torch.zeros(2)),
        (TagEach(model, 2), torch.full((2, 4), NOTHING)),
        (SpanHead(model), torch.full((2, 2), NOTHING)),
    ):
        total = head.loss(nothing, gold).total
        assert torch.isfinite(total)
        total.backward()
        assert all(p.grad is None or torch.isfinite(p.grad).all() for p in head.parameters())


def test_heads_by_name(model):
    for name, owner in (
        ("one_label", OneLabel),
        ("several_labels", SeveralLabels),
        ("number", Number),
        ("tag_each", TagEach),
        ("span", SpanHead),
    ):
        head = build_labeller(name, model, 3, mean=2.0, spread=4.0)
        assert type(head) is owner
        assert isinstance(head, Labeller)
        assert head.objective == name
    assert (head := build_labeller("number", model, mean=2.0, spread=4.0)).mean == 2.0
    assert head.spread == 4.0
    assert build_labeller("one_label", model, 3, smoothing=0.1, dropout=0.4).dropout.rate == 0.4
    with pytest.raises(ValueError, match="classes is 0"):
        build_labeller("one_label", model)
    for weights in ([1.0], [1.0, -1.0], [1.0, float("nan")]):
        with pytest.raises(ValueError, match="expected 2 numbers"):
            OneLabel(model, 2, weights)


def test_dropout_stands_before_the_output(texts):
    """The model's own rate, in training only."""
    head = OneLabel(AttentiveConfig("embedding", 8, dropout=0.5, word_dropout=0.0).build(WORDS), 2)
    assert head.dropout.rate == 0.5
    assert not torch.equal(head.scores(texts), head.scores(texts))
    head.eval()
    assert torch.equal(head.scores(texts), head.scores(texts))
