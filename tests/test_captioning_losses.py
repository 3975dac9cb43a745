"""What captioners learn by: exact gradients of hard attention, credit, the baseline; and where they come to look."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from sightline import capture
from sightline.attention import hard as hard_module
from sightline.models.captioning_transformer import CaptioningTransformerConfig
from sightline.models.image_to_text import Places
from sightline.models.show_attend_tell import ShowAttendTellConfig, hard, soft
from sightline.search import Rules, greedy
from sightline.vocabulary import END, PADDING, START
from test_captioning_models import MODELS, PLACES, SMALL, WORDS, captions


def forced(monkeypatch, path):
    """Hard attention chooses these places, one after the other."""
    coming = iter(path)

    def noise(like):
        return torch.zeros_like(like).index_fill(-1, torch.tensor([next(coming)]), math.inf)

    monkeypatch.setattr(hard_module, "gumbel_noise", noise)


def enumerated(monkeypatch, config, source, target, baseline):
    """Every way to look, its log-likelihood and its probability; and the mean of the loss's gradients over them."""
    model = config.build(Places(6, 1, 2), WORDS).double().train()
    parameters = [model.decoder.attention.score.query.weight, model.start.weight, model.output.weight]
    objective, mean = 0.0, [torch.zeros_like(parameter) for parameter in parameters]
    for path in itertools.product(range(2), repeat=target.shape[1] - 1):
        model.baseline.fill_(baseline)
        forced(monkeypatch, path)
        reads = []
        features, _ = model._decode(target[:, :-1], model.begin(source), reads)
        log_probs = torch.log_softmax(model.output(features), dim=-1).gather(-1, target[:, 1:, None]).sum()
        chance = torch.cat([read.log_prob for read in reads], dim=-1).sum().exp()
        assert [int(read.weights.argmax()) for read in reads] == list(path)
        objective = objective + chance * log_probs
        forced(monkeypatch, path)
        loss = model.loss(source, target).total
        gradients = torch.autograd.grad(loss, parameters)
        for total, gradient in zip(mean, gradients, strict=True):
            total += chance.detach() * gradient
    return torch.autograd.grad(-objective, parameters), mean


@pytest.mark.parametrize("baseline", [0.0, -2.5])
def test_reinforce_is_the_exact_gradient_on_average(monkeypatch, baseline):
    """Two places, three words: all eight ways to look, each with its probability, instead of samples."""
    config = ShowAttendTellConfig(
        **SMALL,
        attention=hard(5, soft_share=0.0),
        credit="caption",
        reward_weight=1.0,
        entropy_weight=0.0,
        normalised=False,
    )
    source, target = torch.randn(1, 2, 6, dtype=torch.float64), torch.tensor([[START, 7, 9, END]])
    exact, found = enumerated(monkeypatch, config, source, target, baseline)
    for a, b in zip(exact, found, strict=True):
        assert a.abs().max() > 1e-4
        torch.testing.assert_close(a, b, atol=1e-10, rtol=0)


def test_a_word_s_credit_is_exact_for_the_last_word_and_forgets_the_future_elsewhere(monkeypatch):
    config = ShowAttendTellConfig(
        **SMALL,
        attention=hard(5, soft_share=0.0),
        credit="word",
        reward_weight=1.0,
        entropy_weight=0.0,
        normalised=False,
    )
    source = torch.randn(1, 2, 6, dtype=torch.float64)
    exact, found = enumerated(monkeypatch, config, source, torch.tensor([[START, END]]), -1.0)
    torch.testing.assert_close(exact[0], found[0], atol=1e-10, rtol=0)
    exact, found = enumerated(monkeypatch, config, source, torch.tensor([[START, 7, 9, END]]), -1.0)
    torch.testing.assert_close(exact[2], found[2], atol=1e-10, rtol=0)  # what is written has no choices to credit
    assert not torch.allclose(exact[0], found[0], atol=1e-10, rtol=0)


@pytest.mark.parametrize("credit", ["word", "caption"])
def test_where_all_looks_are_soft_the_loss_is_smoothed_cross_entropy(credit):
    """Nothing was sampled, so nothing is credited; a baseline alone changes nothing."""
    attention = hard(5, soft_share=1.0)
    config = ShowAttendTellConfig(**SMALL, attention=attention, credit=credit, entropy_weight=0.0)
    model = config.build(PLACES, WORDS).double().train()
    model.baseline.fill_(-2.0)
    source, target = captions()
    found = model.loss(source, target, 0.1).total
    expected = nn.functional.cross_entropy(
        model.logits(source, target[:, :-1]).flatten(0, 1),
        target[:, 1:].flatten(),
        ignore_index=PADDING,
        reduction="sum",
        label_smoothing=0.1,
    )
    torch.testing.assert_close(found, expected)


