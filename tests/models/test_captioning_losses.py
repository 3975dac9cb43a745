"""What captioners learn by: exact gradients of hard attention, credit, the baseline; and where they come to look."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from caption_models import MODELS, PLACES, SMALL, WORDS, captions
from sightline import capture
from sightline.attention import hard as hard_module
from sightline.decoding.search import Rules, greedy
from sightline.models.captioning_transformer import CaptioningTransformerConfig
from sightline.models.image_to_text import Places
from sightline.models.show_attend_tell import ShowAttendTellConfig, hard, soft
from sightline.vocabulary import END, PADDING, START


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
        model.baseline.copy_(torch.as_tensor(baseline))
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


@pytest.mark.parametrize(
    "baseline", [0.0, -2.5, torch.linspace(-5.0, -0.1, WORDS)], ids=["none", "one for all", "one for each word"]
)
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
    assert (model.baseline == -2.0).all()  # it is that of hard looks
    expected = nn.functional.cross_entropy(
        model.logits(source, target[:, :-1]).flatten(0, 1),
        target[:, 1:].flatten(),
        ignore_index=PADDING,
        reduction="sum",
        label_smoothing=0.1,
    )
    torch.testing.assert_close(found, expected)


def means(model, source, target, seed):
    """The mean log-likelihood of each word behind hard looks, with this seed's samples; and which rows are hard."""
    torch.manual_seed(seed)
    state = model.begin(source)
    features, _ = model._decode(target[:, :-1], state, [])
    log_probs = torch.log_softmax(model.output(features), dim=-1).detach()
    hard_rows = [True] * len(target) if state.carry.soft is None else (~state.carry.soft).tolist()
    found = {}
    for row, is_hard in enumerate(hard_rows):
        for place, word in enumerate(target[row, 1:].tolist()):
            if is_hard and word != PADDING:
                found.setdefault(word, []).append(log_probs[row, place, word].item())
    return {word: np.mean(values) for word, values in found.items()}, hard_rows


def test_each_word_s_baseline_follows_it_and_is_saved_with_the_weights():
    """The first mean as it is, then 0.9 of the old and 0.1 of the new; words that were not met keep theirs."""
    model = ShowAttendTellConfig(**SMALL, attention=hard(5, soft_share=0.0)).build(PLACES, WORDS).double().train()
    source, target = captions()
    expected = np.zeros(WORDS)
    for seed in (1, 2):
        found, _ = means(model, source, target, seed)
        assert END in found
        assert len(found) < WORDS - 1
        assert -6 < np.mean(list(found.values())) < -1
        for word, mean in found.items():
            expected[word] = 0.9 * expected[word] + 0.1 * mean if seed == 2 else mean
        torch.manual_seed(seed)
        assert model.loss(source, target).total.isfinite()
        np.testing.assert_allclose(model.baseline.numpy(), expected, rtol=1e-12)
    assert model.state_dict()["baseline"].equal(model.baseline)
    before = model.baseline.clone()
    model.eval().loss(source, target)
    assert model.baseline.equal(before)


def test_the_baseline_is_that_of_hard_looks_only():
    model = ShowAttendTellConfig(**SMALL, attention=hard(5, soft_share=0.5)).build(PLACES, WORDS).double().train()
    source, target = captions((3, 4, 1, 2, 5, 3) * 4)
    found, hard_rows = means(model, source, target, 3)
    assert any(hard_rows)
    assert not all(hard_rows)
    torch.manual_seed(3)
    model.loss(source, target)
    for word in range(WORDS):
        assert model.baseline[word].item() == pytest.approx(found.get(word, 0.0))


def test_a_word_that_was_not_met_is_expected_to_be_as_likely_as_the_others():
    model = MODELS["hard"].build(PLACES, WORDS)
    assert (model._expected(torch.arange(WORDS)) == 0).all()
    model.baseline[[5, 9]] = torch.tensor([-1.0, -4.0])
    assert model._expected(torch.tensor([5, 9, 3])).tolist() == [-1.0, -4.0, -2.5]


@pytest.mark.parametrize("credit", ["word", "caption"])
def test_a_look_is_credited_against_the_baseline_of_its_own_word(monkeypatch, credit):
    """A look before a word that is as likely as always is neither praised nor blamed, however likely others are."""
    config = ShowAttendTellConfig(
        **SMALL, attention=hard(5, soft_share=0.0), credit=credit, reward_weight=1.0, entropy_weight=0.0
    )
    model = config.build(Places(6, 1, 2), WORDS).double().train()
    source, target = torch.randn(1, 2, 6, dtype=torch.float64), torch.tensor([[START, 7, 9, END]])
    score = model.decoder.attention.score.vector
    forced(monkeypatch, (0, 1, 0))
    for word, mean in means(model, source, target, 0)[0].items():
        model.baseline[word] = mean
    forced(monkeypatch, (0, 1, 0))
    (gradient,) = torch.autograd.grad(model.loss(source, target).total, score)
    assert gradient.abs().max() < 1e-12
    model.baseline.fill_(model.baseline[[7, 9, END]].mean().item())  # the same sum, one number for all
    forced(monkeypatch, (0, 1, 0))
    (gradient,) = torch.autograd.grad(model.loss(source, target).total, score)
    assert (gradient.abs().max() > 1e-6) == (credit == "word")


def test_a_caption_is_read_softly_from_its_first_word_to_its_last_or_not_at_all():
    model = ShowAttendTellConfig(**SMALL, attention=hard(5)).build(PLACES, WORDS).train()
    source, target = torch.randn(200, PLACES.count, PLACES.size), torch.randint(4, WORDS, (200, 9))
    reads = []
    model._decode(target, model.begin(source), reads)
    weights = torch.cat([read.weights for read in reads], dim=-2)
    sharp = ((weights == 0) | (weights == 1)).all(dim=-1)
    assert sharp.shape == (200, 9)
    assert (sharp.all(dim=1) | ~sharp.any(dim=1)).all()
    assert 60 < int(sharp.all(dim=1).sum()) < 140


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
    maps = [seen for seen in trace.maps if model.attends_to_source(seen.name)]
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