def test_the_baseline_follows_the_words_and_is_saved_with_the_weights():
    model = MODELS["hard"].build(PLACES, WORDS).double().train()
    source, target = captions()
    likely = []
    for _ in range(2):
        torch.manual_seed(1)  # the same samples
        before = model.baseline.item()
        loss = model.loss(source, target, 0.0).total
        likely.append((model.baseline.item() - 0.9 * before) / 0.1)
    assert likely[0] == pytest.approx(likely[1])
    assert -6 < likely[0] < -1
    assert loss.isfinite()
    assert model.state_dict()["baseline"].item() == pytest.approx(0.19 * likely[0])
    before = model.baseline.clone()
    model.eval().loss(source, target)
    assert model.baseline.equal(before)


def marked(count, generator):
    """Nine places, each with a word; two of them are marked, and the caption is the words at the marks, in order.

    The mean over the places tells which words there are, but not which ones are marked.
    """
    words = torch.randint(6, (count, 9), generator=generator)
    marks = torch.rand(count, 9, generator=generator).argsort(dim=-1)[:, :2]
    source = torch.cat([nn.functional.one_hot(words, 6), nn.functional.one_hot(marks, 9).transpose(1, 2)], dim=-1)
    caption = words.gather(1, marks) + 4
    ends = torch.full((count, 1), START), torch.full((count, 1), END)
    return 3.0 * source, torch.cat([ends[0], caption, ends[1]], dim=1), marks


LOOKERS = {"soft": soft(24), "hard": hard(24)}


def taught(config, steps, rate):
    """A model that has seen images of nine places, and new ones to try it on; also whether its captions are exact."""
    model = config.build(Places(8, 3, 3), 10)
    generator = torch.Generator().manual_seed(5)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(steps):
        source, target, _ = marked(32, generator)
        loss = model.loss(source, target)
        optimiser.zero_grad()
        (loss.total / loss.tokens).backward()
        optimiser.step()
    model.eval()
    source, target, marks = marked(200, generator)
    found = greedy(*model.searching(source), 200, Rules(START, END, max_length=5))
    exact = np.mean([one.tokens == row for one, row in zip(found, target[:, 1:3].tolist(), strict=True)])
    with torch.no_grad(), capture(model) as trace:
        model.logits(source, target[:, :-1])
    maps = [seen for seen in trace.maps if model.looks_at_source(seen.name)]
    return exact, maps, marks


@pytest.mark.parametrize("name", LOOKERS)
def test_it_learns_to_look_at_the_right_place(name):
    """New images, exact captions, and the peak of each word's look where the word stands."""
    config = ShowAttendTellConfig(24, 32, attention=LOOKERS[name], dropout=0.0, penalty=0.0, normalised=False)
    exact, (seen,), marks = taught(config, 80 if name == "hard" else 50, 2e-2)
    peaks = torch.as_tensor(seen.weights).reshape(200, 3, 9)[:, :2].argmax(dim=-1)
    inside = (peaks == marks).double().mean().item()
    assert exact >= 0.95, (exact, inside)
    assert inside >= 0.9, (exact, inside)
    assert ((torch.as_tensor(seen.weights) == 1).any(dim=-1).all().item()) == (name != "soft"), (
        "one place, when it is hard"
    )


def test_without_attention_the_same_is_not_learned():
    """The mean tells which words there are: what else it takes is to look."""
    exact, maps, _ = taught(ShowAttendTellConfig(24, 32, attention=None, dropout=0.0, normalised=False), 50, 2e-2)
    assert not maps
    assert exact < 0.5


def test_the_transformer_looks_at_the_right_place_too():
    exact, (seen,), marks = taught(CaptioningTransformerConfig(32, 2, 64, 0, 1, 0.0, normalised=False), 100, 5e-3)
    peaks = torch.as_tensor(seen.weights).reshape(200, 2, 3, 9).mean(dim=1)[:, :2].argmax(dim=-1)
    assert exact >= 0.95
    assert (peaks == marks).double().mean() >= 0.9
